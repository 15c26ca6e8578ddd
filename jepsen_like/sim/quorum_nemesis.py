"""What goes wrong in a simulated quorum, and when; all of it drawn from the seed.

Besides uniform faults there are aimed ones, because uniform chance all but never hits the windows that
matter: dying right after granting a vote and coming back at once, dying after an append and before its
flush, faults that seek out the leader, and cuts that let traffic through one way only.
"""

from __future__ import annotations

import random

from pykraft.jepsen_like.sim.quorum_cluster import ClusterOptions, SimCluster
from pykraft.jepsen_like.sim.quorum_replica import SimReplica
from pykraft.quorum.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    Effect,
    FlushLog,
    PersistElectionState,
    Reply,
    Send,
)
from pykraft.quorum.events import ShutdownRequested


def draw_options(rng: random.Random) -> ClusterOptions:
    return ClusterOptions(
        voters=rng.choice((3, 3, 3, 4, 5, 5)),
        observers=rng.choice((0, 0, 1, 2)),
        max_delay_ms=rng.choice((2, 5, 5, 20)),
        max_flush_ms=rng.choice((1, 4, 4, 20)),
        max_fetch_batches=rng.choice((1, 1, 3, 1000)),
        proposal_gap_ms=rng.choice((2, 5, 10)),
        static_voters=rng.choice((False, False, True)),
    )


class QuorumNemesis:
    """Draws a mix of faults, then breaks something every now and then until told to stop."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.active = True
        self.storm_ends_ms = 2000
        self.gap_ms = rng.choice((30, 80, 200))
        self.leader_bias = rng.choice((0.3, 0.7))
        self.vote_kill_chance = rng.choice((0.0, 0.1, 0.4))
        links = cluster.links
        links.drop = rng.choice((0.0, 0.0, 0.02, 0.1))
        links.duplicate = rng.choice((0.0, 0.05, 0.2))
        links.straggle = rng.choice((0.0, 0.02, 0.1))
        kinds = (
            "crash",
            "restart",
            "pause",
            "isolate",
            "cut out",
            "cut in",
            "split",
            "heal",
            "hand over",
            "all",
        )
        self.weights = {kind: rng.choice((0, 1, 2, 4)) for kind in kinds}
        self.weights["crash"] += 1
        self.weights["heal"] += 2
        self.weights["all"] = min(self.weights["all"], 1)
        cluster.kill_chance = self._draw_kill_chances()
        cluster.on_vote_granted = self._after_vote
        cluster.on_killed = self._revive

    def _draw_kill_chances(self) -> dict[type[Effect], float]:
        chances: dict[type[Effect], float] = {}
        if self.rng.random() < 0.5:
            chance = self.rng.choice((0.002, 0.01))
            chances = {AppendFetched: chance, AppendProposal: chance, AppendLeaderChange: 4 * chance}
        if self.rng.random() < 0.5:
            chances |= {PersistElectionState: 0.02, Reply: 0.001, Send: 0.001, FlushLog: 0.002}
        return chances

    def start(self) -> None:
        self.cluster.scheduler.after(1 + self.rng.randrange(2 * self.gap_ms), self._turn)

    def leave_a_majority(self, rng: random.Random) -> None:
        """Heal a majority of voters; leave the other replicas dead, deaf or mute, and do nothing more."""
        self.stop()
        cluster = self.cluster
        ids = list(cluster.replicas)
        voters = list(cluster.voters.ids)
        rng.shuffle(voters)
        spared = voters[: cluster.voters.majority]
        for replica in cluster.replicas.values():
            if replica.id not in spared:
                match rng.randrange(3):
                    case 0:
                        replica.crash()
                    case 1:
                        cluster.links.cut(ids, [replica.id])
                    case 2:
                        cluster.links.cut([replica.id], ids)

    def stop(self) -> None:
        """Undo everything: perfect links, whole fetches, every replica running and awake."""
        self.active = False
        cluster = self.cluster
        cluster.kill_chance = {}
        cluster.links.become_perfect()
        cluster.max_fetch_batches = 1000
        for replica in cluster.replicas.values():
            replica.paused_until_ms = 0
        cluster.start_all()

    def _turn(self) -> None:
        if not self.active:
            return
        if self.cluster.scheduler.now_ms >= self.storm_ends_ms:
            self._calm()
            return
        kinds = list(self.weights)
        kind = self.rng.choices(kinds, [self.weights[kind] for kind in kinds])[0]
        self._break(kind)
        self.start()

    def _calm(self) -> None:
        """Storms end: the cuts heal and for a while nothing more is done; then the next one begins."""
        self.cluster.links.heal()
        calm_ms = self.rng.choice((100, 500, 1500))
        self.storm_ends_ms = self.cluster.scheduler.now_ms + calm_ms + self.rng.choice((300, 1000, 3000))
        self.cluster.scheduler.after(calm_ms, self._turn)

    def _victim(self) -> SimReplica:
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < self.leader_bias:
            return leader
        return self.rng.choice(list(self.cluster.replicas.values()))

    def _break(self, kind: str) -> None:
        cluster, rng, links = self.cluster, self.rng, self.cluster.links
        victim = self._victim()
        ids = list(cluster.replicas)
        match kind:
            case "crash":
                if victim.alive:
                    cluster.kill(victim)
            case "all":
                for replica in cluster.replicas.values():
                    if replica.alive:
                        cluster.kill(replica)
            case "restart":
                if victim.alive:
                    victim.crash()
                    victim.start()
            case "pause":
                cluster.pause(victim, rng.choice((20, 150, 500)))
            case "isolate":
                links.partition([victim.id], ids)
            case "cut out":
                links.cut([victim.id], rng.sample(ids, rng.randrange(1, len(ids) + 1)))
            case "cut in":
                links.cut(rng.sample(ids, rng.randrange(1, len(ids) + 1)), [victim.id])
            case "split":
                rng.shuffle(ids)
                links.partition(ids[: len(ids) // 2], ids[len(ids) // 2 :])
            case "heal":
                links.heal()
            case "hand over":
                if victim.leads and not victim.core.state.shutting_down:
                    delay_ms = 1 + rng.randrange(100)
                    cluster.scheduler.after(delay_ms, self._kill_incarnation, victim, victim.incarnation)
                    victim.step(ShutdownRequested())

    def _after_vote(self, replica: SimReplica) -> None:
        """Die with the vote given and its answer on the way, and be back before the election is over."""
        if self.active and self.rng.random() < self.vote_kill_chance:
            self.cluster.scheduler.after(0, self._kill_incarnation, replica, replica.incarnation)

    def _kill_incarnation(self, replica: SimReplica, incarnation: int) -> None:
        if replica.alive and replica.incarnation == incarnation:
            replica.crash()
            self.cluster.scheduler.after(1 + self.rng.randrange(8), self._start, replica)

    def _revive(self, replica: SimReplica) -> None:
        delay_ms = self.rng.choice((1, 10, 60, 300))
        self.cluster.scheduler.after(delay_ms, self._start, replica)

    def _start(self, replica: SimReplica) -> None:
        if not replica.alive:
            replica.start()
