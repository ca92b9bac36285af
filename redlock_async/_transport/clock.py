"""The clock that measures leases; it must never be a wall clock."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

# On Linux CLOCK_MONOTONIC stops while the machine is suspended, and a lease would still look valid afterwards.
# CLOCK_BOOTTIME includes that time; on macOS CLOCK_MONOTONIC does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

now = partial(time.clock_gettime, _CLOCK) if _CLOCK is not None else time.monotonic


def identity() -> str | None:
    """Return a name for the clock behind `now`, equal in two processes only if their readings can be compared."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return None
