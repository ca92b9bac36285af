"""Whether locks can be had now, for readiness probes: each master is asked once, and no outage is an error."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from ._engine import Engine
from ._errors import ConfigurationError, RedlockError
from ._node import Node
from ._wire import pack

TIME = pack(("TIME",))
"""A question that the rights this library needs cover anyway, and that costs a server next to nothing."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether locks can be had, and what is wrong with each master that does not count; `asdict` of it is JSON."""

    ready: bool
    """Whether a quorum of the masters answers and may vote."""
    nodes_up: int
    """Masters that answer and may vote."""
    needed: int
    """The quorum."""
    nodes: int
    reasons: dict[str, str]
    """Why a master does not count, by its label; empty while all of them do."""


async def check(engine: Engine) -> Health:
    """Ask each master. Those that have not been connected yet are given one node timeout for that, too."""
    if not engine.masters.usable:
        with suppress(ConfigurationError, TimeoutError):  # which masters are unfit, or late, is told below
            async with asyncio.timeout(engine.node_timeout):
                await engine.start(None)
    whys = await asyncio.gather(*(_why_not(node) for node in engine.nodes))
    reasons = {node.label: why for node, why in zip(engine.nodes, whys, strict=True) if why is not None}
    up = len(whys) - len(reasons)
    return Health(engine.masters.usable and up >= engine.needed, up, engine.needed, len(whys), reasons)


async def _why_not(node: Node) -> str | None:
    """Why that node does not count; None if it does."""
    try:
        await node.ask(TIME, lambda reply: len(cast("list[bytes]", reply)))
    except (OSError, RedlockError) as exc:
        return str(exc)
    return None if node.abstains is None else str(node.abstains)
