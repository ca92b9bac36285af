"""What can happen to a service's locks, done to it from outside: by synchronous calls, from any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

from redlock_async import LockLost, QuorumUnavailable, Redlock
from redlock_async.testing._cluster import LocalCluster
from redlock_async.testing._outside import Outside


class Faults:
    """The fixture `redlock_faults`: what a test does to its masters, and to the locks on them.

    Each has happened when the call returns, and ends with the test at the latest. The faults of a master are called as
    those of `LocalCluster`.
    """

    def __init__(self, cluster: LocalCluster, nodes: Sequence[str], outside: Outside) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._outside = outside
        self.hurt = False
        """Whether a master or the network was made to fail: what is left on them then is nobody's mistake."""

    @cached_property
    def _client(self) -> Redlock:
        """Somebody else's, configured as the environment is when it is first needed."""
        return self._outside.client()

    # -- of a lock ------------------------------------------------------------------------------------------------

    @contextmanager
    def held_elsewhere(self, *names: str) -> Iterator[None]:
        """Somebody else holds the lock on that name, or on all of them at once, until the block ends.

        Their owner label is "somebody else". LockTimeout if it is held already.
        """
        lease = self._outside.wait_for(self._client(*names, wait=0).acquire)
        try:
            yield
        finally:
            # Whatever the test did to the masters or to this lock, what is left of it is removed after the test.
            with suppress(LockLost, QuorumUnavailable):
                self._outside.wait_for(lease.release)

    def lose(self, name: str) -> None:
        """Whoever holds that name loses it now: a lock of any kind, all readers, all slots of a semaphore."""
        if not self._outside.wait_for(self._client.force_release, name):
            raise LookupError(f"nobody holds {name!r}, so nobody can lose it: call this while the service is inside")

    # -- of the masters -------------------------------------------------------------------------------------------

    @contextmanager
    def no_quorum(self) -> Iterator[None]:
        """No majority answers until the block ends: as many masters are frozen as that takes. They lose nothing."""
        down = [i for i in range((len(self._nodes) + 1) // 2) if self._cluster.pids[i] is not None]
        for i in down:
            self.pause(i)
        try:
            yield
        finally:
            for i in down:
                if self._cluster.pids[i] is not None:
                    self.resume(i)

    def kill(self, i: int) -> None:
        """SIGKILL: connections are reset, new ones refused, and its data is gone."""
        self._do(self._cluster.kill, i)

    def pause(self, i: int) -> None:
        """SIGSTOP: connecting succeeds, nothing answers."""
        self._do(self._cluster.pause, i)

    def resume(self, i: int) -> None:
        """SIGCONT: it goes on with what it was sent meanwhile."""
        self._do(self._cluster.resume, i)

    def restart(self, i: int) -> None:
        """It comes back empty; as in production it does not vote before it has run for the longest ttl in use."""
        self._do(self._cluster.restart, i)

    # -- of the network: with @pytest.mark.redlock(proxied=True) -----------------------------------------------------

    def cut(self, i: int) -> None:
        """Reset all its connections, and each new one, until `heal`; it keeps its data."""
        self._do(self._cluster.cut, i, network=True)

    def black_hole(self, i: int) -> None:
        """Connections stay open and new ones succeed, but nothing arrives, either way, until `heal`."""
        self._do(self._cluster.black_hole, i, network=True)

    def delay(self, i: int, seconds: float) -> None:
        """Make the way longer by this much in each direction; 0 makes it short again."""
        self._do(self._cluster.delay, i, seconds, network=True)

    def heal(self, i: int) -> None:
        """End every fault of the network at this master."""
        self._do(self._cluster.heal, i, network=True)

    def _do(self, fault: Callable[..., object], i: int, *arguments: float, network: bool = False) -> None:
        if not 0 <= i < len(self._nodes):
            raise IndexError(f"there is no master {i}: this test has the masters 0 to {len(self._nodes) - 1}")
        if network and not self._cluster.proxied:
            raise RuntimeError(
                f"{fault.__name__} needs a proxy before the masters: mark the test with "
                "@pytest.mark.redlock(proxied=True)"
            )
        self.hurt = True
        if self._cluster.proxied:
            self._outside.call(fault, i, *arguments)  # its proxies live on the loop out there
        else:
            fault(i, *arguments)
