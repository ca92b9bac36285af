"""A nightly report: cron starts it on every machine in the same minute, and one machine writes it.

    python examples/nightly_report.py acme        # once, with its own nodes

    redlock-async up                              # in one shell; prints an export line
    export REDLOCK_NODES=...                      # that line, in the other shells; then, at about the same time:
    python examples/nightly_report.py acme

The crontab of each machine: `0 3 * * * python nightly_report.py acme`. If too few nodes are up, the program fails, so
cron sends a mail. It never mistakes an outage for a report that another machine writes.
"""

import argparse
import asyncio
import os
from contextlib import nullcontext
from datetime import timedelta

from redlock_async import redlock  # the nodes: REDLOCK_NODES
from redlock_async.testing import LocalCluster


# Once a day for each tenant. The name stays locked for 90 % of a day, so a machine's clock may be hours off. A run that
# hangs is cancelled after an hour. After a failed run, the next machine that tries writes the report the same night.
@redlock.once("report:{tenant}", every=timedelta(days=1), max_hold=timedelta(hours=1), retry_failed=True)
async def report(tenant: str) -> str:
    """Write the report and return its path."""
    await asyncio.sleep(0.1)  # the work
    return f"/reports/{tenant}.pdf"


async def main(tenant: str) -> None:
    """Try once."""
    try:
        written = await report(tenant)
    finally:
        await redlock.aclose()
    print(f"written: {written}" if written else "another machine is writing it, or has written it")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tenant", help="the tenant to report on")
    options = parser.parse_args()
    # Without REDLOCK_NODES, start five local nodes.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster:
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        asyncio.run(main(options.tenant))
