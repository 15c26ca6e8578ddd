"""Carries out the plan of a seed on a simulated quorum, and counts the faults that were really injected.

Each fault lasts from its time to its end; the effects of several faults on one link, disk or clock end only
with the last of them. The victim is drawn with the fault's own chance when it begins.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
from pykraft.jepsen_like.simulation.quorum.plan import Fault, Plan
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import (
    AdvanceLogStart,
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    AppendSnapshotChunk,
    CheckSnapshot,
    Effect,
    FlushLog,
    InstallSnapshot,
    PersistElectionState,
    Reply,
    Send,
)
from pykraft.quorum.core.events import ShutdownRequested
from pykraft.quorum.core.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from pykraft.quorum.core.voters import ReplicaKey, Voter

_APPENDS: tuple[type[Effect], ...] = (AppendFetched, AppendProposal, AppendLeaderChange)
_BETWEEN: tuple[type[Effect], ...] = (PersistElectionState, Reply, Send, FlushLog)
_SNAPSHOTS: dict[type[Effect], float] = {
    AppendSnapshotChunk: 0.05,
    CheckSnapshot: 0.3,
    AdvanceLogStart: 0.3,
}
_RETURN_POLL_MS = 20
VOTER_CHANGE_TIMEOUT_MS = 200
TARGETED = frozenset(
    {
        "crash after a vote",
        "crash a new leader",
        "crash after an append",
        "crash between effects",
        "crash in a snapshot",
    }
)


class QuorumNemesis:
    """``injected`` counts faults by kind; an aimed one counts each time that it hits its window."""

    def __init__(self, cluster: SimCluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.active = True
        self.injected: Counter[str] = Counter()
        self._running: dict[int, Fault] = {}
        self._cuts: dict[int, set[tuple[int, int]]] = {}
        self._triggers: dict[int, Callable[[SimReplica], None]] = {}
        self._asked_ms = -VOTER_CHANGE_TIMEOUT_MS * 2
        self._lasting = False
        links = cluster.links
        links.drop, links.duplicate, links.straggle = plan.drop, plan.duplicate, plan.straggle
        cluster.on_vote_granted = partial(self._trigger, "crash after a vote")
        cluster.on_elected = partial(self._trigger, "crash a new leader")
        cluster.on_killed = self._killed_between_effects

    def start(self) -> None:
        for fault in self.plan.faults:
            self.cluster.scheduler.at(fault.at_ms, self._begin, fault)

    # --- begin and end ------------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> None:
        if not self.active:
            return
        rng = random.Random(fault.seed)
        if not self._inject(fault, rng):
            return
        begins = " begins" if fault.duration_ms else ""
        self.cluster.log_event("faults", f"{fault.kind}{begins} (fault {fault.number})")
        if fault.kind not in TARGETED:
            self.injected[fault.kind] += 1
        if fault.duration_ms:
            self._running[fault.number] = fault
            self._set_world()
            self.cluster.scheduler.after(fault.duration_ms, self._end, fault)

    def _end(self, fault: Fault) -> None:
        if self._running.pop(fault.number, None) is not None:
            self.cluster.log_event("faults", f"{fault.kind} ends (fault {fault.number})")
            self._cuts.pop(fault.number, None)
            self._triggers.pop(fault.number, None)
            self._set_world()

    def _set_world(self) -> None:
        """Set the links, the fetches and the places where processes die as the current faults want them."""
        cluster, plan = self.cluster, self.plan
        kinds = [fault.kind for fault in self._running.values()]
        links = cluster.links
        links.cuts = set().union(*self._cuts.values())
        links.drop = max(plan.drop, 0.3 * ("lossy links" in kinds))
        links.duplicate = max(plan.duplicate, 0.3 * ("repeating links" in kinds))
        links.straggle = max(plan.straggle, 0.2 * ("straggling links" in kinds))
        cluster.max_fetch_batches = 1 if "small fetches" in kinds else cluster.options.max_fetch_batches
        chances: dict[type[Effect], float] = {}
        if "crash between effects" in kinds:
            chances |= dict.fromkeys(_BETWEEN, 0.005) | {PersistElectionState: 0.05}
        if "crash in a snapshot" in kinds:
            chances |= _SNAPSHOTS
        if "crash after an append" in kinds:
            chances |= dict.fromkeys(_APPENDS, 0.02) | {AppendLeaderChange: 0.2}
        cluster.kill_chance = chances

    # --- striking -----------------------------------------------------------------------------------------

    def _inject(self, fault: Fault, rng: random.Random) -> bool:
        """Begin ``fault``; False if it fits no replica."""
        cluster = self.cluster
        leader = cluster.leader()
        replicas = list(cluster.replicas.values())
        victim = rng.choice(replicas)
        if leader is not None and rng.random() < self.plan.leader_bias:
            victim = leader
        match fault.kind:
            case "crash" if victim.alive:
                self._crash(victim, rng.choice((1, 10, 60, 300)))
            case "crash the leader" if leader is not None:
                self._crash(leader, rng.choice((1, 10, 60, 300)))
            case "restart" if victim.alive:
                victim.crash()
                victim.start()
            case "crash all":
                for replica in replicas:
                    self._crash(replica, rng.choice((1, 10, 60, 300)))
            case "pause":
                cluster.pause(victim, rng.choice((20, 150, 500)))
            case "hand over" if victim.leads and not victim.core.state.shutting_down:
                self._later(1 + rng.randrange(100), victim, victim.incarnation)
                victim.step(ShutdownRequested())
            case "isolate" | "cut out" | "cut in" | "split" | "flapping cut":
                self._cut(fault, victim.id, rng)
            case "slow disk":
                victim.slow_disk_until_ms = cluster.scheduler.now_ms + fault.duration_ms
            case "clock ahead":
                victim.clock.jump(rng.choice((30, 150, 1000, 20_000)))
                victim.rearm_timer()
            case "clock rate":
                victim.clock.set_rate(rng.choice((900, 950, 1050, 1100)))
                victim.rearm_timer()
                cluster.scheduler.after(fault.duration_ms, self._restore_rate, victim)
            case "disk loss":
                return self._lose_disk(rng.choice(replicas), rng)
            case "damaged log" if replicas:
                return self._damage(victim, rng)
            case "add voter" if leader is not None:
                return self._add_voter(leader, rng)
            case "remove voter" if leader is not None:
                return self._remove_voter(leader, rng)
            case "crash after a vote":
                self._aim(fault, rng, rng.choice((0.2, 0.5)), rng.choice((1, 1, 5)))
            case "crash a new leader":
                self._aim(fault, rng, 0.5, rng.choice((1, 20)))
            case "lossy links" | "repeating links" | "straggling links" | "small fetches":
                pass
            case "crash after an append" | "crash between effects":
                pass
            case "snapshot" if victim.alive and victim.paused_until_ms <= cluster.scheduler.now_ms:
                return self._snapshot(victim, rng)
            case "crash in a snapshot":
                for replica in replicas:
                    replica.snapshots.half_installed = rng.random() < 0.5
            case _:
                return False
        return True

    def _cut(self, fault: Fault, victim: int, rng: random.Random) -> None:
        ids = list(self.cluster.replicas)
        some = rng.sample(ids, rng.randrange(1, len(ids) + 1))
        match fault.kind:
            case "isolate":
                pairs = {(victim, other) for other in ids} | {(other, victim) for other in ids}
            case "split":
                half = rng.sample(ids, len(ids) // 2)
                pairs = {(a, b) for a in ids for b in ids if (a in half) != (b in half)}
            case "cut out":
                pairs = {(victim, other) for other in some}
            case _:
                pairs = {(other, victim) for other in some}
        if fault.kind == "flapping cut":
            if rng.random() < 0.5:
                pairs = {(b, a) for a, b in pairs}
            self._flap(fault, pairs, rng.choice((15, 60, 150)), down=True)
        self._cuts[fault.number] = {(a, b) for a, b in pairs if a != b}

    def _flap(self, fault: Fault, pairs: set[tuple[int, int]], gap_ms: int, *, down: bool) -> None:
        if self.active and self.cluster.scheduler.now_ms < fault.at_ms + fault.duration_ms:
            if fault.number in self._running:
                self._cuts[fault.number] = pairs if down else set()
                self._set_world()
            self.cluster.scheduler.after(gap_ms, partial(self._flap, fault, pairs, gap_ms, down=not down))

    # --- dying --------------------------------------------------------------------------------------------

    def _crash(self, replica: SimReplica, back_after_ms: int) -> None:
        if replica.alive:
            replica.crash()
            self.cluster.scheduler.after(back_after_ms, self._start, replica)

    def _killed_between_effects(self, replica: SimReplica, effect: Effect) -> None:
        aimed = "crash after an append" if type(effect) in _APPENDS else "crash between effects"
        if type(effect) in _SNAPSHOTS or isinstance(effect, InstallSnapshot):
            aimed = "crash in a snapshot"
        self.injected[aimed] += 1
        back_after_ms = (1, 10, 60, 300)[replica.rng.randrange(4)]
        self.cluster.scheduler.after(back_after_ms, self._start, replica)

    def _aim(self, fault: Fault, rng: random.Random, chance: float, longest_ms: int) -> None:
        """While ``fault`` lasts, a replica in its window may die within ``longest_ms``; it soon restarts."""

        def inject(replica: SimReplica) -> None:
            if rng.random() < chance:
                self.injected[fault.kind] += 1
                self._later(rng.randrange(longest_ms), replica, replica.incarnation, 1 + rng.randrange(8))

        self._triggers[fault.number] = inject

    def _trigger(self, kind: str, replica: SimReplica) -> None:
        for number, inject in self._triggers.items():
            if self._running[number].kind == kind:
                inject(replica)

    def _later(self, delay_ms: int, replica: SimReplica, incarnation: int, back_after_ms: int = 20) -> None:
        self.cluster.scheduler.after(delay_ms, self._crash_incarnation, replica, incarnation, back_after_ms)

    def _crash_incarnation(self, replica: SimReplica, incarnation: int, back_after_ms: int) -> None:
        if replica.incarnation == incarnation:
            self._crash(replica, back_after_ms)

    def _start(self, replica: SimReplica) -> None:
        if not replica.alive and replica.may_start:
            replica.start()

    # --- clocks and disks ---------------------------------------------------------------------------------

    def _restore_rate(self, replica: SimReplica) -> None:
        replica.clock.set_rate(1000)
        replica.rearm_timer()

    def _lose_disk(self, replica: SimReplica, rng: random.Random) -> bool:
        """Replace a voter's disk by an empty one. A majority of the voters always keep theirs.

        Under another directory id the replica is no longer a voter. Where voters are named by id alone it
        still is one, although it has forgotten its vote and its log; so it must stay away until all others
        have left its last epoch and hold everything committed. (Only an operator can ensure that.)
        """
        cluster = self.cluster
        sets = cluster.voter_sets()
        if (
            not replica.is_voter
            or not replica.may_start
            or any(voters != sets[0] for voters in sets)
            or self._change_is_open()
        ):
            return False
        kept = [voter for voter in sets[0] if cluster.keeps_records(voter.key) and voter.key.id != replica.id]
        if len(kept) < max(sets[0].majority, len(sets[0]) - 1):
            return False
        if replica.alive:
            replica.crash()
        epoch = replica.durable_election.epoch
        replica.replace_disk(ReplicaKey(replica.id, Uuid(rng.randbytes(16))))
        if not sets[0].is_dynamic:
            replica.may_start = False
            self._return_when_safe(replica, epoch, polls=0)
        else:
            cluster.scheduler.after(rng.choice((1, 60, 300)), self._start, replica)
        return True

    def _damage(self, replica: SimReplica, rng: random.Random) -> bool:
        """Make flushed records at the end of a replica's log unreadable, and restart it.

        In every current voter set a majority keeps its records; otherwise no leader could be elected again.
        """
        if self._change_is_open() or not self._leaves_a_majority_with_its_records(replica.id):
            return False
        if replica.alive:
            replica.crash()
        damaged = replica.lose_flushed(rng.choice((1, 1, 2, 5, 50)))
        self.cluster.scheduler.after(rng.choice((1, 10, 60, 300)), self._start, replica)
        return damaged

    def _leaves_a_majority_with_its_records(self, without_id: int) -> bool:
        cluster = self.cluster
        return all(
            sum(cluster.keeps_records(v.key) for v in voters if v.key.id != without_id) >= voters.majority
            for voters in cluster.voter_sets()
        )

    def _return_when_safe(self, replica: SimReplica, lost_epoch: int, polls: int) -> None:
        """Restart the replica once that is safe; from time to time restart a leader whose epoch must end."""
        cluster = self.cluster
        others = [r for r in cluster.replicas.values() if r.is_voter and r is not replica]
        if all(r.durable_election.epoch > lost_epoch and cluster.holds_all_committed(r) for r in others):
            replica.may_start = True
            replica.start()
            return
        leader = cluster.leader()
        impatient = polls % 16 == 15 and not self._lasting
        if impatient and leader is not None and leader.core.state.epoch <= lost_epoch:
            leader.crash()
            leader.start()
        cluster.scheduler.after(_RETURN_POLL_MS, self._return_when_safe, replica, lost_epoch, polls + 1)

    def _snapshot(self, replica: SimReplica, rng: random.Random) -> bool:
        """Take a snapshot of what is committed there; mostly the log before it is deleted, now or later."""
        if replica.snapshots.take() is None:
            return False
        if rng.random() < 0.7:
            self.cluster.scheduler.after(rng.choice((0, 50, 500)), self._cut_log, replica)
        return True

    def _cut_log(self, replica: SimReplica) -> None:
        if replica.alive:
            replica.snapshots.cut()

    # --- the voters ---------------------------------------------------------------------------------------

    def _change_is_open(self) -> bool:
        return self.cluster.scheduler.now_ms < self._asked_ms + 2 * VOTER_CHANGE_TIMEOUT_MS

    def _may_change(self, leader: SimReplica) -> bool:
        return self.cluster.options.voters_in_log or leader.voters_in_log.is_dynamic

    def _add_voter(self, leader: SimReplica, rng: random.Random) -> bool:
        cluster = self.cluster
        others = [r for r in cluster.replicas.values() if leader.voters_in_log.get(r.id) is None]
        if not others or not self._may_change(leader):
            return False
        replica = rng.choice(others)
        self._asked_ms = cluster.scheduler.now_ms
        voter = Voter(replica.key, cluster.address_of(replica))
        cluster.ask_for_change(leader, AddRaftVoterRequest("sim", voter, VOTER_CHANGE_TIMEOUT_MS))
        return True

    def _remove_voter(self, leader: SimReplica, rng: random.Random) -> bool:
        """Remove a voter: one with a replaced disk if there is one, otherwise any, even the leader.

        At least two voters remain, and a majority of those keeps its records.
        """
        cluster = self.cluster
        sets = cluster.voter_sets()
        lost = [voter for voters in sets for voter in voters if not cluster.holds_vote_of(voter.key)]
        candidates = lost or list(leader.voters_in_log)
        if not candidates or not self._may_change(leader):
            return False
        if not lost and min(len(voters) for voters in sets) <= 2:
            return False
        key = rng.choice(candidates).key
        if not self._majority_has_records_without(key):
            return False
        self._asked_ms = cluster.scheduler.now_ms
        cluster.ask_for_change(leader, RemoveRaftVoterRequest("sim", key, VOTER_CHANGE_TIMEOUT_MS))
        return True

    def _majority_has_records_without(self, key: ReplicaKey) -> bool:
        """Whether a majority of the other voters keeps its records: else an election could need this one."""
        cluster = self.cluster
        for voters in cluster.voter_sets():
            left = [voter for voter in voters if voter.key != key]
            if sum(cluster.keeps_records(voter.key) for voter in left) <= len(left) // 2:
                return False
        return True

    # --- the end ------------------------------------------------------------------------------------------

    def leave_a_majority(self, rng: random.Random) -> None:
        """Break some voters for good, after all faults are healed: they are dead, or partly cut off."""
        self._lasting = True
        cluster = self.cluster
        ids = list(cluster.replicas)
        rng.shuffle(ids)
        sets = cluster.voter_sets()
        broken: list[int] = []
        for replica in (cluster.replicas[id] for id in ids):
            others_kept = [
                sum(cluster.keeps_records(v.key) and v.key.id not in (*broken, replica.id) for v in voters)
                for voters in sets
            ]
            if any(left < voters.majority for left, voters in zip(others_kept, sets, strict=True)):
                continue
            if not all(voters.is_voter(replica.key) for voters in sets):
                continue  # it may be about to become a voter
            broken.append(replica.id)
            match rng.randrange(4):
                case 0:
                    replica.crash()
                case 1:
                    cluster.links.cut(ids, [replica.id])
                case 2:
                    cluster.links.cut([replica.id], ids)
                case 3:
                    cluster.links.cut([id for id in ids if rng.random() < 0.5], [replica.id])
                    cluster.links.cut([replica.id], [id for id in ids if rng.random() < 0.5])
        self.injected["lasting cut or crash"] += 1
        left = ", ".join(str(id) for id in broken) or "none"
        self.cluster.log_event("faults", f"dead or cut off until further notice: {left}")

    def stop(self) -> None:
        """Undo all faults: perfect links, whole fetches, accurate clocks, no replica dead or paused."""
        self.active = self._lasting = False
        self.cluster.log_event("faults", "everything is healed")
        self._running.clear()
        self._triggers.clear()
        self._cuts.clear()
        cluster = self.cluster
        cluster.kill_chance = {}
        cluster.links.become_perfect()
        cluster.max_fetch_batches = 1000
        for replica in cluster.replicas.values():
            replica.paused_until_ms = replica.slow_disk_until_ms = 0
            replica.snapshots.half_installed = False
            self._restore_rate(replica)
            self._start(replica)
