"""The process that the user started: it runs the command while another process holds the lock, and stops it in time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import PROG, _messages
from ._lock_options import LOST
from ._run_group import KILL_TIMEOUT, POLL_INTERVAL, Child
from ._run_holder import DONE, FAILED, GROUP, KILL_GRACE, now
from ._run_link import Link
from ._run_signals import FORWARDED, NEEDS_TERMINAL, Signals
from ._run_terminal import Foreground

NOT_EXECUTABLE, NOT_FOUND = 126, 127

TERM_FRACTION, KILL_FRACTION = 1 / 4, 1 / 10
"""Parts of the lease that are left when its command gets SIGTERM, and SIGKILL."""

LONGEST_KILL_MARGIN = 1.0
"""Seconds: even for a long lease, SIGKILL need not come earlier than this before the end."""

CLOCK_CHECK_INTERVAL = 0.5
"""Seconds between two readings of the clock: timers stop while a machine is suspended, leases continue to expire."""

RELEASE_TIMEOUT = 7.0
"""Seconds that the release may take. It takes one round trip, or a node's timeout; if the name stays locked
(`--min-hold`) and too few nodes answer, the library waits up to 5 s for them."""


class Job:
    """One command under one lock."""

    def __init__(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], signals: Signals, link: Link
    ) -> None:
        self._name = name
        self._command = command
        self._environ = environ
        self._signals = signals
        self._link = link
        self._foreground = Foreground()
        self._granted: dict[str, Any] | None = None
        self._ended: dict[str, Any] | None = None
        self._until = 0.0
        self._span = 0.0
        """How long the lease was when it was granted."""
        self._loss: str | None = None
        """Why the holder reports the lock as lost."""
        self._in_front = False
        """Whether the command gets the terminal when we have it."""
        self._stopping = False
        """Whether the command is being stopped because of a loss."""
        self._kill_at = 0.0
        self._killed = False

    def run(self) -> int:
        """Run the command under the lock, and return the exit status."""
        if (interrupted := self._wait_for_lock()) is not None:
            self._finish()
            return 128 + interrupted
        if self._granted is None or not self._can_start:
            return self._give_up()
        try:
            child = self._start(self._granted)
        except (OSError, subprocess.SubprocessError) as error:
            return self._not_started(error)
        # Release the files that only the command uses now: when it closes them, they must be closed everywhere.
        detach_standard_files()
        while not self._is_over(child):
            self._handle_next(child)
        self._foreground.take_back(child.number)
        if self._stopping:
            self._foreground.restore()
        self._link.try_send(DONE if child.status == 0 else FAILED)
        self._finish()
        return self._status(child)

    # Before the command

    def _wait_for_lock(self) -> int | None:
        """Wait until the lock is granted or refused; return the signal that interrupted this, if one did."""
        while self._granted is None and not self._link.closed:
            self._sleep(None)
            for number in self._signals.read():
                if number in FORWARDED:
                    return number
            self._read()
        self._read()  # if we were suspended meanwhile, the holder may have ended
        return None

    def _give_up(self) -> int:
        """Return the status for a lock that was not granted, or was released before the command could start."""
        late = self._granted is not None
        self._finish()
        ended = self._ended or {"ended": LOST if late else 1, "message": self._holder_ended}
        if ended["message"]:
            say(ended["message"])
        return int(ended["ended"]) or (LOST if late else 0)

    def _start(self, granted: Mapping[str, Any]) -> Child:
        environ = {**self._environ, "REDLOCK_NAME": self._name, "REDLOCK_TOKEN": granted["granted"]}
        # These may come from an outer `run`. Without fencing or slots of our own, its values would be wrong.
        environ.pop("REDLOCK_FENCING_TOKEN", None)
        environ.pop("REDLOCK_SLOTS", None)
        if granted["fence"] is not None:
            environ["REDLOCK_FENCING_TOKEN"] = str(granted["fence"])
        if granted["slots"]:
            environ["REDLOCK_SLOTS"] = ",".join(map(str, granted["slots"]))
        # In a pipeline other members of our group may need the terminal; then the command gets it only on demand.
        self._in_front = self._foreground.ours and os.isatty(0) and os.isatty(1)

        def before(group: int) -> None:
            # The new process sends this itself, so the holder can stop the command even if we are killed now.
            self._link.send(f"{GROUP}{group}")
            if self._in_front:
                self._foreground.give(group)

        with self._signals.blocked() as mask:
            child = Child(self._command, environ, caught=self._signals.caught, mask=mask, before=before)
            self._signals.catch_suspend()
        return child

    def _not_started(self, error: Exception) -> int:
        if self._in_front:
            self._foreground.give(os.getpgrp())
        self._link.try_send(FAILED)
        self._finish()
        if not isinstance(error, OSError):  # the new process could not reach the holder, which has ended
            say(self._holder_ended)
            return LOST
        say(f"{self._command[0]}: {error.strerror}{self._hint(error)}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE

    def _hint(self, error: OSError) -> str:
        """Return a hint if the command and its arguments were given as one word."""
        (first, *others) = self._command
        if others or not isinstance(error, FileNotFoundError) or len(first.split()) == 1:
            return ""
        return "; give the command and its arguments as separate words, or run it with a shell: sh -c '...'"

    # While it runs

    def _handle_next(self, child: Child) -> None:
        """Wait for the next event, and handle it."""
        self._sleep(self._until_next(child))
        for number in self._signals.read():
            self._forward(child, number)
        self._read()
        self._check(child)
        if (stopped_by := child.poll()) is not None:
            self._stopped(child, stopped_by)

    def _until_next(self, child: Child) -> float:
        if not self._stopping:
            return min(self._term_at - now(), CLOCK_CHECK_INTERVAL)
        if child.status is not None or self._killed:
            return POLL_INTERVAL
        return min(self._kill_at - now(), CLOCK_CHECK_INTERVAL)

    def _is_over(self, child: Child) -> bool:
        if child.status is None:
            unkillable = self._killed and now() > self._kill_at + KILL_TIMEOUT
            if unkillable:
                say(
                    f"the command under the lock on {self._name!r} (process group {child.number}) did not end after "
                    "SIGKILL; it may belong to another user or wait for a device: stop it yourself"
                )
            return unkillable
        if not self._stopping:
            return True
        # After a loss, wait for the whole group, because processes that the command started are stopped as well.
        return not child.exists or (self._killed and now() > self._kill_at + KILL_TIMEOUT)

    @property
    def _can_start(self) -> bool:
        """Whether enough of the lease is left to start a command."""
        return self._loss is None and not self._link.closed and now() < self._term_at

    @property
    def _term_at(self) -> float:
        return self._until - TERM_FRACTION * self._span

    @property
    def _last_kill_at(self) -> float:
        return self._until - min(KILL_FRACTION * self._span, LONGEST_KILL_MARGIN)

    def _check(self, child: Child) -> None:
        """Stop the command if the lock is lost or about to expire."""
        if not self._stopping:
            if self._loss is not None:
                self._stop(child, self._loss, min(now() + KILL_GRACE, self._last_kill_at))
            elif self._link.closed:
                self._stop(child, self._holder_ended, self._last_kill_at)
            elif now() >= self._term_at:
                why = f"the lock on {self._name!r} could not be renewed and is about to expire"
                self._stop(child, why, self._last_kill_at)
        if self._stopping and not self._killed and now() >= self._kill_at:
            child.kill()
            self._killed = True

    def _stop(self, child: Child, why: str, kill_at: float) -> None:
        self._stopping = True
        self._kill_at = kill_at
        if now() < kill_at:
            child.terminate()
        say(f"{why}; stopping the command")

    def _forward(self, child: Child, number: int) -> None:
        if number in FORWARDED or number == signal.SIGTSTP:
            child.send(number)

    def _stopped(self, child: Child, number: int) -> None:
        """Suspend our own group like the command, so that the shell notices, and continue the command afterwards."""
        if not self._foreground.exists:
            return  # no shell would continue us
        needs_terminal = number in NEEDS_TERMINAL
        self._in_front |= needs_terminal
        if not (needs_terminal and self._foreground.ours):
            continued = self._suspend(child, number if needs_terminal else signal.SIGTSTP)
            self._read()
            self._check(child)
            if needs_terminal and not continued:
                child.send(signal.SIGHUP)  # no shell will ever give it the terminal
        if self._in_front and self._foreground.ours:
            self._foreground.give(child.number)
        if not self._stopping:
            child.send(signal.SIGCONT)

    def _suspend(self, child: Child, number: int) -> bool:
        """Stop our group, and return once it continues; False if nothing could continue it.

        A shell that sees us stop takes the terminal back itself.
        """
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(0, number)
        signal.signal(number, handler)
        numbers = self._signals.read()
        for other in numbers:
            if other != number:
                self._forward(child, other)
        return signal.SIGCONT in numbers

    # After it

    def _status(self, child: Child) -> int:
        ended = self._ended
        if self._stopping:
            return LOST
        if ended is None:
            say(f"the release of the lock on {self._name!r} is not confirmed; it expires within its ttl")
        elif ended["message"]:
            say(ended["message"])
        status = ended["ended"] if ended is not None else 0
        return int(status) or child.status or 0

    def _finish(self) -> None:
        """Let the holder release the lock, and wait for it, but not indefinitely."""
        self._link.close_sending()
        end = now() + (KILL_GRACE if self._stopping else RELEASE_TIMEOUT)  # a lost lock needs no release
        while not self._link.closed and now() < end:
            self._sleep(end - now())
            self._signals.read()
            self._read()

    # Messages of the holder

    def _read(self) -> None:
        for message in self._link.receive():
            self._until = message.get("until", self._until)
            self._loss = message.get("lost", self._loss)
            if "granted" in message:
                self._granted = message
                self._span = self._until - now()
            if "ended" in message:
                self._ended = message

    @property
    def _holder_ended(self) -> str:
        """The message about a holder that closed the connection: its own, or that it ended."""
        if self._ended is not None and self._ended["message"]:
            return str(self._ended["message"])
        return f"the process that held the lock on {self._name!r} has ended"

    def _sleep(self, seconds: float | None) -> None:
        """Wait until there is something to read, or the time is over."""
        readable: list[Signals | Link] = [self._signals] if self._link.closed else [self._signals, self._link]
        select.select(readable, [], [], None if seconds is None else max(seconds, 0))


def say(message: str) -> None:
    """Print a message on stderr, if it is open."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            _messages.say(f"{PROG}: {message}")


def detach_standard_files() -> None:
    """Replace stdin and stdout, which the command has as well, by /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)
