"""Passwords in arguments: taken to where `ps` does not show them, and left out of messages; it knows no command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

import redlock_async

OPTION = re.compile(r"--n(?:o(?:d(?:es?)?)?)?")
"""The option that URLs are given with, and what may be written for it."""


def conceal(words: Sequence[str]) -> None:
    """If there may be passwords among our arguments, begin anew without: the URLs then come through a pipe.

    Everybody on the machine can read the arguments of a process for as long as it runs, and nobody a pipe. The
    environment would do as well, but `run` passes that on. Signals, open files and our number stay what they are.
    """
    where = list(_with_passwords(words))
    if not where or sys.orig_argv[-len(words) :] != list(words):  # not our arguments, but a caller's in this process
        return
    shown = list(words)
    for position in where:
        option, equals, urls = _split(words[position])
        shown[position] = f"{option}{equals}@/dev/fd/{_readable(urls)}"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1 : -len(words)], *shown])  # noqa: S606 - ourselves


def masked(message: str) -> str:
    """What may be quoted there, without the part of a URL in which a password stands."""
    return re.sub(r"(://[^\s'?]*\?)[^\s']*", r"\1...", re.sub(r"://.*@", "://***@", message))


def _with_passwords(words: Sequence[str]) -> Iterator[int]:
    """Where URLs with a user or with options are given: options can be passwords, too."""
    before = ""
    for position, word in enumerate(words):
        if word == "--":
            return
        option, _, urls = _split(word)
        given = bool(option) or OPTION.fullmatch(before) is not None
        if given and not urls.startswith("@") and ("@" in urls or "?" in urls):
            yield position
        before = word


def _split(word: str) -> tuple[str, str, str]:
    """The option, if it is in the same word, and the URLs."""
    option, equals, urls = word.partition("=")
    return (option, equals, urls) if equals and OPTION.fullmatch(option) else ("", "", word)


def _readable(text: str) -> int:
    """An open file with that text, for who comes after us."""
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)  # noqa: FBT003 - that is how it is called
    os.set_blocking(writer, False)
    data = os.fsencode(text)
    fits = os.write(writer, data) == len(data)
    os.close(writer)
    if not fits:
        raise redlock_async.ConfigurationError("too many URLs for an argument: give them in a file, --nodes @FILE")
    return reader
