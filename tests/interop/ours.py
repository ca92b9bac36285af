"""A worker with this library, in each form that takes the plain lock's key."""

import asyncio
import random
import time

from worker import HOLD, PATIENCE, PAUSE, Worker, add_one, read, serve

from redlock_async import LockTimeout, Redlock

FORMS = {
    "fenced": lambda redlock, name, ttl: redlock(name, ttl=ttl),
    "plain": lambda redlock, name, ttl: redlock(name, ttl=ttl, fencing=False),
    "several": lambda redlock, name, ttl: redlock(name, f"{name}:too", ttl=ttl),
    "fair": lambda redlock, name, ttl: redlock.fair_lock(name, ttl=ttl),
    "write": lambda redlock, name, ttl: redlock.write_lock(name, ttl=ttl),
    "read": lambda redlock, name, ttl: redlock.read_lock(name, ttl=ttl),
}

KINDS = {"fair": "fair", "write": "write", "read": "read"}
"""What the judge calls them; the others are locks."""


class Ours(Worker):
    """Carries out the same orders with `form` in them, and some that only this library can."""

    def __init__(self):
        super().__init__(client=None)

    async def open(self, urls, **options):
        self.client = Redlock(urls, wait=PATIENCE, **options)
        await self.client.__aenter__()

    async def close(self):
        await self.client.aclose()

    async def take(self, name, ttl, form):
        began = time.monotonic()
        self.held = await FORMS[form](self.client, name, ttl).try_acquire()
        return {"held": self.held is not None, "began": began}

    async def wait(self, name, ttl, form, patience=PATIENCE):
        """Wait for it; `held` is False when LockTimeout ended that. `at` is when it came."""
        before = self.client.statistics().attempts
        try:
            self.held = await FORMS[form](self.client, name, ttl).acquire(wait=patience)
        except LockTimeout:
            return {"held": False}
        return {"held": True, "at": time.monotonic(), "attempts": self.client.statistics().attempts - before}

    async def release(self):
        began = time.monotonic()
        await self.held.release()
        return {"began": began}

    async def check(self):
        """Whether what it took is still valid."""
        return {"valid": self.held.valid}

    async def inspect(self, name):
        """What it says of a name."""
        holder = await self.client.inspect(name)
        return holder and {
            "owner": holder.owner,
            "token": holder.token,
            "votes": holder.votes,
            "held": holder.held,
            "remaining": holder.remaining,
        }

    async def increment(self, name, counter, count, ttl, forms):
        """As the others', its forms in turn; a reader sees that the number stays as it is."""
        holds = []
        for number in range(count):
            if name is None:
                holds.append(await self._hold(counter, "lock"))
            else:
                form = forms[number % len(forms)]
                async with FORMS[form](self.client, name, ttl) as lease:
                    hold = await self._hold(counter, KINDS.get(form, "lock"))
                    holds.append(hold | {"fence": lease.fencing_token})
            await asyncio.sleep(random.uniform(0, PAUSE))
        return {"holds": holds}

    @staticmethod
    async def _hold(counter, kind):
        start = time.monotonic()
        if kind == "read":
            before = read(counter)
            await asyncio.sleep(HOLD)
            assert read(counter) == before, "the counter changed under a reader"
        else:
            await add_one(counter)
        return {"start": start, "end": time.monotonic(), "kind": kind}


if __name__ == "__main__":
    asyncio.run(serve(Ours()))
