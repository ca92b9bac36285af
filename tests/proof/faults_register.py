"""A counter that others change under a lock, read and written in two steps; it knows nothing of how the lock works.

It lives on a server of its own, where each step is one script: a process that is stopped or killed midway leaves
neither a torn value nor a lock of the register's own behind.
"""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

READ = """
-- KEYS[1] register   ARGV[1] fencing token   Returns its value, or nil when the token is older than one seen before.
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
-- A read counts as a sight of the token, too: else an older holder could write between it and the write after it.
if tonumber(ARGV[1]) < seen then redis.call('HINCRBY', KEYS[1], 'refused', 1) return end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'value') or 0)
"""

WRITE = """
-- KEYS[1] register   ARGV[1] fencing token, '' to accept any   ARGV[2] new value   Returns whether it was accepted.
if ARGV[1] ~= '' then
  local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
  if tonumber(ARGV[1]) < seen then redis.call('HINCRBY', KEYS[1], 'refused', 1) return 0 end
  redis.call('HSET', KEYS[1], 'fence', ARGV[1])
end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'accepted', 1)
return 1
"""


class Register:
    """The same counters twice: one that takes every write, and one that looks at the fencing token."""

    def __init__(self, url):
        # Never sent twice: a repeated write would be counted twice.
        self.server = Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True)
        self._read = self.server.register_script(READ)
        self._write = self.server.register_script(WRITE)

    async def read(self, name, fence):
        """The values of both; None where the token is too old."""
        return (
            int(await self.server.hget(f"unfenced:{name}", "value") or 0),
            await self._read(keys=[f"fenced:{name}"], args=[fence]),
        )

    async def write(self, name, fence, values):
        """Write one more than what was read."""
        unfenced, fenced = values
        await self._write(keys=[f"unfenced:{name}"], args=["", unfenced + 1])
        if fenced is not None:
            await self._write(keys=[f"fenced:{name}"], args=[fence, fenced + 1])

    async def counts(self):
        """For both kinds: increments that were accepted, those whose effect is missing, and steps that were refused."""
        found = {}
        for kind in ("unfenced", "fenced"):
            each = [await self.server.hgetall(key) async for key in self.server.scan_iter(f"{kind}:*")]
            accepted, value, refused = (sum(int(r.get(f, 0)) for r in each) for f in ("accepted", "value", "refused"))
            found[kind] = {"accepted": accepted, "lost": accepted - value, "refused": refused}
        return found

    async def close(self):
        """End the connections."""
        await self.server.aclose()
