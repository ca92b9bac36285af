"""The process that was started: it runs the command while another holds the lock, and stops it if that fails."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import PROG, _words
from ._run_group import GONE, LOOK, Child
from ._run_holder import DONE, GROUP, LOST, PARTING, now
from ._run_link import Link
from ._run_signals import PASSED_ON, WANTS_TERMINAL, Signals
from ._run_terminal import Foreground

NOT_EXECUTABLE, NOT_FOUND = 126, 127

ASK, END = 1 / 4, 1 / 10
"""Parts of a lease that are left when its command gets SIGTERM, and SIGKILL."""

EARLIEST_END = 1.0
"""Seconds: however long the lease is, SIGKILL need not come earlier than that before its end."""

GLANCE = 0.5
"""Seconds between two looks at the clock: timers stand still while a machine is suspended, leases do not."""

PATIENCE = 2.0
"""Seconds that giving the lock back may take; it is over in one round trip, or in a node's timeout."""


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
        self._taken: str | None = None
        """Why it is not ours any more, by the holder's word."""
        self._in_front = False
        """Whether the command is to have the terminal when we have it."""
        self._lost = False
        """Whether the command was told to end."""
        self._kill_at = 0.0
        self._killed = False

    def run(self) -> int:
        """All of it; returns the exit status."""
        if (interrupted := self._wait_for_lock()) is not None:
            self._part()
            return 128 + interrupted
        if self._granted is None or not self._stands:
            return self._without()
        try:
            child = self._start(self._granted)
        except (OSError, subprocess.SubprocessError) as error:
            return self._not_started(error)
        # What the command closes shall be closed: nobody reads or writes these here any more.
        let_go_of_standard_files()
        while not self._is_over(child):
            self._attend(child)
        self._foreground.take_back(child.number)
        if self._lost:
            self._foreground.restore()
        self._link.say(DONE)
        self._part()
        return self._status(child)

    # Before the command

    def _wait_for_lock(self) -> int | None:
        """Until it is granted, or it is known that it will not be; or the signal that ended waiting."""
        while self._granted is None and not self._link.over:
            self._sleep(None)
            for number in self._signals.read():
                if number in PASSED_ON:
                    return number
            self._read()
        self._read()  # it may be over already, if we were suspended meanwhile
        return None

    def _without(self) -> int:
        """It was not granted, or has been given back before there was a command."""
        late = self._granted is not None
        self._part()
        ended = self._ended or {"ended": LOST if late else 1, "said": self._silence}
        if ended["said"]:
            say(ended["said"])
        return int(ended["ended"]) or (LOST if late else 0)

    def _start(self, granted: Mapping[str, Any]) -> Child:
        environ = {**self._environ, "REDLOCK_NAME": self._name, "REDLOCK_TOKEN": granted["granted"]}
        # With fencing=False there is none, and that of a `run` around this one would be wrong.
        environ.pop("REDLOCK_FENCING_TOKEN", None)
        environ.pop("REDLOCK_SLOTS", None)
        if granted["fence"] is not None:
            environ["REDLOCK_FENCING_TOKEN"] = str(granted["fence"])
        if granted["slots"]:
            environ["REDLOCK_SLOTS"] = ",".join(map(str, granted["slots"]))
        # In a pipeline others of our group may need the terminal: there the command gets it when it asks for it.
        self._in_front = self._foreground.ours and os.isatty(0) and os.isatty(1)

        def before(group: int) -> None:
            # Said by the new process itself: were we killed now, the holder would know what to stop.
            self._link.announce(f"{GROUP}{group}")
            if self._in_front:
                self._foreground.give(group)

        with self._signals.held_back() as mask:
            child = Child(self._command, environ, caught=self._signals.caught, mask=mask, before=before)
            self._signals.catch_suspending()
        return child

    def _not_started(self, error: Exception) -> int:
        if self._in_front:
            self._foreground.give(os.getpgrp())
        self._link.say(DONE)
        self._part()
        if not isinstance(error, OSError):  # it could not tell the holder, which has ended
            say(self._silence)
            return LOST
        say(f"{self._command[0]}: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE

    # While it runs

    def _attend(self, child: Child) -> None:
        """Wait until something happens, and see to it."""
        self._sleep(self._until_next(child))
        for number in self._signals.read():
            self._pass_on(child, number)
        self._read()
        self._check(child)
        if (stopped_by := child.look()) is not None:
            self._stopped(child, stopped_by)

    def _until_next(self, child: Child) -> float:
        if not self._lost:
            return min(self._ask_at - now(), GLANCE)
        if child.status is not None or self._killed:
            return LOOK
        return min(self._kill_at - now(), GLANCE)

    def _is_over(self, child: Child) -> bool:
        if child.status is None:
            unkillable = self._killed and now() > self._kill_at + GONE
            if unkillable:
                say(f"the command ({child.number}) does not end; it may be another user's")
            return unkillable
        if not self._lost:
            return True
        # What it started and left behind is stopped as it is.
        return not child.exists or (self._killed and now() > self._kill_at + GONE)

    @property
    def _stands(self) -> bool:
        """Whether a command may begin under it."""
        return self._taken is None and not self._link.over and now() < self._ask_at

    @property
    def _ask_at(self) -> float:
        return self._until - ASK * self._span

    @property
    def _end_at(self) -> float:
        return self._until - min(END * self._span, EARLIEST_END)

    def _check(self, child: Child) -> None:
        """Whether the lock still stands, and will for long enough."""
        if not self._lost:
            if self._taken is not None:
                self._lose(child, self._taken, min(now() + PARTING, self._end_at))
            elif self._link.over:
                self._lose(child, self._silence, self._end_at)
            elif now() >= self._ask_at:
                self._lose(child, f"the lock on {self._name!r} could not be renewed and is about to end", self._end_at)
        if self._lost and not self._killed and now() >= self._kill_at:
            child.kill()
            self._killed = True

    def _lose(self, child: Child, why: str, kill_at: float) -> None:
        self._lost = True
        self._kill_at = kill_at
        if now() < kill_at:
            child.terminate()
        say(f"{why}: the command is stopped")

    def _pass_on(self, child: Child, number: int) -> None:
        if number in PASSED_ON or number == signal.SIGTSTP:
            child.send(number)

    def _stopped(self, child: Child, number: int) -> None:
        """It was suspended: so is the job it is part of, for the shell to see, and goes on when that does."""
        if not self._foreground.exists:
            return  # there is no shell that would have us go on
        wants_terminal = number in WANTS_TERMINAL
        self._in_front |= wants_terminal
        if not (wants_terminal and self._foreground.ours):
            continued = self._suspend(child, number if wants_terminal else signal.SIGTSTP)
            self._read()
            self._check(child)
            if wants_terminal and not continued:
                child.send(signal.SIGHUP)  # nobody will ever give it the terminal
        if self._in_front and self._foreground.ours:
            self._foreground.give(child.number)
        if not self._lost:
            child.send(signal.SIGCONT)

    def _suspend(self, child: Child, number: int) -> bool:
        """Stop with all of our group, and return when it is continued; False if nobody could do that.

        The shell that sees us stop has the terminal back without our help.
        """
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(0, number)
        signal.signal(number, handler)
        numbers = self._signals.read()
        for other in numbers:
            if other != number:
                self._pass_on(child, other)
        return signal.SIGCONT in numbers

    # After it

    def _status(self, child: Child) -> int:
        ended = self._ended
        if self._lost:
            return LOST
        if ended is None:
            say(f"nobody confirmed that the lock on {self._name!r} was given back: it ends by itself")
        elif ended["said"]:
            say(ended["said"])
        status = ended["ended"] if ended is not None else 0
        return int(status) or child.status or 0

    def _part(self) -> None:
        """Let the holder give the lock back, but do not wait for ever."""
        self._link.hang_up()
        end = now() + (PARTING if self._lost else PATIENCE)  # of a lost one there is nothing to give back
        while not self._link.over and now() < end:
            self._sleep(end - now())
            self._signals.read()
            self._read()

    # What the holder says

    def _read(self) -> None:
        for news in self._link.news():
            self._until = news.get("until", self._until)
            self._taken = news.get("lost", self._taken)
            if "granted" in news:
                self._granted = news
                self._span = self._until - now()
            if "ended" in news:
                self._ended = news

    @property
    def _silence(self) -> str:
        if self._ended is not None and self._ended["said"]:
            return str(self._ended["said"])
        return f"the process that held the lock on {self._name!r} has ended"

    def _sleep(self, seconds: float | None) -> None:
        """Until there is something to read, or the time is over."""
        readable: list[Signals | Link] = [self._signals] if self._link.over else [self._signals, self._link]
        select.select(readable, [], [], None if seconds is None else max(seconds, 0))


def say(words: str) -> None:
    """On stderr, if it can be."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            _words.say(f"{PROG}: {words}")


def let_go_of_standard_files() -> None:
    """Of those that the command has, too, all but the one for words."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)
