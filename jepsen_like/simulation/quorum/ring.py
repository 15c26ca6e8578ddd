"""Ring 1 of the simulation: pure Raft cores under a plan of faults, every invariant after every event.

The faults fill the time of the schedule. In half of the schedules a minority then stays broken, and the
majority must keep working. In the end all schedules heal all faults and demand progress: one leader, a new
value committed on every replica, equal logs.
"""

import random
from functools import partial

from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import DIRECTED
from pykraft.jepsen_like.simulation.quorum.directed.snapshots import SNAPSHOTS_DIRECTED
from pykraft.jepsen_like.simulation.quorum.directed.upgrades import UPGRADES_DIRECTED
from pykraft.jepsen_like.simulation.quorum.directed.voters import VOTERS_DIRECTED
from pykraft.jepsen_like.simulation.quorum.narrator import Narrator, describe_options
from pykraft.jepsen_like.simulation.quorum.nemesis import QuorumNemesis
from pykraft.jepsen_like.simulation.quorum.plan import PARTS, draw_plan, planned
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.jepsen_like.simulation.quorum.stranger import Stranger, comes
from pykraft.jepsen_like.simulation.quorum.upgrades import UpgradeAdmin
from pykraft.jepsen_like.simulation.schedule import Outcome, Ring, Schedule
from pykraft.jepsen_like.simulation.story import Story
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.quorum.core.messages import RemoveRaftVoterRequest

ALL_DIRECTED = DIRECTED | SNAPSHOTS_DIRECTED | VOTERS_DIRECTED | UPGRADES_DIRECTED
PROGRESS_WITHIN_MS = 2_000
STABLE_WITHIN_MS = 1_000
STEADY_MS = 1_000
OPEN_CHANGES_END_MS = 500


def run_schedule(schedule: Schedule, story: Story | None = None) -> Outcome:
    """Run one schedule; raises the errors of the invariants and of the core's own assertions."""
    plan = draw_plan(schedule)
    cluster = SimCluster(schedule.seed, plan.options)
    if story is not None:
        story.preface.append(describe_options(plan.options))
        cluster.narrator = Narrator(story)
    nemesis = QuorumNemesis(cluster, plan)
    cluster.start_all()
    if "client" not in schedule.without:
        cluster.start_client()
    nemesis.start()
    admin = UpgradeAdmin(cluster) if plan.options.upgraded else None
    stranger = Stranger(cluster) if comes(schedule.seed) and "stranger" not in schedule.without else None
    cluster.scheduler.run(schedule.duration_ms)
    if stranger is not None:
        stranger.leave()
    if plan.lasting:
        nemesis.stop()
        cluster.scheduler.run(cluster.scheduler.now_ms + OPEN_CHANGES_END_MS)
        nemesis.leave_a_majority(random.Random(schedule.seed + 1))
        if "client" in schedule.without:
            cluster.start_client()
        demand_steady_service(cluster)
    nemesis.stop()
    replicas = list(cluster.replicas.values())
    demand_progress(cluster, replicas)
    if admin is not None:
        demand_upgrade(cluster)
    if plan.options.voters_in_log or admin is not None:
        demand_voter_change(cluster)
    cluster.checker.check_everything(replicas)
    counts = {
        "elections": cluster.elections,
        "leader changes after a commit": cluster.leader_changes_after_commit,
        "acknowledged": len(cluster.checker.history.acknowledged),
        "messages of strangers": 0 if stranger is None else stranger.messages,
        "voter changes": cluster.voter_changes["NONE"],
        "voter changes refused or timed out": cluster.voter_changes.total() - cluster.voter_changes["NONE"],
    }
    if admin is not None:
        counts |= {"upgrades appended": admin.made, "upgrades refused": admin.refused}
    return Outcome(
        schedule.seed,
        cluster.events,
        cluster.scheduler.now_ms,
        cluster.trace.hexdigest(),
        dict(nemesis.injected),
        counts,
        len(plan.faults),
    )


def demand_steady_service(cluster: SimCluster) -> None:
    """Demand service from a well connected majority while the rest stays dead or partly cut off.

    The client must be answered in time, and from then on the leader must not change: badly connected replicas
    must not disturb the others.
    """
    acknowledged = cluster.checker.history.acknowledged
    wanted = len(acknowledged) + 5
    limit_ms = cluster.scheduler.now_ms + PROGRESS_WITHIN_MS
    if not cluster.run_until(lambda: len(acknowledged) >= wanted, limit_ms):
        raise InvariantViolation("progress", "a healthy majority makes no progress because of the rest")
    cluster.scheduler.run(cluster.scheduler.now_ms + STABLE_WITHIN_MS)
    elections, wanted = cluster.elections, len(acknowledged) + 5
    cluster.scheduler.run(cluster.scheduler.now_ms + STEADY_MS)
    if cluster.elections > elections or len(acknowledged) < wanted:
        raise InvariantViolation("progress", "a healthy majority is disturbed by the rest")


def demand_progress(cluster: SimCluster, replicas: list[SimReplica]) -> None:
    """Demand that these replicas agree on a leader and all commit a new value of it in time."""
    limit_ms = cluster.scheduler.now_ms + PROGRESS_WITHIN_MS
    end_offset: dict[int, int] = {}  # the end offset of the value, by the epoch in which it was proposed

    def committed() -> bool:
        leader = next((r for r in replicas if r.leads), None)
        if leader is None or not all(r.alive for r in replicas):
            return False
        epoch = leader.core.state.epoch
        if not all(r.core.state.epoch == epoch and r.core.state.leader_id == leader.id for r in replicas):
            return False
        if epoch not in end_offset:
            cluster.propose(leader)
            end_offset[epoch] = leader.core.state.log.end_offset
        return all(r.core.state.high_watermark >= end_offset[epoch] for r in replicas)

    if not cluster.run_until(committed, limit_ms):
        who = ", ".join(str(replica.id) for replica in replicas)
        raise InvariantViolation(
            "progress", f"{who} did not commit a new value within {PROGRESS_WITHIN_MS} ms"
        )


def demand_upgrade(cluster: SimCluster) -> None:
    """Demand that the voters are in every log in time, and committed: the admin goes on asking."""
    limit_ms = cluster.scheduler.now_ms + PROGRESS_WITHIN_MS

    def is_made() -> bool:
        states = [replica.core.state for replica in cluster.replicas.values()]
        return all(it.voters.is_dynamic and it.high_watermark > it.history.current_offset for it in states)

    if not cluster.run_until(is_made, limit_ms):
        raise InvariantViolation("progress", "kraft.version was not upgraded")


def demand_voter_change(cluster: SimCluster) -> None:
    """Demand that voters can change: self-joining controllers have joined, or an asked removal succeeds."""
    limit_ms = cluster.scheduler.now_ms + PROGRESS_WITHIN_MS
    controllers = [r for r in cluster.replicas.values() if cluster.configs[r.id].auto_join]
    if controllers:
        if not cluster.run_until(lambda: all(r.is_voter for r in controllers), limit_ms):
            raise InvariantViolation("progress", "a controller with auto-join did not become a voter")
        return
    leader = cluster.leader()
    assert leader is not None
    others = [v.key for v in leader.voters_in_log if v.key.id != leader.id]
    lost = [key for key in others if not cluster.holds_vote_of(key)]
    if len(others) > 1:
        changes = cluster.voter_changes["NONE"]
        cluster.ask_for_change(leader, RemoveRaftVoterRequest("sim", (lost or others)[0], PROGRESS_WITHIN_MS))
        if not cluster.run_until(lambda: cluster.voter_changes["NONE"] > changes, limit_ms):
            raise InvariantViolation("progress", f"a voter was not removed: {dict(cluster.voter_changes)}")


def run_directed(name: str) -> SimCluster:
    """Run one schedule written by hand, and demand progress as after any other."""
    cluster = ALL_DIRECTED[name]()
    for replica in cluster.replicas.values():
        replica.paused_until_ms = 0
    cluster.links.become_perfect()
    cluster.max_fetch_batches = 1000
    cluster.start_all()
    replicas = list(cluster.replicas.values())
    demand_progress(cluster, replicas)
    cluster.checker.check_everything(replicas)
    return cluster


RING = Ring(
    "quorum", run_schedule, 1.0, PARTS, planned, {name: partial(run_directed, name) for name in ALL_DIRECTED}
)
