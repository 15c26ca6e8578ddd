"""Whole nodes whose disks have lost flushed records."""

import random
from dataclasses import replace

import pytest

from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from tests.narrowing import present
from tests.quorum.lost_records import MARK
from tests.quorum.nodes import DIRECTORY, Cluster, Replica


async def stop_and_damage(replica: Replica) -> None:
    await replica.stop()
    disk = replica.memory_disk
    segment = f"{DIRECTORY}/{0:020}.log"
    disk.flip_bit(segment, len(disk.read(segment)) - 1)


async def test_damaged_voter_reports_its_loss_fetches_it_and_takes_part_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.commit(b"a")
    leader = await cluster.leader()
    replica = next(r for r in cluster.replicas if r is not leader)
    await stop_and_damage(replica)
    await replica.start()
    assert present(replica.live._core).state.recovery is not None
    assert "CRC does not match" in caplog.text and "neither votes nor counts" in caplog.text
    assert MARK in caplog.text, "the way out"
    await cluster.until(lambda: present(replica.live._core).state.recovery is None)
    assert "taking part again" in caplog.text
    await leader.stop()
    await cluster.commit(b"b")


async def test_no_leader_is_elected_by_a_voter_that_lost_records(cluster: Cluster) -> None:
    """A leader and a follower had a record; the leader is down, the follower's disk has lost the record."""
    leader = await cluster.leader()
    first, second = (r for r in cluster.replicas if r is not leader)
    await second.stop()
    await cluster.commit(b"a")
    await leader.stop()
    await stop_and_damage(first)
    await first.start()
    await second.start()
    loop_time = cluster.now_s() + 5
    await cluster.until(lambda: cluster.now_s() > loop_time)
    assert first.live.leader.leader_id is None and second.live.leader.leader_id is None
    await leader.start()
    await cluster.commit(b"b")
    assert all(b"a" in replica.listener.values for replica in cluster.replicas)


async def test_cluster_that_loses_power_everywhere_elects_again(cluster: Cluster) -> None:
    rng = random.Random(7)
    for number in range(12):
        leader = await cluster.leader()
        leader.live.propose(leader.live.leader.epoch, [b"in flight %d" % number] * 3)
        for replica in cluster.replicas:
            await replica.crash(rng)
        for replica in cluster.replicas[: 2 + number % 2]:
            await replica.start()
            assert present(replica.live._core).state.recovery is None
        await cluster.commit(b"%d" % number)
        for replica in cluster.replicas:
            if replica.node is None:
                await replica.start()


@pytest.mark.world(voters=1)
async def test_single_voter_that_has_lost_records_does_not_start_until_an_operator_decides(
    cluster: Cluster,
) -> None:
    (replica,) = cluster.replicas
    await cluster.commit(b"a")
    await stop_and_damage(replica)
    for _ in range(2):
        with pytest.raises(QuorumStateError, match=MARK):
            await replica.start()
        replica.log.close()
    replica.memory_disk.remove(MARK)
    await replica.start()
    await cluster.commit(b"b")
    assert replica.listener.values == [b"b"]


async def test_voter_that_lost_the_record_of_the_other_voters_fetches_it_from_them(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of its log names no other voter: if it continued alone, there would be two leaders."""
    await cluster.commit(b"a")
    leader = await cluster.leader()
    first = next(r for r in cluster.replicas if r is not leader)
    await first.stop()
    first.memory_disk.open(f"{DIRECTORY}/{0:020}.log").truncate(0)
    all_ids = cluster.voters
    cluster.voters = VoterSet([present(all_ids.get(first.key.id))])  # as it was formatted
    state = QuorumStateStore(first.memory_disk, DIRECTORY)
    known = state.read()
    state.write(replace(known, leader_id=None, voted=None))
    with pytest.raises(QuorumStateError, match=r"If there are others, .*bootstrap\.servers"):
        await first.start()
    first.log.close()
    state.write(known)
    await first.start()
    await cluster.until(lambda: present(first.live._core).state.recovery is None)
    await cluster.commit(b"b")
    assert first.listener.values == [b"a", b"b"] and first.live.voters.ids == all_ids.ids
