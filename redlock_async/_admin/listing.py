"""All that is locked: the keys of all nodes at once, in bounded portions, and what a quorum says of each name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from ._aside import Aside
from ._contest import owner_of
from ._engine import Engine
from ._errors import ConfigurationError, KeyConflict, QuorumUnavailable, by_node, shown
from ._keys import LONGEST_NAME, RESERVED, Keys
from ._readwrite import READERS
from ._records import Context, LockRecord, Panel, Seen, confirmed, joined
from ._scripts import Call
from ._slots import MOST_PERMITS

T = TypeVar("T")

PORTION = 1000
"""Keys that a server looks through at a time, which takes it about a millisecond."""

LOCKS, NAMES = 200, 50
"""Locks, and names with all that may be stored for them, that a server is asked about at a time."""

MOST_TOLD = 1000
"""Readers and waiters of a name that are told of."""

PAUSE = 2
"""Node timeouts between the two looks at what a minority holds: an attempt to acquire is over by then."""

FREE, OTHER_TYPE = -2, -3
"""What locks_look.lua says, in place of a ttl, of a key that is not there, and of one that is no string."""

OWN = re.compile(rb"(?P<what>[a-z-]+):\{(?P<name>.*)\}(?::(?P<slot>\d{1,4}))?", re.DOTALL)
GLOB = re.compile(
    rb"\\(?P<escaped>.)|(?P<many>\*)|(?P<one>\?)|\[(?P<set>(?:\\.|[^\]\\])*)\]|(?P<open>\[)|(?P<other>.)", re.DOTALL
)
MEMBER = re.compile(rb"\\(?P<escaped>.)|(?P<low>.)-(?P<high>.)|(?P<same>.)", re.DOTALL)


class Pattern:
    """Names, as the servers' own glob patterns describe them; one without a wildcard is a name."""

    def __init__(self, keys: Keys, text: str) -> None:
        keys.lock(text)  # what could not be a name cannot be a pattern of some
        self._keys = keys
        self._glob = text.encode()
        self.name: str | None = None
        """The only name that it can be."""
        parts: list[bytes] = []
        literal: list[bytes] = []
        wild = False
        for found in GLOB.finditer(self._glob):
            if found["open"] is not None:
                raise ConfigurationError(f"the pattern {shown(text)} has a [ without its ]; for the sign itself: \\[")
            same = found["escaped"] or found["other"]
            wild |= same is None
            literal.append(same or b"")
            parts.append(_regex(found, same))
        self._regex = re.compile(b"".join(parts), re.DOTALL)
        if not wild:
            self.name = b"".join(literal).decode()

    def covers(self, name: bytes) -> bool:
        """Whether that name is meant."""
        return self._regex.fullmatch(name) is not None

    @property
    def of_keys(self) -> list[bytes]:
        """The same for keys: of the locks themselves, and of what else is stored for a name."""
        namespace = re.sub(rb"([*?\[\]\\])", rb"\\\1", self._keys.namespace.encode())
        if not self._glob.strip(b"*"):
            return [namespace + b"*"]
        return [namespace + self._glob, b"%b%b*{%b}*" % (namespace, RESERVED.encode(), self._glob)]


def _regex(found: re.Match[bytes], same: bytes | None) -> bytes:
    if same is not None:
        return re.escape(same)
    if found["set"] is None:
        return b".*" if found["many"] else b"."
    negated = found["set"].startswith(b"^")
    members = b"".join(_member(each) for each in MEMBER.finditer(found["set"], int(negated)))
    # As for the servers: nothing is in an empty set, and everything in what is not in one.
    return b"[%b%b]" % (b"^" if negated else b"", members) if members else (b"." if negated else b"(?!)")


def _member(found: re.Match[bytes]) -> bytes:
    if found["low"] is None:
        return re.escape(found["escaped"] or found["same"])
    return b"-".join(map(re.escape, sorted((found["low"], found["high"]))))


async def locks(engine: Engine, keys: Keys, pattern: str, *, foreign: bool) -> list[LockRecord]:
    """What is held and what is left over, on a quorum's word."""
    wanted = Pattern(keys, pattern)
    if not engine.masters.usable:
        await engine.start(engine.settings.options.wait)
    await engine.masters.settled()
    async with _connected(engine, keys) as look:
        only = wanted.name is not None
        found = {wanted.name: 0} if wanted.name is not None else await look.scan(wanted, foreign=foreign)
        records = await look.at(found, only=only)
        doubtful = {each.name: found[each.name] for each in records if each.state == "partial"}
        if doubtful:
            await asyncio.sleep(PAUSE * engine.node_timeout)
            again = confirmed(records, await look.at(doubtful, only=only), look.silent)
            records = [each for each in records if each.name not in doubtful] + again
    return joined(sorted(records, key=lambda each: (each.name, each.kind, each.slot or 0, -each.votes)))


@asynccontextmanager
async def _connected(engine: Engine, keys: Keys) -> AsyncGenerator[Look]:
    asides = [Aside(engine.masters, node) for node in engine.nodes]
    look = Look(engine, keys, asides)
    try:
        await look.ask(Aside.open)
        yield look
    finally:
        for aside in asides:
            aside.close()
        await asyncio.gather(*(aside.closed() for aside in asides))


class Look:
    """A quorum that is asked in step, so that what the nodes say of a name is of the same moment."""

    def __init__(self, engine: Engine, keys: Keys, asides: Sequence[Aside]) -> None:
        self._engine = engine
        self._keys = keys
        self._asides = asides
        self._own = (keys.namespace + RESERVED).encode()
        self._causes: dict[str, Exception] = {}

    @property
    def silent(self) -> int:
        """Nodes that do not answer."""
        return len(self._causes)

    async def ask(self, question: Callable[[Aside], Coroutine[Any, Any, T]]) -> list[T]:
        """The answers of those that have answered until now; who fails is asked no more."""
        answers = await asyncio.gather(*map(question, self._asides), return_exceptions=True)
        good: list[tuple[Aside, T]] = []
        for aside, answer in zip(self._asides, answers, strict=True):
            if isinstance(answer, Exception):
                self._causes[aside.label] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                good.append((aside, answer))
        self._asides = [aside for aside, _ in good]
        if len(good) < self._engine.needed:
            raise QuorumUnavailable(f"too few masters answer ({by_node(self._causes)})", nodes=self._causes)
        return [answer for _, answer in good]

    # Which names

    async def scan(self, wanted: Pattern, *, foreign: bool) -> dict[str, int]:
        """The names that any node has a key of, each with how many of a semaphore's slots there must be."""
        found: dict[str, int] = {}
        for pattern in wanted.of_keys:
            for keys in await self.ask(partial(self._scan, pattern, foreign)):
                for key in keys:
                    self._name(key, wanted, found)
        return found

    async def _scan(self, pattern: bytes, foreign: bool, aside: Aside) -> set[bytes]:  # noqa: FBT001 - for `partial`
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            words = (cursor, pattern, PORTION, self._own, int(foreign))
            cursor, keys = await aside.ask(Call("locks_scan", 0, *words).pack_with_source(), _portion)
            found.update(keys)
            if cursor == b"0":
                return found

    def _name(self, key: bytes, wanted: Pattern, found: dict[str, int]) -> None:
        name, slots = key.removeprefix(self._keys.namespace.encode()), 0
        if key.startswith(self._own):
            own = OWN.fullmatch(key.removeprefix(self._own))
            if own is None or (own["slot"] and own["what"] != b"semaphore"):
                return
            name, slots = own["name"], int(own["slot"] or -1) + 1
        if not name or len(key) > LONGEST_NAME or not wanted.covers(name):
            return
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return  # a name is text: it is nobody's lock
        found[text] = min(max(found.get(text, 0), slots), MOST_PERMITS)

    # Who holds them

    async def at(self, names: Mapping[str, int], *, only: bool) -> list[LockRecord]:
        """What is to be said of those names; of an only one also that its key is something else."""
        records: list[LockRecord] = []
        for some in _portions(list(names), NAMES):
            records += await self._at({name: names[name] for name in some}, only=only)
        return records

    async def _at(self, names: Mapping[str, int], *, only: bool) -> list[LockRecord]:
        keys, records = self._keys, []
        locks = [keys.lock(name) for name in names]
        stored = [key for name in names for key in (keys.lock(name), *keys.around(name))]
        answers = await self.ask(partial(self._both, locks, stored))
        if only and sum(_is_other(seen[0]) for seen, _ in answers) >= self._engine.needed:
            (name,) = names
            raise KeyConflict(f"{name!r} is no lock: its key holds another type of value", names=(name,))
        panel = self._panel
        permits: dict[str, int | None] = {}
        waiting: dict[str, tuple[str | None, ...]] = {}
        for index, name in enumerate(names):
            contexts = [context[index] for _, context in answers]
            records += panel.of_name(name, [seen[index] for seen, _ in answers], contexts)
            many = dict.fromkeys(each.wants_many for each in contexts if each.wants_many is not None)
            waiting[name] = tuple(owner_of(hint.partition(b":")[2]) for hint in many)
            permits[name] = max((each.permits for each in contexts if each.permits is not None), default=None)
        slots = [(name, slot) for name, seen in names.items() for slot in range(max(seen, permits[name] or 0))]
        for some in _portions(slots, LOCKS):
            records += await self._slots(some, permits, waiting)
        return records

    async def _both(
        self, locks: Sequence[bytes], stored: Sequence[bytes], aside: Aside
    ) -> tuple[list[Seen | None], list[Context]]:
        context = Call("locks_context", len(stored), *stored, READERS, MOST_TOLD).pack_with_source()
        seen, contexts = await asyncio.gather(self._seen(locks, aside), aside.ask(context, _contexts))
        return seen, contexts

    async def _seen(self, locks: Sequence[bytes], aside: Aside) -> list[Seen | None]:
        asked = [key for lock in locks for key in (lock, self._keys.fence(lock))]
        return await aside.ask(Call("locks_look", len(asked), *asked).pack_with_source(), _locks)

    async def _slots(
        self,
        slots: Sequence[tuple[str, int]],
        permits: Mapping[str, int | None],
        waiting: Mapping[str, tuple[str | None, ...]],
    ) -> list[LockRecord]:
        locks = [b"%b:%d" % (self._keys.semaphore(name)[0], slot) for name, slot in slots]
        answers = await self.ask(partial(self._seen, locks))
        panel = self._panel
        return [
            replace(each, slot=slot, permits=permits[name], waiting=waiting[name])
            for index, (name, slot) in enumerate(slots)
            for each in panel.holders(name, "semaphore", [seen[index] for seen in answers])
        ]

    @property
    def _panel(self) -> Panel:
        return Panel([aside.label for aside in self._asides], len(self._engine.nodes), self._engine.needed)


def _portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _is_other(seen: Seen | None) -> bool:
    return seen is not None and seen.value is None


# What the scripts answer


def _portion(reply: object) -> tuple[bytes, list[bytes]]:
    cursor, *keys = cast("list[bytes]", reply)
    if {*map(type, (cursor, *keys))} != {bytes}:
        raise TypeError
    return cursor, keys


def _locks(reply: object) -> list[Seen | None]:
    return [_lock(*each) for each in cast("list[list[object]]", reply)]


def _lock(value: object, ms: object, fence: object) -> Seen | None:
    if type(value) is not bytes or type(ms) is not int or not isinstance(fence, int | None):
        raise TypeError
    if ms == FREE:
        return None
    if ms == OTHER_TYPE:
        return Seen(None, 0.0, None)
    return Seen(value, _seconds(ms), fence)


def _seconds(ms: int) -> float:
    return ms / 1000 if ms >= 0 else float("inf")


def _contexts(reply: object) -> list[Context]:
    return [_context(*each) for each in cast("list[list[Any]]", reply)]


def _context(readers: list[Any], hints: list[Any], queue: list[Any], fair: int, permits: Any, latch: Any) -> Context:
    tokens, left, (writer, many) = readers[::2], readers[1::2], hints
    numbers = [*left, fair, *(() if permits is None else (permits,)), *(latch or ())]
    words = [*tokens, *queue, *(hint for hint in hints if hint is not None)]
    if {*map(type, numbers)} != {int} or not {*map(type, words)} <= {bytes}:
        raise TypeError
    known = None
    if latch is not None:
        count, counted, opened, ms = latch
        known = (count, counted, bool(opened), _seconds(ms))
    shares = {token: ms / 1000 for token, ms in zip(tokens, left, strict=True)}
    return Context(shares, writer, many, tuple(queue), bool(fair), permits, known)
