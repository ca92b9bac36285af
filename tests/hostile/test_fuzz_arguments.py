"""Any value as any argument either works or raises a ConfigurationError that names the argument."""

import asyncio
import base64
import contextlib
import json
import string
import traceback
import zlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from redlock_async import ConfigurationError, Lease, Redlock
from redlock_async._rules.lease_timing import Phase

NODES = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
SECRET = "hush-hush"  # noqa: S105 - looked for in every message

quick = settings(
    max_examples=60, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)


class Reached(Exception):  # noqa: N818 - no error
    """The arguments were taken, and something would be sent now."""


class Sealed:
    """Stands for the engine: the first use of it is the end of what can be checked beforehand."""

    def __getattr__(self, name):
        raise Reached(name)


class Client(Redlock):
    """One that sends nothing."""

    def _session(self):
        return Sealed()


class Lines:
    """Something whose repr is a page, as an array's is."""

    def __repr__(self):
        return "several\nlines\n" * 100


class Mute:
    """Something that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError


class Array:
    """Something that compares with anything and is neither true nor false, as an array is."""

    def __eq__(self, other):
        return self

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None

    def __bool__(self):
        raise ValueError


client = Client(NODES)

LOOP = asyncio.Runner()


@pytest.fixture(scope="module", autouse=True)
def one_loop():
    """For all that is awaited: none of it gets as far as to wait."""
    yield
    LOOP.close()


numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([
        0, -1, -0.0, 1, 10, 0.009, 0.01, 1e-320, 1e300, 1.8e308, 10**400, 10**5000, -(10**5000), 2**63, 2**64,
        float("nan"), float("inf"), -float("inf"),
        Decimal(1), Decimal("nan"), Fraction(1, 3), 1j, True, False,
        timedelta(0), timedelta(seconds=1), timedelta(seconds=-1), timedelta.max, timedelta.min,
        "1", "1s", "", b"1",
    ]),
    st.timedeltas(),
    st.decimals(),
)  # fmt: skip
things = st.sampled_from([
    None, object(), object, int, ..., NotImplemented, Lines(), Array(), Decimal("sNaN"), [], {}, (), set(), [1],
    {"a": Lines()}, range(3),
    datetime.now(UTC), bytearray(b"x"), memoryview(b"x"), lambda: None, iter(()), asyncio.sleep, "\ud800", "a\nb",
])  # fmt: skip
anything = st.one_of(numbers, things, st.text(max_size=20), st.binary(max_size=8), st.lists(st.integers(), max_size=3))
words = st.one_of(st.text(max_size=30), anything)


def taken_or_refused(argument, call):
    """It works, or says what is wrong with that argument, in one short line; returns whether it worked."""
    try:
        result = call()
        if asyncio.iscoroutine(result):
            LOOP.run(result)
    except Reached:
        return True
    except ConfigurationError as error:
        text = str(error)
        assert any(word in text for word in argument.split("|")), text
        assert "\n" not in text
        assert text.isprintable(), text
        assert len(text) < 500, text
        return False
    return True


OPTIONS = {
    "ttl": "ttl", "wait": "wait", "fencing": "fencing", "renew": "renew", "max_hold": "max_hold",
    "min_hold": "min_hold",
}  # fmt: skip
KINDS = {
    "lock": client,
    "fair": client.fair_lock,
    "read": client.read_lock,
    "write": client.write_lock,
    "semaphore": lambda name, **options: client.semaphore(name, permits=2, **options),
    "locked": client.locked,
}


@quick
@given(option=st.sampled_from(sorted(OPTIONS)), kind=st.sampled_from(sorted(KINDS)), value=anything)
@example("min_hold", "lock", 1e300)
@example("wait", "lock", 10**5000)
@example("ttl", "locked", -1)
@example("fencing", "lock", Lines())
def test_options_of_each_kind(option, kind, value):
    """Refused where the lock is made, and by the decorator where it decorates."""
    taken = taken_or_refused(option, lambda: KINDS[kind]("x", **{option: value}))
    if taken and isinstance(value, (str, bytes, Decimal, Fraction, complex)):
        pytest.fail(f"{kind} took {option}={value!r}")


CONSTRUCTOR = ("ttl", "wait", "node_timeout", "retry_delay", "drift_factor", "fencing", "namespace", "owner",
               "strict_restart", "quorum")  # fmt: skip


@quick
@given(option=st.sampled_from(CONSTRUCTOR), value=anything)
@example("node_timeout", 1.8e308)
@example("retry_delay", 10**400)
@example("drift_factor", Decimal("0.01"))
@example("drift_factor", 10**5000)
@example("quorum", 10**5000)
@example("quorum", -(10**5000))
@example("ttl", timedelta.max)
@example("owner", "a\nb")
def test_options_of_the_client(option, value):
    """Refused by the constructor; what it takes, each kind of lock can be made with."""

    def make():
        made = Client(NODES, **{option: value})
        made("x"), made.fair_lock("x"), made.read_lock("x"), made.write_lock("x"), made.semaphore("x", permits=1)
        made.latch("x", count=1)

    taken_or_refused(option, make)


@quick
@given(name=words)
@example(Lines())
@example("x" * 5000)
@example("\n" * 5000)
def test_names(name):
    """Of every kind, and of what operators ask."""
    calls = [
        lambda: client(name), lambda: client("a", name), lambda: client.fair_lock(name), lambda: client.read_lock(name),
        lambda: client.write_lock(name), lambda: client.semaphore(name, permits=1), lambda: client.latch(name, count=1),
        lambda: client.inspect(name), lambda: client.force_release(name),
    ]  # fmt: skip
    assert len({taken_or_refused("name", call) for call in calls}) == 1
    assert taken_or_refused("name", calls[0]) <= isinstance(name, str)


@quick
@given(value=anything)
@example(10**5000)
@example(1.8e308)
def test_numbers_of_semaphores_and_latches(value):
    """How many there are, and for how long they are kept."""
    taken_or_refused("permits", lambda: client.semaphore("x", permits=value))
    taken_or_refused("count", lambda: client.latch("x", count=value))
    taken_or_refused("retention", lambda: client.latch("x", count=1, retention=value))
    taken_or_refused("generation|name", lambda: client.latch("x", count=1, generation=value))


@quick
@given(value=anything)
@example(-1)
def test_what_is_given_with_each_call(value):
    """Before anything is sent."""
    taken_or_refused("wait", lambda: client("x").acquire(wait=value))
    taken_or_refused("wait", lambda: client.read_lock("x").acquire(wait=value))
    taken_or_refused("wait", lambda: client.write_lock("x").acquire(wait=value))
    taken_or_refused("timeout", lambda: client.latch("x", count=1).wait(value))
    taken_or_refused("event", lambda: client.latch("x", count=1).count_down(value))
    taken_or_refused("on_event", lambda: Client(NODES).on_event(value))

    async def reached(_held, _ttl):
        raise Reached

    held = SimpleNamespace(ttl=1.0, drift_factor=0.01, takeover_delay=0.0, phase=Phase.RELEASED)
    lease = Lease(SimpleNamespace(registry=SimpleNamespace(extend=reached)), held)
    taken_or_refused("ttl", lambda: lease.extend(value))


@quick
@given(template=words, on_conflict=words)
@example("{", "wait")
@example("{0}", "wait")
@example("{a.b[", "wait")
@example("{a!z}", "wait")
@example(Lines(), Lines())
def test_the_decorator(template, on_conflict):
    """A template, what to do on a conflict, and what it decorates."""

    async def job(a, *, b=0): ...

    taken_or_refused("on_conflict", lambda: client.locked("x", on_conflict=on_conflict))
    taken_or_refused("name", lambda: client.locked(template)(job))
    taken_or_refused("locked()", lambda: client.locked("x")(template))


@quick
@given(option=st.sampled_from(["hold", "ttl", "fencing", "max_hold"]), value=anything)
@example("hold", 60)
@example("hold", timedelta.max)
@example("ttl", 1e-9)
def test_once(option, value):
    """A period, what is held of it, and what the lock takes; before there is a loop."""
    taken_or_refused("every", lambda: client.once("x", every=value))
    taken_or_refused("retry_failed", lambda: client.once("x", every=60, retry_failed=value))
    taken_or_refused(option, lambda: client.once("x", every=60, **{option: value}))


@quick
@given(name=words)
@example("{a}")
@example("{{a}}")
@example("x" * 5000)
def test_names_of_once(name):
    """As a template, and as a whole name."""

    async def job(): ...

    taken_or_refused("name", lambda: client.once(name, every=60)(job))
    taken_or_refused("name", lambda: client.once(name, every=60).try_acquire())


@quick
@given(value=anything)
@example(lambda name: client.latch(name, count=1))
@example(asyncio.sleep)
@example(client)
def test_what_makes_the_lock_of_a_decorator(value):
    """Anything but None, which stands for the plain lock."""

    async def job(): ...

    if value is not None:
        taken_or_refused("factory", lambda: client.locked("x", factory=value)(job))


def detached(**changes):
    """A text as `Lease.detach` writes it, but for these."""
    fields = {
        "kind": "lock", "names": ["x"], "details": {}, "token": "0" * 32 + ":me", "fence": 1, "ttl": 10.0,
        "renew": True, "max_hold": None, "min_hold": 0.0, "takeover_delay": 0.0, "retry_failed": False,
        "namespace": "", "until": 1.0, "clock": None,
    } | changes  # fmt: skip
    return sealed(json.dumps(fields).encode())


def sealed(payload):
    """A text with a right checksum, whatever it says."""
    return f"redlock1.{zlib.crc32(payload):08x}" + base64.urlsafe_b64encode(payload).decode()


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("\ud800"),
              st.sampled_from([10**400, 2**63, -1, 0, "semaphore", "read", "write", "fair"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=4,
)  # fmt: skip
FIELDS = (
    "kind", "names", "details", "token", "fence", "ttl", "renew", "max_hold", "min_hold", "takeover_delay",
    "retry_failed", "namespace", "until", "clock",
)  # fmt: skip


@quick
@given(changes=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=3), text=words)
@example({"token": "\ud800"}, "")
@example({"fence": True}, "")
@example({"fence": 10**400}, "")
@example({"until": float("nan")}, "")
@example({"until": float("inf")}, "redlock1.00000000====")
@example({"kind": "semaphore", "details": {"permits": True, "slots": [False]}}, sealed(b"[]"))
@example({"kind": "semaphore", "details": {"permits": 10**400, "slots": [0]}}, sealed(b"null"))
@example({"kind": "read", "names": ["a", "b"]}, sealed(b"[" * 100_000))
def test_texts_of_leases(changes, text):
    """Whatever was done to one on its way here."""
    taken_or_refused("", lambda: client.attach(detached(**changes)))
    if not isinstance(text, str) or not text.startswith("redlock1."):
        assert not taken_or_refused("not a text that Lease.detach() returned", lambda: client.attach(text))
    else:
        taken_or_refused("", lambda: client.attach(text))


def test_a_text_of_a_lease_that_is_right_is_taken():
    """Else the test above would prove nothing."""
    assert taken_or_refused("", lambda: client.attach(detached()))
    for slots in ([1], [1, 0]):
        details = {"permits": 2, "slots": slots}
        assert taken_or_refused("", lambda details=details: client.attach(detached(kind="semaphore", details=details)))


urls = st.builds(
    lambda scheme, user, host, port, path: f"{scheme}{user}:{SECRET}@{host}{port}{path}",
    st.sampled_from(["redis://", "rediss://", "unix://", "http://", "redis:/", "", "REDIS://"]),
    st.text(string.printable, max_size=4),
    st.one_of(st.sampled_from(["", "h", "127.0.0.1", "[::1]", "[::1", "a b", "x" * 300]), st.text(max_size=4)),
    st.sampled_from(["", ":6379", ":", ":x", ":99999", ":-1", ":6379:1"]),
    st.sampled_from(["", "/", "/0", "/x", "/-1", "?", "?db=x", "?protocol=9", "?socket_timeout=x", "?nonsense=1", "#",
                     "?health_check_interval=-1", "?max_connections=0", "?ssl_cert_reqs=what", "?db=1&db=2"]),
)  # fmt: skip


@quick
@given(nodes=st.one_of(anything, st.lists(st.one_of(urls, anything), max_size=3)), url=urls)
def test_nodes(nodes, url):
    """Anything for them, or among them; and never a password in what is said of it."""
    taken_or_refused("node|Redis URL", lambda: Client(nodes))
    with contextlib.suppress(ConfigurationError):
        assert SECRET not in repr(Client([url]))
    for given_ in ([url], [url, url], url, [[url]], {url: url}, [*NODES, url]):
        with contextlib.suppress(ConfigurationError):
            try:
                Client(given_)
            except ConfigurationError as error:
                told = "".join(traceback.format_exception(error))  # with all that it is chained to
                assert SECRET not in told.replace(f"SECRET = {SECRET!r}", ""), told
                raise
    taken_or_refused("node|Redis URL", lambda: Client([url]))
    taken_or_refused("node|Redis URL", lambda: Client([url, url]))


def test_the_end_of_a_password_is_not_taken_for_an_option_and_shown():
    """As redis-py would, of one with a question mark in it."""
    for url in (
        f"unix://:a?{SECRET}@/run/r.sock",
        f"unix:///:{SECRET}@",
        f"unix:///run/r.sock?{SECRET}@=1",
        f"unix://a?b:{SECRET}@/run/r.sock?db=1",
        f"redis://:a?{SECRET}@h",
    ):
        with pytest.raises(ConfigurationError, match=r"percent-encoded|Redis URL") as caught:
            Client([url])
        assert SECRET not in str(caught.value)


VARIABLES = ("NODES", "TTL", "WAIT", "NODE_TIMEOUT", "RETRY_DELAY", "DRIFT_FACTOR", "FENCING", "NAMESPACE", "OWNER",
             "STRICT_RESTART")  # fmt: skip


@quick
@given(variable=st.sampled_from(VARIABLES), text=st.one_of(st.text(max_size=20), anything), environ=anything)
@example("TTL", "1e400", {})
@example("WAIT", "nan", 5)
@example("NODES", 5, {})
@example("TTL", Lines(), None)
def test_the_environment(variable, text, environ):
    """As it may be written there, and for what may be given instead of it."""
    given_ = {"REDLOCK_NODES": ",".join(NODES), f"REDLOCK_{variable}": text}
    argument = "" if variable == "NODES" else variable.lower()

    def make():
        try:
            Client.from_env(given_)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace(f"REDLOCK_{variable}", variable.lower())) from None

    taken_or_refused(argument, make)
    taken_or_refused("", lambda: Client.from_env(environ))


def test_an_argument_that_cannot_be_shown():
    """Named nevertheless."""
    for argument, call in {
        "name": lambda: client(Mute()),
        "renew": lambda: client("x", renew=Mute()),
        "ttl": lambda: Client(NODES, ttl=Mute()),
        "wait": lambda: client("x").acquire(wait=Mute()),
        "permits": lambda: client.semaphore("x", permits=Mute()),
        "on_conflict": lambda: client.locked("x", on_conflict=Mute()),
        "template": lambda: client.locked(Mute())(asyncio.sleep),
        "namespace": lambda: Client(NODES, namespace=Mute()),
        "owner": lambda: Client(NODES, owner=Mute()),
        "node": lambda: Client([Mute()]),
        "environment": lambda: Client.from_env(Mute()),
        "REDLOCK_TTL": lambda: Client.from_env({"REDLOCK_NODES": NODES[0], "REDLOCK_TTL": Mute()}),
        "text": lambda: client.attach(Mute()),
    }.items():
        assert not taken_or_refused(argument, call)


def test_a_wrong_number_of_arguments_is_a_type_error():
    """As for any function, and there only."""
    for call in (
        client, lambda: client("x", nonsense=1), lambda: client.fair_lock("x", "y"), client.read_lock,
        lambda: client.semaphore("x"), lambda: client.latch("x"), lambda: client.locked("x", nonsense=1),
        Redlock, lambda: Redlock(NODES, 10), client.attach, lambda: client("x").acquire(1),
    ):  # fmt: skip
        with pytest.raises(TypeError) as caught:
            call()
        assert not isinstance(caught.value, ConfigurationError)
