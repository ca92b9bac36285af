"""Runs tests as a user does: by pytest in a process of its own, where the wheel is installed and its plugin found."""

import os
import subprocess
import textwrap
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pytest

LOOP_SCOPE = "asyncio_default_fixture_loop_scope = function"  # unset, pytest-asyncio warns; warnings are errors


@dataclass(frozen=True)
class Run:
    """What became of a run of pytest."""

    status: int
    output: str
    tests: dict[str, str]
    """By the name of each test: "passed", or what the report says of its failures."""
    passed: int
    """How many passed, those of one name in several files too."""

    def all_passed(self, number):
        """Whether so many tests ran, and nothing went wrong; shows what did."""
        assert self.status == 0, self.output
        assert self.passed == number, self.output
        return True


def read(report):
    """The tests of a report in JUnit's format, and how many passed."""
    if not report.exists():
        return {}, 0
    suite, found = ET.parse(report).find("testsuite"), {}  # noqa: S314 - pytest has just written it
    for case in suite.iter("testcase"):
        problems = [
            f"{each.get('message')}\n{each.text}" for each in case if each.tag in {"failure", "error", "skipped"}
        ]
        name = case.get("name")
        if problems or name not in found:  # one that fails at its end as well is there twice
            found[name] = "\n".join(problems) or "passed"
    return found, int(suite.get("tests")) - sum(int(suite.get(each)) for each in ("errors", "failures", "skipped"))


@pytest.fixture
def run_tests(wheel_python, tmp_path, embedded):  # noqa: ARG001 - the plugin starts its own servers
    """Write files, and run pytest on them with every warning an error; returns the `Run`."""

    def run(files, *options, ini=(), **environment):
        for name, source in files.items():
            (tmp_path / name).write_text(textwrap.dedent(source), "utf-8")
        (tmp_path / "pytest.ini").write_text("\n".join(["[pytest]", LOOP_SCOPE, *ini]), "utf-8")
        return run_pytest(wheel_python, tmp_path, *options, **environment)

    return run


def run_pytest(python, folder, *options, **environment):
    """Run pytest in that folder; a test that hangs is a failure with all that was said until then."""
    report = folder / "report.xml"
    command = [python, "-I", "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--junitxml", report, *options]
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("REDLOCK_", "PYTEST_"))}
    done = subprocess.run(
        command, cwd=folder, env=outside | environment, capture_output=True, text=True, check=False, timeout=100
    )
    return Run(done.returncode, done.stdout + done.stderr, *read(report))


@pytest.fixture(name="run_pytest")
def run_pytest_fixture(wheel_python, embedded):  # noqa: ARG001 - as above
    """The same for a folder whose files are there."""

    def run(folder, *options):
        return run_pytest(wheel_python, folder, *options)

    return run
