"""`nodes`: show which nodes and which quorum the clients agree on, and change them while clients hold locks."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import redlock_async
from redlock_async._rules.charter import Charter, NodeSet
from redlock_async._rules.quorum import majority
from redlock_async._rules.settings import from_environment

from . import PROG, add_nodes, positive
from ._client import silence_log
from ._lock_view import format_seconds
from ._messages import say
from ._nodes import environment
from ._terminal import sanitize

if TYPE_CHECKING:  # it imports what --help does not need
    from redlock_async._admin.node_sets import NodeSets, Records

NOT_NOW = 75
"""The exit status when the change must wait: try again later."""

POLL = 0.2
"""Seconds between two looks at whether a node votes."""

ACTIONS = {
    "show": "show the nodes and the quorum on which the clients agree, and who uses which set",
    "add": "add a node: clients with and without it may run until `finish`",
    "remove": "remove a node, likewise",
    "replace": "replace a node: add the new one; then follow what is printed",
    "finish": "end the change: refuse the old set, when no client uses it any more",
    "reset": "record REDLOCK_NODES and REDLOCK_QUORUM instead, when all services have been stopped for the longest ttl",
}

URLS = {"add": 1, "remove": 1, "replace": 2}


class NotNow(Exception):  # noqa: N818 - it is no error
    """The change must wait."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Show which nodes the clients of a namespace use, and change that in safe steps while services run: `add` or "
        "`remove` one node, restart the services with the new list of nodes, then `finish`. REDLOCK_NODES or --nodes "
        "gives the nodes as the services have them. The exit status is 75 if the change must wait."
    )
    parser.epilog = "; ".join(f"{name}: {purpose}" for name, purpose in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=f"one of {', '.join(ACTIONS)}")
    parser.add_argument(
        "urls",
        nargs="*",
        metavar="URL",
        help="the node to add or to remove; the old and the new one to replace; otherwise nodes that are not in "
        "REDLOCK_NODES",
    )
    parser.add_argument(
        "--quorum", type=positive, metavar="K", help="votes needed after the change (default: a majority)"
    )
    parser.add_argument("--no-wait", action="store_true", help="add: do not wait until the new node votes")
    parser.add_argument(
        "--force", action="store_true", help="finish, reset: do not check whether clients are connected"
    )
    parser.add_argument("--json", action="store_true", help="show: JSON instead of text")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action, and return the exit status."""
    silence_log()
    expected = URLS.get(arguments.action)
    if expected is not None and len(arguments.urls) != expected:
        arguments.parser.error(f"{arguments.action} takes {expected} {'URL' if expected == 1 else 'URLs'}")
    try:
        return asyncio.run(RUN[arguments.action](Command(arguments)))
    except NotNow as error:
        say(str(error))
        return NOT_NOW


class Command:
    """One call of the command: its nodes, and what they remember."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.environ = environment(arguments)
        self.given, _ = from_environment(self.environ)
        """The URLs of the services' nodes."""

    def client(self, urls: Sequence[str], quorum: int | str = "") -> redlock_async.Redlock:
        """Return a client of these nodes."""
        return redlock_async.Redlock.from_env(
            {**self.environ, "REDLOCK_NODES": ",".join(urls), "REDLOCK_QUORUM": str(quorum)}
        )

    async def ask(
        self, urls: Sequence[str], question: Callable[[Records, NodeSets], Coroutine[object, object, NodeSets]]
    ) -> NodeSets:
        """Read what these nodes remember, and go on with it."""
        async with aclosing(self.client(urls)) as redlock:
            records = records_of(redlock)
            return await question(records, await records.read())

    def label(self, url: str) -> str:
        """Return the node's name in messages."""
        return only_label(self.client([url]))


def records_of(redlock: redlock_async.Redlock) -> Records:
    """Return what the client's nodes remember."""
    from redlock_async._admin.node_sets import Records  # noqa: PLC0415 - see TYPE_CHECKING

    return Records(redlock._session().context)  # noqa: SLF001 - no program may change what nodes remember


def only_label(redlock: redlock_async.Redlock) -> str:
    """Return the label of a client's only node."""
    return redlock._targets[0].label  # noqa: SLF001 - the client does not connect for that


def _known(found: NodeSets) -> Charter:
    if found.charter is None:
        raise redlock_async.ConfigurationError(
            "no client has taken a lock on these nodes yet: configure all clients with the new nodes instead"
        )
    return found.charter


# Showing


async def _show(command: Command) -> int:
    async def nothing_more(_: Records, found: NodeSets) -> NodeSets:
        return found

    found = await command.ask([*command.given, *command.arguments.urls], nothing_more)
    old = found.of_old_set()
    if command.arguments.json:
        print(json.dumps(_as_json(found, old), indent=1))
        return 0
    if found.charter is None:
        print("no client has taken a lock on these nodes yet")
        return 0
    current, *following = found.charter.sets
    print(f"clients use {sanitize(str(current))}")
    for each in following:
        print(f"changing to {sanitize(str(each))}")
        print(f"clients with the old set: {_names(old)}")
    for node in found.nodes:
        if node.error is not None:
            print(f"{node.label}: {sanitize(node.error)}")
        elif node.charter != found.charter:
            print(f"{node.label}: remembers {sanitize(str(node.charter)) if node.charter else 'nothing'}")
    owners = found.owners()
    print(f"connected: {_names(owners)}")
    if not following and found.wait == math.inf:
        print(f"too few nodes have recorded that: repeat `{PROG} nodes finish`")
    elif not following and found.wait:
        print(f"the next change is possible in {format_seconds(found.wait)}")
    return 0


def _names(owners: set[str] | None) -> str:
    if owners is None:
        return "unknown (a node does not answer, or does not allow CLIENT LIST)"
    return ", ".join(sorted(map(sanitize, owners))) or "none"


def _as_json(found: NodeSets, old: set[str] | None) -> dict[str, object]:
    sets = found.charter.sets if found.charter is not None else ()
    owners = found.owners()
    return {
        "sets": [{"quorum": each.quorum, "nodes": list(each.labels)} for each in sets],
        "old_set_clients": None if old is None else sorted(old),
        "clients": None if owners is None else sorted(owners),
        "next_change_in": found.wait if found.wait < math.inf else None,
        "nodes": [
            {"label": node.label, "error": node.error, "agrees": node.charter == found.charter} for node in found.nodes
        ],
    }


# Changing


def _next_set(command: Command, current: NodeSet, labels: tuple[str, ...]) -> NodeSet:
    """Return the set with these nodes."""
    quorum = command.arguments.quorum
    if quorum is None and current.quorum != majority(current.size):
        raise redlock_async.ConfigurationError(
            f"the quorum is {current.quorum} of {current.size}, more than a majority: give the next one with --quorum"
        )
    quorum = majority(len(labels)) if quorum is None else quorum
    if not labels or not majority(len(labels)) <= quorum <= len(labels):
        least = majority(len(labels))
        raise redlock_async.ConfigurationError(f"quorum must be from {least} to {len(labels)}, got {quorum}")
    return NodeSet(quorum, labels)


async def _begin(command: Command, records: Records, found: NodeSets, following: NodeSet) -> NodeSets:
    """Begin a change, or continue one that has begun; raise if it may not begin."""
    charter = _known(found)
    current = charter.sets[0]
    if following in charter.sets[1:]:  # repeated, for nodes that were down
        return await records.record(found, charter, charter.sets)
    if len(charter.sets) > 1:
        raise NotNow(f"another change is under way, to {charter.sets[1]}: `{PROG} nodes finish` ends it")
    given = {command.label(url) for url in command.given}
    if given != {*current.labels}:
        raise redlock_async.ConfigurationError(
            f"REDLOCK_NODES gives {', '.join(sorted(given))}, and clients use {current}: give the nodes as they do"
        )
    if not current.overlaps(following):
        raise redlock_async.ConfigurationError(
            f"a quorum of {current} and one of {following} might have no node in common: change one node at a time"
        )
    if found.wait == math.inf:
        raise NotNow(f"too few nodes have recorded that clients use {current}: repeat `{PROG} nodes finish`")
    if found.wait:
        raise NotNow(
            f"leases that a client with an earlier set may hold expire in {format_seconds(found.wait)}: try again then"
        )
    return await records.begin(found, current, following)


def _check_strangers(command: Command, found: NodeSets) -> None:
    """Raise if a node belongs to other clients, or has their data: then it is none of these nodes."""
    given = {command.label(url) for url in command.given}
    for node in found.nodes:
        if node.charter is not None and not any(given.intersection(each.labels) for each in node.charter.sets):
            raise redlock_async.ConfigurationError(
                f"{node.label} is in use with {node.charter}. If no client uses it, restart it without its data"
            )


async def _change(command: Command, urls: Sequence[str], added: str | None, removed: str | None) -> NodeSet:
    """Begin a change, and return the next set."""
    sets: list[NodeSet] = []

    async def begin(records: Records, found: NodeSets) -> NodeSets:
        _check_strangers(command, found)
        current = _known(found).sets[0]
        if removed is not None and removed not in current.labels:
            raise redlock_async.ConfigurationError(f"{removed} is none of the nodes that clients use: {current}")
        if added is not None and added in current.labels:
            raise redlock_async.ConfigurationError(f"{added} is one of the nodes already: {current}")
        kept = tuple(label for label in current.labels if label != removed)
        following = _next_set(command, current, kept if added is None else (*kept, added))
        sets.append(following)
        return await _begin(command, records, found, following)

    await command.ask(urls, begin)
    return sets[0]


async def _prepare(command: Command, urls: Sequence[str], following: NodeSet) -> None:
    """Wait until all nodes of the next set vote, as their first client."""
    async with aclosing(command.client(urls, following.quorum)) as redlock:
        await records_of(redlock).join()
        told = False
        while waiting := [node for node in await redlock.status() if not node.can_vote]:
            if not told:
                told = True
                for node in waiting:
                    say(f"{node.label} does not vote yet: {sanitize(node.error or '')}")
            await asyncio.sleep(POLL)


async def _add(command: Command) -> int:
    (url,) = command.arguments.urls
    urls = [*command.given, url]
    following = await _change(command, urls, command.label(url), None)
    if not command.arguments.no_wait:
        await _prepare(command, urls, following)
    _report(following)
    return 0


async def _remove(command: Command) -> int:
    label = command.label(command.arguments.urls[0])
    following = await _change(command, command.given, None, label)
    _report(following, f" {command.arguments.urls[0]}" if "@" not in command.arguments.urls[0] else " URL")
    return 0


async def _replace(command: Command) -> int:
    old, new = (command.label(url) for url in command.arguments.urls)
    command.arguments.urls = command.arguments.urls[1:]
    status = await _add(command)
    print(f"After that, to end the replacement of {old} by {new}: `{PROG} nodes remove` with the URL of {old}")
    return status


def _report(following: NodeSet, gone: str = "") -> None:
    print(f"clients with the old nodes and with {sanitize(str(following))} may run now")
    quorum = "" if following.quorum == majority(following.size) else f" and REDLOCK_QUORUM={following.quorum}"
    print(f"restart the services with these nodes in REDLOCK_NODES{quorum}, then: `{PROG} nodes finish{gone}`")


async def _finish(command: Command) -> int:
    async def finish(records: Records, found: NodeSets) -> NodeSets:
        charter = _known(found)
        if len(charter.sets) == 1:
            if found.wait == math.inf:  # repeated: too few nodes have recorded it
                return await records.record(found, charter, charter.sets)
            raise redlock_async.ConfigurationError(f"no change is under way: clients use {charter.sets[0]}")
        labels = {label for each in charter.sets for label in each.labels}
        if missing := labels - {node.label for node in found.nodes}:
            raise redlock_async.ConfigurationError(f"give also the URLs of {', '.join(sorted(missing))}")
        if not command.arguments.force:
            old = found.of_old_set()
            if old is None:
                raise NotNow(
                    "whether clients use the old nodes cannot be told, because a node does not answer or does not "
                    "allow CLIENT LIST, or only the quorum changes. If none does: --force"
                )
            if old:
                raise NotNow(f"clients still use the old nodes: {_names(old)}. Restart them with the new ones")
        return await records.record(found, Charter(charter.epoch + 1, charter.sets[1:]), charter.sets)

    found = await command.ask([*command.given, *command.arguments.urls], finish)
    charter = _known(found)
    print(f"clients use {sanitize(str(charter.sets[0]))}")
    print(f"the next change is possible in {format_seconds(found.wait)}")
    return 0


async def _reset(command: Command) -> int:
    own = NodeSet(
        command.client(command.given, command.environ.get("REDLOCK_QUORUM", "")).statistics().quorum,
        tuple(command.label(url) for url in command.given),
    )

    async def reset(records: Records, found: NodeSets) -> NodeSets:
        connected = found.owners()
        if not command.arguments.force:
            if connected is None:
                raise NotNow(
                    "whether clients are connected cannot be told, because a node does not answer or does not allow "
                    "CLIENT LIST. If all are stopped: --force"
                )
            if connected:
                raise NotNow(f"clients are connected: {_names(connected)}. Stop all of them")
        return await records.record(found, Charter(found.latest + 1, (own,)), (own,))

    await command.ask([*command.given, *command.arguments.urls], reset)
    print(f"clients use {sanitize(str(own))} from now on")
    return 0


RUN: Mapping[str, Callable[[Command], Coroutine[object, object, int]]] = {
    "show": _show,
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "finish": _finish,
    "reset": _reset,
}
