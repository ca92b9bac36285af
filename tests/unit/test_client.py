"""Making clients and locks: what is refused, how, and that no password gets into any text. No server is needed."""

import asyncio
import inspect
import logging
import traceback
from functools import partial

import pytest
import redis.asyncio

import redlock_async
from redlock_async import ConfigurationError, HoldOptions, Lock, Redlock, blocking, client
from redlock_async.client import DefaultRedlock

URLS = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
SECRET = "s3cr3t"  # noqa: S105 - what must not be seen
VARIABLES = (
    "NODES", "TTL", "WAIT", "NODE_TIMEOUT", "RETRY_DELAY", "DRIFT_FACTOR", "FENCING", "NAMESPACE", "OWNER",
    "STRICT_RESTART",
)  # fmt: skip


@pytest.fixture
def environment(monkeypatch):
    """No REDLOCK_ variable is set but those that the test sets."""
    for variable in VARIABLES:
        monkeypatch.delenv(f"REDLOCK_{variable}", raising=False)
    return lambda **values: [monkeypatch.setenv(f"REDLOCK_{name}", value) for name, value in values.items()]


@pytest.fixture
def log(caplog):
    """All that the library logs."""
    caplog.set_level(logging.DEBUG, logger="redlock_async")
    return caplog


def refusal(make, *args, **kwargs):
    """The error it is refused with, and the traceback as it would be printed."""
    with pytest.raises(ConfigurationError) as caught:
        make(*args, **kwargs)
    return str(caught.value), "".join(traceback.format_exception(caught.value))


# Nodes


def test_a_client_is_made_without_a_loop_and_without_a_server():
    """It connects at its first use; so do its locks."""
    made = Redlock(URLS)
    lock = made("a", "b", ttl=5)
    assert isinstance(lock, Lock)
    assert lock.names == ("a", "b")
    assert made.statistics().nodes == 3
    assert made.statistics().nodes_up == 0


def test_nodes_may_be_clients_and_pools_and_any_iterable():
    """Their connection settings are used; a generator is read once."""
    pool = redis.asyncio.ConnectionPool.from_url("redis://c:3")
    made = Redlock(node for node in ("redis://a:1", redis.asyncio.Redis(host="b", port=2), pool))
    assert repr(made) == "<Redlock over a:1, b:2, c:3>"
    assert repr(Redlock(tuple(URLS))) == repr(Redlock(dict.fromkeys(URLS)))


@pytest.mark.parametrize("nodes", ["redis://a", "redis://a,redis://b", b"redis://a", ""])
def test_one_string_is_no_list_of_nodes(nodes):
    """It would be taken for a node a letter."""
    assert "nodes must be a list of URLs" in refusal(Redlock, nodes)[0]


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{SECRET}@a:1,redis://:{SECRET}@b:2", "redis://a,redis://b", "redis://a/0, rediss://b/0",
        "redis://a:1 redis://b:2", "unix:///run/a.sock,unix:///run/b.sock", "redis://a;redis://b",
    ],
)  # fmt: skip
def test_several_urls_in_one_text_are_told_apart_from_a_bad_one(text):
    """As in Redlock([os.environ["REDLOCK_NODES"]]). Some of them would be taken for one master."""
    message, printed = refusal(Redlock, [text])
    assert "it contains several URLs" in message
    assert "Redlock.from_env()" in message
    assert "port" not in message
    assert SECRET not in printed.replace(f"SECRET = {SECRET!r}", "")


@pytest.mark.parametrize("nodes", [[], (), {}, iter([])])
def test_no_nodes_are_refused(nodes):
    """The message says how many are good."""
    message, _ = refusal(Redlock, nodes)
    assert "nodes is empty" in message
    assert "3 or 5" in message


@pytest.mark.parametrize("nodes", [None, 3, redis.asyncio.Redis(), object()])
def test_what_is_no_list_is_refused_as_a_configuration_error(nodes):
    """A client that stands alone instead of in a list is the likely mistake."""
    assert "nodes" in refusal(Redlock, nodes)[0]


@pytest.mark.parametrize("node", [None, 5, b"redis://a", ("a", 6379), {"host": "a"}, object(), redis.Redis()])
def test_what_is_no_node_is_refused_with_what_it_is(node):
    """A blocking redis.Redis is told apart by its module."""
    message, _ = refusal(Redlock, ["redis://a", node, "redis://b"])
    assert "a node must be a URL, a redis.asyncio.Redis, its ConnectionPool or a RedisCluster" in message
    assert f"{type(node).__module__}.{type(node).__name__}" in message


def test_a_whole_cluster_is_one_node():
    """As a URL with any of its servers, or as a client of redis-py."""
    client = redis.asyncio.RedisCluster(host="10.0.0.1", port=7, username="u", password=SECRET)
    redlock = Redlock(["redis://a", client, f"rediss+cluster://u:{SECRET}@h1?startup=h2:7001&startup=[::1]:7"])
    assert repr(redlock) == "<Redlock over a:6379, cluster:10.0.0.1:7, cluster:h1:6379>"
    assert redlock._targets[2].seeds == (("h1", 6379), ("h2", 7001), ("::1", 7))
    assert redlock._targets[2].at("h3", 1).label == "h3:1"
    assert SECRET not in repr([redlock, *redlock._targets])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+cluster://h/1", "only database 0"),
        ("redis+cluster://h?startup=", "host:port"),
        ("redis+cluster://h?startup=h2:x", "host:port"),
        (f"redis+cluster://h?startup=u:{SECRET}@h2", "percent-encoded"),
        ("redis+cluster:///", "no host"),
        ("redis+cluster://h:70000", "port"),
    ],
)
def test_a_url_of_a_cluster_that_makes_no_sense(url, why):
    """The message says why, and shows no password."""
    message, _ = refusal(Redlock, [url])
    assert why in message
    assert SECRET not in message


def test_a_cluster_that_is_listed_twice_is_refused():
    """Also if another of its servers comes first."""
    for other in ("redis+cluster://h1", "redis+cluster://h2", "redis+cluster://h3?startup=h1"):
        message, _ = refusal(Redlock, ["redis+cluster://h1?startup=h2", other, "redis://b"])
        assert "listed twice" in message


def test_names_that_are_locked_together_need_one_slot():
    """Only where a node is a cluster: a script can only use keys of one slot."""
    clustered = Redlock(["redis+cluster://h1"])
    clustered("{order:7}:stock", "{order:7}:payment")
    message, _ = refusal(clustered, "stock", "payment")
    assert "common hash tag" in message
    Redlock(["redis://h1"])("stock", "payment")


@pytest.mark.parametrize("namespace", ["{", "a{", "{}", "a{}b", "x{y"])
def test_a_namespace_with_half_a_hash_tag_does_not_work_with_clusters(namespace):
    """Keys of one name would be in several slots."""
    message, _ = refusal(Redlock, ["redis+cluster://h1"], namespace=namespace)
    assert "namespace" in message
    Redlock(["redis://h1"], namespace=namespace)
    Redlock(["redis+cluster://h1"], namespace="{app}:")


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("redis://a", "redis://a", "a:6379"),
        ("redis://a", "redis://a:6379", "a:6379"),
        ("redis://a", "redis://A", "a:6379"),
        ("redis://a/0", "redis://a/1", "a:6379"),
        (f"redis://:{SECRET}@a", "redis://user:other@a", "a:6379"),
        ("redis://a", "rediss://a", "a:6379"),
        ("redis://", "redis://localhost:6379", "localhost:6379"),
        ("unix:///run/r.sock", "unix:///run/r.sock?db=1", "/run/r.sock"),
        (redis.asyncio.Redis(host="a"), "redis://a", "a:6379"),
        ("redis://[::1]:7", "redis://[::1]:7/2", "::1:7"),
    ],
)
def test_the_same_server_twice_is_refused(one, other, shown):
    """Two names of one server are one vote: whatever else differs in them, the address is shown and nothing secret."""
    message, printed = refusal(Redlock, ["redis://z", one, other])
    assert f"node {shown} is listed twice" in message
    assert SECRET not in printed


@pytest.mark.parametrize(("nodes", "even"), [(1, False), (2, True), (3, False), (4, True), (5, False), (6, True)])
def test_an_even_number_is_allowed_and_warned_of(nodes, even, log):
    """One node more for no more tolerance: worth a line, not an error."""
    Redlock([f"redis://h{number}" for number in range(nodes)])
    messages = [record.getMessage() for record in log.records if record.levelno == logging.WARNING]
    expected = f"redlock: {nodes} nodes tolerate no more failures than {nodes - 1}: use an odd number"
    assert messages == ([expected] if even else [])


# Passwords

BAD_URLS = [
    f"http://user:{SECRET}@host:6379",
    f"redis//user:{SECRET}@host:6379",
    f"user:{SECRET}@host:6379",
    f":{SECRET}@host:6379",
    f"//user:{SECRET}@host:6379",
    f"Redis+tls://user:{SECRET}@host",
    f"redis://user:{SECRET}@host:port",
    f"redis://user:{SECRET}@host:99999999",
    f"redis://user:{SECRET}@[::1",
    f"redis://user:{SECRET}@host:6379?db=x",
    f"redis://host?password={SECRET}&db=x",
    f"redis://user:{SECRET}@host?no_such_option=1",
    f"redis://user:{SECRET}@host?protocol=x",
    f"redis://user:{SECRET}@host?protocol=4",
    f"redis://user:{SECRET}@host?socket_timeout=soon",
    f"rediss://user:{SECRET}@host?ssl_cert_reqs=maybe",
    f"unix://user:{SECRET}@/run/r.sock?no_such_option=1",
    # Not escaped: the part after the sign is no password to a parser, and is one nevertheless.
    f"redis://user:pass/{SECRET}@host:6379/0",
    f"redis://user:{SECRET}/word@host:6379/0",
    f"redis://user:{SECRET}#word@host:6379/0",
    f"redis://user:{SECRET}?word@host:6379/0",
    f"redis://user:{SECRET}[word@host:6379/0",
    f"redis://user:12{SECRET}/3@host:6379/0",
    f"http://user:12/{SECRET}@host:6379/0",
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused_without_its_password(url, log):
    """Neither the message nor the traceback nor the log has it, however the URL is broken."""
    message, printed = refusal(Redlock, ["redis://a", url, "redis://b"])
    assert SECRET not in message
    assert SECRET not in printed
    assert SECRET not in log.text


@pytest.mark.parametrize("sign", "/?#")
def test_a_password_is_not_taken_for_a_port(sign):
    """redis://user:123/4@host, not escaped, reads as host `user`, port 123: a wrong server, half a password shown."""
    message, printed = refusal(Redlock, ["redis://a", f"redis://user:123{sign}4@host:6379/0", "redis://b"])
    assert "123" not in message
    assert "user:" not in printed.replace("rediss://user:secret@", "")


@pytest.mark.parametrize("url", ["redis:", "redis:host:6379", "redis:/host:6379", "redis:///host:6379"])
def test_a_url_that_lacks_its_host_is_not_taken_for_localhost(url):
    """A slash too few must not lead to the server on this machine; `redis://` alone may."""
    message, _ = refusal(Redlock, ["redis://a", url, "redis://b"])
    assert "not a Redis URL" in message


@pytest.mark.parametrize("url", ["http://host:6379", "host:6379", "host", "", " ", "10.0.0.1:6379", "tcp://h:1"])
def test_a_bad_url_is_shown_with_a_good_one(url):
    """What was wrong, and what it should look like."""
    message, _ = refusal(Redlock, ["redis://a", url, "redis://b"])
    assert "not a Redis URL" in message
    assert "redis://host:6379/0" in message
    # What is nothing but a host and a port is shown as it is: one of many must be found.
    assert (repr(url) in message) is (url in {"host:6379", "10.0.0.1:6379"} or "://" in url)


@pytest.mark.parametrize(
    "node",
    [
        f"redis://user:{SECRET}@host:1/2",
        f"redis://:{SECRET}@host:1/2",
        f"rediss://user:{SECRET}@host:1/2",
        f"redis://host:1/2?password={SECRET}",
        redis.asyncio.Redis(host="host", port=1, db=2, password=SECRET),
        redis.asyncio.ConnectionPool.from_url(f"redis://user:{SECRET}@host:1/2"),
    ],
)
def test_a_client_shows_where_its_nodes_are_and_no_password(node):
    """In its own repr and in those of all that it is made of."""
    made = Redlock([node, "redis://b", "redis://c"])
    assert repr(made) == "<Redlock over host:1/2, b:6379, c:6379>"
    shown = [repr(made), str(made), repr(made("x")), repr(made._targets), repr(made._settings), repr(made.statistics())]
    assert SECRET not in " ".join(shown)


def test_a_socket_s_password_is_not_shown():
    """It stands in the query there."""
    assert repr(Redlock([f"unix:///run/r.sock?password={SECRET}&db=3"])) == "<Redlock over /run/r.sock/3>"


# Names


@pytest.mark.parametrize("method", ["__call__", "lock"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "must not be empty"),
        ("x" * 5000, "at most 4096 bytes"),
        ("a\ud800", "surrogate"),
        (b"x", "must be a str, got bytes"),
        (5, "must be a str, got int"),
        (None, "must be a str, got NoneType"),
        (["a", "b"], "must be a str, got list"),
        ({"a"}, "must be a str, got set"),
        ("redlock-async:node", "reserved"),
    ],
)
def test_a_bad_name_is_refused_when_the_lock_is_made(method, name, says):
    """Alone, and among others; not only when it is taken."""
    make = getattr(Redlock(URLS), method)
    for names in ((name,), (name, "ok"), ("ok", name), ("ok", name, "x")):
        message, _ = refusal(make, *names)
        assert says in message
        assert len(message) < 300


def test_a_lock_needs_a_name():
    """`redlock()` is a call that forgot something."""
    with pytest.raises(TypeError):
        Redlock(URLS)()


def test_names_are_sorted_and_unique():
    """The order and the number in which they are given mean nothing."""
    assert Redlock(URLS)("b", "a", "b").names == ("a", "b")
    assert repr(Redlock(URLS)("b", "a")) == "<Lock 'a', 'b'>"


@pytest.mark.parametrize("option", ["ttl", "wait", "max_hold", "min_hold", "fencing", "renew", "reentrant"])
def test_a_bad_option_is_refused_when_the_lock_is_made(option):
    """By its name."""
    assert option in refusal(Redlock(URLS), "x", **{option: "no"})[0]


def test_a_misspelt_option_is_a_type_error():
    """As for any function."""
    for call in (lambda: Redlock(URLS, tll=5), lambda: Redlock(URLS)("x", tll=5)):
        with pytest.raises(TypeError, match="tll"):
            call()


HELD = "ttl, wait, fencing, renew, max_hold, min_hold, takeover_delay"


@pytest.mark.parametrize("make", [Redlock, blocking.Redlock])
@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("__call__", {"tll": 5}, f"a lock has no option 'tll'. Valid options: {HELD}, reentrant"),
        (
            "lock",
            {"permits": 5, "count": 1, "ttl": 3},
            f"a lock has no option 'count', 'permits'. Valid options: {HELD}, reentrant",
        ),
        ("fair_lock", {"reentrant": True}, f"a fair lock has no option 'reentrant'. Valid options: {HELD}"),
        ("read_lock", {"tll": 5}, f"a read lock has no option 'tll'. Valid options: {HELD}"),
        ("write_lock", {"drift_factor": 0.1}, f"a write lock has no option 'drift_factor'. Valid options: {HELD}"),
        (
            "semaphore",
            {"permits": 2, "permit": 2},
            f"a semaphore, beside permits and count, has no option 'permit'. Valid options: {HELD}",
        ),
    ],
)
def test_a_misspelt_option_is_told_with_those_that_there_are(make, kind, given, says):
    """Of each kind, and the same for threads."""
    with pytest.raises(TypeError) as caught:
        getattr(make(URLS), kind)("x", **given)
    assert str(caught.value) == says


def test_no_option_is_dropped_on_its_way():
    """What a lock of each kind is made with is what was given, or else the client's."""
    given = {"ttl": 7, "wait": None, "fencing": False, "renew": False, "max_hold": 5, "min_hold": 3}
    given["takeover_delay"] = 2
    assert set(given) == set(HoldOptions.__annotations__)
    client = Redlock(URLS)
    for make in (client, client.fair_lock, client.read_lock, client.write_lock, partial(client.semaphore, permits=2)):
        made = make("x", **given)
        assert {name: getattr(made._options, name) for name in given} == given
        assert made._kind.fenced is False
        assert make("x")._options is client._settings.options
    assert client("x", "y", reentrant=True)._options.reentrant


# Loops


def outside_a_loop(make):
    """Run a coroutine's first step where no loop is."""
    coroutine = make()
    try:
        coroutine.send(None)
    finally:
        coroutine.close()


@pytest.mark.parametrize("use", ["acquire", "try_acquire", "__aenter__"])
def test_a_lock_taken_outside_a_loop_is_a_clear_error(use):
    """Not a RuntimeError of asyncio's."""
    lock = Redlock(URLS)("x")
    assert "no running event loop" in refusal(outside_a_loop, getattr(lock, use))[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda made: made.__aenter__(),
        lambda made: made.status(),
        lambda made: made.inspect("x"),
        lambda made: made.force_release("x"),
    ],
)
def test_a_client_used_outside_a_loop_is_a_clear_error(use):
    """Whatever talks to the nodes needs one."""
    made = Redlock(URLS)
    assert "no running event loop" in refusal(outside_a_loop, lambda: use(made))[0]


def test_closing_a_client_that_was_never_used_does_nothing():
    """On a loop; twice is no error either."""

    async def close():
        made = Redlock(URLS)
        await made.aclose()
        await made.aclose()

    asyncio.run(close())


@pytest.mark.parametrize(
    "text", ["", "x", "redlock1.", "redlock1.!!!", "redlock1.e30=", "redlock1.W10=", None, 5, b"redlock1."]
)
def test_what_is_no_detached_lease_is_refused(text):
    """With what it should have been; a token is not repeated in full."""
    assert "Lease.detach()" in refusal(Redlock(URLS).attach, text)[0]


# Listeners


def test_a_listener_must_be_callable_and_can_be_ended():
    """Ending it twice, or one of two, is no error and touches no other."""
    made = Redlock(URLS)
    assert "callable" in refusal(made.on_event, "print")[0]
    end, _ = made.on_event(print), made.on_event(repr)
    end()
    end()
    assert made._events.listeners == [repr]


# The environment


def test_from_env_makes_a_client_of_the_variables(environment):
    """Nodes and options; nothing else is read."""
    environment(NODES="redis://a,redis://b,redis://c", TTL="5", WAIT="none", NAMESPACE="app:")
    made = Redlock.from_env()
    assert repr(made) == "<Redlock over a:6379, b:6379, c:6379>"
    assert made._settings.options.ttl == 5.0
    assert made._settings.options.wait is None
    assert made._keys.lock("x") == b"app:x"


def test_from_env_takes_any_mapping(environment):
    """And then the process's own variables count for nothing."""
    environment(NODES="redis://never", TTL="bad")
    assert repr(Redlock.from_env({"REDLOCK_NODES": "redis://a"})) == "<Redlock over a:6379>"


def test_from_env_of_a_subclass_is_of_that_class(environment):
    """`Self`, not Redlock."""

    class Mine(Redlock):
        pass

    environment(NODES="redis://a")
    assert type(Mine.from_env()) is Mine


@pytest.mark.usefixtures("environment")
def test_from_env_without_nodes_names_the_variable():
    """And shows what it may look like."""
    message, _ = refusal(Redlock.from_env)
    assert "REDLOCK_NODES is not set" in message


def test_from_env_shows_no_password(environment):
    """Of a URL that is broken."""
    environment(NODES=f"redis://a,http://user:{SECRET}@host")
    assert SECRET not in refusal(Redlock.from_env)[1]


# The global client


@pytest.mark.parametrize(
    "use",
    [
        lambda made: made("x"),
        lambda made: made.lock("x"),
        lambda made: made.statistics(),
        lambda made: made.on_event(print),
    ],
)
@pytest.mark.usefixtures("environment")
def test_the_global_client_without_nodes_says_what_to_set(use):
    """Each time, not only the first."""
    made = DefaultRedlock()
    for _ in range(2):
        assert "REDLOCK_NODES is not set" in refusal(use, made)[0]


def test_the_global_client_is_made_at_its_first_use(environment):
    """Not when it is imported: variables set in between count, those set after it do not."""
    made = DefaultRedlock()
    assert repr(made) == "<Redlock from the environment, not used yet>"
    environment(NODES="redis://a,redis://b,redis://c", TTL="3")
    assert made("x")._options.ttl == 3.0
    environment(TTL="4")
    assert made("x")._options.ttl == 3.0
    assert repr(made) == "<Redlock over a:6379, b:6379, c:6379>"
    assert isinstance(made, Redlock)


def test_the_global_client_can_be_used_after_its_environment_was_put_right(environment):
    """An error at first use is no state that stays."""
    made = DefaultRedlock()
    assert "REDLOCK_NODES" in refusal(made, "x")[0]
    environment(NODES="redis://a")
    assert made("x").names == ("x",)


@pytest.mark.parametrize("nodes", ["http://a", "redis://a,redis://a"])
def test_the_global_client_with_bad_nodes_says_so_each_time(nodes, environment):
    """The second use must not find a client half made."""
    environment(NODES=nodes)
    made = DefaultRedlock()
    first, _ = refusal(made, "x")
    for use in (lambda it: it("x"), lambda it: it.statistics(), lambda it: outside_a_loop(it("x").acquire)):
        assert refusal(use, made)[0] == first
    assert repr(made)
    environment(NODES="redis://a")
    assert made.statistics().nodes == 1


@pytest.mark.usefixtures("environment")
def test_the_global_client_has_no_attributes_that_a_client_has_not():
    """Frameworks ask any object they see for attributes of their own: that must not need an environment."""
    made = DefaultRedlock()
    assert not hasattr(made, "_is_coroutine_marker")
    assert not hasattr(made, "no_such_attribute")
    assert not inspect.iscoroutinefunction(made)


@pytest.mark.usefixtures("environment")
def test_python_s_own_protocols_need_no_environment():
    """inspect, copy and the like look for names with two underscores on any object they see."""
    made = DefaultRedlock()
    for name in ("__wrapped__", "__deepcopy__", "__test__", "__len__"):
        assert not hasattr(made, name)


def test_the_global_client_is_one():
    """`from redlock_async import redlock` everywhere is the same."""
    assert type(redlock_async.redlock) is client.DefaultRedlock


@pytest.mark.parametrize("kind", ["__call__", "fair_lock", "read_lock", "write_lock"])
def test_a_forgotten_async_is_named(kind):
    """Python before 3.14 would only say that the object does not support the context manager protocol."""
    with pytest.raises(TypeError, match=r"Lock 'x'> needs async with, in an async def\. In threads, use"):  # noqa: SIM117 - two statements, as a user writes them
        with getattr(Redlock(["redis://10.0.0.1"]), kind)("x"):
            pass
