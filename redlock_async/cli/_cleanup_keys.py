"""Which keys a command must delete after it took locks in a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterable

import redlock_async
from redlock_async._rules.keys import Keys


def cleanup_keys(
    keys: Keys, names: Iterable[str], *others: bytes, nodes: Iterable[redlock_async.NodeStatus] = ()
) -> list[str]:
    """Return every key that clients of this namespace leave behind after locking `names`, without the namespace.

    `others` are further keys that these clients write. `nodes` says where they have their records.
    """
    written = [*map(keys.lock, names), *others]
    own = keys.node.record.decode().removeprefix(keys.namespace)
    records = {own + (node.record_key or own).partition(own)[2] for node in nodes} or {own}
    found = dict.fromkeys((*written, *map(keys.fence, written)))
    return [*(key.decode().removeprefix(keys.namespace) for key in found), *sorted(records)]
