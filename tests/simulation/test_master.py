"""A simulated master by itself: time, sessions, faults. What its commands answer is compared in test_fidelity.py."""

import subprocess
import sys
from importlib.resources import files

import hiredis
import pytest

from redlock_async.testing.simulation._master import Master

RUN_ID = "a" * 40
START = 1.7e9
ACQUIRE = files("redlock_async").joinpath("lua/mutex_acquire.lua").read_bytes()


class Server:
    """A master, its clock, and what was pushed or closed."""

    def __init__(self, **options):
        self.now = START
        self.pushed, self.closed = [], []
        self.master = Master(lambda: self.now, run_id=RUN_ID, **options)

    def connect(self, *modes, resp=3):
        """A client; with a mode it tracks."""
        session = self.master.connect(
            lambda who, data: self.pushed.append((who.id, data)), self.closed.append, resp=resp
        )
        if modes:
            assert self.say(session, "CLIENT", "TRACKING", *modes) == "OK"
        return session

    def say(self, session, *words):
        """One command; its reply, without what was pushed behind it."""
        reader = hiredis.Reader()
        reader.feed(self.master.receive(session, hiredis.pack_command(words)))
        reply = reader.gets()
        return "OK" if reply == b"OK" else reply


def invalidation(*keys):
    return b"".join(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (len(key), key) for key in keys)


@pytest.fixture
def server():
    return Server()


# Bytes


def test_a_command_in_pieces_is_carried_out_when_it_is_complete(server):
    """Each byte may arrive by itself, and two commands at once."""
    session = server.connect()
    data = hiredis.pack_command(("SET", "k", "v")) + hiredis.pack_command(("GET", "k"))
    replies = [server.master.receive(session, data[i : i + 1]) for i in range(len(data))]
    assert [reply for reply in replies if reply] == [b"+OK\r\n", b"$1\r\nv\r\n"]
    assert server.master.receive(session, data) == b"+OK\r\n$1\r\nv\r\n"


def test_an_old_client_is_answered_in_its_protocol(server):
    """RESP2 until HELLO says otherwise."""
    session = server.connect(resp=2)
    assert server.master.receive(session, hiredis.pack_command(("GET", "k"))) == b"$-1\r\n"
    assert b"proto" in server.say(session, "HELLO", 3)
    assert server.master.receive(session, hiredis.pack_command(("GET", "k"))) == b"_\r\n"


# Time


def test_a_key_lasts_through_its_last_millisecond(server):
    """As on the server: it is over only after its deadline."""
    session = server.connect()
    server.say(session, "SET", "k", "v", "PX", 1000)
    server.now = START + 1
    assert server.say(session, "PTTL", "k") == 0
    server.now = START + 1.001
    assert server.say(session, "PTTL", "k") == -2


def test_next_expiry_is_when_active_expiry_deletes(server):
    """Not a moment before, and what was renewed, deleted or made permanent is not due."""
    session = server.connect()
    assert server.master.next_expiry() is None
    for number in range(100):
        server.say(session, "SET", f"k{number}", "v", "PX", 5000 + number)
    server.say(session, "PEXPIRE", "k0", 9000)
    server.say(session, "DEL", "k1")
    server.say(session, "SET", "k2", "v")
    due = server.master.next_expiry()
    assert due == pytest.approx(START + 5.004)
    server.now = due - 0.001
    server.master.expire_now()
    assert len(server.master.keys()) == 99
    server.now = due
    server.master.expire_now()
    left = server.master.keys()
    assert len(left) == 98
    assert b"k3" not in left


def test_what_is_renewed_for_ever_leaves_nothing_behind(server):
    """Each renewal makes a new deadline; the old ones are swept out."""
    session = server.connect()
    for number in range(10_000):
        server.say(session, "SET", "k", "v", "PX", 5000 + number)
    assert len(server.master._store._agenda) < 100
    assert server.master.next_expiry() == pytest.approx(START + 15.0)


def test_active_expiry_may_lag_but_an_access_never_does():
    """`expire_lag` is how late a server finds what nobody asks for."""
    server = Server(expire_lag=lambda: 0.5)
    session = server.connect()
    server.say(session, "SET", "k", "v", "PX", 1000)
    assert server.master.next_expiry() == pytest.approx(START + 1.501)
    server.now = START + 1.2
    server.master.expire_now()
    assert server.say(session, "DBSIZE") == 1
    assert server.say(session, "GET", "k") is None
    assert server.say(session, "DBSIZE") == 0


def test_looking_at_the_keys_disturbs_nothing(server):
    """What is over is not shown, but it is not deleted either, and nobody is told."""
    session = server.connect("ON")
    server.say(session, "SET", "k", "v", "PX", 1000)
    server.say(session, "GET", "k")
    server.now += 2
    assert server.master.keys() == {}
    assert server.pushed == []
    server.master.expire_now()
    assert server.pushed == [(session.id, invalidation(b"k"))]


def test_time_stands_still_within_a_script(server):
    """The clock is read once, when it starts."""
    session = server.connect()
    readings = iter([START, START + 1, START + 2])
    server.master._clock = lambda: next(readings)
    source = "local before = redis.call('TIME') return {before[2], redis.call('TIME')[2], redis.call('PTTL', 'k')}"
    assert server.say(session, "EVAL", source, 0) == [b"0", b"0", -2]


def test_a_clock_that_is_set_back_gives_keys_more_time(server):
    """Expiry follows the wall clock, which may jump either way."""
    session = server.connect()
    server.say(session, "SET", "k", "v", "PX", 1000)
    server.now -= 60
    assert server.say(session, "PTTL", "k") == 61_000


# Tracking


def test_others_are_told_at_once_and_oneself_after_the_reply(server):
    """Once for each time a key was read."""
    writer, reader = server.connect("ON"), server.connect("ON", "NOLOOP")
    for session in (writer, reader):
        server.say(session, "GET", "k")
    answer = server.master.receive(writer, hiredis.pack_command(("SET", "k", "v")) + hiredis.pack_command(("DEL", "k")))
    assert answer == b"+OK\r\n" + invalidation(b"k") + b":1\r\n"
    assert server.pushed == [(reader.id, invalidation(b"k"))]


def test_noloop_spares_only_ones_own_changes(server):
    """And a change of our own still ends what we had remembered."""
    ours, other = server.connect("ON", "NOLOOP"), server.connect()
    server.say(ours, "GET", "k")
    assert server.master.receive(ours, hiredis.pack_command(("SET", "k", "v"))) == b"+OK\r\n"
    server.say(other, "SET", "k", "v")
    assert server.pushed == []
    server.say(ours, "GET", "k")
    server.say(other, "SET", "k", "v")
    assert server.pushed == [(ours.id, invalidation(b"k"))]


def test_a_flush_tells_everybody_who_tracks(server):
    """With null for the keys; NOLOOP does not matter."""
    ours, other, _ = server.connect("ON", "NOLOOP"), server.connect("ON"), server.connect()
    flushed = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
    assert server.master.receive(ours, hiredis.pack_command(("FLUSHALL",))) == b"+OK\r\n" + flushed
    assert server.pushed == [(other.id, flushed)]


def test_a_server_without_tracking_says_so():
    """As one that is too old for it."""
    server = Server(tracking=False)
    assert "unknown subcommand" in str(server.say(server.connect(), "CLIENT", "TRACKING", "ON"))


# Faults


def test_a_killed_session_is_told_of_and_answered_no_more(server):
    """CLIENT KILL ID spares the one who says it."""
    killer, victim = server.connect(), server.connect()
    assert server.say(killer, "CLIENT", "KILL", "ID", killer.id) == 0
    assert server.say(killer, "CLIENT", "KILL", "ID", victim.id) == 1
    assert server.closed == [victim]
    assert server.master.receive(victim, hiredis.pack_command(("PING",))) == b""
    assert server.say(killer, "CLIENT", "KILL", "ID", victim.id) == 0


def test_nothing_is_pushed_to_who_has_gone(server):
    """Its reads are forgotten with it."""
    reader, writer = server.connect("ON"), server.connect()
    server.say(reader, "GET", "k")
    server.master.disconnect(reader)
    server.say(writer, "SET", "k", "v")
    assert server.pushed == []


@pytest.mark.parametrize("keep_data", [True, False])
def test_a_restart_ends_sessions_and_forgets_scripts(server, keep_data):
    """The keys stay or go, and nobody is told."""
    session = server.connect("ON")
    server.say(session, "SET", "k", "v", "PX", 5000)
    server.say(session, "GET", "k")
    sha = server.say(session, "SCRIPT", "LOAD", "return 1")
    server.master.restart(run_id="b" * 40, keep_data=keep_data)
    assert server.master.receive(session, hiredis.pack_command(("PING",))) == b""
    assert (server.pushed, server.closed) == ([], [])
    again = server.connect()
    assert again.id == 1
    assert server.say(again, "SCRIPT", "EXISTS", sha) == [0]
    assert server.say(again, "GET", "k") == (b"v" if keep_data else None)
    assert b"run_id:" + b"b" * 40 in server.say(again, "INFO", "server")


def test_ids_go_on_where_a_restart_is_told_to_begin(server):
    """So that an id from before may be a stranger's."""
    server.master.restart(run_id="b" * 40, keep_data=True, client_ids_from=7)
    assert server.say(server.connect(), "CLIENT", "ID") == 7


def test_a_wipe_loses_keys_and_scripts_and_is_reported(server):
    """What an operator does."""
    session = server.connect("ON", "NOLOOP")
    sha = server.say(session, "SCRIPT", "LOAD", "return 1")
    server.say(session, "SET", "k", "v")
    server.master.wipe()
    assert server.pushed == [(session.id, b">2\r\n$10\r\ninvalidate\r\n_\r\n")]
    assert server.master.keys() == {}
    assert "NOSCRIPT" in str(server.say(session, "EVALSHA", sha, 0))


def test_a_command_can_be_made_to_fail(server):
    """One, or all of them; in small letters too."""
    session = server.connect()
    server.master.errors[b"SET"] = b"MISCONF no"
    assert str(server.say(session, "set", "k", "v")) == "MISCONF no"
    assert server.say(session, "GET", "k") is None
    server.master.errors[b"*"] = b"LOADING soon"
    assert str(server.say(session, "PING")) == "LOADING soon"


def test_at_maxmemory_a_script_that_has_written_goes_on(server):
    """The server cannot stop it in the middle; reads, and writes that free memory, are never refused."""
    session = server.connect()
    server.say(session, "SET", "k", "v")
    server.master.oom = True
    assert str(server.say(session, "SET", "k", "w")).startswith("OOM")
    assert str(server.say(session, "EVAL", "return redis.call('SET', 'k', 'w')", 0)).startswith("OOM")
    assert server.say(session, "EVAL", "redis.call('DEL', 'x') return redis.call('SET', 'k', 'w')", 0) == "OK"
    assert server.say(session, "DEL", "k") == 1


@pytest.mark.parametrize(("dialect", "known"), [((), []), (("DELIFEQ",), ["DELIFEQ"]), (("DELEX",), ["DELEX"])])
def test_a_server_speaks_its_own_dialect(dialect, known):
    """Deleting what is still ours: Valkey and Redis each have a word for it, and older ones none."""
    server = Server(dialect=dialect)
    session = server.connect()
    for words in (("DELIFEQ", "k", "v"), ("DELEX", "k", "IFEQ", "v")):
        server.say(session, "SET", "k", "v")
        reply = server.say(session, *words)
        assert reply == 1 if words[0] in known else "unknown command" in str(reply)


# Scripts


def test_masters_share_a_compiled_script_but_not_its_being_loaded():
    """Compiled once a process, known to a master that was given it."""
    one, two = Server(), Server()
    first, second = one.connect(), two.connect()
    sha = one.say(first, "SCRIPT", "LOAD", ACQUIRE)
    assert one.say(first, "EVALSHA", sha, 1, "lock", 1, "anna", 1000) == 1
    assert "NOSCRIPT" in str(two.say(second, "EVALSHA", sha, 1, "lock", 1, "anna", 1000))
    assert two.say(second, "EVAL", ACQUIRE, 1, "lock", 1, "boris", 1000) == 1
    assert two.say(second, "EVALSHA", sha, 1, "lock", 1, "anna", 1000) == [1, b"boris", 1000]
    assert one.master.keys() == {b"lock": b"anna"}


def test_a_mistake_of_the_simulation_is_not_taken_for_the_servers(server, monkeypatch):
    """It comes out of `receive`, not as an error reply."""

    def broken(_key):
        raise ZeroDivisionError

    session = server.connect()
    monkeypatch.setattr(type(server.master._store), "string", lambda _store, key: broken(key))
    for call in ("call", "pcall"):
        with pytest.raises(ZeroDivisionError):
            server.say(session, "EVAL", f"return redis.{call}('GET', 'k')", 0)


def test_without_lupa_only_a_script_fails():
    """And it says what to install."""
    program = """
import sys
sys.modules["lupa"] = None
from redlock_async.testing.simulation._master import Master
master = Master(lambda: 0.0, run_id="")
session = master.connect(print)
assert master.receive(session, b"*1\\r\\n$4\\r\\nPING\\r\\n") == b"+PONG\\r\\n"
try:
    master.receive(session, b"*3\\r\\n$4\\r\\nEVAL\\r\\n$8\\r\\nreturn 1\\r\\n$1\\r\\n0\\r\\n")
except ImportError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "needs lupa: pip install 'redlock-async[simulation]'" in said
