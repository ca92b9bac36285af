"""Metrics and spans of a client through the API of OpenTelemetry; what is measured is in `metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from redlock_async import Event, __version__
from redlock_async.metrics import ANSWER_TIME, ENDS_OF_ACQUIRE, MEASURES, Measure, begun, readings
from redlock_async.metrics import Exporter as Base

try:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation, get_meter
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer
except ModuleNotFoundError as exc:
    msg = "redlock_async.otel needs opentelemetry-api: pip install 'redlock-async[otel]'"
    raise ModuleNotFoundError(msg, name=exc.name) from exc

Attributes = dict[str, str | int | Sequence[str]]

DATABASE: dict[Measure, str] = {ANSWER_TIME: "db.client.operation.duration"}
"""What has a name in the semantic conventions for databases, and their attributes."""

FAULTS = frozenset({"unavailable", "failed", "lost"})
"""What makes a span an error: contention does not."""


class Exporter(Base):
    """Counts, times and traces what the clients do that it is told of; gauges are read at each collection.

    One serves all the clients of a process. Without providers it uses the global ones. With `nodes=False` it does
    without what each node answered, which is most of what exporting costs; with `spans=False` without spans.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        nodes: bool = True,
        spans: bool = True,
    ) -> None:
        super().__init__(nodes=nodes)
        meter = get_meter("redlock_async", __version__, meter_provider)
        self._histograms: dict[Measure, Histogram] = {}
        self._totals: dict[tuple[str, Measure, tuple[str, ...]], float] = {}
        """What the counters have come to. Read when it is collected: to add to an instrument would cost more each time
        than all else that is done about an event."""
        for measure in MEASURES:
            name, unit, description = DATABASE.get(measure, measure.name), measure.unit, measure.description
            if measure.kind == "histogram":
                self._histograms[measure] = meter.create_histogram(
                    name, unit, description, explicit_bucket_boundaries_advisory=measure.buckets
                )
            elif measure.kind == "counter":
                meter.create_observable_counter(name, [partial(self._total, measure)], unit, description)
            else:
                meter.create_observable_gauge(name, [partial(self._gauge, measure)], unit, description)
        self._tracer = get_tracer("redlock_async", __version__, tracer_provider) if spans else None

    def close(self) -> None:
        """Stop exporting: the instruments stay, without values, for the API cannot take one back."""
        super().close()
        self._totals.clear()

    def _total(self, wanted: Measure, _options: CallbackOptions) -> Iterable[Observation]:
        for (client, measure, labels), total in tuple(self._totals.items()):
            if measure is wanted:
                yield Observation(total, _attributes(measure, client, labels))

    def _gauge(self, wanted: Measure, _options: CallbackOptions) -> Iterable[Observation]:
        for client, (measure, value, labels) in self._gauges():
            if measure is wanted:
                yield Observation(value, _attributes(measure, client, labels))

    def _listener(self, client: str) -> Callable[[Event], object]:
        known: dict[tuple[Measure, tuple[str, ...]], Attributes] = {}
        totals, histograms = self._totals, self._histograms

        def listen(event: Event) -> None:
            for measure, value, labels in readings(event):
                if measure.kind == "counter":
                    key = (client, measure, labels)
                    totals[key] = totals.get(key, 0) + value
                else:
                    attributes = known.get((measure, labels))
                    if attributes is None:
                        attributes = known[measure, labels] = _attributes(measure, client, labels)
                        for other, its_labels in begun(measure, labels):
                            totals.setdefault((client, other, its_labels), 0)
                    histograms[measure].record(value, attributes)
            if event.kind in SPANS and self._tracer is not None:
                self._trace(event, client)

        return listen

    def _trace(self, event: Event, client: str) -> None:
        """The span of something that is over: in the trace of the task that waited, or gives the lease back."""
        assert self._tracer is not None  # noqa: S101 - asked by the caller
        if event.reason == "gone":
            return  # its span ended with the release that found it gone
        ended = time.time_ns()
        attributes: Attributes = {
            "redlock.client": client,
            "redlock.names": event.names,
            "redlock.lock": event.lock or "",
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
            # A loss is noticed by a timer, which belongs to no task's trace.
            context=Context() if event.kind == "lost" else None,
            kind=SpanKind.CLIENT if event.kind in ENDS_OF_ACQUIRE else SpanKind.INTERNAL,
            attributes=attributes,
            start_time=ended - round((event.seconds or 0.0) * 1e9),
        )
        if event.kind in FAULTS:
            span.set_status(Status(StatusCode.ERROR, str(event.error)))
        span.end(ended)


SPANS = dict.fromkeys(ENDS_OF_ACQUIRE, "redlock acquire") | dict.fromkeys(("released", "lost"), "redlock hold")
"""The events that end something, and what it was."""


def _attributes(measure: Measure, client: str, labels: tuple[str, ...]) -> Attributes:
    """Labels as attributes, by the semantic conventions where there is a name for one."""
    given = dict(zip(measure.labels, labels, strict=True))
    attributes: Attributes = {"redlock.client": client}
    if measure in DATABASE:
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
