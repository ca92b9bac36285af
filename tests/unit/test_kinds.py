"""Every lock kind: a kind never changes, and parsing a reply changes nothing, in every state of an attempt.

Every attribute of kinds and attempts is compared, at any depth, before and after.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from fakes import SILENT, FakeContext, sent, sha
from hypothesis import given, settings
from hypothesis import strategies as st

from redlock_async._kinds.fair import Fair
from redlock_async._kinds.kind import Attempt, LockKind
from redlock_async._kinds.mutex import Mutex
from redlock_async._kinds.rwlock import READERS, Read, Write
from redlock_async._kinds.semaphore import Slots
from redlock_async._rules.keys import Keys
from redlock_async._runtime.acquire_round import AcquireRound
from redlock_async._transport.connection import DECODE_ERRORS

TOKEN, HOLDER = b"0" * 32 + b":us", b"1" * 32 + b":holder"
KEYS = Keys("n:")
MALFORMED = (None, b"", b"no", True, 1.5, {}, [], [1], [b"t"], [None, None], [1, 2, 3, 4, b"5"], [b"t", b"1", b"2"])
"""Replies that most kinds cannot parse."""


@dataclass(frozen=True)
class Example:
    """A kind, and replies that refuse it."""

    kind: LockKind
    replies: tuple[object, ...]
    changed_keys: tuple[bytes, ...] = field(default=(b"n:x",))


MUTEX_REPLIES = (None, [1, HOLDER, 1500], [2, b"other", 0], [1, HOLDER, -1])
SLOTS_REPLIES = (
    [HOLDER, 1500], [HOLDER, -1, 0, 2], [HOLDER, 0, 1], [b"other", 60_000, 0, 1, 2], [5], [9],
    [2, 2500, b"2:" + HOLDER], [3, -1, b"3:other"],
)  # fmt: skip
SLOT_KEYS = Slots(KEYS, "x", 4, fenced=True).watched_keys

EXAMPLES = {
    "one name": Example(Mutex(KEYS, ["x"], fenced=True), MUTEX_REPLIES),
    "one unfenced name": Example(Mutex(KEYS, ["x"], fenced=False), MUTEX_REPLIES),
    "two names": Example(Mutex(KEYS, ["x", "a"], fenced=True), MUTEX_REPLIES),
    "reader": Example(Read(KEYS, "x", fenced=True), ([HOLDER, 1500], [HOLDER, -1], [None, 2500])),
    "nested reader": Example(Read(KEYS, "x", fenced=True).nested_in(HOLDER), ([HOLDER, 1500], [None, -1])),
    "writer": Example(Write(KEYS, "x", fenced=True), ([HOLDER, 400], [READERS, 9000], [READERS, 300], [HOLDER, -1])),
    "fair": Example(Fair(KEYS, ["x"], fenced=True), ([HOLDER, 1500, 0], [HOLDER, 200, 1], [HOLDER, -1, 0])),
    "one slot": Example(Slots(KEYS, "x", 4, fenced=True), SLOTS_REPLIES, SLOT_KEYS),
    "two slots": Example(Slots(KEYS, "x", 4, fenced=False).with_count(2), SLOTS_REPLIES, SLOT_KEYS),
}
LEAF = (type(None), bool, int, float, str, bytes, range)


def attributes(value):
    """The attributes of an object, in slots and in its dict."""
    slots = {name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())}
    found = {name: getattr(value, name) for name in sorted(slots - {"__dict__", "__weakref__"}) if hasattr(value, name)}
    return found | getattr(value, "__dict__", {})


def snapshot(value):
    """A copy of a value and all that it refers to, as tuples that can be compared."""
    if isinstance(value, LEAF):
        return type(value), value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(snapshot, value))
    if isinstance(value, dict):
        return type(value), tuple((snapshot(key), snapshot(item)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(snapshot, value))
    if type(value).__module__.startswith("redlock_async."):
        return type(value), tuple((name, snapshot(item)) for name, item in attributes(value).items())
    return "identity", id(value)  # the client, timers, functions


def mutable_parts(value, path):
    """The paths of everything in a value that could change in place."""
    if isinstance(value, LEAF):
        return []
    if isinstance(value, tuple):
        return [part for number, item in enumerate(value) for part in mutable_parts(item, f"{path}[{number}]")]
    if isinstance(value, (LockKind, Keys)):
        return [part for name, item in attributes(value).items() for part in mutable_parts(item, f"{path}.{name}")]
    return [path]


every_example = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


def outcome(parse, reply):
    """What parsing a reply returns or raises, as something that can be compared."""
    try:
        refusal = parse(reply)
    except DECODE_ERRORS as exc:
        return type(exc), exc.args
    return type(refusal), refusal


# Kinds never change


@every_example
def test_a_kind_holds_nothing_that_can_change_in_place(example):
    """Its attributes are numbers, strings and tuples of them, so a copy of a kind shares no state with it."""
    assert mutable_parts(example.kind, "kind") == []


CALLS = {
    # all kinds
    "start": lambda kind: kind.start(FakeContext()),
    "held_by": lambda kind: kind.held_by(TOKEN),
    "release": lambda kind: kind.release(TOKEN),
    "release_after": lambda kind: kind.release_after(TOKEN, 500),
    "reassert": lambda kind: kind.reassert(TOKEN, 7, 1000),
    "extend": lambda kind: type(kind).extend([(kind, TOKEN, 1000), (kind, HOLDER, 0)]),
    "details": lambda kind: kind.details(),
    # Read, Write and Slots
    "nested_in": lambda kind: kind.nested_in(HOLDER),
    "as_reader": lambda kind: kind.as_reader(),
    "downgrade": lambda kind: kind.downgrade(TOKEN, 7, 1000),
    "with_count": lambda kind: kind.with_count(3),
    "with_slots": lambda kind: kind.with_slots((3, 1)),
    "slot_keys": lambda kind: kind.slot_keys(9),
    "fence_keys": lambda kind: kind.fence_keys((3, 1)),
    # kinds that are their own attempt
    "prepare": lambda kind: asyncio.run(kind.prepare(None)),
    "first_command": lambda kind: kind.first_command(TOKEN, 1000, 7),
    "retry_command": lambda kind: kind.retry_command(TOKEN, 1000, 7),
    "refusal": lambda kind: kind.refusal([HOLDER, 5] if kind.label == "read" else [1, HOLDER, 5]),
    "on_refusal": lambda kind: kind.on_refusal(CALLS["refusal"](kind)),
    "retry_now": lambda kind: kind.retry_now({0: CALLS["refusal"](kind)}, 1),
    "on_failure": lambda kind: kind.on_failure(ConnectionError("down")),
    "key_changed": lambda kind: kind.key_changed(b"n:x"),
    "blocking_refusal": lambda kind: kind.blocking_refusal(),
    "blocking_error": lambda kind: kind.blocking_error(),
    "granted_kind": lambda kind: kind.granted_kind(),
    "cleanup": lambda kind: kind.cleanup(),
}


def comparable(result):
    """A result of a call, to be compared with that of an equal call."""
    if hasattr(result, "pack"):
        return sent(result)
    return "an attempt" if isinstance(result, Attempt) and not isinstance(result, LockKind) else snapshot(result)


@every_example
def test_no_method_of_a_kind_changes_it(example):
    """Each public method and property is used twice, and has the same result both times."""
    kind = example.kind
    before, used = snapshot(kind), set()
    for name in sorted(name for name in dir(kind) if not name.startswith("_")):
        use = CALLS[name] if callable(getattr(kind, name)) else lambda kind, name=name: getattr(kind, name)
        assert comparable(use(kind)) == comparable(use(kind)), name
        assert snapshot(kind) == before, name
        used.add(name)
    assert {"start", "held_by", "release", "release_after", "reassert", "extend", "details"} <= used


@every_example
def test_each_acquire_has_its_own_attempt_unless_the_kind_learns_nothing(example):
    """Only a kind without state is its own attempt."""
    kind, context = example.kind, FakeContext()
    one, two = kind.start(context), kind.start(context)
    if kind.stateful:
        assert one is not two
        assert not isinstance(one, LockKind)
        assert comparable(one.granted_kind()) == comparable(kind)
    else:
        assert one is two is kind


# Parsing changes nothing


def check(example, attempt, context, before):
    """Parse each reply twice: the kind, the attempt and what the process's waiters share must stay as they are."""
    kind, state, shared = example.kind, snapshot(attempt), snapshot(context.shared)
    assert snapshot(kind) == before
    for reply in (*example.replies, *MALFORMED):
        copied = snapshot(reply)
        assert outcome(attempt.refusal, reply) == outcome(attempt.refusal, reply), reply
        assert snapshot(reply) == copied
        assert snapshot(attempt) == state, reply
        assert snapshot(context.shared) == shared, reply
        assert snapshot(kind) == before


def steps(example):
    """Things that can happen to an attempt."""
    reply = st.sampled_from(example.replies)
    return st.lists(
        st.one_of(
            st.tuples(st.just("round"), st.booleans(), st.lists(st.one_of(reply, st.just(7)), min_size=3, max_size=3)),
            st.tuples(st.just("reply"), reply),
            st.tuples(st.just("change"), st.sampled_from(example.changed_keys)),
            st.tuples(st.just("failure"), st.sampled_from([None, ConnectionError("down")])),
            st.tuples(st.just("time"), st.sampled_from([0.1, 1.0, 3.0])),
            st.tuples(st.just("prepare"), st.sampled_from([None, 0.0])),
            st.tuples(st.just("cleanup")),
        ),
        max_size=12,
    )


async def take(step, attempt, context, number):
    """Do one of these things."""
    match step:
        case ("round", plain, replies):
            build = attempt.first_command if plain else attempt.retry_command
            command = build(b"%032x:us" % number, 1000, 7)
            round_ = AcquireRound(context, attempt, command, 0.25, 7)
            round_.ask_all()
            for node, reply in enumerate(replies):
                with suppress(*DECODE_ERRORS):  # the connection drops a reply that makes no sense
                    round_.deliver(node, reply)
            attempt.granted_kind()
            attempt.retry_now(round_.refusals, context.spare)
        case ("reply", reply):
            attempt.on_refusal(attempt.refusal(reply))
        case ("change", key):
            attempt.key_changed(key)
        case ("failure", error):
            attempt.on_failure(error)
        case ("time", seconds):
            context.at += seconds
        case ("prepare", wait):
            await attempt.prepare(None if wait is None else context.now() + wait)
        case ("cleanup",):
            attempt.cleanup()


@pytest.mark.share(3)
@pytest.mark.parametrize("name", EXAMPLES)
def test_parsing_changes_nothing_and_no_acquire_changes_its_kind(name):
    """In every state that rounds of replies, changes, failures, waits and cleanups can lead an attempt to."""
    example = EXAMPLES[name]
    before = snapshot(example.kind)

    async def live(history):
        tickets = iter(range(1, 100))
        context = FakeContext(3, lambda command: next(tickets) if command[1] == sha("fair_ticket") else SILENT)
        attempt = example.kind.start(context)
        check(example, attempt, context, before)
        for number, step in enumerate(history):
            await take(step, attempt, context, number)
            check(example, attempt, context, before)
            if not example.kind.stateful:
                assert snapshot(attempt) == before, "a kind that is its own attempt learns nothing"
        attempt.cleanup()
        assert snapshot(example.kind) == before

    with asyncio.Runner() as runner:

        @settings(max_examples=40, deadline=None, database=None)
        @given(steps(example))
        def any_history(history):
            runner.run(live(history))

        any_history()


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.kind.stateful])
def test_the_comparison_notices_what_an_attempt_learns(name):
    """Otherwise the test above would prove nothing: each kind of attempt learns from some history."""
    example = EXAMPLES[name]
    history = {
        "writer": [("reply", [READERS, 9000])],
        "fair": [("prepare", None), ("prepare", None)],
        "one slot": [("change", SLOT_KEYS[2])],
        "two slots": [("reply", [2, 2500, b"2:" + HOLDER])],
    }[name]

    async def live():
        tickets = iter(range(1, 100))
        context = FakeContext(3, lambda command: next(tickets) if command[1] == sha("fair_ticket") else SILENT)
        attempt = example.kind.start(context)
        for number, step in enumerate(history):
            before = snapshot(attempt)
            await take(step, attempt, context, number)
            assert snapshot(attempt) != before
        attempt.cleanup()

    asyncio.run(live())
