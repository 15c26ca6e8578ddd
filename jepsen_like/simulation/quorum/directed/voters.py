"""Schedules written by hand in which the voters change, each for a known pitfall (KIP-853; Raft thesis, 4).

As in :mod:`.elections`, the usual invariants hold throughout, and every schedule ends with progress.
"""

from collections.abc import Callable
from functools import partial

from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import elect, reach, started
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from pykraft.quorum.core.voters import ReplicaKey, Voter

_TIMEOUT_MS = 400


def _cluster(seed: int, voters: int, observers: int = 0) -> SimCluster:
    """Replica 1 leads, and all replicas hold what it has committed."""
    cluster = started(seed, voters=voters, observers=observers, voters_in_log=True)
    elect(cluster, cluster.replicas[1])
    all_ids = cluster.replicas.values()
    reach(cluster, lambda: min(r.core.state.high_watermark for r in all_ids) == 3, "a common start")
    return cluster


def _add(cluster: SimCluster, leader: SimReplica, replica: SimReplica) -> None:
    voter = Voter(replica.key, cluster.address_of(replica))
    cluster.ask_for_change(leader, AddRaftVoterRequest("sim", voter, _TIMEOUT_MS))


def _remove(cluster: SimCluster, leader: SimReplica, replica: SimReplica) -> None:
    cluster.ask_for_change(leader, RemoveRaftVoterRequest("sim", replica.key, _TIMEOUT_MS))


def _wait(cluster: SimCluster, duration_ms: int) -> None:
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + duration_ms)


def change_in_a_new_epoch() -> SimCluster:
    """The bug of Raft's single-server changes (2015): a change before the epoch's first commit.

    1 adds 5 to four voters; only 1 and 5 have the record. 2 is elected by 3 and 4, and is asked to remove 1:
    that set of three could commit on 2 and 3 alone. But 1 may be elected by 4 and 5 (with itself three of the
    five voters that it knows), and would not know of that commit.
    """
    cluster = _cluster(31, voters=4, observers=1)
    one, two, three, four, five = cluster.replicas.values()
    cluster.links.partition([1, 5], [2, 3, 4])
    _add(cluster, one, five)
    reach(cluster, lambda: five.is_voter, "5 holds the record that adds it")
    cluster.on_elected = lambda replica: cluster.links.partition([4], [1, 2, 3, 5])
    elect(cluster, two)
    cluster.on_elected = None
    _remove(cluster, two, one)
    reach(cluster, lambda: three.durable_end_offset == two.core.state.log.flushed_offset > 3, "3 follows 2")
    _wait(cluster, 20)
    cluster.links.heal()
    cluster.links.partition([2, 3], [1, 4, 5])
    elect(cluster, one)
    reach(cluster, lambda: four.is_voter and len(four.voters_in_log) == 5, "4 takes over the voters of 1")
    return cluster


def addition_is_reverted() -> SimCluster:
    """4 was added by a leader that could not commit it: it is an observer again."""
    cluster = _cluster(32, voters=3, observers=1)
    one, two, _, four = cluster.replicas.values()
    cluster.links.partition([1, 4], [2, 3])
    _add(cluster, one, four)
    reach(cluster, lambda: four.is_voter, "4 holds the record that adds it")
    one.crash()
    elect(cluster, two)
    cluster.links.heal()
    one.start()
    reach(cluster, lambda: not four.is_voter and len(one.voters_in_log) == 3, "the addition is truncated")
    assert not four.core.state.is_voter and one.core.state.voters.ids == (1, 2, 3)
    return cluster


def voter_that_does_not_know() -> SimCluster:
    """3 was added, but only 2 knows it. 1 is dead: without the vote of 3 no leader could be elected."""
    cluster = _cluster(33, voters=2, observers=1)
    one, two, three = cluster.replicas.values()
    _add(cluster, one, three)
    reach(cluster, lambda: one.core.state.voters.majority == 2 and len(one.voters_in_log) == 3, "3 is added")
    cluster.links.partition([3], [1, 2])
    three.crash()  # all messages on their way to it are lost
    reach(cluster, lambda: len(two.voters_in_log) == 3, "2 knows of it")
    one.crash()
    cluster.links.heal()
    three.start()
    assert not three.is_voter, "3 should not know yet that it is a voter"
    elect(cluster, two)
    assert two.core.state.high_watermark <= three.core.state.log.end_offset + 4
    return cluster


def removed_leader() -> SimCluster:
    """1 removes itself and does not count itself: while 3 is away that is not committed; then 1 resigns."""
    cluster = _cluster(34, voters=3)
    one, _, three = cluster.replicas.values()
    three.crash()
    _remove(cluster, one, one)
    _wait(cluster, 100)
    assert one.leads and one.core.state.high_watermark == 3, "a removed leader counted itself"
    three.start()
    reach(cluster, lambda: not one.leads, "1 leads no longer")
    assert cluster.voter_changes["NONE"] == 1 and not one.core.state.is_voter
    reach(cluster, lambda: cluster.leader() is not None, "another leads")
    elections = cluster.elections
    _wait(cluster, 1000)
    assert cluster.elections == elections and cluster.leader() is not one, (
        "the removed leader did not stay quiet"
    )
    return cluster


def removal_that_only_the_removed_knows() -> SimCluster:
    """Two voters: 1 removes itself and dies before 2 has heard of it.

    2 cannot win without the vote of 1, whose log is longer; so 1 has to be elected, without counting itself,
    and commit its own removal.
    """
    cluster = _cluster(35, voters=2)
    one, two = cluster.replicas.values()
    cluster.links.partition([1], [2])
    _remove(cluster, one, one)
    reach(cluster, lambda: one.core.state.log.flushed_offset == 4, "the removal flushed on 1")
    one.crash()
    cluster.links.heal()
    one.start()
    assert not one.is_voter and two.is_voter and len(two.voters_in_log) == 2
    reach(cluster, lambda: two.leads and two.voters_in_log.ids == (2,), "2 leads alone", within_ms=3000)
    return cluster


def smaller_majority() -> SimCluster:
    """Three voters, 2 and 3 are dead; 3 cannot be removed, since the majority of {1, 2} is both of them."""
    cluster = _cluster(36, voters=3)
    one, two, three = cluster.replicas.values()
    two.crash()
    three.crash()
    _remove(cluster, one, three)
    _wait(cluster, 100)
    assert one.core.state.high_watermark == 3 and len(one.voters_in_log) == 2
    two.start()
    reach(cluster, lambda: cluster.voter_changes.total() == 1, "the change is answered")
    return cluster


def old_disk_still_votes() -> SimCluster:
    """The disk of 3 is replaced. The new one cannot take the place of the old one in one step.

    {1, 2, old 3} and {1, 2, new 3} differ in two voters: 1 with the old 3, and 2 with the new one, are
    majorities without a common voter.
    """
    cluster = _cluster(37, voters=3)
    one, _, three = cluster.replicas.values()
    three.crash()
    old_key = three.key
    three.replace_disk(ReplicaKey(3, Uuid(b"3" * 16)))
    three.start()
    reach(cluster, lambda: three.core.state.high_watermark == 3, "the new disk has caught up")
    _add(cluster, one, three)
    reach(cluster, lambda: cluster.voter_changes.total() == 1, "the addition is answered")
    assert dict(cluster.voter_changes) == {"DUPLICATE_VOTER": 1}
    cluster.ask_for_change(one, RemoveRaftVoterRequest("sim", old_key, _TIMEOUT_MS))
    _add(cluster, one, three)
    reach(cluster, lambda: three.is_voter and cluster.voter_changes["NONE"] == 2, "the new disk votes")
    return cluster


def addition_of_a_lagging_replica() -> SimCluster:
    """4 holds little of the log: it is not added, as commits might have to wait for it."""
    cluster = _cluster(38, voters=3, observers=1)
    one, _, _, four = cluster.replicas.values()
    four.crash()
    for _ in range(400):
        cluster.propose(one)
    _wait(cluster, 300)
    cluster.max_fetch_batches = 1
    four.start()
    _add(cluster, one, four)
    reach(cluster, lambda: cluster.voter_changes.total() == 1, "the addition is answered")
    assert dict(cluster.voter_changes) == {"REQUEST_TIMED_OUT": 1} and len(one.voters_in_log) == 3
    return cluster


def voter_that_was_replaced_while_away() -> SimCluster:
    """1 is away while all voters that it knows are replaced and removed. It finds the new ones."""
    cluster = _cluster(39, voters=3, observers=2)
    one, two, three, four, five = cluster.replicas.values()
    one.crash()
    elect(cluster, two)

    def finished(count: int) -> bool:
        return cluster.voter_changes["NONE"] == count

    reach(cluster, lambda: two.core.state.high_watermark == two.core.state.log.end_offset, "2 commits")
    for count, newcomer in enumerate((four, five), start=1):
        _add(cluster, two, newcomer)
        reach(cluster, partial(finished, count), f"{newcomer.id} is added")
    for count, gone in enumerate((one, three), start=3):
        _remove(cluster, two, gone)
        reach(cluster, partial(finished, count), f"{gone.id} is removed")
    three.crash()
    two.crash()
    elect(cluster, four)
    _remove(cluster, four, two)
    reach(cluster, partial(finished, 5), "2 is removed")
    one.start()
    reach(cluster, lambda: one.core.state.voters.ids == (4, 5), "1 knows the new voters")
    assert not one.core.state.is_voter and one.core.state.leader_id == four.id
    return cluster


VOTERS_DIRECTED: dict[str, Callable[[], SimCluster]] = {
    "addition-of-a-lagging-replica": addition_of_a_lagging_replica,
    "addition-is-reverted": addition_is_reverted,
    "change-in-a-new-epoch": change_in_a_new_epoch,
    "old-disk-still-votes": old_disk_still_votes,
    "removal-that-only-the-removed-knows": removal_that_only_the_removed_knows,
    "removed-leader": removed_leader,
    "smaller-majority": smaller_majority,
    "voter-that-does-not-know": voter_that_does_not_know,
    "voter-that-was-replaced-while-away": voter_that_was_replaced_while_away,
}
