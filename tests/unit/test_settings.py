"""Options: each one wrong in every way, and what the message says about it."""

import math
import os
import socket
from datetime import timedelta

import pytest

from redlock_async import ConfigurationError
from redlock_async._quorum import validity
from redlock_async._settings import DEFAULT, ENVIRONMENT, LONGEST_TTL, SHORTEST_TTL, Options, Settings, from_environment

GIVEN = {
    "ttl": 10.0,
    "wait": 10.0,
    "node_timeout": 0.25,
    "retry_delay": 0.2,
    "drift_factor": 0.01,
    "fencing": True,
    "namespace": "",
    "owner": None,
    "strict_restart": False,
}
BASE = Options(ttl=10.0, wait=10.0, fencing=True)

CLIENT_DURATIONS = ("ttl", "wait", "node_timeout", "retry_delay")
CALL_DURATIONS = ("ttl", "wait", "max_hold", "hold_at_least")
NOT_NUMBERS = ["10", b"10", [10], {}, object(), 1j, True, False]
NOT_FINITE = [math.nan, math.inf, -math.inf]


def settings(**options):
    """A client's settings with these options."""
    return Settings.checked(**GIVEN | options)


def call(**options):
    """A call's options."""
    return BASE.with_overrides(drift_factor=0.01, **options)


def refusal(make, **options):
    """What it is refused with."""
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
def test_a_duration_that_is_no_number_is_refused_by_name(make, option, value):
    """A bool is no number of seconds either; the message says what would be right."""
    message = refusal(make, **{option: value})
    assert option in message
    assert "number of seconds or a timedelta" in message


@both
@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_duration_that_is_not_finite_is_refused_by_name(make, option, value):
    """For ever is spelt None, and only where waiting for ever makes sense."""
    message = refusal(make, **{option: value})
    assert f"{option} must be finite" in message
    assert ("None waits for ever" in message) == (option == "wait")


@both
@pytest.mark.parametrize("value", [-1, -0.001, timedelta(seconds=-1), timedelta.min])
def test_a_negative_duration_is_refused_by_name(make, option, value):
    """Time does not run backwards."""
    assert refusal(make, **{option: value}).startswith(option)


@both
def test_a_number_too_large_for_a_float_is_refused_by_name(make, option):
    """As any other that is no use as a duration."""
    assert option in refusal(make, **{option: 10**400})


@both
def test_a_timedelta_is_the_same_as_its_seconds(make, option):
    """Both spellings give the same options."""
    assert make(**{option: timedelta(milliseconds=1500)}) == make(**{option: 1.5})
    assert make(**{option: timedelta(seconds=2)}) == make(**{option: 2}) == make(**{option: 2.0})


@pytest.mark.parametrize("option", ["node_timeout", "retry_delay"])
@pytest.mark.parametrize("value", [0, 0.0, timedelta(0)])
def test_a_pause_or_timeout_of_zero_is_refused(option, value):
    """Nothing would ever answer in time; attempts would spin."""
    assert f"{option} must be more than 0 seconds" in refusal(settings, **{option: value})


def test_waiting_for_zero_seconds_tries_once_and_none_waits_for_ever():
    """Neither is an error, and each stays what it is."""
    assert settings(wait=0).options.wait == 0.0
    assert settings(wait=None).options.wait is None
    assert call(wait=0).wait == 0.0
    assert call(wait=None).wait is None
    assert call().wait == 10.0


def test_a_negative_wait_is_told_both_spellings():
    """-1 is how other libraries say for ever."""
    message = refusal(settings, wait=-1)
    assert "0 tries once" in message
    assert "None waits for ever" in message


@pytest.mark.parametrize("option", ["ttl", "node_timeout", "retry_delay"])
def test_none_is_no_duration_of_a_client(option):
    """Only `wait` has a meaning for None."""
    assert option in refusal(settings, **{option: None})


@pytest.mark.parametrize("make", [settings, call])
def test_the_ttl_has_limits_that_catch_milliseconds_where_they_can(make):
    """30000 could be meant (eight hours) and is taken; what is more than a year is refused with a hint."""
    for ttl in (SHORTEST_TTL, 30_000, LONGEST_TTL):
        got = make(ttl=ttl)
        assert (got.options if make is settings else got).ttl == ttl
    for ttl in (0, 0.009, 0.0099999, LONGEST_TTL + 1, 86_400_000, timedelta.max):
        message = refusal(make, ttl=ttl)
        assert message.startswith("ttl must be from 0.01 seconds to 366 days")
        assert "nothing here is in milliseconds" in message


def test_every_ttl_that_is_allowed_has_validity():
    """Where the drift allowance would eat it up, the message names both options."""
    for ttl in (0.01, 0.02, 0.1, 1.0, 10.0, LONGEST_TTL):
        for drift in (0.0, 0.01, 0.1, 0.3, 0.5):
            assert validity(settings(ttl=ttl, drift_factor=drift).options.ttl, drift) > 0


# The fraction


@pytest.mark.parametrize("value", [-0.01, 0.51, 1, 10])
def test_the_drift_factor_is_a_fraction(value):
    """A percentage would leave nothing of a lease."""
    assert "drift_factor is a fraction from 0 to 0.5" in refusal(settings, drift_factor=value)


@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, *NOT_FINITE, None, timedelta(milliseconds=100), pytest.param(10**400, id="huge")]
)
def test_a_drift_factor_that_is_no_fraction_is_refused_as_such(value):
    """It is no duration: neither is a timedelta taken, nor does the message offer one."""
    message = refusal(settings, drift_factor=value)
    assert "drift_factor" in message
    assert "timedelta" not in message.replace(repr(value), "")


def test_the_limits_of_the_drift_factor_are_allowed():
    """0 trusts the clocks; 0.5 gives half of every lease away."""
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
    assert f"{option} is True or False" in refusal(make, **{option: value})


@pytest.mark.parametrize("value", [b"n", 5, None, ["n"]])
def test_the_namespace_is_text(value):
    """Anything else would change every key."""
    assert "namespace is a str" in refusal(settings, namespace=value)


@pytest.mark.parametrize("value", ["\ud800", "app\udfff:"])
def test_a_namespace_that_has_no_bytes_is_refused(value):
    """As for lock names: lone surrogates are no text. Found when the client is made, not in its first lock."""
    assert "namespace" in refusal(settings, namespace=value)


@pytest.mark.parametrize("value", ["", "x" * 201, "two\nlines", "nul\x00", "\ud800", 5, b"me", ["me"], True])
def test_the_owner_is_a_printable_label(value):
    """It ends up in other clients' errors and in operators' terminals."""
    assert "owner is a printable label of 1 to 200 characters" in refusal(settings, owner=value)


def test_the_owner_is_this_process_unless_given():
    """host:pid tells an operator where to look."""
    assert settings().owner == f"{socket.gethostname()}:{os.getpid()}"
    assert settings(owner="worker é").owner == "worker é"


# A call's own options


def test_a_call_has_the_client_s_options_unless_it_says_otherwise():
    """And no other lock is touched by what it says."""
    client = settings(ttl=7, wait=None, fencing=False).options
    assert client.with_overrides(drift_factor=0.01) == client
    changed = client.with_overrides(drift_factor=0.01, ttl=3, wait=1, fencing=True, renew=False, max_hold=9)
    assert changed == Options(ttl=3.0, wait=1.0, fencing=True, renew=False, max_hold=9.0)
    assert (client.ttl, client.wait, client.fencing) == (7.0, None, False)


def test_every_override_arrives():
    """No option is dropped on the way."""
    assert call(ttl=1, wait=2, fencing=False, renew=False, max_hold=4, hold_at_least=3, reentrant=True) == Options(
        ttl=1.0, wait=2.0, fencing=False, renew=False, max_hold=4.0, hold_at_least=3.0, reentrant=True
    )


def test_a_name_may_stay_locked_for_longer_than_a_body_may_run():
    """They are about different things: max_hold about the body, hold_at_least about the name."""
    options = call(hold_at_least=5, max_hold=3)
    assert (options.hold_at_least, options.max_hold) == (5.0, 3.0)


def test_max_hold_of_zero_is_refused():
    """It would cancel every body before it begins."""
    assert "max_hold must be more than 0" in refusal(call, max_hold=0)


def test_the_ttl_of_a_call_is_checked_against_the_client_s_drift():
    """As the client's own."""
    assert BASE.with_overrides(drift_factor=0.5, ttl=0.01).ttl == 0.01


def test_acquire_may_wait_differently():
    """`acquire(wait=...)` changes that alone; without one nothing changes."""
    assert BASE.waiting(DEFAULT) is BASE
    assert BASE.waiting(None) == Options(ttl=10.0, wait=None, fencing=True)
    assert BASE.waiting(timedelta(seconds=1)).wait == 1.0
    for value in (-1, math.nan, "3", True):
        with pytest.raises(ConfigurationError, match="wait"):
            BASE.waiting(value)


# The environment

URLS = {"REDLOCK_NODES": "redis://a, redis://b ,redis://c"}


def test_nodes_come_separated_by_commas():
    """Spaces and a comma too many do not make another node."""
    assert from_environment(URLS) == (["redis://a", "redis://b", "redis://c"], {})
    assert from_environment({"REDLOCK_NODES": ",redis://a,, "})[0] == ["redis://a"]


@pytest.mark.parametrize("value", [None, "", " ", ",", " , ,"])
def test_no_nodes_in_the_environment_is_an_error_that_shows_how(value):
    """It names the variable and gives an example."""
    message = refusal(lambda: from_environment({} if value is None else {"REDLOCK_NODES": value}))
    assert message.startswith("REDLOCK_NODES is not set")
    assert "REDLOCK_NODES=redis://" in message


def test_every_option_of_a_client_has_its_variable():
    """No option can be given in code alone."""
    assert set(ENVIRONMENT) == set(GIVEN)


def test_every_variable_arrives_as_its_option():
    """With the types that the options have."""
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
    }
    assert settings(**given).options == Options(ttl=30.0, wait=2.5, fencing=False)


@pytest.mark.parametrize("option", ENVIRONMENT)
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_counts_as_not_given(option, text):
    """As compose files and shells leave them."""
    assert from_environment(URLS | {f"REDLOCK_{option.upper()}": text})[1] == {}


@pytest.mark.parametrize("text", ["none", "None", "FOREVER", " forever "])
def test_waiting_for_ever_has_a_word(text):
    """There is no None in an environment."""
    assert from_environment(URLS | {"REDLOCK_WAIT": text})[1] == {"wait": None}


@pytest.mark.parametrize("option", ["ttl", "node_timeout", "retry_delay", "drift_factor"])
def test_for_ever_is_a_word_of_waiting_only(option):
    """A ttl cannot be none."""
    assert f"REDLOCK_{option.upper()}" in refusal(
        lambda: from_environment(URLS | {f"REDLOCK_{option.upper()}": "none"})
    )


@pytest.mark.parametrize("option", ["ttl", "wait", "node_timeout", "retry_delay"])
@pytest.mark.parametrize("text", ["ten", "10s", "1,5", "0x10", "10 20"])
def test_a_variable_that_is_no_number_is_refused_by_its_name(option, text):
    """The message has the variable's name, not only the option's, and what stands in it."""
    message = refusal(lambda: from_environment(URLS | {f"REDLOCK_{option.upper()}": text}))
    assert f"REDLOCK_{option.upper()} is a number of seconds, not {text!r}" in message


def test_a_drift_factor_that_is_no_number_is_refused_by_its_name():
    """It is a fraction, not a number of seconds."""
    message = refusal(lambda: from_environment(URLS | {"REDLOCK_DRIFT_FACTOR": "1%"}))
    assert message.startswith("REDLOCK_DRIFT_FACTOR is a ")
    assert "seconds" not in message


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "-inf"])
@pytest.mark.parametrize("option", ["ttl", "wait", "node_timeout", "retry_delay", "drift_factor"])
def test_a_number_that_is_no_use_is_refused_with_the_others(option, text):
    """What float() takes is checked like any other value."""
    _, given = from_environment(URLS | {f"REDLOCK_{option.upper()}": text})
    assert option in refusal(settings, **given)


@pytest.mark.parametrize("option", ["fencing", "strict_restart"])
def test_a_flag_in_the_environment_has_several_words(option):
    """What people write; anything else is refused by the variable's name, never taken for true."""
    variable = f"REDLOCK_{option.upper()}"
    for value, texts in ((True, ("true", "TRUE", "1", "yes", "On")), (False, ("False", "0", "no", "OFF"))):
        for text in texts:
            assert from_environment(URLS | {variable: text})[1] == {option: value}
    for text in ("2", "y", "enabled", "-"):
        assert f"{variable} is true or false, not {text!r}" in refusal(
            from_environment, environ=URLS | {variable: text}
        )
