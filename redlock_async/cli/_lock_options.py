"""The options of `run` and `acquire` that say which lock to take, and how; and the lock that they describe."""

from __future__ import annotations

import argparse
import math
from typing import Any, Protocol

import redlock_async

from . import DURATION, as_seconds, positive

BUSY = 75
"""The exit status when another client held the lock: EX_TEMPFAIL of sysexits.h."""

LOST = 70
"""The exit status when the lease had ended without a release: EX_SOFTWARE of sysexits.h."""

ABSENT = argparse.SUPPRESS
"""The default of an option that leaves the client's setting, which REDLOCK_TTL or REDLOCK_WAIT may have changed."""


class AnyLock(Protocol):
    """A lock of any kind."""

    async def acquire(self) -> redlock_async.Lease:
        """Wait for the lock."""
        ...


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add --wait."""
    parser.add_argument(
        "--wait",
        type=_wait,
        default=ABSENT,
        metavar="S",
        help="how long to wait for the lock; 0 tries once, `forever` waits indefinitely (default: REDLOCK_WAIT, or 10)",
    )


def add_takeover_delay(parser: argparse.ArgumentParser) -> None:
    """Add --takeover-delay."""
    parser.add_argument(
        "--takeover-delay",
        type=duration,
        default=ABSENT,
        metavar="S",
        help="keep the name locked for this long after a lease that was not released: a machine that died may have "
        "sent writes that are still on their way",
    )


def add_kinds(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the kind of lock."""
    kinds = parser.add_mutually_exclusive_group()
    for kind, purpose in (
        ("fair", "queue in order of arrival: first come, first served"),
        ("read", "share the lock with other readers, but not with a writer"),
        ("write", "exclude all readers and other writers"),
    ):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=purpose)
    kinds.add_argument(
        "--semaphore",
        type=positive,
        metavar="N",
        help="allow up to N holders at once; every caller must pass the same N",
    )
    parser.add_argument(
        "--count",
        type=positive,
        metavar="K",
        help="with --semaphore: take K of the N permits, all or none (default: 1)",
    )


def add_conflict(parser: argparse.ArgumentParser) -> None:
    """Add the options for what to do if another client holds the lock."""
    parser.add_argument(
        "-E",
        "--conflict-exit-code",
        type=_status,
        default=BUSY,
        metavar="CODE",
        help="exit status if another client holds the lock (default: %(default)s)",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print nothing if another client holds the lock; failures are still reported",
    )


def duration(text: str) -> float:
    """Return an argument in seconds."""
    seconds = as_seconds(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be {DURATION}, and 0 or more, got {text!r}")
    return seconds


def _wait(text: str) -> float | None:
    return None if text in {"forever", "none"} else duration(text)


def _status(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:  # noqa: PLR2004 - an exit status has eight bits
        raise argparse.ArgumentTypeError(f"must be an exit status from 0 to 255, got {text!r}")
    return int(text)


def lock_of(redlock: redlock_async.Redlock, arguments: argparse.Namespace) -> AnyLock:
    """Return the lock that the arguments describe."""
    options: dict[str, Any] = {
        option: getattr(arguments, option)
        for option in ("ttl", "wait", "min_hold", "takeover_delay")
        if option in arguments
    }
    if arguments.semaphore is not None:
        return redlock.semaphore(arguments.name, permits=arguments.semaphore, count=arguments.count or 1, **options)
    if arguments.count is not None:
        raise redlock_async.ConfigurationError("--count needs --semaphore: it takes that many of the N permits")
    if arguments.kind == "fair":
        return redlock.fair_lock(arguments.name, **options)
    if arguments.kind == "read":
        return redlock.read_lock(arguments.name, **options)
    if arguments.kind == "write":
        return redlock.write_lock(arguments.name, **options)
    return redlock.lock(arguments.name, **options)
