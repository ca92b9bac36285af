"""Render a run as a page: one file without scripts or external resources, for any screen, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from . import goals, plots
from .charts import Charts
from .report import Cell, Report, Spread, short, why
from .store import Record, Run

NAME = "index.html"
STYLE = Path(__file__).with_name("page.css")

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>redlock_async: benchmarks</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""

ABOUT = {
    "machine": "machine",
    "system": "system",
    "load": "load before",
    "cluster": "cluster",
    "server": "server",
    "python": "Python",
    "libraries": "libraries",
    "commit": "commit",
    "date": "date",
    "rounds": "rounds",
    "took": "took",
}

SWEEPS = (
    ("tasks", "Throughput against tasks", "Each task on its own name.", "tasks, log scale", True),
    ("nodes", "Cost against nodes", "The same on fewer and more nodes.", "nodes", False),
    ("round trip", "Cost against the round trip", "The same on more distant nodes.", "round trip, ms", False),
)
"""Groups of scenarios with their heading, text, axis, and whether it is logarithmic."""


def render(run: Run) -> str:
    """Return the whole page."""
    sections = [section for section in _sections(Report(run)) if section.body]
    links = "".join(f'<a href="#{each.anchor}">{escape(each.heading)}</a> ' for each in sections)
    parts = (
        f'<section id="{each.anchor}"><h2>{escape(each.heading)}</h2>\n<p>{escape(each.words)}</p>\n'
        f"{each.body}</section>\n"
        for each in sections
    )
    return (
        f"{HEAD}<style>\n{STYLE.read_text('utf-8')}</style></head>\n<body><header><h1>redlock_async: benchmarks</h1>\n"
        f'{_about(run.about)}<nav aria-label="Parts of this page">{links}</nav></header>\n'
        f"<main>\n{''.join(parts)}</main></body></html>\n"
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page, omitted if it is empty."""

    anchor: str
    heading: str
    words: str
    body: str


def _sections(report: Report) -> Iterator[Section]:
    verdicts, charts = goals.judge(report), Charts(report)
    yield Section(
        "goals",
        "Goals",
        f"{goals.summary(verdicts)}. Each figure is the median over the rounds. Ratios are computed within a round, "
        "and are comparable across machines.",
        _goals(verdicts),
    )
    yield Section(
        "contenders",
        "Contenders",
        "The floor is the bare protocol: the same commands on connections of the same kind, without lock logic. "
        "Each contender has the same colour, line and marker in all plots.",
        _contenders(report.run.records, charts),
    )
    yield Section(
        "latency",
        "Latency",
        "The share of operations that finished within a time. Further left is faster; a flat line has a long tail. "
        "Each line is the median over the rounds, with the p50 and the p99 next to the name.",
        _plots(charts.distributions()),
    )
    for group, heading, words, unit, log in SWEEPS:
        yield Section(
            group.replace(" ", "-"),
            heading,
            f"{words} The bar behind a point spans the lowest to the highest round.",
            _plots(charts.sweeps(group, unit, log=log)),
        )
    yield Section(
        "handover",
        "Hand-over",
        "From the release in one process to the acquire of a waiter in another. The marker is the median, the end "
        "of the line the p99.",
        _plots(charts.ranges("handover")),
    )
    yield Section(
        "faults",
        "Through a fault",
        "The first round over time, while nodes are frozen or dead.",
        _plots(charts.series()),
    )
    yield Section(
        "everything",
        "All measurements",
        "Each median with the lowest and the highest round. x floor: the median of the rounds' ratios to the bare "
        "protocol with the same kind of commands.",
        _everything(report),
    )


def _about(about: Mapping[str, Any]) -> str:
    """Return the origin of the figures: machine, versions, commit."""
    told = dict(about)
    told["machine"] = f"{about.get('machine', 'unknown')}, {about.get('cpus', '?')} CPUs"
    told["cluster"] = f"{about.get('nodes', '?')} masters, {about.get('cluster', 'unknown')}"
    told["rounds"] = f"{about.get('rounds', '?')} of {about.get('seconds', '?')} s"
    told["took"] = f"{about.get('took', '?')} s"
    libraries = about.get("libraries")
    if isinstance(libraries, Mapping):
        told["libraries"] = ", ".join(f"{name} {version}" for name, version in libraries.items())
    rows = "".join(
        f"<dt>{what}</dt><dd>{escape(str(told[key]))}</dd>" for key, what in ABOUT.items() if told.get(key) is not None
    )
    interrupted = "<p class='note'>This run was interrupted: it is not whole.</p>" if about.get("interrupted") else ""
    return f"<dl>{rows}</dl>{interrupted}\n"


def _goals(verdicts: Sequence[goals.Verdict]) -> str:
    return _table(("what", "goal", "n|median", "n roomy|rounds", "outcome"), map(_goal, verdicts))


def _goal(verdict: goals.Verdict) -> str:
    median = spread = ""
    if verdict.spread is not None:
        median, spread = short(verdict.spread.median), _spread(verdict.spread)
    kind = {True: "reached", False: "missed", None: "soft"}[verdict.reached]
    reason = f'<br><span class="soft">{escape(why(verdict.why_not))}</span>' if verdict.why_not else ""
    return (
        f'<tr><th scope="row">{escape(verdict.goal.what)}{reason}</th><td>{escape(verdict.goal.text)}</td>'
        f'<td class="n">{median}</td><td class="n roomy">{spread}</td><td class="{kind}">{verdict.word}</td></tr>'
    )


def _contenders(records: Sequence[Record], charts: Charts) -> str:
    rows = (
        f'<tr><th scope="row" class="who">{plots.sample(charts.styles[name])}{escape(name)}</th>'
        f"<td>{escape(record.contender_title)}</td><td>{escape(record.floor)}</td></tr>"
        for name, record in {record.contender: record for record in records}.items()
    )
    return _table(("contender", "what it is", "its floor"), rows)


def _everything(report: Report) -> str:
    rows: list[str] = []
    for title, records in groupby(report.run.records, lambda record: record.title):
        rows.append(f'</tbody><tbody><tr><th class="of" scope="rowgroup" colspan="6">{escape(title)}</th></tr>')
        for record in records:
            rows += _rows(report, record)
    return _table(("contender", "n|out of", "figure", "n|median", "n|rounds", "n|x floor"), rows)


def _rows(report: Report, record: Record) -> Iterator[str]:
    """Show each contender once, next to all of its rows."""
    cells = [_cell(each) for each in report.cells(record)]
    if record.missing is not None:
        cells.append(f'<td class="soft why" colspan="4">missing: {escape(why(record.missing))}</td>')
    n = round(sum(record.values("n")))
    span = f' rowspan="{len(cells)}"'
    who = f'<th scope="row" class="who"{span}>{escape(record.contender)}</th>'
    out_of = f'<td class="n"{span}>{f"{n:,}" if n else ""}</td>'
    for position, cell in enumerate(cells):
        yield f"<tr>{who + out_of if position == 0 else ''}{cell}</tr>"


def _cell(cell: Cell) -> str:
    ratio = "" if cell.ratio is None else short(cell.ratio.median)
    return (
        f"<td>{escape(cell.figure.label)}</td>"
        f'<td class="n">{short(cell.spread.median)} {escape(cell.figure.unit)}</td>'
        f'<td class="n">{_spread(cell.spread)}</td><td class="n">{ratio}</td>'
    )


def _spread(spread: Spread) -> str:
    return f"{short(spread.lowest)} .. {short(spread.highest)}"


def _plots(drawn: Iterable[str]) -> str:
    pictures = "".join(drawn)
    return pictures and f'<div class="plots">{pictures}</div>\n'


def _table(headings: Sequence[str], rows: Iterable[str]) -> str:
    """Split a heading of the form `class|text`."""
    body = "".join(rows)
    if not body:
        return ""
    parts = (heading.rpartition("|") for heading in headings)
    cells = "".join(f'<th scope="col" class="{kind}">{escape(text)}</th>' for kind, _, text in parts)
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>\n'
