"""The servers, the network and the processes of faults.py, and how to hurt each; when and whom is not decided here."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from faults_client import LONGEST_TTL
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from redlock_async._transport.clock import now
from redlock_async.testing import LocalCluster
from redlock_async.testing._cluster import _proxy_before
from redlock_async.testing._servers import _end_with_parent

CLIENT = str(Path(__file__).with_name("faults_client.py"))
OUT_OF_VOTE = LONGEST_TTL + 1.0
"""Seconds for which a node that lost its data counts as without it: the restart hold, and some time to notice."""
UNPAUSE = 10.0


class Client:
    """One contending process; another takes its place when it is killed."""

    def __init__(self, stage, index):
        self.stage, self.index, self.incarnation = stage, index, 0
        self.stopped = False
        self.start()

    @property
    def owner(self):
        """How its leases are signed, and its history is called."""
        return f"c{self.index}.{self.incarnation}"

    def start(self):
        """Begin another life."""
        self.incarnation += 1
        options, stage = self.stage.options, self.stage
        self.history = stage.folder / f"{self.owner}.jsonl"
        with self.history.with_suffix(".log").open("wb") as log:
            self.process = self._launch(options, stage, log)

    def _launch(self, options, stage, log):
        return subprocess.Popen(
            [
                *(sys.executable, CLIENT, "--history", str(self.history), "--owner", self.owner),
                *("--register", stage.register.urls[0], "--index", str(self.index)),
                *("--processes", str(options.processes), "--seed", str(options.seed * 1000 + self.index)),
                *("--tasks", str(options.tasks), "--pace", str(options.pace), "--sample", str(options.sample)),
                *(f"redis://127.0.0.1:{proxies[self.index].port}" for proxies in stage.proxies),
            ],
            stdin=subprocess.PIPE,
            stderr=log,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - as for the servers: a stopped one must end with us, too
        )

    async def stop(self, patience):
        """SIGSTOP, until `go_on`: between a read and a write if it comes to one so soon."""
        self.stopped = True
        give_up_at = now() + patience
        self.process.stdin.write(f"{give_up_at}\n".encode())
        self.process.stdin.flush()
        while now() < give_up_at + 0.02 and not self._is_stopped():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        self.process.send_signal(signal.SIGSTOP)
        while not self._is_stopped():  # noqa: ASYNC110 - the signal may still be on its way
            await asyncio.sleep(0)
        self.stage.note("client stopped", client=self.owner)

    @property
    def alive(self):
        """Whether it runs: neither stopped nor killed."""
        return not self.stopped and self.process.poll() is None

    def _is_stopped(self):
        states = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, states) is not None

    def go_on(self):
        """SIGCONT."""
        self.stage.note("client goes on", client=self.owner)
        self.stopped = False
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL; what it held runs out by itself."""
        self.process.kill()
        self.process.communicate()
        self.stage.note("client killed", client=self.owner)

    def read_from(self, offset):
        """The lines of its history from there on, as far as they are whole."""
        if not self.history.exists():
            return
        with self.history.open("rb") as file:
            if offset:
                # The size that was read may end within a line: a write that crosses a page is seen page by page.
                file.seek(offset - 1)
                file.readline()
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


class Stage:
    """All of them, and the log of what was done to them. Each client has a way of its own to each server."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.random = random.Random(options.seed)
        self.quorum = options.nodes // 2 + 1
        # Every write reaches the file before it is answered: a server that keeps its data keeps all of it.
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
        self.cluster = LocalCluster(options.nodes, server_args=durable)
        self.register = LocalCluster(1)
        self.proxies, self.admins, self.clients = [], [], []
        self.log = []
        self.forgot_until = [0.0] * options.nodes
        self.ailing = {}
        """What is wrong with which server."""
        self.keeps = {}
        """Whether a server that was killed is to come back with its data."""

    async def __aenter__(self):
        self.register.start()
        self.cluster.start()
        loop = asyncio.get_running_loop()
        for server in self.cluster._servers:
            self.proxies.append([_proxy_before(server, loop) for _ in range(self.options.processes)])
        self.admins = [
            Redis.from_url(url, single_connection_client=True, retry=Retry(NoBackoff(), 1), socket_timeout=UNPAUSE)
            for url in self.cluster.urls
        ]
        for admin in self.admins:
            await admin.ping()
        self.clients = [Client(self, index) for index in range(self.options.processes)]
        return self

    async def __aexit__(self, *_):
        for client in self.clients:
            if client.process.poll() is None:
                client.process.kill()
            client.process.communicate()
        for proxies in self.proxies:
            for proxy in proxies:
                proxy.close()
        for admin in self.admins:
            await admin.aclose()
        self.cluster.stop()
        self.register.stop()

    def note(self, what, **details):
        """Add to the log."""
        entry = {"what": what, "at": now(), **details}
        self.log.append(entry)
        with (self.folder / "faults.jsonl").open("a", encoding="ascii") as file:
            file.write(json.dumps(entry) + "\n")

    def begin(self, kind, node, *, ailing=True, **details):
        """A fault is about to begin on that node; it lasts until it is healed unless it is over at once."""
        self.note("fault", kind=kind, node=node, lasts=ailing, **details)
        if ailing:
            self.ailing[node] = kind

    # Servers

    def may_forget(self, node):
        """Whether that node may lose its data now: never more than a minority within the longest ttl."""
        others = sum(until > now() for index, until in enumerate(self.forgot_until) if index != node)
        return others < self.options.nodes - self.quorum

    async def pause(self, node):
        """SIGSTOP."""
        self.begin("SIGSTOP of a server", node)
        self.cluster.pause(node)

    async def kill(self, node):
        """SIGKILL; it comes back when healed."""
        self.keeps[node] = not self.may_forget(node) or self.random.random() < 0.4
        if not self.keeps[node]:
            self.forgot_until[node] = float("inf")
        self.begin("SIGKILL of a server", node)
        self.cluster.kill(node)

    async def restart(self, node):
        """SIGKILL, and back at once, with or without its data."""
        await self.kill(node)
        await self.bring_back(node)

    async def bring_back(self, node):
        """Start it again."""
        keep = self.keeps.pop(node)
        self.begin("restart with its data" if keep else "restart without its data", node, ailing=False, lost=not keep)
        await asyncio.to_thread(self.cluster.restart, node, keep_data=keep)
        self.ailing.pop(node, None)
        if not keep:
            self.forgot_until[node] = now() + OUT_OF_VOTE

    async def flush(self, node):
        """FLUSHALL."""
        if self.may_forget(node):
            self.forgot_until[node] = now() + OUT_OF_VOTE
            self.begin("FLUSHALL", node, ailing=False, lost=True)
            await self.admins[node].flushall()
            self.forgot_until[node] = now() + OUT_OF_VOTE

    async def out_of_memory(self, node):
        """Nothing more may be stored."""
        self.begin("OOM", node)
        await self.admins[node].config_set("maxmemory-policy", "noeviction")
        await self.admins[node].config_set("maxmemory", 1)

    async def max_clients(self, node):
        """No connection but ours."""
        self.begin("maxclients", node)
        await self.admins[node].config_set("maxclients", 1)
        await self.admins[node].execute_command("CLIENT", "KILL", "TYPE", "normal")

    async def client_pause(self, node):
        """CLIENT PAUSE, of all or of writes: commands wait, and are carried out later."""
        self.begin("CLIENT PAUSE", node)
        await self.admins[node].client_pause(self.random.randrange(100, 2000), all=self.random.random() < 0.5)

    async def client_kill(self, node):
        """CLIENT KILL TYPE normal: every connection ends."""
        self.begin("CLIENT KILL", node, ailing=False)
        await self.admins[node].execute_command("CLIENT", "KILL", "TYPE", "normal")

    async def script_flush(self, node):
        """SCRIPT FLUSH: every script must be sent again."""
        self.begin("SCRIPT FLUSH", node, ailing=False)
        await self.admins[node].script_flush()

    async def heal_server(self, node):
        """End what is wrong with it."""
        kind = self.ailing.pop(node, None)
        if kind == "SIGSTOP of a server":
            self.cluster.resume(node)
        elif kind == "SIGKILL of a server":
            await self.bring_back(node)
        elif kind in {"OOM", "maxclients"}:
            # Before the others, whose connections may be in our way.
            await self.admins[node].config_set("maxclients", 10_000)
            await self.admins[node].config_set("maxmemory", 0)
        elif kind == "CLIENT PAUSE":
            with suppress(RedisError):
                await self.admins[node].execute_command("CLIENT", "UNPAUSE")

    # The network

    def wire(self, fault, node, clients, *arguments):
        """A fault of the network, on the ways of these clients to that node."""
        self.note("fault", kind=fault.replace("_", " "), node=node, lasts=True, clients=clients)
        for client in clients:
            getattr(self.proxies[node][client], fault)(*arguments)

    async def heal(self):
        """End every fault."""
        for node in list(self.ailing):
            await self.heal_server(node)
        for proxies in self.proxies:
            for proxy in proxies:
                proxy.heal()
        self.note("healed")
