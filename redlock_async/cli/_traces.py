"""The keys that clients with a namespace of their own leave, so that a command can take its own away again."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

# How the library names its own keys below a namespace, and how many fence registers share the names.
RESERVED = "redlock-async:"
MARKS = ("born", "founded", "longest-ttl")
FENCES = 16_384


def traces(namespace: str, names: Iterable[str]) -> list[str]:
    """Every key such clients make while they lock those names, without the namespace."""
    names = list(names)
    registers = {crc32((namespace + name).encode()) % FENCES for name in names}
    own = [*MARKS, *(f"fence:{number}" for number in sorted(registers))]
    return [*names, *(RESERVED + key for key in own)]
