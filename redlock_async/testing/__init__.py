"""Real servers for tests, demos and benchmarks. Importing this imports neither pytest nor testcontainers.

Each name is imported at its first use, because the pytest plugin is in this package and every pytest run loads it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redlock_async.testing._cluster import LocalCluster as LocalCluster
    from redlock_async.testing._faults import Faults as Faults
    from redlock_async.testing._history import HeldInterval as HeldInterval
    from redlock_async.testing._history import Violation as Violation
    from redlock_async.testing._history import check_history as check_history
    from redlock_async.testing._servers import LocalServerError as LocalServerError
    from redlock_async.testing._zombie import zombie as zombie

__all__ = ["Faults", "HeldInterval", "LocalCluster", "LocalServerError", "Violation", "check_history", "zombie"]

_MODULES = {
    "Faults": "_faults",
    "HeldInterval": "_history",
    "LocalCluster": "_cluster",
    "LocalServerError": "_servers",
    "Violation": "_history",
    "check_history": "_history",
    "zombie": "_zombie",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
