"""What each error reply means for a vote: DESIGN.md, section 5, line by line."""

import pytest

from redlock_async._errors import KeyConflict, NodeDenied, NodeRefused
from redlock_async._replies import failure, missing_script

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
    "NOPERM": "ACL lacks a right",
    "DENIED": "protected mode and takes no remote",
}
WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SCRIPT = "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f0fb1291d6438a1cc): "
WRAPPERS = {
    # A reply that the script's call got (redis.call raises it without its dash).
    "6.2": SCRIPT + "@user_script:3: {}",
    "6.0": SCRIPT + "@user_script:3: @user_script: 3: {}",
}
# What the server itself says to a script's call keeps its dash of the wire: luaPushError(lua, shared.oomerr->ptr).
DASHED = SCRIPT + "@user_script:3: @user_script: 3: -{}"


def test_every_reply_of_the_design_is_in_this_file():
    """Eight that may pass, four that will not."""
    assert set(REMEDY) == set(FOR_NOW) | set(FOR_GOOD)


@pytest.mark.parametrize("code", FOR_NOW)
def test_a_refusal_for_now_may_be_asked_again(code):
    """The node abstains, with the server's words and what to do about it; credentials are not to blame."""
    error = failure(FOR_NOW[code])
    assert type(error) is NodeRefused
    assert str(error).startswith(FOR_NOW[code])
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("code", FOR_GOOD)
def test_a_refusal_for_good_is_told_apart(code):
    """Asking again cannot help, so that a caller may be told at once."""
    error = failure(FOR_GOOD[code])
    assert type(error) is NodeDenied
    assert str(error).startswith(FOR_GOOD[code])
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("message", [WRONGTYPE, WRONGTYPE + " script: 6b1bf486, on @user_script:3."])
def test_another_type_of_value_is_a_conflict(message):
    """Never a refusal that looks like a vote, and never 'free'."""
    error = failure(message)
    assert type(error) is KeyConflict
    assert "another type" in str(error)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_old_servers_wrap_a_conflict(wrapper):
    """Before 7.0 the code stands in the middle."""
    assert type(failure(WRAPPERS[wrapper].format(WRONGTYPE))) is KeyConflict


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("code", [*FOR_NOW, *FOR_GOOD])
def test_old_servers_wrap_a_refusal(wrapper, code):
    """It means what it would mean unwrapped."""
    message = WRAPPERS[wrapper].format({**FOR_NOW, **FOR_GOOD}[code])
    error = failure(message)
    assert type(error) is (NodeDenied if code in FOR_GOOD else NodeRefused)
    assert str(error).startswith(message)
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("code", ["MISCONF", "OOM", "READONLY", "NOREPLICAS"])
def test_old_servers_leave_the_dash_of_their_own_refusals(code):
    """As Redis 6.2 answers an EVALSHA that writes while it refuses writes: the remedy must be found there too."""
    message = DASHED.format(FOR_NOW[code])
    error = failure(message)
    assert type(error) is NodeRefused
    assert str(error).startswith(message)
    assert REMEDY[code] in str(error)


@pytest.mark.parametrize("code", [*FOR_NOW, *FOR_GOOD])
def test_newer_servers_append_the_script(code):
    """From 7.0 on the code stands in front again."""
    message = {**FOR_NOW, **FOR_GOOD}[code] + " script: 6b1bf486c81c, on @user_script:3."
    assert type(failure(message)) is (NodeDenied if code in FOR_GOOD else NodeRefused)
    assert REMEDY[code] in str(failure(message))


def test_too_many_clients_are_a_refusal_for_now():
    """The server says so without a code of its own."""
    error = failure("ERR max number of clients reached")
    assert type(error) is NodeRefused
    assert "raise maxclients" in str(error)
    assert type(failure("ERR max number of clients + cluster connections reached")) is NodeRefused


@pytest.mark.parametrize(
    "message",
    [
        "ERR unknown command 'EVALSHA', with args beginning with: ",
        "ERR Error running script (call to f_1): @user_script:3: user_script:3: attempt to index a nil value",
        "ERR value is not an integer or out of range",
        "CLUSTERDOWN Hash slot not served",
        "MOVED 1234 10.0.0.1:6379",
        "",
        "OOMPH is no code of ours",
        "WRONGTYPED neither",
    ],
)
def test_what_is_not_known_is_a_refusal_in_the_server_s_words(message):
    """Nothing is guessed, and nothing is dropped."""
    error = failure(message)
    assert type(error) is NodeRefused
    assert str(error) == message


@pytest.mark.parametrize("code", [*FOR_NOW, *FOR_GOOD, "WRONGTYPE"])
def test_a_code_in_the_middle_of_another_error_means_nothing(code):
    """Only the wrapper of a script's error is looked into: a key's name may hold any word."""
    assert type(failure(f"ERR no such thing: {code} x")) is NodeRefused
    assert str(failure(f"ERR no such thing: {code} x")) == f"ERR no such thing: {code} x"


def test_a_forgotten_script_is_recognised():
    """Only then is its source sent."""
    assert missing_script("NOSCRIPT No matching script. Please use EVAL.")
    for message in (*FOR_NOW.values(), *FOR_GOOD.values(), WRONGTYPE, "", "ERR NOSCRIPT", SCRIPT + "NOSCRIPT"):
        assert not missing_script(message)


def test_every_refusal_is_a_connection_error():
    """They may stand in `QuorumUnavailable.nodes` beside what the network said."""
    for message in (*FOR_NOW.values(), *FOR_GOOD.values()):
        assert isinstance(failure(message), ConnectionError)
