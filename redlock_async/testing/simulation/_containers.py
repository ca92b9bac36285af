"""The commands for hashes, sets and sorted sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ._resp import SYNTAX, WRONG_TYPE, ErrorReply, Members, Pairs, Reply, Scored, integer, real
from ._store import Hash, Set, SortedSet, Store
from ._table import Arguments, Table

Container = TypeVar("Container", Hash, SortedSet, Set)

CONTAINERS = Table()


def _container(store: Store, key: bytes, kind: type[Container]) -> Container | None:
    value = store.find(key)
    if value is None or isinstance(value, kind):
        return value
    raise ErrorReply(WRONG_TYPE)


def _or_new(store: Store, key: bytes, kind: type[Container]) -> Container:
    found = _container(store, key, kind)
    if found is None:
        found = store.values[key] = kind()
    return found


def _remove(store: Store, key: bytes, container: Container | None, members: Sequence[bytes]) -> int:
    """Remove members and return how many existed. An empty container is deleted."""
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


@CONTAINERS.writing(b"HSET", -4, needs_memory=True)
def hset(store: Store, arguments: Arguments) -> Reply:
    if len(arguments) % 2:
        raise ErrorReply(b"ERR wrong number of arguments for 'hset' command")
    fields = _or_new(store, arguments[1], Hash)
    before = len(fields)
    fields.update(zip(arguments[2::2], arguments[3::2], strict=True))
    store.changed(arguments[1])
    return len(fields) - before


@CONTAINERS.writing(b"HSETNX", 4, needs_memory=True)
def hsetnx(store: Store, arguments: Arguments) -> Reply:
    fields = _or_new(store, arguments[1], Hash)
    if arguments[2] in fields:
        return 0
    fields[arguments[2]] = arguments[3]
    store.changed(arguments[1])
    return 1


@CONTAINERS.reading(b"HGET", 3)
def hget(store: Store, arguments: Arguments) -> Reply:
    fields = _container(store, arguments[1], Hash)
    return None if fields is None else fields.get(arguments[2])


@CONTAINERS.reading(b"HGETALL", 2)
def hgetall(store: Store, arguments: Arguments) -> Reply:
    return Pairs(_container(store, arguments[1], Hash) or {})


@CONTAINERS.reading(b"HEXISTS", 3)
def hexists(store: Store, arguments: Arguments) -> Reply:
    fields = _container(store, arguments[1], Hash)
    return int(fields is not None and arguments[2] in fields)


@CONTAINERS.writing(b"HDEL", -3)
def hdel(store: Store, arguments: Arguments) -> Reply:
    return _remove(store, arguments[1], _container(store, arguments[1], Hash), arguments[2:])


@CONTAINERS.writing(b"SADD", -3, needs_memory=True)
def sadd(store: Store, arguments: Arguments) -> Reply:
    members = _or_new(store, arguments[1], Set)
    before = len(members)
    members.update(dict.fromkeys(arguments[2:]))
    if len(members) > before:
        store.changed(arguments[1])
    return len(members) - before


@CONTAINERS.reading(b"SMEMBERS", 2)
def smembers(store: Store, arguments: Arguments) -> Reply:
    return Members(_container(store, arguments[1], Set) or ())


@CONTAINERS.writing(b"ZADD", -4, needs_memory=True)
def zadd(store: Store, arguments: Arguments) -> Reply:
    """ZADD key [NX | XX] [INCR] score member ..."""
    key = arguments[1]
    options = _options_of_zadd(arguments)
    pairs = arguments[2 + len(options) :]
    only_new, only_old, adding = b"NX" in options, b"XX" in options, b"INCR" in options
    if not pairs or len(pairs) % 2:
        raise ErrorReply(SYNTAX)
    if only_new and only_old:
        raise ErrorReply(b"ERR XX and NX options at the same time are not compatible")
    if adding and len(pairs) > 2:  # noqa: PLR2004 - one pair
        raise ErrorReply(b"ERR INCR option supports a single increment-element pair")
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
            raise ErrorReply(b"ERR resulting score is not a number (NaN)")
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


@CONTAINERS.writing(b"ZREM", -3)
def zrem(store: Store, arguments: Arguments) -> Reply:
    return _remove(store, arguments[1], _container(store, arguments[1], SortedSet), arguments[2:])


@CONTAINERS.reading(b"ZCARD", 2)
def zcard(store: Store, arguments: Arguments) -> Reply:
    return len(_container(store, arguments[1], SortedSet) or ())


@CONTAINERS.reading(b"ZRANGE", -4)
def zrange(store: Store, arguments: Arguments) -> Reply:
    """ZRANGE key start stop [WITHSCORES], by rank."""
    match arguments[4:]:
        case []:
            scores = False
        case [option] if option.upper() == b"WITHSCORES":
            scores = True
        case _:
            raise ErrorReply(SYNTAX)
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


@CONTAINERS.writing(b"ZREMRANGEBYSCORE", 4)
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
    """The bound, and whether it is exclusive."""
    excluded = argument.startswith(b"(")
    return real(argument[1:] if excluded else argument, b"ERR min or max is not a float"), excluded
