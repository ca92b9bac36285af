"""A candidate of an election in a process of its own: it writes down when it leads, and what it observes."""

import asyncio
import json
import sys
import time

from redlock_async import QuorumUnavailable, Redlock


def note(what, **details):
    """A line for the judge, with a clock that all processes of the machine share."""
    print(json.dumps({"what": what, "at": time.monotonic(), **details}), flush=True)


async def main(me, ttl, urls):
    """Serve short terms for ever, and observe."""
    async with Redlock(urls) as redlock:
        election = redlock.election("office", value=me, ttl=ttl)

        async def serve(term):
            note("begin", fence=term.fencing_token)
            try:
                while term.remaining > 0:  # a block that reads the clock: after a pause it does not believe the past
                    note("lead", fence=term.fencing_token, until=time.monotonic() + term.remaining)
                    await asyncio.sleep(0.01)
                    if time.monotonic() % 0.3 < 0.011:
                        return
            finally:
                note("end", fence=term.fencing_token)

        async def observe():
            async for leader in election.changes():
                note("saw", value=leader and leader.value, fence=leader and leader.fencing_token)

        observing = asyncio.ensure_future(observe())
        while not observing.done():
            try:
                await election.run(serve)
            except QuorumUnavailable:
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.02)
        observing.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
