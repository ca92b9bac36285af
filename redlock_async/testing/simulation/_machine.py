"""A machine with one node on it: their faults, and how the network sees them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._network import Link, Network
from ._resp import RESP3
from ._server import Session, SimulatedServer
from ._store import Snapshot
from ._time import Clock

if TYPE_CHECKING:
    from ._process import Process

FORMER = "1" * 40
"""The replication id of a replaced primary."""


class Machine:
    """Passes arriving messages to its server, unless that is down or paused."""

    def __init__(self, network: Network, index: int, clock: Clock, lag: Callable[[], float]) -> None:
        self._network = network
        self._timeline = network.timeline
        self.clock = clock
        self._lag = lag
        self._boots = 1
        self._links: dict[Session, Link] = {}
        self.resets: dict[Process | None, deque[int | None]] = {}
        """By process, or for all: the arrival at which each of the next connections is reset; None: it is not."""
        self._backlog: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._expiry_at: float | None = None
        self.index = index
        self.label = f"node-{index}.simulated:6379"
        self._copy: Snapshot | None = None
        self.up = True
        self.paused = False
        self.reachable = True
        self.server = SimulatedServer(clock, run_id=self._run_id())

    def __repr__(self) -> str:
        return f"<{self.label} {'paused' if self.paused else 'up' if self.up else 'down'}>"

    def _run_id(self) -> str:
        return f"{self.index:08x}{self._boots:032x}"

    # Arrivals

    def accept(self, link: Link, resp: int) -> None:
        """Accept or refuse a connection."""
        if self.paused:
            self._backlog.append((self.accept, (link, resp)))
        elif not self.up or not self.reachable:
            link.peer_closed(ConnectionRefusedError(f"connecting to {self.label} was refused"))
        elif (reset_at := self._next_reset(link)) == 0:
            link.peer_closed(ConnectionResetError(f"the connection to {self.label} was reset"))
        else:
            link.reset_in = reset_at or -1
            link.server = self.server
            link.session = session = self.server.connect(self._push, self._killed, resp=resp)
            self._links[session] = link
            link.accepted(pushes=resp == RESP3)

    def receive(self, link: Link, data: bytes) -> None:
        """Handle commands."""
        if self.paused:
            self._backlog.append((self.receive, (link, data)))
        elif link.session is not None:
            reply = link.server.receive(link.session, data)
            link.reset_in -= 1
            if link.reset_in == 0 and link.session is not None:
                link.server.kill(link.session)  # the reply is lost
            elif reply:
                link.deliver(reply)
            self._schedule_expiry()
        elif self.up:
            link.peer_closed(ConnectionResetError(f"{self.label} does not know this connection"))

    def _next_reset(self, link: Link) -> int | None:
        """Return the arrival at which a new connection is reset: 0 is its acceptance, None is never."""
        for process in (link.process, None):
            if left := self.resets.get(process):
                return left.popleft()
        return None

    def disconnect(self, link: Link) -> None:
        """Handle a connection that the process has closed."""
        if self.paused:
            self._backlog.append((self.disconnect, (link,)))
        elif link.session is not None:
            link.server.disconnect(link.session)
            self._links.pop(link.session, None)
            link.session = None

    def _push(self, session: Session, data: bytes) -> None:
        if session in self._links:
            self._links[session].deliver(data)

    def _killed(self, session: Session) -> None:
        if link := self._links.pop(session, None):
            link.peer_closed(ConnectionResetError(f"{self.label} closed the connection"))

    def _schedule_expiry(self) -> None:
        """Schedule active expiry shortly after the next deadline, as a real server checks only now and then."""
        due = self.server.next_expiry()
        if due is not None and self.clock.rate and (self._expiry_at is None or due < self._expiry_at):
            self._expiry_at = due
            self._timeline.at(self.clock.true(due) + 0.001 + self._lag(), self._expire, due)

    def clock_changed(self) -> None:
        """Schedule active expiry again, because the wall clock was stepped or runs at another rate."""
        self._expiry_at = None
        self._schedule_expiry()

    def _expire(self, due: float) -> None:
        if self._expiry_at != due:
            return
        self._expiry_at = None
        if self.up and not self.paused:
            self.server.expire_now()
            self._schedule_expiry()

    # Faults

    def pause(self) -> None:
        """SIGSTOP: its kernel still accepts connections and bytes."""
        self.paused = self.up

    def resume(self) -> None:
        """SIGCONT: it handles everything that arrived in the meantime."""
        if not self.paused:
            return
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for arrive, arguments in backlog:
            arrive(*arguments)
        self._schedule_expiry()

    def kill(self, *, silently: bool = False) -> None:
        """SIGKILL; or `silently`, as by a power cut, so that clients do not see their connections end."""
        self.up = self.paused = False
        self._backlog.clear()
        self.reset(silently=silently)

    def reset(self, *, silently: bool = False) -> None:
        """End all connections."""
        for session, link in list(self._links.items()):
            self._end(session, link, silently=silently)

    def _end(self, session: Session, link: Link, *, silently: bool = False) -> None:
        del self._links[session]
        link.server.disconnect(session)
        link.session = None
        if not silently:
            link.peer_closed(ConnectionResetError(f"{self.label} closed the connection"))

    def copy_data(self) -> None:
        """Copy the data: a replica that stops replicating now, or the last file that is saved."""
        self._copy = self.server.snapshot()

    def promote(self) -> None:
        """Replace the server by a replica that has the data of the last `copy_data`."""
        self._replace(FORMER)

    def fail_over(self) -> None:
        """Do the same, but let the old server continue to serve its open connections."""
        self._boots += 1
        self.server = SimulatedServer(self.clock, run_id=self._run_id())
        self.server.former_replid = FORMER
        if self._copy is not None:
            self.server.load(self._copy)
        self._schedule_expiry()

    def end_old_server(self) -> None:
        """End the server that was replaced by `fail_over`."""
        for session, link in list(self._links.items()):
            if link.server is not self.server:
                self._end(session, link)

    def roll_back(self) -> None:
        """Restart the server with the data of the last `copy_data`, as after a kill without an append-only file."""
        self.server.config[b"appendonly"] = b"no"
        self._replace("0" * 40)

    def _replace(self, former_replid: str) -> None:
        copy, self._copy = self._copy, None
        self.restart()
        self.server.former_replid = former_replid
        if copy is not None:
            self.server.load(copy)
        self._schedule_expiry()

    def restart(self, *, keep_data: bool = False) -> None:
        """Restart the server, empty or with its data."""
        if self.up:
            self.kill()
        self._boots += 1
        self.up = True
        self.server.restart(run_id=self._run_id(), keep_data=keep_data)
        self._schedule_expiry()
