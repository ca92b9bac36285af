"""The dashboard, the alerts and the page ask for what the exporter has: every query is read, and held against it."""

import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

from redlock_async import metrics, prometheus
from redlock_async.events import Kind, NodeState, Reason, Verdict

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
    prometheus.spelled(measure) + suffix: measure for measure in metrics.MEASURES for suffix in SUFFIXES[measure.kind]
}
OF_THE_SCRAPE = {"job", "instance"}
VALUES = {
    "reason": set(get_args(Reason)),
    "verdict": set(get_args(Verdict)),
    "outcome": {*metrics.ENDS_OF_ACQUIRE, "released", "lost", "extended", "failed"},
    "operation": {"acquire", "fence", "release", "extend", "repair", "downgrade", "queue", "latch"},
}


def labels_of(series):
    """What one may ask of that series."""
    measure = SERIES[series]
    return {"client", *measure.labels, *OF_THE_SCRAPE, *(("le",) if series.endswith("_bucket") else ())}


@pytest.mark.parametrize("where", QUERIES)
def test_every_query_is_one_that_the_exporter_can_answer(where):
    """It parses, its metrics exist with that suffix, they have those labels, and the labels can have those values."""
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


def test_what_is_measured_is_shown():
    """Each metric has a place in the dashboard."""
    shown = {SERIES[s.metric] for where, text in QUERIES.items() if "panel" in where for s in Query(text).selectors}
    assert shown == {*metrics.MEASURES}


def test_the_dashboard_can_be_imported_anywhere():
    """The data source is a variable, panels do not overlap, and each has an id and a unit of its own."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "job", "client"}
    assert variables["datasource"]["type"] == "datasource"
    for name in ("job", "client"):
        metric = re.match(r"label_values\((\w+)", variables[name]["definition"])[1]
        assert SERIES[metric].kind != "gauge"  # which is not there with several workers
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
    """Each has a severity and a summary whose labels it has, and the page says what it means and what to do."""
    explained = re.findall(r"^\| `(Redlock\w+)` \|", PAGE, re.MULTILINE)
    assert explained == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        query = Query(rule["expr"])
        has = set(query.grouped) or set.union(*(labels_of(each.metric) for each in query.selectors))
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= has


def test_the_page_has_every_metric_with_its_labels():
    """In the table, in its order, with type and labels."""
    rows = re.findall(r"^\| `(redlock_\w+)` \| (\w+) \| (.*?) \|", PAGE, re.MULTILINE)
    expected = [
        (prometheus.spelled(m) + ("_total" if m.kind == "counter" else ""), m.kind, list(m.labels))
        for m in metrics.MEASURES
    ]
    got = [(name, kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows]
    assert sorted(got) == sorted(expected)


def test_the_page_has_every_event_and_every_reason():
    """In their tables."""
    words = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {*get_args(Kind), *get_args(Reason)} <= {*words}
    assert {*words} <= {*get_args(Kind), *get_args(Reason), *SERIES, *(prometheus.spelled(m) for m in metrics.MEASURES),
                        *(rule["alert"] for rule in ALERTS)}  # fmt: skip
    assert get_args(NodeState) == ("up", "held_out", "down")


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
def test_a_query_that_is_wrong_is_refused(wrong):
    """Else it would prove nothing that the others are read."""
    with pytest.raises((SyntaxError, IndexError)):
        Query(wrong)
