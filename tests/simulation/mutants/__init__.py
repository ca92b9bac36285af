"""The mutants: rules of the protocol, each broken on purpose. Importing this package declares all of them."""

from framework.breaking import MUTANTS, broken

from mutants import (
    basics,
    blocks,
    changes,
    clocks,
    corners,
    groups,
    kinds,
    liars,
    node_sets,
    noisy,
    outages,
    periods,
    takeover,
    terms,
    together,
    voting,
)

__all__ = [
    "MUTANTS", "basics", "blocks", "broken", "changes", "clocks", "corners", "groups", "kinds", "liars", "node_sets",
    "noisy", "outages", "periods", "takeover", "terms", "together", "voting",
]  # fmt: skip
