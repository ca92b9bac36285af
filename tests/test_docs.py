"""The documentation site builds without warnings, its links work, and it loads nothing from other hosts."""

import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import redlock_async
import redlock_async.testing
from redlock_async.testing import simulation

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 120.0
"""Seconds a build may take on a busy machine; normally it takes four."""

FETCHED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src")}
"""Attributes that a browser loads automatically."""


@dataclass
class Links(HTMLParser):
    """The anchors of one page of the site, and its links."""

    page: Path
    anchors: set[str] = field(default_factory=set)
    followed: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self):
        super().__init__()
        self.feed(self.page.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        """Collect ids and links."""
        given = dict(attrs)
        self.anchors |= {given["id"]} if given.get("id") else set()
        for name in ("href", "src"):
            if given.get(name) and (tag, name) in FETCHED and given.get("rel") not in {"canonical", "next", "prev"}:
                self.fetched.append(given[name])
            elif given.get(name):
                self.followed.append(given[name])


def build(folder, config=ROOT / "mkdocs.yml"):
    """Build the site in that folder and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},  # a notice about the future of MkDocs, not about these pages
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages, by file."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return {page: Links(page) for page in folder.rglob("*.html")}


def test_every_page_is_there(site):
    """The site has each page of docs/, the README as the first page, the other files of the root, and the examples."""
    (folder,) = [page.parent for page in site if page.name == "404.html"]
    pages = {page.relative_to(folder).with_suffix("").as_posix() for page in site}
    wanted = {page.stem for page in (ROOT / "docs").glob("*.md")} | {
        *("index", "changelog", "contributing", "security-policy", "examples/index", "404")
    }
    assert pages == wanted | {f"examples/{page.stem}" for page in (ROOT / "examples").glob("*.py")}


def test_links_work(site):
    """Every link within the site leads to an existing file and anchor."""
    for page, links in site.items():
        for link in (*links.followed, *links.fetched):
            parts = urlsplit(link)
            if parts.scheme or page.name == "404.html":  # this page is served for any path
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file(), f"{page.name}: {link}"
            if parts.fragment and target in site:
                assert unquote(parts.fragment) in site[target].anchors, f"{page.name}: {link}"


def test_nothing_is_loaded_from_other_hosts(site):
    """Fonts, scripts and pictures are local, so the site works without a network."""
    assert [(page.name, each) for page, links in site.items() for each in links.fetched if urlsplit(each).netloc] == []


def test_every_picture_has_both_themes_and_an_alternative_text(site):
    """A picture is shown in the light or in the dark theme, and described for readers who cannot see it."""
    shown = set()
    for page in site:
        for theme, source, alt in re.findall(
            r'<img class="(\w+)" src="([^"]+)" alt="([^"]*)"', page.read_text("utf-8")
        ):
            assert source.endswith(f"-{theme}.svg"), f"{page.name}: {source}"
            assert (page.parent / source).is_file(), f"{page.name}: {source}"
            assert len(alt) > 60, f"{page.name}: {source}"
            shown.add(Path(source).name)
        assert "<picture>" not in page.read_text("utf-8"), page.name
    assert shown == {picture.name for picture in (ROOT / "docs" / "pictures").iterdir()}


def test_code_and_tables_are_rendered(site):
    """No fence, table row or comment of ours is left in the text of a page."""
    for page in site:
        text = page.read_text("utf-8")
        for markup in ("```", "\n| ", "reference: redlock_async", "<p>:::"):
            assert markup not in text, f"{page.name}: {markup}"


def test_every_public_name_is_in_the_reference(site):
    """Each public name has an anchor on the page, and a row in the tables that GitHub shows."""
    (page,) = [page for page in site if page.name == "api.html"]
    shown = (ROOT / "docs" / "api.md").read_text("utf-8")
    for module in (redlock_async, redlock_async.testing, simulation):
        prefix = "simulation." if module is simulation else ""
        for name in module.__all__:
            assert f"`{prefix}{name}`" in shown, name
            if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name)):
                assert f"{module.__name__}.{name}" in site[page].anchors, name


def test_a_broken_link_fails_the_build(tmp_path):
    """The build fails if a page links to a missing section."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "faq.md").write_text("# Questions\n\n[away](../README.md#nowhere)\n", "utf-8")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        "site_name: broken\nstrict: true\ntheme: {name: mkdocs}\nvalidation: {anchors: warn}\n"
        f"hooks: [{ROOT / 'website' / 'hooks.py'}]\n",
        "utf-8",
    )
    done = build(tmp_path / "site", config)
    assert done.returncode != 0
    assert "nowhere" in done.stderr
