"""A service that works under a lock again and again, and notes each hold; `test_node_sets.py` runs several of them."""

import asyncio
import signal
import sys
import time
from contextlib import suppress

from redlock_async import ConfigurationError, LockLost, LockTimeout, QuorumUnavailable, Redlock


async def main(label, ttl, *urls):
    """Print a line for each hold, and one for each error, until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with Redlock(urls, ttl=float(ttl), wait=0.5, owner=label) as redlock:
        while not ended.is_set():
            try:
                async with redlock("the work") as lease:
                    start = time.monotonic()
                    await asyncio.sleep(0.01)
                    end = time.monotonic()
                print("hold", start, end, lease.fencing_token, flush=True)
                await asyncio.sleep(0.002)  # let the others have it
            except ConfigurationError as error:
                print("refused", error, flush=True)
                return
            except (LockLost, LockTimeout, QuorumUnavailable) as error:
                print("failed", repr(error), flush=True)


with suppress(KeyboardInterrupt):
    asyncio.run(main(*sys.argv[1:]))
