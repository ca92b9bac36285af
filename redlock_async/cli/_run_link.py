"""The connection between the process that runs the command and the process that holds the lock: transport only."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any


class Link:
    """One end of the connection: receives JSON from the holder of the lock and sends it short messages."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(0)
        self._link = link
        self._received = b""
        self.closed = False
        """Whether the holder has closed its end."""

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._link.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while not self.closed:
                try:
                    data = self._link.recv(65_536)
                except ConnectionError:
                    data = b""
                self._received += data
                self.closed = not data
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    def try_send(self, message: str) -> None:
        """Send a message; ignore that the holder may have ended."""
        with contextlib.suppress(OSError):
            self.send(message)

    def send(self, message: str) -> None:
        """Send a message, or raise OSError."""
        self._link.sendall(message.encode() + b"\n")

    def close_sending(self) -> None:
        """Tell the holder that no further message follows."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
