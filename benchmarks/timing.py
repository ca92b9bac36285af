"""The clock, and statistics of latencies. Uses only the standard library, because every worker imports it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Sample = dict[str, Any]
"""The result of one round of one contender: a value for each figure, and `n`, the number of measurements. Optionally
`latencies`, in µs at the fractions DISTRIBUTION, and `series`, pairs of seconds since the start and a value."""

DISTRIBUTION = (*(i / 100 for i in range(100)), 0.995, 0.999, 1.0)
"""The fractions at which a distribution of latencies is recorded."""

now = time.monotonic
"""One clock for all processes of a machine."""


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which that fraction of the values lies."""
    return at(sorted(values), part)


def at(ranked: Sequence[float], part: float) -> float:
    """Return the quantile of sorted values."""
    return ranked[min(int(len(ranked) * part), len(ranked) - 1)]


def latencies(took: Sequence[float]) -> Sample:
    """Return the usual figures and the distribution of durations, in µs."""
    ranked = sorted(took)
    told = [round(at(ranked, part) * 1e6, 1) for part in DISTRIBUTION]
    return {"p50": told[50], "p99": told[99], "n": len(ranked), "latencies": told}


def together(samples: Sequence[Sample]) -> Sample:
    """Merge the latencies of several processes.

    Each step of a process's distribution counts as its share of the pairs, at the step's upper end.
    """
    steps = sorted(
        (upper, sample["n"] * (after - before))
        for sample in samples
        for (before, after), upper in zip(pairwise(DISTRIBUTION), sample["latencies"][1:], strict=True)
    )
    n = sum(sample["n"] for sample in samples)
    lowest = min(sample["latencies"][0] for sample in samples)
    told, below, position = [lowest], 0.0, 0
    for part in DISTRIBUTION[1:]:
        while below + steps[position][1] < part * n - 1e-6 and position < len(steps) - 1:
            below += steps[position][1]
            position += 1
        told.append(steps[position][0])
    return {"p50": told[50], "p99": told[99], "n": n, "latencies": told}
