"""The local queues: which task of a process is next, whatever the others do, and what a task that gives up learns."""

import asyncio
from itertools import permutations, product
from types import SimpleNamespace

import pytest
from fakes import FakeContext

from redlock_async._kinds.mutex import Mutex
from redlock_async._kinds.rwlock import Read
from redlock_async._kinds.semaphore import Slots
from redlock_async._rules.keys import Keys
from redlock_async._runtime.local_queues import ROUNDS_WAITED_FOR, LocalQueues, NotServedError

KEY = b"k"
WAIT = 60.0


class ManualTimer:
    """A timer that fires when the test says so."""

    def __init__(self, seconds, callback, arguments):
        self.seconds = seconds
        self.cancelled = False
        self._callback, self._arguments = callback, arguments

    def cancel(self):
        """Make sure that it never fires."""
        self.cancelled = True

    def fire(self):
        """The time is up."""
        assert not self.cancelled
        self._callback(*self._arguments)


class ManualTimers(FakeContext):
    """A client whose timers fire when the test says so; futures and tasks are the real loop's."""

    def __init__(self):
        super().__init__()
        self.timers = []

    def call_later(self, delay, callback, *arguments):
        """Keep the timer for the test."""
        timer = ManualTimer(delay, callback, arguments)
        self.timers.append(timer)
        return timer


class Acquisition:
    """The acquisition of the task that has the turn, before it knows why the lock is not free, unless `informed`."""

    def __init__(self, *, informed=False):
        self.informed = informed

    def error_for(self, kind, wait):
        """Return an error that names what it is for."""
        return LookupError(kind, wait)


class Queue:
    """A task has the turn on KEY, and `waiters` others wait; `served` lists which of them had it since, in order."""

    def __init__(self, waiters, wait=WAIT):
        self.context = ManualTimers()
        self.queues = LocalQueues(self.context)
        self.served = []
        assert self.queues.take(KEY)
        self.tasks = [self.start(number, wait) for number in range(waiters)]

    def start(self, number, wait=WAIT):
        """One more waiter."""
        return asyncio.create_task(self.wait(number, wait))

    async def wait(self, number, wait):
        """Wait for the turn and pass it on at once; return whether it came in time."""
        if not await self.turn(wait):
            return False
        self.served.append(number)
        self.queues.leave(KEY)
        return True

    async def turn(self, wait, *, exclusive=True):
        """Wait for the turn; return whether it came in time."""
        deadline = None if wait is None else self.context.now() + wait
        try:
            await self.queues.wait(KEY, deadline, exclusive=exclusive)
        except NotServedError as exc:
            assert exc.key == KEY
            return False
        return True

    def try_once(self, *, exclusive=True):
        """A waiter whose time is up at once."""
        return asyncio.create_task(self.turn(0.0, exclusive=exclusive))

    async def results(self):
        """For each task whether it was served, or "cancelled"."""
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        return ["cancelled" if isinstance(result, asyncio.CancelledError) else result for result in results]

    def assert_empty(self):
        """No task waits, none has the turn, and no timer is left."""
        assert self.queues.waiting == 0
        assert self.queues.get(KEY) is None
        assert all(timer.cancelled for timer in self.context.timers)


async def settle():
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


# The order


@pytest.mark.asyncio
async def test_the_first_task_has_the_turn_at_once():
    """Names do not wait for one another."""
    queues = LocalQueues(FakeContext())
    assert queues.get(KEY) is None
    assert queues.take(KEY)
    assert not queues.take(KEY)
    assert queues.take(b"other")
    queues.leave(KEY)
    assert queues.get(KEY) is None
    assert queues.take(KEY)
    assert queues.get(b"other") is not None


@pytest.mark.asyncio
async def test_first_come_first_served():
    """In the order of waiting, one at a time."""
    queue = Queue(5)
    await settle()
    assert queue.queues.waiting == 5
    assert queue.served == []
    queue.queues.leave(KEY)
    assert await queue.results() == [True] * 5
    assert queue.served == [0, 1, 2, 3, 4]
    queue.assert_empty()


@pytest.mark.asyncio
async def test_a_newcomer_does_not_overtake():
    """No task can take the turn after one has left and before the next in the queue has woken up."""
    queue = Queue(1)
    await settle()
    queue.queues.leave(KEY)
    assert not queue.queues.take(KEY)
    assert await queue.results() == [True]
    assert queue.queues.take(KEY)


@pytest.mark.asyncio
async def test_each_hand_over_counts_towards_the_streak():
    """Until the queue is empty or the streak is reset."""
    queue = Queue(0)
    kind = mutex("x")
    queue.queues.leave(KEY)
    assert await queue.queues.enter(kind, None) == 0
    for expected in (1, 2, 3):
        waiter = asyncio.create_task(queue.queues.enter(kind, None))
        await settle()
        queue.queues.leave(b"x")
        assert await waiter == expected == queue.queues.get(b"x").streak
    queue.queues.reset_streak(kind.local_queue_keys)
    assert queue.queues.get(b"x").streak == 0
    queue.queues.leave(b"x")
    assert queue.queues.take(b"x")
    assert queue.queues.get(b"x").streak == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("informed", [False, True])
async def test_the_acquisition_of_a_task_that_leaves_is_not_the_next_one_s(informed):
    """The next in the queue has not asked the nodes yet; what the last one knew is still the best explanation."""
    queue = Queue(1, None)
    await settle()
    acquisition = Acquisition(informed=informed)
    queue.queues.begin([KEY], acquisition)
    queue.tasks.append(asyncio.create_task(queue.turn(None)))
    await settle()
    local = queue.queues.get(KEY)
    assert local.acquisition is acquisition
    queue.queues.on_failed([KEY])
    assert local.acquisition is None
    assert local.last is (acquisition if informed else None)
    assert local.informed is informed
    assert await queue.results() == [True, True]


# Cancelling

STAGES = ("not begun", "queued", "just served", "just timed out")


@pytest.mark.asyncio
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_waiter_that_is_cancelled_at_any_point_passes_the_turn_on(stage, place):
    """At each position and at each stage, the others are served in their order and nothing is left over."""
    queue = Queue(3)
    if stage == "not begun":
        queue.tasks[place].cancel()
    await settle()
    if stage == "queued":
        queue.tasks[place].cancel()
    if stage == "just timed out":
        queue.context.timers[place].fire()
        queue.tasks[place].cancel()
    queue.queues.leave(KEY)
    if stage == "just served":
        # A task gets the turn in the iteration of the loop in which the one before it leaves; cancel it in that one.
        while len(queue.served) < place:  # noqa: ASYNC110 - the iteration matters
            await asyncio.sleep(0)
        queue.tasks[place].cancel()
    expected = [True] * 3
    expected[place] = "cancelled"
    assert await queue.results() == expected
    assert queue.served == [number for number in range(3) if number != place]
    queue.assert_empty()


@pytest.mark.asyncio
async def test_the_last_waiter_that_is_cancelled_with_the_turn_ends_the_queue():
    """It was served, and cancelled before it ran: then no task has the turn, and the next to come takes it."""
    queue = Queue(1)
    await settle()
    queue.queues.leave(KEY)
    assert queue.queues.get(KEY) is not None
    queue.tasks[0].cancel()
    assert await queue.results() == ["cancelled"]
    queue.assert_empty()
    assert queue.queues.take(KEY)


@pytest.mark.asyncio
async def test_any_number_of_waiters_can_be_cancelled_in_any_order():
    """Every subset of four, in every order, before the turn is free."""
    for cancelled in product((False, True), repeat=4):
        for order in permutations([number for number in range(4) if cancelled[number]]):
            queue = Queue(4, None)
            await asyncio.sleep(0)
            for number in order:
                queue.tasks[number].cancel()
            await asyncio.sleep(0)
            queue.queues.leave(KEY)
            assert await queue.results() == ["cancelled" if gone else True for gone in cancelled]
            assert queue.served == [number for number in range(4) if not cancelled[number]]
            queue.assert_empty()


@pytest.mark.asyncio
async def test_cancelled_waiters_without_the_turn_do_not_end_it():
    """The task that has it keeps it."""
    queue = Queue(3)
    await settle()
    for task in queue.tasks:
        task.cancel()
    assert await queue.results() == ["cancelled"] * 3
    assert queue.queues.waiting == 0
    assert not queue.queues.take(KEY)
    queue.queues.leave(KEY)
    queue.assert_empty()


@pytest.mark.asyncio
async def test_several_waiters_cancelled_as_they_were_served_pass_the_turn_on():
    """Each passes it on although it never ran."""
    queue = Queue(3)
    await settle()
    queue.queues.leave(KEY)
    queue.tasks[0].cancel()
    queue.tasks[1].cancel()
    assert await queue.results() == ["cancelled", "cancelled", True]
    queue.assert_empty()


# Time


@pytest.mark.asyncio
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_waiter_whose_time_is_up_is_passed_over(place):
    """It raises NotServedError, and the others keep their order."""
    queue = Queue(3)
    await settle()
    assert [timer.seconds for timer in queue.context.timers] == [WAIT] * 3
    queue.context.timers[place].fire()
    await settle()
    assert queue.queues.waiting == 2
    queue.queues.leave(KEY)
    assert await queue.results() == [number != place for number in range(3)]
    assert queue.served == [number for number in range(3) if number != place]
    assert queue.queues.get(KEY) is None


@pytest.mark.asyncio
async def test_of_time_up_and_served_in_one_iteration_the_first_counts():
    """Served first, it has the turn, and the timer changes nothing; timed out first, the turn goes to the next."""
    served_first = Queue(1)
    await settle()
    served_first.queues.leave(KEY)
    served_first.context.timers[0].fire()
    assert await served_first.results() == [True]
    served_first.assert_empty()

    late = Queue(2)
    await settle()
    late.context.timers[0].fire()
    late.queues.leave(KEY)
    assert await late.results() == [False, True]
    assert late.queues.get(KEY) is None


@pytest.mark.asyncio
async def test_a_wait_without_a_limit_has_no_timer():
    """wait=None."""
    queue = Queue(2, None)
    await settle()
    assert queue.context.timers == []
    queue.queues.leave(KEY)
    assert await queue.results() == [True, True]


@pytest.mark.asyncio
@pytest.mark.parametrize("wait", [0.0, -1.0])
async def test_no_time_at_all_is_up_at_once(wait):
    """Behind a holder the task never queues, and the turn stays where it is."""
    queue = Queue(0)
    assert not await queue.turn(wait)
    assert queue.context.timers == []
    assert queue.queues.waiting == 0
    assert not queue.queues.get(KEY).places
    assert not queue.queues.take(KEY)


@pytest.mark.asyncio
async def test_the_deadline_is_read_on_the_client_s_clock():
    """What has passed of the wait before the task queued is not waited for again."""
    queue = Queue(0)
    waiter = asyncio.create_task(queue.queues.wait(KEY, queue.context.now() + 5.0, exclusive=True))
    queue.context.at += 2.0
    await settle()
    assert [timer.seconds for timer in queue.context.timers] == [3.0]
    queue.queues.leave(KEY)
    await waiter


@pytest.mark.asyncio
async def test_a_thousand_waiters_that_give_up_do_not_disturb_the_last():
    """Nothing of them is kept while the turn does not move."""
    queue = Queue(1000)
    await settle()
    for timer in queue.context.timers[:-1]:
        timer.fire()
    await settle()
    assert queue.queues.waiting == 1
    assert len(queue.queues.get(KEY).places) == 1
    queue.queues.leave(KEY)
    assert (await queue.results())[-1] is True


# Trying once


@pytest.mark.asyncio
async def test_tasks_that_try_once_give_up_when_the_nodes_refuse_the_one_in_front():
    """The others wait on, in their order; a task that tries once and already has the turn keeps it."""
    queue = Queue(0)
    queue.tasks = [queue.start(number) for number in (0, 3)]
    await settle()
    queue.queues.begin([KEY], acquisition := Acquisition())
    one_shot = [queue.try_once() for _ in range(2)]
    await settle()
    assert queue.queues.waiting == 4
    queue.queues.on_refused([KEY], acquisition)
    assert await asyncio.gather(*one_shot) == [False, False]
    assert queue.queues.waiting == 2
    late = queue.try_once()
    await settle()
    queue.queues.on_failed([KEY])
    assert await queue.results() == [True, True]
    assert queue.served == [0, 3]
    assert await late
    queue.queues.begin([KEY], acquisition)
    queue.queues.on_refused([KEY], acquisition)
    queue.queues.leave(KEY)
    queue.assert_empty()


@pytest.mark.asyncio
async def test_a_task_that_tries_once_waits_for_a_reply_for_a_limited_time():
    """The nodes may not reply at all."""
    queue = Queue(0)
    queue.queues.begin([KEY], Acquisition())
    one_shot = queue.try_once()
    await settle()
    (timer,) = queue.context.timers
    assert timer.seconds == ROUNDS_WAITED_FOR * queue.context.node_timeout
    timer.fire()
    assert await one_shot is False
    assert not queue.queues.get(KEY).one_shot
    assert not queue.queues.get(KEY).places


@pytest.mark.asyncio
@pytest.mark.parametrize("last", [None, "uninformed", "informed"])
@pytest.mark.parametrize("acquisition", [None, "uninformed", "informed"])
@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_task_whose_time_is_up_waits_for_a_reply_only_if_one_is_to_come(acquisition, last, exclusive):
    """Behind a holder it knows why; of a semaphore, one holder does not explain that no slot is left."""
    queue = Queue(0)
    local = queue.queues.get(KEY)
    if acquisition:
        queue.queues.begin([KEY], Acquisition(informed=acquisition == "informed"))
    if last:
        local.last = Acquisition(informed=last == "informed")
    one_shot = queue.try_once(exclusive=exclusive)
    await settle()
    waits = acquisition == "uninformed" or (acquisition is None and not exclusive)
    assert len(local.one_shot or ()) == len(local.places or ()) == waits
    one_shot.cancel()
    await settle()
    assert not local.one_shot
    assert not local.places


@pytest.mark.asyncio
async def test_another_acquisition_s_refusal_is_not_ours():
    """A task that acquires without the turn, or no longer has it, says nothing about the one that has it."""
    queue = Queue(0)
    queue.queues.begin([KEY], acquisition := Acquisition())
    one_shot = queue.try_once()
    await settle()
    queue.queues.on_refused([KEY, b"unknown"], Acquisition())
    await settle()
    assert not one_shot.done()
    queue.queues.on_refused([KEY], acquisition)
    assert await one_shot is False


@pytest.mark.asyncio
@pytest.mark.parametrize("timed_out_first", [False, True])
async def test_the_error_of_a_task_that_gives_up_comes_from_the_one_in_front(timed_out_first):
    """From its acquisition, or from the last one that knew why when the turn has just changed hands."""
    queue = Queue(0)
    queue.queues.begin([KEY], Acquisition(informed=True))
    waiters = [asyncio.create_task(queue.queues.wait(KEY, queue.context.now() + WAIT, exclusive=True)) for _ in "ab"]
    await settle()
    if timed_out_first:
        queue.context.timers[1].fire()
        queue.queues.leave(KEY)
    else:
        queue.queues.leave(KEY)
        queue.context.timers[1].fire()
    await waiters[0]
    with pytest.raises(NotServedError) as caught:
        await waiters[1]
    assert caught.value.queue.informed
    assert caught.value.queue.error_for(mutex("x"), 3.0).args[1] == 3.0


# Several names, and what happens to the turn with the lease


def mutex(*names):
    """A plain lock on those names, whose local queues are those of the names."""
    return Mutex(Keys(""), names, fenced=True)


def having_turn(names="ab"):
    """Queues in which a task has the turn on these names."""
    queues = LocalQueues(ManualTimers())
    for name in names:
        assert queues.take(name.encode())
    return queues


@pytest.mark.asyncio
@pytest.mark.parametrize("order", list(permutations("abc")))
async def test_names_are_entered_in_their_order(order):
    """Whatever the order in which they become free."""
    queues = having_turn("abc")
    waiter = asyncio.create_task(queues.enter(mutex("c", "a", "b"), None))
    await settle()
    freed = set()
    for name in order:
        assert not waiter.done()
        queues.leave(name.encode())
        freed.add(name)
        await settle()
        entered = next((index for index, wanted in enumerate("abc") if wanted not in freed), 3)
        assert [queues.get(wanted.encode()) is not None for wanted in "abc"] == [
            index < entered or wanted not in freed for index, wanted in enumerate("abc")
        ]
    assert waiter.done()


@pytest.mark.asyncio
@pytest.mark.parametrize("ending", ["cancelled", "time up"])
@pytest.mark.parametrize("stuck_at", [0, 1, 2])
async def test_a_task_that_gives_up_leaves_the_names_it_has_entered(ending, stuck_at):
    """And no others."""
    queues = having_turn("abc"[stuck_at])
    waiter = asyncio.create_task(queues.enter(mutex("a", "b", "c"), 1000.0 + WAIT))
    await settle()
    assert [queues.get(name.encode()) is not None for name in "abc"] == [index <= stuck_at for index in range(3)]
    if ending == "cancelled":
        waiter.cancel()
    else:
        queues._context.timers[0].fire()
    with pytest.raises((asyncio.CancelledError, NotServedError)):
        await waiter
    assert [queues.get(name.encode()) is not None for name in "abc"] == [index == stuck_at for index in range(3)]


@pytest.mark.asyncio
async def test_a_task_learns_the_reply_to_one_that_waits_for_another_name():
    """The task that has the turn on `a` queues for `b`: why `b` is not free explains why `a` is not."""
    queues = having_turn("b")
    queues.begin([b"b"], acquisition := Acquisition())
    both = asyncio.create_task(queues.enter(mutex("a", "b"), None))
    await settle()
    assert queues.get(b"a").asked_just_now
    one_shot = asyncio.create_task(queues.wait(b"a", 0.0, exclusive=True))
    await settle()
    assert len(queues.get(b"a").one_shot) == len(queues.get(b"b").one_shot) == 1
    acquisition.informed = True
    queues.on_refused([b"b"], acquisition)
    with pytest.raises(NotServedError) as caught:
        await one_shot
    assert not queues.get(b"a").asked_just_now
    assert caught.value.queue.error_for(mutex("a"), 2.0).args[1] == 2.0
    queues.leave(b"b")
    assert await both == 1


@pytest.mark.asyncio
async def test_an_exclusive_lease_keeps_the_turn():
    """Tasks that try once give up when it begins; the others wait until it ends."""
    queue = Queue(0)
    kind = SimpleNamespace(local_queue_keys=(KEY,), keeps_local_turn=True, shared=False)
    queue.queues.begin([KEY], Acquisition())
    queue.tasks = [queue.start(0)]
    await settle()
    one_shot = queue.try_once()
    await settle()
    queue.queues.on_acquired(kind)
    assert await one_shot is False
    assert queue.served == []
    assert queue.queues.get(KEY).acquisition is None
    queue.queues.leave(KEY)
    assert await queue.results() == [True]


@pytest.mark.asyncio
async def test_a_lease_on_a_slot_passes_the_turn_on():
    """Another slot may be free, so the next task asks at once; a task that tries once gets the turn too."""
    kind = Slots(Keys(""), "x", 3, fenced=True)
    queues = LocalQueues(ManualTimers())
    assert await queues.enter(kind, None) == 0
    queues.begin(kind.local_queue_keys, Acquisition())
    waiter = asyncio.create_task(queues.enter(kind, None))
    await settle()
    one_shot = asyncio.create_task(queues.enter(kind, 0.0))
    await settle()
    queues.on_acquired(kind)
    assert await waiter == 1
    assert not one_shot.done()
    queues.on_acquired(kind)
    assert await one_shot == 2
    queues.on_acquired(kind)
    assert queues.get(kind.local_queue_keys[0]) is None


@pytest.mark.asyncio
async def test_a_shared_lease_ends_the_queue():
    """All tasks that wait may ask at once, in any number, and none has the turn."""
    kind = Read(Keys(""), "x", fenced=True)
    queues = LocalQueues(ManualTimers())
    assert await queues.enter(kind, None) == 0
    queues.begin(kind.local_queue_keys, Acquisition())
    waiters = [asyncio.create_task(queues.enter(kind, None)) for _ in range(3)]
    await settle()
    waiters.append(asyncio.create_task(queues.enter(kind, 0.0)))
    await settle()
    waiters[1].cancel()
    queues.on_acquired(kind)
    results = await asyncio.gather(*waiters, return_exceptions=True)
    assert [result for result in results if not isinstance(result, asyncio.CancelledError)] == [0, 0, 0]
    assert queues.get(kind.local_queue_keys[0]) is None
    assert queues.waiting == 0
