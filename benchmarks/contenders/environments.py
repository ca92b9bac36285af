"""Environments with a contender's dependencies: created under build/ on first use, and kept there.

Uses only the standard library, because workers with older interpreters import it too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench-peers"
PATIENCE = 25.0
"""Maximum seconds to create one environment, all steps together."""

LOOP = "REDLOCK_BENCHMARKS_LOOP"
"""The variable that names the event loop's module, as in worker.py."""

PIP_PATIENCE = ("--timeout", "5", "--retries", "1")
NPM_PATIENCE = ("--fetch-timeout=10000", "--fetch-retries=0")
NPM_QUIET = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")


class Missing(Exception):  # noqa: N818 - a state, not a fault
    """This contender is not available here. The message says why."""


class Start(NamedTuple):
    """How a worker's process is started."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Additional environment variables."""


def python_worker(interpreter: str, entry: str, environment: Mapping[str, str] | None = None) -> Start:
    """Start the Python worker without warnings; old libraries emit many that are irrelevant here."""
    return Start((interpreter, "-W", "ignore", "-m", "benchmarks.worker", entry), environment or {})


class Environment(ABC):
    """A folder with the dependencies of one contender."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._failure: str | None = None

    @abstractmethod
    def start(self, entry: str, module: str, *, install: bool) -> Start:
        """Return how to start that entry's worker, after creating the environment if needed. Raises Missing."""

    @abstractmethod
    def wanted(self) -> str:
        """Return the wanted content; the environment is rebuilt when it changes."""

    @abstractmethod
    def make(self, steps: Steps) -> None:
        """Install it into its empty folder."""

    @property
    def folder(self) -> Path:
        """Return its path."""
        return FOLDER / self.name

    def ready(self, *, install: bool) -> Path:
        """Return the complete folder. A failure is not retried within this process."""
        if self._failure is None:
            try:
                return self._made(install=install)
            except (OSError, subprocess.SubprocessError) as exc:
                self._failure = f"cannot be installed: {last_words(exc)}"
        raise Missing(self._failure)

    def _made(self, *, install: bool) -> Path:
        # The stamp is written last, so that an interrupted installation is repeated.
        stamp, wanted = FOLDER / f"{self.name}.stamp", self.wanted()
        if not install and not stamp.exists():
            raise Missing("not installed, and --no-install was given")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with alone(FOLDER / f"{self.name}.lock"):
            if stamp.exists() and stamp.read_text("utf-8") == wanted:
                return self.folder
            if not install:
                raise Missing("what is installed is out of date, and --no-install was given")
            print(f"installing {self.name} into {self.folder} ...", file=sys.stderr, flush=True)
            stamp.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            self.make(Steps(time.monotonic() + PATIENCE))
            stamp.write_text(wanted, "utf-8")
        return self.folder


class Steps:
    """Runs commands with a common deadline."""

    def __init__(self, until: float) -> None:
        self._until = until

    def run(self, *command: str, cwd: Path | None = None) -> None:
        """Run one command silently. Raises if it fails or takes too long."""
        left = max(self._until - time.monotonic(), 0.1)
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=left, cwd=cwd)


class Venv(Environment):
    """A separate virtual environment, for a library whose dependencies differ from ours."""

    def __init__(self, name: str, *packages: str, imports: str) -> None:
        super().__init__(f"{name}-py{sys.version_info.major}.{sys.version_info.minor}")
        self._packages = packages
        self._imports = imports

    def start(self, entry: str, module: str, *, install: bool) -> Start:  # noqa: ARG002 - the worker knows it
        """Start the worker under the environment's interpreter."""
        return python_worker(self._interpreter(self.ready(install=install)), entry)

    def wanted(self) -> str:
        """Return the interpreter and the packages."""
        return "\n".join((sys.version, *self._packages))

    def make(self, steps: Steps) -> None:
        """Install with pip."""
        python = self._interpreter(self.folder)
        steps.run(sys.executable, "-m", "venv", "--clear", str(self.folder))
        quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
        steps.run(python, "-m", "pip", "install", *quiet, *PIP_PATIENCE, *self._packages)
        steps.run(python, "-W", "ignore", "-c", f"import {self._imports}")

    @staticmethod
    def _interpreter(folder: Path) -> str:
        return str(folder / "bin" / "python")


class Uvloop(Environment):
    """This interpreter plus uvloop: the library and its dependencies stay identical."""

    def __init__(self) -> None:
        super().__init__(f"uvloop-py{sys.version_info.major}.{sys.version_info.minor}")

    def start(self, entry: str, module: str, *, install: bool) -> Start:  # noqa: ARG002 - the worker knows it
        """Start the worker with an additional import folder, if needed."""
        environment = {LOOP: "uvloop"}
        if find_spec("uvloop") is None:
            paths = (str(self.ready(install=install)), os.environ.get("PYTHONPATH", ""))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return python_worker(sys.executable, entry, environment)

    def wanted(self) -> str:
        """Return the interpreter; any uvloop that works with it is fine."""
        return sys.version

    def make(self, steps: Steps) -> None:
        """Install with this interpreter's pip."""
        quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
        pip = (sys.executable, "-m", "pip", "install", *quiet, *PIP_PATIENCE)
        steps.run(*pip, "--target", str(self.folder), "--no-deps", "uvloop>=0.21")
        steps.run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(self.folder)!r}); import uvloop")


class Node(Environment):
    """A folder of packages for Node.js, from the file that the interoperability tests use."""

    def __init__(self, name: str, *packages: str) -> None:
        super().__init__(name)
        self._packages = packages
        self._listed = ROOT / "tests" / "interop" / "package.json"

    def start(self, entry: str, module: str, *, install: bool) -> Start:  # noqa: ARG002 - it has its own worker
        """Start the JavaScript worker."""
        node = found("node")
        folder = self.ready(install=install)
        worker = Path(__file__).with_name(f"{module}.cjs")
        return Start((node, str(worker)), {"NODE_PATH": str(folder / "node_modules")})

    def wanted(self) -> str:
        """Return the packages."""
        return self._listed.read_text("utf-8")

    def make(self, steps: Steps) -> None:
        """Install with npm."""
        node, npm = found("node"), found("npm")
        shutil.copy(self._listed, self.folder)
        cache = ("--prefix", str(self.folder), "--cache", str(FOLDER / "npm-cache"))
        steps.run(npm, "install", *cache, *NPM_QUIET, *NPM_PATIENCE)
        required = ", ".join(f"require({package!r})" for package in self._packages)
        steps.run(node, "-e", required, cwd=self.folder)


def found(program: str) -> str:
    """Return the path of that program."""
    path = shutil.which(program)
    if path is None:
        raise Missing(f"{program} is not installed")
    return path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Exclude other processes."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def last_words(exc: Exception) -> str:
    """Return the line of a command's output that explains its failure."""
    if isinstance(exc, subprocess.TimeoutExpired):
        return f"{Path(exc.cmd[0]).name} did not end within {PATIENCE:g} s"
    said = [line for line in str(getattr(exc, "stderr", None) or exc).splitlines() if line.strip()]
    errors = [line for line in said if "error" in line.lower()]
    return (errors or said or [type(exc).__name__])[-1].strip()
