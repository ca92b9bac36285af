"""The commands on keys, the only ones a script may call: what each does, and which keys it reads. No sessions.

What a command answers and when it counts as a change is the server's: tests/simulation/test_fidelity.py compares both
with a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from ._resp import OK, SYNTAX, WRONG_TYPE, Members, Refused, Reply, Scored, Status, integer, real
from ._store import NAMES, Hash, Set, SortedSet, Store

FAR = 1 << 63

Arguments = Sequence[bytes]
Run = Callable[[Store, Arguments], Reply]
Container = TypeVar("Container", Hash, SortedSet, Set)


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the command table."""

    name: bytes
    run: Run
    arity: int
    """Arguments with the name itself; negative: at least so many."""
    writes: bool
    needs_memory: bool
    reads: slice | None
    """Where the keys are that client tracking remembers: those of read-only commands."""

    def check(self, arguments: Arguments) -> bool:
        """Whether there are as many arguments as it takes."""
        return len(arguments) == self.arity if self.arity > 0 else len(arguments) >= -self.arity


COMMANDS: dict[bytes, Command] = {}
FIRST = slice(1, 2)
ALL = slice(1, None)


def _reading(name: bytes, arity: int, keys: slice | None = FIRST) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        COMMANDS[name] = Command(name, run, arity, writes=False, needs_memory=False, reads=keys)
        return run

    return add


def _writing(name: bytes, arity: int, *, needs_memory: bool = False) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        COMMANDS[name] = Command(name, run, arity, writes=True, needs_memory=needs_memory, reads=None)
        return run

    return add


# Any key


@_reading(b"PING", -1, None)
def ping(_store: Store, arguments: Arguments) -> Reply:
    if len(arguments) > 2:  # noqa: PLR2004 - PING message
        raise Refused(b"ERR wrong number of arguments for 'ping' command")
    return arguments[1] if len(arguments) > 1 else Status(b"PONG")


@_reading(b"TIME", 1, None)
def time(store: Store, _arguments: Arguments) -> Reply:
    seconds, micros = divmod(store.micros, 1_000_000)
    return [b"%d" % seconds, b"%d" % micros]


@_reading(b"EXISTS", -2, ALL)
def exists(store: Store, arguments: Arguments) -> Reply:
    return sum([store.find(key) is not None for key in arguments[1:]])


@_reading(b"TYPE", 2)
def type_of(store: Store, arguments: Arguments) -> Reply:
    value = store.find(arguments[1])
    return Status(b"none" if value is None else NAMES[type(value)])


@_reading(b"PTTL", 2)
def pttl(store: Store, arguments: Arguments) -> Reply:
    key = arguments[1]
    if store.find(key) is None:
        return -2
    deadline = store.deadlines.get(key)
    return -1 if deadline is None else deadline - store.now


@_writing(b"PEXPIRE", 3)
def pexpire(store: Store, arguments: Arguments) -> Reply:
    key, ttl = arguments[1], integer(arguments[2])
    if ttl >= FAR - store.now:
        raise Refused(b"ERR invalid expire time in 'pexpire' command")
    if store.find(key) is None:
        return 0
    if ttl <= 0:
        store.delete(key)
    else:
        store.expire_at(key, store.now + ttl)
        store.changed(key)
    return 1


@_writing(b"UNLINK", -2)
@_writing(b"DEL", -2)
def delete(store: Store, arguments: Arguments) -> Reply:
    deleted = 0
    for key in arguments[1:]:
        if store.find(key) is not None:
            store.delete(key)
            deleted += 1
    return deleted


@_reading(b"KEYS", 2, None)
def keys(store: Store, arguments: Arguments) -> Reply:
    pattern = arguments[1].decode("latin-1")
    return [key for key in store.live(store.now) if fnmatchcase(key.decode("latin-1"), pattern)]


@_reading(b"DBSIZE", 1, None)
def dbsize(store: Store, _arguments: Arguments) -> Reply:
    return len(store.values)  # the server, too, counts what it has not yet noticed to be over


@_writing(b"FLUSHALL", -1)
@_writing(b"FLUSHDB", -1)
def flush(store: Store, arguments: Arguments) -> Reply:
    match arguments[1:]:
        case []:
            pass
        case [option] if option.upper() in {b"SYNC", b"ASYNC"}:
            pass
        case _:
            raise Refused(SYNTAX)
    store.flush()
    return OK


# Strings


@_reading(b"GET", 2)
def get(store: Store, arguments: Arguments) -> Reply:
    return store.string(arguments[1])


@_writing(b"SET", -3, needs_memory=True)
def set_(store: Store, arguments: Arguments) -> Reply:
    key = arguments[1]
    options, deadline = _options_of_set(store, arguments)
    before = store.string(key) if b"GET" in options else None
    present = store.find(key) is not None
    if b"NX" in options if present else b"XX" in options:
        return before
    if b"KEEPTTL" in options:
        deadline = store.deadlines.get(key)
    store.put(key, arguments[2], deadline)
    return before if b"GET" in options else OK


NO_OPTIONS: frozenset[bytes] = frozenset()
NX_ONLY = frozenset({b"NX"})
UNITS = {b"PX": 1, b"EX": 1000}


def _options_of_set(store: Store, arguments: Arguments) -> tuple[frozenset[bytes], int | None]:
    match arguments[3:]:
        case []:
            return NO_OPTIONS, None
        case [b"PX", millis]:  # Redlock's own forms
            return NO_OPTIONS, _deadline(store, millis, 1)
        case [b"NX", b"PX", millis]:
            return NX_ONLY, _deadline(store, millis, 1)
    options: set[bytes] = set()
    given: tuple[bytes, int] | None = None
    rest = iter(arguments[3:])
    for word in rest:
        option = word.upper()
        if option in UNITS and given is None and (ttl := next(rest, None)) is not None:
            given = ttl, UNITS[option]
        elif option in {b"NX", b"XX", b"GET", b"KEEPTTL"}:
            options.add(option)
        else:
            raise Refused(SYNTAX)
    if options >= {b"NX", b"XX"} or (given and b"KEEPTTL" in options):
        raise Refused(SYNTAX)
    return frozenset(options), _deadline(store, *given) if given else None


def _deadline(store: Store, ttl: bytes, unit: int) -> int:
    millis = integer(ttl) * unit
    if not 0 < millis < FAR - store.now:
        raise Refused(b"ERR invalid expire time in 'set' command")
    return store.now + millis


@_writing(b"GETSET", 3, needs_memory=True)
def getset(store: Store, arguments: Arguments) -> Reply:
    before = store.string(arguments[1])
    store.put(arguments[1], arguments[2])
    return before


@_writing(b"INCRBY", 3, needs_memory=True)
def incrby(store: Store, arguments: Arguments) -> Reply:
    key, by = arguments[1], integer(arguments[2])
    before = store.string(key)
    number = by if before is None else integer(before) + by
    if not -FAR <= number < FAR:
        raise Refused(b"ERR increment or decrement would overflow")
    store.values[key] = b"%d" % number
    store.changed(key)
    return number


@_writing(b"DELIFEQ", 3)
def delifeq(store: Store, arguments: Arguments) -> Reply:
    if store.string(arguments[1]) != arguments[2]:
        return 0
    store.delete(arguments[1])
    return 1


@_writing(b"DELEX", -2)
def delex(store: Store, arguments: Arguments) -> Reply:
    """DELEX key [IFEQ value]."""
    key = arguments[1]
    value = store.find(key)
    match arguments[2:]:
        case []:
            equal = True
        case [option, wanted] if option.upper() == b"IFEQ":
            if value is not None and type(value) is not bytes:
                raise Refused(b"ERR Key should be of string type if conditions are specified")
            equal = value == wanted
        case _:
            raise Refused(SYNTAX)
    if value is None or not equal:
        return 0
    store.delete(key)
    return 1


# Containers


def _container(store: Store, key: bytes, kind: type[Container]) -> Container | None:
    value = store.find(key)
    if value is None or isinstance(value, kind):
        return value
    raise Refused(WRONG_TYPE)


def _or_new(store: Store, key: bytes, kind: type[Container]) -> Container:
    found = _container(store, key, kind)
    if found is None:
        found = store.values[key] = kind()
    return found


def _remove(store: Store, key: bytes, container: Container | None, members: Sequence[bytes]) -> int:
    """How many of them were there; an empty container is no key any more."""
    if not container:
        return 0
    removed = 0
    for member in members:
        if member in container:
            del container[member]
            removed += 1
    if removed and container:
        store.changed(key)
    elif removed:
        store.delete(key)
    return removed


@_writing(b"HSET", -4, needs_memory=True)
def hset(store: Store, arguments: Arguments) -> Reply:
    if len(arguments) % 2:
        raise Refused(b"ERR wrong number of arguments for 'hset' command")
    fields = _or_new(store, arguments[1], Hash)
    before = len(fields)
    fields.update(zip(arguments[2::2], arguments[3::2], strict=True))
    store.changed(arguments[1])
    return len(fields) - before


@_writing(b"HSETNX", 4, needs_memory=True)
def hsetnx(store: Store, arguments: Arguments) -> Reply:
    fields = _or_new(store, arguments[1], Hash)
    if arguments[2] in fields:
        return 0
    fields[arguments[2]] = arguments[3]
    store.changed(arguments[1])
    return 1


@_reading(b"HGET", 3)
def hget(store: Store, arguments: Arguments) -> Reply:
    fields = _container(store, arguments[1], Hash)
    return None if fields is None else fields.get(arguments[2])


@_reading(b"HEXISTS", 3)
def hexists(store: Store, arguments: Arguments) -> Reply:
    fields = _container(store, arguments[1], Hash)
    return int(fields is not None and arguments[2] in fields)


@_writing(b"HDEL", -3)
def hdel(store: Store, arguments: Arguments) -> Reply:
    return _remove(store, arguments[1], _container(store, arguments[1], Hash), arguments[2:])


@_writing(b"SADD", -3, needs_memory=True)
def sadd(store: Store, arguments: Arguments) -> Reply:
    members = _or_new(store, arguments[1], Set)
    before = len(members)
    members.update(dict.fromkeys(arguments[2:]))
    if len(members) > before:
        store.changed(arguments[1])
    return len(members) - before


@_reading(b"SMEMBERS", 2)
def smembers(store: Store, arguments: Arguments) -> Reply:
    return Members(_container(store, arguments[1], Set) or ())


@_writing(b"ZADD", -4, needs_memory=True)
def zadd(store: Store, arguments: Arguments) -> Reply:
    """ZADD key [NX | XX] [INCR] score member ..."""
    key = arguments[1]
    options = _options_of_zadd(arguments)
    pairs = arguments[2 + len(options) :]
    only_new, only_old, adding = b"NX" in options, b"XX" in options, b"INCR" in options
    if not pairs or len(pairs) % 2:
        raise Refused(SYNTAX)
    if only_new and only_old:
        raise Refused(b"ERR XX and NX options at the same time are not compatible")
    if adding and len(pairs) > 2:  # noqa: PLR2004 - one pair
        raise Refused(b"ERR INCR option supports a single increment-element pair")
    scores = [real(score) for score in pairs[::2]]
    members = _container(store, key, SortedSet) if only_old else _or_new(store, key, SortedSet)
    if members is None:
        return None if adding else 0
    added = changes = 0
    score: float | None = None
    for given, member in zip(scores, pairs[1::2], strict=True):
        before = members.get(member)
        if only_old if before is None else only_new:
            continue
        score = given + before if adding and before is not None else given
        if score != score:  # noqa: PLR0124 - inf - inf
            raise Refused(b"ERR resulting score is not a number (NaN)")
        added += before is None
        changes += score != before
        members[member] = score
    if changes:
        store.changed(key)
    return score if adding else added


def _options_of_zadd(arguments: Arguments) -> list[bytes]:
    options: list[bytes] = []
    for word in arguments[2:]:
        if (option := word.upper()) not in {b"NX", b"XX", b"INCR"}:
            break
        options.append(option)
    return options


@_writing(b"ZREM", -3)
def zrem(store: Store, arguments: Arguments) -> Reply:
    return _remove(store, arguments[1], _container(store, arguments[1], SortedSet), arguments[2:])


@_reading(b"ZCARD", 2)
def zcard(store: Store, arguments: Arguments) -> Reply:
    return len(_container(store, arguments[1], SortedSet) or ())


@_reading(b"ZRANGE", -4)
def zrange(store: Store, arguments: Arguments) -> Reply:
    """ZRANGE key start stop [WITHSCORES], by rank."""
    match arguments[4:]:
        case []:
            scores = False
        case [option] if option.upper() == b"WITHSCORES":
            scores = True
        case _:
            raise Refused(SYNTAX)
    start, stop = integer(arguments[2]), integer(arguments[3])
    members = _container(store, arguments[1], SortedSet)
    if not members:
        return []
    if start < 0:
        start = max(start + len(members), 0)
    if stop < 0:
        stop += len(members)
    found = members.ranked()[start : max(stop + 1, 0)]
    return Scored(found) if scores else [member for member, _ in found]


@_writing(b"ZREMRANGEBYSCORE", 4)
def zremrangebyscore(store: Store, arguments: Arguments) -> Reply:
    low, above = _bound(arguments[2])
    high, below = _bound(arguments[3])
    members = _container(store, arguments[1], SortedSet)
    found = [
        member
        for member, score in (members or {}).items()
        if (low < score if above else low <= score) and (score < high if below else score <= high)
    ]
    return _remove(store, arguments[1], members, found)


def _bound(argument: bytes) -> tuple[float, bool]:
    """A bound, and whether it is itself left out."""
    excluded = argument.startswith(b"(")
    return real(argument[1:] if excluded else argument, b"ERR min or max is not a float"), excluded
