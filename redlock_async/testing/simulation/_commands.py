"""The commands for any key and for strings. Scripts may call only these and those in _containers.py. No sessions.

Replies and change notifications are those of a real server: tests/simulation/test_fidelity.py compares both.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from ._containers import CONTAINERS
from ._resp import OK, SYNTAX, ErrorReply, Reply, Status, integer
from ._store import NAMES, Store
from ._table import ALL, Arguments, Table

TOO_FAR = 1 << 63

COMMANDS = Table(CONTAINERS)


# Any key


@COMMANDS.reading(b"PING", -1, None)
def ping(_store: Store, arguments: Arguments) -> Reply:
    if len(arguments) > 2:  # noqa: PLR2004 - PING message
        raise ErrorReply(b"ERR wrong number of arguments for 'ping' command")
    return arguments[1] if len(arguments) > 1 else Status(b"PONG")


@COMMANDS.reading(b"TIME", 1, None)
def time(store: Store, _arguments: Arguments) -> Reply:
    seconds, micros = divmod(store.micros, 1_000_000)
    return [b"%d" % seconds, b"%d" % micros]


@COMMANDS.reading(b"EXISTS", -2, ALL)
def exists(store: Store, arguments: Arguments) -> Reply:
    return sum([store.find(key) is not None for key in arguments[1:]])


@COMMANDS.reading(b"TYPE", 2)
def type_of(store: Store, arguments: Arguments) -> Reply:
    value = store.find(arguments[1])
    return Status(b"none" if value is None else NAMES[type(value)])


@COMMANDS.reading(b"PTTL", 2)
def pttl(store: Store, arguments: Arguments) -> Reply:
    key = arguments[1]
    if store.find(key) is None:
        return -2
    deadline = store.deadlines.get(key)
    return -1 if deadline is None else deadline - store.now


@COMMANDS.writing(b"PEXPIRE", 3)
def pexpire(store: Store, arguments: Arguments) -> Reply:
    key, ttl = arguments[1], integer(arguments[2])
    if ttl >= TOO_FAR - store.now:
        raise ErrorReply(b"ERR invalid expire time in 'pexpire' command")
    if store.find(key) is None:
        return 0
    if ttl <= 0:
        store.delete(key)
    else:
        store.expire_at(key, store.now + ttl)
        store.changed(key)
    return 1


@COMMANDS.writing(b"UNLINK", -2)
@COMMANDS.writing(b"DEL", -2)
def delete(store: Store, arguments: Arguments) -> Reply:
    deleted = 0
    for key in arguments[1:]:
        if store.find(key) is not None:
            store.delete(key)
            deleted += 1
    return deleted


@COMMANDS.reading(b"KEYS", 2, None)
def keys(store: Store, arguments: Arguments) -> Reply:
    pattern = arguments[1].decode("latin-1")
    return [key for key in store.live(store.now) if fnmatchcase(key.decode("latin-1"), pattern)]


@COMMANDS.reading(b"DBSIZE", 1, None)
def dbsize(store: Store, _arguments: Arguments) -> Reply:
    return len(store.values)  # a real server also counts expired keys that it has not deleted yet


@COMMANDS.writing(b"FLUSHALL", -1)
@COMMANDS.writing(b"FLUSHDB", -1)
def flush(store: Store, arguments: Arguments) -> Reply:
    match arguments[1:]:
        case []:
            pass
        case [option] if option.upper() in {b"SYNC", b"ASYNC"}:
            pass
        case _:
            raise ErrorReply(SYNTAX)
    store.flush()
    return OK


# Strings


@COMMANDS.reading(b"GET", 2)
def get(store: Store, arguments: Arguments) -> Reply:
    return store.string(arguments[1])


@COMMANDS.reading(b"GETRANGE", 4)
def getrange(store: Store, arguments: Arguments) -> Reply:
    first, last = map(integer, arguments[2:])
    value = store.string(arguments[1]) or b""
    if last < first < 0:
        return b""
    first, last = (max(at + len(value), 0) if at < 0 else at for at in (first, last))
    return value[first : last + 1]


@COMMANDS.writing(b"SET", -3, needs_memory=True)
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
        case [b"PX", millis]:  # the forms that the library uses
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
            raise ErrorReply(SYNTAX)
    if options >= {b"NX", b"XX"} or (given and b"KEEPTTL" in options):
        raise ErrorReply(SYNTAX)
    return frozenset(options), _deadline(store, *given) if given else None


def _deadline(store: Store, ttl: bytes, unit: int) -> int:
    millis = integer(ttl) * unit
    if not 0 < millis < TOO_FAR - store.now:
        raise ErrorReply(b"ERR invalid expire time in 'set' command")
    return store.now + millis


@COMMANDS.writing(b"GETSET", 3, needs_memory=True)
def getset(store: Store, arguments: Arguments) -> Reply:
    before = store.string(arguments[1])
    store.put(arguments[1], arguments[2])
    return before


@COMMANDS.writing(b"INCRBY", 3, needs_memory=True)
def incrby(store: Store, arguments: Arguments) -> Reply:
    key, by = arguments[1], integer(arguments[2])
    before = store.string(key)
    number = by if before is None else integer(before) + by
    if not -TOO_FAR <= number < TOO_FAR:
        raise ErrorReply(b"ERR increment or decrement would overflow")
    store.values[key] = b"%d" % number
    store.changed(key)
    return number


@COMMANDS.writing(b"DELIFEQ", 3)
def delifeq(store: Store, arguments: Arguments) -> Reply:
    if store.string(arguments[1]) != arguments[2]:
        return 0
    store.delete(arguments[1])
    return 1


@COMMANDS.writing(b"DELEX", -2)
def delex(store: Store, arguments: Arguments) -> Reply:
    """DELEX key [IFEQ value]."""
    key = arguments[1]
    value = store.find(key)
    match arguments[2:]:
        case []:
            equal = True
        case [option, wanted] if option.upper() == b"IFEQ":
            if value is not None and type(value) is not bytes:
                raise ErrorReply(b"ERR Key should be of string type if conditions are specified")
            equal = value == wanted
        case _:
            raise ErrorReply(SYNTAX)
    if value is None or not equal:
        return 0
    store.delete(key)
    return 1
