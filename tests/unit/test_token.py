"""Lock tokens: who holds a lock, and what stays of it."""

import pytest

from redlock_async._rules.token import is_expired, owner_of, takeover_delay_of, token_label

RANDOM = b"0123456789abcdef" * 2


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.0004, 2.5, 86_400.0])
def test_a_token_says_its_owner_and_its_delay(delay):
    """The delay is never shorter than what was asked for."""
    token = RANDOM + token_label("web:1+2", delay)
    assert owner_of(token) == "web:1+2"
    assert delay <= takeover_delay_of(token) < delay + 0.001
    assert len(token) <= 300


@pytest.mark.parametrize(
    ("token", "owner"),
    [
        (None, None), (b"", None), (b"foreign", None), (b"fore:ign", None), (RANDOM, None), (RANDOM + b"0:a", None),
        (RANDOM + b":a", "a"), (RANDOM + b"+:a", "a"), (RANDOM + b"+x:a", "a"),
        (RANDOM + b"+" + b"9" * 13 + b":a", "a"),
    ],
)  # fmt: skip
def test_other_values_have_no_delay(token, owner):
    """Any client can store anything in a key."""
    assert owner_of(token) == owner
    assert takeover_delay_of(token) == 0.0
    assert not is_expired(token, 0.0)


def test_a_lease_is_over_when_only_its_delay_is_left():
    """With a ttl of 1 s, the nodes keep the key for 6 s at first."""
    token = RANDOM + token_label("web", 5)
    assert [is_expired(token, left) for left in (6.0, 5.001, 5.0, 0.1, None)] == [False, False, True, True, False]
