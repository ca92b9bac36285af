"""Options: each of them wrong in every way, and the message about it."""

import math
import os
import socket
from datetime import timedelta

import pytest

from redlock_async import ConfigurationError, Redlock
from redlock_async._rules.lease_timing import validity
from redlock_async._rules.settings import (
    DEFAULT,
    ENVIRONMENT,
    LONGEST_TTL,
    SHORTEST_TTL,
    Options,
    Settings,
    from_environment,
)
from redlock_async._transport.environment import default_owner

GIVEN = {
    "ttl": 10.0,
    "wait": 10.0,
    "node_timeout": 0.25,
    "retry_delay": 0.2,
    "drift_factor": 0.01,
    "fencing": True,
    "namespace": "",
    "owner": "test:1",
    "strict_restart": False,
    "quorum": None,
}
BASE = Options(ttl=10.0, wait=10.0, fencing=True)

CLIENT_DURATIONS = ("ttl", "wait", "node_timeout", "retry_delay")
CALL_DURATIONS = ("ttl", "wait", "max_hold", "min_hold")
NOT_NUMBERS = ["10", b"10", [10], {}, object(), 1j, True, False]
NOT_FINITE = [math.nan, math.inf, -math.inf]


def settings(**options):
    """Return a client's settings with these options."""
    return Settings.checked(**GIVEN | options)


def call(**options):
    """Return a call's options."""
    return BASE.with_overrides(drift_factor=0.01, **options)


def refusal(make, **options):
    """Return the message of the ConfigurationError."""
    with pytest.raises(ConfigurationError) as caught:
        make(**options)
    message = str(caught.value)
    assert len(message) < 400
    return message


# Durations

both = pytest.mark.parametrize(
    ("make", "option"),
    [(settings, option) for option in CLIENT_DURATIONS] + [(call, option) for option in CALL_DURATIONS],
)


@both
@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_a_duration_that_is_not_a_number_is_rejected_by_name(make, option, value):
    """A bool is not a number of seconds either; the message says what is valid."""
    message = refusal(make, **{option: value})
    assert option in message
    assert "number of seconds or a timedelta" in message


@both
@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_duration_that_is_not_finite_is_rejected_by_name(make, option, value):
    """To wait without limit is spelt None, and only possible for `wait`."""
    message = refusal(make, **{option: value})
    assert f"{option} must be finite" in message
    assert ("None waits without limit" in message) == (option == "wait")


@both
@pytest.mark.parametrize("value", [-1, -0.001, timedelta(seconds=-1), timedelta.min])
def test_a_negative_duration_is_rejected_by_name(make, option, value):
    """Time does not run backwards."""
    assert refusal(make, **{option: value}).startswith(option)


@both
def test_a_number_too_large_for_a_float_is_rejected_by_name(make, option):
    """Like any other number that cannot be a duration."""
    assert option in refusal(make, **{option: 10**400})


@both
def test_a_timedelta_is_the_same_as_its_seconds(make, option):
    """Both spellings give the same options."""
    assert make(**{option: timedelta(milliseconds=1500)}) == make(**{option: 1.5})
    assert make(**{option: timedelta(seconds=2)}) == make(**{option: 2}) == make(**{option: 2.0})


@pytest.mark.parametrize("option", ["node_timeout", "retry_delay"])
@pytest.mark.parametrize("value", [0, 0.0, timedelta(0)])
def test_a_pause_or_timeout_of_zero_is_rejected(option, value):
    """No reply would ever arrive in time, and attempts would spin."""
    assert f"{option} must be more than 0 seconds" in refusal(settings, **{option: value})


def test_waiting_zero_seconds_tries_once_and_none_waits_without_limit():
    """Neither is an error, and each keeps its value."""
    assert settings(wait=0).options.wait == 0.0
    assert settings(wait=None).options.wait is None
    assert call(wait=0).wait == 0.0
    assert call(wait=None).wait is None
    assert call().wait == 10.0


def test_the_error_for_a_negative_wait_has_both_spellings():
    """Other libraries spell "without limit" as -1."""
    message = refusal(settings, wait=-1)
    assert "0 tries once" in message
    assert "None waits without limit" in message


@pytest.mark.parametrize("option", ["ttl", "node_timeout", "retry_delay"])
def test_none_is_not_a_duration_of_a_client(option):
    """Only `wait` has a meaning for None."""
    assert option in refusal(settings, **{option: None})


@pytest.mark.parametrize("make", [settings, call])
def test_the_ttl_has_limits_that_catch_milliseconds_where_they_can(make):
    """30000 could be intended (eight hours) and is valid; more than a day is rejected with a hint."""
    for ttl in (SHORTEST_TTL, 30_000, LONGEST_TTL):
        got = make(ttl=ttl)
        assert (got.options if make is settings else got).ttl == ttl
    for ttl in (0, 0.009, 0.0099999, LONGEST_TTL + 1, 86_400_000, timedelta.max):
        message = refusal(make, ttl=ttl)
        assert message.startswith("ttl must be from 0.01 seconds to 24 hours")
        assert "Durations are in seconds" in message


@pytest.mark.parametrize("options", [{"ttl": LONGEST_TTL, "takeover_delay": 1}, {"takeover_delay": LONGEST_TTL}])
def test_a_ttl_and_its_takeover_delay_are_at_most_a_day_together(options):
    """A node that forgets the lease is quarantined for no longer than that."""
    assert refusal(call, **options).startswith("ttl and takeover_delay together must be at most 24 hours")
    assert call(ttl=LONGEST_TTL - 1, takeover_delay=1).takeover_delay == 1


def test_every_valid_ttl_has_validity():
    """Where the drift allowance would use it up, the message names both options."""
    for ttl in (0.01, 0.02, 0.1, 1.0, 10.0, LONGEST_TTL):
        for drift in (0.0, 0.01, 0.1, 0.3, 0.5):
            assert validity(settings(ttl=ttl, drift_factor=drift).options.ttl, drift) > 0


# The fraction


@pytest.mark.parametrize("value", [-0.01, 0.51, 1, 10])
def test_the_drift_factor_is_a_fraction(value):
    """A percentage would leave nothing of a lease."""
    assert "drift_factor must be a fraction from 0 to 0.5" in refusal(settings, drift_factor=value)


@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, *NOT_FINITE, None, timedelta(milliseconds=100), pytest.param(10**400, id="huge")]
)
def test_a_drift_factor_that_is_not_a_fraction_is_rejected_as_such(value):
    """It is not a duration: a timedelta is not accepted, and the message does not suggest one."""
    message = refusal(settings, drift_factor=value)
    assert "drift_factor" in message
    assert "timedelta" not in message.replace(repr(value), "")


def test_the_limits_of_the_drift_factor_are_allowed():
    """0 trusts the clocks; 0.5 gives up half of every lease."""
    assert settings(drift_factor=0).drift_factor == 0.0
    assert settings(drift_factor=0.5).drift_factor == 0.5


# Flags and words


@pytest.mark.parametrize(
    ("make", "option"),
    [(settings, "fencing"), (settings, "strict_restart"), (call, "fencing"), (call, "renew"), (call, "reentrant")],
)
@pytest.mark.parametrize("value", ["true", "", 1, 0, [], object(), 1.0])
def test_a_flag_is_true_or_false(make, option, value):
    """A truthy string such as "false" must not switch anything on."""
    assert f"{option} must be True or False" in refusal(make, **{option: value})


@pytest.mark.parametrize("value", [b"n", 5, None, ["n"]])
def test_the_namespace_is_text(value):
    """Anything else would change every key."""
    assert "namespace must be a str" in refusal(settings, namespace=value)


@pytest.mark.parametrize("value", ["\ud800", "app\udfff:"])
def test_a_namespace_that_has_no_bytes_is_rejected(value):
    """As for lock names: lone surrogates are not text. Found by the constructor, not by the first lock."""
    assert "namespace" in refusal(settings, namespace=value)


@pytest.mark.parametrize("value", ["", "x" * 201, "two\nlines", "nul\x00", "\ud800", 5, b"me", ["me"], True, None])
def test_the_owner_is_a_printable_label(value):
    """It appears in other clients' errors and in operators' terminals."""
    assert "owner must be a printable label of 1 to 200 bytes" in refusal(settings, owner=value)


def test_the_owner_is_this_process_by_default():
    """host:pid tells an operator where to look."""
    assert default_owner() == f"{socket.gethostname()}:{os.getpid()}"
    assert Redlock(["redis://a"])._settings.owner == default_owner()
    assert settings(owner=default_owner()).owner == default_owner()
    assert settings(owner="worker é").owner == "worker é"


# A call's own options


def test_a_call_has_the_client_s_options_by_default():
    """And its own options affect no other lock."""
    client = settings(ttl=7, wait=None, fencing=False).options
    assert client.with_overrides(drift_factor=0.01) == client
    changed = client.with_overrides(drift_factor=0.01, ttl=3, wait=1, fencing=True, renew=False, max_hold=9)
    assert changed == Options(ttl=3.0, wait=1.0, fencing=True, renew=False, max_hold=9.0)
    assert (client.ttl, client.wait, client.fencing) == (7.0, None, False)


def test_every_override_arrives():
    """No option is dropped on the way."""
    assert call(ttl=1, wait=2, fencing=False, renew=False, max_hold=4, min_hold=3, reentrant=True) == Options(
        ttl=1.0, wait=2.0, fencing=False, renew=False, max_hold=4.0, min_hold=3.0, reentrant=True
    )


def test_a_name_may_stay_locked_for_longer_than_a_block_may_run():
    """max_hold limits the block, min_hold the name."""
    options = call(min_hold=5, max_hold=3)
    assert (options.min_hold, options.max_hold) == (5.0, 3.0)


def test_max_hold_of_zero_is_rejected():
    """It would cancel every block before it starts."""
    assert "max_hold must be more than 0" in refusal(call, max_hold=0)


def test_the_ttl_of_a_call_is_checked_against_the_client_s_drift():
    """Like the client's own."""
    assert BASE.with_overrides(drift_factor=0.5, ttl=0.01).ttl == 0.01


def test_acquire_may_wait_differently():
    """`acquire(wait=...)` changes only the wait; without it nothing changes."""
    assert BASE.waiting(DEFAULT) is BASE
    assert BASE.waiting(None) == Options(ttl=10.0, wait=None, fencing=True)
    assert BASE.waiting(timedelta(seconds=1)).wait == 1.0
    for value in (-1, math.nan, "3", True):
        with pytest.raises(ConfigurationError, match="wait"):
            BASE.waiting(value)


# The environment

URLS = {"REDLOCK_NODES": "redis://a, redis://b ,redis://c"}


def test_nodes_are_separated_by_commas():
    """Spaces and a superfluous comma do not make another node."""
    assert from_environment(URLS) == (["redis://a", "redis://b", "redis://c"], {})
    assert from_environment({"REDLOCK_NODES": ",redis://a,, "})[0] == ["redis://a"]


@pytest.mark.parametrize(
    "text",
    [
        "redis://a\nredis://b\nredis://c\n",
        "redis://a\r\nredis://b\r\n\r\nredis://c",
        "redis://a,\nredis://b,\nredis://c,\n",
        "# the nodes of the shop\nredis://a, redis://b\n  # redis://old\n\tredis://c",
    ],
)
def test_nodes_are_given_one_per_line_as_in_a_file(text):
    """The list in a secret or an env file, with comments, as `--nodes @FILE` reads it."""
    assert from_environment({"REDLOCK_NODES": text})[0] == ["redis://a", "redis://b", "redis://c"]


def test_two_nodes_separated_by_a_space_are_rejected():
    """And the message says what to write."""
    message = refusal(lambda: from_environment({"REDLOCK_NODES": "redis://a redis://b"}))
    assert message == "REDLOCK_NODES entry 1 contains several URLs. Separate them with commas or line breaks"


@pytest.mark.parametrize("value", [None, "", " ", ",", " , ,", "\n", "# redis://a"])
def test_no_nodes_in_the_environment_is_an_error_with_an_example(value):
    """It names the variable."""
    message = refusal(lambda: from_environment({} if value is None else {"REDLOCK_NODES": value}))
    assert message.startswith("REDLOCK_NODES is not set")
    assert "REDLOCK_NODES=redis://" in message


def test_every_option_of_a_client_has_its_variable():
    """No option is only available in code."""
    assert set(ENVIRONMENT) == set(GIVEN)


def test_every_variable_arrives_as_its_option():
    """With the types of the options."""
    texts = {
        "ttl": "30",
        "wait": "2.5",
        "node_timeout": ".5",
        "retry_delay": "1e-1",
        "drift_factor": "0.02",
        "fencing": "false",
        "namespace": "app:",
        "owner": "worker 1",
        "strict_restart": "yes",
        "quorum": "4",
    }
    nodes, given = from_environment(URLS | {f"REDLOCK_{option.upper()}": text for option, text in texts.items()})
    assert len(nodes) == 3
    assert given == {
        "ttl": 30.0,
        "wait": 2.5,
        "node_timeout": 0.5,
        "retry_delay": 0.1,
        "drift_factor": 0.02,
        "fencing": False,
        "namespace": "app:",
        "owner": "worker 1",
        "strict_restart": True,
        "quorum": 4,
    }
    assert settings(**given).options == Options(ttl=30.0, wait=2.5, fencing=False)


@pytest.mark.parametrize("option", ENVIRONMENT)
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_counts_as_not_set(option, text):
    """Compose files and shells leave such variables."""
    assert from_environment(URLS | {f"REDLOCK_{option.upper()}": text})[1] == {}


@pytest.mark.parametrize("text", ["none", "None", "FOREVER", " forever "])
def test_waiting_without_limit_has_a_word(text):
    """There is no None in an environment."""
    assert from_environment(URLS | {"REDLOCK_WAIT": text})[1] == {"wait": None}


@pytest.mark.parametrize("option", ["ttl", "node_timeout", "retry_delay", "drift_factor"])
def test_the_word_for_no_limit_is_only_valid_for_wait(option):
    """A ttl cannot be None."""
    assert f"REDLOCK_{option.upper()}" in refusal(
        lambda: from_environment(URLS | {f"REDLOCK_{option.upper()}": "none"})
    )


@pytest.mark.parametrize("option", ["ttl", "wait", "node_timeout", "retry_delay"])
@pytest.mark.parametrize("text", ["ten", "10s", "1,5", "0x10", "10 20"])
def test_a_variable_that_is_not_a_number_is_rejected_by_its_name(option, text):
    """The message has the variable's name, not only the option's, and its value."""
    message = refusal(lambda: from_environment(URLS | {f"REDLOCK_{option.upper()}": text}))
    assert f"REDLOCK_{option.upper()} must be a number of seconds, got {text!r}" in message


def test_a_drift_factor_that_is_not_a_number_is_rejected_by_its_name():
    """It is a fraction, not a number of seconds."""
    message = refusal(lambda: from_environment(URLS | {"REDLOCK_DRIFT_FACTOR": "1%"}))
    assert message.startswith("REDLOCK_DRIFT_FACTOR must be a ")
    assert "seconds" not in message


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "-inf"])
@pytest.mark.parametrize("option", ["ttl", "wait", "node_timeout", "retry_delay", "drift_factor"])
def test_an_invalid_number_is_rejected_like_any_other_value(option, text):
    """Values that float() accepts are checked too."""
    _, given = from_environment(URLS | {f"REDLOCK_{option.upper()}": text})
    assert option in refusal(settings, **given)


@pytest.mark.parametrize("option", ["fencing", "strict_restart"])
def test_a_flag_in_the_environment_has_several_words(option):
    """The usual spellings; anything else is rejected by the variable's name, never accepted as true."""
    variable = f"REDLOCK_{option.upper()}"
    for value, texts in ((True, ("true", "TRUE", "1", "yes", "On")), (False, ("False", "0", "no", "OFF"))):
        for text in texts:
            assert from_environment(URLS | {variable: text})[1] == {option: value}
    for text in ("2", "y", "enabled", "-"):
        assert f"{variable} must be true or false, got {text!r}" in refusal(
            from_environment, environ=URLS | {variable: text}
        )


@pytest.mark.parametrize("value", [True, 3.0, "3", b"3", [3], math.nan, "all"])
def test_a_quorum_that_is_not_a_whole_number_is_rejected(value):
    """The message names the option."""
    assert refusal(settings, quorum=value).startswith("quorum must be a whole number, got ")


@pytest.mark.parametrize("text", ["3.0", "all", "-", "0x3", "majority"])
def test_a_quorum_in_the_environment_that_is_not_a_whole_number_is_rejected(text):
    """The message names the variable."""
    message = refusal(lambda: from_environment(URLS | {"REDLOCK_QUORUM": text}))
    assert message.startswith("REDLOCK_QUORUM must be a whole number, got ")


@pytest.mark.parametrize("nodes", range(1, 8))
def test_a_quorum_is_at_least_a_majority_and_at_most_all(nodes):
    """Without one it is a majority; with fewer votes two clients could hold a lock, with more nobody could."""
    least = nodes // 2 + 1
    assert settings().quorum_of(nodes) == least
    for quorum in range(-1, nodes + 3):
        if least <= quorum <= nodes:
            assert settings(quorum=quorum).quorum_of(nodes) == quorum
        else:
            message = refusal(lambda quorum=quorum: settings(quorum=quorum).quorum_of(nodes))
            assert str(least if quorum < least else nodes) in message
            assert str(quorum) in message


def test_a_client_refuses_such_a_quorum():
    """Where it is created, and not at its first lock."""
    urls = [f"redis://h{number}" for number in range(5)]
    assert "quorum must be at least 3 of 5 nodes, got 2" in refusal(lambda: Redlock(urls, quorum=2))
    assert "quorum must be at most 5, the number of nodes, got 6" in refusal(lambda: Redlock(urls, quorum=6))
    assert Redlock(urls, quorum=4).statistics().quorum == 4
    environ = {"REDLOCK_NODES": ",".join(urls), "REDLOCK_QUORUM": "5"}
    assert Redlock.from_env(environ).statistics().quorum == 5
