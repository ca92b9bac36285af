"""The terminal a command was started from: given to its process group and taken back, as a shell does for its jobs."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Foreground:
    """Controls which process group reads the terminal and receives its Ctrl-C. Without a terminal it does nothing."""

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
        """Whether our own group is in the foreground."""
        return self.belongs_to(os.getpgrp())

    def belongs_to(self, group: int) -> bool:
        """Return whether that group is in the foreground."""
        if self._terminal is not None:
            with suppress(OSError):  # the terminal may have hung up
                return os.tcgetpgrp(self._terminal) == group
        return False

    def give(self, group: int) -> None:
        """Put that group into the foreground."""
        if self._terminal is not None:
            with suppress(OSError), _sigttou_blocked():
                os.tcsetpgrp(self._terminal, group)

    def take_back(self, group: int) -> None:
        """Put our own group into the foreground if that group is there."""
        if self.belongs_to(group):
            self.give(os.getpgrp())

    def restore(self) -> None:
        """Restore the terminal's initial settings: a command that was killed cannot leave raw mode."""
        if self._terminal is not None and self._settings is not None and self.ours:
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._settings)


@contextmanager
def _sigttou_blocked() -> Iterator[None]:
    """Block SIGTTOU, which would stop a background process that changes the terminal."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
