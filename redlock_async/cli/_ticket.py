"""Tickets: the texts with which later commands find the lease of an earlier one. This module sends no commands.

A ticket is a secret, because any client that has it can release the lock. So it is never an argument, which every user
of the machine can read, and its file has mode 0600. It contains no deadline: only the nodes know how often a lease was
renewed since. So renewing does not change the ticket, and copies of it stay valid.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import redlock_async
from redlock_async._rules.detached import Detached, read_detached

from . import PROG

VARIABLE = "REDLOCK_TICKET"

LONGEST = 65_536
"""Characters that are read of a ticket: its longest part is a lock's name."""

SHARED = frozenset({"read", "semaphore"})
"""The kinds of lease that other clients can hold at the same time."""


def add_ticket_file(parser: argparse.ArgumentParser) -> None:
    """Add --ticket-file to a command that reads a ticket."""
    parser.add_argument(
        "--ticket-file",
        metavar="FILE",
        help=f"the file that `{PROG} acquire` has written (default: the ticket in {VARIABLE}, or else on stdin)",
    )


def portable(text: str) -> str:
    """Return a detached lease as a ticket, without its deadline."""
    return replace(read_detached(text), until=0.0, clock=None).write()


def read_ticket(arguments: argparse.Namespace) -> Detached:
    """Return the ticket in --ticket-file, REDLOCK_TICKET or stdin; raise ConfigurationError if there is none."""
    if arguments.ticket_file is not None:
        where = f"the file {arguments.ticket_file}"
        text = _file(arguments.ticket_file)
    elif VARIABLE in os.environ:
        where, text = VARIABLE, os.environ[VARIABLE]
    elif sys.stdin is None or sys.stdin.isatty():
        raise redlock_async.ConfigurationError(
            f"no ticket given: pass --ticket-file FILE, or set {VARIABLE} to what `{PROG} acquire` printed"
        )
    else:
        where, text = "stdin", sys.stdin.read(LONGEST)
    if not text.strip():
        raise redlock_async.ConfigurationError(f"no ticket given: {where} is empty")
    try:
        return read_detached(portable(text.strip()))
    except redlock_async.ConfigurationError:
        # Without its content: another secret may have been passed by mistake.
        raise redlock_async.ConfigurationError(
            f"{where} does not contain a ticket, or not all of it: pass exactly what `{PROG} acquire` wrote"
        ) from None


def _file(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST)
    except OSError as error:
        raise redlock_async.ConfigurationError(f"cannot read the ticket file {path}: {error.strerror}") from None


def forget(arguments: argparse.Namespace) -> None:
    """Delete the ticket file after its lease has ended: the ticket is of no use any more."""
    if arguments.ticket_file is not None and Path(arguments.ticket_file).is_file():
        with suppress(OSError):  # the folder may be read-only, and the ticket is of no use anyway
            Path(arguments.ticket_file).unlink()


class Output:
    """Where the ticket of a new lease goes. Entered before the lock is acquired, so that most problems come first."""

    def __init__(self, path: str | None, name: str) -> None:
        self._path = None if path is None else Path(path)
        self._name = name
        self._draft: str | None = None
        """A file beside the ticket file, which takes its place once it is complete."""

    def __enter__(self) -> Self:
        if self._path is None:
            if sys.stdout is None:
                raise redlock_async.ConfigurationError("stdout is closed: pass --ticket-file FILE for the ticket")
            return self
        try:
            if self._is_file():
                self._refuse_to_replace(self._path)
                number, self._draft = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
                os.close(number)
        except OSError as error:
            raise self._failed(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._draft is not None:
            with suppress(FileNotFoundError):
                Path(self._draft).unlink()

    def _is_file(self) -> bool:
        """Whether the ticket file is a file, or will be: not a pipe or /dev/fd/N."""
        assert self._path is not None  # noqa: S101 - checked by the callers
        return not self._path.exists() or stat.S_ISREG(self._path.stat().st_mode)

    def _refuse_to_replace(self, path: Path) -> None:
        """Raise ConfigurationError if the file exists, unless it is empty or has an old ticket of this very lock.

        That lease is over if the lock is acquired again.
        """
        if not path.exists() or not path.stat().st_size:
            return
        with suppress(redlock_async.ConfigurationError):
            old = read_detached(_file(str(path)).strip())
            if old.names == [self._name] and old.kind not in SHARED:
                return
        raise redlock_async.ConfigurationError(
            f"the ticket file {path} exists and is not empty. If its lease is still needed, use "
            f"another file; otherwise release it with `{PROG} release --ticket-file`, or delete the file"
        )

    def write(self, ticket: str, printed: str) -> None:
        """Write the ticket to its file, or what is to be printed of it to stdout."""
        if self._path is None:
            sys.stdout.write(printed + "\n")
            sys.stdout.flush()
            return
        try:
            target = self._path if self._draft is None else Path(self._draft)
            target.write_text(ticket + "\n", encoding="utf-8")
            if self._draft is not None:
                target.replace(self._path)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> redlock_async.ConfigurationError:
        return redlock_async.ConfigurationError(f"cannot write the ticket file {self._path}: {error.strerror}")
