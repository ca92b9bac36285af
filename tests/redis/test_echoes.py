"""Servers and proxies that echo the password: it appears in nothing that can be seen."""

import asyncio
import contextlib
import logging
import os
import pickle
import subprocess
import sys
import traceback
from urllib.parse import quote

import hiredis
import pytest
from redis.asyncio import Redis
from redis.credentials import CredentialProvider

from redlock_async import QuorumUnavailable, Redlock, RedlockError

HOST = "127.0.0.1"
PASSWORD = "hush-hush-1234567890"  # noqa: S105 - looked for in everything that can be seen
USER = "jo"


def redis_5(words):
    """As Redis 5 to 6.2 word it: at most 128 bytes of the arguments."""
    echo, left = "", 128
    for word in words[1:]:
        if len(echo) < left:
            echo += f"`{word.decode('utf-8', 'replace')[: left - len(echo)]}`, "
    return f"-ERR unknown command `{words[0].decode()}`, with args beginning with: {echo}\r\n"


def redis_7(words):
    """As Redis 7 and later, and Valkey."""
    echo = " ".join(f"'{word.decode('utf-8', 'replace')}'" for word in words[1:])[:128]
    return f"-ERR unknown command '{words[0].decode()}', with args beginning with: {echo}\r\n"


def cut_short(words):
    """As Redis with long arguments: in the middle of the password."""
    echo = " ".join(word.decode("utf-8", "replace") for word in words[1:])
    return f"-ERR unknown command '{words[0].decode()}', arguments {echo[: len(USER) + 9]}\r\n"


def envoy(words):
    """As Envoy until 1.2x."""
    return f"-unsupported command '{words[0].decode()}'\r\n"


def envoy_echoing(words):
    """As a proxy that shows the whole request."""
    return f"-ERR invalid request {' '.join(word.decode('utf-8', 'replace') for word in words)}\r\n"


def raw(words):
    """As a proxy that shows the bytes."""
    return f"-ERR protocol error near {hiredis.pack_command(tuple(words))!r}\r\n"


def in_simple_string(words):
    """No error at all."""
    return f"+{' '.join(word.decode('utf-8', 'replace') for word in words)}\r\n"


def no_resp(words):
    """Nor RESP."""
    return f"{' '.join(word.decode('utf-8', 'replace') for word in words)}\r\n"


def wrong_pass(words):
    """The right code, and the password."""
    return f"-WRONGPASS invalid username-password pair {words[-1].decode('utf-8', 'replace')}\r\n"


ECHOES = (redis_5, redis_7, cut_short, envoy, envoy_echoing, raw, in_simple_string, no_resp, wrong_pass)


class Echo:
    """A server that answers each command with its echo; `lets_in`: OK to AUTH, and then the password in every error."""

    def __init__(self, echo, *, lets_in=False, closes=False):
        self.heard = []
        self._echo = echo
        self._lets_in = lets_in
        self._closes = closes
        self._secret = []
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._talk(reader, writer)
        finally:
            writer.close()

    async def _talk(self, reader, writer):
        commands = hiredis.Reader()
        while data := await reader.read(65_536):
            commands.feed(data)
            while words := commands.gets():
                self.heard.append(b" ".join(words))
                if self._lets_in and words[0] == b"AUTH":
                    self._secret = words[1:]
                    writer.write(b"+OK\r\n")
                    continue
                echo = self._echo([words[0], *self._secret] if self._lets_in else words)
                writer.write(echo.encode("utf-8", "replace").replace(b"\r\n", b" ").strip() + b"\r\n")
                if self._closes:
                    return


class Provider(CredentialProvider):
    """Hands out the password."""

    def get_credentials(self):
        return (USER, PASSWORD)


def nodes_of(address):
    """Every way to give the password."""
    yield f"redis://{USER}:{PASSWORD}@{address}"
    yield f"redis://:{PASSWORD}@{address}/3?protocol=2"
    yield f"redis://{address}?username={USER}&password={quote(PASSWORD)}"
    host, _, port = address.partition(":")
    yield Redis(host=host, port=int(port), credential_provider=Provider())


async def everything_seen(node, caplog):
    """The texts of all that a client shows of that node: error, causes, traceback, pickles, status, events, log."""
    seen = []
    async with Redlock([node], owner="here", node_timeout=0.05, wait=0.1) as redlock:
        redlock.on_event(lambda event: seen.append(repr(event)))
        for operation in (redlock("x").acquire, redlock.status, redlock.health, redlock.list_locks):
            try:
                seen.append(repr(await operation()))
            except RedlockError as exc:
                seen += ["".join(traceback.format_exception(exc)), repr(exc), str(exc), repr(pickle.dumps(exc))]
                seen += [text for cause in chain(exc) for text in (str(cause), repr(cause), repr(vars(cause)))]
        seen += [repr(redlock), repr(redlock.statistics())]
    formatter = logging.Formatter("%(message)s")  # with the traceback
    seen += [formatter.format(record) for record in caplog.records]
    return seen


def chain(exc, found=None):
    """An exception and all that is behind it, shown or not."""
    found = [] if found is None else found
    if exc is not None and exc not in found:
        found.append(exc)
        for other in (exc.__cause__, exc.__context__, *getattr(exc, "nodes", {}).values()):
            chain(other, found)
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("lets_in", "closes"), [(False, False), (True, False), (False, True)], ids=["refused", "let in", "closing"]
)
@pytest.mark.parametrize("echo", ECHOES)
async def test_no_password_is_shown(echo, lets_in, closes, caplog):
    """Neither by the client nor by what it logs; the password did reach the server."""
    caplog.set_level(logging.DEBUG)
    async with Echo(echo, lets_in=lets_in, closes=closes) as server:
        for node in nodes_of(server.address):
            seen = await everything_seen(node, caplog)
            assert any("redlock" in text for text in seen)
            assert not [text for text in seen if PASSWORD[:6] in text]
        assert PASSWORD.encode() in b"\n".join(server.heard)
        assert not [words for words in server.heard if words.startswith(b"HELLO") and PASSWORD.encode() in words]


@pytest.mark.asyncio
async def test_the_error_still_says_what_is_wrong():
    """Without the echo, with the advice."""
    async with Echo(redis_7) as server, Redlock([f"redis://{USER}:{PASSWORD}@{server.address}"], wait=0.2) as redlock:
        with pytest.raises(QuorumUnavailable, match="unknown command 'AUTH'"):
            await redlock("x").acquire()


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["doctor", "status", "locks", "run x -- true"])
@pytest.mark.parametrize("echo", [redis_5, envoy_echoing, cut_short])
async def test_no_password_in_the_output_of_commands(echo, command):
    """On stdout and stderr."""
    async with Echo(echo) as server:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
        environ |= {"REDLOCK_NODES": f"redis://{USER}:{PASSWORD}@{server.address}", "REDLOCK_WAIT": "0.2"}
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "redlock_async", *command.split(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(program.communicate(), 30)
    assert server.address.encode() in output
    assert PASSWORD[:6].encode() not in output
