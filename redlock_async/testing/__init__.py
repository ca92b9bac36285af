"""Real servers for tests, demos and benchmarks; importing this imports neither pytest nor testcontainers.

Each name is imported when it is asked for: the pytest plugin lives here, and every run of pytest loads it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redlock_async.testing._cluster import LocalCluster as LocalCluster
    from redlock_async.testing._faults import Faults as Faults
    from redlock_async.testing._history import Hold as Hold
    from redlock_async.testing._history import Violation as Violation
    from redlock_async.testing._history import judge as judge
    from redlock_async.testing._servers import LocalServerError as LocalServerError

__all__ = ["Faults", "Hold", "LocalCluster", "LocalServerError", "Violation", "judge"]

_HOMES = {
    "Faults": "_faults",
    "Hold": "_history",
    "LocalCluster": "_cluster",
    "LocalServerError": "_servers",
    "Violation": "_history",
    "judge": "_history",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
