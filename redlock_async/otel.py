"""Metrics and spans of a client through the API of OpenTelemetry; `metrics` defines the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from redlock_async import Event, __version__
from redlock_async.metrics import ENDS_OF_ACQUIRE, METRICS, REPLY_TIME, Metric, samples, zero_series
from redlock_async.metrics import Exporter as Base

try:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation, get_meter
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer
except ModuleNotFoundError as exc:
    msg = "redlock_async.otel needs opentelemetry-api: pip install 'redlock-async[otel]'"
    raise ModuleNotFoundError(msg, name=exc.name) from exc

Attributes = dict[str, str | int | Sequence[str]]

DATABASE: dict[Metric, str] = {REPLY_TIME: "db.client.operation.duration"}
"""The metrics that have a name in the semantic conventions for databases."""

FAULTS = frozenset({"unavailable", "failed", "lost"})
"""The outcomes that make a span an error. Contention does not."""


class Exporter(Base):
    """Counts, times and traces the locks of the clients that you `add`; reads their gauges at each collection.

    One exporter serves all clients of a process. Without providers it uses the global ones. `per_node=False` leaves out
    the replies of single nodes, which are most of the cost of exporting; `spans=False` leaves out the spans.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        per_node: bool = True,
        spans: bool = True,
    ) -> None:
        super().__init__(per_node=per_node)
        meter = get_meter("redlock_async", __version__, meter_provider)
        self._histograms: dict[Metric, Histogram] = {}
        self._totals: dict[tuple[str, Metric, tuple[str, ...]], float] = {}
        """The values of the counters, read at each collection. Adding to an instrument for every event would cost more
        than the rest of the listener."""
        for metric in METRICS:
            name, unit, description = DATABASE.get(metric, metric.name), metric.unit, metric.description
            if metric.kind == "histogram":
                self._histograms[metric] = meter.create_histogram(
                    name, unit, description, explicit_bucket_boundaries_advisory=metric.buckets
                )
            elif metric.kind == "counter":
                meter.create_observable_counter(name, [partial(self._total, metric)], unit, description)
            else:
                meter.create_observable_gauge(name, [partial(self._gauge, metric)], unit, description)
        self._tracer = get_tracer("redlock_async", __version__, tracer_provider) if spans else None

    def close(self) -> None:
        """Stop exporting. The instruments stay, without values, because the API cannot remove one."""
        super().close()
        self._totals.clear()

    def _total(self, wanted: Metric, _options: CallbackOptions) -> Iterable[Observation]:
        for (client, metric, labels), total in tuple(self._totals.items()):
            if metric is wanted:
                yield Observation(total, _attributes(metric, client, labels))

    def _gauge(self, wanted: Metric, _options: CallbackOptions) -> Iterable[Observation]:
        for client, (metric, value, labels) in self._gauges():
            if metric is wanted:
                yield Observation(value, _attributes(metric, client, labels))

    def _listener(self, client: str) -> Callable[[Event], object]:
        known: dict[tuple[Metric, tuple[str, ...]], Attributes] = {}
        totals, histograms = self._totals, self._histograms

        def listen(event: Event) -> None:
            for metric, value, labels in samples(event):
                if metric.kind == "counter":
                    key = (client, metric, labels)
                    totals[key] = totals.get(key, 0) + value
                else:
                    attributes = known.get((metric, labels))
                    if attributes is None:
                        attributes = known[metric, labels] = _attributes(metric, client, labels)
                        for counter, counter_labels in zero_series(metric, labels):
                            totals.setdefault((client, counter, counter_labels), 0)
                    histograms[metric].record(value, attributes)
            if event.kind in SPANS and self._tracer is not None:
                self._trace(event, client)

        return listen

    def _trace(self, event: Event, client: str) -> None:
        """Record the span of an acquire or a lease that ended, in the trace of the task that waited or releases."""
        assert self._tracer is not None  # noqa: S101 - checked by the caller
        if event.reason == "missing_at_release":
            return  # its span ended with the release
        ended = time.time_ns()
        attributes: Attributes = {
            "redlock.client": client,
            "redlock.names": event.names,
            "redlock.lock": event.lock_kind or "",
            "redlock.outcome": event.kind,
        }
        if event.holder is not None:
            attributes["redlock.holder"] = event.holder
        if event.reason is not None:
            attributes["redlock.reason"] = event.reason
        if event.error is not None:
            attributes["error.type"] = type(event.error).__name__
        span = self._tracer.start_span(
            SPANS[event.kind],
            # A timer notices a loss, and belongs to no task's trace.
            context=Context() if event.kind == "lost" else None,
            kind=SpanKind.CLIENT if event.kind in ENDS_OF_ACQUIRE else SpanKind.INTERNAL,
            attributes=attributes,
            start_time=ended - round((event.seconds or 0.0) * 1e9),
        )
        if event.kind in FAULTS:
            span.set_status(Status(StatusCode.ERROR, str(event.error)))
        span.end(ended)


SPANS = dict.fromkeys(ENDS_OF_ACQUIRE, "redlock acquire") | dict.fromkeys(("released", "lost"), "redlock hold")
"""The name of the span that an event ends."""


def _attributes(metric: Metric, client: str, labels: tuple[str, ...]) -> Attributes:
    """Convert labels to attributes, named by the semantic conventions where these have a name."""
    given = dict(zip(metric.labels, labels, strict=True))
    attributes: Attributes = {"redlock.client": client}
    if metric in DATABASE:
        attributes["db.system.name"] = "redis"
        attributes["db.operation.name"] = given.pop("operation")
        if error := given.pop("error"):
            attributes["error.type"] = error
        host, colon, port = given["node"].partition("/")[0].rpartition(":")
        if colon and port.isdecimal():
            attributes["server.address"], attributes["server.port"] = host, int(port)
        else:
            attributes["server.address"] = given["node"]
    return attributes | {f"redlock.{label}": value for label, value in given.items()}
