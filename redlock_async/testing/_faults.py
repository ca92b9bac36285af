"""The fixture `redlock_faults`: faults of locks and nodes, as synchronous calls from any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

from redlock_async import LockLost, QuorumUnavailable, Redlock
from redlock_async.testing._background import BackgroundLoop
from redlock_async.testing._cluster import LocalCluster
from redlock_async.testing._node_faults import SERVER_FAULTS, NodeFaults


class Faults(NodeFaults[None]):
    """The fixture `redlock_faults`: faults of a test's nodes and of the locks on them.

    Each fault is in effect when the call returns, and ends with the test at the latest. The network faults (`cut`,
    `black_hole`, `delay` and so on) need `@pytest.mark.redlock(proxied=True)`.
    """

    def __init__(self, cluster: LocalCluster, nodes: Sequence[str], background: BackgroundLoop) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._background = background
        self.faulted = False
        """Whether the test made a node or the network fail. Leftover keys are then not the test's mistake."""

    @cached_property
    def _client(self) -> Redlock:
        """Another client, configured from the environment as it is at the first use."""
        return self._background.client()

    # -- faults of a lock ------------------------------------------------------------------------------------------

    @contextmanager
    def held_elsewhere(self, *names: str) -> Iterator[None]:
        """Have another client hold the lock on that name, or on all of them at once, until the block ends.

        Its owner label is "another client". Raises LockTimeout if a name is already locked.
        """
        lease = self._background.wait_for(self._client(*names, wait=0).acquire)
        try:
            yield
        finally:
            # The test may have broken the nodes or this lock. Its leftovers are removed after the test.
            with suppress(LockLost, QuorumUnavailable):
                self._background.wait_for(lease.release)

    def force_loss(self, name: str) -> None:
        """Make every holder of `name` lose its lease now: any kind of lock, all readers, all slots of a semaphore.

        Raises LookupError if it is not held.
        """
        if not self._background.wait_for(self._client.force_release, name):
            raise LookupError(f"cannot force the loss of {name!r}: it is not held. Call this inside the locked block")

    # -- faults of the nodes ---------------------------------------------------------------------------------------

    @contextmanager
    def no_quorum(self) -> Iterator[None]:
        """Freeze as many nodes as it takes to prevent a quorum, until the block ends. They lose no data."""
        frozen = [i for i in range((len(self._nodes) + 1) // 2) if self._cluster.pids[i] is not None]
        for i in frozen:
            self.pause(i)
        try:
            yield
        finally:
            for i in frozen:
                if self._cluster.pids[i] is not None:
                    self.resume(i)

    def _inject(self, fault: str, i: int, *arguments: float) -> None:
        if not 0 <= i < len(self._nodes):
            raise IndexError(f"no node {i}: this test has nodes 0 to {len(self._nodes) - 1}")
        if fault not in SERVER_FAULTS and not self._cluster.proxied:
            raise RuntimeError(
                f"{fault} needs a proxy in front of the nodes: mark the test with @pytest.mark.redlock(proxied=True)"
            )
        self.faulted = True
        method = getattr(self._cluster, fault)
        if self._cluster.proxied:
            self._background.call(method, i, *arguments)  # the proxies run on that loop
        else:
            method(i, *arguments)
