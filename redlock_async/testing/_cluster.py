"""N independent local masters that tests can hurt; it starts servers and never talks to them as a client."""

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from redlock_async.testing._proxy import FaultProxy
from redlock_async.testing._servers import (
    HOST,
    LocalServerError,
    Server,
    Spawner,
    find_server,
    free_ports,
    make_executable,
    start_together,
)

_PORT_TRIES = 5


class Done:
    """What a fault returns: it has happened already, so awaiting it is allowed and never waits."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE = Done()


class LocalCluster:
    """Real servers on free loopback ports, without persistence, that end with this process however it ends.

    ```python
    async with LocalCluster(5) as cluster:
        redlock = Redlock(cluster.urls)
        cluster.kill(0)  # `await cluster.kill(0)` is the same
    ```

    `with`, or `start()` and `stop()`, do without a running loop. With `proxied=True` a proxy on the running loop
    stands in front of each server and `urls` point to it, for the faults of the network: `cut`, `black_hole`,
    `drop_requests`, `drop_replies`, `hold`, `hold_replies`, `delay`, `reset_mid_reply`, all ended by `heal`.

    `server_args` come last on each server's command line, so they win over the defaults. With `directory`, data and
    logs are kept there; otherwise they live in a temporary folder which `stop` removes, also at exit (a SIGKILL of this
    process leaves the logs). Starting blocks for about a twentieth of a second. A forked child may use `urls`, but the
    servers stay its parent's.
    """

    def __init__(
        self,
        nodes: int = 5,
        *,
        proxied: bool = False,
        server_args: Sequence[str] = (),
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a cluster needs at least one node, not {nodes}")
        if isinstance(server_args, str):
            raise TypeError(f"server_args is a list of words, as in ['--maxclients', '10'], not {server_args!r}")
        self._nodes = nodes
        self._proxied = proxied
        self._server_args = tuple(server_args)
        self._directory = Path(directory).absolute() if directory is not None else None
        self._folder: Path | None = None
        self._spawner = Spawner()
        self._servers: list[Server] = []
        self._proxies: list[FaultProxy] = []
        self._owner = 0

    # -- starting and stopping -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes at once; returns when each of them answers."""
        if self._folder is not None:
            raise RuntimeError("this cluster has been started already")
        loop = self._running_loop() if self._proxied else None
        binary = find_server()
        self._owner = os.getpid()
        self._folder = self._directory or Path(tempfile.mkdtemp(prefix="redlock-cluster-"))
        atexit.register(self.stop)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            binary = make_executable(binary, self._folder)
            servers = [
                Server(f"node {i}", binary, self._folder / f"node-{i}", self._server_args, self._spawner)
                for i in range(self._nodes)
            ]
            self._servers = servers
            start_together(servers)
            if loop is not None:
                for server in servers:
                    self._proxies.append(_proxy_before(server, loop))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all nodes, paused or not, and remove the temporary folder; twice is allowed."""
        if self._folder is None or os.getpid() != self._owner:
            return
        for proxy in self._proxies:
            proxy.close()
        for server in self._servers:
            server.kill()
        self._spawner.close()
        if self._directory is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._proxies, self._servers, self._folder = [], [], None
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

    # -- where it is -----------------------------------------------------------------------------------------------

    @property
    def proxied(self) -> bool:
        """Whether a proxy stands in front of each server."""
        return self._proxied

    @property
    def urls(self) -> list[str]:
        """One URL a node; the proxy's when there is one."""
        return [f"redis://{HOST}:{port}" for port in self.ports]

    @property
    def ports(self) -> list[int]:
        """The ports in `urls`."""
        self._check_started()
        return [proxy.port for proxy in self._proxies] or [server.port for server in self._servers]

    @property
    def pids(self) -> list[int | None]:
        """The servers' processes; None for one that was killed."""
        self._check_started()
        return [server.pid for server in self._servers]

    def __len__(self) -> int:
        return self._nodes

    def __repr__(self) -> str:
        state = ", ".join(self.urls) if self._folder is not None else "not started"
        return f"<LocalCluster of {self._nodes}: {state}>"

    # -- faults of a server ----------------------------------------------------------------------------------------

    def kill(self, i: int) -> Done:
        """SIGKILL: its data is gone. Through a proxy, new connections are then reset instead of refused."""
        self._server(i).kill()
        return _DONE

    def pause(self, i: int) -> Done:
        """SIGSTOP: connecting succeeds, nothing answers."""
        self._server(i).pause()
        return _DONE

    def resume(self, i: int) -> Done:
        """SIGCONT: it goes on with what it was sent meanwhile."""
        self._server(i).resume()
        return _DONE

    def restart(self, i: int, *, keep_data: bool = False) -> Done:
        """End it if it runs and start it on the same port; returns when it answers.

        It comes back empty, unless `keep_data` is given and `server_args` made it store something
        (`["--appendonly", "yes"]`).
        """
        server = self._server(i)
        server.kill()
        if not keep_data:
            server.erase()
        start_together([server], port=server.port)
        return _DONE

    # -- faults of the network -------------------------------------------------------------------------------------

    def cut(self, i: int) -> Done:
        """Reset all its connections, and each new one, until `heal`."""
        self._proxy(i, "cut").cut()
        return _DONE

    def black_hole(self, i: int) -> Done:
        """Half-open: connections stay open and new ones succeed, but all bytes are swallowed until `heal`."""
        self._proxy(i, "black_hole").black_hole()
        return _DONE

    def drop_requests(self, i: int) -> Done:
        """Swallow what clients send, on old and new connections, until `heal`; the server's reports still arrive."""
        self._proxy(i, "drop_requests").drop_requests()
        return _DONE

    def drop_replies(self, i: int) -> Done:
        """Swallow what the server answers, on old and new connections, until `heal`; it does what it is sent."""
        self._proxy(i, "drop_replies").drop_replies()
        return _DONE

    def hold(self, i: int) -> Done:
        """Withhold what clients send on today's connections; `heal` delivers it, even if the client has gone."""
        self._proxy(i, "hold").hold()
        return _DONE

    def hold_replies(self, i: int) -> Done:
        """Withhold the answers on today's connections: the server does what it is sent, and nobody hears of it."""
        self._proxy(i, "hold_replies").hold_replies()
        return _DONE

    def delay(self, i: int, seconds: float) -> Done:
        """Make the way longer by this much in each direction; 0 makes it short again."""
        if seconds < 0:
            raise ValueError(f"a delay cannot be negative: {seconds}")
        self._proxy(i, "delay").delay(seconds)
        return _DONE

    def reset_mid_reply(self, i: int) -> Done:
        """Pass half of the next reply and reset the connection; once."""
        self._proxy(i, "reset_mid_reply").reset_mid_reply()
        return _DONE

    def heal(self, i: int) -> Done:
        """End every fault of the network at this node; connections that lost bytes are reset."""
        self._proxy(i, "heal").heal()
        return _DONE

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_started(self) -> None:
        if self._folder is None:
            raise RuntimeError("this cluster does not run: use `async with LocalCluster(...)`, or call start() first")

    def _check_index(self, i: int) -> None:
        self._check_started()
        if os.getpid() != self._owner:
            raise RuntimeError(
                "these servers belong to the process that started them: a forked child can only use their urls"
            )
        if not 0 <= i < self._nodes:
            raise IndexError(f"there is no node {i}: this cluster has the nodes 0 to {self._nodes - 1}")

    def _server(self, i: int) -> Server:
        self._check_index(i)
        return self._servers[i]

    def _proxy(self, i: int, fault: str) -> FaultProxy:
        self._check_index(i)
        if not self._proxied:
            raise RuntimeError(f"{fault} needs a proxy before the servers: use LocalCluster(..., proxied=True)")
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
        except OSError:  # taken since we looked
            continue
    raise LocalServerError(f"no free port could be bound for the proxy of {server.label}")
