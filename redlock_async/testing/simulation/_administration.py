"""The commands on sessions and on the server itself, which no script may call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ._lua import compiled
from ._resp import OK, SYNTAX, Pairs, Refused, Reply, Text, integer
from ._session import Session

if TYPE_CHECKING:
    from ._master import Master

Arguments = Sequence[bytes]
Run = Callable[["Master", Session, Arguments], Reply]

ADMINISTRATION: dict[bytes, Run] = {}
SUBCOMMANDS: dict[tuple[bytes, bytes], tuple[Run, int]] = {}
"""And with how many arguments, both words included; negative: at least so many."""

REDIS_COMPATIBLE = "7.2.4"
"""The Redis version that Valkey gives itself out for."""


def _command(name: bytes) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        ADMINISTRATION[name] = run
        return run

    return add


def _subcommand(name: bytes, word: bytes, arity: int) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        ADMINISTRATION[name] = _container
        SUBCOMMANDS[name, word] = run, arity
        return run

    return add


def _container(master: Master, session: Session, arguments: Arguments) -> Reply:
    name = arguments[0].upper()
    if len(arguments) == 1:
        raise Refused(wrong_number(name))
    row = SUBCOMMANDS.get((name, arguments[1].upper()))
    if row is None or (row[0] is tracking and not master.tracking_offered):
        raise Refused(b"ERR unknown subcommand '%b'. Try %b HELP." % (arguments[1], name))
    run, arity = row
    if len(arguments) != arity if arity > 0 else len(arguments) < -arity:
        raise Refused(wrong_number(b"%b|%b" % (name, arguments[1])))
    return run(master, session, arguments)


def wrong_number(name: bytes) -> bytes:
    """The complaint about too many or too few arguments."""
    return b"ERR wrong number of arguments for '%b' command" % name.lower()


@_command(b"HELLO")
def hello(master: Master, session: Session, arguments: Arguments) -> Reply:
    """HELLO [protocol [AUTH user password] [SETNAME name]]; there is no password."""
    if len(arguments) > 1:
        if arguments[1] not in {b"2", b"3"}:
            raise Refused(b"NOPROTO unsupported protocol version")
        rest = iter(arguments[2:])
        for word in rest:
            match word.upper():
                case b"AUTH" if (user := next(rest, None)) is not None and next(rest, None) is not None:
                    _check_user(user)
                case b"SETNAME" if (name := next(rest, None)) is not None:
                    session.name = name
                case _:
                    raise Refused(b"ERR Syntax error in HELLO option '%b'" % word)
        session.resp = int(arguments[1])
    return Pairs({
        b"server": master.server.encode(),
        b"version": master.version.encode(),
        b"proto": session.resp,
        b"id": session.id,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    })  # fmt: skip


@_command(b"AUTH")
def auth(_master: Master, _session: Session, arguments: Arguments) -> Reply:
    match arguments[1:]:
        case [_]:
            raise Refused(
                b"ERR AUTH <password> called without any password configured for the default user. "
                b"Are you sure your configuration is correct?"
            )
        case [user, _]:
            _check_user(user)
            return OK
    raise Refused(wrong_number(b"auth"))


def _check_user(user: bytes) -> None:
    if user != b"default":
        raise Refused(b"WRONGPASS invalid username-password pair or user is disabled.")


@_command(b"SELECT")
def select(_master: Master, _session: Session, arguments: Arguments) -> Reply:
    if len(arguments) != 2:  # noqa: PLR2004 - SELECT index
        raise Refused(wrong_number(b"select"))
    if integer(arguments[1]) != 0:
        raise Refused(b"ERR DB index is out of range")
    return OK


@_command(b"INFO")
def info(master: Master, _session: Session, arguments: Arguments) -> Reply:
    version = f"redis_version:{master.version}"
    if master.server == "valkey":
        version = f"redis_version:{REDIS_COMPATIBLE}\r\nserver_name:valkey\r\nvalkey_version:{master.version}"
    mode = "server_mode" if master.server == "valkey" else "redis_mode"
    sections = {
        b"server": f"# Server\r\n{version}\r\n{mode}:standalone\r\nrun_id:{master.run_id}\r\n",
        b"replication": "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
    }
    wanted = [word.lower() for word in arguments[1:]] or list(sections)
    return Text("\r\n".join(sections[name] for name in wanted if name in sections).encode())


@_subcommand(b"CONFIG", b"GET", -3)
def config_get(master: Master, _session: Session, arguments: Arguments) -> Reply:
    return Pairs({name: master.config[name] for word in arguments[2:] if (name := word.lower()) in master.config})


@_subcommand(b"SCRIPT", b"LOAD", 3)
def script_load(master: Master, _session: Session, arguments: Arguments) -> Reply:
    script = compiled(arguments[2])
    master.scripts[script.sha] = script
    return script.sha


@_subcommand(b"SCRIPT", b"EXISTS", -3)
def script_exists(master: Master, _session: Session, arguments: Arguments) -> Reply:
    return [int(sha.lower() in master.scripts) for sha in arguments[2:]]


@_subcommand(b"SCRIPT", b"FLUSH", -2)
def script_flush(master: Master, _session: Session, arguments: Arguments) -> Reply:
    if arguments[2:] and [word.upper() for word in arguments[2:]] not in ([b"SYNC"], [b"ASYNC"]):
        raise Refused(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    master.scripts.clear()
    return OK


@_subcommand(b"CLIENT", b"ID", 2)
def client_id(_master: Master, session: Session, _arguments: Arguments) -> Reply:
    return session.id


@_subcommand(b"CLIENT", b"SETNAME", 3)
def client_setname(_master: Master, session: Session, arguments: Arguments) -> Reply:
    if any(not 0x21 <= byte <= 0x7E for byte in arguments[2]):  # noqa: PLR2004 - printable, and no space
        raise Refused(b"ERR Client names cannot contain spaces, newlines or special characters.")
    session.name = arguments[2]
    return OK


@_subcommand(b"CLIENT", b"SETINFO", 4)
def client_setinfo(_master: Master, _session: Session, arguments: Arguments) -> Reply:
    if arguments[2].upper() not in {b"LIB-NAME", b"LIB-VER"}:
        raise Refused(b"ERR Unrecognized option '%b'" % arguments[2])
    return OK


@_subcommand(b"CLIENT", b"TRACKING", -3)
def tracking(_master: Master, session: Session, arguments: Arguments) -> Reply:
    """CLIENT TRACKING ON | OFF [NOLOOP]; the other modes are not simulated, and refused."""
    switch, options = arguments[2].upper(), [word.upper() for word in arguments[3:]]
    if switch not in {b"ON", b"OFF"} or any(option != b"NOLOOP" for option in options):
        raise Refused(SYNTAX)
    session.tracking = switch == b"ON"
    session.noloop = session.tracking and bool(options)
    return OK


@_subcommand(b"CLIENT", b"KILL", -3)
def client_kill(master: Master, session: Session, arguments: Arguments) -> Reply:
    """CLIENT KILL ID number: the form that spares the session which says it."""
    match arguments[2:]:
        case [word, text] if word.upper() == b"ID":
            pass
        case _:
            raise Refused(SYNTAX)
    try:
        number = integer(text)
    except Refused:
        raise Refused(SYNTAX) from None
    if number < 1:
        raise Refused(b"ERR client-id should be greater than 0")
    victim = master.sessions.get(number)
    if victim is None or victim is session:
        return 0
    master.kill(victim)
    return 1
