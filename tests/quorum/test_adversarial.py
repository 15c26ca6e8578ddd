"""Histories that were written to break the core or the delivery, and what must come of them."""

from __future__ import annotations

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Send
from pykraft.quorum.core.events import Proposed, TimerFired
from pykraft.quorum.core.roles import OBSERVER_SESSION_MS, ElectionState, Leader
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.quorum.delivery import Delivery
from pykraft.quorum.describe import describe_quorum
from pykraft.quorum.listener import LeaderAndEpoch


def _lead_static(bench):
    b = bench(static=True)
    b.stand()
    b.answer(b.vote_for(2))
    b.flush()
    assert isinstance(b.state.role, Leader)
    return b


def _described(b, wall_minus_monotonic_ms=0):
    return describe_quorum(b.state, wall_minus_monotonic_ms, b.now_ms + wall_minus_monotonic_ms)


def test_voter_given_by_id_alone_is_described_with_the_directory_it_fetches_from(bench):
    b = _lead_static(bench)
    assert [voter.key for voter in _described(b).voters][1:] == [ReplicaKey(2), ReplicaKey(3)]
    b.fetch(2, 1, 1)
    b.fetch(3, 1, 1, replica=ReplicaKey(3, ZERO_UUID))
    assert [voter.key for voter in _described(b).voters] == [b.keys[1], b.keys[2], ReplicaKey(3)]
    b.fetch(2, 1, 1, replica=ReplicaKey(2, ZERO_UUID))
    assert _described(b).voters[1].key == b.keys[2]


def test_another_disk_under_a_voters_id_does_not_inherit_what_the_lost_one_held(bench):
    b = _lead_static(bench)
    b.fetch(2, 1, 1)
    b.step(Proposed(1, 3, "x"))
    b.fetch(2, 4, 1)  # held by 2 alone: our own disk has not flushed it yet
    b.fetch(2, 0, 0, replica=ReplicaKey(2, b.keys[8].directory_id))
    b.flush()
    assert b.state.high_watermark == 1
    assert _described(b).voters[1].key == ReplicaKey(2, b.keys[8].directory_id)
    b.fetch(3, 4, 1)
    assert b.state.high_watermark == 4


def test_observers_that_fell_silent_are_forgotten(bench):
    b = bench()
    b.lead()
    b.fetch(4, 1, 1)
    assert len(_described(b).observers) == 1
    for _ in range(OBSERVER_SESSION_MS // 2_000 + 1):  # an outage of the observer only
        b.step(TimerFired(), after_ms=2_000)
        b.fetch(2, 1, 1)
    assert isinstance(b.state.role, Leader)
    assert _described(b).observers == ()
    b.fetch(5, 1, 1)
    assert list(b.state.role.observers) == [b.keys[5]]


def test_lone_voter_on_another_disk_refuses_to_start_and_names_both(bench):
    b = bench(voters=1)
    with pytest.raises(ValueError, match=str(b.keys[1])):
        bench(voters=1, local=ReplicaKey(1, b.keys[8].directory_id))


def test_late_fetch_of_an_earlier_epoch_is_not_contact_and_not_progress(bench):
    """What it matches ends before our epoch begins, so it could commit nothing; but it is no news either."""
    b = bench()
    b.lead()
    b.fetch(2, 1, 1)
    b.step(TimerFired(), after_ms=10_000)  # resigns
    b.stand()
    b.answer(b.vote_for(3))
    role = b.state.role
    assert isinstance(role, Leader) and b.state.epoch == 2
    b.now_ms += 1
    assert b.fetch(2, 1, 1, epoch=1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert role.progress[2].end_offset == 0 and role.progress[2].last_fetch_ms == role.elected_at_ms


class _Listener:
    def __init__(self):
        self.heard = []

    def handle_commit(self, batches):
        self.heard += [batch.base_offset for batch in batches]

    def handle_leader_change(self, leader):
        self.heard.append(leader)


class _NoLog:
    def iter_batches(self, start_offset, end_offset=None):
        return iter(())


def test_leader_elected_again_hears_of_the_end_of_its_earlier_leadership_first():
    listener = _Listener()
    delivery = Delivery(_NoLog())
    first, lost, again = LeaderAndEpoch(1, 5), LeaderAndEpoch(None, 6), LeaderAndEpoch(1, 7)
    delivery.delivered_offset = delivery.high_watermark = 11
    delivery.leader_changed(first, 10)
    delivery.deliver_slice([listener])
    delivery.leader_changed(lost, None)
    delivery.leader_changed(again, 20)
    assert delivery.has_work
    delivery.deliver_slice([listener])
    assert not delivery.has_work
    delivery.delivered_offset = delivery.high_watermark = 21
    delivery.deliver_slice([listener])
    assert listener.heard == [first, lost, again]


def test_leadership_that_ended_before_it_was_committed_is_never_announced():
    listener = _Listener()
    delivery = Delivery(_NoLog())
    delivery.leader_changed(LeaderAndEpoch(None, 1), None)
    delivery.leader_changed(LeaderAndEpoch(1, 1), 10)
    delivery.leader_changed(LeaderAndEpoch(2, 2), None)
    delivery.leader_changed(LeaderAndEpoch(None, 3), None)
    delivery.leader_changed(LeaderAndEpoch(1, 4), 12)
    delivery.leader_changed(LeaderAndEpoch(1, 5), 13)
    while delivery.has_work:
        delivery.deliver_slice([listener])
    delivery.delivered_offset = delivery.high_watermark = 14
    while delivery.has_work:
        delivery.deliver_slice([listener])
    assert listener.heard == [LeaderAndEpoch(None, 3), LeaderAndEpoch(1, 5)]


def test_one_lost_message_does_not_cost_an_election():
    for config in (
        QuorumConfig(),
        QuorumConfig(request_timeout_ms=30_000),
        QuorumConfig(fetch_timeout_ms=500),
    ):
        again_ms = config.fetch_request_timeout_ms + config.retry_backoff_ms
        assert again_ms + config.fetch_wait_ms < config.fetch_timeout_ms
        assert config.begin_request_timeout_ms + 5 * config.retry_backoff_ms < config.election_timeout_ms


def test_fetches_and_announcements_carry_the_shorter_deadlines(bench):
    b = bench(election=ElectionState(4, 2, None))
    assert [send.timeout_ms for send in b.of(Send)] == [b.state.config.fetch_request_timeout_ms]
    b = bench()
    b.stand()
    b.answer(b.vote_for(2))
    assert {send.timeout_ms for send in b.of(Send)} == {b.state.config.begin_request_timeout_ms}
