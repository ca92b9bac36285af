"""`release`: free a name by force; without --force it refuses, for only the holder can know that it is done."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import redlock_async

from . import PROG, add_nodes
from ._client import ask
from ._lock_view import explained, left
from ._terminal import Paper, harmless
from ._words import say
from .inspect import exactly

NOT_DONE = 1
"""The exit status when nobody held it, or the answer was no."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Free a name whoever holds it. Their body is cancelled, or their command stopped, but what they have begun may "
        "be half done: have a look with `inspect` first. The exit status is 1 if nobody held it."
    )
    parser.add_argument("name", metavar="NAME", help="what is locked")
    parser.add_argument("--force", action="store_true", help="yes, although it is somebody else's")
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask; needed where there is no terminal to ask on"
    )
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Free it."""
    name = harmless(arguments.name)
    if not arguments.force:
        raise redlock_async.ConfigurationError(
            f"{name} is released by its holder; to take it away from them: {PROG} release {shlex.quote(name)} --force"
        )
    if not arguments.yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise redlock_async.ConfigurationError(
            "there is no terminal to ask on: add --yes to release it without a question"
        )
    known = ask(arguments, lambda redlock: redlock.locks(exactly(arguments.name)))
    held = _with_holder(known)
    if not held:
        return _not_done(_nobody(name, known))
    paper = Paper(sys.stderr)
    paper.write(explained(held, paper.width))
    if not arguments.yes and not _agreed(name):
        return _not_done("nothing was released")
    agreed = {each.token for each in held}
    if not ask(arguments, lambda redlock: _freed(redlock, arguments.name, agreed)):
        return _not_done(f"{name} has changed hands meanwhile: nothing was released")
    say(f"released {name}")
    return 0


def _with_holder(known: Sequence[redlock_async.LockRecord]) -> list[redlock_async.LockRecord]:
    return [each for each in known if each.token is not None]


def _nobody(name: str, known: Sequence[redlock_async.LockRecord]) -> str:
    for each in known:
        if each.kind == "latch":
            return (
                f"{name} is a latch, which nobody holds: it is kept until its retention is over, for {left(each)} yet, "
                "if it is not used. Another round, or another count, is another generation: a latch of its own"
            )
    return f"nobody holds {name}"


async def _freed(redlock: redlock_async.Redlock, name: str, agreed: AbstractSet[str | None]) -> bool:
    # Somebody may have thought about it for long: whoever holds it now is another matter.
    held = _with_holder(await redlock.locks(exactly(name)))
    return agreed >= {each.token for each in held} and await redlock.force_release(name)


def _agreed(name: str) -> bool:
    print(f"Release {name}? Whoever holds it is stopped. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _not_done(why: str) -> int:
    say(why)
    return NOT_DONE
