"""The pictures of the documentation are those that website/pictures.py draws, from output that is still real."""

import asyncio
import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from redlock_async import Redlock
from redlock_async.testing import LocalCluster
from website import pictures, record, terminal

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = dict(pictures.pictures())


def recorded(name):
    """The last frame of a recording, as lines."""
    return terminal.text_of(terminal.load(record.RECORDINGS / f"{name}.json")[-1])


def test_pictures_are_up_to_date():
    """Otherwise run `make pictures`."""
    stored = {path.name: path.read_text("utf-8") for path in pictures.FOLDER.iterdir()}
    assert stored.keys() == DRAWN.keys()
    assert [name for name in stored if stored[name] != DRAWN[name]] == []


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_complete(name):
    """It is valid, has a title, fits its frame, and loads nothing."""
    root = ET.fromstring(DRAWN[name])  # noqa: S314 - drawn by us
    assert root.find(f"{SVG}title").text
    assert not re.search(r"href|url\(|@import", DRAWN[name])
    for text in root.iter(f"{SVG}text"):
        if text.get("x") is not None and text.get("text-anchor") is None:
            # Half of the font's size is about the mean width of a letter.
            assert float(text.get("x")) + len(text.text) * float(text.get("font-size")) * 0.5 < float(root.get("width"))


@pytest.mark.parametrize("name", sorted({name.rpartition("-")[0] for name in DRAWN}))
def test_both_themes_say_the_same(name):
    """They differ in colours only."""
    light, dark = (re.sub(r"#[0-9a-f]{6}", "", DRAWN[f"{name}-{theme}.svg"]) for theme in ("light", "dark"))
    assert light == dark


def luminance(colour):
    """As WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_texts_can_be_read():
    """Each text colour has a contrast of 4.5 to the background of its theme."""
    for theme in pictures.THEMES:
        for colour in (theme.text, theme.muted, theme.green, theme.red, theme.blue, theme.purple):
            high, low = sorted((luminance(colour), luminance(theme.background)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (theme.name, colour)


# -- the recordings are what the commands print today ----------------------------------------------------------------


async def printed(cluster, *command):
    """The lines that a command prints on those nodes."""
    process = await asyncio.create_subprocess_exec(
        *record.PROGRAM, *command,
        env=os.environ | {"REDLOCK_NODES": ",".join(cluster.urls)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    output, _ = await process.communicate()
    return output.decode().splitlines()


@pytest.mark.asyncio
@pytest.mark.redis
async def test_the_recordings_have_today_s_columns_and_checks(embedded):  # noqa: ARG001 - it starts servers
    """Otherwise run `python -m website.record` and `make pictures`."""
    with LocalCluster(5, server_args=record.DURABLE) as cluster:
        checks = [
            line.split()[1] for line in await printed(cluster, "doctor") if re.match(r"(ok|warning|failed) ", line)
        ]
        assert [line.split()[1] for line in recorded("doctor") if line.startswith("ok ")] == checks
        await printed(cluster, "run", "warm-up", "--", "true")
        (heading, *_) = await printed(cluster, "status")
        (shown,) = [line for line in recorded("status") if line.startswith("node ")]
        assert set(shown.replace("latency history", "").split()) <= set(heading.split())
        async with Redlock(cluster.urls) as redlock, redlock("orders:42"):
            (heading, *_) = await printed(cluster, "locks", "orders:42")
        assert set(heading.split()) == set(recorded("locks")[0].split()) - {"waiting"}


TEMPLATE = re.compile(r"\d[\d.,]*|[━╌]+|\s+")


@pytest.mark.thorough
@pytest.mark.redis
def test_the_demo_still_ends_like_its_recording(embedded):  # noqa: ARG001 - it starts servers
    """Run it on a terminal, and compare the lines below the last frame, without their numbers."""
    command = [sys.executable, "-m", "redlock_async", "demo", "--increments", "60"]
    lines = terminal.text_of(terminal.record(command, record.environment())[-1])
    now, then = ([TEMPLATE.sub(" ", line) for line in shown if line][-4:] for shown in (lines, recorded("demo")))
    assert now == then
    assert lines[0].split(" processes")[0] == recorded("demo")[0].split(" processes")[0]


def test_figures_are_those_of_the_page():
    """The bars show the row of each library."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "performance.md").read_text("utf-8")
    for throughput, _ in pictures.figures().values():
        assert f" {throughput:,.0f} " in page
