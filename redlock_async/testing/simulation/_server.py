"""One simulated Redis or Valkey server: bytes of clients in, bytes of the server out.

It uses no sockets, no real time and no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

from ._administration import ADMINISTRATION, Handler, wrong_number
from ._commands import COMMANDS
from ._lua import Script, compiled, key_count, run
from ._resp import ErrorReply, Reply, encode, error
from ._session import INCOMPLETE, Session
from ._store import Snapshot, Store, Value
from ._table import Command
from ._tracking import Tracking

__all__ = ["Session", "SimulatedServer"]

OUT_OF_MEMORY = b"OOM command not allowed when used memory > 'maxmemory'."
COMPARE_AND_DELETE_COMMANDS = frozenset({"DELIFEQ", "DELEX"})
"""Commands that only some servers have: DELIFEQ since Valkey 9, DELEX since Redis 8.4."""


class SimulatedServer:
    """A server without replicas, persistence or databases other than 0, as far as the library's commands need.

    `clock` is the node's wall clock in seconds, which may jump: expiry and TIME follow it, as on a real server.
    `dialect` names the COMPARE_AND_DELETE_COMMANDS that it has. `tracking=False` models a server without client
    tracking. Redis before 7.2 tracks all keys of a script's call once the script reads one, and before 7 it reports
    what a script changes to the script's own caller too, even with NOLOOP. `expire_lag` is drawn for each deadline:
    active expiry deletes the key that many seconds later, while an access deletes it immediately.

    A session's `push` and `closed` are called during other sessions' commands: they must only record the call.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        run_id: str,
        dialect: Collection[str] = ("DELIFEQ",),
        tracking: bool = True,
        version: str = "9.0.0",
        product: str = "valkey",
        expire_lag: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock
        self.run_id = run_id
        self.former_replid = "0" * 40
        """The replication id of the primary that it replaced; zeros if it was never a replica."""
        self.tracking_offered = tracking
        self.version = version
        self.product = product
        self.config = {
            b"maxmemory-policy": b"noeviction",
            b"appendonly": b"yes",
            b"appendfsync": b"everysec",
            b"save": b"",
        }
        """The result of CONFIG GET. It has no effect."""
        self.errors: dict[bytes, bytes] = {}
        """Error replies by command name in capitals. Such a command is not executed. b"*" stands for every command."""
        self.lies: dict[bytes, Callable[[Reply], Reply]] = {}
        """Functions by script hash that replace the true reply after the script was executed."""
        self.shard: tuple[bytes, tuple[tuple[int, int], ...]] | None = None
        """If it is a shard of a cluster: its id, and the slots that it owns."""
        self.oom = False
        """Whether it is at maxmemory: it rejects commands that need memory, unless their script has already written."""
        self.sessions: dict[int, Session] = {}
        self.scripts: dict[bytes, Script] = {}
        missing = {name.encode() for name in COMPARE_AND_DELETE_COMMANDS.difference(dialect)}
        self._commands = {name: command for name, command in COMMANDS.items() if name not in missing}
        self._administration: dict[bytes, Handler] = {
            **ADMINISTRATION,
            b"EVAL": SimulatedServer._eval,
            b"EVALSHA": SimulatedServer._evalsha,
        }
        self._tracking = Tracking()
        self._store = Store(self._tracking.changed, self._flushed, expire_lag)
        self._script_wrote = False
        self._tracks_calls = product == "redis" and version.startswith(("6.", "7.0."))
        self._scripts_ignore_noloop = product == "redis" and version.startswith("6.")
        self._call_keys: Sequence[bytes] | None = None
        self._next_id = 1

    # Connections

    def connect(
        self,
        push: Callable[[Session, bytes], None],
        closed: Callable[[Session], None] | None = None,
        *,
        resp: int = 3,
    ) -> Session:
        """Accept a client and return its session."""
        session = Session(self._next_id, push, closed, resp)
        self._next_id += 1
        self.sessions[session.id] = session
        return session

    def disconnect(self, session: Session) -> None:
        """End a session that the client has closed."""
        session.end()
        self.sessions.pop(session.id, None)

    def kill(self, session: Session) -> None:
        """End a session from the server's side. The client gets nothing more."""
        self.disconnect(session)
        if session.closed is not None:
            session.closed(session)

    def receive(self, session: Session, data: bytes) -> bytes:
        """Execute the complete commands. Return the replies, each followed by the pushes that it caused."""
        if not session.open:
            return b""
        session.feed(data)
        next_command = session.next_command
        command = next_command()
        if command is INCOMPLETE:
            return b""
        self._tracking.current = session
        try:
            replies = []
            while command is not INCOMPLETE:
                replies.append(self._reply(session, command))
                command = next_command()
        finally:
            self._tracking.current = None
        return replies[0] if len(replies) == 1 else b"".join(replies)

    # Commands

    def _reply(self, session: Session, words: Sequence[bytes]) -> bytes:
        self._store.set_time(self._clock())
        try:
            reply = encode(self._execute(session, words), session.resp)
        except ErrorReply as exc:
            reply = error(exc.text)
        return reply + self._tracking.take_pending()

    def _execute(self, session: Session, words: Sequence[bytes]) -> Reply:
        name = words[0]
        command = self._commands.get(name)
        if command is None and name not in self._administration:
            name = name.upper()
            command = self._commands.get(name)
        if self.errors and (text := self._error_for(name, words)) is not None:
            raise ErrorReply(text)
        if command is not None:
            if not command.accepts(words):
                raise ErrorReply(wrong_number(name))
            if self.oom and command.needs_memory:
                raise ErrorReply(OUT_OF_MEMORY)
            return self._on_keys(command, session, words)
        handler = self._administration.get(name)
        if handler is None:
            raise ErrorReply(unknown(words))
        return handler(self, session, words)

    def _error_for(self, name: bytes, words: Sequence[bytes]) -> bytes | None:
        """The configured error for this command: by both words (`CLIENT KILL`), by the first, or by `*`."""
        with_next = b" ".join((name, *words[1:2])).upper()
        return self.errors.get(with_next) or self.errors.get(name) or self.errors.get(b"*")

    def _on_keys(self, command: Command, session: Session | None, words: Sequence[bytes]) -> Reply:
        try:
            return command.handler(self._store, words)
        finally:
            # After the command, so that a key that expired during it is recorded again; also if its type is wrong.
            if command.reads is not None and session is not None and session.tracking:
                self._tracking.remember(session, words[command.reads] if self._call_keys is None else self._call_keys)

    # Scripts

    def _eval(self, _session: Session, words: Sequence[bytes]) -> Reply:
        if len(words) < 3:  # noqa: PLR2004 - EVAL source number
            raise ErrorReply(wrong_number(b"eval"))
        count = key_count(words[2], len(words) - 3)
        script = compiled(words[1])
        self.scripts[script.sha] = script
        return self._run(script, count, words)

    def _evalsha(self, _session: Session, words: Sequence[bytes]) -> Reply:
        if len(words) < 3:  # noqa: PLR2004 - EVALSHA hash number
            raise ErrorReply(wrong_number(b"evalsha"))
        count = key_count(words[2], len(words) - 3)
        script = self.scripts.get(words[1]) or self.scripts.get(words[1].lower())
        if script is None:
            raise ErrorReply(b"NOSCRIPT No matching script.")
        return self._run(script, count, words)

    def _run(self, script: Script, count: int, words: Sequence[bytes]) -> Reply:
        self._script_wrote = False
        self._call_keys = words[3 : 3 + count] if self._tracks_calls else None
        self._tracking.noloop = not self._scripts_ignore_noloop
        try:
            reply = run(script, count, words[3:], self._run_from_script)
        finally:
            self._call_keys = None
            self._tracking.noloop = True
        lie = self.lies.get(script.sha)
        return reply if lie is None else lie(reply)

    def _run_from_script(self, words: Sequence[bytes]) -> Reply:
        """Execute a command of the running script, on behalf of the session that called the script."""
        if not words:
            raise ErrorReply(b"ERR Please specify at least one argument for this call")
        name = words[0]
        command = self._commands.get(name) or self._commands.get(name.upper())
        if command is None and name.upper() == b"CLUSTER" and self.shard is not None:
            return self._administration[b"CLUSTER"](self, cast("Session", self._tracking.current), words)
        if command is None:
            known = name.upper() in self._administration
            raise ErrorReply(NOT_FROM_SCRIPT if known else b"ERR Unknown command called from script")
        if not command.accepts(words):
            raise ErrorReply(b"ERR Wrong number of args calling command from script")
        if command.writes:
            # A script that has begun to write cannot be stopped halfway for lack of memory.
            if self.oom and command.needs_memory and not self._script_wrote:
                raise ErrorReply(OUT_OF_MEMORY)
            self._script_wrote = True
        return self._on_keys(command, self._tracking.current, words)

    # Events

    def _flushed(self) -> None:
        self._tracking.flushed(self.sessions.values())

    def wipe(self) -> None:
        """Delete all keys and scripts, as an operator's flush would."""
        self.scripts.clear()
        self._store.flush()

    def restart(self, *, run_id: str, keep_data: bool, client_ids_from: int = 1) -> None:
        """Start again, with or without the keys. All sessions end without notice."""
        for session in list(self.sessions.values()):
            self.disconnect(session)
        self.run_id = run_id
        self._next_id = client_ids_from
        self._tracking.reset()
        self.scripts.clear()
        if not keep_data:
            self._store.flush()

    def snapshot(self) -> Snapshot:
        """Return a copy of the data: what a replica or a file would have."""
        return self._store.snapshot()

    def load(self, snapshot: Snapshot) -> None:
        """Replace the data by that copy."""
        self._store.load(snapshot)

    def expire_now(self) -> None:
        """Run active expiry: delete every key that is due."""
        self._store.set_time(self._clock())
        self._store.expire_due()

    def next_expiry(self) -> float | None:
        """When `expire_now` will next delete a key, in seconds of the node's clock."""
        due = self._store.next_expiry()
        return None if due is None else due / 1000

    def keys(self) -> dict[bytes, Value]:
        """All keys that have not expired, with their values. Reading them deletes and reports nothing."""
        return self._store.live(round(self._clock() * 1e6) // 1000)

    def keys_without_ttl(self) -> dict[bytes, Value]:
        """All keys that never expire, with their values."""
        return {key: value for key, value in self.keys().items() if key not in self._store.deadlines}


NOT_FROM_SCRIPT = b"ERR This Valkey command is not allowed from script"


def unknown(words: Sequence[bytes]) -> bytes:
    """The error about an unknown command."""
    shown = b""
    for word in words[1:]:
        if len(shown) >= 128:  # noqa: PLR2004 - the server's own limit
            break
        shown += b"'%b' " % word[: 128 - len(shown)]
    return b"ERR unknown command '%b', with args beginning with: %b" % (words[0][:128], shown)
