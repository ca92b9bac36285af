"""Every scenario, in the order in which they run. Scenarios with the same setting are adjacent."""

from __future__ import annotations

from ._base import P50, P99, RATE, Faults, Figure, Process, Sample, Scenario, Setting, Stage, Unmeasured
from .between import FairProcesses, HandOver, HotProcesses
from .distance import Distant, Nodes
from .faults import Dying, Frozen
from .holding import Loss, Renewals, Waiters
from .steady import Block, HotName, ManyTasks, OneTask

__all__ = [
    "BY_NAME", "P50", "P99", "RATE", "SCENARIOS", "Faults", "Figure", "Process", "Sample", "Scenario", "Setting",
    "Stage", "Unmeasured",
]  # fmt: skip

SCENARIOS: tuple[Scenario, ...] = (
    OneTask(), Block(), Block(100), ManyTasks(10), ManyTasks(100), ManyTasks(1000), HotName(),
    HandOver(), HotProcesses(), FairProcesses(), Loss(),
    Waiters(), Renewals(),
    Frozen(1), Frozen(2), Dying(),
    Nodes(1), Nodes(3), Nodes(5), Nodes(7),
    Distant(1), Distant(20), HandOver(round_trip_ms=20),
)  # fmt: skip

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
