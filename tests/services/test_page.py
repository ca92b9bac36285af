"""The services and tests shown in the documentation pass where the wheel is installed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"^```python\n# (?P<name>\w+\.py)\n(?P<source>.*?)^```$", re.DOTALL | re.MULTILINE)
CONFIGURATION = re.compile(r"^```toml\n(\[tool\.pytest\..*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = {
    page.relative_to(ROOT).as_posix(): text
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if NAMED.search(text := page.read_text("utf-8"))
}

# Starlette's own advice, about a package that its TestClient can do without.
STARLETTE = "ignore:Using `httpx` with `starlette.testclient` is deprecated"


def test_there_is_a_page_with_files():
    """The next test is about something."""
    assert "docs/testing.md" in PAGES


@pytest.mark.parametrize("page", PAGES)
def test_files_of_a_page_pass(page, run_pytest, tmp_path):
    """Written to a folder as they stand, every test in them runs and passes, and nothing is warned of."""
    wanted = set()
    for each in NAMED.finditer(PAGES[page]):
        (tmp_path / each["name"]).write_text(each["source"], "utf-8")
        wanted |= set(re.findall(r"def (test_\w+)", each["source"]))
    (tmp_path / "pyproject.toml").write_text("".join(CONFIGURATION.findall(PAGES[page])), "utf-8")
    done = run_pytest(tmp_path, "-W", STARLETTE)
    assert done.status == 0, done.output
    assert wanted
    assert done.tests == dict.fromkeys(wanted, "passed")
