"""The clock, and how many latencies become a few numbers. Nothing but the standard library: every worker imports it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Sample = dict[str, Any]
"""What one round of one contender yields: a value for each figure; `n`, out of how many; and perhaps `latencies`, in µs
at the fractions DISTRIBUTION, and `series`, pairs of seconds since the start and a value."""

DISTRIBUTION = (*(i / 100 for i in range(100)), 0.995, 0.999, 1.0)
"""The fractions of all pairs at which a distribution of latencies is told."""

now = time.monotonic
"""One clock for all processes of a machine."""


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which that part of them lies."""
    return at(sorted(values), part)


def at(ranked: Sequence[float], part: float) -> float:
    """The same of values that are in order already."""
    return ranked[min(int(len(ranked) * part), len(ranked) - 1)]


def latencies(took: Sequence[float]) -> Sample:
    """Seconds as the usual figures and their whole distribution, in µs."""
    ranked = sorted(took)
    told = [round(at(ranked, part) * 1e6, 1) for part in DISTRIBUTION]
    return {"p50": told[50], "p99": told[99], "n": len(ranked), "latencies": told}


def together(samples: Sequence[Sample]) -> Sample:
    """The latencies of several processes as if they were one's.

    From their distributions: each step of one stands for its share of the pairs, at the step's upper end.
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
