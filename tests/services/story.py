"""A scripted story of two clients on five real nodes, with a known number and duration of every step."""

import asyncio
import time
from dataclasses import dataclass, field

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock

TTL, NODE_TIMEOUT = 0.9, 0.2
HELD, PATIENCE = 0.2, 0.06


@dataclass
class Told:
    """What a reader of the metrics must find."""

    frozen: str = ""
    """The label of the node that was frozen."""
    nodes: list[str] = field(default_factory=list)
    waited: float = 0.0
    """How long the one wait that was worth it took, by the caller's own clock."""
    held_for_long: float = 0.0
    """How long the one lease that was renewed stood."""
    while_waiting: object = None
    """What `look` returned while three tasks waited and one lease was held."""
    while_frozen: object = None
    """What it returned while one node was frozen."""
    begun: float = field(default_factory=time.monotonic)


async def caught(error, work):
    """That work raises that."""
    try:
        await work
    except error:
        return
    raise AssertionError(error)


async def wait_until(condition):
    """A condition comes true."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - states of nodes and servers, which nobody announces
            await asyncio.sleep(0.005)


async def told(cluster, attach, look):
    """Contention, a frozen master, a lease that is taken away, one that nobody confirms: ours does, theirs stands by.

    `attach(ours, theirs)` is called before anything happens, `look` twice in between.
    """
    story = Told()
    ours = Redlock(cluster.urls, ttl=TTL, node_timeout=NODE_TIMEOUT, owner="ours")
    # With a ttl as short: on a busy machine a node may connect so late that it is quarantined at first, for a ttl.
    theirs = Redlock(cluster.urls, ttl=TTL, node_timeout=NODE_TIMEOUT, owner="theirs")
    attach(ours, theirs)
    async with ours, theirs:
        await wait_until(lambda: ours.statistics().nodes_up == theirs.statistics().nodes_up == 5)
        story.nodes = list(ours.statistics().node_states)
        await contention(ours, theirs, story, look)
        await renewal(ours, story)
        await freeze(cluster, ours, story, look)
        await losses(cluster, ours, theirs)
    return story


async def contention(ours, theirs, story, look):
    """One waits and gets it, one waits in vain, one tries once, one is cancelled, and three wait while it is looked."""
    lease = await theirs("hot").acquire()
    asyncio.get_running_loop().call_later(HELD, lambda: releases.append(asyncio.create_task(lease.release())))
    releases, started = [], time.monotonic()
    got = await ours("hot").acquire(wait=5)
    story.waited = time.monotonic() - started
    await releases[0]
    await got.release()
    async with theirs("hot"):
        await caught(LockTimeout, ours("hot").acquire(wait=PATIENCE))
        assert await ours("hot").try_acquire() is None
        waiting = [asyncio.create_task(ours("hot").acquire(wait=None)) for _ in range(3)]
        async with ours("cold"):
            await wait_until(lambda: ours.statistics().waiting == 3)
            story.while_waiting = await look()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def renewal(ours, story):
    """A lease that stands for longer than its ttl."""
    started = time.monotonic()
    async with ours("long"):
        await asyncio.sleep(1.2 * TTL)
    story.held_for_long = time.monotonic() - started


async def freeze(cluster, ours, story, look):
    """One master answers nothing, and a pair does not mind; then it goes on."""
    story.frozen = story.nodes[4]
    cluster.pause(4)
    async with ours("while frozen"):
        pass
    await wait_until(lambda: ours.statistics().nodes_up == 4)
    story.while_frozen = await look()
    cluster.resume(4)
    await wait_until(lambda: ours.statistics().nodes_up == 5)


async def losses(cluster, ours, theirs):
    """One lease is freed by force, one release nobody confirms, one lease nobody renews; then nobody gets one."""

    async def body(name, entered):
        async with ours(name):
            entered.set()
            await asyncio.Event().wait()

    entered = asyncio.Event()
    holding = asyncio.create_task(body("taken", entered))
    await entered.wait()
    await theirs.force_release("taken")
    await caught(LockLost, holding)
    holding = asyncio.create_task(body("unconfirmed", entered := asyncio.Event()))
    await entered.wait()
    lease = await ours("lingers").acquire()
    for node in range(3):
        cluster.pause(node)
    await caught(QuorumUnavailable, lease.release())
    await caught(LockLost, holding)
    await caught(QuorumUnavailable, ours("nobody").acquire(wait=PATIENCE))
    for node in range(3):
        cluster.resume(node)
    await wait_until(lambda: ours.statistics().nodes_up == 5)
