"""Messages for people, on stderr, and short descriptions of node failures; results are printed elsewhere."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys

import redlock_async

from . import PROG
from ._table import paragraph
from ._terminal import Printer


def say(message: str) -> None:
    """Print a message: wrapped between words on a terminal, unwrapped in a pipe or a file, which people search."""
    printer = Printer(sys.stderr)
    for line in message.splitlines():
        printer.write(paragraph(line, "", 0, printer.width))


def command_line(command: str, name: str) -> str:
    """Return one of our commands about that name, quoted for a shell."""
    return f"{PROG} {command} {shlex.quote(name)}"


def summarize(error: Exception) -> str:
    """Return the message of an error, with the cause of each node's failure shortened."""
    text = str(error)
    if isinstance(error, redlock_async.QuorumUnavailable):
        for label, cause in error.nodes.items():
            text = text.replace(f"{label}: {cause}", f"{label}: {short_cause(str(cause))}")
    return text


def short_cause(text: str) -> str:
    """Return why a node cannot be reached, without the details and the address that asyncio and redis-py add."""
    if "Connect call failed" in text or "Connection refused" in text:
        numbers = dict.fromkeys(map(int, re.findall(r"(?:^Error|\[Errno) (\d+)", text)))
        reasons = [os.strerror(number) for number in numbers if number != errno.ECONNREFUSED]
    elif found := re.fullmatch(r"Error -?\d+ connecting to .+?\. (\w[^.]*)\.", text):
        reasons = [found[1]]
    else:
        return text
    return f"cannot be reached ({', '.join(reasons).lower()})" if reasons else "cannot be reached"
