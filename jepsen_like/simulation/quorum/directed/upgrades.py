"""Schedules written by hand in which fixed voters are upgraded to voters in the log (kraft.version 0 → 1).

As in :mod:`.elections`, the usual invariants hold throughout, and every schedule ends with progress.
"""

from collections.abc import Callable

from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import elect, reach, started
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from pykraft.quorum.core.voters import ReplicaKey, Voter

_TIMEOUT_MS = 400


def _cluster(seed: int, observers: int = 0) -> SimCluster:
    """Three fixed voters. Replica 1 leads, and all replicas hold what it has committed."""
    cluster = started(seed, observers=observers, static_voters=True, upgraded=True)
    elect(cluster, cluster.replicas[1])
    _commit(cluster, cluster.replicas[1], *cluster.replicas.values())
    return cluster


def _commit(cluster: SimCluster, leader: SimReplica, *on: SimReplica) -> None:
    cluster.propose(leader)
    end_offset = leader.core.state.log.end_offset
    reach(cluster, lambda: min(r.core.state.high_watermark for r in on) >= end_offset, "a common state")


def _upgrade(cluster: SimCluster, leader: SimReplica) -> None:
    objection = cluster.upgrade(leader)
    assert objection is None and leader.voters_in_log.is_dynamic, objection


def _add(cluster: SimCluster, leader: SimReplica, replica: SimReplica) -> None:
    voter = Voter(replica.key, cluster.address_of(replica))
    cluster.ask_for_change(leader, AddRaftVoterRequest("sim", voter, _TIMEOUT_MS))


def upgrade_is_reverted() -> SimCluster:
    """1 appends the upgrade alone, and 2 is elected: the voters are fixed again, until 2 upgrades them."""
    cluster = _cluster(51)
    one, two, three = cluster.replicas.values()
    cluster.links.partition([1], [2, 3])
    _upgrade(cluster, one)
    elect(cluster, two)
    cluster.links.heal()
    reach(cluster, lambda: not one.voters_in_log.is_dynamic, "the upgrade is truncated")
    assert one.core.state.voters == cluster.voters and one.is_voter
    _commit(cluster, two, one, two, three)
    _upgrade(cluster, two)
    _commit(cluster, two, one, two, three)
    assert {r.core.state.voters for r in (one, two, three)} == {two.voters_in_log}
    return cluster


def upgrade_is_completed_by_the_next_leader() -> SimCluster:
    """1 dies with the upgrade on 2 only. 3, which lacks it, votes for 2; then it is committed."""
    cluster = _cluster(52)
    one, two, three = cluster.replicas.values()
    cluster.links.partition([3], [1, 2])
    _upgrade(cluster, one)
    reach(cluster, lambda: two.voters_in_log.is_dynamic, "2 holds the upgrade")
    one.crash()
    cluster.links.heal()
    assert not three.voters_in_log.is_dynamic
    elect(cluster, two)
    reach(cluster, lambda: three.voters_in_log == two.voters_in_log, "3 holds the upgrade")
    _commit(cluster, two, two, three)
    return cluster


def voter_that_knows_the_fixed_voters_only() -> SimCluster:
    """4 was added after the upgrade, of which 3 does not know. With 1 dead, only 4 can be elected.

    2 lacks the newest record of 1, which 4 holds: 4 needs the vote of 3, which does not know it.
    """
    cluster = _cluster(53, observers=1)
    one, two, three, four = cluster.replicas.values()
    cluster.links.partition([3], [1, 2, 4])
    _upgrade(cluster, one)
    reach(cluster, lambda: two.voters_in_log.is_dynamic, "2 holds the upgrade")
    _add(cluster, one, four)
    reach(cluster, lambda: cluster.voter_changes["NONE"] == 1, "4 is added")
    cluster.links.heal()
    cluster.links.partition([2, 3], [1, 4])
    cluster.propose(one)
    reach(cluster, lambda: four.durable_end_offset == one.core.state.log.end_offset, "4 holds it")
    one.crash()
    cluster.links.heal()
    assert not three.voters_in_log.is_dynamic and two.durable_end_offset < four.durable_end_offset
    elect(cluster, four)
    _commit(cluster, four, two, three, four)
    return cluster


def upgrade_in_a_snapshot() -> SimCluster:
    """3 gets a snapshot in place of the upgrade's record. Over a restart it knows its voters from there."""
    cluster = _cluster(54)
    one, two, three = cluster.replicas.values()
    cluster.links.partition([3], [1, 2])
    _upgrade(cluster, one)
    _commit(cluster, one, one, two)
    for replica in (one, two):
        replica.snapshots.take()
        replica.snapshots.cut()
    cluster.links.heal()
    reach(cluster, lambda: three.voters_in_log.is_dynamic, "3 knows the voters from the snapshot")
    assert three.snapshots.latest is not None and three.core.state.voters == one.voters_in_log
    three.crash()
    three.start()
    assert three.core.state.voters == one.voters_in_log and three.core.state.is_voter
    return cluster


def disk_replaced_amid_an_upgrade() -> SimCluster:
    """The disk of 3 is replaced as 1 upgrades: the set names the old disk, and the new one does not vote.

    It was formatted with the fixed voters, and takes itself for one of them until it holds the upgrade.
    """
    cluster = _cluster(55)
    one, two, three = cluster.replicas.values()
    old_key = three.key
    three.crash()
    three.replace_disk(ReplicaKey(3, Uuid(b"3" * 16)))
    _upgrade(cluster, one)
    _commit(cluster, one, one, two)
    assert one.voters_in_log.is_voter(old_key) and not one.voters_in_log.is_voter(three.key)
    three.start()
    assert three.core.state.is_voter and not three.voters_in_log.is_dynamic
    reach(cluster, lambda: three.voters_in_log.is_dynamic, "3 holds the upgrade")
    assert not three.core.state.is_voter
    cluster.ask_for_change(one, RemoveRaftVoterRequest("sim", old_key, _TIMEOUT_MS))
    _add(cluster, one, three)
    reach(cluster, lambda: three.is_voter and cluster.voter_changes["NONE"] == 2, "the new disk votes")
    return cluster


def upgrade_without_a_voter() -> SimCluster:
    """3 is down: 1 refuses the upgrade, until 3 has fetched again."""
    cluster = _cluster(56)
    one, _, three = cluster.replicas.values()
    three.crash()
    _commit(cluster, one, one)
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + cluster.config.fetch_timeout_ms)
    objection = cluster.upgrade(one) or ""
    assert objection.startswith("voter 3 has not fetched for "), objection
    three.start()
    _commit(cluster, one, three)
    _upgrade(cluster, one)
    return cluster


UPGRADES_DIRECTED: dict[str, Callable[[], SimCluster]] = {
    "disk-replaced-amid-an-upgrade": disk_replaced_amid_an_upgrade,
    "upgrade-in-a-snapshot": upgrade_in_a_snapshot,
    "upgrade-is-completed-by-the-next-leader": upgrade_is_completed_by_the_next_leader,
    "upgrade-is-reverted": upgrade_is_reverted,
    "upgrade-without-a-voter": upgrade_without_a_voter,
    "voter-that-knows-the-fixed-voters-only": voter_that_knows_the_fixed_voters_only,
}
