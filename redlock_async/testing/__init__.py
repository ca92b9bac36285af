"""Real servers for tests, demos and benchmarks; importing this imports neither pytest nor testcontainers."""

from redlock_async.testing._cluster import LocalCluster as LocalCluster
from redlock_async.testing._history import Hold as Hold
from redlock_async.testing._history import Violation as Violation
from redlock_async.testing._history import judge as judge
from redlock_async.testing._servers import LocalServerError as LocalServerError

__all__ = ["Hold", "LocalCluster", "LocalServerError", "Violation", "judge"]
