"""The meaning of each error reply for a vote: DESIGN.md, section 5, line by line."""

import pytest

from redlock_async._rules.replies import failure, may_be_missing, missing_script
from redlock_async._transport.commands import Call, failure_of, script
from redlock_async.errors import NodeDenied, NodeRefused, WrongKeyType

# As servers word them: Redis 5 to 8 and Valkey.
FOR_NOW = {
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
}
FOR_GOOD = {
    "NOAUTH": "NOAUTH Authentication required.",
    "WRONGPASS": "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM": "NOPERM User app has no permissions to run the 'evalsha' command",
    "DENIED": "DENIED Redis is running in protected mode because protected mode is enabled",
}
REMEDY = {
    "LOADING": "loading its data",
    "BUSY": "script blocks",
    "TRYAGAIN": "try again",
    "MASTERDOWN": "master is down",
    "MISCONF": "cannot persist",
    "OOM": "maxmemory and refuses",
    "READONLY": "replica now",
    "NOREPLICAS": "min-replicas-to-write",
    "NOAUTH": "password",
    "WRONGPASS": "wrong user or password",
    "NOPERM": "ACL lacks a permission",
    "DENIED": "protected mode and rejects remote",
}
WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SCRIPT = "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f0fb1291d6438a1cc): "
WRAPPERS = {
    # A reply that the script's call got (redis.call raises it without its dash).
    "6.2": SCRIPT + "@user_script:3: {}",
    "6.0": SCRIPT + "@user_script:3: @user_script: 3: {}",
}
# The server's own refusal of a script's call keeps the dash of the protocol: luaPushError(lua, shared.oomerr->ptr).
DASHED = SCRIPT + "@user_script:3: @user_script: 3: -{}"


def test_every_reply_of_the_design_is_in_this_file():
    """Eight temporary ones, four permanent ones."""
    assert set(REMEDY) == set(FOR_NOW) | set(FOR_GOOD)


@pytest.mark.parametrize("code", FOR_NOW)
def test_a_temporary_refusal_may_be_retried(code):
    """The node abstains, with the server's words and a remedy; credentials are not to blame."""
    error = failure(FOR_NOW[code])
    assert type(error) is NodeRefused
    assert str(error).startswith(FOR_NOW[code])
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("code", FOR_GOOD)
def test_a_permanent_refusal_is_distinguished(code):
    """Another attempt cannot help, so callers can be notified immediately."""
    error = failure(FOR_GOOD[code])
    assert type(error) is NodeDenied
    assert str(error).startswith(FOR_GOOD[code])
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("message", [WRONGTYPE, WRONGTYPE + " script: 6b1bf486, on @user_script:3."])
def test_another_type_of_value_is_a_conflict(message):
    """Never a refusal that looks like a vote, and never 'free'."""
    error = failure(message)
    assert type(error) is WrongKeyType
    assert "another type" in str(error)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_old_servers_wrap_a_conflict(wrapper):
    """Before 7.0 the code is in the middle."""
    assert type(failure(WRAPPERS[wrapper].format(WRONGTYPE))) is WrongKeyType


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("code", [*FOR_NOW, *FOR_GOOD])
def test_old_servers_wrap_a_refusal(wrapper, code):
    """It means the same as without the wrapper."""
    message = WRAPPERS[wrapper].format({**FOR_NOW, **FOR_GOOD}[code])
    error = failure(message)
    assert type(error) is (NodeDenied if code in FOR_GOOD else NodeRefused)
    assert str(error).startswith(message)
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("code", ["MISCONF", "OOM", "READONLY", "NOREPLICAS"])
def test_old_servers_keep_the_dash_of_their_own_refusals(code):
    """As Redis 6.2 replies to an EVALSHA that writes while it refuses writes: the remedy must be found too."""
    message = DASHED.format(FOR_NOW[code])
    error = failure(message)
    assert type(error) is NodeRefused
    assert str(error).startswith(message)
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("code", [*FOR_NOW, *FOR_GOOD])
def test_newer_servers_append_the_script(code):
    """From 7.0 on the code comes first again."""
    message = {**FOR_NOW, **FOR_GOOD}[code] + " script: 6b1bf486c81c, on @user_script:3."
    assert type(failure(message)) is (NodeDenied if code in FOR_GOOD else NodeRefused)
    assert REMEDY[code] in str(failure(message))


def test_too_many_clients_are_a_temporary_refusal():
    """The server's message has no code of its own."""
    error = failure("ERR max number of clients reached")
    assert type(error) is NodeRefused
    assert "raise maxclients" in str(error)
    assert type(failure("ERR max number of clients + cluster connections reached")) is NodeRefused


@pytest.mark.parametrize(
    "message",
    [
        "ERR Error running script (call to f_1): @user_script:3: user_script:3: attempt to index a nil value",
        "ERR value is not an integer or out of range",
        "CLUSTERDOWN Hash slot not served",
        "MOVED 1234 10.0.0.1:6379",
        "",
        "OOMPH is no code of ours",
        "WRONGTYPED neither",
    ],
)
def test_an_unknown_error_is_a_refusal_in_the_server_s_words(message):
    """Nothing is guessed, and nothing is dropped."""
    error = failure(message)
    assert type(error) is NodeRefused
    assert str(error) == message


@pytest.mark.parametrize("code", [*FOR_NOW, *FOR_GOOD, "WRONGTYPE"])
def test_a_code_in_the_middle_of_another_error_means_nothing(code):
    """Only the wrapper of a script's error is parsed: a key's name may contain any word."""
    assert type(failure(f"ERR no such thing: {code} x")) is NodeRefused
    assert str(failure(f"ERR no such thing: {code} x")) == f"ERR no such thing: {code} x"


UNKNOWN = {
    "6.2": "ERR unknown command `{}`, with args beginning with: `a`, `b`, ",
    "7.0": "ERR unknown command '{}', with args beginning with: 'a' 'b' ",
    "redacted": "ERR unknown command '{}'",
    "envoy": "unsupported command '{}'",
}
FORBIDDEN = {
    "6.2": "NOPERM this user has no permissions to run the '{}' command or its subcommand",
    "7.0": "NOPERM this user has no permissions to run the '{}' command",
    "8.0": "NOPERM User app has no permissions to run the '{}' command",
}
CANNOT_ANSWER_NOW = (
    *FOR_NOW.values(), *(text for code, text in FOR_GOOD.items() if code != "NOPERM"),
    "ERR max number of clients reached",
)  # fmt: skip


@pytest.mark.parametrize("message", [*UNKNOWN.values(), *FORBIDDEN.values()])
def test_an_unknown_command_is_treated_like_a_forbidden_one(message):
    """Trying again cannot help, and where locks can do without the command they do."""
    message = message.format("getset")
    error = failure(message)
    assert type(error) is NodeDenied
    assert str(error).startswith(message)
    assert "see docs/permissions.md" in str(error)
    assert may_be_missing(message)


@pytest.mark.parametrize("message", ["ERR command is not allowed", "invalid request", "NOPROTO unsupported protocol"])
def test_every_other_permanent_error_means_that_an_optional_command_is_missing(message):
    """Proxies and services have texts of their own."""
    assert may_be_missing(message)


@pytest.mark.parametrize("message", CANNOT_ANSWER_NOW)
def test_a_server_that_cannot_answer_now_lacks_nothing(message):
    """A server that is loading its data will know who it is in a moment."""
    assert not may_be_missing(message)


IN_SCRIPT = {
    "6.2 unknown": SCRIPT + "@user_script:14: @user_script: 14: Unknown Redis command called from Lua script",
    "6.2 forbidden": SCRIPT + "@user_script:14: @user_script: 14: The user executing the script can't run this command "
    "or subcommand",
    "7.0 unknown": "ERR Unknown Redis command called from script script: 15df16, on @user_script:14.",
    "7.0 forbidden": "ERR The user executing the script can't run this command or subcommand script: 15df16, on "
    "@user_script:14.",
    "9.1 unknown": "ERR Unknown command called from script script: on @user_script:14.",
    "9.1 forbidden": "ERR ACL failure in script: User u has no permissions to run the 'time' command script: on "
    "@user_script:14.",
}


@pytest.mark.parametrize("case", IN_SCRIPT)
def test_a_command_that_a_script_lacks_is_named(case):
    """Most servers only give the line of the script, which we have sent."""
    line = next(n for n, text in enumerate(script("mutex_acquire").source.splitlines(), 1) if b"call('TIME')" in text)
    message = IN_SCRIPT[case].replace("14", str(line))
    error = failure_of(message, Call("mutex_acquire", 1, b"key", b"token"))
    assert type(error) is NodeDenied
    assert "[TIME]" in str(error)
    assert ("ACL" if "forbidden" in case else "lacks a command") in str(error)


def test_a_command_is_named_that_a_call_over_several_lines_lacks():
    """The server counts to the end of the call."""
    lines = script("node_record").source.splitlines()
    last = max(n for n, text in enumerate(lines, 1) if b"call(" in text)
    assert script("node_record").commands_at(last + 1) == script("node_record").commands_at(last) == "HDEL"
    assert script("mutex_acquire").commands_at(0) == ""


def test_a_forgotten_script_is_recognised():
    """Only then is its source sent, and where EVALSHA cannot be called."""
    assert missing_script("NOSCRIPT No matching script. Please use EVAL.")
    for message in (*UNKNOWN.values(), *FORBIDDEN.values()):
        assert missing_script(message.format("EVALSHA"))
        assert not missing_script(message.format("EVAL"))
    for message in (*FOR_NOW.values(), WRONGTYPE, "", "ERR NOSCRIPT", SCRIPT + "NOSCRIPT"):
        assert not missing_script(message)


def test_every_refusal_is_a_connection_error():
    """They may appear in `QuorumUnavailable.nodes` beside network errors."""
    for message in (*FOR_NOW.values(), *FOR_GOOD.values()):
        assert isinstance(failure(message), ConnectionError)
