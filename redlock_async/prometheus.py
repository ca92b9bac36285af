"""Metrics of a client in a registry of prometheus_client; `metrics` defines the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from redlock_async import Event
from redlock_async.metrics import METRICS, Metric, samples, zero_series
from redlock_async.metrics import Exporter as Base

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
except ModuleNotFoundError as exc:
    msg = "redlock_async.prometheus needs prometheus-client: pip install 'redlock-async[prometheus]'"
    raise ModuleNotFoundError(msg, name=exc.name) from exc


class Exporter(Base):
    """Counts and times the locks of the clients that you `add`, and reads their gauges at each scrape.

    One exporter serves all clients of a process. Add and remove a client on its event loop; a scrape may run in any
    thread. `per_node=False` leaves out the replies of single nodes, which are most of the cost of exporting. Raises
    ValueError if the registry has these metrics already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, per_node: bool = True) -> None:
        super().__init__(per_node=per_node)
        self._registry = registry
        self._instruments: dict[Metric, Counter | Histogram] = {}
        try:
            for metric in METRICS:
                if metric.kind != "gauge":
                    self._instruments[metric] = _instrument(metric, registry)
            registry.register(self)
        except ValueError:
            self._unregister()
            raise

    def close(self) -> None:
        """Stop exporting, and remove all metrics from the registry."""
        if not self._closed:
            super().close()
            self._unregister()
            self._registry.unregister(self)

    def _unregister(self) -> None:
        for instrument in self._instruments.values():
            self._registry.unregister(instrument)
        self._instruments.clear()

    def _listener(self, client: str) -> Callable[[Event], object]:
        bound: dict[tuple[Metric, tuple[str, ...]], Callable[[float], None]] = {}

        def listen(event: Event) -> None:
            for metric, value, labels in samples(event):
                add = bound.get((metric, labels))
                if add is None:
                    add = bound[metric, labels] = self._bind(metric, (client, *labels))
                    for counter, counter_labels in zero_series(metric, labels):
                        self._instruments[counter].labels(client, *counter_labels)
                add(value)

        return listen

    def _bind(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], None]:
        instrument = self._instruments[metric]
        if isinstance(instrument, Histogram):
            return instrument.labels(*labels).observe
        return instrument.labels(*labels).inc

    # The interface of a collector

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges without values."""
        return _families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Iterate over the gauges with their current values."""
        families = _families()
        for client, (metric, value, labels) in self._gauges():
            families[metric].add_metric([client, *labels], value)
        yield from families.values()


def prometheus_name(metric: Metric) -> str:
    """Return a metric's name in Prometheus, without the `_total` that counters end with."""
    return metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")


def _families() -> dict[Metric, GaugeMetricFamily]:
    return {
        metric: GaugeMetricFamily(prometheus_name(metric), metric.description, labels=["client", *metric.labels])
        for metric in METRICS
        if metric.kind == "gauge"
    }


def _instrument(metric: Metric, registry: CollectorRegistry) -> Counter | Histogram:
    name, labels = prometheus_name(metric), ("client", *metric.labels)
    if metric.kind == "histogram":
        return Histogram(name, metric.description, labels, buckets=metric.buckets, registry=registry)
    return Counter(name, metric.description, labels, registry=registry)
