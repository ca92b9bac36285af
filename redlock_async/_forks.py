"""How often this process came out of a fork: cheaper to compare than a process id, and never reused."""

from __future__ import annotations

import os

_count = 0


def count() -> int:
    """Forks behind this process, within this interpreter."""
    return _count


def _forked() -> None:
    global _count  # noqa: PLW0603 - that is all this module is
    _count += 1


os.register_at_fork(after_in_child=_forked)
