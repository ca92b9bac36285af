"""What the replies to the handshake say about a server: who it is, and what it cannot do."""

import hiredis
import pytest

from redlock_async._transport.commands import CompareAndDelete
from redlock_async._transport.handshake import OPTIONAL, UNASKED, identify, questions, unfit
from redlock_async.errors import NodeDenied, NodeRefused

INFO = b"redis_version:7.2.4\r\nrun_id:abc\r\nredis_mode:standalone\r\n"
OK_REPLIES = {
    "CLIENT SETNAME": b"OK",
    "CLIENT SETINFO": b"OK",
    "CLIENT ID": 7,
    "CLIENT KILL": 0,
    "INFO": INFO + b"role:master\r\n",
    "EVALSHA": hiredis.ReplyError("NOSCRIPT No matching script. Please use EVAL."),
    "DELIFEQ": 0,
    "DELEX": hiredis.ReplyError("ERR unknown command 'DELEX'"),
    "CLIENT TRACKING": b"OK",
    "SCRIPT LOAD": b"f" * 40,
}
ASKED = [label for label, _ in questions(b"probe", "redlock:here", pushes=True)] + ["SCRIPT LOAD"]

REFUSALS = {
    "forbidden": "NOPERM User jo has no permissions to run the '{}' command",
    "unknown": "ERR unknown command '{}'",
    "unknown subcommand": "ERR unknown subcommand '{}'. Try CLIENT HELP.",
    "Envoy": "unsupported command '{}'",
    "a proxy": "ERR command not allowed",
}


def met(pushes=True, **replies):  # noqa: FBT002 - a test's shorthand
    """The identity of a server that answers so, and as a common server otherwise."""
    given = OK_REPLIES | {name.replace("_", " "): reply for name, reply in replies.items()}
    asked = [name for name in ASKED if pushes or name != "CLIENT TRACKING"]
    return identify(asked, [given[name] for name in asked], pushes=pushes)


def test_a_server_that_has_everything():
    """Nothing is missing: NOSCRIPT means that EVALSHA was understood."""
    identity = met()
    assert identity.missing == ()
    assert (identity.client_id, identity.run_id, identity.role, identity.mode) == (7, "abc", "master", "standalone")
    assert identity.tracking
    assert identity.asked
    assert identity.dialect is CompareAndDelete.DELIFEQ


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("name", [name for name in OPTIONAL if name != "HELLO"])
def test_a_command_that_is_missing_is_named(name, how):
    """However the server says so; everything else stays known."""
    identity = met(**{name.replace(" ", "_"): hiredis.ReplyError(REFUSALS[how].format(name))})
    assert identity.missing == (name,)
    assert identity.tracking is (name != "CLIENT TRACKING")
    assert (identity.run_id is None) is (name == "INFO")
    assert (identity.client_id is None) is (name == "CLIENT ID")
    assert unfit(identity) is None


@pytest.mark.parametrize("name", [name for name in OPTIONAL if name not in {"HELLO", "INFO"}])
def test_one_refusal_of_several_is_enough(name):
    """SCRIPT LOAD is sent for each script."""
    denied = hiredis.ReplyError("NOPERM no")
    asked = [*ASKED, name]
    assert identify(asked, [*(OK_REPLIES[each] for each in ASKED), denied], pushes=True).missing == (name,)


def test_resp2_that_the_user_wants_is_not_missing():
    """But what the server does not speak is."""
    assert met(pushes=None).missing == ()
    assert not met(pushes=None).tracking
    assert met(pushes=False).missing == ("HELLO",)
    assert not met(pushes=False).tracking


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", NodeRefused),
        ("BUSY Redis is busy running a script.", NodeRefused),
        ("ERR max number of clients reached", NodeRefused),
        ("NOAUTH Authentication required.", NodeDenied),
    ],
)
def test_a_server_that_cannot_answer_now_is_asked_again(error, kind):
    """Who it is must not stay unknown for as long as the connection lasts."""
    with pytest.raises(kind, match=error[:4]):
        met(INFO=hiredis.ReplyError(error))


@pytest.mark.parametrize(
    ("info", "server", "version", "mode"),
    [
        (INFO, "redis", "7.2.4", "standalone"),
        (b"redis_version:7.2.4\r\nvalkey_version:9.1.2\r\nserver_mode:cluster\r\n", "valkey", "9.1.2", "cluster"),
        (b"redis_version:7.2.4\r\nredict_version:7.3.1\r\nredict_mode:sentinel\r\n", "redict", "7.3.1", "sentinel"),
        (b"nothing of the kind", None, None, None),
    ],
)
def test_each_product_has_lines_of_its_own(info, server, version, mode):
    """Forks also give a version of Redis."""
    identity = met(INFO=info)
    assert (identity.server, identity.version, identity.mode) == (server, version, mode)
    assert (unfit(identity) is None) is (mode in {None, "standalone"})


def test_a_proxy_that_cannot_be_asked_lacks_everything():
    """And is fit, as far as anybody knows."""
    assert UNASKED.missing == OPTIONAL
    assert not UNASKED.asked
    assert not UNASKED.tracking
    assert UNASKED.dialect is CompareAndDelete.PLAIN
    assert unfit(UNASKED) is None
