"""Schedules written by hand for histories that random schedules do not find.

Each brings a cluster into one precise situation, and then lets it continue under the usual invariants.
Elections are steered by expiring the timer of a chosen replica.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pykraft.jepsen_like.simulation.quorum.cluster import CONFIG, SimCluster
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.events import TimerFired
from pykraft.quorum.core.messages import RemoveRaftVoterRequest
from pykraft.quorum.core.roles import Candidate, ElectionState, Follower, Leader, Poll, Resigned, Unattached
from pykraft.quorum.core.voters import ReplicaKey


def run_out_timer(replica: SimReplica) -> None:
    """The replica's election (or fetch) timer expires now."""
    now_ms = replica.clock.now_ms()
    role = replica.core.state.role
    match role:
        case Unattached() | Resigned():
            role.election_deadline_ms = now_ms
        case Follower():
            role.fetch_deadline_ms = now_ms
        case Poll():
            role.deadline_ms = now_ms
            role.lost = True
        case Leader():
            return
    replica.step(TimerFired())


def elect(cluster: SimCluster, replica: SimReplica, within_ms: int = 2000) -> None:
    """Have ``replica`` start elections until it leads."""
    limit_ms = cluster.scheduler.now_ms + within_ms
    while not replica.leads:
        run_out_timer(replica)
        pause_ms = cluster.scheduler.now_ms + 40
        cluster.run_until(lambda: replica.leads, pause_ms)
        if cluster.scheduler.now_ms > limit_ms:
            raise InvariantViolation("the schedule qualifies", f"{replica.id} was not elected")


def reach(cluster: SimCluster, condition: Callable[[], bool], what: str, within_ms: int = 2000) -> None:
    if not cluster.run_until(condition, cluster.scheduler.now_ms + within_ms):
        raise InvariantViolation("the schedule qualifies", f"this was never reached: {what}")


def started(seed: int, config: QuorumConfig = CONFIG, **options: Any) -> SimCluster:
    """Three voters, unless ``options`` say otherwise, with the shortest delays."""
    named = ClusterOptions(**{"voters": 3, **options}, max_delay_ms=1, max_flush_ms=1)
    cluster = SimCluster(seed, named, config)
    cluster.start_all()
    return cluster


def on_a_common_start(seed: int, config: QuorumConfig = CONFIG, **options: Any) -> SimCluster:
    """1 leads, and all know its first record as committed."""
    cluster = started(seed, config, **options)
    elect(cluster, cluster.replicas[1])
    replicas = cluster.replicas.values()
    reach(cluster, lambda: all(r.core.state.high_watermark == 1 for r in replicas), "a common start")
    return cluster


def figure_8() -> SimCluster:
    """Raft's figure 8: a record of an old epoch reaches a majority under a new leader, and is replaced.

    1 appends "a" in its epoch, alone. 3 is elected by 2 and appends in a later epoch, alone. 1 is elected by
    2, which fetches "a" but not yet the new LeaderChange: now a majority holds "a", and yet 3, whose last
    record is newer, may still be elected by 2 and replace it. So "a" must not count as committed.
    """
    cluster = on_a_common_start(8, max_fetch_batches=1)
    one, two, three = cluster.replicas.values()

    cluster.links.partition([1], [2, 3])
    cluster.propose(one)
    reach(cluster, lambda: one.core.state.log.flushed_offset == 2, "'a' flushed on 1")
    elect(cluster, three)
    cluster.links.partition([3], [1, 2])
    reach(cluster, lambda: three.core.state.log.flushed_offset == 2, "the LeaderChange flushed on 3")
    old_epoch_record = one.batches[1]
    assert three.batches[1].epoch > old_epoch_record.epoch and len(two.batches) == 1

    three.crash()
    one.crash()
    two.crash()
    cluster.links.heal()
    one.start()
    two.start()
    elect(cluster, one)

    def majority_holds_it() -> bool:
        role = one.core.state.role
        return isinstance(role, Leader) and role.progress[2].end_offset == 2

    reach(cluster, majority_holds_it, "'a' on a majority")
    one.crash()
    two.crash()
    assert two.batches[1] == old_epoch_record and len(two.batches) == 2
    three.start()
    two.start()
    elect(cluster, three)
    one.start()
    return cluster


def vote_survives_a_crash() -> SimCluster:
    """2 votes for 1 and dies with the answer on its way; then 3 asks for its vote in the same epoch."""
    cluster = started(9)
    one, two, three = cluster.replicas.values()
    cluster.links.partition([3], [1, 2])
    granted: list[int] = []

    def die(replica: SimReplica) -> None:
        if not granted:
            granted.append(replica.id)
            cluster.scheduler.after(0, replica.crash)

    cluster.on_vote_granted = die
    run_out_timer(one)
    reach(cluster, lambda: bool(granted) and not two.alive, "2 votes and dies")
    cluster.links.heal()
    run_out_timer(three)
    two.start()
    return cluster


def late_vote() -> SimCluster:
    """2 votes for 1, but the answer is late: by then 1 has started another election, and 2 elected 3."""
    cluster = started(10)
    one, three = cluster.replicas[1], cluster.replicas[3]
    cluster.links.partition([3], [1, 2])
    run_out_timer(one)
    reach(cluster, lambda: isinstance(one.core.state.role, Candidate), "1 is a candidate")
    cluster.hold_answers_of.add(2)
    reach(cluster, lambda: bool(cluster.held), "2 votes for 1")
    cluster.hold_answers_of.clear()
    run_out_timer(one)
    cluster.links.cut([1], [2])
    reach(cluster, lambda: one.core.state.epoch == 2, "1 is a candidate again")
    cluster.links.heal()
    cluster.links.partition([1], [2, 3])
    elect(cluster, three, within_ms=100)
    assert one.core.state.epoch == three.core.state.epoch
    cluster.release_answers()
    return cluster


def replaced_disk() -> SimCluster:
    """A value is on 1 and 2; then 2 restarts with an empty disk of another directory id, while 1 is down.

    3 lacks the value, and must not be elected: the vote that it needs would be that of a disk that is not a
    voter.
    """
    cluster = on_a_common_start(11)
    one, two, three = cluster.replicas.values()
    cluster.links.partition([3], [1, 2])
    cluster.propose(one)
    reach(cluster, lambda: all(r.core.state.high_watermark == 2 for r in (one, two)), "the value on 1 and 2")
    one.crash()
    two.crash()
    two.replace_disk(ReplicaKey(2, Uuid(b"2" * 16)))
    cluster.links.heal()
    two.start()
    three_leads = cluster.run_until(lambda: three.leads, cluster.scheduler.now_ms + 2000)
    assert not three_leads, "3 was elected by a disk that is not a voter"
    one.start()
    return cluster


def strangers_fetch() -> SimCluster:
    """A replaced disk fetches under the id of voter 2; while 3 is down that completes no majority."""
    cluster = started(13)
    one, two, three = cluster.replicas.values()
    elect(cluster, one)
    reach(cluster, lambda: one.core.state.high_watermark == 1, "a start")
    three.crash()
    two.crash()
    two.replace_disk(ReplicaKey(2, Uuid(b"2" * 16)))
    two.start()
    cluster.propose(one)
    reach(cluster, lambda: two.durable_end_offset == 2, "the value on the stranger's disk")
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + 50)
    assert one.core.state.high_watermark == 1, "a disk that is not a voter completed a majority"
    return cluster


def half_connected_voters() -> SimCluster:
    """3 cannot hear the leader, 4 no replica at all, but both are heard: the leader keeps its epoch."""
    cluster = started(16, voters=5)
    one = cluster.replicas[1]
    elect(cluster, one)
    reach(cluster, lambda: cluster.replicas[3].core.state.high_watermark == 1, "equal logs")
    cluster.links.cut([1], [3])
    cluster.links.cut(list(cluster.replicas), [4])
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + 3000)
    epochs = {replica.core.state.epoch for replica in cluster.replicas.values()}
    assert cluster.elections == 1 and epochs == {1}, (
        "voters that hear no leader disturbed one that others hear"
    )
    return cluster


def lost_announcement() -> SimCluster:
    """3 votes for 1, and 1's announcement is lost: it is repeated before 3 starts an election."""
    cluster = started(14)
    one, _, three = cluster.replicas.values()
    cluster.on_vote_granted = lambda _: cluster.links.cut([1], [3])
    elect(cluster, one)
    cluster.links.heal()
    assert isinstance(three.core.state.role, Unattached) and three.core.state.epoch == 1
    three.core.state.role.election_deadline_ms = three.clock.now_ms() + 120
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + 110)
    assert cluster.elections == 1 and three.core.state.leader_id == 1, "an announcement was not repeated"
    return cluster


def figure_8_unflushed() -> SimCluster:
    """Figure 8 with a leader whose older records were not flushed when it was elected.

    1 leads, appends "a" alone and cannot flush it. 3 is elected by 2 and appends, alone. 1 resigns and is
    elected again; its disk then reports only "a" as flushed, and 2 fetches only "a". 3 may still replace it.
    """
    cluster = on_a_common_start(15, max_fetch_batches=1)
    one, two, three = cluster.replicas.values()
    cluster.links.partition([1], [2, 3])
    cluster.hold_flushes_of.add(1)
    cluster.propose(one)
    elect(cluster, three)
    cluster.links.partition([3], [1, 2])
    reach(cluster, lambda: three.core.state.log.flushed_offset == 2, "the LeaderChange flushed on 3")
    three.crash()
    reach(cluster, lambda: not one.leads, "1 resigns")
    cluster.links.heal()
    elect(cluster, one)
    log = one.core.state.log
    assert log.flushed_offset == 1 and log.end_offset == 3
    cluster.release_flushes()

    def majority_holds_it() -> bool:
        role = one.core.state.role
        return isinstance(role, Leader) and role.progress[2].end_offset == 2 and log.flushed_offset >= 2

    cluster.hold_flushes_of.add(1)
    reach(cluster, majority_holds_it, "'a' on a majority")
    one.crash()
    two.crash()
    cluster.release_flushes()
    three.start()
    two.start()
    elect(cluster, three)
    one.start()
    return cluster


def pre_vote_needs_a_log() -> SimCluster:
    """The leader is dead and 3 lacks a value that 2 holds: its pre-votes do not raise the epoch."""
    cluster = started(16)
    one, two, three = cluster.replicas.values()
    elect(cluster, one)
    cluster.links.partition([3], [1, 2])
    cluster.propose(one)
    reach(cluster, lambda: all(r.core.state.high_watermark == 2 for r in (one, two)), "the value on 1 and 2")
    one.crash()
    cluster.links.heal()
    follower = two.core.state.role
    assert isinstance(follower, Follower)
    follower.fetch_deadline_ms += 10_000
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + cluster.config.live_leader_ms)
    for _ in range(5):
        run_out_timer(three)
        cluster.run_until(lambda: False, cluster.scheduler.now_ms + 30)
    assert two.core.state.epoch == three.core.state.epoch == 1, "a voter that cannot win raised the epoch"
    follower.fetch_deadline_ms = two.clock.now_ms()
    return cluster


def _replace_every_disk(cluster: SimCluster, controllers: list[SimReplica]) -> None:
    """Replace the disks one after the other; each replica joins again before the next disk is replaced."""
    for number, replica in enumerate(controllers):
        replica.crash()
        replica.replace_disk(ReplicaKey(replica.id, Uuid(bytes([100 + number]) * 16)))
        replica.start()
        reach(cluster, lambda: all(r.is_voter for r in controllers), "all are voters", within_ms=5000)
        reach(cluster, lambda: cluster.leader() is not None, "a leader")


def every_disk_replaced() -> SimCluster:
    """Every disk is replaced while 4, an observer, is away: it knows none of the voters, nor a leader."""
    options = ClusterOptions(
        voters=3, observers=1, max_delay_ms=1, max_flush_ms=1, voters_in_log=True, auto_join=True
    )
    cluster = SimCluster(17, options)
    *controllers, four = cluster.replicas.values()
    cluster.start_all()
    elect(cluster, controllers[0])
    reach(cluster, lambda: len(four.voters_in_log) == 3 and four.durable_end_offset > 0, "4 knows the voters")
    four.crash()
    _replace_every_disk(cluster, controllers)
    four.durable_election = ElectionState(four.durable_election.epoch)
    four.start()
    return cluster


def removed_while_away() -> SimCluster:
    """The same, but 4 was a voter and has been removed: the voters that it asks for votes no longer exist."""
    options = ClusterOptions(voters=4, max_delay_ms=1, max_flush_ms=1, voters_in_log=True)
    cluster = SimCluster(18, options)
    one, *_, four = cluster.replicas.values()
    cluster.start_all()
    elect(cluster, one)
    reach(cluster, lambda: all(r.core.state.high_watermark > 2 for r in cluster.replicas.values()), "a start")
    four.crash()
    cluster.ask_for_change(one, RemoveRaftVoterRequest("sim", four.key, 1000))
    reach(cluster, lambda: cluster.voter_changes["NONE"] == 1, "4 is removed")
    for id in (1, 2, 3):
        cluster.configs[id] = replace(cluster.configs[id], auto_join=True)
    _replace_every_disk(cluster, [cluster.replicas[id] for id in (1, 2, 3)])
    four.durable_election = ElectionState(four.durable_election.epoch)
    four.start()
    reach(cluster, lambda: not four.is_voter, "4 knows of it")
    return cluster


def equal_halves() -> SimCluster:
    """Four voters, partitioned into two halves: neither may elect a leader or commit."""
    cluster = started(12, voters=4)
    one, two, three, _ = cluster.replicas.values()
    elect(cluster, one)
    reach(cluster, lambda: two.core.state.high_watermark == 1, "a start")
    cluster.links.partition([1, 2], [3, 4])
    cluster.propose(one)
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + 1000)
    run_out_timer(three)
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + 1000)
    assert cluster.leader() is None and cluster.checker.history.committed_end_offset == 1
    return cluster


DIRECTED: dict[str, Callable[[], SimCluster]] = {
    "equal-halves": equal_halves,
    "every-disk-replaced": every_disk_replaced,
    "figure-8": figure_8,
    "figure-8-unflushed": figure_8_unflushed,
    "half-connected-voters": half_connected_voters,
    "late-vote": late_vote,
    "lost-announcement": lost_announcement,
    "pre-vote-needs-a-log": pre_vote_needs_a_log,
    "removed-while-away": removed_while_away,
    "replaced-disk": replaced_disk,
    "strangers-fetch": strangers_fetch,
    "vote-survives-a-crash": vote_survives_a_crash,
}
