"""The page of a run: whole, well-formed, on its own, and with nothing in it but what was measured."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from bench_samples import P50, RATE, latencies, record, run

from benchmarks import charts, page, plots
from benchmarks.contenders import ENTRIES

VOID = {"meta", "br", "link", "img", "input", "hr"}

EVIL = '</title><script>alert("1")</script><img src=x onerror=y> & µ'


class Outline(HTMLParser):
    """Every element of a page, all of them closed in the right order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        """The attributes of each of those."""
        return [attributes for name, attributes in self.tags if name == tag]


def whole_run():
    """Something for every part of the page."""
    names = [entry.name for entry in ENTRIES]
    records = [record("one", name, P50, [100, 120], extra=latencies(90 + 10 * i)) for i, name in enumerate(names)]
    for tasks in (1, 10, 100):
        records += [
            record(f"tasks-{tasks}", name, RATE, [1000 * tasks, 1100 * tasks], group="tasks", at=tasks)
            for name in names
        ]
    for group, ats in (("nodes", (1, 3, 5)), ("round trip", (1, 20))):
        records += [record(f"{group}-{at}", "ours", P50, [100 * at], group=group, at=at) for at in ats]
    records.append(record("handover", "ours", P50, [400], extra={"p99": 500.0}))
    course = {"series": [[i / 100, 100 + i] for i in range(500)], "marks": [[1.5, "frozen"], [3.0, "healed"]]}
    records.append(record("frozen-1", "ours", P50, [1.1], extra=course))
    records.append(record("one more", "pottery", P50, [], missing="no pip here"))
    return run(*records)


@pytest.fixture(scope="module")
def text():
    """The page of that run."""
    return page.render(whole_run())


@pytest.fixture(scope="module")
def outline(text):
    """The same, taken apart."""
    return Outline(text)


def test_it_has_every_part(outline):
    """And a link to each."""
    parts = [attributes["id"] for attributes in outline.all("section")]
    assert parts == [
        "goals",
        "contenders",
        "latency",
        "tasks",
        "nodes",
        "round-trip",
        "handover",
        "faults",
        "everything",
    ]
    assert [attributes["href"] for attributes in outline.all("a")] == [f"#{part}" for part in parts]


def test_it_says_where_the_figures_come_from(text):
    """The machine, the versions, the commit."""
    for words in (
        "a processor, 2 CPUs",
        "Valkey 9.1.2",
        "redis 8.1.0, hiredis 3.5.0",
        "0123456789ab",
        "CPython 3.11.7",
    ):
        assert words in text


def test_it_fetches_nothing_and_runs_nothing(text, outline):
    """Offline it is the same page, and a browser is told to keep it so."""
    assert not re.findall(r"https?://|url\(|@import|<script|\son\w+=", text)
    assert {"src", "srcset", "data"}.isdisjoint(key for _, attributes in outline.tags for key in attributes)
    assert all(attributes["href"].startswith("#") for attributes in outline.all("a"))
    (policy,) = (each["content"] for each in outline.all("meta") if "http-equiv" in each)
    assert "default-src 'none'" in policy


def test_what_a_library_says_is_text():
    """Names, titles and errors are not the page's own."""
    evil = record(EVIL, EVIL, P50, [1.0, 2.0], title=EVIL, contender_title=EVIL, extra=latencies(10), missing=EVIL)
    swept = [record(f"e{at}", EVIL, P50, [1.0], title=EVIL, group="nodes", at=at) for at in (1, 2)]
    rendered = page.render(run(evil, *swept, machine=EVIL, commit=EVIL, libraries={EVIL: EVIL}))
    outline = Outline(rendered)
    assert outline.all("script") == outline.all("img") == []
    assert "<script" not in rendered
    assert EVIL in "".join(outline.words)


def test_every_picture_is_told_in_words(text):
    """With a title and a description of its own, as XML that other programs read too."""
    pictures = re.findall(r'<svg class="plot".*?</svg>', text)
    assert len(pictures) == 6
    names = set()
    for picture in pictures:
        tree = ET.fromstring(picture)  # noqa: S314 - our own
        title, desc = tree[0], tree[1]
        assert (title.tag, desc.tag) == ("title", "desc")
        assert title.text
        assert desc.text
        assert tree.get("role") == "img"
        assert tree.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
        names.add(title.get("id"))
    assert len(names) == len(pictures)


def test_nothing_is_drawn_beyond_the_picture(text):
    """No text that is cut, no line that leaves it."""
    for picture in re.findall(r'<svg class="plot".*?</svg>', text):
        tree = ET.fromstring(picture)  # noqa: S314 - our own
        width, height = map(float, tree.get("viewBox").split()[2:])
        for element in tree.iter("text"):
            # A letter of 11 px is about 6 wide.
            long = 6 * len(element.text)
            if element.get("transform"):
                assert long <= height
                continue
            x, y = float(element.get("x")), float(element.get("y"))
            left = {"start": x, "middle": x - long / 2, "end": x - long}[element.get("text-anchor")]
            assert left >= -2, element.text
            assert left + long <= width + 2, element.text
            assert 8 <= y <= height
        for path in (element.get("d") for element in tree.iter("path")):
            for a, b in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path):
                assert -1 <= float(a) <= width + 1
                assert -1 <= float(b) <= height + 1


def test_every_table_has_its_headings(outline):
    """Of columns and of rows."""
    assert len(outline.all("table")) == 3
    assert all("scope" in attributes for attributes in outline.all("th"))
    assert {attributes["scope"] for attributes in outline.all("th")} == {"col", "row", "rowgroup"}


def test_every_contender_can_be_told_without_its_colour():
    """By its dash and by its marker; and twins have one colour."""
    styles = charts.styles([entry.name for entry in ENTRIES])
    looks = [(plots.DASHES[style.dash % len(plots.DASHES)], style.mark % plots.MARKERS) for style in styles.values()]
    assert len({dash for dash, _ in looks}) == len({mark for _, mark in looks}) == len(ENTRIES)
    assert len({plots.marker(mark, 0, 0, 3) for _, mark in looks}) == len(ENTRIES)
    assert styles["ours"].colour == styles["ours-plain"].colour != styles["floor"].colour
    css = page.STYLE.read_text("utf-8")
    assert all(css.count(f"--{style.colour}:") == 2 for style in styles.values()), "one each for light and dark"


def test_an_interrupted_run_says_so():
    """At the top, where it is not overlooked; and parts without figures are left out."""
    rendered = page.render(run(record("one", "ours", P50, [1.0]), interrupted=True))
    assert rendered.index("This run was interrupted") < rendered.index("<main>")
    assert 'id="latency"' not in rendered


def test_a_run_without_any_figure_is_a_page_too():
    """Nothing was measured: that is what it says."""
    assert "0 of 0 goals reached" in page.render(run())


# -- drawing ----------------------------------------------------------------------------------------------------------


def test_a_distribution_is_the_median_over_the_rounds():
    """At each fraction; a round of another shape is left out."""
    told = [latencies(scale) for scale in (10, 20, 90)]
    measured = replace(record("one", "ours", P50, []), rounds=[*told, {"latencies": [1, 2]}, {}])
    assert charts.distribution(measured) == told[1]["latencies"]


@pytest.mark.parametrize("values", [[120, 130], [41.2, 42.9], [90, 900_000], [3, 3], [0.004, 7e6]])
def test_a_log_axis_holds_its_values_between_few_ticks(values):
    """However narrow or wide the range is."""
    axis = plots.axis("", values, charts.tick, log=True)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert 2 <= len(axis.ticks) <= plots.MOST_TICKS + 1
    assert [axis.part(axis.low), axis.part(axis.high)] == [0, 1]
    assert axis.part(math.sqrt(axis.low * axis.high)) == pytest.approx(0.5)


@pytest.mark.parametrize(("high", "last"), [(1, 1), (7, 8), (95, 100), (0.031, 0.04), (0, 1), (41, 50)])
def test_a_linear_axis_begins_at_zero(high, last):
    """So that lengths are to scale."""
    axis = plots.axis("", [high], charts.short_count)
    assert (axis.low, axis.ticks[0]) == (0, 0)
    assert axis.high == pytest.approx(last)
    assert axis.ticks[-1] == pytest.approx(last)


@pytest.mark.parametrize("wanted", [[10, 10, 10], [100, 99, 98], [0, 0, 100], [50], []])
def test_labels_are_pushed_apart_and_stay_within(wanted):
    """In the order in which they were."""
    placed = plots.spaced(wanted, 12, 0, 100)
    ranked = sorted(placed)
    assert all(b - a >= 12 - 1e-9 for a, b in pairwise(ranked))
    assert all(-1e-9 <= each <= 100 + 1e-9 for each in placed)
    assert sorted(range(len(wanted)), key=lambda i: wanted[i]) == sorted(range(len(wanted)), key=lambda i: placed[i])


def test_a_long_series_keeps_its_extremes():
    """A spike of one point is what it is looked at for."""
    points = [(float(i), 100.0) for i in range(5000)]
    points[1234], points[4321] = (1234.0, 9000.0), (4321.0, 1.0)
    kept = plots.thinned(points)
    assert len(kept) <= plots.MOST_POINTS
    assert {points[1234], points[4321]} <= set(kept)
    assert kept == sorted(kept)


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [(0.5, "0.500 µs"), (123.4, "123 µs"), (999.9, "1.00 ms"), (41234, "41.2 ms"), (2e6, "2.00 s")],
)
def test_a_duration_is_in_the_unit_that_fits(microseconds, words):
    """With three significant digits."""
    assert charts.duration(microseconds) == words
