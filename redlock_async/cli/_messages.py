"""Words for people, on stderr, and in them what is wrong with a master in short; it prints no data."""

from __future__ import annotations

import errno
import os
import re
import sys

import redlock_async

from ._table import wrapped
from ._terminal import Paper


def say(words: str) -> None:
    """Broken between words on a terminal; in a pipe or a file, which are searched, as they are."""
    paper = Paper(sys.stderr)
    for line in words.splitlines():
        paper.write(wrapped(line, "", 0, paper.width))


def in_short(error: Exception) -> str:
    """What it says, with the trouble of each master in short."""
    text = str(error)
    if isinstance(error, redlock_async.QuorumUnavailable):
        for label, cause in error.nodes.items():
            text = text.replace(f"{label}: {cause}", f"{label}: {trouble(str(cause))}")
    return text


def trouble(text: str) -> str:
    """What keeps a master from answering: asyncio and redis-py say it at length, and with its address once more."""
    if "Connect call failed" in text or "Connection refused" in text:
        numbers = dict.fromkeys(map(int, re.findall(r"(?:^Error|\[Errno) (\d+)", text)))
        reasons = [os.strerror(number) for number in numbers if number != errno.ECONNREFUSED]
    elif found := re.fullmatch(r"Error -?\d+ connecting to .+?\. (\w[^.]*)\.", text):
        reasons = [found[1]]
    else:
        return text
    return f"cannot be reached ({', '.join(reasons).lower()})" if reasons else "cannot be reached"
