"""What the tests of services share: servers with real sockets, in this process and in others; and pytest as a user runs
it, in a process of its own, where the wheel is installed and its plugin found.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import textwrap
import time
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import httpx
import pytest
import pytest_asyncio

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


@pytest_asyncio.fixture
async def serve():
    """A function that serves an ASGI application with uvicorn, on this loop, and returns its host and port."""
    import uvicorn  # noqa: PLC0415 - only for those that use it

    async with contextlib.AsyncExitStack() as stack:

        async def served(app):
            server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
            running = asyncio.ensure_future(server.serve())

            async def end():
                server.should_exit = True
                await running

            stack.push_async_callback(end)
            while not server.started:
                assert not running.done(), "it did not start"
                await asyncio.sleep(0.005)
            return server.servers[0].sockets[0].getsockname()

        yield served


@pytest.fixture
def free_port():
    """A function that returns a port that nobody listens on."""

    def port():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    return port


@pytest.fixture
def run():
    """A function that starts a web service as processes, and waits until it answers; all are ended with the test."""
    started = []

    def running(command, url, **environment):
        process = subprocess.Popen(
            [str(each) for each in command],
            env=os.environ | environment, start_new_session=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(process)
        give_up_at = time.monotonic() + 30
        while True:
            assert process.poll() is None, f"ended with {process.returncode}"
            try:
                httpx.get(url)
            except httpx.TransportError:
                assert time.monotonic() < give_up_at, f"no answer from {url}"
                time.sleep(0.02)
            else:
                return process

    yield running
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
