"""Metrics as they arrive: scraped from Prometheus' own server over HTTP, and collected by OpenTelemetry's SDK."""

import asyncio
import contextlib
import sys
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from redlock_async import ConfigurationError, Redlock, metrics, otel, prometheus
from redlock_async.testing import LocalCluster

sys.path.insert(0, str(Path(__file__).parent))
import story as script

pytestmark = pytest.mark.asyncio


@contextlib.contextmanager
def served(registry):
    """Prometheus' own server for that registry, in a thread of its own; yields what scrapes it."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)

    def scrape():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as response:
            return response.read().decode()

    try:
        yield lambda: asyncio.to_thread(scrape)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Samples:
    """What was scraped, to be asked for values."""

    def __init__(self, text):
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def total(self, name, **labels):
        """The sum of the samples of that name that have those labels; None if there are none."""
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(found) if found else None

    def each(self, name, label, **labels):
        """The values of that name that are not 0, by one of their labels."""
        found = [s for s in self.samples if s.name == name and labels.items() <= s.labels.items() and s.value]
        return {s.labels[label]: s.value for s in found}


@contextlib.contextmanager
def telemetry():
    """OpenTelemetry's SDK, with everything kept in memory; yields the exporter of ours, metrics and spans."""
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider([reader], shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    try:
        yield otel.Exporter(meters, tracers), reader, spans, tracers
    finally:
        meters.shutdown()
        tracers.shutdown()


def points(reader):
    """What was collected: the data points of each metric, by its name, and the metrics themselves."""
    collected = reader.get_metrics_data()
    each = [m for r in collected.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {metric.name: list(metric.data.data_points) for metric in each}, {metric.name: metric for metric in each}


def chosen(found, name, **attributes):
    """The points of a metric that have those attributes, with dots for the underscores in them."""
    wanted = {key.replace("__", "."): value for key, value in attributes.items()}
    return [point for point in found[name] if wanted.items() <= dict(point.attributes).items()]


OURS = {"client": "ours", "lock": "lock"}


async def test_a_scrape_tells_the_story(cluster):
    """Waits, holds, contention, renewals, losses with why, answers of each node and its state: each as it happened."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)

    def attach(ours, theirs):
        exporter.add(ours, client="ours")
        exporter.add(theirs, client="theirs")

    with served(registry) as scrape:
        story = await script.told(cluster, attach, scrape)
        now = Samples(await scrape())
    waits_are_right(now)
    leases_are_right(now)
    answers_are_right(now, story)
    gauges_are_right(now, story)
    exporter.close()
    assert list(registry.collect()) == []


def waits_are_right(now):
    """Hot, cold, long, while frozen, taken, unconfirmed and lingers were had, and one of them took long."""
    acquire = "redlock_acquire_duration_seconds"
    assert now.each(f"{acquire}_count", "outcome", **OURS) == {
        "acquired": 7, "timeout": 1, "busy": 1, "cancelled": 3, "unavailable": 1,
    }  # fmt: skip
    assert now.total(f"{acquire}_sum", outcome="acquired", **OURS) >= script.HELD
    assert now.total(f"{acquire}_bucket", outcome="acquired", le="+Inf", **OURS) == 7
    assert now.total(f"{acquire}_bucket", outcome="acquired", le="0.1", **OURS) <= 6
    assert script.PATIENCE <= now.total(f"{acquire}_sum", outcome="timeout", **OURS) < 5
    # The long wait, the vain one, the try, and the one of three that asks for all of them.
    assert now.total("redlock_refusals_total", **OURS) >= 4
    assert now.total("redlock_refusals_total", client="theirs") == 0


def leases_are_right(now):
    """Five were released, the last of them unconfirmed, and two were lost; the long one was renewed."""
    hold, renewals = "redlock_hold_duration_seconds", "redlock_renewals_total"
    assert now.each(f"{hold}_count", "outcome", **OURS) == {"released": 5, "lost": 2}
    assert now.total(f"{hold}_sum", outcome="released", **OURS) >= 1.2 * script.TTL
    assert now.total(f"{hold}_bucket", outcome="released", le="1.0", **OURS) <= 4
    assert now.total("redlock_releases_unconfirmed_total", **OURS) == 1
    extended = now.total(renewals, outcome="extended", **OURS)
    assert extended >= 3
    assert now.total(renewals, outcome="failed", **OURS) >= 1
    assert now.total("redlock_lease_remaining_ratio_count", **OURS) == extended + 5
    assert 0 < now.total("redlock_lease_remaining_ratio_sum", **OURS) <= extended + 5
    assert now.each("redlock_losses_total", "reason", **OURS) == {"taken": 1, "unconfirmed": 1}
    assert now.total("redlock_losses_total", client="theirs") == 0


def answers_are_right(now, story):
    """The frozen one timed out, as the first three did at the end, and the fourth never."""
    always = story.nodes[3]
    asked = {"client": "ours", "operation": "acquire"}
    answers, duration = "redlock_node_replies_total", "redlock_node_reply_duration_seconds"
    timed_out = now.each(answers, "node", outcome="timed_out", **asked)
    assert story.frozen in timed_out
    assert always not in timed_out
    granted = now.each(answers, "node", outcome="granted", **asked)
    assert granted[always] >= 7
    assert granted[story.frozen] >= 6
    assert now.each(answers, "node", outcome="refused", **asked).keys() == {*story.nodes}
    late = {"node": story.frozen, "error": "timed_out", **asked}
    assert now.total(f"{duration}_sum", **late) >= timed_out[story.frozen] * script.NODE_TIMEOUT
    assert now.total(f"{duration}_bucket", le="0.05", **late) == 0
    assert now.total(f"{duration}_count", client="ours", node=always, operation="extend", error="") >= 3
    assert now.each("redlock_node_outages_total", "node", client="ours").keys() == {*story.nodes} - {always}


def gauges_are_right(now, story):
    """As they were at the scrapes in between; of closed clients nothing is said of nodes that nobody asks."""
    waiting, frozen = Samples(story.while_waiting), Samples(story.while_frozen)
    assert waiting.total("redlock_waiters", client="ours") == 3
    assert waiting.each("redlock_leases_held", "client") == {"ours": 1, "theirs": 1}
    assert waiting.each("redlock_nodes_up", "client") == {"ours": 5, "theirs": 5}
    assert frozen.total("redlock_nodes_up", client="ours") == 4
    assert frozen.total("redlock_nodes_quorum", client="ours") == 3
    assert frozen.total("redlock_nodes_configured", client="ours") == 5
    assert frozen.each("redlock_node_up", "node", client="ours").keys() == {*story.nodes} - {story.frozen}
    assert frozen.total("redlock_node_up", client="ours", node=story.frozen) == 0
    assert now.total("redlock_nodes_up") is None
    assert now.total("redlock_leases_held") == 0


async def test_opentelemetry_tells_the_same_story(cluster):
    """With the names and attributes of its conventions, and with spans that say which lock it was."""
    with telemetry() as (exporter, reader, spans, _):

        async def look():
            return points(reader)[0]

        def attach(ours, theirs):
            exporter.add(ours, client="ours")
            exporter.add(theirs, client="theirs")

        story = await script.told(cluster, attach, look)
        now, described = points(reader)
        ours = {"redlock__client": "ours", "redlock__lock": "lock"}

        ends = {p.attributes["redlock.outcome"]: p for p in chosen(now, "redlock.acquire.duration", **ours)}
        assert {outcome: point.count for outcome, point in ends.items()} == {
            "acquired": 7, "timeout": 1, "busy": 1, "cancelled": 3, "unavailable": 1,
        }  # fmt: skip
        assert script.HELD <= ends["acquired"].max <= story.waited
        assert ends["acquired"].explicit_bounds == metrics.WAITS
        holds = {p.attributes["redlock.outcome"]: p for p in chosen(now, "redlock.hold.duration", **ours)}
        assert {outcome: point.count for outcome, point in holds.items()} == {"released": 5, "lost": 2}
        assert 1.2 * script.TTL <= holds["released"].max <= story.held_for_long
        assert sum(point.value for point in chosen(now, "redlock.refusals", **ours)) >= 4
        renewals = {p.attributes["redlock.outcome"]: p.value for p in chosen(now, "redlock.renewals", **ours)}
        assert renewals.keys() == {"extended", "failed"}
        losses = {p.attributes["redlock.reason"]: p.value for p in chosen(now, "redlock.losses", **ours) if p.value}
        assert losses == {"taken": 1, "unconfirmed": 1}
        assert [p.value for p in chosen(now, "redlock.releases.unconfirmed", **ours)] == [1]

        host, _, port = story.frozen.rpartition(":")
        [late] = chosen(
            now, "db.client.operation.duration", redlock__client="ours", db__operation__name="acquire",
            error__type="timed_out", server__address=host, server__port=int(port),
        )  # fmt: skip
        assert late.min >= script.NODE_TIMEOUT
        assert late.attributes["db.system.name"] == "redis"
        assert described["db.client.operation.duration"].unit == "s"
        answered = chosen(now, "redlock.node.replies", redlock__client="ours", redlock__outcome="granted")
        assert {point.attributes["redlock.node"] for point in answered} == {*story.nodes}
        states = chosen(story.while_frozen, "redlock.node.up", redlock__client="ours")
        up = {point.attributes["redlock.node"]: point.value for point in states}
        assert up == {node: node != story.frozen for node in story.nodes}
        assert [p.value for p in chosen(story.while_waiting, "redlock.waiters", redlock__client="ours")] == [3]
        exporter.close()
        assert points(reader)[0].keys() <= {
            "redlock.acquire.duration",
            "redlock.hold.duration",
            "redlock.lease.remaining_ratio",
            "db.client.operation.duration",
        }

        lost = [span for span in spans.get_finished_spans() if span.attributes["redlock.outcome"] == "lost"]
        assert {span.attributes["redlock.names"]: span.attributes["redlock.reason"] for span in lost} == {
            ("taken",): "taken", ("unconfirmed",): "unconfirmed",
        }  # fmt: skip
        assert all(span.status.status_code is StatusCode.ERROR for span in lost)


async def test_spans_stand_in_the_trace_of_the_task(nodes):
    """Acquiring and holding are children of what the caller is doing, with the times at which they happened."""
    with telemetry() as (exporter, _, spans, tracers):
        async with Redlock(nodes, owner="ours") as redlock, Redlock(nodes, owner="theirs") as theirs:
            exporter.add(redlock)
            with tracers.get_tracer("test").start_as_current_span("request") as request:
                async with redlock("x"):
                    await asyncio.sleep(0.05)
                async with theirs("x"):
                    assert await redlock("x").try_acquire() is None
        acquired, held, refused, outer = spans.get_finished_spans()
        assert [span.name for span in (acquired, held, refused, outer)] == [
            "redlock acquire", "redlock hold", "redlock acquire", "request",
        ]  # fmt: skip
        for span in (acquired, held, refused):
            assert span.parent.span_id == request.get_span_context().span_id
            assert span.attributes["redlock.names"] == ("x",)
            assert span.status.status_code is StatusCode.UNSET  # contention is no error
            assert outer.start_time <= span.start_time <= span.end_time <= outer.end_time
        assert held.end_time - held.start_time >= 0.05e9
        assert refused.attributes["redlock.holder"] == "theirs"


async def test_the_time_of_each_node_is_its_own():
    """A node that is farther away than the others shows so, and they do not."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)
    async with LocalCluster(proxied=True) as cluster, Redlock(cluster.urls, ttl=2, node_timeout=0.5) as redlock:
        await script.wait_until(lambda: redlock.statistics().nodes_up == 5)
        exporter.add(redlock)
        cluster.delay(2, 0.06)
        for _ in range(5):
            async with redlock("x"):
                pass
        await script.wait_until(
            lambda: (
                registry.get_sample_value(
                    "redlock_node_replies_total", counted(list(redlock.statistics().node_states)[2], outcome="granted")
                )
                == 5
            )
        )
        bucket = "redlock_node_reply_duration_seconds_bucket"
        quick = {
            node: registry.get_sample_value(bucket, counted(node, error="", le="0.1"))
            for node in redlock.statistics().node_states
        }
        far, *near = (quick.pop(list(quick)[2]), *quick.values())
        assert far == 0
        assert all(near)
    exporter.close()


def counted(node, **labels):
    """The labels of what one node said to acquires."""
    return {"client": "default", "node": node, "operation": "acquire", **labels}


async def test_without_nodes_nothing_is_noted_of_answers(nodes):
    """And rounds are not even watched."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry, per_node=False)
    async with Redlock(nodes) as redlock:
        exporter.add(redlock)
        async with redlock("x"):
            pass
        assert not redlock._events.reply_listeners
        names = {sample.name for family in registry.collect() for sample in family.samples}
        assert "redlock_acquire_duration_seconds_count" in names
        assert "redlock_node_up" in names
        assert not any(name.startswith("redlock_node_answer") for name in names)
    exporter.close()


async def test_no_label_is_a_name_of_a_lock_or_a_password(nodes):
    """Names are without bound, and passwords are nobody's business."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)
    urls = [url.replace("redis://", "redis://default:hidden-password@") for url in nodes]
    async with Redlock(urls, wait=0.2) as redlock, Redlock(nodes) as other:
        exporter.add(redlock)
        exporter.add(other, client="other")
        async with redlock("secret-name"):  # a server without a password takes any
            pass
        for kind in (other, other.fair_lock, other.read_lock, other.write_lock):
            async with kind("secret-name"):
                pass
        async with other.semaphore("secret-name", permits=2):
            pass
        with served(registry) as scrape:
            text = await scrape()
    exporter.close()
    assert "hidden-password" not in text
    assert "secret-name" not in text
    assert Samples(text).each("redlock_acquire_duration_seconds_count", "lock", client="other") == dict.fromkeys(
        ("lock", "fair", "read", "write", "semaphore"), 1
    )


async def test_names_follow_prometheus_conventions():
    """Every metric begins with redlock_, has its unit last, and is described; its help is that of OpenTelemetry."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)
    for measure in metrics.METRICS:
        name = prometheus.prometheus_name(measure)
        assert name.startswith("redlock_")
        assert name.endswith("_seconds") == (measure.unit == "s")
        assert name.endswith("_ratio") == (measure.unit == "1")
        assert measure.description.endswith(".")
        assert bool(measure.buckets) == (measure.kind == "histogram")
    assert {prometheus.prometheus_name(measure) for measure in metrics.METRICS} == {f.name for f in registry.collect()}
    exporter.close()


async def test_clients_are_told_apart_and_let_go(nodes):
    """Two under one name are refused, one that is removed is heard no more, and the registry is left clean."""
    registry = CollectorRegistry()
    exporter = prometheus.Exporter(registry)
    async with Redlock(nodes) as one, Redlock(nodes) as other:
        exporter.add(one)
        with pytest.raises(ConfigurationError, match="already exported as"):
            exporter.add(other)
        with pytest.raises(ConfigurationError, match="no client"):
            exporter.remove("other")
        async with one("x"):
            pass
        exporter.remove()
        async with one("x"):
            pass
        assert not one._events.listeners
        labels = {"client": "default", "lock": "lock", "outcome": "acquired"}
        assert registry.get_sample_value("redlock_acquire_duration_seconds_count", labels) == 1
        assert registry.get_sample_value("redlock_leases_held", {"client": "default"}) is None
        with pytest.raises(ValueError, match="Duplicated"):
            prometheus.Exporter(registry)
        exporter.close()
        prometheus.Exporter(registry).close()


@pytest.mark.parametrize("make", [partial(prometheus.Exporter, CollectorRegistry()), otel.Exporter])
async def test_what_was_closed_takes_no_client(make, nodes):
    """It says so, rather than fail at each event; and closing it twice is closing it."""
    exporter = make()
    async with Redlock(nodes) as redlock:
        exporter.close()
        exporter.close()
        with pytest.raises(ConfigurationError, match="closed exporter"):
            exporter.add(redlock)
        assert not redlock._events.listeners


@pytest.mark.parametrize(("module", "package"), [("otel", "opentelemetry"), ("prometheus", "prometheus_client")])
async def test_a_missing_library_is_named_with_its_remedy(module, package, monkeypatch):
    """As an import error that says what to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"redlock_async.{module}")
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'redlock-async\[{module}\]'"):
        __import__(f"redlock_async.{module}")
