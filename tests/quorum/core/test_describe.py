"""A leader's description of its voters and observers."""

from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core.events import Proposed, TimerFired
from pykraft.quorum.core.roles import OBSERVER_SESSION_MS, Leader
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.quorum.describe import describe_quorum
from pykraft.quorum.listener import QuorumDescription
from tests.quorum.bench import CoreBench


def _lead_static() -> CoreBench:
    b = CoreBench(static=True)
    b.start_election()
    b.answer(b.vote_for(2))
    b.flush()
    assert isinstance(b.state.role, Leader)
    return b


def _described(b: CoreBench, wall_minus_monotonic_ms: int = 0) -> QuorumDescription:
    return describe_quorum(b.state, wall_minus_monotonic_ms, b.now_ms + wall_minus_monotonic_ms)


def test_voter_given_by_id_alone_is_described_with_the_directory_it_fetches_from() -> None:
    b = _lead_static()
    assert [voter.key for voter in _described(b).voters][1:] == [ReplicaKey(2), ReplicaKey(3)]
    b.fetch(2, 1, 1)
    b.fetch(3, 1, 1, replica=ReplicaKey(3, ZERO_UUID))
    assert [voter.key for voter in _described(b).voters] == [b.keys[1], b.keys[2], ReplicaKey(3)]
    b.fetch(2, 1, 1, replica=ReplicaKey(2, ZERO_UUID))
    assert _described(b).voters[1].key == b.keys[2]


def test_another_disk_under_a_voters_id_does_not_inherit_the_lost_ones_progress() -> None:
    b = _lead_static()
    b.fetch(2, 1, 1)
    b.step(Proposed(1, 3, "x"))
    b.fetch(2, 4, 1)  # only 2 holds it: the leader's own disk has not flushed it yet
    b.fetch(2, 0, 0, replica=ReplicaKey(2, b.keys[8].directory_id))
    b.flush()
    assert b.state.high_watermark == 1
    assert _described(b).voters[1].key == ReplicaKey(2, b.keys[8].directory_id)
    b.fetch(3, 4, 1)
    assert b.state.high_watermark == 4


def test_silent_observers_are_removed() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(4, 1, 1)
    assert len(_described(b).observers) == 1
    for _ in range(OBSERVER_SESSION_MS // 2_000 + 1):  # an outage of the observer only
        b.step(TimerFired(), after_ms=2_000)
        b.fetch(2, 1, 1)
    assert isinstance(b.state.role, Leader)
    assert _described(b).observers == ()
    b.fetch(5, 1, 1)
    assert list(b.role(Leader).observers) == [b.keys[5]]


def test_replica_that_has_not_fetched_since_the_election_has_no_times() -> None:
    b = _lead_static()
    silent = _described(b, 1_000_000).voters[2]
    assert (silent.last_fetch_ms, silent.last_caught_up_ms) == (-1, -1)
    b.now_ms += 5
    b.fetch(3, 1, 1)
    assert _described(b, 1_000_000).voters[2].last_fetch_ms == 1_000_000 + b.now_ms
