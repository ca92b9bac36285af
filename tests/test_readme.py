"""Check the README, CONTRIBUTING.md, SECURITY.md and docs/: snippets run, links work, tables match the package.

The convention for a ```python block:

- It is shown as a user would write it, and runs separately, against its own five real nodes. `await`, `async with` and
  `async for` may be at the top level.
- A block without any `await` runs in a thread, where no event loop interferes with `redlock_async.blocking`.
- Its URLs are replaced, in the order of their first appearance, by the nodes' URLs. REDLOCK_NODES has all of them, and
  both module-level `redlock` clients are unused.
- The names in `stand_ins` are available without an import: `redlock`, and the names that stand for the reader's code.
- An invisible line before it, `<!-- not run: reason -->`, skips it. The reasons are listed in `NOT_RUN`.
- A block whose first line is `# name.py` is a file, and does not run separately. The files of a page are written to one
  folder, and pytest runs those that contain `def test_`: tests/services/test_page.py.
- `<!-- not typed: reason -->` excludes it from mypy. The reasons are listed in `NOT_TYPED`.

FastAPI and aiohttp applications are not only defined but also served.
"""

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import re
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from types import CodeType, ModuleType

import pytest

import redlock_async
from redlock_async import LockOptions, LockTimeout, Redlock, RedlockError, blocking
from redlock_async._rules.settings import Options
from redlock_async.client import DefaultRedlock

README = Path(__file__).resolve().parents[1] / "README.md"
PAGES = {
    page.relative_to(README.parent).as_posix(): page.read_text("utf-8")
    for page in (
        *(README.parent / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
        *sorted((README.parent / "docs").glob("*.md")),
    )
}
NOT_RUN = {"shows another library"}  # the reasons given on the pages
NOT_TYPED = {"Celery has no types", "APScheduler has no types", "Django has no types", "asyncpg has no types"}
LONGEST = 60.0  # seconds one snippet may take: a simulated hour needs five of an idle processor

BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?) -->\n)?(?:<!-- not typed: (?P<untyped>[^>]+?) -->\n)?"
    r"^```python\n(?P<source>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
URL = re.compile(r"(?:rediss?|unix)://[^\"'\s,\]]+")


@dataclasses.dataclass(frozen=True)
class Block:
    """One ```python block."""

    page: str
    line: int
    source: str
    reason: str | None
    untyped: str | None

    @property
    def file(self):
        """Return the file name in the first line, or None for a snippet."""
        found = re.match(r"# (\w+\.py)\n", self.source)
        return None if found is None else found[1]

    def __repr__(self):
        return f"{self.page} line {self.line}"

    def compiled(self, urls) -> CodeType:
        """Return the block with its URLs replaced and long work cut short; errors show the page's line numbers."""
        known = {}
        source = URL.sub(lambda found: known.setdefault(found[0], urls[len(known) % len(urls)]), self.source)
        source = "\n" * (self.line - 1) + source.replace("asyncio.sleep(30)", "asyncio.sleep(1)")
        return compile(source, str(README.parent / self.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


BLOCKS = [
    Block(page, text.count("\n", 0, match.start("source")) + 1, match["source"], match["reason"], match["untyped"])
    for page, text in PAGES.items()
    for match in BLOCK.finditer(text)
]


def stand_ins(redlock):
    """Return the names a snippet may use without importing them."""

    async def work():
        await asyncio.sleep(0.01)

    async def charge(what, *, fence):
        assert isinstance(what, str)
        assert fence > 0

    async def undo():
        await asyncio.sleep(0)

    return {
        "__name__": "readme",
        "redlock": redlock,
        "work": work,
        "charge": charge,
        "undo": undo,
        "queue": ["a part"],
    }


async def run(block, urls, monkeypatch):
    """Run a block and return the names it defined."""
    default, for_threads = DefaultRedlock(), blocking.DefaultRedlock()
    monkeypatch.setattr(redlock_async, "redlock", default)
    monkeypatch.setattr(blocking, "redlock", for_threads)
    monkeypatch.setitem(
        sys.modules, "readme", ModuleType("readme")
    )  # where some frameworks look for a function's module
    monkeypatch.setenv("REDLOCK_NODES", ",".join(urls))
    async with Redlock(urls) as redlock:
        names = stand_ins(redlock)
        try:
            async with asyncio.timeout(LONGEST):
                # For a block with an `await` this returns a coroutine that has not started.
                result = await asyncio.to_thread(eval, block.compiled(urls), names)
                if inspect.isawaitable(result):
                    await result
        finally:
            await asyncio.to_thread(for_threads.close)
            if "_settings" in default.__dict__:  # it was used
                await default.aclose()
    return names


def block_with(text, page):
    """Return the one block of that page that contains that text."""
    (block,) = [block for block in BLOCKS if text in block.source and block.page == page]
    return block


@contextlib.asynccontextmanager
async def held(urls, name):
    """Another client holds that name."""
    async with Redlock(urls, owner="other") as other, other(name):
        yield


@pytest.mark.asyncio
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason is None and block.file is None], ids=repr)
async def test_snippet_runs(block, cluster, monkeypatch):
    """Every snippet does what it shows, without an error."""
    await run(block, cluster.urls, monkeypatch)


def test_the_readme_is_short():
    """It is a first screen and an index: whatever needs more room has a page."""
    assert PAGES["README.md"].count("\n") <= 180


def test_only_listed_snippets_are_not_run():
    """A snippet that is not run is listed above, with its reason."""
    assert {block.reason for block in BLOCKS if block.reason is not None} == NOT_RUN
    assert {block.untyped for block in BLOCKS if block.untyped is not None} == NOT_TYPED


def test_a_test_is_a_file():
    """A test function in a snippet would only be defined: in a file it is run."""
    assert not [block for block in BLOCKS if "def test_" in block.source and block.file is None]


def test_no_snippet_is_missed():
    """Every ```python fence was found, and no other spelling of it is used."""
    for page, text in PAGES.items():
        assert sum(block.page == page for block in BLOCKS) == text.count("```python"), page
        assert not re.search(r"```(py|python3|pycon)\n", text), page


@pytest.mark.asyncio
async def test_the_readme_names_the_holder_and_the_nodes(cluster, monkeypatch, capsys):
    """The README's example tells a held lock from an outage."""
    block = block_with("except LockTimeout", "README.md")
    block = dataclasses.replace(block, source=block.source.replace("wait=3", "wait=0.3"))
    urls = cluster.urls[:3]
    async with held(urls, "orders:42"):
        await run(block, urls, monkeypatch)
    assert capsys.readouterr().out == "locked by other\n"
    for node in range(2):
        cluster.kill(node)
    await run(block, urls, monkeypatch)
    assert capsys.readouterr().out.count("ConnectionError(") == 2


@pytest.mark.asyncio
async def test_the_first_example_says_that_it_holds_the_lock(cluster, monkeypatch, capsys):
    """The program that the README has a newcomer run."""
    await run(BLOCKS[0], cluster.urls, monkeypatch)
    assert re.fullmatch(r"orders:42 is locked, fencing token \d+\n", capsys.readouterr().out)


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["exception_handler(LockTimeout)", 'Locked("orders:{order_id}", wait=2)'])
async def test_fastapi_application_serves(text, cluster, monkeypatch):
    """The FastAPI application charges under a lock, and returns 409 when it is held and 503 without a quorum."""
    from httpx import ASGITransport, AsyncClient  # noqa: PLC0415 - only here

    names = await run(block_with(text, "docs/fastapi.md"), cluster.urls, monkeypatch)
    app = names["app"]
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=ASGITransport(app), base_url="http://readme") as client,
    ):
        first, second = [await client.post("/orders/42/charge") for _ in range(2)]
        assert (first.status_code, second.status_code) == (200, 200)
        assert first.json()["fence"] < second.json()["fence"]
        async with held(cluster.urls, "orders:42"):
            assert (await client.post("/orders/42/charge")).status_code == 409
        for node in range(3):
            cluster.kill(node)
        assert (await client.post("/orders/42/charge")).status_code == 503


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["raise web.HTTPConflict", '@locked("orders:{order_id}", wait=2)'])
async def test_aiohttp_application_serves(text, cluster, monkeypatch):
    """The aiohttp application charges under a lock, and returns 409 while it is held."""
    from aiohttp.test_utils import TestClient, TestServer  # noqa: PLC0415 - only here

    names = await run(block_with(text, "docs/aiohttp.md"), cluster.urls, monkeypatch)
    async with TestClient(TestServer(names["app"])) as client:
        async with client.post("/orders/42/charge") as response:
            assert response.status == 200
            assert (await response.json())["fence"] > 0
        async with held(cluster.urls, "orders:42"), client.post("/orders/42/charge") as response:
            assert response.status == 409


@pytest.mark.asyncio
async def test_cleanup_of_a_lost_block_runs_under_the_shield(cluster, monkeypatch):
    """The shielded cleanup finishes within the remaining time of a lease whose renewal failed."""
    urls, cleaned = cluster.urls, []

    async def work():
        for node in range(3):
            cluster.kill(node)
        await asyncio.Event().wait()

    async def undo():
        await asyncio.sleep(0.01)
        cleaned.append(names["lease"].remaining)

    async with Redlock(urls, ttl=4, node_timeout=0.1) as redlock:  # a twentieth of it is left for the cleanup
        names = stand_ins(redlock) | {"work": work, "undo": undo}
        monkeypatch.setenv("REDLOCK_NODES", ",".join(urls))
        with pytest.raises(redlock_async.LockLost):
            await eval(block_with("await undo()", "docs/losing.md").compiled(urls), names)  # noqa: S307 - our own README
    assert cleaned
    assert cleaned[0] > 0


def test_fencing_sql_rejects_a_late_write():
    """The SQL lets a holder begin two transactions, and an earlier holder none."""
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGES["README.md"], re.DOTALL)
    database = sqlite3.connect(":memory:")
    try:
        database.execute("CREATE TABLE accounts (id INTEGER, fence BIGINT DEFAULT 0)")
        database.execute("INSERT INTO accounts (id) VALUES (1)")
        changed = [database.execute(sql, {"id": 1, "fence": fence}).rowcount for fence in (7, 7, 6, 8, 7)]
        assert changed == [1, 1, 0, 1, 0]
        assert database.execute("SELECT fence FROM accounts").fetchone() == (8,)
    finally:
        database.close()


def table(header, page="docs/reference.md"):
    """Return the rows of the table whose header starts like that, as lists of cells."""
    lines = PAGES[page].splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(header)]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def code(cell):
    """Return the text between the backticks of a cell."""
    found = re.fullmatch(r"`([^`]+)`", cell)
    assert found, cell
    return found[1]


def test_client_options_are_those_of_the_signature():
    """The table has every option of Redlock, with its default and its variable."""
    rows = table("| option | default | variable |")
    parameters = inspect.signature(Redlock).parameters
    shown = {code(row[0]): ast.literal_eval(code(row[1])) for row in rows}
    assert shown == {name: each.default for name, each in parameters.items() if name != "nodes"}
    assert [code(row[2]) for row in rows] == [f"REDLOCK_{name.upper()}" for name in shown]


def test_every_variable_is_read():
    """Redlock.from_env reads each variable of the table: it rejects or uses a wrong value."""
    for row in table("| option | default | variable |"):
        option, variable = code(row[0]), code(row[2])
        environment = {"REDLOCK_NODES": "redis://10.0.0.1:6379", variable: "\x00"}
        if option == "namespace":
            assert Redlock.from_env(environment)._settings.namespace == "\x00"
        else:
            with pytest.raises(redlock_async.ConfigurationError, match=rf"{variable}|{option}"):
                Redlock.from_env(environment)


def test_lock_options_are_those_of_the_call():
    """A lock takes the options of the second table, and three of the client's."""
    shown = {code(row[0]): ast.literal_eval(code(row[1])) for row in table("| option | default | what it does |")}
    defaults = {name: each.default for name, each in inspect.signature(Options.with_overrides).parameters.items()}
    taken = {name: defaults[name] for name in LockOptions.__annotations__ if name not in {"ttl", "wait", "fencing"}}
    assert shown == taken


def test_errors_are_those_of_the_package():
    """The table names exactly the existing errors."""
    shown = {code(row[0]) for row in table("| error | when |")}
    public = {getattr(redlock_async, name) for name in redlock_async.__all__}
    errors = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, RedlockError)}
    assert shown == errors
    assert issubclass(LockTimeout, TimeoutError)


def test_events_are_those_of_the_package():
    """The page names every kind of event."""
    from redlock_async.events import Kind  # noqa: PLC0415 - only here

    section = (
        PAGES["docs/reference.md"]
        .partition("\nThe kinds of events: ")[2]
        .partition("\n\n")[0]
        .partition("Callbacks")[0]
    )
    assert set(re.findall(r"`(\w+)`", section)) == set(Kind.__args__)


def test_keys_are_those_of_the_package():
    """The table has every key the library may use."""
    from redlock_async._rules.keys import FENCES, RESERVED, Keys  # noqa: PLC0415 - only here

    keys, text = Keys(""), PAGES["docs/keys.md"]
    for key in (keys.record, keys.probe):
        assert f"`{key.decode()}`" in text
    kinds = (
        *(keys.readers("name"), keys.waiting_writer("name"), *keys.semaphore("name")),
        *keys.queue("name"),
        *keys.latch("name"),
    )
    for key in kinds:
        assert f"`{key.decode()}`" in text
    assert f"`{RESERVED}fence:N`" in text
    assert f"from 0 to {FENCES - 1}" in text


def test_links_work():
    """Every linked section and page exists, and so does every file in the layout."""
    headings = {
        page: {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        for page, text in PAGES.items()
    }
    for page, text in PAGES.items():
        links = re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text)
        pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
        for path, section in (*links, *((picture, "") for picture in pictures)):
            target = (README.parent / page).parent / path if path else README.parent / page
            assert target.exists(), f"{page}: {path}"
            if section:
                assert section in headings[target.resolve().relative_to(README.parent).as_posix()], f"{page}: {section}"
    files = table("| where | what is there |", "docs/internals.md")
    layout = [cell for row in files for cell in re.findall(r"`([^`]+)`", row[0])]
    assert [each for each in layout if not (README.parent / "redlock_async" / each).exists()] == []


@pytest.mark.asyncio
async def test_acl_user_suffices(cluster):
    """With the ACL from docs/permissions.md, every operation works on the test servers."""
    import redis  # noqa: PLC0415 - only here

    (rules,) = re.findall(r"```text\nACL SETUSER locks (.*?)```", PAGES["docs/permissions.md"], re.DOTALL)
    for url in cluster.urls:
        with redis.Redis.from_url(url) as client:
            client.execute_command("ACL", "SETUSER", "locks", *rules.split())
            for native in ("+delifeq", "+delex"):
                with contextlib.suppress(redis.ResponseError):  # the server does not have this command
                    client.execute_command("ACL", "SETUSER", "locks", native)
    urls = [url.replace("redis://", "redis://locks:secret@") for url in cluster.urls]
    async with Redlock(urls, node_timeout=2) as redlock:
        for fencing in (True, False):
            async with redlock("orders:1", "orders:2", fencing=fencing, ttl=1) as lease:
                await lease.extend()
            async with redlock("orders:1", fencing=fencing, ttl=1, min_hold=0.05):
                assert await redlock.inspect("orders:1") is not None
                assert [each.name for each in await redlock.list_locks("orders:*")] == ["orders:1"]
        await redlock.force_release("orders:1")
        for node in await redlock.status():
            assert node.can_vote
            assert node.tracking
            assert None not in (node.role, node.persistence, node.eviction, node.run_id)
        async with Redlock(urls) as other:
            await every_other_kind(redlock, other)


async def every_other_kind(redlock, other):
    """Two clients acquire, contend for, extend and release all kinds except the plain lock."""
    async with redlock.fair_lock("orders:1", ttl=1):
        waiting = [asyncio.create_task(other.fair_lock("orders:1", ttl=1).acquire()) for _ in range(3)]
        await asyncio.sleep(0.7)  # one heartbeat
        waiting[1].cancel()
    for served in asyncio.as_completed((waiting[0], waiting[2])):  # they drew their tickets at the same time
        await (await served).release()
    for fencing in (True, False):
        async with (
            redlock.read_lock("orders:1", ttl=1, fencing=fencing) as lease,
            other.read_lock("orders:1", ttl=1, fencing=fencing, min_hold=0.05),
        ):
            await lease.extend()
            waiting = asyncio.create_task(other.write_lock("orders:1", ttl=1, fencing=fencing).acquire())
            await asyncio.sleep(0.1)
        async with await (await waiting).downgrade():
            pass
    async with redlock.semaphore("orders:1", permits=1, ttl=1, min_hold=0.05) as lease:
        await lease.extend()
        waiting = asyncio.create_task(other.semaphore("orders:1", permits=1, ttl=1).acquire())
        await asyncio.sleep(0.1)
    await (await waiting).release()
    async with await redlock.semaphore("orders:2", permits=3, ttl=1, fencing=fencing).acquire(count=2) as lease:
        await lease.extend()
        assert len((await redlock.inspect_semaphore("orders:2")).slots) == 2
        await redlock.change_permits("orders:2", 4)
        await redlock.force_release("orders:3")
    latch = redlock.latch("orders:1", count=1)
    waiting = asyncio.create_task(other.latch("orders:1", count=1).wait(5))
    await asyncio.sleep(0.1)
    await latch.count_down("an event")
    await waiting
    assert await latch.remaining() == 0


def test_snippets_are_typed(tmp_path):
    """mypy in strict mode finds no errors in the snippets and files."""
    pytest.importorskip("mypy", reason="mypy comes with `make setup`, not with `make test`")
    head = """
    from redlock_async import Redlock

    redlock: Redlock
    queue: list[str]
    async def work() -> None: ...
    async def charge(what: str, *, fence: int | None) -> None: ...
    async def undo() -> None: ...
    """
    parts = [textwrap.dedent(head)]
    parts += [
        f"async def snippet_{number}() -> None:  # {block!r}\n{textwrap.indent(block.source, '    ')}"
        for number, block in enumerate(BLOCKS)
        if block.reason is None and block.file is None and block.untyped is None
    ]
    sources = {"snippets.py": "\n".join(parts)}
    for block in BLOCKS:
        if block.file is not None:
            assert block.file not in sources, f"two files of that name: {block.file}"
            sources[block.file] = block.source
    for name, source in sources.items():
        (tmp_path / name).write_text(source, "utf-8")
    files = [str(tmp_path / name) for name in sources]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *files],
        cwd=README.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
