"""The commands for sessions and for the server itself, which scripts may not call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ._lua import compiled
from ._resp import OK, SYNTAX, ErrorReply, Pairs, Reply, Text, integer
from ._session import Session

if TYPE_CHECKING:
    from ._server import SimulatedServer

Arguments = Sequence[bytes]
Handler = Callable[["SimulatedServer", Session, Arguments], Reply]

ADMINISTRATION: dict[bytes, Handler] = {}
SUBCOMMANDS: dict[tuple[bytes, bytes], tuple[Handler, int]] = {}
"""The function and the number of arguments, both words included; if negative, the minimum."""

REDIS_COMPATIBLE = "7.2.4"
"""The Redis version that Valkey reports for compatibility."""


def _command(name: bytes) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        ADMINISTRATION[name] = handler
        return handler

    return add


def _subcommand(name: bytes, word: bytes, arity: int) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        ADMINISTRATION[name] = _container
        SUBCOMMANDS[name, word] = handler, arity
        return handler

    return add


def _container(server: SimulatedServer, session: Session, arguments: Arguments) -> Reply:
    name = arguments[0].upper()
    if len(arguments) == 1:
        raise ErrorReply(wrong_number(name))
    row = SUBCOMMANDS.get((name, arguments[1].upper()))
    if row is None or (row[0] is tracking and not server.tracking_offered):
        raise ErrorReply(b"ERR unknown subcommand '%b'. Try %b HELP." % (arguments[1], name))
    handler, arity = row
    if len(arguments) != arity if arity > 0 else len(arguments) < -arity:
        raise ErrorReply(wrong_number(b"%b|%b" % (name, arguments[1])))
    return handler(server, session, arguments)


def wrong_number(name: bytes) -> bytes:
    """The error about too many or too few arguments."""
    return b"ERR wrong number of arguments for '%b' command" % name.lower()


@_command(b"HELLO")
def hello(server: SimulatedServer, session: Session, arguments: Arguments) -> Reply:
    """HELLO [protocol [AUTH user password] [SETNAME name]]; no password is configured."""
    if len(arguments) > 1:
        if arguments[1] not in {b"2", b"3"}:
            raise ErrorReply(b"NOPROTO unsupported protocol version")
        rest = iter(arguments[2:])
        for word in rest:
            match word.upper():
                case b"AUTH" if (user := next(rest, None)) is not None and next(rest, None) is not None:
                    _check_user(user)
                case b"SETNAME" if (name := next(rest, None)) is not None:
                    session.name = name
                case _:
                    raise ErrorReply(b"ERR Syntax error in HELLO option '%b'" % word)
        session.resp = int(arguments[1])
    return Pairs({
        b"server": server.product.encode(),
        b"version": server.version.encode(),
        b"proto": session.resp,
        b"id": session.id,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    })  # fmt: skip


@_command(b"AUTH")
def auth(_server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    match arguments[1:]:
        case [_]:
            raise ErrorReply(
                b"ERR AUTH <password> called without any password configured for the default user. "
                b"Are you sure your configuration is correct?"
            )
        case [user, _]:
            _check_user(user)
            return OK
    raise ErrorReply(wrong_number(b"auth"))


def _check_user(user: bytes) -> None:
    if user != b"default":
        raise ErrorReply(b"WRONGPASS invalid username-password pair or user is disabled.")


@_command(b"SELECT")
def select(_server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    if len(arguments) != 2:  # noqa: PLR2004 - SELECT index
        raise ErrorReply(wrong_number(b"select"))
    if integer(arguments[1]) != 0:
        raise ErrorReply(b"ERR DB index is out of range")
    return OK


@_command(b"INFO")
def info(server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    version = f"redis_version:{server.version}"
    if server.product == "valkey":
        version = f"redis_version:{REDIS_COMPATIBLE}\r\nserver_name:valkey\r\nvalkey_version:{server.version}"
    mode = "server_mode" if server.product == "valkey" else "redis_mode"
    replication, aof = "role:master\r\nconnected_slaves:0", int(server.config[b"appendonly"] == b"yes")
    sections = {
        b"server": f"# Server\r\n{version}\r\n{mode}:standalone\r\nrun_id:{server.run_id}\r\n",
        b"replication": f"# Replication\r\n{replication}\r\nmaster_replid2:{server.former_replid}\r\n",
        b"persistence": f"# Persistence\r\naof_enabled:{aof}\r\n",
    }
    wanted = [word.lower() for word in arguments[1:]] or list(sections)
    return Text("\r\n".join(sections[name] for name in wanted if name in sections).encode())


@_subcommand(b"CONFIG", b"GET", -3)
def config_get(server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    return Pairs({name: server.config[name] for word in arguments[2:] if (name := word.lower()) in server.config})


@_subcommand(b"CLUSTER", b"MYID", 2)
def cluster_myid(server: SimulatedServer, _session: Session, _arguments: Arguments) -> Reply:
    return _shard_of(server)[0]


@_subcommand(b"CLUSTER", b"SLOTS", 2)
def cluster_slots(server: SimulatedServer, _session: Session, _arguments: Arguments) -> Reply:
    """The slots of others belong to one other shard."""
    name, owned = _shard_of(server)
    ends = sorted({0, 16384, *(slot for first, last in owned for slot in (first, last + 1))})
    return [
        [first, after - 1, [b"127.0.0.1", 6379, name if any(a <= first <= b for a, b in owned) else b"other"]]
        for first, after in pairwise(ends)
    ]


def _shard_of(server: SimulatedServer) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    if server.shard is None:
        raise ErrorReply(b"ERR This instance has cluster support disabled")
    return server.shard


@_subcommand(b"SCRIPT", b"LOAD", 3)
def script_load(server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    script = compiled(arguments[2])
    server.scripts[script.sha] = script
    return script.sha


@_subcommand(b"SCRIPT", b"EXISTS", -3)
def script_exists(server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    return [int(sha.lower() in server.scripts) for sha in arguments[2:]]


@_subcommand(b"SCRIPT", b"FLUSH", -2)
def script_flush(server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    if arguments[2:] and [word.upper() for word in arguments[2:]] not in ([b"SYNC"], [b"ASYNC"]):
        raise ErrorReply(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    server.scripts.clear()
    return OK


@_subcommand(b"CLIENT", b"ID", 2)
def client_id(_server: SimulatedServer, session: Session, _arguments: Arguments) -> Reply:
    return session.id


@_subcommand(b"CLIENT", b"LIST", -2)
def client_list(server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    """CLIENT LIST without options: the number and the name of each session."""
    if len(arguments) > 2:  # noqa: PLR2004 - CLIENT LIST
        raise ErrorReply(SYNTAX)
    lines = (b"id=%d name=%b lib-name=" % (each.id, each.name) for each in server.sessions.values())
    return Text(b"".join(line + b"\n" for line in lines))


@_subcommand(b"CLIENT", b"SETNAME", 3)
def client_setname(_server: SimulatedServer, session: Session, arguments: Arguments) -> Reply:
    if any(not 0x21 <= byte <= 0x7E for byte in arguments[2]):  # noqa: PLR2004 - printable, and no space
        raise ErrorReply(b"ERR Client names cannot contain spaces, newlines or special characters.")
    session.name = arguments[2]
    return OK


@_subcommand(b"CLIENT", b"SETINFO", 4)
def client_setinfo(_server: SimulatedServer, _session: Session, arguments: Arguments) -> Reply:
    if arguments[2].upper() not in {b"LIB-NAME", b"LIB-VER"}:
        raise ErrorReply(b"ERR Unrecognized option '%b'" % arguments[2])
    return OK


@_subcommand(b"CLIENT", b"TRACKING", -3)
def tracking(_server: SimulatedServer, session: Session, arguments: Arguments) -> Reply:
    """CLIENT TRACKING ON | OFF [NOLOOP]; the other modes are not simulated and fail."""
    switch, options = arguments[2].upper(), [word.upper() for word in arguments[3:]]
    if switch not in {b"ON", b"OFF"} or any(option != b"NOLOOP" for option in options):
        raise ErrorReply(SYNTAX)
    session.tracking = switch == b"ON"
    session.noloop = session.tracking and bool(options)
    return OK


@_subcommand(b"CLIENT", b"KILL", -3)
def client_kill(server: SimulatedServer, session: Session, arguments: Arguments) -> Reply:
    """CLIENT KILL ID number. In this form it does not end the calling session."""
    match arguments[2:]:
        case [word, text] if word.upper() == b"ID":
            pass
        case _:
            raise ErrorReply(SYNTAX)
    try:
        number = integer(text)
    except ErrorReply:
        raise ErrorReply(SYNTAX) from None
    if number < 1:
        raise ErrorReply(b"ERR client-id should be greater than 0")
    victim = server.sessions.get(number)
    if victim is None or victim is session:
        return 0
    server.kill(victim)
    return 1
