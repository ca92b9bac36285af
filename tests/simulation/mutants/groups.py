"""Mutants of the rules for acquires and releases that share a command."""

from unittest.mock import patch
from weakref import WeakSet

from framework.breaking import mutant, rewritten

from redlock_async import _rounds, _runtime, _transport

Group, AcquireGroup = _rounds.group.Group, _rounds.group.AcquireGroup


@mutant("groups")
def a_vote_counts_for_another_member():
    """The replies to the members are handed out in another order."""
    parts = AcquireGroup._parts

    def rotated(self, reply):
        first, *others = parts(self, reply)
        return [*others, first]

    with patch.object(AcquireGroup, "_parts", rotated):
        yield


@mutant("groups")
def a_refused_member_is_granted_with_the_others():
    """A node says that it granted all although it refused some."""
    with rewritten("mutex_acquire_many", ("return alike and -now or replies", "return -now")):
        yield


@mutant("groups")
def an_error_of_one_member_is_everyones():
    """An error in the reply fails the whole group."""
    deliver = Group.deliver

    def failed(self, node, reply):
        if isinstance(reply, list):
            reply = next((part for part in reply if isinstance(part, _rounds.group.ErrorReply)), reply)
        deliver(self, node, reply)

    with patch.object(Group, "_send_each", lambda *_: False), patch.object(Group, "deliver", failed):
        yield


@mutant("groups")
def a_name_that_is_denied_denies_the_whole_group():
    """A group that a server rejects is not sent again, member by member."""
    with patch.object(Group, "_send_each", lambda *_: False):
        yield


@mutant("groups")
def a_cancelled_member_is_not_released():
    """A task that is cancelled leaves its release to the others of its group."""
    release_votes = _runtime.acquisition.Acquisition._release_votes
    sent_in, members = _rounds.round.Round.sent_in, WeakSet()

    def remember(self, *arguments):
        members.add(self)
        sent_in(self, *arguments)

    def forget(self, round_):
        if round_ not in members or (round_.outcome.done() and not round_.outcome.cancelled()):
            release_votes(self, round_)

    with (
        patch.object(_rounds.round.Round, "sent_in", remember),
        patch.object(_runtime.acquisition.Acquisition, "_release_votes", forget),
    ):
        yield


@mutant("groups")
def a_member_that_was_called_off_is_sent():
    """An acquire that was cancelled before its group was sent goes out all the same, and is not released."""
    with patch.object(_rounds.round.Round, "wanted", property(lambda _self: True)):
        yield


@mutant("groups")
def a_rejected_member_is_sent_again_behind_its_release():
    """A group that is sent again includes members that were cancelled since."""
    rejected = Group._rejected

    def all_again(self, index, message):
        with patch.object(_runtime.acquire_round.AcquireRound, "may_send_again", lambda _self, _bit: True):
            rejected(self, index, message)

    with patch.object(Group, "_rejected", all_again):
        yield


@mutant("groups")
def only_the_first_of_a_group_that_is_cut_is_told():
    """The connection ends under a group: only its first member notices, and sends its release again."""

    def dropped(self, node, cause):
        self.hand_out()
        self._members[0].receiver.dropped(node, cause)

    with patch.object(Group, "dropped", dropped):
        yield


@mutant("groups")
def a_release_that_was_sent_again_wakes_nobody():
    """Tasks of the process that were refused by a lease whose release was late wait for its expiry."""
    with patch.object(_runtime.lease_registry.ReleaseRound, "sent_again", lambda _self: None):
        yield


@mutant("groups")
def what_was_counted_for_the_group_is_lost():
    """Members that count for themselves from the third reply on do not know of the first two."""
    with patch.object(_runtime.acquire_round.AcquireRound, "count_grants", lambda *_: None):
        yield


@mutant("groups")
def releases_that_were_collected_are_forgotten_on_closing():
    """A client that is closed does not send the releases of this iteration of the loop."""
    close = _runtime.session.Session.close

    def forget(self):
        with patch.object(self.context.groups, "send", self.context.groups._releases.clear):
            close(self)

    with patch.object(_runtime.session.Session, "close", forget):
        yield


@mutant("groups")
def other_commands_overtake_the_group():
    """What is sent otherwise does not wait for the members that were collected before it."""
    send_all = _transport.connection.WriteBatcher.send_all
    send = _transport.connection.Connection.send

    def overtaking(batcher, call, *arguments):
        collected, batcher.collected = batcher.collected, None
        call(*arguments)
        batcher.collected = collected

    def to_all(self, packed, receiver):
        overtaking(self, send_all, self, packed, receiver)

    def to_one(self, packed, receiver):
        overtaking(self._batcher, send, self, packed, receiver)

    with (
        patch.object(_transport.connection.WriteBatcher, "send_all", to_all),
        patch.object(_transport.connection.Connection, "send", to_one),
    ):
        yield
