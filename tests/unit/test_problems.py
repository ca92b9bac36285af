"""A problem response reveals the kind of an error and when to retry, and nothing else."""

import json
import math

import pytest

from redlock_async._web.problems import Problems, refused
from redlock_async.errors import HoldUnconfirmed, LockLost, LockTimeout, QuorumUnavailable, StaleFence

SECRET = "redis://user:secret@10.0.0.1:6379"  # noqa: S105 - that is what must not be told
PROBLEMS = Problems(held=409, unavailable=503, lost=599, stale=412)


FAR = {3600.0: "3600", 3600.5: "3600", 1e11: "3600", math.inf: "3600"}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, "1"), (0.0, "1"), (0.2, "1"), (1.0, "1"), (1.001, "2"), (9.5, "10"), *FAR.items()],
)
def test_retry_after_is_rounded_up(seconds, told):
    """By then what was in the way has run out; what is not known is soon. It is an hour at most."""
    assert PROBLEMS.of(LockTimeout("x", retry_after=seconds)).headers == {"Retry-After": told}


@pytest.mark.parametrize(
    ("error", "status", "title", "reason"),
    [
        (LockTimeout(SECRET, names=(SECRET,), holder=SECRET), 409, "Conflict", "held"),
        (QuorumUnavailable(SECRET, nodes={SECRET: OSError(SECRET)}), 503, "Service Unavailable", "unavailable"),
        (LockLost(SECRET, names=(SECRET,)), 599, "Error", "lost"),
        (StaleFence(SECRET, names=(SECRET,)), 412, "Precondition Failed", "stale"),
        (HoldUnconfirmed(SECRET, nodes={SECRET: OSError(SECRET)}), 599, "Error", "hold_unconfirmed"),
    ],
)
def test_a_problem_reveals_nothing_of_the_error(error, status, title, reason):
    """Neither masters nor holders nor names."""
    problem = PROBLEMS.of(error)
    said = json.loads(problem.body)
    assert (said["type"], said["title"], said["status"], said["reason"]) == ("about:blank", title, status, reason)
    assert problem.status == status
    assert "secret" not in problem.body + str(problem.headers)


def test_a_refused_name_says_which_value():
    """For whoever sent it."""
    assert json.loads(refused(400, "{sku} is missing").body)["detail"] == "{sku} is missing"
