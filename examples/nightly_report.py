"""A report that cron starts on every machine at the same minute, and that one of them writes.

    python examples/nightly_report.py acme        # once, with masters of its own

    redlock-async up                              # in one shell; it prints REDLOCK_NODES=...
    export REDLOCK_NODES=...                      # in the others, then, in all of them at about the same time:
    python examples/nightly_report.py acme

The crontab of each machine: `0 3 * * * python nightly_report.py acme`. An outage of the locks is an error of this
program and a mail from cron, and never mistaken for a report that another machine writes.
"""

import argparse
import asyncio
import os
from contextlib import nullcontext
from datetime import timedelta

from redlock_async import redlock  # the masters: REDLOCK_NODES
from redlock_async.testing import LocalCluster


# Once a day, each tenant for itself. The name stays locked for nine tenths of a day, so a clock may be hours off. What
# hangs is cancelled after an hour; what fails is left to the next machine that tries, rather than to the next night.
@redlock.once("report:{tenant}", every=timedelta(days=1), max_hold=timedelta(hours=1), retry_failed=True)
async def report(tenant: str) -> str:
    """Write it; returns where it is."""
    await asyncio.sleep(0.1)  # the work
    return f"/reports/{tenant}.pdf"


async def main(tenant: str) -> None:
    """One attempt."""
    try:
        written = await report(tenant)
    finally:
        await redlock.aclose()
    print(f"written: {written}" if written else "another machine writes it, or has written it")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tenant", help="whose report")
    options = parser.parse_args()
    # Five masters of this machine's own, where there are no others.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster:
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        asyncio.run(main(options.tenant))
