"""A machine with one master on it: what can happen to either, and what the network sees of that."""

from __future__ import annotations

from collections.abc import Callable

from ._master import Master, Session
from ._network import Link, Network
from ._time import Clock


class Machine:
    """Takes what arrives to its master, unless one of the two is down or stopped."""

    def __init__(self, network: Network, index: int, clock: Clock, lag: Callable[[], float]) -> None:
        self._network = network
        self._timeline = network.timeline
        self._clock = clock
        self._lag = lag
        self._boots = 1
        self._links: dict[Session, Link] = {}
        self._backlog: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._expiry_at: float | None = None
        self.index = index
        self.label = f"master-{index}.simulated:6379"
        self.up = True
        self.paused = False
        self.reachable = True
        self.master = Master(clock, run_id=self._run_id())

    def __repr__(self) -> str:
        return f"<{self.label} {'paused' if self.paused else 'up' if self.up else 'down'}>"

    def _run_id(self) -> str:
        return f"{self.index:08x}{self._boots:032x}"

    # What arrives

    def accept(self, link: Link, client_name: str) -> None:
        """Somebody connects."""
        if self.paused:
            self._backlog.append((self.accept, (link, client_name)))
        elif not self.up or not self.reachable:
            link.hung_up(ConnectionRefusedError(f"connecting to {self.label} was refused"))
        else:
            link.session = session = self.master.connect(self._push, self._killed)
            self._links[session] = link
            link.accepted(pushes=True)

    def hear(self, link: Link, data: bytes) -> None:
        """Commands."""
        if self.paused:
            self._backlog.append((self.hear, (link, data)))
        elif link.session is not None:
            if reply := self.master.receive(link.session, data):
                link.say(reply)
            self._await_expiry()
        elif self.up:
            link.hung_up(ConnectionResetError(f"{self.label} knows of no such connection"))

    def hang_up(self, link: Link) -> None:
        """The process has ended the connection."""
        if self.paused:
            self._backlog.append((self.hang_up, (link,)))
        elif link.session is not None:
            self.master.disconnect(link.session)
            self._links.pop(link.session, None)
            link.session = None

    def _push(self, session: Session, data: bytes) -> None:
        if session in self._links:
            self._links[session].say(data)

    def _killed(self, session: Session) -> None:
        if link := self._links.pop(session, None):
            link.hung_up(ConnectionResetError(f"{self.label} closed the connection"))

    def _await_expiry(self) -> None:
        """Keys are deleted a little after they have expired, as a server does it that looks now and then."""
        due = self.master.next_expiry()
        if due is not None and (self._expiry_at is None or due < self._expiry_at):
            self._expiry_at = due
            self._timeline.at(self._clock.true(due) + 0.001 + self._lag(), self._expire, due)

    def _expire(self, due: float) -> None:
        if self._expiry_at != due:
            return
        self._expiry_at = None
        if self.up and not self.paused:
            self.master.expire_now()
            self._await_expiry()

    # What can happen

    def pause(self) -> None:
        """SIGSTOP: its kernel still takes connections and bytes."""
        self.paused = self.up

    def resume(self) -> None:
        """SIGCONT: it carries on with all it was sent."""
        if not self.paused:
            return
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for arrive, arguments in backlog:
            arrive(*arguments)
        self._await_expiry()

    def kill(self, *, silently: bool = False) -> None:
        """SIGKILL; or silently, as by a power cut: nobody is told that the connections are gone."""
        self.up = self.paused = False
        self._backlog.clear()
        self.reset(silently=silently)

    def reset(self, *, silently: bool = False) -> None:
        """End all connections."""
        links, self._links = self._links, {}
        for session, link in links.items():
            self.master.disconnect(session)
            link.session = None
            if not silently:
                link.hung_up(ConnectionResetError(f"{self.label} closed the connection"))

    def restart(self, *, keep_data: bool = False) -> None:
        """Start it again, with its data or empty."""
        if self.up:
            self.kill()
        self._boots += 1
        self.up = True
        self.master.restart(run_id=self._run_id(), keep_data=keep_data)
        self._await_expiry()
