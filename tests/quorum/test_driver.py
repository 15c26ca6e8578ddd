"""Whole nodes: elections, commits, leadership changes, restarts."""

import asyncio
import random

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.quorum.core.effects import Effect
from pykraft.quorum.core.events import Event
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.driver import LeaderAndEpoch
from pykraft.quorum.state_store import QuorumStateStore
from tests.quorum.nodes import DIRECTORY, Cluster


async def test_three_voters_elect_one_leader_and_commit_everywhere(cluster: Cluster) -> None:
    await cluster.commit(b"a", b"b")
    await cluster.commit(b"c")
    for replica in cluster.replicas:
        assert replica.listener.values == [b"a", b"b", b"c"]
        assert replica.listener.batches[0].values == ()  # the LeaderChange record


@pytest.mark.world(voters=1)
async def test_node_tells_the_end_of_its_log_before_it_starts_and_while_it_runs(cluster: Cluster) -> None:
    await cluster.commit(b"a", b"b")
    replica = cluster.replicas[0]
    end_offset = replica.log.log_end_offset
    assert replica.live.log_end_offset == end_offset
    await replica.stop()
    node = replica.new_node()
    assert (node.log_end_offset, node.high_watermark) == (end_offset, 0)
    replica.log.close()
    await replica.start()
    await cluster.commit(b"c")
    assert replica.live.log_end_offset == replica.log.log_end_offset > end_offset


@pytest.mark.world(voters=1)
async def test_a_single_voter_leads_at_once(cluster: Cluster) -> None:
    assert cluster.nodes[0].leader == LeaderAndEpoch(1, 1)
    await cluster.commit(b"a")
    assert cluster.replicas[0].listener.leaders[-1] == LeaderAndEpoch(1, 1)


@pytest.mark.world(voters=1)
async def test_only_voter_writes_one_vote_file_for_its_election(cluster: Cluster) -> None:
    """It is a candidate and the leader in one step: only what it becomes must survive."""
    replica = cluster.replicas[0]
    await replica.stop()
    store = QuorumStateStore(replica.disk, DIRECTORY)
    before, written, write = store.read(), list[ElectionState](), QuorumStateStore.write

    def note(self: QuorumStateStore, state: ElectionState) -> None:
        written.append(state)
        write(self, state)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(QuorumStateStore, "write", note)
        await replica.start()
        await cluster.commit(b"a")
    assert written == [ElectionState(before.epoch + 1, 1, replica.key)]
    assert store.read() == written[0]


async def test_leader_is_notified_of_its_leadership_only_after_all_earlier_records(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    first = await cluster.leader()
    await first.stop()
    second = await cluster.leader()
    node = second.live
    leadership = LeaderAndEpoch(second.key.id, node.leader.epoch)
    await cluster.until(lambda: leadership in second.listener.leaders)
    change = next(b for b in second.listener.batches if b.epoch == leadership.epoch)
    assert second.listener.values == [b"a"] and change.values == ()


async def test_proposals_are_refused_without_a_leader(cluster: Cluster) -> None:
    leader = await cluster.leader()
    follower = next(r for r in cluster.replicas if r is not leader)
    with pytest.raises(KafkaError) as refused:
        follower.live.propose(follower.live.leader.epoch, [b"x"])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError):
        leader.live.propose(leader.live.leader.epoch + 1, [b"x"])


async def test_when_the_leader_stops_gracefully_another_takes_over_without_a_timeout(
    cluster: Cluster,
) -> None:
    await cluster.commit(b"a")
    first = await cluster.leader()
    epoch = first.live.leader.epoch
    await first.stop()
    second = await cluster.leader()
    assert second is not first and second.live.leader.epoch > epoch
    await cluster.commit(b"b")
    await first.start()
    await cluster.commit(b"c")
    assert [r.listener.values for r in cluster.replicas] == [[b"a", b"b", b"c"]] * 3


async def test_crashes_of_every_replica_in_turn_lose_no_committed_record(cluster: Cluster) -> None:
    rng = random.Random(7)
    expected = []
    for turn in range(6):
        value = b"%d" % turn
        await cluster.commit(value)
        expected.append(value)
        victim = await cluster.leader() if turn % 2 else rng.choice(cluster.replicas)
        await victim.crash(rng)
        await victim.start()
    await cluster.commit(b"end")
    for replica in cluster.replicas:
        assert [v for v in replica.listener.values if v in expected] == expected


async def test_a_power_loss_on_all_replicas_at_once_loses_no_committed_record(cluster: Cluster) -> None:
    rng = random.Random(3)
    await cluster.commit(*[b"%d" % i for i in range(50)])
    for replica in cluster.replicas:
        await replica.crash(rng)
    for replica in cluster.replicas:
        await replica.start()
    await cluster.commit(b"end")
    for replica in cluster.replicas:
        assert replica.listener.values == [b"%d" % i for i in range(50)] + [b"end"]


@pytest.mark.world(observers=1)
async def test_an_observer_finds_the_leader_and_catches_up(cluster: Cluster) -> None:
    observer = cluster.replicas[-1]
    await observer.stop()
    await cluster.commit(b"a")
    await observer.start()
    await cluster.commit(b"b")
    assert observer.listener.values == [b"a", b"b"]
    leader = await cluster.leader()
    description = leader.live.describe(1_000_000_000_000)
    assert [p.key for p in description.observers] == [observer.key]
    assert {p.key.id for p in description.voters} == {1, 2, 3}
    assert description.leader_id == leader.key.id
    assert all(p.log_end_offset == leader.live.log_end_offset for p in description.voters)
    await leader.stop()
    await cluster.commit(b"c")
    assert observer.listener.values == [b"a", b"b", b"c"]


async def test_a_long_log_is_delivered_in_slices(cluster: Cluster) -> None:
    for batch in range(40):
        await cluster.commit(*[b"%d" % i for i in range(batch * 100, batch * 100 + 100)])
    follower = next(r for r in cluster.replicas if r is not cluster.leading())
    await follower.stop()
    await follower.start()
    await cluster.commit(b"end")
    assert follower.listener.values == [*(b"%d" % i for i in range(4000)), b"end"]
    assert 100 < follower.listener.largest_slice <= 1000


async def test_many_proposals_share_flushes(cluster: Cluster) -> None:
    leader = await cluster.leader()
    await cluster.commit(b"first")
    before = sum(call.operation == "flush" for call in leader.memory_disk.calls)
    epoch = leader.live.leader.epoch
    offsets = [leader.live.propose(epoch, [b"%d" % i]) for i in range(200)]
    assert offsets == list(range(offsets[0], offsets[0] + 200))
    await cluster.until(lambda: leader.listener.next_offset > offsets[-1])
    assert sum(call.operation == "flush" for call in leader.memory_disk.calls) - before < 40


async def test_idle_quorum_does_not_spin(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two fetches nothing is due: the work of an idle second is bounded by its long polls."""
    await cluster.commit(b"a")
    steps = 0
    step = RaftCore.step

    def count(core: RaftCore, event: Event, now_ms: int) -> list[Effect]:
        nonlocal steps
        steps += 1
        return step(core, event, now_ms)

    monkeypatch.setattr(RaftCore, "step", count)
    await asyncio.sleep(0.6)  # virtual: 15 long polls of 40 ms by each of two followers
    assert steps < 3 * 15 * 6
