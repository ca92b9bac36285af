"""`bench`, run as a user runs it: what it shows, that it leaves nothing behind, and how it fails."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import pytest
import redis

from redlock_async.cli._bench_load import Latencies
from redlock_async.cli._bench_view import LEVELS, PLAIN_LEVELS, ROWS, Scale, Text, columns, duration, placed

pytestmark = [pytest.mark.thorough, pytest.mark.redis]

PROGRAM = [sys.executable, "-m", "redlock_async", "bench"]
RECORD = "redlock-async:node"
"""What the nodes of a `LocalCluster` have recorded for locks without a namespace."""
QUICK = ["--seconds", "0.4", "--tasks", "2,5"]


def environment(urls, **more):
    """The caller's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDLOCK_", "COLUMNS", "LINES"))}
    return {**kept, "REDLOCK_NODES": ",".join(urls), "PYTHONUTF8": "1", **more}


def bench(urls, *arguments, **more):
    """Run it to its end."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment(urls, **more),
    )


@contextlib.contextmanager
def measuring(urls, *arguments):
    """One that is in the middle of it."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(urls),
    )
    with process:
        try:
            assert process.stdout.readline().startswith("node"), process.stderr.read()
            yield process
        finally:
            process.kill()


def keys_on(urls):
    """Every key on any of these."""
    found = set()
    for url in urls:
        with redis.Redis.from_url(url, socket_timeout=5, decode_responses=True) as client:
            found |= set(client.scan_iter())
    return found


# -- what it measures --------------------------------------------------------------------------------------------------


def test_it_measures_and_leaves_nothing_behind(nodes):
    """As JSON, whose durations are seconds; its words are on stderr, and the first come before the load."""
    done = bench(nodes, *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [node["label"] for node in found["nodes"]] == [url.removeprefix("redis://") for url in nodes]
    for node in found["nodes"]:
        assert node["up"] is node["can_vote"] is True
        assert node["version"]
    trips = [node["round_trip"] for node in found["nodes"]]
    for latencies in (*trips, found["one_task"], found["hand_over"]):
        assert latencies["n"] >= 1
        assert 0 < latencies["min"] <= latencies["p50"] <= latencies["p90"] <= latencies["p99"] <= latencies["max"] < 5
    assert [rate["tasks"] for rate in found["tasks"]] == [2, 5]
    for rate in (*found["tasks"], found["hot_name"]):
        assert rate["pairs"] >= rate["tasks"]
        assert rate["pairs_per_second"] > 0
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("5 nodes, about 0.4 s of load: up to 5 tasks acquire and release locks")
    prefix = re.search(r"start with (redlock-bench:\w+:) ", done.stderr)[1]
    assert last == f"Cleaned up: no key that starts with {prefix} is left."
    assert keys_on(nodes) == set()


@pytest.mark.parametrize("fencing", ["true", "false"])
def test_a_namespace_is_kept_to(nodes, fencing):
    """An ACL may allow no other key; the users' own locks and registers are not touched."""
    with redis.Redis.from_url(nodes[0]) as client:
        client.set("app:name-0", "another")
    done = bench(nodes, *QUICK, "--json", REDLOCK_NAMESPACE="app:", REDLOCK_FENCING=fencing)
    assert done.returncode == 0, done.stderr
    assert "start with app:redlock-bench:" in done.stderr
    assert keys_on(nodes) == {"app:name-0"}


def test_nodes_may_be_given_as_an_argument(nodes):
    """In place of the variable."""
    done = bench(["redis://127.0.0.1:1"], *QUICK, "--json", "--nodes", ",".join(nodes[:3]))
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["nodes"]) == 3


# -- how it looks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_text_in_a_pipe_is_plain_and_of_80_columns(nodes, encoding):
    """No escapes; blocks only where the encoding has them."""
    done = bench(nodes, *QUICK, PYTHONUTF8="0", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert ("█" in done.stdout) is (encoding == "utf-8")
    assert ("#" in done.stdout) is (encoding == "ascii")
    check_text(done.stdout, nodes, 80)


@pytest.mark.parametrize(("columns", "no_color"), [(80, ""), (120, "1")])
def test_text_on_a_terminal_fits_it(nodes, columns, no_color):
    """With progress that is gone in the end, and colours unless they are not wanted."""
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *QUICK],
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        env=environment(nodes, TERM="xterm-256color", NO_COLOR=no_color),
    )
    os.close(secondary)
    out = b""
    with contextlib.suppress(OSError):  # how Linux reports that the other end is closed
        while data := os.read(primary, 65_536):
            out += data
    os.close(primary)
    assert process.wait(10) == 0, out
    text = out.decode()
    assert "1 of 6: the round trip, " in text
    assert ("\x1b[36m" in text) is not no_color
    # Text before an erase sequence is not visible.
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line.rpartition("\r\x1b[K")[2]).strip("\r") for line in text.split("\n")]
    assert not any("of 6:" in line for line in shown)
    check_text("\n".join(shown), nodes, columns)


def check_text(text, urls, columns):
    """Every section, within the width."""
    lines = text.splitlines()
    assert max(map(len, lines)) < columns
    for url in urls:
        assert re.search(rf"^{re.escape(url.removeprefix('redis://'))}  \w+ \S+ +\S+ m?s +\S+ m?s$", text, re.MULTILINE)
    assert re.search(
        r"^one task, acquire \+ release   p50 \S+ ms   p99 \S+ m?s   \([\d,]+ pairs\)$", text, re.MULTILINE
    )
    assert re.search(r"^ +2 +[\d,]+  \S+$", text, re.MULTILINE)
    assert re.search(r"^ +5 +[\d,]+  \S+$", text, re.MULTILINE)
    assert re.search(r"^one name, 20 tasks of one client   [\d,]+ hand-overs/s$", text, re.MULTILINE)
    assert re.search(r"^one name, to another client   p50 .* hand-overs\)$", text, re.MULTILINE)


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupted_it_cleans_up_once_and_for_all(nodes, number, status):
    """Even if the signal comes twice; without a traceback."""
    with measuring(nodes, "--seconds", "60") as process:
        process.send_signal(number)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == status
    assert err.splitlines()[-1].startswith("Cleaned up: ")
    assert "Traceback" not in err
    assert keys_on(nodes) == set()


def test_it_cleans_up_when_its_output_is_closed(nodes):
    """`bench | head -1`."""
    with measuring(nodes, "--seconds", "4") as process:
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(10) == 128 + signal.SIGPIPE
    assert err.splitlines()[-1].startswith("Cleaned up: ")
    assert keys_on(nodes) == set()


def test_nodes_of_a_minority_are_shown_as_down(cluster):
    """The others are measured."""
    cluster.kill(1)
    cluster.pause(3)
    done = bench(cluster.urls, *QUICK)
    assert done.returncode == 0, done.stderr
    for index in (1, 3):
        assert re.search(rf"^{cluster.urls[index].removeprefix('redis://')} .* down\n    \w", done.stdout, re.MULTILINE)
    cluster.resume(3)
    up = [url for index, url in enumerate(cluster.urls) if index != 1]
    assert keys_on(up) == {RECORD}


def test_without_a_quorum_it_ends_with_69_and_says_who_is_missing(cluster):
    """Before it makes any load."""
    for index in (0, 2, 4):
        cluster.kill(index)
    done = bench(cluster.urls, *QUICK)
    assert (done.returncode, done.stdout) == (69, "")
    first, *others = done.stderr.splitlines()
    # In the new namespace of a bench nobody has voted, so a minority of the nodes cannot know that they may.
    assert first == "redlock-async: only 0 of 5 nodes can vote, and 3 are needed:"
    missing = [f"  {cluster.urls[index].removeprefix('redis://')}: cannot be reached" for index in (0, 2, 4)]
    assert [line for line in others if "reached" in line] == missing


@pytest.mark.thorough
def test_a_quorum_lost_on_the_way_ends_with_69_and_says_where_keys_may_be_left(cluster):
    """Keys on a node that is down cannot be removed."""
    with measuring(cluster.urls, "--seconds", "60") as process:
        for index in (0, 1, 2):
            cluster.kill(index)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 69, err
    assert "Traceback" not in err
    told = next(line for line in err.splitlines() if line.startswith("Could not remove all keys"))
    assert all(url.removeprefix("redis://") in told for url in cluster.urls[:3])
    assert "redis-cli --scan --pattern 'redlock-bench:" in told
    assert keys_on(cluster.urls[3:]) == {RECORD}


def test_a_wrong_password_is_named_and_not_shown(cluster):
    """Once for each node."""
    for url in cluster.urls:
        with redis.Redis.from_url(url) as client:
            client.config_set("requirepass", "the right one")
    done = bench([url.replace("redis://", "redis://:sesame@") for url in cluster.urls], *QUICK)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.count("invalid username-password pair") == 5
    assert "sesame" not in done.stderr


def test_a_server_given_twice_is_a_usage_error(nodes):
    """Its two names would be two votes."""
    done = bench([nodes[0], nodes[0].replace("127.0.0.1", "localhost"), nodes[1]], *QUICK)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is the same server as" in done.stderr
    assert keys_on(nodes) == set()


@pytest.mark.parametrize("urls", [[], [" ", ""]])
def test_without_nodes_it_says_where_to_get_some(urls):
    """Both for a cluster and for a first try."""
    done = bench(urls)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    for word in ("REDLOCK_NODES", "--nodes", "`redlock-async up`"):
        assert word in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tasks", "0"], "must be a whole number of at least 1, got '0'"),
        (["--tasks", "1,ten"], "must be a whole number of at least 1, got 'ten'"),
        (["--tasks", ""], "must be a whole number of at least 1, got ''"),
        (["--tasks", "1,101"], "must be at most 100 tasks, got 101"),
        (["--tasks", ",".join(map(str, range(1, 12)))], "must be at most 10 different numbers, got 11"),
        (["--seconds", "0"], "more than 0 and at most 300, got '0'"),
        (["--seconds", "nan"], "more than 0 and at most 300, got 'nan'"),
        (["--seconds", "301"], "more than 0 and at most 300, got '301'"),
        (["--seconds", "ten"], "more than 0 and at most 300, got 'ten'"),
        (["--nodes", "localhost:6379"], "not a Redis URL"),
    ],
)
def test_usage_errors_end_with_2(arguments, said):
    """And name what is wrong."""
    done = bench(["redis://127.0.0.1:1"], *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


# -- drawing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [LEVELS, PLAIN_LEVELS])
def test_columns_are_in_proportion_and_never_hide_the_rare(levels):
    """The one in a thousand is what a tail is about."""
    top, bottom = columns([1000, 500, 1, 0], 2, levels)
    assert top == levels[8] + "   "
    assert bottom == levels[8] + levels[8] + levels[1] + " "
    assert levels[1] != " "


def test_the_scale_is_logarithmic_and_takes_all_there_is():
    """Also when everything took the same time."""
    scale = Scale(0.001, 1.0, 3)
    assert [scale.bin(value) for value in (0.001, 0.005, 0.02, 0.2, 1.0)] == [0, 0, 1, 2, 2]
    assert Scale(0.5, 0.5, 8).bin(0.5) == 0


def test_labels_do_not_touch_each_other_or_the_edge():
    """The first ones have priority."""
    assert placed(12, [(0, "abc"), (11, "xyz"), (6, "mid"), (2, "no")]) == "abc  mid xyz"
    assert placed(3, [(0, "too long")]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.000123, "0.12 ms"), (0.0456, "45.6 ms"), (0.25, "250 ms"), (1.234, "1.23 s"), (1234.0, "1,234 s")],
)
def test_durations_have_three_digits(seconds, text):
    """In the unit that suits them."""
    assert duration(seconds) == text


@pytest.mark.parametrize("width", [1, 30, 80, 500])
@pytest.mark.parametrize("values", [[0.001], [0.001] * 50, [0.0002 * 1.01**n for n in range(1000)]])
def test_a_histogram_fits_any_width(width, values):
    """One value, one bin, many bins; a terminal narrower than that wraps."""
    text = Text(width, plain=False, colours=False)
    _, title, *lines = text.latencies("title", "values", Latencies.of(values))
    assert title.startswith("title   p50 ")
    assert max(map(len, lines)) <= max(width - 1, 24)
    assert "█" in lines[ROWS - 1]
