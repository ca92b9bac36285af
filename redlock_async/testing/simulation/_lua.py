"""Runs scripts in Lua 5.1, as a real server does: one runtime per process, each source compiled once.

Only this module imports lupa, when the first script arrives. It knows no keys and no sessions: the commands of a script
go to a function that the caller provides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from hashlib import sha1
from typing import Any

from ._resp import NOT_AN_INTEGER, OK, ErrorReply, Failure, Pairs, Reply, Scored, Status, number_text

Execute = Callable[[Sequence[bytes]], Reply]
"""Executes a command of a script, or raises ErrorReply."""

MIN_INTEGER = -(1 << 63)

FAILURES_BEFORE_COLLECTION = 256
"""Script failures after which Lua's garbage collector runs."""

SANDBOX = rb"""
local redis = {call = python.as_function(python_call), pcall = python.as_function(python_pcall)}
function redis.status_reply(text) return {ok = text} end
function redis.error_reply(text)
  if text:sub(1, 1) == '-' then text = text:sub(2) end
  return {err = text:find(' ') and text or 'ERR ' .. text}
end

-- Lua's own pcall is not among the globals: how it treats an error of redis.call is not modelled.
local known = setmetatable({redis = redis, server = redis}, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
for _, name in ipairs({
  'assert', 'error', 'ipairs', 'math', 'next', 'pairs', 'rawequal', 'rawget', 'select', 'string', 'table', 'tonumber',
  'tostring', 'type', 'unpack',
}) do known[name] = _G[name] end
-- It stays empty, so that no script can change the globals of the next one.
local globals = setmetatable({}, {
  __index = known,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
})

local function compile(source)
  local chunk, message = loadstring(source, '@user_script')
  return chunk and setfenv(chunk, globals), message
end

local function where(cause)
  local level, line = 2, 0
  while line == 0 do
    local info = debug.getinfo(level, 'Sl')
    if info.short_src == 'user_script' then line = info.currentline end
    level = level + 1
  end
  if type(cause) ~= 'table' and type(cause) ~= 'userdata' then cause = tostring(cause) end
  return {cause, line}
end

local function run(chunk, count, ...)
  local keys, rest = {}, {...}
  if count > 0 then
    local all = rest
    rest = {}
    for i = 1, count do keys[i] = all[i] end
    for i = count + 1, #all do rest[i - count] = all[i] end
  end
  known.KEYS = keys
  known.ARGV = rest
  local done, result = xpcall(chunk, where)
  return done, result
end

return compile, run
"""


class Script:
    """A compiled script."""

    __slots__ = ("chunk", "sha")

    def __init__(self, source: bytes, chunk: object) -> None:
        self.chunk = chunk
        self.sha = sha1(source, usedforsecurity=False).hexdigest().encode()


@lru_cache(maxsize=1024)
def compiled(source: bytes) -> Script:
    """Compile a script. Raises ErrorReply if it is not valid Lua."""
    chunk, message = _lua().compile(source)
    if chunk is None:
        raise ErrorReply(b"ERR Error compiling script (new function): " + message)
    return Script(source, chunk)


def run(script: Script, keys: int, arguments: Sequence[bytes], execute: Execute) -> Reply:
    """Run a script. The first `keys` arguments are its keys, and `execute` runs its commands."""
    lua = _lua()
    lua.execute = execute
    done, result = lua.run(script.chunk, keys, *arguments)
    if not done:
        raise lua.failure(result)
    return lua.reply(result)


@cache
def _lua() -> Lua:
    return Lua()


class Lua:
    """The Lua runtime, and the conversion of values in both directions."""

    def __init__(self) -> None:
        try:
            from lupa import lua51  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional dependency
        except ImportError:
            msg = "the simulation runs the library's own Lua and needs lupa: pip install 'redlock-async[simulation]'"
            raise ImportError(msg) from None
        runtime_of: Any = lua51.LuaRuntime  # its stubs lack encoding=None, which keeps strings as bytes
        runtime = runtime_of(encoding=None)
        runtime.globals()[b"python_call"] = self._call
        runtime.globals()[b"python_pcall"] = self._pcall
        self.compile, self.run = runtime.execute(SANDBOX)
        self._table = runtime.table_from
        self._type = lua51.lua_type
        self._collect = runtime.globals()[b"collectgarbage"]
        self._failures = 0
        self.execute: Execute
        """Runs the commands of the current script."""

    # From Lua: a command

    def _call(self, *words: Any) -> object:
        reply = self.execute([word if type(word) is bytes else argument(word) for word in words])
        if type(reply) is bytes or type(reply) is int:
            return reply
        return self._to_lua(reply)

    def _pcall(self, *words: Any) -> object:
        try:
            return self._call(*words)
        except ErrorReply as exc:
            return self._table({b"err": exc.text})

    def _to_lua(self, reply: Reply) -> object:  # noqa: PLR0911 - one return per kind of reply
        """Convert a reply to the Lua value that a script sees, which is that of RESP2."""
        if reply is None:
            return False
        if reply is OK:
            return self._table({b"ok": b"OK"})
        match reply:
            case Status():
                return self._table({b"ok": bytes(reply)})
            case Pairs():
                return self._table([self._to_lua(item) for pair in reply.items() for item in pair])
            case Scored():
                return self._table(reply.flat())
            case list():
                return self._table([part if type(part) is bytes else self._to_lua(part) for part in reply])
            case float():
                return number_text(reply)
        return reply

    # To the client: a result

    def reply(self, result: Any) -> Reply:  # noqa: PLR0911 - one return per type
        """Convert the result of a script to a reply."""
        if type(result) is bytes:
            return result
        if type(result) is int:
            return max(result, MIN_INTEGER)
        if result is None or result is False:
            return None
        if result is True:
            return 1
        if isinstance(result, float):
            return int(result) if abs(result) < -MIN_INTEGER else MIN_INTEGER
        if self._type(result) != "table":
            return None
        return self._reply_of(result)

    def _reply_of(self, table: Any) -> Reply:
        if isinstance(err := table[b"err"], bytes):
            raise ErrorReply(err)
        if isinstance(ok := table[b"ok"], bytes):
            return Status(ok)
        parts: list[Reply] = []
        # An array ends at its first nil.
        while (part := table[len(parts) + 1]) is not None:
            try:
                parts.append(self.reply(part))
            except ErrorReply as exc:
                parts.append(Failure(exc.text))
        return parts

    def failure(self, problem: Any) -> Exception:
        """Return the exception for a script that failed, with the line."""
        cause, line = problem[1], problem[2]
        if isinstance(cause, ErrorReply):
            text = cause.text
            # Lua keeps the exception until it collects garbage, and does not know how much memory that holds.
            cause.__traceback__ = None
            self._failures += 1
            if self._failures % FAILURES_BEFORE_COLLECTION == 0:
                self._collect()
        elif isinstance(cause, Exception):
            return cause  # a bug in the simulation
        elif self._type(cause) == "table":
            text = cause[b"err"] or b"ERR unknown error"
        else:
            text = b"ERR %b" % cause
        return ErrorReply(b"%b script: on @user_script:%d." % (text, line))


def argument(word: object) -> bytes:
    """Convert an argument of redis.call that is not a string."""
    if isinstance(word, (int, float)) and not isinstance(word, bool):
        return number_text(word)
    raise ErrorReply(b"ERR Command arguments must be strings or integers")


def key_count(argument: bytes, given: int) -> int:
    """Parse the number of keys of an EVAL with `given` arguments."""
    try:
        count = int(argument)
    except ValueError:
        raise ErrorReply(NOT_AN_INTEGER) from None
    if count > given:
        raise ErrorReply(b"ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise ErrorReply(b"ERR Number of keys can't be negative")
    return count
