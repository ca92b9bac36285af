"""Which faults, when and on whom: drawn from the seed."""

import asyncio
import signal

from faults_client import LONGEST_TTL, NAMES
from faults_orphans import orphans
from faults_register import Register
from faults_verdict import SETTLED

from redlock_async._transport.clock import now
from redlock_async.testing import Violation

PATIENCE = 10.0
"""Seconds after healing in which every process, and every name, must have had a grant."""

SHIFT = 6
"""Episodes after which all processes end, to see whether anything is left of them."""

SERVERS = (
    *("pause", "kill", "restart", "flush", "out_of_memory"),
    *("max_clients", "client_pause", "client_kill", "script_flush"),
)
WIRES = (
    "cut",
    "black_hole",
    "drop_requests",
    "drop_replies",
    "stall_requests",
    "stall_replies",
    "delay",
    "reset_mid_reply",
)


class Schedule:
    """Draws faults for a stage until the time is up."""

    def __init__(self, stage):
        self.stage, self.options, self.random = stage, stage.options, stage.random
        self.recoveries = {"process": [], "name": []}
        self.failures = []

    async def run(self, until):
        """Some faults, then all is healed and must recover; over and over."""
        await self.recover()
        while now() < until:
            await self.shift(until)
            if not self.options.soak and now() < until:
                await self.change_of_shift()
        if not self.options.soak:
            await self.bite()
        await self.recover()
        await asyncio.sleep(1)

    async def bite(self):
        """A short run may not have stopped anybody at the wrong moment yet; with nothing else wrong it must."""
        register = Register(self.stage.register.urls[0])
        for _ in range(3):
            if (await register.counts())["unfenced"]["lost"]:
                break
            client = self.random.choice(self.stage.clients)
            await client.stop(3.0)
            await asyncio.sleep(LONGEST_TTL + 0.5)
            client.go_on()
            await self.recover()
        await register.close()

    async def shift(self, until):
        """Some episodes, and what happens to processes meanwhile."""
        async with asyncio.TaskGroup() as clients:
            for number in range(SHIFT):
                if number % 3 < 2:  # of three: one stops, one kills, one does neither
                    clients.create_task(self.hurt_a_client(self.stop if number % 3 == 0 else self.kill))
                await self.episode()
                await self.stage.heal()
                await self.recover()
                await asyncio.sleep(self.random.uniform(*((10, 40) if self.options.soak else (0.2, 1.0))))
                if now() > until:
                    break

    async def episode(self):
        """A few faults, on a minority mostly."""
        for _ in range(self.random.randint(1, 4)):
            draw = self.random.random()
            if draw < 0.12:
                await self.forgetful_majority()
            elif draw < 0.22:
                self.partition()
            elif draw < 0.6:
                await self.server_fault()
            else:
                self.wire_fault()
            await asyncio.sleep(self.random.choice((0.02, 0.2, 0.6, 1.2)))

    def nodes(self):
        """Some nodes: seldom a majority."""
        spare = self.options.nodes - self.stage.quorum
        number = self.random.choice((1, 1, *range(1, spare + 1), *range(1, spare + 1), spare + 1))
        return self.random.sample(range(self.options.nodes), min(number, self.options.nodes))

    async def server_fault(self):
        """One of the servers' own, on some of those that have none."""
        fault = self.random.choice(SERVERS)
        for node in self.nodes():
            if node not in self.stage.ailing:
                await getattr(self.stage, fault)(node)

    def wire_fault(self):
        """One of the network, for everybody or for some processes."""
        fault = self.random.choice(WIRES)
        everybody = range(self.options.processes)
        some = list(everybody) if self.random.random() < 0.6 else [c for c in everybody if self.random.random() < 0.5]
        arguments = (self.random.choice((0.005, 0.05, 0.2, 0.6)),) if fault == "delay" else ()
        for node in self.nodes():
            self.stage.wire(fault, node, some, *arguments)

    def partition(self):
        """Each process loses another minority: two of them may have only one node in common."""
        for client in range(self.options.processes):
            lost = self.random.sample(range(self.options.nodes), self.options.nodes - self.stage.quorum)
            fault = self.random.choice(("cut", "black_hole", "stall_requests", "drop_replies"))
            for node in lost:
                self.stage.wire(fault, node, [client])

    async def forgetful_majority(self):
        """Leases are granted without a minority; it comes back just as those that granted them lose their data."""
        stage, spare = self.stage, self.options.nodes - self.stage.quorum
        healthy = [node for node in range(self.options.nodes) if node not in stage.ailing]
        if len(healthy) < self.options.nodes:
            return
        self.random.shuffle(healthy)
        away, forgetful = healthy[:spare], healthy[spare : 2 * spare]
        for node in away:
            await stage.pause(node)
        await asyncio.sleep(self.random.uniform(0.4, 1.0))
        # A holder that is stopped can neither put its keys back nor learn that they are gone.
        client = self.random.choice(stage.clients)
        stopped = not self.options.soak and client.alive
        if stopped:
            await client.stop(1.0)
        for node in forgetful:
            await (stage.flush(node) if self.random.random() < 0.5 else stage.restart(node))
        for node in away:
            await stage.heal_server(node)
            stage.note("node healed", node=node)
        if stopped:
            await asyncio.sleep(self.random.uniform(0.2, LONGEST_TTL))
            client.go_on()

    async def hurt_a_client(self, how):
        """One at some moment, beside the faults of the rest."""
        first = self.options.processes - 1 if self.options.soak else 0  # the others live long enough to be compared
        client = self.stage.clients[self.random.randrange(first, self.options.processes)]
        await asyncio.sleep(self.random.uniform(0, 1))
        if client.alive:
            await how(client)

    async def stop(self, client):
        """For longer than the longest ttl; at times it is one whose last lease came by a long way."""
        if self.random.random() < 0.5:
            for node in range(self.options.nodes):
                self.stage.wire("delay", node, [client.index], 0.1)
            await asyncio.sleep(0.5)
            if not client.alive:
                return  # it was stopped or killed meanwhile
        await client.stop(self.random.choice((0.0, 3.0, 3.0)))
        await asyncio.sleep(LONGEST_TTL + self.random.uniform(0.2, 1.5))
        client.go_on()

    async def kill(self, client):
        """And another begins."""
        client.kill()
        await asyncio.sleep(self.random.uniform(0, 0.5))
        client.start()

    async def recover(self):
        """Wait until every process that runs, and every name, has been granted something since now."""
        began = now()
        missing = {("process", client.owner): client for client in self.stage.clients if not client.stopped}
        missing |= {("name", name): None for name in NAMES}
        offsets = {client.owner: size(client.history) for client in self.stage.clients}
        while missing and now() < began + PATIENCE:
            await asyncio.sleep(0.05)
            for client in self.stage.clients:
                if client.alive:
                    client.process.send_signal(signal.SIGCONT)  # it may have been about to stop when we gave up
                lines = [line for line in client.read_from(offsets.get(client.owner, 0)) if line["what"] == "held"]
                for line in lines:
                    for what in [("process", client.owner), *(("name", name) for name in line["names"])]:
                        if missing.pop(what, 0) != 0:
                            self.recoveries[what[0]].append(line["at"] - began)
            for what, client in list(missing.items()):
                if client is not None and (
                    client.stopped or client.owner != what[1] or client.process.poll() is not None
                ):
                    del missing[what]  # it was hurt meanwhile
        self.failures += [
            Violation("liveness", f"nothing granted to {what} for {PATIENCE} s after healing") for what in missing
        ]

    async def close_all(self, *, patient):
        """End every process in good order; returns what is left of them on the nodes."""
        clients = self.stage.clients
        for client in clients:
            client.process.stdin.close()
        give_up_at = now() + PATIENCE
        while now() < give_up_at and any(client.process.poll() is None for client in clients):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        self.failures += [
            Violation("liveness", f"{client.owner} did not end within {PATIENCE} s of being asked to")
            for client in clients
            if client.process.poll() is None
        ]
        return await orphans(self.stage, patient=patient)

    async def change_of_shift(self):
        """All end, nothing may be left of them, and others begin."""
        await asyncio.sleep(SETTLED)  # what could not be released before is released on connecting again
        # Requests that arrive long after their own releases must not leave anything either.
        for node in self.random.sample(range(self.options.nodes), self.options.nodes - self.stage.quorum):
            self.stage.wire("stall_requests", node, list(range(self.options.processes)))
        await asyncio.sleep(self.random.uniform(0.5, 1.0))
        await self.stage.heal()
        await asyncio.sleep(0.2)
        self.failures += await self.close_all(patient=False)
        for client in self.stage.clients:
            client.start()
        await self.recover()


def size(path):
    """How much of a history there is."""
    return path.stat().st_size if path.exists() else 0
