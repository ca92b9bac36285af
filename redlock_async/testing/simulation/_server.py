"""One simulated master: bytes of its clients in, bytes of the server out. No sockets, no real time, no randomness."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ._administration import ADMINISTRATION, Run, wrong_number
from ._commands import COMMANDS
from ._lua import Script, compiled, key_count, run
from ._resp import Refused, Reply, encode, error
from ._session import INCOMPLETE, Session
from ._store import Store, Value
from ._table import Command
from ._tracking import Tracking

__all__ = ["Master", "Session"]

OUT_OF_MEMORY = b"OOM command not allowed when used memory > 'maxmemory'."
DIALECTS = frozenset({"DELIFEQ", "DELEX"})
"""Commands that only some servers have: Valkey 9 the first, Redis 8.4 the second."""


class Master:
    """A master without replicas, persistence or databases other than 0, as far as the library's commands reach.

    `clock` is the node's own wall clock in seconds, which may jump: expiry and TIME follow it, as on the server.
    `dialect` names those of DIALECTS that it has. `tracking=False` is a server too old to report changes. `expire_lag`
    is drawn for each deadline: so many seconds after it active expiry finds the key; an access finds it at once.

    A session's `push` and `closed` are called in the middle of other sessions' commands: they must only take note.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        run_id: str,
        dialect: Collection[str] = ("DELIFEQ",),
        tracking: bool = True,
        version: str = "9.0.0",
        server: str = "valkey",
        expire_lag: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock
        self.run_id = run_id
        self.tracking_offered = tracking
        self.version = version
        self.server = server
        self.config = {
            b"maxmemory-policy": b"noeviction",
            b"appendonly": b"no",
            b"appendfsync": b"everysec",
            b"save": b"",
        }
        """What CONFIG GET shows; nothing follows from it."""
        self.errors: dict[bytes, bytes] = {}
        """What is answered instead of a command, by its name in capitals; b"*" stands for every command."""
        self.oom = False
        """At maxmemory: what needs memory is refused, unless a script has already written."""
        self.sessions: dict[int, Session] = {}
        self.scripts: dict[bytes, Script] = {}
        missing = {name.encode() for name in DIALECTS.difference(dialect)}
        self._commands = {name: command for name, command in COMMANDS.items() if name not in missing}
        self._administration: dict[bytes, Run] = {
            **ADMINISTRATION,
            b"EVAL": Master._eval,
            b"EVALSHA": Master._evalsha,
        }
        self._tracking = Tracking()
        self._store = Store(self._tracking.changed, self._flushed, expire_lag)
        self._script_wrote = False
        self._next_id = 1

    # Connections

    def connect(
        self,
        push: Callable[[Session, bytes], None],
        closed: Callable[[Session], None] | None = None,
        *,
        resp: int = 3,
    ) -> Session:
        """Accept a client."""
        session = Session(self._next_id, push, closed, resp)
        self._next_id += 1
        self.sessions[session.id] = session
        return session

    def disconnect(self, session: Session) -> None:
        """A client has gone."""
        session.end()
        self.sessions.pop(session.id, None)

    def kill(self, session: Session) -> None:
        """End a session from this side: what it was sent is all it gets."""
        self.disconnect(session)
        if session.closed is not None:
            session.closed(session)

    def receive(self, session: Session, data: bytes) -> bytes:
        """Carry out what is complete; returns the replies, each followed by what it made the server report."""
        if not session.open:
            return b""
        session.feed(data)
        next_command = session.next_command
        command = next_command()
        if command is INCOMPLETE:
            return b""
        self._tracking.current = session
        try:
            answers = []
            while command is not INCOMPLETE:
                answers.append(self._answer(session, command))
                command = next_command()
        finally:
            self._tracking.current = None
        return answers[0] if len(answers) == 1 else b"".join(answers)

    # Commands

    def _answer(self, session: Session, words: Sequence[bytes]) -> bytes:
        self._store.tick(self._clock())
        try:
            answer = encode(self._carry_out(session, words), session.resp)
        except Refused as refused:
            answer = error(refused.text)
        return answer + self._tracking.due()

    def _carry_out(self, session: Session, words: Sequence[bytes]) -> Reply:
        name = words[0]
        command = self._commands.get(name)
        if command is None and name not in self._administration:
            name = name.upper()
            command = self._commands.get(name)
        if self.errors and (text := self._error_for(name, words)) is not None:
            raise Refused(text)
        if command is not None:
            if not command.check(words):
                raise Refused(wrong_number(name))
            if self.oom and command.needs_memory:
                raise Refused(OUT_OF_MEMORY)
            return self._on_keys(command, session, words)
        administer = self._administration.get(name)
        if administer is None:
            raise Refused(unknown(words))
        return administer(self, session, words)

    def _error_for(self, name: bytes, words: Sequence[bytes]) -> bytes | None:
        """What it is to answer instead: by the command, `CLIENT KILL` or `CLIENT`, or `*`."""
        with_next = b" ".join((name, *words[1:2])).upper()
        return self.errors.get(with_next) or self.errors.get(name) or self.errors.get(b"*")

    def _on_keys(self, command: Command, session: Session | None, words: Sequence[bytes]) -> Reply:
        try:
            return command.run(self._store, words)
        finally:
            # Afterwards, for a key that expired under this very access is remembered anew; also one of a wrong type.
            if command.reads is not None and session is not None and session.tracking:
                self._tracking.remember(session, words[command.reads])

    # Scripts

    def _eval(self, _session: Session, words: Sequence[bytes]) -> Reply:
        if len(words) < 3:  # noqa: PLR2004 - EVAL source number
            raise Refused(wrong_number(b"eval"))
        count = key_count(words[2], len(words) - 3)
        script = compiled(words[1])
        self.scripts[script.sha] = script
        return self._run(script, count, words)

    def _evalsha(self, _session: Session, words: Sequence[bytes]) -> Reply:
        if len(words) < 3:  # noqa: PLR2004 - EVALSHA hash number
            raise Refused(wrong_number(b"evalsha"))
        count = key_count(words[2], len(words) - 3)
        script = self.scripts.get(words[1]) or self.scripts.get(words[1].lower())
        if script is None:
            raise Refused(b"NOSCRIPT No matching script.")
        return self._run(script, count, words)

    def _run(self, script: Script, count: int, words: Sequence[bytes]) -> Reply:
        self._script_wrote = False
        return run(script, count, words[3:], self._of_script)

    def _of_script(self, words: Sequence[bytes]) -> Reply:
        """A command of the script that is running, on behalf of the session that called it."""
        if not words:
            raise Refused(b"ERR Please specify at least one argument for this call")
        name = words[0]
        command = self._commands.get(name) or self._commands.get(name.upper())
        if command is None:
            known = name.upper() in self._administration
            raise Refused(NOT_FROM_SCRIPT if known else b"ERR Unknown command called from script")
        if not command.check(words):
            raise Refused(b"ERR Wrong number of args calling command from script")
        if command.writes:
            # What has begun to write cannot be stopped in the middle for want of memory.
            if self.oom and command.needs_memory and not self._script_wrote:
                raise Refused(OUT_OF_MEMORY)
            self._script_wrote = True
        return self._on_keys(command, self._tracking.current, words)

    # What happens to a server

    def _flushed(self) -> None:
        self._tracking.flushed(self.sessions.values())

    def wipe(self) -> None:
        """Lose all keys and scripts, as if an operator had flushed them."""
        self.scripts.clear()
        self._store.flush()

    def restart(self, *, run_id: str, keep_data: bool, client_ids_from: int = 1) -> None:
        """Come up again, with or without the keys; all sessions are over, and nobody is told."""
        for session in list(self.sessions.values()):
            self.disconnect(session)
        self.run_id = run_id
        self._next_id = client_ids_from
        self._tracking.forget()
        self.scripts.clear()
        if not keep_data:
            self._store.flush()

    def expire_now(self) -> None:
        """Active expiry: delete every key that is due."""
        self._store.tick(self._clock())
        self._store.expire_due()

    def next_expiry(self) -> float | None:
        """When `expire_now` will next have something to do, by the node's clock in seconds."""
        due = self._store.next_expiry()
        return None if due is None else due / 1000

    def keys(self) -> dict[bytes, Value]:
        """Every key that is not over, with its value, to be looked at only; nothing is deleted or reported."""
        return self._store.live(round(self._clock() * 1e6) // 1000)

    def lasting(self) -> dict[bytes, Value]:
        """Those of them that never run out by themselves."""
        return {key: value for key, value in self.keys().items() if key not in self._store.deadlines}


NOT_FROM_SCRIPT = b"ERR This Valkey command is not allowed from script"


def unknown(words: Sequence[bytes]) -> bytes:
    """The complaint about a command that does not exist."""
    shown = b""
    for word in words[1:]:
        if len(shown) >= 128:  # noqa: PLR2004 - the server's own limit
            break
        shown += b"'%b' " % word[: 128 - len(shown)]
    return b"ERR unknown command '%b', with args beginning with: %b" % (words[0][:128], shown)
