"""The decorator: which name it takes, what it refuses when decorating, and what a conflict does. The lock is a fake."""

import functools
import inspect
from dataclasses import dataclass
from functools import partial

import pytest

from redlock_async import ConfigurationError, FairLock, LockTimeout, QuorumUnavailable, Redlock, blocking, redlock
from redlock_async.client import DefaultRedlock
from redlock_async.decorators import ACQUIRE, Decorator, check_conflict, run_under_lock

NODES = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


class FakeLock:
    """Records the calls that it gets; another client holds it if `error` is given."""

    def __init__(self, error=None):
        self.error = error
        self.log = []

    def __call__(self, name):
        """Made for that name."""
        self.log.append(name)
        return self

    async def acquire(self, wait="the lock's own"):
        """A lease, or the error."""
        self.log.append(("acquire", wait))
        if self.error is not None:
            raise self.error
        return self

    async def try_acquire(self):
        """A lease, or None."""
        try:
            return await self.acquire(wait=0)
        except LockTimeout:
            return None

    async def __aenter__(self):
        self.log.append("enter")
        return self

    async def __aexit__(self, exc_type, exc, traceback):
        self.log.append(("exit", exc_type))


def decorate(template, function, *, lock=None, on_conflict="wait"):
    """The function under a fake lock."""
    return run_under_lock(Decorator(lock or FakeLock(), template, on_conflict), function)


async def name_taken(template, function, *args, **kwargs):
    """The lock's name for that call."""
    lock = FakeLock()
    await decorate(template, function, lock=lock)(*args, **kwargs)
    return lock.log[0]


@dataclass
class User:
    """Something with attributes."""

    id: int
    tags: tuple = ("a", "b")


async def job(user_id, kind="full", *rest, force=False, **more):
    """An import."""
    return user_id, kind, rest, force, more


# Names


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("template", "args", "kwargs", "name"),
    [
        ("import:{user_id}", (42,), {}, "import:42"),
        ("import:{user_id}", (), {"user_id": 42}, "import:42"),
        ("import:{user_id}:{kind}", (42,), {}, "import:42:full"),
        ("import:{user_id}:{kind}", (42, "delta"), {}, "import:42:delta"),
        ("{kind}/{force}", (1,), {"force": True}, "full/True"),
        ("{user_id.id}", (User(7),), {}, "7"),
        ("{user_id.tags[1]}", (User(7),), {}, "b"),
        ("{user_id[key]}", ({"key": "v"},), {}, "v"),
        ("{user_id:>05}", (42,), {}, "00042"),
        ("{user_id!r}", ("x",), {}, "'x'"),
        ("{rest[0]}", (1, 2, 3), {}, "3"),
        ("{more[x]}", (1,), {"x": 9}, "9"),
        ("constant", (1,), {}, "constant"),
        ("{{literal}}:{user_id}", (1,), {}, "{literal}:1"),
    ],
)
async def test_the_name_is_made_of_the_arguments(template, args, kwargs, name):
    """However they are passed: positionally, by name, by default, their attributes and items."""
    assert await name_taken(template, job, *args, **kwargs) == name


@pytest.mark.asyncio
async def test_a_value_is_not_taken_for_a_template():
    """What a user typed cannot reach into objects."""
    assert await name_taken("{user_id}", job, "{kind.__class__}") == "{kind.__class__}"


@pytest.mark.asyncio
async def test_a_method_may_be_named_after_its_object():
    """`self` is an argument like any other."""

    class Service:
        region = "eu"

        async def run(self, number):
            return self.region, number

    lock = FakeLock()
    Service.run = decorate("{self.region}:{number}", Service.run, lock=lock)
    assert await Service().run(5) == ("eu", 5)
    assert lock.log[0] == "eu:5"


# Refused when decorating


@pytest.mark.parametrize(
    "template", ["import:{user}", "{user_id}{no_such}", "{missing.id}", "{missing[0]}", "{missing!r:>3}"]
)
def test_an_argument_that_is_not_there_is_found_when_decorating(template):
    """Not at the first call: the message has the template, what is missing, and the signature."""
    with pytest.raises(ConfigurationError) as caught:
        decorate(template, job)
    message = str(caught.value)
    assert repr(template) in message
    assert "no such argument" in message
    assert "job(user_id, kind='full'" in message
    assert any(missing in message.replace(repr(template), "") for missing in ("user,", "no_such", "missing"))


def test_an_argument_in_a_format_specification_is_checked_as_well():
    """`{user_id:{width}}` takes two arguments."""
    with pytest.raises(ConfigurationError, match="width"):
        decorate("{user_id:{width}}", job)


@pytest.mark.parametrize("template", ["{}", "{0}", "import:{}:{user_id}", "{0.id}", "{[0]}", "{.id}"])
def test_arguments_are_taken_by_name_only(template):
    """Positions change with the signature; the message shows the right form."""
    with pytest.raises(ConfigurationError, match="takes arguments by name"):
        decorate(template, job)


@pytest.mark.parametrize("template", ["{user_id", "user_id}", "{user_id!}", "{user_id!xy}", None, 5, b"x", ["x"]])
def test_what_is_no_template_is_refused_when_decorating(template):
    """An open brace, or no text at all."""
    with pytest.raises(ConfigurationError, match="not a template"):
        decorate(template, job)


def plain(user_id):
    """Not a coroutine function."""


async def generator(user_id):
    """Nor is this."""
    yield user_id


@pytest.mark.parametrize(
    ("function", "remedy"),
    [(function, r"async def.*redlock_async\.blocking") for function in (plain, lambda: None, 5, User, None)]
    + [(generator, "use `async with"), (staticmethod(job), "below @staticmethod"), (classmethod(job), "below @class")],
)
def test_only_coroutine_functions_can_be_decorated(function, remedy):
    """A lock of an event loop cannot guard what does not run on it; the message says what was given, and what to do."""
    with pytest.raises(ConfigurationError, match=remedy) as caught:
        decorate("x", function)
    assert getattr(function, "__qualname__", repr(function)) in str(caught.value)


@pytest.mark.parametrize("client", [Redlock(NODES), blocking.Redlock(NODES)])
def test_what_is_wrong_with_a_decorator_is_told_where_it_is_made(client):
    """Not when it is called for the first time."""
    for template in ("", "x"):
        for options in ({"on_conflict": "skip", "wait": 5}, {"on_conflict": "raise", "wait": None}):
            with pytest.raises(ConfigurationError, match=r"wait cannot be|must not be empty"):
                client.locked(template, **options)
    misspelt = partial(Redlock(NODES).fair_lock, tttl=3)
    for factory in (client.semaphore, client.latch, client.once, misspelt, lambda: None):
        with pytest.raises(ConfigurationError, match=r"called with a name alone|does not take"):
            client.locked("x", factory=factory)
    with pytest.raises(TypeError, match=r"no option 'permits'.*partial\(redlock.semaphore, permits=4\)"):
        client.locked("x", permits=4)
    client.locked("x", factory=partial(client.semaphore, permits=4, count=2))
    for name in ("", 1, None):
        with pytest.raises(ConfigurationError, match="template of a lock's name"):
            client.once(name, every=60)
    with pytest.raises(ConfigurationError, match="ttl=90 must not be longer than every=60"):
        client.once("x", every=60, ttl=90)


@pytest.mark.asyncio
async def test_a_partial_is_a_coroutine_function_too():
    """Its bound arguments are found, and a missing one is refused as for any other."""
    bound = functools.partial(job, kind="delta")
    assert await name_taken("{user_id}:{kind}", bound, 1) == "1:delta"
    with pytest.raises(ConfigurationError, match="missing"):
        decorate("{missing}", bound)


@pytest.mark.parametrize("conflict", ["Wait", "", None, True, 0, "skip ", ["skip"]])
def test_a_conflict_s_answer_is_one_of_three(conflict):
    """Checked when decorating, before there is a function."""
    assert set(ACQUIRE) == {"wait", "skip", "raise"}
    with pytest.raises(ConfigurationError, match="'wait', 'skip' or 'raise'"):
        check_conflict(conflict)
    with pytest.raises(ConfigurationError, match="on_conflict"):
        Redlock(NODES).locked("x", on_conflict=conflict)


@pytest.mark.parametrize("client", [Redlock(NODES), blocking.Redlock(NODES)])
@pytest.mark.parametrize("template", [job, functools.partial(job), b"x", 7, None, ["x"]])
def test_without_a_name_the_decorator_says_what_to_write(client, template):
    """`@redlock.locked` alone would make the function a decorator, which nobody calls."""
    with pytest.raises(ConfigurationError, match=r'a str, got .*: write @redlock.locked\("import:\{user_id\}"\)'):
        client.locked(template)


def test_the_client_s_decorator_checks_the_template():
    """`@redlock.locked(...)`, without a loop and without a server."""
    with pytest.raises(ConfigurationError, match="no such argument"):
        Redlock(NODES).locked("{nobody}")(job)


def test_decorating_with_the_global_client_reads_no_environment(monkeypatch):
    """A module that decorates must be importable where there are no nodes."""
    monkeypatch.delenv("REDLOCK_NODES", raising=False)
    assert inspect.iscoroutinefunction(redlock.locked("import:{user_id}", ttl=30)(job))


@pytest.mark.parametrize("client", [Redlock(NODES), redlock, blocking.Redlock(NODES), blocking.redlock])
def test_a_decorator_is_not_an_answer(client):
    """`if redlock.locked("x"):` looks like a question, so the error says how to ask it."""
    for decorator in (client.locked("x"), client.locked("x", on_conflict="skip"), client.once("x", every=60)):
        with pytest.raises(TypeError, match=r"'x'> is a decorator .*try_acquire\(\) or inspect\(\)"):
            bool(decorator)


# Other kinds of locks


@pytest.mark.parametrize("factory", ["fair", 5, Redlock(NODES).fair_lock("x"), job])
def test_what_makes_the_lock_is_checked_when_decorating(factory):
    """A lock instead of what makes one, a name, a coroutine function: as far as it shows without calling it."""
    with pytest.raises(ConfigurationError, match=r"factory must make a lock from a name, as redlock\.fair_lock does"):
        redlock.locked("x", factory=factory)


def test_options_beside_what_makes_the_lock_are_refused():
    """They would be the plain lock's; the message names them, and how to give them."""
    with pytest.raises(ConfigurationError, match=r"max_hold, ttl cannot be combined with factory.*functools\.partial"):
        redlock.locked("x", factory=redlock.fair_lock, ttl=5, max_hold=60)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "factory", [str, lambda name: Redlock(NODES).latch(name, count=1), lambda _: None, lambda name: {"name": name}]
)
async def test_what_is_no_lock_is_refused_when_it_is_made(factory):
    """A latch protects nothing; the message says what was made and what would do."""
    locked = redlock.locked("import:{user_id}", factory=factory)(job)
    with pytest.raises(
        ConfigurationError, match=r"factory returned .* for 'import:1': it must return a lock, as redlock\.fair_lock"
    ):
        await locked(1)


@pytest.mark.asyncio
async def test_what_makes_the_lock_is_given_the_name(monkeypatch):
    """Of each call; and what it makes is what is taken."""
    client, names, taken = Redlock(NODES), [], []

    def fair(name):
        names.append(name)
        return client.fair_lock(name)

    async def acquire(self, wait=None):
        taken.append((type(self).__name__, self.names, wait))
        return FakeLock()

    monkeypatch.setattr(FairLock, "acquire", acquire)
    locked = client.locked("import:{user_id}", factory=fair, on_conflict="skip")(job)
    await locked(1)
    await locked(2)
    assert names == ["import:1", "import:2"]
    assert taken == [("FairLock", ("import:1",), 0), ("FairLock", ("import:2",), 0)]


CLIENTS = {
    "asyncio": lambda: Redlock(NODES),
    "threads": lambda: blocking.Redlock(NODES),
    "asyncio, from the environment": DefaultRedlock,
    "threads, from the environment": blocking.DefaultRedlock,
}


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def any_client(request, monkeypatch):
    """With settings, or without any that could be read yet."""
    monkeypatch.delenv("REDLOCK_NODES", raising=False)
    return request.param()


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (lambda client: partial(client.semaphore, permits=0), "permits must be from 1"),
        (lambda client: partial(client.semaphore, permits="2"), "permits must be a whole number, got '2'"),
        (lambda client: partial(client.semaphore, permits=2, count=3), "count must be from 1 to .* 2 permits, got 3"),
        (lambda client: partial(client.fair_lock, ttl=-1), "ttl must be from"),
        (lambda client: partial(client.lock, reentrant=1), "reentrant must be True or False"),
        (lambda client: partial(client, ttl="x"), "ttl must be"),
        (lambda client: partial(client, permits=4), "passes permits to .*, which does not take that"),
        (lambda client: partial(client.latch, count=2), "factory returned .*: it must return a lock, as redlock.fair"),
        (lambda client: partial(client.once, every=20), "factory returned .*: it must return a lock, as redlock.fair"),
        (lambda client: partial(client.semaphore, permit=2), r"passes permit to Redlock\.semaphore, .* but permits"),
        (lambda client: partial(partial(client.fair_lock, ttl=3), tll=3), r"factory passes tll to Redlock\.fair_lock"),
        (lambda client: client.semaphore, r"Redlock\.semaphore cannot be \(missing .*'permits'\): supply the other"),
    ],
)
def test_what_makes_the_lock_is_tried_when_decorating(factory, says, any_client):
    """Where it is a client's own, which connects nothing; also before there are settings, and without reading any."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        any_client.locked("import:{user_id}", factory=factory(any_client))
    assert NODES[0].removeprefix("redis://") not in str(caught.value)


def test_what_makes_a_good_lock_is_taken(any_client):
    """Of every kind, whatever the settings will be; the client that it is tried with stays as it is."""
    before = repr(any_client)
    for factory in (
        any_client, any_client.lock, any_client.fair_lock, any_client.write_lock,
        partial(any_client.read_lock, ttl=0.01, wait=3),
        partial(any_client.semaphore, permits=4, count=4, fencing=False), partial(any_client.lock, reentrant=True),
    ):  # fmt: skip
        any_client.locked("import:{user_id}", factory=factory)
    assert repr(any_client) == before


@pytest.mark.parametrize("factory", ["force_release", "inspect"])
def test_what_would_do_something_is_not_tried(factory, monkeypatch):
    """Of an operator's method, given by mistake."""
    called = []
    monkeypatch.setattr(blocking.Redlock, factory, lambda _, name: called.append(name))
    blocking.Redlock(NODES).locked("x", factory=getattr(blocking.Redlock(NODES), factory))
    assert called == []


@pytest.mark.parametrize("on_conflict", ["skip", "raise"])
def test_a_wait_is_refused_beside_an_answer_that_tries_once(on_conflict, any_client):
    """Given to another kind of lock as well as directly."""
    for given in ({"wait": 3}, {"factory": partial(any_client.fair_lock, wait=3)}):
        with pytest.raises(ConfigurationError, match=f"wait cannot be combined with on_conflict='{on_conflict}'"):
            any_client.locked("x", on_conflict=on_conflict, **given)
        any_client.locked("x", **given)


def test_an_option_that_only_the_plain_lock_takes_is_not_to_be_given_to_another(any_client):
    """The remedy is one that works."""
    with pytest.raises(
        ConfigurationError, match=r"^reentrant cannot be combined with.*: leave out reentrant, which o"
    ) as one:
        any_client.locked("x", factory=any_client.fair_lock, reentrant=True)
    assert "partial" not in str(one.value)
    with pytest.raises(ConfigurationError, match=r"^reentrant, ttl cannot be combined.*partial\(.*ttl=30\); leave out"):
        any_client.locked("x", factory=any_client.fair_lock, reentrant=True, ttl=3)


# Calling


@pytest.mark.asyncio
async def test_the_function_runs_under_the_lock_with_its_own_arguments():
    """Between enter and exit; its result is the call's."""
    lock = FakeLock()

    async def inside(user_id, *rest, force=False):
        lock.log.append("body")
        return user_id, rest, force

    assert await decorate("{user_id}", inside, lock=lock)(1, 2, force=True) == (1, (2,), True)
    assert lock.log == ["1", ("acquire", "the lock's own"), "enter", "body", ("exit", None)]


@pytest.mark.asyncio
async def test_each_call_makes_its_own_lock():
    """Names differ from call to call."""
    lock = FakeLock()
    locked = decorate("{user_id}", job, lock=lock)
    await locked(1)
    await locked(2)
    assert [each for each in lock.log if isinstance(each, str) and each.isdigit()] == ["1", "2"]


@pytest.mark.asyncio
@pytest.mark.parametrize(("on_conflict", "wait"), [("wait", "the lock's own"), ("skip", 0), ("raise", 0)])
async def test_only_wait_waits(on_conflict, wait):
    """The others try once."""
    lock = FakeLock()
    assert (await decorate("x", job, lock=lock, on_conflict=on_conflict)(1))[0] == 1
    assert lock.log[1] == ("acquire", wait)


@pytest.mark.asyncio
@pytest.mark.parametrize("on_conflict", ["wait", "raise", "skip"])
async def test_a_conflict_skips_or_raises(on_conflict):
    """The body does not run either way; None is for skip alone."""
    problem = LockTimeout("held by another")
    ran = []

    async def body():
        ran.append(1)

    locked = decorate("x", body, lock=FakeLock(problem), on_conflict=on_conflict)
    if on_conflict == "skip":
        assert await locked() is None
    else:
        with pytest.raises(LockTimeout) as caught:
            await locked()
        assert caught.value is problem
    assert not ran


@pytest.mark.asyncio
async def test_an_outage_is_never_skipped():
    """'Somebody else does it' would be a lie."""
    with pytest.raises(QuorumUnavailable):
        await decorate("x", job, lock=FakeLock(QuorumUnavailable("down")), on_conflict="skip")(1)


@pytest.mark.asyncio
@pytest.mark.parametrize("on_conflict", ["wait", "raise", "skip"])
async def test_the_body_s_own_timeout_is_no_conflict(on_conflict):
    """A LockTimeout from inside, of another lock, is the body's error and gets out."""

    async def body():
        raise LockTimeout("another lock")

    with pytest.raises(LockTimeout, match="another lock"):
        await decorate("x", body, on_conflict=on_conflict)()


@pytest.mark.asyncio
async def test_wrong_arguments_are_a_type_error_before_any_lock():
    """As without the decorator."""
    lock = FakeLock()
    with pytest.raises(TypeError, match="user_id"):
        await decorate("{user_id}", job, lock=lock)()
    assert lock.log == []


def test_the_decorated_function_looks_like_the_original():
    """Name, docstring, signature and module, for documentation and for frameworks that read them."""
    locked = decorate("{user_id}", job)
    assert (locked.__name__, locked.__doc__, locked.__module__) == (job.__name__, job.__doc__, job.__module__)
    assert inspect.signature(locked) == inspect.signature(job)
    assert locked.__wrapped__ is job
    assert inspect.iscoroutinefunction(locked)
