"""A replica is killed after each single effect of a change of voters, and restarted.

Random schedules reach few of these points; here all of them are tested. The invariants hold after every
event, the changes are made in the end, and the quorum makes progress. (KIP-853; Raft thesis, chapter 4.)
"""

from dataclasses import dataclass, field

import pytest

from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import reach
from pykraft.jepsen_like.simulation.quorum.invariants.history import ReplicaView
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.jepsen_like.simulation.quorum.ring import demand_progress
from pykraft.quorum.core.effects import Effect
from pykraft.quorum.core.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.voters import Voter
from tests.narrowing import as_type

ASK_AGAIN_MS = 250
TRIES = 30
CHANGES = {
    "1 → 2 → 1, the other one": (1, 1, "+2 -1"),
    "1 → 2 → 1 → 2": (1, 1, "+2 -2 +2"),
    "2 → 1 → 2": (2, 0, "-1 +1"),
    "2 → 3 → 2 → 1": (2, 1, "+3 -1 -2"),
    "3 → 4 → 3 → 2": (3, 1, "+4 -1 -2"),
    "1, fixed → in the log → 2 → 1": (1, 1, "upgrade +2 -1"),
    "3, fixed → in the log → 4 → 3": (3, 1, "upgrade +4 -1"),
}


@dataclass
class _KillAtEffect:
    """Kills ``victim`` right after its ``at``-th effect, counted from when it is armed."""

    cluster: SimCluster
    victim: int
    at: int
    back_after_ms: int
    armed: bool = False
    seen: int = 0
    kills: list[str] = field(default_factory=list)

    def watch(self) -> None:
        checker, cluster = self.cluster.checker, self.cluster
        effect_done = checker.effect_done

        def observed(replica: ReplicaView, effect: Effect) -> None:
            effect_done(replica, effect)
            self._aim(replica, effect)

        checker.effect_done = observed  # type: ignore[method-assign]
        cluster.on_killed = self._killed

    def _aim(self, replica: ReplicaView, effect: Effect) -> None:
        if self.armed and replica.id == self.victim:
            self.seen += 1
            if self.seen == self.at:
                self.cluster.kill_chance[type(effect)] = 1.1

    def _killed(self, replica: SimReplica, effect: Effect) -> None:
        self.cluster.kill_chance.clear()
        self.kills.append(type(effect).__name__)
        self.cluster.scheduler.after(self.back_after_ms, self._bring_back, replica)

    def _bring_back(self, replica: SimReplica) -> None:
        if not replica.alive:
            replica.start()


def _change(cluster: SimCluster, node_id: int, *, to_voter: bool) -> None:
    """Ask the current leader repeatedly until the change is made and committed."""
    replica = cluster.replicas[node_id]

    def is_made() -> bool:
        leader = cluster.leader()
        if leader is None:
            return False
        state = leader.core.state
        committed = state.high_watermark > max(
            state.history.current_offset, as_type(state.role, Leader).epoch_start_offset
        )
        return committed and state.voters.is_voter(replica.key) is to_voter

    for _ in range(TRIES):
        leader = cluster.leader()
        if leader is not None and to_voter:
            voter = Voter(replica.key, cluster.address_of(replica))
            cluster.ask_for_change(leader, AddRaftVoterRequest("sim", voter, ASK_AGAIN_MS))
        elif leader is not None:
            cluster.ask_for_change(leader, RemoveRaftVoterRequest("sim", replica.key, ASK_AGAIN_MS))
        if cluster.run_until(is_made, cluster.scheduler.now_ms + ASK_AGAIN_MS):
            return
    pytest.fail(f"{node_id} never became {'a voter' if to_voter else 'an observer'}")


def _upgrade(cluster: SimCluster) -> None:
    """Have the current leader upgrade kraft.version, repeatedly, until that is committed."""

    def is_made() -> bool:
        leader = cluster.leader()
        state = None if leader is None else leader.core.state
        return (
            state is not None
            and state.voters.is_dynamic
            and state.high_watermark > state.history.current_offset
        )

    for _ in range(TRIES):
        leader = cluster.leader()
        if leader is not None and not leader.voters_in_log.is_dynamic:
            cluster.upgrade(leader)
        if cluster.run_until(is_made, cluster.scheduler.now_ms + ASK_AGAIN_MS):
            return
    pytest.fail("kraft.version was never upgraded")


def _run(name: str, seed: int, victim: int, at: int, back_after_ms: int) -> _KillAtEffect:
    voters, observers, changes = CHANGES[name]
    is_fixed = changes.startswith("upgrade")
    options = ClusterOptions(
        voters=voters,
        observers=observers,
        max_delay_ms=2,
        max_flush_ms=3,
        static_voters=is_fixed,
        upgraded=is_fixed,
        voters_in_log=not is_fixed,
    )
    cluster = SimCluster(seed, options)
    killer = _KillAtEffect(cluster, victim, at, back_after_ms)
    killer.watch()
    cluster.start_all()
    replicas = list(cluster.replicas.values())
    demand_progress(cluster, replicas)
    killer.armed = True
    for change in changes.split():
        if change == "upgrade":
            _upgrade(cluster)
            continue
        _change(cluster, int(change[1:]), to_voter=change[0] == "+")
    killer.armed = False
    cluster.kill_chance.clear()
    reach(cluster, lambda: all(r.alive for r in replicas), "all replicas are up")
    demand_progress(cluster, replicas)
    cluster.checker.check_everything(replicas)
    return killer


@pytest.mark.parametrize("back_after_ms", [1, 400])
@pytest.mark.parametrize("name", CHANGES)
def test_change_is_made_at_whatever_point_a_replica_fails(name: str, back_after_ms: int) -> None:
    for victim in range(1, sum(CHANGES[name][:2]) + 1):
        last = _run(name, 1, victim, 0, back_after_ms).seen
        assert last > 10
        for at in range(1, last + 1):
            assert len(_run(name, 1, victim, at, back_after_ms).kills) == 1
