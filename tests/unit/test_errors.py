"""The errors: the tree of DESIGN.md, and that each survives a process pool."""

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

import redlock_async
from redlock_async import (
    ConfigurationError,
    HoldUnconfirmed,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    RedlockError,
    StaleFence,
    WrongKeyType,
    errors,
)
from redlock_async.errors import NodeDenied, NodeNeedsOthers, NodeRefused, WrongClock

ROOT = Path(__file__).resolve().parents[2]

TREE = {
    LockTimeout: (RedlockError, TimeoutError),
    QuorumUnavailable: (RedlockError, ConnectionError),
    HoldUnconfirmed: (QuorumUnavailable,),
    LockLost: (RedlockError,),
    NotHeld: (RedlockError,),
    WrongKeyType: (RedlockError,),
    StaleFence: (RedlockError,),
    ConfigurationError: (RedlockError, ValueError),
}
EXAMPLES = [
    RedlockError("plain", names=("a",)),
    LockTimeout("waited", names=["a", "b"], holder="host:1"),
    LockTimeout("waited"),
    QuorumUnavailable("down", names=("a",), nodes={"h:1": TimeoutError("late"), "h:2": NodeDenied("NOAUTH")}),
    QuorumUnavailable("down"),
    HoldUnconfirmed("done", names=("a",), nodes={"h:1": TimeoutError("late")}),
    LockLost("gone", names=("a",)),
    NotHeld("not held", names=("a",)),
    WrongKeyType("a list", names=("a",)),
    StaleFence("late", names=("a",), token=7, latest=8),
    ConfigurationError("no nodes"),
    NodeRefused("LOADING"),
    NodeDenied("NOAUTH"),
    NodeNeedsOthers("too few nodes answer"),
    WrongClock("its clock is wrong", 1e10),
]
every_example = pytest.mark.parametrize("error", EXAMPLES, ids=repr)


def test_the_tree_is_the_design_s():
    """Exactly these bases, so that a change of what a caller may catch is a decision."""
    assert RedlockError.__bases__ == (Exception,)
    assert {error: error.__bases__ for error in TREE} == TREE


def test_the_tree_has_no_other_errors():
    """Each error a caller can meet is public; what is not is no RedlockError."""
    classes = {each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__}
    assert classes == {RedlockError, *TREE, NodeRefused, NodeDenied, NodeNeedsOthers, WrongClock}
    assert not issubclass(NodeRefused, RedlockError)
    assert {each.__name__ for each in (RedlockError, *TREE)} <= set(redlock_async.__all__)


def test_contention_and_outage_are_never_the_same_error():
    """No `except` for the one can catch the other, though both are kinds of OSError."""
    assert not issubclass(LockTimeout, ConnectionError)
    assert not issubclass(QuorumUnavailable, TimeoutError)
    assert not issubclass(LockTimeout, QuorumUnavailable)
    assert not issubclass(QuorumUnavailable, LockTimeout)


@pytest.mark.parametrize("error", [LockLost, NotHeld, WrongKeyType])
def test_the_others_are_no_builtin_that_is_caught_by_the_way(error):
    """A loss must not disappear in an `except OSError` or `except ValueError`."""
    assert not issubclass(error, (OSError, ValueError, LookupError, RuntimeError))


@pytest.mark.parametrize("error", [NodeRefused, NodeDenied])
def test_one_node_s_refusal_is_a_connection_error(error):
    """It stands beside what the network says, and a refusal for good is a refusal."""
    assert issubclass(error, ConnectionError)
    assert issubclass(error, NodeRefused)


@every_example
def test_the_message_is_the_whole_text(error):
    """Those that are OSErrors as well must not turn it into an errno."""
    assert error.args == (str(error),)
    assert str(error) in repr(error)
    assert getattr(error, "errno", None) is None


def test_fields_have_the_shapes_that_are_documented():
    """A tuple of names, a label or None, a dictionary of causes: whatever they were made from."""
    assert LockTimeout("m", names=["a", "b"], holder="h").names == ("a", "b")
    assert LockTimeout("m").holder is None
    assert RedlockError("m").names == ()
    assert QuorumUnavailable("m").nodes == {}
    causes = {"h:1": TimeoutError("late")}
    error = QuorumUnavailable("m", nodes=causes)
    assert error.nodes == causes
    causes.clear()
    assert list(error.nodes) == ["h:1"], "what is raised must not change afterwards"
    assert QuorumUnavailable("m").nodes is not QuorumUnavailable("m").nodes


def same(one, other):
    """Equal in all that a handler can read."""
    assert type(one) is type(other)
    assert one.args == other.args
    assert str(one) == str(other)
    ours, theirs = dict(vars(one)), dict(vars(other))
    nodes, others = ours.pop("nodes", {}), theirs.pop("nodes", {})
    assert ours == theirs
    assert list(nodes) == list(others)
    for cause, copied in zip(nodes.values(), others.values(), strict=True):
        same(cause, copied)


@every_example
@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))  # older ones are for Python 2
def test_an_error_survives_pickling_with_its_fields(error, protocol):
    """A process pool hands it to its caller this way."""
    same(pickle.loads(pickle.dumps(error, protocol)), error)  # noqa: S301 - our own bytes


@every_example
def test_an_error_survives_copying(error):
    """As some loggers and test runners do."""
    same(copy.copy(error), error)
    same(copy.deepcopy(error), error)


def test_notes_survive_pickling():
    """What went wrong at release is a note."""
    error = LockLost("gone")
    error.add_note("and the lock: NotHeld")
    notes = pickle.loads(pickle.dumps(error)).__notes__  # noqa: S301 - our own bytes
    assert notes == error.__notes__
    assert notes[1:] == ["and the lock: NotHeld"]


@pytest.mark.parametrize("error", [LockTimeout, QuorumUnavailable, LockLost, StaleFence])
def test_an_error_points_to_the_page_with_its_causes(error):
    """A traceback shows the note; the message itself stays short."""
    (note,) = error("short").__notes__
    path, section = re.fullmatch(r"causes and remedies: ([\w/.]+), '([\w ]+)'", note).groups()
    assert f"\n## {section}\n" in (ROOT / path).read_text("utf-8")
    assert str(error("short")) == "short"
