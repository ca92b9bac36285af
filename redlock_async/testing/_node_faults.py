"""The faults of real nodes, listed once for `LocalCluster` and `Faults`.

`Simulation` has methods of the same names, but its faults can be limited to one process, so their signatures differ.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

SERVER_FAULTS: Final = frozenset({"kill", "pause", "resume", "restart"})
"""Faults of the server process. Every other fault is one of the network and needs a proxy."""

ResultT = TypeVar("ResultT")


class NodeFaults(Generic[ResultT]):
    """One method per fault. Each fault is in effect when the call returns."""

    def _inject(self, fault: str, i: int, *arguments: float) -> ResultT:
        raise NotImplementedError

    # -- faults of a server process --------------------------------------------------------------------------------

    def kill(self, i: int) -> ResultT:
        """Kill node `i` (SIGKILL). Its data is gone, and connections to it are refused, or reset by its proxy."""
        return self._inject("kill", i)

    def pause(self, i: int) -> ResultT:
        """Freeze node `i` (SIGSTOP). Clients can still connect, but get no replies."""
        return self._inject("pause", i)

    def resume(self, i: int) -> ResultT:
        """Continue node `i` (SIGCONT). It executes the commands that arrived in the meantime."""
        return self._inject("resume", i)

    def restart(self, i: int) -> ResultT:
        """Restart node `i` on its port, empty, and return when it answers.

        As in production, it does not vote until it has been up for the longest ttl in use.
        """
        return self._inject("restart", i)

    # -- faults of the network -------------------------------------------------------------------------------------

    def cut(self, i: int) -> ResultT:
        """Reset all connections to node `i`, and every new one, until `heal`. The node keeps its data."""
        return self._inject("cut", i)

    def black_hole(self, i: int) -> ResultT:
        """Swallow all bytes in both directions until `heal`. Connections stay open and new ones succeed."""
        return self._inject("black_hole", i)

    def drop_requests(self, i: int) -> ResultT:
        """Swallow requests, on old and new connections, until `heal`. Replies and pushes still arrive."""
        return self._inject("drop_requests", i)

    def drop_replies(self, i: int) -> ResultT:
        """Swallow replies, on old and new connections, until `heal`. The node still executes requests."""
        return self._inject("drop_replies", i)

    def stall_requests(self, i: int) -> ResultT:
        """Hold back requests on the connections open now. `heal` delivers them, even if the client has gone."""
        return self._inject("stall_requests", i)

    def stall_replies(self, i: int) -> ResultT:
        """Hold back replies on the connections open now until `heal`. The node still executes requests."""
        return self._inject("stall_replies", i)

    def delay(self, i: int, seconds: float) -> ResultT:
        """Delay everything by `seconds` in each direction. 0 ends the delay."""
        if seconds < 0:
            raise ValueError(f"seconds must be 0 or more, got {seconds}")
        return self._inject("delay", i, seconds)

    def reset_mid_reply(self, i: int) -> ResultT:
        """Deliver half of the next reply and then reset its connection. This happens once."""
        return self._inject("reset_mid_reply", i)

    def heal(self, i: int) -> ResultT:
        """End all network faults of node `i`. Connections that lost bytes are reset."""
        return self._inject("heal", i)
