"""The families of schedules. Importing this package declares all of them."""

from framework.kinds import OF_KINDS
from framework.schedules import FAMILIES

from families import (
    blocks,
    changes,
    clocks,
    copies,
    corners,
    groups,
    kinds,
    liars,
    locks,
    node_sets,
    noisy,
    once,
    outages,
    periods,
    takeover,
    terms,
    together,
    votes,
)

__all__ = [
    "FAMILIES", "OF_KINDS", "blocks", "changes", "clocks", "copies", "corners", "groups", "kinds", "liars", "locks",
    "node_sets", "noisy", "once", "outages", "periods", "takeover", "terms", "together", "votes",
]  # fmt: skip
