"""The signals that `run` receives: caught, blocked, and read from a pipe. Their meaning is decided elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
NEEDS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)


class Signals:
    """The signals of this process, queued as numbers in a pipe."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        # A signal that our caller ignores, as nohup does, is also ignored by us and by the command.
        handled = {number for number in (*FORWARDED, signal.SIGTSTP) if signal.getsignal(number) is not signal.SIG_IGN}
        self.caught = {*handled, signal.SIGCONT, signal.SIGCHLD}

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._reader

    @contextlib.contextmanager
    def blocked(self) -> Iterator[set[signal.Signals]]:
        """Block the signals during the `with` block; yield the mask from before."""
        mask = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, self.caught)}
        try:
            yield mask
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def catch(self) -> None:
        """Start to queue signals, except SIGTSTP: without a command, Ctrl-Z should suspend this process as usual."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in self.caught - {signal.SIGTSTP}:
            signal.signal(number, _do_nothing)

    def catch_suspend(self) -> None:
        """Start to queue SIGTSTP as well."""
        if signal.SIGTSTP in self.caught:
            signal.signal(signal.SIGTSTP, _do_nothing)

    def ignore(self) -> None:
        """Ignore all signals: the process that holds the lock ends only when the other process does."""
        for number in (*self.caught, signal.SIGTSTP, *NEEDS_TERMINAL):
            signal.signal(number, signal.SIG_IGN)

    def read(self) -> list[int]:
        """Return the signals that arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self._reader, 1024))
        return []


def _do_nothing(_number: int, _frame: object) -> None:
    """Handle a signal whose number Python has already written to the pipe."""
