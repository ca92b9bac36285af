"""The terminal a command was started from: given to its group and taken back, as a shell does for its jobs."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Foreground:
    """Which group may read the terminal and gets its Ctrl-C; without a terminal nothing happens."""

    def __init__(self) -> None:
        self._terminal: int | None = None
        with suppress(OSError):
            self._terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        self._settings = self._read_settings()

    def _read_settings(self) -> list[int | list[bytes | int]] | None:
        if self._terminal is not None:
            with suppress(termios.error):
                return termios.tcgetattr(self._terminal)
        return None

    @property
    def exists(self) -> bool:
        """Whether there is a terminal."""
        return self._terminal is not None

    @property
    def ours(self) -> bool:
        """Whether our own group has it."""
        return self.is_of(os.getpgrp())

    def is_of(self, group: int) -> bool:
        """Whether that group has it."""
        if self._terminal is not None:
            with suppress(OSError):  # it was hung up
                return os.tcgetpgrp(self._terminal) == group
        return False

    def give(self, group: int) -> None:
        """Let that group have it."""
        if self._terminal is not None:
            with suppress(OSError), _from_the_background():
                os.tcsetpgrp(self._terminal, group)

    def take_back(self, group: int) -> None:
        """Have it ourselves, if that group has it."""
        if self.is_of(group):
            self.give(os.getpgrp())

    def restore(self) -> None:
        """Set it as it was at first: who is killed cannot leave raw mode."""
        if self._terminal is not None and self._settings is not None and self.ours:
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._settings)


@contextmanager
def _from_the_background() -> Iterator[None]:
    """Who has not got the terminal is stopped for touching it, unless it blocks the signal."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
