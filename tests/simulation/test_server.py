"""A simulated server on its own: time, sessions, faults. test_fidelity.py compares its replies with a real server's."""

import subprocess
import sys

import hiredis
import pytest

from redlock_async._transport.commands import script
from redlock_async.testing.simulation._server import SimulatedServer

RUN_ID = "a" * 40
START = 1.7e9
ACQUIRE = script("mutex_acquire").source


class Driver:
    """A server with its clock; records pushes and closed sessions."""

    def __init__(self, **options):
        self.now = START
        self.pushed, self.closed = [], []
        self.server = SimulatedServer(lambda: self.now, run_id=RUN_ID, **options)

    def connect(self, *modes, resp=3):
        """Connect a client, with client tracking if modes are given."""
        session = self.server.connect(
            lambda who, data: self.pushed.append((who.id, data)), self.closed.append, resp=resp
        )
        if modes:
            assert self.say(session, "CLIENT", "TRACKING", *modes) == "OK"
        return session

    def say(self, session, *words):
        """Send one command and return its reply, without the pushes that follow it."""
        reader = hiredis.Reader()
        reader.feed(self.server.receive(session, hiredis.pack_command(words)))
        reply = reader.gets()
        return "OK" if reply == b"OK" else reply


def invalidation(*keys):
    return b"".join(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (len(key), key) for key in keys)


@pytest.fixture
def driver():
    return Driver()


# Bytes


def test_a_command_in_pieces_is_carried_out_when_it_is_complete(driver):
    """Single bytes, and two commands at once."""
    session = driver.connect()
    data = hiredis.pack_command(("SET", "k", "v")) + hiredis.pack_command(("GET", "k"))
    replies = [driver.server.receive(session, data[i : i + 1]) for i in range(len(data))]
    assert [reply for reply in replies if reply] == [b"+OK\r\n", b"$1\r\nv\r\n"]
    assert driver.server.receive(session, data) == b"+OK\r\n$1\r\nv\r\n"


def test_an_old_client_is_answered_in_its_protocol(driver):
    """RESP2 until HELLO selects RESP3."""
    session = driver.connect(resp=2)
    assert driver.server.receive(session, hiredis.pack_command(("GET", "k"))) == b"$-1\r\n"
    assert b"proto" in driver.say(session, "HELLO", 3)
    assert driver.server.receive(session, hiredis.pack_command(("GET", "k"))) == b"_\r\n"


# Time


def test_a_key_lasts_through_its_last_millisecond(driver):
    """As on a real server, a key expires only after its deadline."""
    session = driver.connect()
    driver.say(session, "SET", "k", "v", "PX", 1000)
    driver.now = START + 1
    assert driver.say(session, "PTTL", "k") == 0
    driver.now = START + 1.001
    assert driver.say(session, "PTTL", "k") == -2


def test_next_expiry_is_when_active_expiry_deletes(driver):
    """Not earlier; renewed, deleted and persistent keys are not due."""
    session = driver.connect()
    assert driver.server.next_expiry() is None
    for number in range(100):
        driver.say(session, "SET", f"k{number}", "v", "PX", 5000 + number)
    driver.say(session, "PEXPIRE", "k0", 9000)
    driver.say(session, "DEL", "k1")
    driver.say(session, "SET", "k2", "v")
    due = driver.server.next_expiry()
    assert due == pytest.approx(START + 5.004)
    driver.now = due - 0.001
    driver.server.expire_now()
    assert len(driver.server.keys()) == 99
    driver.now = due
    driver.server.expire_now()
    left = driver.server.keys()
    assert len(left) == 98
    assert b"k3" not in left


def test_what_is_renewed_for_ever_leaves_nothing_behind(driver):
    """Each renewal adds a deadline, and the old ones are swept."""
    session = driver.connect()
    for number in range(10_000):
        driver.say(session, "SET", "k", "v", "PX", 5000 + number)
    assert len(driver.server._store._expiry_queue) < 100
    assert driver.server.next_expiry() == pytest.approx(START + 15.0)


def test_active_expiry_may_lag_but_an_access_never_does():
    """`expire_lag` is the delay of active expiry."""
    driver = Driver(expire_lag=lambda: 0.5)
    session = driver.connect()
    driver.say(session, "SET", "k", "v", "PX", 1000)
    assert driver.server.next_expiry() == pytest.approx(START + 1.501)
    driver.now = START + 1.2
    driver.server.expire_now()
    assert driver.say(session, "DBSIZE") == 1
    assert driver.say(session, "GET", "k") is None
    assert driver.say(session, "DBSIZE") == 0


def test_looking_at_the_keys_disturbs_nothing(driver):
    """Expired keys are not included, but they are not deleted or reported either."""
    session = driver.connect("ON")
    driver.say(session, "SET", "k", "v", "PX", 1000)
    driver.say(session, "GET", "k")
    driver.now += 2
    assert driver.server.keys() == {}
    assert driver.pushed == []
    driver.server.expire_now()
    assert driver.pushed == [(session.id, invalidation(b"k"))]


def test_time_stands_still_within_a_script(driver):
    """The clock is read once, when it starts."""
    session = driver.connect()
    readings = iter([START, START + 1, START + 2])
    driver.server._clock = lambda: next(readings)
    source = "local before = redis.call('TIME') return {before[2], redis.call('TIME')[2], redis.call('PTTL', 'k')}"
    assert driver.say(session, "EVAL", source, 0) == [b"0", b"0", -2]


def test_a_clock_that_is_set_back_gives_keys_more_time(driver):
    """Expiry follows the wall clock, which may jump either way."""
    session = driver.connect()
    driver.say(session, "SET", "k", "v", "PX", 1000)
    driver.now -= 60
    assert driver.say(session, "PTTL", "k") == 61_000


# Tracking


def test_others_are_told_at_once_and_oneself_after_the_reply(driver):
    """Once for each read of a key."""
    writer, reader = driver.connect("ON"), driver.connect("ON", "NOLOOP")
    for session in (writer, reader):
        driver.say(session, "GET", "k")
    answer = driver.server.receive(writer, hiredis.pack_command(("SET", "k", "v")) + hiredis.pack_command(("DEL", "k")))
    assert answer == b"+OK\r\n" + invalidation(b"k") + b":1\r\n"
    assert driver.pushed == [(reader.id, invalidation(b"k"))]


def test_noloop_spares_only_ones_own_changes(driver):
    """A session's own change still ends its tracking of the key."""
    ours, other = driver.connect("ON", "NOLOOP"), driver.connect()
    driver.say(ours, "GET", "k")
    assert driver.server.receive(ours, hiredis.pack_command(("SET", "k", "v"))) == b"+OK\r\n"
    driver.say(other, "SET", "k", "v")
    assert driver.pushed == []
    driver.say(ours, "GET", "k")
    driver.say(other, "SET", "k", "v")
    assert driver.pushed == [(ours.id, invalidation(b"k"))]


def test_a_flush_tells_everybody_who_tracks(driver):
    """With null for the keys, and even with NOLOOP."""
    ours, other, _ = driver.connect("ON", "NOLOOP"), driver.connect("ON"), driver.connect()
    flushed = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
    assert driver.server.receive(ours, hiredis.pack_command(("FLUSHALL",))) == b"+OK\r\n" + flushed
    assert driver.pushed == [(other.id, flushed)]


def test_a_server_without_tracking_says_so():
    """As a server that is too old for it."""
    driver = Driver(tracking=False)
    assert "unknown subcommand" in str(driver.say(driver.connect(), "CLIENT", "TRACKING", "ON"))


# Faults


def test_a_killed_session_is_told_of_and_answered_no_more(driver):
    """CLIENT KILL ID does not end the calling session."""
    killer, victim = driver.connect(), driver.connect()
    assert driver.say(killer, "CLIENT", "KILL", "ID", killer.id) == 0
    assert driver.say(killer, "CLIENT", "KILL", "ID", victim.id) == 1
    assert driver.closed == [victim]
    assert driver.server.receive(victim, hiredis.pack_command(("PING",))) == b""
    assert driver.say(killer, "CLIENT", "KILL", "ID", victim.id) == 0


def test_nothing_is_pushed_to_who_has_gone(driver):
    """Its tracked keys are forgotten with it."""
    reader, writer = driver.connect("ON"), driver.connect()
    driver.say(reader, "GET", "k")
    driver.server.disconnect(reader)
    driver.say(writer, "SET", "k", "v")
    assert driver.pushed == []


@pytest.mark.parametrize("keep_data", [True, False])
def test_a_restart_ends_sessions_and_forgets_scripts(driver, keep_data):
    """The keys stay or go, without notice."""
    session = driver.connect("ON")
    driver.say(session, "SET", "k", "v", "PX", 5000)
    driver.say(session, "GET", "k")
    sha = driver.say(session, "SCRIPT", "LOAD", "return 1")
    driver.server.restart(run_id="b" * 40, keep_data=keep_data)
    assert driver.server.receive(session, hiredis.pack_command(("PING",))) == b""
    assert (driver.pushed, driver.closed) == ([], [])
    again = driver.connect()
    assert again.id == 1
    assert driver.say(again, "SCRIPT", "EXISTS", sha) == [0]
    assert driver.say(again, "GET", "k") == (b"v" if keep_data else None)
    assert b"run_id:" + b"b" * 40 in driver.say(again, "INFO", "server")


def test_ids_go_on_where_a_restart_is_told_to_begin(driver):
    """So an old id may belong to another client."""
    driver.server.restart(run_id="b" * 40, keep_data=True, client_ids_from=7)
    assert driver.say(driver.connect(), "CLIENT", "ID") == 7


def test_a_wipe_loses_keys_and_scripts_and_is_reported(driver):
    """As by an operator."""
    session = driver.connect("ON", "NOLOOP")
    sha = driver.say(session, "SCRIPT", "LOAD", "return 1")
    driver.say(session, "SET", "k", "v")
    driver.server.wipe()
    assert driver.pushed == [(session.id, b">2\r\n$10\r\ninvalidate\r\n_\r\n")]
    assert driver.server.keys() == {}
    assert "NOSCRIPT" in str(driver.say(session, "EVALSHA", sha, 0))


def test_a_command_can_be_made_to_fail(driver):
    """One command or all of them, also in lower case."""
    session = driver.connect()
    driver.server.errors[b"SET"] = b"MISCONF no"
    assert str(driver.say(session, "set", "k", "v")) == "MISCONF no"
    assert driver.say(session, "GET", "k") is None
    driver.server.errors[b"*"] = b"LOADING soon"
    assert str(driver.say(session, "PING")) == "LOADING soon"


def test_at_maxmemory_a_script_that_has_written_goes_on(driver):
    """It cannot be stopped halfway. Reads, and writes that free memory, are never rejected."""
    session = driver.connect()
    driver.say(session, "SET", "k", "v")
    driver.server.oom = True
    assert str(driver.say(session, "SET", "k", "w")).startswith("OOM")
    assert str(driver.say(session, "EVAL", "return redis.call('SET', 'k', 'w')", 0)).startswith("OOM")
    assert driver.say(session, "EVAL", "redis.call('DEL', 'x') return redis.call('SET', 'k', 'w')", 0) == "OK"
    assert driver.say(session, "DEL", "k") == 1


@pytest.mark.parametrize(("dialect", "known"), [((), []), (("DELIFEQ",), ["DELIFEQ"]), (("DELEX",), ["DELEX"])])
def test_a_server_speaks_its_own_dialect(dialect, known):
    """Compare-and-delete: Valkey and Redis each have a command for it, and older versions none."""
    driver = Driver(dialect=dialect)
    session = driver.connect()
    for words in (("DELIFEQ", "k", "v"), ("DELEX", "k", "IFEQ", "v")):
        driver.say(session, "SET", "k", "v")
        reply = driver.say(session, *words)
        assert reply == 1 if words[0] in known else "unknown command" in str(reply)


# Scripts


def test_nodes_share_a_compiled_script_but_not_its_being_loaded():
    """A script is compiled once per process, but only known to servers that loaded it."""
    one, two = Driver(), Driver()
    first, second = one.connect(), two.connect()
    sha = one.say(first, "SCRIPT", "LOAD", ACQUIRE)
    assert one.say(first, "EVALSHA", sha, 1, "lock", 1, "anna", 1000) < -1
    assert "NOSCRIPT" in str(two.say(second, "EVALSHA", sha, 1, "lock", 1, "anna", 1000))
    assert two.say(second, "EVAL", ACQUIRE, 1, "lock", 1, "boris", 1000) < -1
    assert two.say(second, "EVALSHA", sha, 1, "lock", 1, "anna", 1000) == [1, b"boris", 1000]
    assert one.server.keys() == {b"lock": b"anna"}


def test_a_mistake_of_the_simulation_is_not_taken_for_the_servers(driver, monkeypatch):
    """It is raised by `receive`, not returned as an error reply."""

    def broken(_key):
        raise ZeroDivisionError

    session = driver.connect()
    monkeypatch.setattr(type(driver.server._store), "string", lambda _store, key: broken(key))
    for call in ("call", "pcall"):
        with pytest.raises(ZeroDivisionError):
            driver.say(session, "EVAL", f"return redis.{call}('GET', 'k')", 0)


def test_without_lupa_only_a_script_fails():
    """The error says what to install."""
    program = """
import sys
sys.modules["lupa"] = None
from redlock_async.testing.simulation._server import SimulatedServer
server = SimulatedServer(lambda: 0.0, run_id="")
session = server.connect(print)
assert server.receive(session, b"*1\\r\\n$4\\r\\nPING\\r\\n") == b"+PONG\\r\\n"
try:
    server.receive(session, b"*3\\r\\n$4\\r\\nEVAL\\r\\n$8\\r\\nreturn 1\\r\\n$1\\r\\n0\\r\\n")
except ImportError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "needs lupa: pip install 'redlock-async[simulation]'" in said
