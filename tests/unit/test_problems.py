"""What strangers are told of an error: its kind, and when to come again, and nothing else."""

import json

import pytest

from redlock_async._errors import LockLost, LockTimeout, QuorumUnavailable
from redlock_async._problems import Problems, refused

SECRET = "redis://user:secret@10.0.0.1:6379"  # noqa: S105 - that is what must not be told
PROBLEMS = Problems(held=409, unavailable=503, lost=599)


@pytest.mark.parametrize(
    ("seconds", "told"), [(None, "1"), (0.0, "1"), (0.2, "1"), (1.0, "1"), (1.001, "2"), (9.5, "10"), (3600.0, "3600")]
)
def test_retry_after_is_rounded_up(seconds, told):
    """By then what was in the way has run out; what is not known is soon."""
    assert PROBLEMS.of(LockTimeout("x", retry_after=seconds)).headers == {"Retry-After": told}


@pytest.mark.parametrize(
    ("error", "status", "title", "reason"),
    [
        (LockTimeout(SECRET, names=(SECRET,), holder=SECRET), 409, "Conflict", "held"),
        (QuorumUnavailable(SECRET, nodes={SECRET: OSError(SECRET)}), 503, "Service Unavailable", "unavailable"),
        (LockLost(SECRET, names=(SECRET,)), 599, "Error", "lost"),
    ],
)
def test_nothing_of_the_error_itself_is_told(error, status, title, reason):
    """Neither masters nor holders nor names."""
    problem = PROBLEMS.of(error)
    said = json.loads(problem.body)
    assert (said["type"], said["title"], said["status"], said["reason"]) == ("about:blank", title, status, reason)
    assert problem.status == status
    assert "secret" not in problem.body + str(problem.headers)


def test_a_refused_name_says_which_value():
    """For whoever sent it."""
    assert json.loads(refused(400, "{sku} is missing").body)["detail"] == "{sku} is missing"
