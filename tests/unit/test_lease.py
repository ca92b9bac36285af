"""A lease's term: what is to be done about it at every moment, enumerated over times."""

import math
from itertools import pairwise, product

import pytest

from redlock_async._rules.lease_timing import BATCH_WINDOW, FIRST_CHECK, RENEWALS, LeaseTiming, Phase, Step, validity
from redlock_async._rules.settings import GRACE

DRIFT = 0.01
TTLS = (0.01, 0.05, 0.3, 1.0, 10.0, 3600.0)
START = 1000.0

every_ttl = pytest.mark.parametrize("ttl", TTLS)


def term(ttl=10.0, *, renews=True, most=None, grace=GRACE, at=START):
    """A lease granted to a command that was sent at that time."""
    return LeaseTiming(at, ttl, DRIFT, renews=renews, most=most, grace=grace)


def times(ttl, upto=1.5):
    """Moments from the grant to well after its end, on and between the interesting ones."""
    return [START + ttl * upto * number / 120 for number in range(121)]


# What is to be done


@every_ttl
def test_each_moment_has_its_step(ttl):
    """Wait until the renewal is due, renew until the end is near, then lose: in this order and without a gap."""
    lease = term(ttl)
    for now in times(ttl):
        if now >= lease.until - min(GRACE, ttl / 20):
            expected = Step.LOSE
        elif now >= START + min(FIRST_CHECK, ttl / RENEWALS):
            expected = Step.RENEW
        else:
            expected = Step.WAIT
        assert lease.step(now) is expected, now - START


@every_ttl
@pytest.mark.parametrize("asked_at", [0.0, 0.1, 0.3, 0.6, 0.9, 0.99, 1.2])
def test_there_is_something_to_do_when_it_is_due_and_not_before(ttl, asked_at):
    """A timer set to `due_at` finds work when it runs, and misses none by running only then."""
    lease = term(ttl)
    lease.on_renewal_sent(START + ttl * asked_at)
    due = lease.due_at()
    assert lease.step(due) in (Step.RENEW, Step.LOSE)
    assert lease.step(math.nextafter(due, -math.inf)) is Step.WAIT


@every_ttl
def test_the_body_is_cancelled_inside_validity(ttl):
    """Its cleanup has a twentieth of the ttl, but no more than the grace, before the lease ends."""
    lease = term(ttl)
    assert lease.until - lease.lose_at == pytest.approx(min(GRACE, ttl / 20))
    assert START < lease.lose_at < lease.until
    assert lease.step(lease.lose_at) is Step.LOSE


@every_ttl
def test_a_lost_lease_keeps_what_is_left_for_cleanup_and_is_then_ended(ttl):
    """The nodes are told when validity is over: not before, not twice, and a renewal is never due again."""
    lease = term(ttl)
    lease.phase = Phase.LOST
    assert lease.due_at() == lease.until
    for now in times(ttl):
        assert lease.step(now) is (Step.END if now >= lease.until else Step.WAIT)
    lease.until = -math.inf
    assert {lease.step(now) for now in times(ttl)} == {Step.NOTHING}


@pytest.mark.parametrize("phase", [Phase.RELEASED, Phase.DETACHED])
def test_a_lease_that_was_given_away_needs_nothing(phase):
    """Neither a renewal nor a loss can come of it, whatever the time."""
    lease = term()
    lease.phase = phase
    assert {lease.step(now) for now in times(10.0)} == {Step.NOTHING}
    assert lease.early == 0.0


# The deadline


@every_ttl
@pytest.mark.parametrize("drift", [0.0, 0.01, 0.2])
def test_the_deadline_counts_from_the_first_send(ttl, drift):
    """Not from any reply: `granted_at` is when the first command left."""
    assert LeaseTiming(START, ttl, drift, renews=True, most=None, grace=GRACE).until == START + validity(ttl, drift)


@every_ttl
def test_the_deadline_does_not_depend_on_when_the_replies_arrive(ttl):
    """Whenever a quorum answers before the old deadline, the new one is the same."""
    sent = START + ttl / 2
    deadlines = set()
    for now in times(ttl):
        lease = term(ttl)
        if sent <= now < lease.until:
            assert lease.extended(sent, now, ttl)
            deadlines.add(lease.until)
    assert deadlines == {sent + validity(ttl, DRIFT)}


@every_ttl
def test_an_extension_that_comes_after_the_old_deadline_changes_nothing(ttl):
    """In between somebody else may have had the lock: it is not to be healed."""
    for now in times(ttl):
        lease = term(ttl)
        old = lease.until
        accepted = lease.extended(START + ttl / 2, now, ttl * 2)
        assert accepted == (now < old), now - START
        if not accepted:
            assert (lease.until, lease.ttl) == (old, ttl)


def test_an_extension_never_shortens():
    """Whatever was sent, with whatever ttl and whenever it is confirmed, the deadline only moves outwards."""
    for first, second, sent, took in product((1.0, 10.0), (0.01, 0.5, 1.0, 10.0, 20.0), range(10), range(5)):
        lease = term(first)
        old = lease.until
        sent_at = START + first * sent / 10
        lease.extended(sent_at, sent_at + first * took / 10, second)
        assert lease.until >= old
        assert lease.until in (old, sent_at + validity(second, DRIFT))


def test_replies_out_of_order_leave_the_later_deadline():
    """Two extensions under way at once: the one sent last counts, whichever is confirmed last."""
    for order in ((1.0, 2.0), (2.0, 1.0)):
        lease = term()
        for sent in order:
            assert lease.extended(START + sent, START + 3.0, 10.0)
        assert lease.until == START + 2.0 + validity(10.0, DRIFT)


@pytest.mark.parametrize("phase", [Phase.LOST, Phase.RELEASED, Phase.DETACHED])
def test_no_late_confirmation_revives_a_lease_that_ended(phase):
    """Loss is sticky, and so is release."""
    lease = term()
    lease.phase = phase
    for now in times(10.0):
        old = lease.until
        assert not lease.extended(START + 1.0, now, 60.0)
        assert (lease.phase, lease.until) == (phase, old)


def test_nothing_but_extend_and_confirm_moves_the_deadline():
    """Looking, asking and being seen are no promise of the nodes to hold it for longer."""
    lease = term()
    old = lease.until
    for now in times(10.0):
        lease.on_renewal_sent(now)
        lease.step(now)
        lease.on_confirmed(now, now + 0.1)
        assert lease.until == old


# max_hold


@every_ttl
@pytest.mark.parametrize("most", [0.005, 0.04, 0.2, 0.9, 9.0, 60.0, 1e5])
def test_max_hold_caps_every_deadline(ttl, most):
    """Neither the grant nor any extension reaches beyond it, and with it reached there is no renewing."""
    lease = term(ttl, most=most)
    cap = START + most
    assert lease.until == min(START + validity(ttl, DRIFT), cap)
    now = START
    for _ in range(200):
        assert lease.until <= cap
        assert lease.capped == (lease.until == cap)
        assert lease.renewal_ms() == (0 if lease.capped else round(ttl * 1000))
        now += ttl / 3
        lease.extended(now, now, ttl)
    assert lease.step(max(now, cap)) is Step.LOSE


def test_without_max_hold_nothing_is_capped():
    """A healthy body may run for ever."""
    lease = term()
    for number in range(1, 1000):
        assert lease.extended(START + number, START + number, 10.0)
    assert not lease.capped
    assert lease.until == START + 999 + validity(10.0, DRIFT)


def test_a_user_s_extension_is_capped_too():
    """`extend(ttl=...)` cannot get round max_hold."""
    lease = term(10.0, most=12.0)
    assert lease.extended(START + 1, START + 1, 3600.0)
    assert lease.until == START + 12.0


# Renewing


def test_a_lease_that_is_not_renewed_is_only_looked_at():
    """renew=False: the nodes are asked whether it stands, and to hold it not a moment longer."""
    assert term(renews=False).renewal_ms() == 0
    assert term(renews=True).renewal_ms() == 10_000


@every_ttl
def test_a_renewal_asks_for_the_whole_ttl_in_milliseconds(ttl):
    """0 would only look, so no ttl that is allowed may round to it."""
    assert term(ttl).renewal_ms() == round(ttl * 1000) > 0


@every_ttl
def test_a_confirmed_lease_is_due_a_third_of_its_ttl_after_it_was_sent(ttl):
    """Two renewals may fail before the third decides."""
    for confirm in ("on_confirmed", "extended"):
        lease = term(ttl)
        sent = START + ttl / 4
        now = sent + ttl / 8
        assert lease.on_confirmed(sent, now) if confirm == "on_confirmed" else lease.extended(sent, now, ttl)
        assert lease.next_at == sent + ttl / RENEWALS
        assert lease.step(math.nextafter(sent + ttl / RENEWALS, math.inf)) is Step.RENEW


@every_ttl
def test_seen_says_whether_the_lease_still_stands(ttl):
    """A quorum's word is worth nothing after the deadline."""
    for now in times(ttl):
        lease = term(ttl)
        assert lease.on_confirmed(START, now) == (now < lease.until)


@every_ttl
def test_renewals_get_denser_as_time_runs_out(ttl):
    """With no answer at all there are many tries before the end, ever closer together, and never a busy loop."""
    lease = term(ttl)
    sent = []
    now = START
    while lease.step(now) is not Step.LOSE:
        now = lease.due_at()
        if lease.step(now) is Step.RENEW:
            lease.on_renewal_sent(now)
            sent.append(now)
        assert len(sent) < 1000, "ever closer together without an end"
    pauses = [later - earlier for earlier, later in pairwise(sent)]
    assert RENEWALS <= len(sent) < 40
    assert all(later <= earlier * 1.000001 for earlier, later in pairwise(pauses))
    assert min(pauses) >= ttl / 50 * 0.999999
    assert pauses[-1] < pauses[0] / 2
    assert lease.lose_at - sent[-1] <= ttl / 50 * 1.000001


@every_ttl
def test_an_unanswered_renewal_is_repeated_at_the_latest_after_a_third_of_the_ttl(ttl):
    """Also when much time is left, as after a long extension."""
    lease = term(ttl)
    assert lease.extended(START, START, ttl)
    lease.until = START + 100 * ttl
    lease.on_renewal_sent(START)
    assert lease.next_at == START + ttl / RENEWALS


@every_ttl
def test_the_first_look_comes_early(ttl):
    """It arms client tracking, and a short lease is looked at within its first third."""
    assert term(ttl).next_at == START + min(FIRST_CHECK, ttl / RENEWALS)


@every_ttl
def test_a_renewal_may_be_early_by_a_tenth_of_its_interval(ttl):
    """Enough to go out with others, too little to count; the end of a lease is never early."""
    lease = term(ttl)
    assert lease.on_confirmed(START, START)
    assert lease.early == pytest.approx(ttl / RENEWALS * BATCH_WINDOW)
    for now in times(ttl):
        lease = term(ttl)
        lease.on_renewal_sent(now)
        interval = lease.next_at - now
        assert lease.early == (
            0.0 if lease.next_at >= lease.lose_at else pytest.approx(interval * BATCH_WINDOW, rel=1e-6)
        )


# A lease that came from elsewhere


def attached(ttl=10.0, *, renews=True):
    """As the engine takes one over whose deadline was measured with another machine's clock."""
    lease = term(ttl, renews=renews)
    lease.confirmed = False
    lease.until = -math.inf
    return lease


@pytest.mark.parametrize("renews", [True, False])
def test_an_unconfirmed_lease_asks_for_its_ttl_whether_it_is_renewed_or_not(renews):
    """It needs one full term here; 0 ms would leave it with a deadline nobody knows."""
    assert attached(renews=renews).renewal_ms() == 10_000


@every_ttl
def test_confirming_starts_the_deadline_at_the_send(ttl):
    """From its first confirmation on it is a lease like any other, unless the reply came after its end."""
    for now in times(ttl):
        lease = attached(ttl)
        assert not lease.extended(START, now, ttl)
        held = lease.confirm(START, now, ttl)
        assert lease.confirmed
        assert lease.until == START + validity(ttl, DRIFT)
        assert held == (now < lease.until)
        assert lease.next_at == START + ttl / RENEWALS


def test_confirming_takes_the_ttl_that_the_nodes_were_asked_for():
    """`extend` with a shorter ttl must not leave a lease that is valid for as long as its old one."""
    lease = attached(10.0)
    assert lease.confirm(START, START, 2.0)
    assert (lease.ttl, lease.until) == (2.0, START + validity(2.0, DRIFT))


def test_a_confirmed_lease_that_is_not_renewed_is_only_looked_at_from_then_on():
    """renew=False came with it."""
    lease = attached(renews=False)
    assert lease.confirm(START, START, 10.0)
    assert lease.renewal_ms() == 0


# All together


def run(lease, now, seconds, *, node_replies):
    """Follow the steps as the timer would, with a quorum that answers at once or never; returns when it was lost."""
    end = now + seconds
    while now < end:
        step = lease.step(now)
        if step is Step.LOSE:
            return now
        if step is Step.RENEW:
            ttl_ms = lease.renewal_ms()
            lease.on_renewal_sent(now)
            if node_replies:
                assert lease.extended(now, now, lease.ttl) if ttl_ms else lease.on_confirmed(now, now)
        following = lease.due_at()
        assert following > now, "the timer would spin"
        now = following
    return None


@every_ttl
def test_a_healthy_lease_is_never_lost(ttl):
    """With a quorum that answers it lasts as long as the body does."""
    assert run(term(ttl), START, 50 * ttl, node_replies=True) is None


@every_ttl
@pytest.mark.parametrize("to", TTLS)
def test_a_healthy_lease_is_never_lost_after_it_was_extended_with_another_ttl(ttl, to):
    """The grace before the end must not be longer than the lease it belongs to now."""
    lease = term(ttl)
    assert lease.extended(START, START, to)
    # Mostly it goes wrong at the end of the first ttl: start shortly before it, when renewals have brought it there.
    assert run(lease, max(START, lease.until - 3 * to), 50 * to, node_replies=True) is None


@every_ttl
@pytest.mark.parametrize("to", TTLS)
def test_the_grace_is_that_of_the_ttl_the_deadline_came_from(ttl, to):
    """Also a short lease that was made long leaves its body time for cleanup."""
    lease = term(ttl)
    old = lease.until
    assert lease.extended(START, START, to)
    if lease.until > old:
        assert lease.until - lease.lose_at == pytest.approx(min(GRACE, to / 20))


@every_ttl
def test_a_lease_without_answers_is_lost_at_its_time(ttl):
    """Exactly at the end of its first term less the grace."""
    lease = term(ttl)
    assert run(lease, START, 10 * ttl, node_replies=False) == lease.lose_at


@every_ttl
def test_a_lease_that_is_not_renewed_is_lost_at_its_time_though_the_nodes_answer(ttl):
    """renew=False means the ttl, whatever the nodes say."""
    lease = term(ttl, renews=False)
    assert run(lease, START, 10 * ttl, node_replies=True) == lease.lose_at


@pytest.mark.parametrize("most", [0.01, 0.1, 0.5, 3.0, 25.0])
def test_a_runaway_body_is_cancelled_before_max_hold(most):
    """Renewal stops there, and the grace still lies inside."""
    lost = run(term(10.0, most=most), START, 1000.0, node_replies=True)
    assert lost is not None
    assert START < lost < START + most
    assert START + most - lost == pytest.approx(min(GRACE, 0.05 * most))
