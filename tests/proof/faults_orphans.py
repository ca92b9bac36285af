"""What stands on the nodes when nobody holds or waits for anything: it must be nothing."""

import asyncio

from faults_client import LONGEST_TTL

from redlock_async.testing import Violation

LIVE = ("semaphore:", "readers:", "writer:", "queue:", "queue-kept:")
"""Bookkeeping that belongs to leases and waiters, and must go with them."""


async def keys_left(stage):
    """What stands on the nodes that belongs to a lease or a waiter, with what it holds: (node, key, text)."""
    found = []
    for node, admin in enumerate(stage.admins):
        async for key in admin.scan_iter(count=1000):
            name = key.decode().removeprefix("redlock-async:")
            if name != key.decode() and not name.startswith(LIVE):
                continue
            if name.startswith("semaphore:") and name.endswith("}"):
                continue  # the number of permits
            kind = await admin.type(key)
            text = await (admin.get(key) if kind == b"string" else admin.dump(key))
            if text is not None:  # else it expired just now
                found.append((node, key.decode(), repr(text)))
    return found


async def orphans(stage, *, patient):
    """Keys of processes that closed in good order, and if `patient` those of any that outlive the longest ttl."""
    killed = {entry["client"] for entry in stage.log if entry["what"] == "client killed"}
    at_once = await keys_left(stage)
    # With a killed process's own come the marks that stand for its readers, and the names it waits under.
    by_killed = {key.partition("{")[2].partition("}")[0] or key for _, key, text in at_once if signed(text, killed)}
    found = [left for left in at_once if not signed(left[2], killed) and not belongs(left[1], by_killed)]
    if at_once and patient:
        await asyncio.sleep(1.5 * LONGEST_TTL + 1)
        found += await keys_left(stage)
    return [Violation("orphan", f"node {node}: {key} holds {text:.200}") for node, key, text in found]


def signed(text, owners):
    """Whether one of those owners' tokens is in it."""
    return any(f":{owner}'" in text or f":{owner}\\" in text or f":{owner}" in text.split("@") for owner in owners)


def belongs(key, names):
    """Whether it is of one of those names."""
    return key in names or (key.partition("{")[2].partition("}")[0] in names)
