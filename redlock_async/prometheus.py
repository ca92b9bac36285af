"""Metrics of a client in a registry of prometheus_client; what is measured is in `metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from redlock_async import Event
from redlock_async.metrics import MEASURES, Measure, begun, readings
from redlock_async.metrics import Exporter as Base

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
except ModuleNotFoundError as exc:
    msg = "redlock_async.prometheus needs prometheus-client: pip install 'redlock-async[prometheus]'"
    raise ModuleNotFoundError(msg, name=exc.name) from exc


class Exporter(Base):
    """Counts and times what the clients do that it is told of, and reads their gauges at each scrape.

    One serves all the clients of a process. Clients are added and removed on their event loop; a scrape may come in any
    thread. With `nodes=False` it does without what each node answered, which is most of what exporting costs.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, nodes: bool = True) -> None:
        super().__init__(nodes=nodes)
        self._registry = registry
        self._instruments: dict[Measure, Counter | Histogram] = {}
        try:
            for measure in MEASURES:
                if measure.kind != "gauge":
                    self._instruments[measure] = _instrument(measure, registry)
            registry.register(self)
        except ValueError:
            self._unregister()
            raise

    def close(self) -> None:
        """Stop exporting, and take all of it out of the registry."""
        if not self._closed:
            super().close()
            self._unregister()
            self._registry.unregister(self)

    def _unregister(self) -> None:
        for instrument in self._instruments.values():
            self._registry.unregister(instrument)
        self._instruments.clear()

    def _listener(self, client: str) -> Callable[[Event], object]:
        bound: dict[tuple[Measure, tuple[str, ...]], Callable[[float], None]] = {}

        def listen(event: Event) -> None:
            for measure, value, labels in readings(event):
                add = bound.get((measure, labels))
                if add is None:
                    add = bound[measure, labels] = self._bind(measure, (client, *labels))
                    for other, its_labels in begun(measure, labels):
                        self._instruments[other].labels(client, *its_labels)
                add(value)

        return listen

    def _bind(self, measure: Measure, labels: tuple[str, ...]) -> Callable[[float], None]:
        instrument = self._instruments[measure]
        if isinstance(instrument, Histogram):
            return instrument.labels(*labels).observe
        return instrument.labels(*labels).inc

    # What a registry wants of a collector

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The gauges, without values."""
        return _families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, as they are now."""
        families = _families()
        for client, (measure, value, labels) in self._gauges():
            families[measure].add_metric([client, *labels], value)
        yield from families.values()


def spelled(measure: Measure) -> str:
    """A metric's name here, without the `_total` that a counter has besides."""
    return measure.name.replace(".", "_") + ("_seconds" if measure.unit == "s" else "")


def _families() -> dict[Measure, GaugeMetricFamily]:
    return {
        measure: GaugeMetricFamily(spelled(measure), measure.description, labels=["client", *measure.labels])
        for measure in MEASURES
        if measure.kind == "gauge"
    }


def _instrument(measure: Measure, registry: CollectorRegistry) -> Counter | Histogram:
    name, labels = spelled(measure), ("client", *measure.labels)
    if measure.kind == "histogram":
        return Histogram(name, measure.description, labels, buckets=measure.buckets, registry=registry)
    return Counter(name, measure.description, labels, registry=registry)
