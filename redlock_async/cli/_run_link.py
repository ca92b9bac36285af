"""What the process that runs the command and the one that holds the lock tell each other; it draws no conclusions."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any


class Link:
    """What the holder says, and what it is told."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(0)
        self._link = link
        self._heard = b""
        self.over = False
        """Whether it has nothing more to say."""

    def fileno(self) -> int:
        """What `select` waits for."""
        return self._link.fileno()

    def news(self) -> list[dict[str, Any]]:
        """What it said since."""
        with contextlib.suppress(BlockingIOError):
            while not self.over:
                try:
                    heard = self._link.recv(65_536)
                except ConnectionError:
                    heard = b""
                self._heard += heard
                self.over = not heard
        *lines, self._heard = self._heard.split(b"\n")
        return [json.loads(line) for line in lines]

    def say(self, word: str) -> None:
        """Tell it that; whoever is not there any more need not know."""
        with contextlib.suppress(OSError):
            self.announce(word)

    def announce(self, word: str) -> None:
        """Tell it that, or fail."""
        self._link.sendall(word.encode() + b"\n")

    def hang_up(self) -> None:
        """There will be no more words."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
