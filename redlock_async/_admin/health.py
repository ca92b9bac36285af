"""Health for readiness probes: whether locks can be acquired now. An outage is a result, not an error."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from redlock_async._rounds.context import Context
from redlock_async._transport.commands import clock_command, read_clock
from redlock_async._transport.node import Node
from redlock_async.errors import ConfigurationError, RedlockError


@dataclass(frozen=True, slots=True)
class Health:
    """Whether locks can be acquired, and why nodes do not count; `asdict` of it can be serialized as JSON."""

    ready: bool
    """Whether a quorum of the nodes replies and may vote."""
    nodes_up: int
    """How many nodes reply and may vote."""
    quorum: int
    """How many nodes must."""
    nodes: int
    """How many nodes are configured."""
    reasons: dict[str, str]
    """Why a node does not count, by its label; empty if all nodes count."""


async def check(context: Context) -> Health:
    """Query every node once; on first use, wait for at most one node timeout until the nodes are connected."""
    if not context.membership.answers:
        with suppress(ConfigurationError, TimeoutError):  # the result names the nodes that are unfit or late
            async with asyncio.timeout(context.node_timeout):
                await context.membership.look(None)
    conflict = context.membership.electorate.conflict
    servers = context.membership.shown
    whys = await asyncio.gather(*(_why_not(node, conflict) for node in servers))
    reasons = {node.label: why for node, why in zip(servers, whys, strict=True) if why is not None}
    fit = {node for node, why in zip(servers, whys, strict=True) if why is None}
    # Of a cluster, the shards of which fewest others vote as well: every name must be lockable.
    up = min(sum(node in fit for node in group) for group in context.membership.groups)
    ready = context.membership.answers and up >= context.quorum
    return Health(ready, up, context.quorum, len(context.nodes), reasons)


async def _why_not(node: Node, conflict: ConfigurationError | None) -> str | None:
    """Return why a node does not count; None if it does."""
    try:
        await node.ask(clock_command(node.keys.probe), read_clock)
    except (OSError, RedlockError) as exc:
        return str(exc)
    why = conflict or node.abstains
    return None if why is None else str(why)
