"""Keep passwords and tickets in arguments out of `ps` and out of messages; this module knows no command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

import redlock_async

OPTION = re.compile(r"--n(?:o(?:d(?:es?)?)?)?")
"""The option that takes URLs, with the abbreviations that argparse accepts."""

TICKET = "redlock1."
"""The beginning of a ticket, which is what `Lease.detach` returns: a secret."""


def conceal(words: Sequence[str]) -> None:
    """If our arguments may contain passwords, restart this program without them, and pass it the URLs in a pipe.

    Every user of the machine can read the arguments of a process while it runs, but not a pipe. The environment would
    hide the URLs as well, but `run` passes the environment on. Signal settings, open files and the process id survive
    the restart.
    """
    where = list(_with_passwords(words))
    if not where or sys.orig_argv[-len(words) :] != list(words):  # main() was called with arguments of its own
        return
    shown = list(words)
    for position in where:
        option, equals, urls = _split(words[position])
        shown[position] = f"{option}{equals}@/dev/fd/{_pipe_with(urls)}"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1 : -len(words)], *shown])  # noqa: S606 - ourselves


def refuse_tickets(words: Sequence[str]) -> None:
    """Raise ConfigurationError if a ticket is among our arguments: it is better to be replaced than used."""
    ours = words[: words.index("--")] if "--" in words else words
    if any(TICKET in word for word in ours):
        raise redlock_async.ConfigurationError(
            "a ticket must not be an argument, where every user of the machine can read it. Pass it in REDLOCK_TICKET, "
            "in a file with --ticket-file, or on stdin"
        )


def mask(message: str) -> str:
    """Return the message without the parts of a URL that can contain a password."""
    return re.sub(r"(://[^\s'?]*\?)[^\s']*", r"\1...", re.sub(r"://.*@", "://***@", message))


def _with_passwords(words: Sequence[str]) -> Iterator[int]:
    """Yield the positions of URLs that have a user or options: an option can be a password, too."""
    previous = ""
    for position, word in enumerate(words):
        if word == "--":
            return
        option, _, urls = _split(word)
        is_urls = bool(option) or OPTION.fullmatch(previous) is not None
        if is_urls and not urls.startswith("@") and ("@" in urls or "?" in urls):
            yield position
        previous = word


def _split(word: str) -> tuple[str, str, str]:
    """Split `--nodes=URLS` into option, equals sign and URLs; a word of another form is URLs only."""
    option, equals, urls = word.partition("=")
    return (option, equals, urls) if equals and OPTION.fullmatch(option) else ("", "", word)


def _pipe_with(text: str) -> int:
    """Return the reading end of a pipe that contains the text and survives exec."""
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)  # noqa: FBT003 - the parameter is positional-only
    os.set_blocking(writer, False)
    data = os.fsencode(text)
    fits = os.write(writer, data) == len(data)
    os.close(writer)
    if not fits:
        raise redlock_async.ConfigurationError(
            "the URLs given with --nodes are too long for an argument; write them to a file and pass --nodes @FILE"
        )
    return reader
