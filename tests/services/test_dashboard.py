"""The queries of the dashboard and the alerts, and the tables of the page, match the exporter's metrics."""

import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

from redlock_async import metrics, prometheus
from redlock_async.events import Kind, NodeState, Reason, ReplyOutcome

sys.path.insert(0, str(Path(__file__).parent))
from promql import Query

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "observability.md").read_text("utf-8")
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [
    rule
    for group in yaml.safe_load((DOCS / "prometheus-alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
QUERIES = {f"panel {p['title']}, {t['refId']}": t["expr"] for p in PANELS for t in p["targets"]}
QUERIES |= {f"alert {rule['alert']}": rule["expr"] for rule in ALERTS}

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {
    prometheus.prometheus_name(metric) + suffix: metric
    for metric in metrics.METRICS
    for suffix in SUFFIXES[metric.kind]
}
SCRAPE_LABELS = {"job", "instance"}
VALUES = {
    "reason": set(get_args(Reason)),
    "outcome": {*get_args(ReplyOutcome), *metrics.ENDS_OF_ACQUIRE, "released", "lost", "extended", "failed"},
    "operation": {"acquire", "fence", "release", "extend", "repair", "downgrade", "queue", "latch"},
}


def labels_of(series):
    """Return the labels of that series."""
    metric = SERIES[series]
    return {"client", *metric.labels, *SCRAPE_LABELS, *(("le",) if series.endswith("_bucket") else ())}


@pytest.mark.parametrize("where", QUERIES)
def test_every_query_matches_the_exporter(where):
    """Each query parses, and its metrics, suffixes, labels and label values exist."""
    query = Query(QUERIES[where])
    assert query.selectors
    for selector in query.selectors:
        assert selector.metric in SERIES
        for label, _, value in selector.matchers:
            assert label in labels_of(selector.metric)
            if label == "le":
                assert float(value) in SERIES[selector.metric].buckets
            elif label in VALUES:
                assert set(value.split("|")) <= VALUES[label]
        assert set(query.grouped) <= labels_of(selector.metric)
        # A counter is read as a rate or an increase, a gauge as it is.
        assert selector.ranged == (SERIES[selector.metric].kind != "gauge")


def test_every_metric_is_shown():
    """Each metric is in the dashboard."""
    shown = {SERIES[s.metric] for where, text in QUERIES.items() if "panel" in where for s in Query(text).selectors}
    assert shown == {*metrics.METRICS}


def test_the_dashboard_can_be_imported_anywhere():
    """The data source is a variable, panels do not overlap, and each has its own id and a unit."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "job", "client"}
    assert variables["datasource"]["type"] == "datasource"
    for name in ("job", "client"):
        metric = re.match(r"label_values\((\w+)", variables[name]["definition"])[1]
        assert SERIES[metric].kind != "gauge"  # gauges do not exist with several workers
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["fieldConfig"]["defaults"]["unit"]
    used = {word for text in QUERIES.values() for word in re.findall(r"\$(\w+)", text)}
    assert used == {"job", "client", "__rate_interval"}


def test_alerts_are_complete_and_explained():
    """Each alert has a severity, a summary with existing labels, and a row on the page."""
    explained = re.findall(r"^\| `(Redlock\w+)` \|", PAGE, re.MULTILINE)
    assert explained == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        query = Query(rule["expr"])
        has = set(query.grouped) or set.union(*(labels_of(each.metric) for each in query.selectors))
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= has


def test_the_page_has_every_metric_with_its_labels():
    """The table has every metric with its type and labels."""
    rows = re.findall(r"^\| `(redlock_\w+)` \| (\w+) \| (.*?) \|", PAGE, re.MULTILINE)
    expected = [
        (prometheus.prometheus_name(m) + ("_total" if m.kind == "counter" else ""), m.kind, list(m.labels))
        for m in metrics.METRICS
    ]
    got = [(name, kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows]
    assert sorted(got) == sorted(expected)


def test_the_page_has_every_event_and_every_reason():
    """The tables have every event and every reason."""
    words = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {*get_args(Kind), *get_args(Reason)} <= {*words}
    names = {*SERIES, *(prometheus.prometheus_name(metric) for metric in metrics.METRICS)}
    assert {*words} <= {*get_args(Kind), *get_args(Reason), *names, *(rule["alert"] for rule in ALERTS)}
    assert get_args(NodeState) == ("up", "quarantined", "down")


@pytest.mark.parametrize(
    "wrong",
    [
        "rate(redlock_refusals_total)",
        "sum by (le (x)",
        "histogram_quantile(0.9, sum by (le) (rate(x_count[5m])))",
        "histogram_quantile(0.9, sum by (node) (rate(x_bucket[5m])))",
        'x{lock="a"',
        "x{lock=a}",
        "x >",
        "x y",
        "sum x",
        "x[5]",
        "x ? y",
    ],
)
def test_a_wrong_query_is_rejected(wrong):
    """Otherwise the other tests would prove nothing."""
    with pytest.raises((SyntaxError, IndexError)):
        Query(wrong)
