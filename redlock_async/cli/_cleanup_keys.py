"""Which keys a command must delete after it took locks in a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterable

from redlock_async._rules.keys import Keys


def cleanup_keys(keys: Keys, names: Iterable[str], *others: bytes) -> list[str]:
    """Return every key that clients of this namespace leave behind after locking `names`, without the namespace.

    `others` are further keys that these clients write.
    """
    written = [*map(keys.lock, names), *others]
    found = dict.fromkeys((*written, keys.record, *map(keys.fence, written)))
    return [key.decode().removeprefix(keys.namespace) for key in found]
