"""The fair lock: its commands as the bytes that nodes receive, and which waiter of a process is the first."""

import asyncio
from itertools import permutations

import pytest
from fakes import SILENT, FakeContext, sent, sha

from redlock_async import ConfigurationError
from redlock_async._kinds.fair import SHORTEST_ENTRY_TTL, Fair, entry_ttl
from redlock_async._kinds.fair_queue import BATCH, HEARTBEATS_PER_ENTRY, REGISTER_MS, FairWaiters, QueueEntry
from redlock_async._kinds.kind import QueuedAhead, Refusal
from redlock_async._kinds.mutex import Mutex
from redlock_async._rules.keys import Keys

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
KEYS = Keys("n:")
QUEUE, KEPT, TICKET = (
    b"n:redlock-async:queue:{n:x}",
    b"n:redlock-async:queue-kept:{n:x}",
    b"n:redlock-async:ticket:{n:x}",
)
WAKE_PREFIX = QUEUE + b":"


def fair(*, fenced=True):
    """A fair lock."""
    return Fair(KEYS, ("x",), fenced=fenced)


def issuing(*tickets):
    """A client with one node that issues these tickets and answers nothing else."""
    left = iter(tickets)
    return FakeContext(1, lambda command: next(left) if command[1] == sha("fair_ticket") else SILENT)


async def queued(context, *, deadline=None, fenced=True):
    """An attempt that has drawn its ticket and joined the queue, and its wait to be the first."""
    attempt = fair(fenced=fenced).start(context)
    if not context.shared:
        assert await attempt.prepare(deadline), "the first attempt asks the nodes before it queues"
        assert attempt.retry_now({}, 0), "when it is refused, it queues at once"
    waiting = asyncio.ensure_future(attempt.prepare(deadline))
    while attempt._waiters is None:  # noqa: ASYNC110 - a fixed number of iterations of the loop
        await asyncio.sleep(0)
    return attempt, waiting


def fair_waiters(context):
    """The waiters of a process, none so far."""
    return FairWaiters(context, (QUEUE, KEPT, TICKET), WAKE_PREFIX, 1500)


def joined(waiters, *tickets):
    """Entries with those tickets, which have joined in that order."""
    entries = [QueueEntry(ticket, b"%032x:host:1" % number) for number, ticket in enumerate(tickets)]
    for entry in entries:
        waiters.join(entry)
    return entries


# Commands and replies


@pytest.mark.parametrize("fenced", [True, False])
def test_an_attempt_without_a_ticket_asks_for_the_lock_without_an_entry(fenced):
    """The lock key is the name itself; the keys of the queue are passed, but no entry is."""
    attempt = fair(fenced=fenced).start(FakeContext())
    fence = [KEYS.fence(b"n:x")] if fenced else []
    expected = [b"n:x", QUEUE, KEPT, TICKET, *fence, TOKEN, b"100", b"7", WAKE_PREFIX, b"", b"0", b"1500", b"3600000"]
    for build in (attempt.first_command, attempt.retry_command):
        assert sent(build(TOKEN, 100, 7)) == [b"EVALSHA", sha("fair_acquire"), b"%d" % (4 + fenced), *expected]


@pytest.mark.asyncio
async def test_an_attempt_with_a_ticket_sends_its_entry():
    """The command contains the id, the ticket and the entry's ttl; the node wakes the waiter by a key with that id."""
    attempt, waiting = await queued(issuing(42))
    assert await waiting
    entry_id = attempt._entry.id
    for build in (attempt.first_command, attempt.retry_command):
        assert sent(build(TOKEN, 100, 7))[-4:] == [entry_id, b"42", b"1500", b"3600000"]
    assert attempt.watched_keys == (b"n:x", WAKE_PREFIX + entry_id)
    assert entry_id.endswith(b":host:1")
    assert len(entry_id) == 32 + len(b":host:1")


@pytest.mark.asyncio
async def test_an_attempt_sends_no_entry_while_too_few_nodes_reply():
    """Without a quorum for the ttl of an entry it cannot get the lock, and its entry would only be in the way."""
    context = issuing(42)
    attempt, waiting = await queued(context)
    assert await waiting
    context.at += 1.499
    assert sent(attempt.retry_command(TOKEN, 100, 7))[-3:] == [b"42", b"1500", b"3600000"]
    context.at += 0.002
    assert sent(attempt.retry_command(TOKEN, 100, 7))[-4:] == [b"", b"0", b"1500", b"3600000"]


@pytest.mark.asyncio
async def test_the_ticket_is_the_largest_of_a_majority():
    """Any later majority contains a node that stores it or more."""
    tickets = iter((5, 9, 7))
    context = FakeContext(3, lambda command: next(tickets) if command[1] == sha("fair_ticket") else SILENT)
    attempt, waiting = await queued(context)
    assert await waiting
    assert attempt._entry.ticket == 9


@pytest.mark.asyncio
async def test_each_acquire_has_its_own_entry():
    """Tasks share the kind, and nothing that belongs to one acquire."""
    kind, context = fair(), issuing(1)
    one, two = kind.start(context), kind.start(context)
    assert one._id != two._id
    assert await one.prepare(None)
    assert await one.prepare(None)
    assert (one._entry.id, one._entry.ticket) == (one._id, 1)
    assert two._entry is None
    assert two.cleanup() is None
    assert one.cleanup() is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("waiters", [0, 1])
async def test_an_attempt_with_no_time_to_wait_never_queues(waiters):
    """It asks the nodes once, also behind waiters of its own process, and leaves no entry."""
    context = issuing(1, 2)
    others = [await queued(context) for _ in range(waiters)]
    attempt = fair().start(context)
    assert await attempt.prepare(context.now())
    assert not attempt.retry_now({0: Refusal(TOKEN, 1.0)}, 0)
    assert await attempt.prepare(context.now())
    assert attempt.cleanup() is None
    for other, _ in others:
        other.cleanup()


def test_a_held_fair_lock_is_a_plain_lock():
    """Release, retention, repair, extension and the keys under which a lease is registered are the same bytes."""
    kind, plain = fair(), Mutex(KEYS, ("x",), fenced=True)
    for build in (
        lambda kind: kind.release(TOKEN),
        lambda kind: kind.release_after(TOKEN, 5),
        lambda kind: kind.reassert(TOKEN, 9, 0),
        lambda kind: kind.reassert(TOKEN, 9, 100),
        lambda kind: type(kind).extend([(kind, TOKEN, 100)]),
    ):
        assert sent(build(kind)) == sent(build(plain))
    assert kind.start(FakeContext()).granted_kind() is kind
    assert kind.held_by(TOKEN) == plain.held_by(TOKEN) == (b"n:x",)
    assert kind.state_count == plain.state_count
    assert kind.local_queue_keys == (), "the tickets decide which task asks the nodes"


def test_replies():
    """A refusal names the holder, or the waiter that comes first; a key without expiry has no end."""
    attempt = fair().start(FakeContext())
    held = attempt.refusal([TOKEN, 1500, 0])
    assert held == Refusal(TOKEN, 1.5)
    assert not held.ahead
    ahead = attempt.refusal([TOKEN, 200, 1])
    assert type(ahead) is QueuedAhead
    assert (ahead.token, ahead.expires_in, ahead.ahead) == (TOKEN, 0.2, True)
    assert attempt.refusal([TOKEN, -1, 0]) == Refusal(TOKEN, None)


def test_entries_outlast_several_node_timeouts():
    """A heartbeat that takes as long as a node timeout does not cost the entry."""
    assert entry_ttl(0.25) == SHORTEST_ENTRY_TTL
    assert entry_ttl(2.0) > 2.0 * HEARTBEATS_PER_ENTRY
    for timeout in (0.01, 0.25, 1.0, 5.0):
        assert entry_ttl(timeout) * (HEARTBEATS_PER_ENTRY - 1) / HEARTBEATS_PER_ENTRY >= timeout
    assert 1000 * entry_ttl(5.0) < REGISTER_MS


@pytest.mark.parametrize("name", ["", "redlock-async:x", 5, "\ud800"])
def test_names_are_checked_as_those_of_plain_locks(name):
    """The same rules apply, with the same error."""
    with pytest.raises(ConfigurationError):
        Fair(KEYS, (name,), fenced=True)


# Waiting to be the first


@pytest.mark.asyncio
@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_the_smallest_ticket_is_called_in_every_order_of_joining(order):
    """Exactly one waiter is called at a time, in the order of the tickets."""
    served, waiters = [], fair_waiters(FakeContext())
    entries = joined(waiters, *(10 + number for number in order))

    async def wait(entry):
        assert await waiters.wait_to_be_first(entry, None)
        assert waiters._waiting[0] is entry
        served.append(entry.ticket)
        waiters.leave(entry)

    await asyncio.wait_for(asyncio.gather(*(wait(entry) for entry in entries)), 1)
    assert served == [10, 11, 12, 13]


@pytest.mark.asyncio
@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_equal_tickets_are_ordered_by_id(order):
    """The nodes put two waiters that drew the same ticket in the same order."""
    context = FakeContext()
    waiters = fair_waiters(context)
    entries = [QueueEntry(5, b"%032x:host:1" % number) for number in range(3)]
    for number in order:
        waiters.join(entries[number])
    assert await waiters.wait_to_be_first(entries[0], None)
    for entry in entries[1:]:
        assert not await waiters.wait_to_be_first(entry, context.now())


@pytest.mark.asyncio
@pytest.mark.parametrize("leaver", [0, 1, 2])
async def test_a_waiter_that_leaves_does_not_hold_up_the_others(leaver):
    """First, middle or last: the others are called in order, and the last to leave ends the queue and its timer."""
    context = issuing(1, 2, 3)
    pairs = [await queued(context) for _ in range(3)]
    waiters = context.shared[QUEUE]
    attempts = [attempt for attempt, _ in pairs]
    assert sent(attempts[leaver].cleanup()) == [
        b"EVALSHA", sha("fair_leave"), b"2", QUEUE, KEPT, WAKE_PREFIX, attempts[leaver]._id, b"1500",
    ]  # fmt: skip
    assert attempts[leaver].cleanup() is None
    for number, (attempt, waiting) in enumerate(pairs):
        assert await asyncio.wait_for(waiting, 1)
        if number != leaver:
            assert not any(later.done() for index, (_, later) in enumerate(pairs) if index > number and index != leaver)
            assert attempt.cleanup() is not None
    assert QUEUE not in context.shared
    assert waiters._timer is None


@pytest.mark.asyncio
async def test_the_winner_removes_its_entry():
    """A grant does not remove it; an attempt without an entry has nothing to remove."""
    winner, waiting = await queued(issuing(1))
    assert await waiting
    winner.retry_command(TOKEN, 100, 7)
    command = sent(winner.cleanup())
    assert command[:2] == [b"EVALSHA", sha("fair_leave")]
    assert command[-2:] == [winner._id, b"1500"]
    assert winner.cleanup() is None
    assert fair().start(FakeContext()).cleanup() is None


@pytest.mark.asyncio
async def test_waiters_behind_the_first_know_its_refusal():
    """As of now; the first itself knows better from its own attempt."""
    context = issuing(1, 2)
    (first, _), (second, _) = await queued(context), await queued(context)
    first.on_refusal(first.refusal([TOKEN, 1500, 0]))
    context.at += 0.5
    assert first.blocking_refusal() is None
    assert second.blocking_refusal() == Refusal(TOKEN, 1.0)
    context.at += 5.0
    assert second.blocking_refusal() == Refusal(TOKEN, 0.0)
    first.on_refusal(first.refusal([TOKEN, -1, 1]))
    assert second.blocking_refusal() == QueuedAhead(TOKEN, None)
    first.on_failure(error := ConnectionError("down"))
    assert type(second.blocking_error()) is type(error)
    assert second.blocking_error() is not error, "each waiter raises its own"
    first.on_failure(None)
    assert second.blocking_error() is None
    for attempt in (first, second):
        attempt.cleanup()


@pytest.mark.asyncio
async def test_heartbeats_are_shared():
    """All waiters of a process are in few commands, without those that have left."""
    batches = []
    waiters = fair_waiters(FakeContext())
    waiters.send_entries = lambda entries: batches.append([entry.ticket for entry in entries])
    entries = joined(waiters, *range(1, 2 * BATCH + 51))
    batches.clear()
    waiters.leave(entries[0])
    waiters._send_heartbeats()
    assert [len(batch) for batch in batches] == [BATCH, BATCH, 49]
    assert [ticket for batch in batches for ticket in batch] == list(range(2, 2 * BATCH + 51))
    waiters._timer.cancel()


@pytest.mark.asyncio
async def test_without_a_quorum_a_heartbeat_refreshes_no_entry():
    """It only asks whether a majority replies again."""
    received = []
    context = FakeContext(1, lambda command: received.append(command) or SILENT)
    waiters = fair_waiters(context)
    joined(waiters, 1, 2)
    context.at += 1.5
    received.clear()
    waiters._send_heartbeats()
    assert [command[1] for command in received] == [sha("fair_ticket")]
    waiters._timer.cancel()
