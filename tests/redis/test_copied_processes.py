"""Copies of a process: forks made by C code, which run no Python hooks, and restored snapshots."""

import os
import struct
import subprocess
import sys
import textwrap
import time

import pytest

from redlock_async._rounds.context import token_values
from redlock_async._transport.environment import SYSTEM

pytestmark = pytest.mark.thorough

FORK = """
    import ctypes, faulthandler, os, sys, time, traceback

    def c_fork(child):
        \"\"\"As uWSGI forks: Python is not told. Returns what the child printed.\"\"\"
        readable, writable = os.pipe()
        pid = ctypes.CDLL(None).fork()
        if pid == 0:
            faulthandler.dump_traceback_later(15, exit=True)
            try:
                said = child()
            except BaseException:
                said = traceback.format_exc()
            os.write(writable, str(said).encode())
            os._exit(0)
        os.close(writable)
        said = b""
        while chunk := os.read(readable, 65536):
            said += chunk
        os.waitpid(pid, 0)
        return said.decode()
"""


def script(nodes, body):
    """What a program printed that is run with those nodes."""
    source = textwrap.dedent(FORK) + textwrap.dedent(body)
    environment = os.environ | {"REDLOCK_NODES": ",".join(nodes), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.redis
def test_a_process_forked_by_c_code_uses_locks_of_its_own(nodes):
    """With `blocking`, in use before the fork: no hang, no use of its parent's connections, other tokens."""
    printed = script(
        nodes,
        """
        from redlock_async.blocking import Redlock
        redlock = Redlock(os.environ["REDLOCK_NODES"].split(","), ttl=5, wait=0)

        def child():
            own = redlock("own").acquire()
            refused = redlock("held").try_acquire() is None
            own.release()
            return f"{refused} {own.token}"

        with redlock("held") as held:
            begun = time.monotonic()
            refused, token = c_fork(child).split()
            took = time.monotonic() - begun
            held.extend()
            held.raise_if_lost()
            mine = redlock("own").acquire()
            print(refused, token != mine.token, took < 5)
            mine.release()
        """,
    )
    assert printed == "True True True\n"


@pytest.mark.redis
def test_a_process_forked_by_c_code_does_not_release_its_parents_lock(nodes):
    """A lease it inherited is its parent's: releasing it raises at once, and the parent keeps it."""
    printed = script(
        nodes,
        """
        from redlock_async import RedlockError
        from redlock_async.blocking import Redlock
        redlock = Redlock(os.environ["REDLOCK_NODES"].split(","), ttl=5)

        def child():
            try:
                held.release()
            except RedlockError as error:
                return type(error).__name__

        held = redlock("held").acquire()
        print(c_fork(child))
        held.extend()
        held.release()
        """,
    )
    assert printed == "NotHeld\n"


@pytest.mark.redis
def test_a_coroutine_client_forked_by_c_code_reconnects(nodes):
    """The client was used before the fork, on a loop that has ended with its block."""
    printed = script(
        nodes,
        """
        import asyncio
        from redlock_async import Redlock
        redlock = Redlock(os.environ["REDLOCK_NODES"].split(","), wait=0)

        async def tokens():
            tokens = []
            for _ in range(3):
                async with redlock("x") as lease:
                    tokens.append(lease.token)
            return tokens

        loop = asyncio.new_event_loop()
        loop.run_until_complete(tokens())

        def child():
            return " ".join(asyncio.new_event_loop().run_until_complete(tokens()))

        theirs = c_fork(child).split()
        ours = loop.run_until_complete(tokens())
        print(len({*theirs, *ours}))
        """,
    )
    assert printed == "6\n"


def test_a_restored_snapshot_draws_other_tokens(monkeypatch):
    """Both copies have the same random bits in memory, but not the same clocks."""
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(256)) * (size // 256))
    one, other = (
        token_values(SYSTEM),
        token_values(SYSTEM),
    )
    drawn = [next(copy) for _ in range(300) for copy in (one, other)]
    assert len({*drawn}) == len(drawn)
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in drawn)


def test_a_clock_that_stands_still_leaves_tokens_random(monkeypatch):
    """The clocks are mixed in, nothing of the 128 random bits is lost for them."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: 12345)
    monkeypatch.setattr(time, "time_ns", lambda: 67890)
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * size)
    high, low = struct.unpack(">QQ", bytes.fromhex(next(token_values(SYSTEM)).decode()))
    assert (high ^ 12345, low ^ 67890) == (2**64 - 1, 2**64 - 1)
