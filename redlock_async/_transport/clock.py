"""The one clock leases are measured with; it must never be a wall clock."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

# CLOCK_MONOTONIC stops while a Linux machine is suspended, and a lease would look valid for as long as the lid was
# closed. CLOCK_BOOTTIME goes on; on macOS it is CLOCK_MONOTONIC that does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

now = partial(time.clock_gettime, _CLOCK) if _CLOCK is not None else time.monotonic


def identity() -> str | None:
    """Names the clock behind `now`: equal in two processes only if their readings can be compared."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return None
