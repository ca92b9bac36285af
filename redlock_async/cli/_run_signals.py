"""The signals that `run` is sent, caught, held back, and read when there is time; what they mean is not known here."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
WANTS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)


class Signals:
    """What this process is sent, as numbers to be read when there is time for it."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        # What our caller has us ignore (nohup), we and the command ignore.
        heard = {number for number in (*PASSED_ON, signal.SIGTSTP) if signal.getsignal(number) is not signal.SIG_IGN}
        self.caught = {*heard, signal.SIGCONT, signal.SIGCHLD}

    def fileno(self) -> int:
        """What `select` waits for."""
        return self._reader

    @contextlib.contextmanager
    def held_back(self) -> Iterator[set[signal.Signals]]:
        """They wait until the end of the block; yields the mask from before."""
        mask = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, self.caught)}
        try:
            yield mask
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def catch(self) -> None:
        """From here on they can be read. Suspending is left as it is until there is a command to suspend."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in self.caught - {signal.SIGTSTP}:
            signal.signal(number, _noted)

    def catch_suspending(self) -> None:
        """That as well."""
        if signal.SIGTSTP in self.caught:
            signal.signal(signal.SIGTSTP, _noted)

    def ignore(self) -> None:
        """For a process that ends when others do."""
        for number in (*self.caught, signal.SIGTSTP, *WANTS_TERMINAL):
            signal.signal(number, signal.SIG_IGN)

    def read(self) -> list[int]:
        """Those that came since."""
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self._reader, 1024))
        return []


def _noted(_number: int, _frame: object) -> None:
    """The wake-up file has its number."""
