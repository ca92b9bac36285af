"""A local Redis or Valkey Cluster, which is one node: primaries, perhaps with replicas, and what can happen to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import hiredis

from redlock_async.testing._raw import send_command
from redlock_async.testing._servers import HOST, LocalServerError, Server, Spawner, start_together

SLOTS: Final = 16_384

_FORM_TIMEOUT: Final = 30.0
_POLL: Final = 0.02


class Shards:
    """The servers of one cluster."""

    def __init__(
        self,
        label: str,
        binary: Path,
        folder: Path,
        arguments: Sequence[str],
        spawner: Spawner,
        *,
        shards: int,
        replicas: int,
    ) -> None:
        self.label = label
        self._number = shards
        self._replicas = replicas
        more = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-require-full-coverage", "no")
        self.servers = [
            Server(f"{label} server {number}", binary, folder / f"server-{number}", (*more, *arguments), spawner)
            for number in range(shards * (1 + replicas))
        ]
        """The primaries in the order of their slots, then their replicas: first one of each shard."""

    @property
    def primaries(self) -> list[Server]:
        """The servers that were the primaries when the cluster was formed, one for each shard."""
        return self.servers[: self._number]

    @property
    def url(self) -> str:
        """The URL of the cluster as a node."""
        first, *others = self.primaries
        more = "&".join(f"startup={HOST}:{server.port}" for server in others)
        return f"redis+cluster://{HOST}:{first.port}" + (f"?{more}" if more else "")

    # Starting and stopping; a whole cluster is started and ends like one server

    def begin(self) -> None:
        """Assign the slots, and have the servers find one another."""
        bounds = [SLOTS * number // self._number for number in range(self._number + 1)]
        for number, server in enumerate(self.primaries):
            slots = map(str, range(bounds[number], bounds[number + 1]))
            send_command(server.port, "CLUSTER", "ADDSLOTS", *slots)
            send_command(server.port, "CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for server in self.servers[1:]:
            send_command(server.port, "CLUSTER", "MEET", HOST, str(self.servers[0].port))

    def form(self) -> None:
        """Wait until all servers agree on who owns what, and have replicas."""
        _wait("the servers know one another", lambda: all(self._knows_all(server) for server in self.servers))
        for number, replica in enumerate(self.servers[self._number :]):
            primary = self.primaries[number % self._number]
            self._retry(replica, "CLUSTER", "REPLICATE", self.id_of(primary))
        _wait("the cluster is in order", lambda: all(self._is_ready(server) for server in self.servers))

    def _knows_all(self, server: Server) -> bool:
        lines = str(send_command(server.port, "CLUSTER", "NODES")).splitlines()
        return len(lines) == len(self.servers) and not any("handshake" in line for line in lines)

    def _is_ready(self, server: Server) -> bool:
        info = str(send_command(server.port, "CLUSTER", "INFO"))
        replicas = sum(" slave " in f" {line.split(' ')[2].replace(',', ' ')} " for line in self._nodes(server))
        linked = "master_link_status:down" not in str(send_command(server.port, "INFO", "replication"))
        return "cluster_state:ok" in info and replicas == self._number * self._replicas and linked

    @staticmethod
    def _nodes(server: Server) -> list[str]:
        return str(send_command(server.port, "CLUSTER", "NODES")).splitlines()

    @staticmethod
    def _retry(server: Server, *words: str) -> None:
        deadline = time.monotonic() + _FORM_TIMEOUT
        while True:
            try:
                send_command(server.port, *words)
            except hiredis.ReplyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
            else:
                return

    @property
    def port(self) -> int:
        """The first server's port."""
        return self.servers[0].port

    @property
    def pid(self) -> int | None:
        """The first server's process id."""
        return self.servers[0].pid

    def kill(self) -> None:
        """Kill all servers."""
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        """Freeze all servers."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """Continue all servers."""
        for server in self.servers:
            server.resume()

    def erase(self) -> None:
        """Delete the data of all servers, and that they are a cluster."""
        for server in self.servers:
            server.erase()

    def close(self) -> None:
        """Kill all servers, and let others use their ports."""
        for server in self.servers:
            server.close()

    def relaunch(self) -> None:
        """Start all servers again on their ports. Without their data they form a new cluster."""
        for server in self.servers:
            start_together([server], port=server.port)
        if not any(len(self._nodes(server)) > 1 for server in self.servers):
            self.begin()
            self.form()
        _wait("the cluster is in order", lambda: all(self._is_ready(server) for server in self.servers))

    # What can happen to the shards

    @staticmethod
    def id_of(server: Server) -> str:
        """Return the id of a server in the cluster."""
        return str(send_command(server.port, "CLUSTER", "MYID"))

    def owner_of(self, slot: int) -> Server:
        """Return the server that owns a slot, as the servers say that run."""
        for server in self.servers:
            if server.pid is None:
                continue
            for first, last, primary, *_ in send_command(server.port, "CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.servers if each.port == primary[1])
        raise LocalServerError(f"no server of {self.label} owns slot {slot}")

    def move_slot(self, slot: int, to: Server) -> None:
        """Move a slot with all its keys to another primary, as `redis-cli --cluster reshard` does."""
        source = self.owner_of(slot)
        if source is to:
            return
        self.begin_move(slot, source, to)
        self.finish_move(slot, source, to)

    def begin_move(self, slot: int, source: Server, to: Server) -> None:
        """Let keys of a slot move: from now on both servers know that it is being moved."""
        send_command(to.port, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", self.id_of(source))
        send_command(source.port, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", self.id_of(to))

    def move_keys(self, slot: int, source: Server, to: Server) -> None:
        """Move the keys that the slot has now."""
        while keys := send_command(source.port, "CLUSTER", "GETKEYSINSLOT", str(slot), "100"):
            send_command(source.port, "MIGRATE", HOST, str(to.port), "", "0", "5000", "KEYS", *keys)

    def finish_move(self, slot: int, source: Server, to: Server) -> None:
        """Move the keys, and make the other primary the owner."""
        self.move_keys(slot, source, to)
        new_owner = self.id_of(to)
        for server in (to, source, *(each for each in self.primaries if each not in {to, source})):
            if server.pid is not None:
                self._retry(server, "CLUSTER", "SETSLOT", str(slot), "NODE", new_owner)
        _wait("all servers know the slot's owner", lambda: self._all_name(slot, to))

    def _all_name(self, slot: int, owner: Server) -> bool:
        return all(
            any(first <= slot <= last and primary[1] == owner.port for first, last, primary, *_ in found)
            for server in self.primaries
            if server.pid is not None
            for found in [send_command(server.port, "CLUSTER", "SLOTS")]
        )

    def replica_of(self, shard: int) -> Server:
        """Return the first replica that was given to that shard."""
        if not self._replicas:
            raise LocalServerError(f"{self.label} has no replicas: start it with replicas=1")
        return self.servers[self._number + shard]

    def promote(self, shard: int, *, how: str = "") -> Server:
        """Have the replica of a shard take over, and return it when it is the primary.

        `how` is empty while the primary answers, and otherwise FORCE or TAKEOVER.
        """
        replica = self.replica_of(shard)
        self._retry(replica, "CLUSTER", "FAILOVER", *([how] if how else []))
        self.await_promotion(replica)
        return replica

    @staticmethod
    def await_promotion(replica: Server) -> None:
        """Wait until a replica is a primary and accepts writes."""
        _wait(
            "the replica is promoted",
            lambda: (
                "role:master" in str(send_command(replica.port, "INFO", "replication"))
                and "cluster_state:ok" in str(send_command(replica.port, "CLUSTER", "INFO"))
            ),
        )


def _wait(what: str, condition: Any) -> None:
    deadline = time.monotonic() + _FORM_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise LocalServerError(f"not within {_FORM_TIMEOUT:g} s: {what}")
        time.sleep(_POLL)
