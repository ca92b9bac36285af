"""Calls that do not wait and find the lock held count as `busy` and trigger no alert about waits."""

import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from redlock_async import LockTimeout, Redlock, prometheus

sys.path.insert(0, str(Path(__file__).parent))
from promql import Query

ROOT = Path(__file__).resolve().parents[2]
RULES = yaml.safe_load((ROOT / "docs/prometheus-alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
MATCHES = {"=": lambda label, value: label == value, "!=": lambda label, value: label != value}

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]


def total(registry, selector):
    """The sum of the series that a selector of an alert chooses, read as counters instead of rates."""
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == selector.metric
        and all(MATCHES[how](sample.labels.get(label), value) for label, how, value in selector.matchers)
    )


def share_of_vain_waits(registry):
    """What the alert compares with a tenth."""
    [rule] = [rule for rule in RULES if rule["alert"] == "RedlockWaitsTimeOut"]
    vain, waits = Query(rule["expr"]).selectors
    return total(registry, vain) / total(registry, waits)


async def test_a_healthy_service_that_skips_and_tries_trips_no_alert(nodes):
    """Half of its calls find the lock held and do not wait: none of them is a timeout."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)
    async with Redlock(nodes) as redlock, Redlock(nodes, owner="other") as other:
        exporter.add(redlock)
        heard = []
        redlock.on_event(lambda event: heard.append(event) if event.kind in {"busy", "timeout"} else None)

        @redlock.once("report", every=60)
        async def report():
            return "done"

        @redlock.locked("held", on_conflict="skip")
        async def skips():
            return "done"

        assert [await report() for _ in range(4)] == ["done", None, None, None]
        async with other("held"):
            assert await skips() is None
            assert await redlock("held").try_acquire() is None
            with pytest.raises(LockTimeout):
                await redlock("held").acquire(wait=0)
        for _ in range(5):
            async with redlock("free"):
                pass
        now = redlock.statistics()
        assert (now.busy, now.timeouts, now.acquired) == (6, 0, 6)
        assert [event.kind for event in heard] == ["busy"] * 6
        assert [event.holder for event in heard[3:]] == ["other"] * 3
        assert share_of_vain_waits(registry) == 0


async def test_waits_in_vain_still_trip_the_alert(nodes):
    """Of ten calls that wait two do so in vain; the many that do not wait hide nothing."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)
    async with Redlock(nodes) as redlock, Redlock(nodes, owner="other") as other:
        exporter.add(redlock)
        async with other("held"):
            for _ in range(2):
                with pytest.raises(LockTimeout):
                    await redlock("held").acquire(wait=0.01)
            for _ in range(20):
                assert await redlock("held").try_acquire() is None
        for _ in range(8):
            async with redlock("free"):
                pass
        assert redlock.statistics().timeouts == 2
        assert share_of_vain_waits(registry) == 0.2
