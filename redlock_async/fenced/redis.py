"""Fenced writes to Redis data: the check and the write are one script, so nothing comes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from redlock_async._rules.settings import Duration, positive
from redlock_async.errors import ConfigurationError

from .check import Holder, fences_of, must_be_read_only

__all__ = ["FencedRedis"]

Value = str | bytes | int | float

_CHECK = """
local redlock, data, arguments = tonumber(ARGV[1]), {}, {}
for i = 1, redlock do
  if tonumber(redis.call('GET', KEYS[i]) or '0') > tonumber(ARGV[i + 2]) then
    return redis.error_reply('STALEFENCE ' .. i .. ' ' .. redis.call('GET', KEYS[i]))
  end
end
for i = 1, redlock do redis.call('SET', KEYS[i], ARGV[i + 2], 'PX', ARGV[2]) end
for i = redlock + 1, #KEYS do data[#data + 1] = KEYS[i] end
for i = redlock + 3, #ARGV do arguments[#arguments + 1] = ARGV[i] end
local KEYS, ARGV = data, arguments
"""
"""KEYS: registers, then data. ARGV: the number of registers, ms to keep them, their tokens, then the script's own."""


class FencedRedis:
    """Writes to a server of your own that are rejected if a later holder of the lock has written there.

    Each name has a register, `redlock-fence:NAME`, which expires when it was not used for `keep`; that must be longer
    than any process may be paused. On a cluster, the lock's name and the keys need the same hash tag.
    """

    def __init__(self, client: Redis | RedisCluster, *, keep: Duration = 30 * 86_400.0) -> None:
        self._client = client
        self._keep_ms = int(positive("keep", keep) * 1000)

    async def set(self, lease: Holder, key: str, value: Value, *, ttl: Duration | None = None) -> None:
        """Set a string, which expires after `ttl` if that is given."""
        expiry = () if ttl is None else ("PX", int(positive("ttl", ttl) * 1000))
        await self.eval(lease, "return redis.call('SET', KEYS[1], unpack(ARGV))", [key], [value, *expiry])

    async def hset(self, lease: Holder, key: str, values: Mapping[str, Value]) -> None:
        """Set fields of a hash."""
        pairs = [each for pair in values.items() for each in pair]
        await self.eval(lease, "return redis.call('HSET', KEYS[1], unpack(ARGV))", [key], pairs)

    async def delete(self, lease: Holder, *keys: str) -> int:
        """Delete keys; return how many there were."""
        return int(await self.eval(lease, "return redis.call('DEL', unpack(KEYS))", keys))

    async def expire(self, lease: Holder, key: str, ttl: Duration) -> bool:
        """Let a key expire after `ttl`; return whether it exists."""
        ms = int(positive("ttl", ttl) * 1000)
        return bool(await self.eval(lease, "return redis.call('PEXPIRE', KEYS[1], ARGV[1])", [key], [ms]))

    async def eval(self, lease: Holder, script: str, keys: Sequence[str], args: Sequence[Value] = ()) -> Any:
        """Run a script of your own behind the check, with these KEYS and ARGV; return its reply."""
        if script.startswith("#!"):
            raise ConfigurationError("a script behind a fence cannot have a first line with #!: remove that line")
        fences = fences_of(lease)
        registers = [f"redlock-fence:{each.name}" for each in fences]
        arguments = [len(fences), self._keep_ms, *(each.token for each in fences), *args]
        try:
            reply = await self._client.register_script(_CHECK + script)([*registers, *keys], arguments)
        except ResponseError as exc:
            if (words := str(exc).split())[0] == "STALEFENCE":
                fences[int(words[1]) - 1].check(int(words[2]))
            raise
        must_be_read_only(transaction=False)
        return reply
