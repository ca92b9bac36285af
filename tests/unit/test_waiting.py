"""The queue of one process: who is next, whatever anybody does who waits before them."""

import asyncio
from itertools import permutations, product

import pytest

from redlock_async._waiting import Turns

KEY = b"k"


class Timers:
    """A loop whose timers go off when the test says so; futures and tasks are the real loop's."""

    def __init__(self):
        self.create_future = asyncio.get_running_loop().create_future
        self.timers = []

    def call_later(self, seconds, callback, *args):
        """Remember it."""
        timer = Timer(seconds, callback, args)
        self.timers.append(timer)
        return timer


class Timer:
    """What `call_later` returns."""

    def __init__(self, seconds, callback, args):
        self.seconds = seconds
        self.cancelled = False
        self._callback = callback
        self._args = args

    def cancel(self):
        """Never goes off."""
        self.cancelled = True

    def go_off(self):
        """The time is up."""
        assert not self.cancelled
        self._callback(*self._args)


class Queue:
    """Somebody has the turn, and that many tasks wait for it; `served` says who had it since, in order."""

    def __init__(self, waiters, seconds=60.0):
        self.loop = Timers()
        self.turns = Turns(self.loop)
        self.served = []
        assert self.turns.take(KEY)
        self.tasks = [asyncio.create_task(self.wait(number, seconds)) for number in range(waiters)]

    async def wait(self, number, seconds):
        """One waiter; whoever is served leaves again at once."""
        if await self.turns.wait(KEY, seconds):
            self.served.append(number)
            self.turns.leave(KEY)
            return True
        return False

    async def results(self):
        """What became of each: served, timed out, or cancelled."""
        got = await asyncio.gather(*self.tasks, return_exceptions=True)
        return ["cancelled" if isinstance(each, asyncio.CancelledError) else each for each in got]

    def assert_empty(self):
        """Nobody waits, nobody has the turn, nothing is left to go off."""
        assert self.turns.waiting == 0
        assert self.turns.get(KEY) is None
        assert all(timer.cancelled for timer in self.loop.timers)


async def settle():
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_whoever_comes_first_has_the_turn_at_once():
    """Nobody queues for a name that nobody wants, and names do not wait for one another."""
    turns = Turns(asyncio.get_running_loop())
    assert turns.get(KEY) is None
    assert turns.take(KEY)
    assert not turns.take(KEY)
    assert turns.take(b"other")
    turns.leave(KEY)
    assert turns.get(KEY) is None
    assert turns.take(KEY)
    assert turns.get(b"other") is not None


@pytest.mark.asyncio
async def test_the_turn_goes_first_come_first_served():
    """In the order of waiting, one at a time."""
    queue = Queue(5)
    await settle()
    assert queue.turns.waiting == 5
    assert queue.served == []
    queue.turns.leave(KEY)
    assert await queue.results() == [True] * 5
    assert queue.served == [0, 1, 2, 3, 4]
    queue.assert_empty()


@pytest.mark.asyncio
async def test_a_newcomer_does_not_overtake():
    """Between the leaving and the waking of the next nobody can take the turn."""
    queue = Queue(1)
    await settle()
    queue.turns.leave(KEY)
    assert not queue.turns.take(KEY)
    assert await queue.results() == [True]
    assert queue.turns.take(KEY)


@pytest.mark.asyncio
async def test_each_hand_over_counts_towards_the_run():
    """Until the turn is let go; whoever takes it then begins a new one."""
    queue = Queue(0)
    for expected in (1, 2, 3):
        waiter = asyncio.create_task(queue.turns.wait(KEY, None))
        await settle()
        queue.turns.leave(KEY)
        assert await waiter
        assert queue.turns.get(KEY).run == expected
    queue.turns.leave(KEY)
    assert queue.turns.take(KEY)
    assert queue.turns.get(KEY).run == 0


@pytest.mark.asyncio
async def test_the_contest_of_whoever_leaves_is_not_the_next_one_s():
    """The next in the queue has not asked the nodes yet."""
    queue = Queue(0)
    queue.turns.get(KEY).contest = object()
    waiter = asyncio.create_task(queue.turns.wait(KEY, None))
    await settle()
    queue.turns.leave(KEY)
    assert queue.turns.get(KEY).contest is None
    assert await waiter


# Cancelling

STAGES = ("not begun", "queued", "just served", "just timed out")


@pytest.mark.asyncio
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_waiter_cancelled_at_any_point_passes_the_turn_on(stage, place):
    """Wherever it stands and however far it is, the others are served in their order and nothing is left behind."""
    queue = Queue(3)
    if stage == "not begun":
        queue.tasks[place].cancel()
    await settle()
    if stage == "queued":
        queue.tasks[place].cancel()
    if stage == "just timed out":
        queue.loop.timers[place].go_off()
        queue.tasks[place].cancel()
    queue.turns.leave(KEY)
    if stage == "just served":
        # The turn is given to each in the tick in which the one before it leaves; cancel in that very tick.
        while len(queue.served) < place:  # noqa: ASYNC110 - the tick matters
            await asyncio.sleep(0)
        queue.tasks[place].cancel()
    expected = [True] * 3
    expected[place] = "cancelled"
    assert await queue.results() == expected
    assert queue.served == [number for number in range(3) if number != place]
    queue.assert_empty()


@pytest.mark.asyncio
async def test_the_last_waiter_cancelled_with_the_turn_lets_it_go():
    """Served, and cancelled before it knew: nobody has the turn then, and the next to come takes it."""
    queue = Queue(1)
    await settle()
    queue.turns.leave(KEY)
    assert queue.turns.get(KEY) is not None
    queue.tasks[0].cancel()
    assert await queue.results() == ["cancelled"]
    queue.assert_empty()
    assert queue.turns.take(KEY)


@pytest.mark.asyncio
async def test_any_number_of_waiters_may_be_cancelled_in_any_order():
    """Every subset of four, in every order, before the turn is free."""
    for cancelled in product((False, True), repeat=4):
        for order in permutations([number for number in range(4) if cancelled[number]]):
            queue = Queue(4, None)
            await asyncio.sleep(0)
            for number in order:
                queue.tasks[number].cancel()
            await asyncio.sleep(0)
            queue.turns.leave(KEY)
            assert await queue.results() == ["cancelled" if each else True for each in cancelled]
            assert queue.served == [number for number in range(4) if not cancelled[number]]
            queue.assert_empty()


@pytest.mark.asyncio
async def test_all_waiters_cancelled_leave_the_turn_with_whoever_has_it():
    """They had none to give."""
    queue = Queue(3)
    await settle()
    for task in queue.tasks:
        task.cancel()
    assert await queue.results() == ["cancelled"] * 3
    assert queue.turns.waiting == 0
    assert not queue.turns.take(KEY)
    queue.turns.leave(KEY)
    queue.assert_empty()


@pytest.mark.asyncio
async def test_the_turn_goes_past_several_that_were_cancelled_as_they_were_served():
    """Each passes it on though it never ran."""
    queue = Queue(3)
    await settle()
    queue.turns.leave(KEY)
    queue.tasks[0].cancel()
    queue.tasks[1].cancel()
    assert await queue.results() == ["cancelled", "cancelled", True]
    queue.assert_empty()


# Time


@pytest.mark.asyncio
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_waiter_whose_time_is_up_is_passed_over(place):
    """It is told so, and the others keep their order."""
    queue = Queue(3)
    await settle()
    assert [timer.seconds for timer in queue.loop.timers] == [60.0] * 3
    queue.loop.timers[place].go_off()
    await settle()
    assert queue.turns.waiting == 2
    queue.turns.leave(KEY)
    assert await queue.results() == [number != place for number in range(3)]
    assert queue.served == [number for number in range(3) if number != place]
    assert queue.turns.get(KEY) is None


@pytest.mark.asyncio
async def test_time_up_and_served_in_one_tick_is_what_came_first():
    """Served first, it has the turn and the timer changes nothing; timed out first, the turn goes to the next."""
    served_first = Queue(1)
    await settle()
    served_first.turns.leave(KEY)
    served_first.loop.timers[0].go_off()
    assert await served_first.results() == [True]
    served_first.assert_empty()

    late = Queue(2)
    await settle()
    late.loop.timers[0].go_off()
    late.turns.leave(KEY)
    assert await late.results() == [False, True]
    assert late.turns.get(KEY) is None


@pytest.mark.asyncio
async def test_whoever_waits_for_ever_has_no_timer():
    """wait=None."""
    queue = Queue(2, None)
    await settle()
    assert queue.loop.timers == []
    queue.turns.leave(KEY)
    assert await queue.results() == [True, True]


@pytest.mark.asyncio
@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_no_time_at_all_is_up_at_once(seconds):
    """On a real loop: the waiter is gone and the turn stays where it is."""
    turns = Turns(asyncio.get_running_loop())
    assert turns.take(KEY)
    assert not await turns.wait(KEY, seconds)
    assert turns.waiting == 0
    assert not turns.get(KEY).queue
    assert not turns.take(KEY)


@pytest.mark.asyncio
async def test_a_thousand_that_give_up_do_not_disturb_the_last():
    """Nothing of them is kept while the turn does not move."""
    queue = Queue(1000)
    await settle()
    for timer in queue.loop.timers[:-1]:
        timer.go_off()
    await settle()
    assert queue.turns.waiting == 1
    assert len(queue.turns.get(KEY).queue) == 1
    queue.turns.leave(KEY)
    assert (await queue.results())[-1] is True


@pytest.mark.asyncio
async def test_those_who_try_once_give_up_when_whoever_has_the_turn_has_its_answer():
    """The others wait on, in their order; one of the former that has got the turn before keeps it."""
    queue = Queue(0)
    patient = [asyncio.create_task(queue.wait(number, 60.0)) for number in (0, 3)]
    await settle()
    impatient = [asyncio.create_task(queue.turns.wait(KEY, 60.0, once=True)) for _ in range(2)]
    await settle()
    queue.turns.answered(KEY)
    assert await asyncio.gather(*impatient) == [False, False]
    assert queue.turns.waiting == 2
    late = asyncio.create_task(queue.turns.wait(KEY, 60.0, once=True))
    await settle()
    queue.turns.leave(KEY)
    assert await asyncio.gather(*patient) == [True, True]
    assert queue.served == [0, 3]
    assert await late
    queue.turns.answered(KEY)
    queue.turns.leave(KEY)
    queue.assert_empty()
