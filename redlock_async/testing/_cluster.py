"""N independent local nodes with fault injection."""

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from redlock_async.testing._node_faults import SERVER_FAULTS, NodeFaults
from redlock_async.testing._proxy import FaultProxy
from redlock_async.testing._servers import (
    HOST,
    LocalServerError,
    Server,
    Spawner,
    find_server,
    free_ports,
    make_executable,
    require_free,
    start_together,
)

if TYPE_CHECKING:
    from redlock_async.testing._shards import Shards

_PORT_TRIES = 5
_LAST_PORT = 65_535
_FAULT_TOLERANT = 3
"""The number of nodes from which one may fail."""


class Done:
    """The result of a fault, which is already in effect: awaiting it is allowed and returns immediately."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE = Done()


class LocalCluster(NodeFaults[Done]):
    """Real servers on free loopback ports, without persistence. They end when this process does, even if it is killed.

    ```python
    async with LocalCluster(5) as cluster:
        redlock = Redlock(cluster.urls)
        cluster.kill(0)  # `await cluster.kill(0)` is the same
    ```

    `with`, or `start()` and `stop()`, need no running loop. The faults of a server are `kill`, `pause`, `resume` and
    `restart`; `Faults` describes each. With `proxied=True` a proxy on the running loop stands in front of each server,
    and `urls` point to the proxies. The network faults need it: `cut`, `black_hole`, `drop_requests`, `drop_replies`,
    `stall_requests`, `stall_replies`, `delay` and `reset_mid_reply`. `heal` ends them.

    `server_args` come last on each server's command line, so they override the defaults. The servers take `port` and
    those after it, or free ports. Data and logs are kept in `directory`. Without one they go to a temporary folder,
    which `stop` removes and which is also removed at exit (SIGKILL of this process leaves the logs). Starting blocks
    for about 50 ms. A forked child may use `urls`, but the servers belong to its parent.

    Three nodes or more have served locks without a namespace before, so a minority may fail at once. With
    `new_cluster`, with a namespace, and if the servers want a password or TLS, the first client founds the cluster: it
    needs all nodes, or waits for one ttl. To use nodes of several clusters as one, start them with `new_cluster`.

    With `shards`, each node is a Redis or Valkey Cluster of that many primaries, each with `replicas`. Then the faults
    of a server are those of all servers of a node; `sharded[i]` has those of single ones: it moves slots and promotes
    replicas. Starting takes about three seconds: a cluster accepts no writes before. There are no proxies.
    """

    def __init__(
        self,
        nodes: int = 5,
        *,
        proxied: bool = False,
        server_args: Sequence[str] = (),
        directory: str | os.PathLike[str] | None = None,
        new_cluster: bool = False,
        port: int | None = None,
        shards: int = 0,
        replicas: int = 0,
    ) -> None:
        if shards < 0 or replicas < 0 or (replicas and not shards):
            raise ValueError("shards and replicas must be 0 or more, and replicas need shards")
        if shards and (proxied or port is not None):
            raise ValueError("shards can have neither proxies nor fixed ports")
        if nodes < 1:
            raise ValueError(f"nodes must be 1 or more, got {nodes}")
        if port is not None and not 1 <= port <= _LAST_PORT - nodes + 1:
            raise ValueError(f"port must leave room for {nodes} ports from 1 to {_LAST_PORT}, got {port}")
        if isinstance(server_args, str):
            raise TypeError(f"server_args must be a list of words such as ['--maxclients', '10'], got {server_args!r}")
        self._nodes = nodes
        self._shards = shards
        self._replicas = replicas
        self.sharded: list[Shards] = []
        """The nodes, if they are clusters."""
        self._proxied = proxied
        self._new_cluster = new_cluster
        self._server_args = tuple(server_args)
        self._directory = Path(directory).absolute() if directory is not None else None
        self._port = port
        self._folder: Path | None = None
        self._spawner = Spawner()
        self._servers: list[Server] = []
        self._proxies: list[FaultProxy] = []
        self._owner = 0

    # -- starting and stopping -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes at once and return when all of them answer.

        Raises LocalServerError if no server program is found or one does not start.
        """
        if self._folder is not None:
            raise RuntimeError("this cluster is already started")
        loop = self._running_loop() if self._proxied else None
        if self._port is not None:
            require_free(range(self._port, self._port + self._nodes))
        binary = find_server()
        self._owner = os.getpid()
        self._folder = self._directory or Path(tempfile.mkdtemp(prefix="redlock-cluster-"))
        atexit.register(self.stop)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            binary = make_executable(binary, self._folder)
            if self._shards:
                self._start_sharded(binary, self._folder)
                return
            servers = [
                Server(f"node {i}", binary, self._folder / f"node-{i}", self._server_args, self._spawner)
                for i in range(self._nodes)
            ]
            self._servers = servers
            start_together(servers, port=self._port)
            if not self._new_cluster and self._nodes >= _FAULT_TOLERANT:
                from redlock_async.testing._raw import record_votes  # noqa: PLC0415 - hiredis is not needed for --help

                record_votes([server.port for server in servers])
            if loop is not None:
                for server in servers:
                    self._proxies.append(_proxy_before(server, loop))
        except BaseException:
            self.stop()
            raise

    def _start_sharded(self, binary: Path, folder: Path) -> None:
        from redlock_async.testing._shards import Shards  # noqa: PLC0415 - hiredis is not needed for --help

        self.sharded = [
            Shards(
                f"node {i}", binary, folder / f"node-{i}", self._server_args, self._spawner,
                shards=self._shards, replicas=self._replicas,
            )
            for i in range(self._nodes)
        ]  # fmt: skip
        start_together([server for node in self.sharded for server in node.servers])
        for node in self.sharded:
            node.begin()
        for node in self.sharded:
            node.form()

    def stop(self) -> None:
        """End all nodes, paused or not, and remove the temporary folder. A second call does nothing."""
        if self._folder is None or os.getpid() != self._owner:
            return
        for proxy in self._proxies:
            proxy.close()
        for server in self._servers:
            server.close()
        for node in self.sharded:
            node.close()
        self._spawner.close()
        if self._directory is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._proxies, self._servers, self.sharded, self._folder = [], [], [], None
        atexit.unregister(self.stop)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # -- addresses ----------------------------------------------------------------------------------------------------

    @property
    def proxied(self) -> bool:
        """Whether a proxy stands in front of each server."""
        return self._proxied

    @property
    def urls(self) -> list[str]:
        """One URL per node, or per proxy with `proxied=True`."""
        return [node.url for node in self.sharded] or [f"redis://{HOST}:{port}" for port in self.ports]

    @property
    def ports(self) -> list[int]:
        """The ports in `urls`."""
        self._check_started()
        return [each.port for each in self._proxies or self._servers or self.sharded]

    @property
    def pids(self) -> list[int | None]:
        """The process id of each server, None if it was killed."""
        self._check_started()
        return [server.pid for server in self._servers or self.sharded]

    def __len__(self) -> int:
        return self._nodes

    def __repr__(self) -> str:
        state = ", ".join(self.urls) if self._folder is not None else "not started"
        return f"<LocalCluster of {self._nodes}: {state}>"

    # -- faults ----------------------------------------------------------------------------------------------------

    def restart(self, i: int, *, keep_data: bool = False) -> Done:
        """Restart node `i` on its port and return when it answers.

        It comes back empty. With `keep_data` it loads what it persisted, for which `server_args` must turn persistence
        on (`["--appendonly", "yes"]`).
        """
        server = self._server(i)
        server.kill()
        if not keep_data:
            server.erase()
        if isinstance(server, Server):
            start_together([server], port=server.port)
        else:
            server.relaunch()
        return _DONE

    def _inject(self, fault: str, i: int, *arguments: float) -> Done:
        target = self._server(i) if fault in SERVER_FAULTS else self._proxy(i, fault)
        getattr(target, fault)(*arguments)
        return _DONE

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_started(self) -> None:
        if self._folder is None:
            raise RuntimeError("this cluster is not running: use `async with LocalCluster(...)`, or call start() first")

    def _check_index(self, i: int) -> None:
        self._check_started()
        if os.getpid() != self._owner:
            raise RuntimeError(
                "these servers belong to the process that started them: a forked child can only use `urls`"
            )
        if not 0 <= i < self._nodes:
            raise IndexError(f"no node {i}: this cluster has nodes 0 to {self._nodes - 1}")

    def _server(self, i: int) -> "Server | Shards":
        self._check_index(i)
        return self.sharded[i] if self.sharded else self._servers[i]

    def _proxy(self, i: int, fault: str) -> FaultProxy:
        self._check_index(i)
        if not self._proxied:
            raise RuntimeError(f"{fault} needs a proxy in front of the servers: use LocalCluster(..., proxied=True)")
        return self._proxies[i]

    @staticmethod
    def _running_loop() -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "proxied=True needs a running event loop: use `async with`, or call start() inside a coroutine"
            ) from None


def _proxy_before(server: Server, loop: asyncio.AbstractEventLoop) -> FaultProxy:
    for _ in range(_PORT_TRIES):
        (port,) = free_ports(1)
        try:
            return FaultProxy(loop, port, server.port)
        except OSError:  # another program took the port since free_ports() found it
            continue
    raise LocalServerError(f"cannot bind a free port for the proxy of {server.label}")
