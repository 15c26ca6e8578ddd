"""Voters that change under whole nodes: driver, log, bytes on the wire, and what a restart reads back."""

import random
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.quorum import control_records
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.quorum.flushed_mark import FlushedMarkFile
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.narrowing import present
from tests.quorum.nodes import DIRECTORY, FAST, Cluster, Replica

from .test_snapshots import SMALL, take_snapshot

TIMEOUT_MS = 5000


SERVERS = tuple(Address("test", 9000 + node_id) for node_id in range(1, 5))


def voter_of(replica: Replica) -> Voter:
    return Voter(replica.key, replica.address)


def other_than(cluster: Cluster, leader: Replica) -> Replica:
    return next(r for r in cluster.replicas if r is not leader and r.live.is_voter)


async def refusal(coroutine: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await coroutine
    return refused.value.code


@pytest.mark.world(voters=3, observers=1)
async def test_observer_becomes_a_voter_on_every_node_and_after_a_restart_and_a_crash(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader()
    *_, fourth = cluster.replicas
    await leader.live.add_voter(voter_of(fourth), TIMEOUT_MS)
    await cluster.until(lambda: all(len(r.live.voters) == 4 for r in cluster.replicas))
    assert fourth.live.is_voter
    await fourth.stop()
    await fourth.start()
    assert fourth.live.is_voter and present(fourth.live.voters.get(4)).address == fourth.address
    await fourth.crash(random.Random(1))
    await fourth.start()
    assert fourth.live.is_voter
    assert await refusal(leader.live.add_voter(voter_of(fourth), TIMEOUT_MS)) is ErrorCode.DUPLICATE_VOTER
    await cluster.commit(b"a")


async def test_removed_leader_resigns_and_the_others_continue(cluster: Cluster) -> None:
    leader = await cluster.leader()
    await leader.live.remove_voter(leader.key, TIMEOUT_MS)
    await cluster.until(lambda: cluster.leading() not in (None, leader))
    assert not leader.live.is_voter and len(present(cluster.leading()).live.voters) == 2
    await cluster.commit(b"a")
    assert leader.listener.values == [b"a"]  # an observer now
    assert leader.live.leader_address() == present(cluster.leading()).address
    assert await refusal(leader.live.remove_voter(leader.key, 1)) is ErrorCode.NOT_CONTROLLER


@pytest.mark.world(config=SMALL)
async def test_voters_are_read_back_from_a_snapshot_when_their_records_are_gone(cluster: Cluster) -> None:
    leader = await cluster.leader()
    removed = other_than(cluster, leader)
    await leader.live.remove_voter(removed.key, TIMEOUT_MS)
    await cluster.commit(b"a")
    for replica in cluster.replicas:
        snapshot = await take_snapshot(replica)
        assert replica.log.log_start_offset == snapshot.end_offset
    for replica in cluster.replicas:
        await replica.stop()
        await replica.start()
        assert removed.key.id not in replica.live.voters.ids and len(replica.live.voters) == 2
    await cluster.commit(b"b")


@pytest.mark.world(
    observers=1,
    config=replace(FAST, bootstrap_servers=SERVERS, auto_join=True),
    voters_of_observers=NO_VOTERS,
)
async def test_node_that_knows_no_voters_finds_them_by_bootstrap_servers_and_joins(cluster: Cluster) -> None:
    *_, fourth = cluster.replicas
    await cluster.until(lambda: fourth.live.is_voter)
    await cluster.commit(b"a")
    assert all(len(r.live.voters) == 4 for r in cluster.replicas)


async def test_change_that_cannot_be_made_times_out_with_a_reason(cluster: Cluster) -> None:
    leader = await cluster.leader()
    stranger = Voter(ReplicaKey(9, leader.key.directory_id), Address("test", 9099))
    with pytest.raises(KafkaError, match="no answer from 9") as refused:
        await leader.live.add_voter(stranger, 100)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert await refusal(leader.live.remove_voter(stranger.key, 100)) is ErrorCode.VOTER_NOT_FOUND
    await leader.stop()
    cluster.rpc.down.discard(leader.address)
    await leader.start()


async def test_voter_at_another_address_is_known_there_after_its_restart(cluster: Cluster) -> None:
    leader = await cluster.leader()
    moved = other_than(cluster, leader)
    await moved.stop()
    moved.address = Address("test", 9500 + moved.key.id)
    await moved.start()
    await cluster.until(
        lambda: all(
            present(r.live.voters.get(moved.key.id)).address == moved.address for r in cluster.replicas
        )
    )
    await cluster.commit(b"a")


# --- fixed voters -------------------------------------------------------------------------------------------


async def upgrade(cluster: Cluster) -> VoterSet:
    """Upgrade kraft.version, and wait until every node has the voters from its log; they."""
    leader = await cluster.leader()
    await cluster.until(lambda: leader.live.upgrade_objection() is None)
    leader.live.upgrade_kraft_version(leader.live.leader.epoch)
    await cluster.commit(b"behind the upgrade")
    (voters,) = {replica.live.voters for replica in cluster.replicas}
    return voters


@pytest.mark.world(voters=3, observers=1, fixed=True)
async def test_fixed_voters_become_voters_in_the_log_on_every_node_and_over_restarts(
    cluster: Cluster,
) -> None:
    await cluster.commit(b"a")
    assert {replica.live.voters for replica in cluster.replicas} == {cluster.voters}
    assert cluster.voters.kraft_version == 0
    voters = await upgrade(cluster)
    *first, observer = cluster.replicas
    assert list(voters) == [voter_of(replica) for replica in first] and voters.kraft_version == 1
    for number, replica in enumerate(cluster.replicas):
        assert replica.live.ignores_fixed_voters
        await (replica.stop() if number % 2 else replica.crash(random.Random(number)))
        await replica.start()
        assert replica.live.voters == voters and replica.live.ignores_fixed_voters
        await cluster.commit(b"b")
    leader = await cluster.leader()
    await leader.live.add_voter(voter_of(observer), TIMEOUT_MS)
    await leader.live.remove_voter(other_than(cluster, leader).key, TIMEOUT_MS)
    assert len(leader.live.voters) == 3 and leader.live.voters.is_voter(observer.key)


@pytest.mark.world(config=SMALL, fixed=True)
async def test_upgrade_is_read_back_from_a_snapshot_and_fetched_in_one(cluster: Cluster) -> None:
    voters = await upgrade(cluster)
    away = other_than(cluster, await cluster.leader())
    await away.stop()
    away.memory_disk = away.disk = MemoryDisk()
    format_log(away.disk, DIRECTORY, now_ms=0)
    for replica in cluster.replicas:
        if replica is not away:
            snapshot = await take_snapshot(replica)
            assert replica.log.log_start_offset == snapshot.end_offset
            await replica.stop()
            await replica.start()
            assert replica.live.voters == voters and replica.live.ignores_fixed_voters
    await away.start()
    assert away.live.voters == cluster.voters, "its directory knows of no upgrade"
    await cluster.until(lambda: away.live.voters == voters)
    await cluster.commit(b"b")


@pytest.mark.world(fixed=True)
async def test_upgrade_that_is_truncated_leaves_the_voters_fixed(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    old = await cluster.leader()
    await cluster.until(lambda: old.live.upgrade_objection() is None)
    cluster.rpc.down.add(old.address)
    old.live.upgrade_kraft_version(old.live.leader.epoch)
    assert old.live.voters.kraft_version == 1
    others = [replica for replica in cluster.replicas if replica is not old]
    await cluster.until(lambda: any(r.live.leader.leader_id == r.key.id for r in others))
    cluster.rpc.down.clear()
    await cluster.until(lambda: old.live.voters == cluster.voters)
    assert not old.live.ignores_fixed_voters
    await cluster.commit(b"b")
    assert (await upgrade(cluster)).kraft_version == 1


@pytest.mark.world(fixed=True)
async def test_upgrade_is_refused_without_one_voter_and_by_who_does_not_lead(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    leader = await cluster.leader()
    epoch = leader.live.leader.epoch
    away, other = (replica for replica in cluster.replicas if replica is not leader)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        other.live.upgrade_kraft_version(epoch)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        leader.live.upgrade_kraft_version(epoch - 1)
    await away.crash(random.Random(1))
    missed = f"voter {away.key.id} has not fetched for"
    await cluster.until(lambda: missed in (leader.live.upgrade_objection() or ""))
    with pytest.raises(KafkaError, match=missed) as refused:
        leader.live.upgrade_kraft_version(epoch)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    await away.start()
    await upgrade(cluster)


@pytest.mark.world(fixed=True)
async def test_upgrade_is_a_control_batch_of_kraft_version_and_voters(cluster: Cluster) -> None:
    leader = await cluster.leader()
    before = leader.live.log_end_offset
    voters = await upgrade(cluster)
    header, data = next(leader.log.iter_batches(before))
    assert header.is_control and header.record_count == 2
    version, written = decode_batch(data, header)
    kinds = [control_records.control_type(record.key) for record in (version, written)]
    assert kinds == [control_records.ControlType.KRAFT_VERSION, control_records.ControlType.KRAFT_VOTERS]
    assert control_records.parse(control_records.KRaftVersion, present(version.value)).level == 1
    assert control_records.parse_voters_record(present(written.value)) == voters


@pytest.mark.world(voters=1, observers=1)
async def test_observer_that_may_become_a_voter_notes_how_far_it_has_flushed(cluster: Cluster) -> None:
    await cluster.until(cluster.leading)
    observer = cluster.replicas[-1]
    mark = FlushedMarkFile(observer.memory_disk, DIRECTORY)
    await cluster.until(lambda: present(mark.read()).end_offset)


@pytest.mark.world(voters=1)
async def test_observer_that_never_votes_needs_no_mark(cluster: Cluster) -> None:
    observer = Replica(cluster, ReplicaKey(9, Uuid(b"9" * 16)), Address("test", 9009))
    observer.never_votes = True
    observer.memory_disk = observer.disk = MemoryDisk()
    format_log(observer.disk, DIRECTORY, now_ms=0, may_vote=False)
    await observer.start()
    cluster.replicas.append(observer)
    await cluster.until(lambda: observer.listener.next_offset > 0)
    await observer.stop()
    assert FlushedMarkFile(observer.memory_disk, DIRECTORY).read() is None
    await observer.start()
