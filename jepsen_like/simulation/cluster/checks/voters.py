"""The voters of a simulated cluster: their invariants, and when one of them may lose its disk.

When a voter's disk is replaced, a majority of voters must still hold its votes and records. If the voters are
in the log, administrators have to see to that: no live voter may be removed while the set still counts on a
lost disk. Here the administrators follow this rule (:meth:`VoterWatch.admits`). If voters are named by id
alone, the new disk *is* the voter; its node is not started until the others no longer need the lost votes and
records.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pykraft.jepsen_like.simulation.cluster.checks.commits import NO_ANSWER_BEFORE_COMMIT
from pykraft.jepsen_like.simulation.quorum.invariants.checker import ElectionSafety
from pykraft.jepsen_like.simulation.quorum.invariants.history import History
from pykraft.jepsen_like.simulation.quorum.invariants.voters import (
    MajoritiesIntersect,
    OneVoterChange,
    VotersFollowTheLog,
)
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import AddRaftVoterRequest, RemoveRaftVoterRequest
from pykraft.quorum.core.effects import AppendLeaderChange, AppendVoters
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import ReplicaKey, VoterSet

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.checks.commits import ClusterChecker
    from pykraft.jepsen_like.simulation.cluster.view import Cluster, Machine

_RETURN_POLL_MS = 500
_PATIENCE_POLLS = 6


class _View:
    """The part of a replica that the invariants of voters read."""

    def __init__(self, node: Machine, state: CoreState) -> None:
        self.id = node.id
        self.core_state = state

    @property
    def voters_in_log(self) -> VoterSet:
        return self.core_state.history.current


class VoterWatch:
    """The state of the voters across the nodes of one world."""

    def __init__(self, world: Cluster, checker: ClusterChecker) -> None:
        self._world = world
        self._checker = checker
        self._history = History()
        self._election = ElectionSafety()
        self._changes = (OneVoterChange(), MajoritiesIntersect())
        self._follows = VotersFollowTheLog()
        self.changes = 0

    # --- the invariants -------------------------------------------------------------------------------

    def appended(self, node: Machine, effect: AppendVoters | AppendLeaderChange) -> None:
        """A leader has just carried out ``effect``."""
        state = self._state(node)
        assert state is not None
        view, history = _View(node, state), self._history
        if isinstance(effect, AppendLeaderChange):
            history.epoch_starts[effect.epoch] = effect.offset
            self._election.observe(view, effect, history)  # type: ignore[arg-type]
            return
        for invariant in self._changes:
            invariant.observe(view, effect, history)  # type: ignore[arg-type]
        self._follows.after_step(view, history)  # type: ignore[arg-type]
        self.changes += 1
        ids = ", ".join(str(id) for id in sorted(effect.voters.ids))
        self._world.log_event(node.id, f"writes new voters into the metadata log: {ids}")

    def answered(self, node: Machine, request: Message) -> None:
        """The leader has acknowledged a change of voters; it may have reverted it since, not before."""
        state = self._state(node)
        assert state is not None
        match request:
            case AddRaftVoterRequest() if request.ack_when_committed:
                there = True
            case RemoveRaftVoterRequest():
                there = False
            case _:
                return
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        since = -1
        for offset, voters in reversed(state.history.records):
            if any(voter.key == key for voter in voters) is not there:
                break
            since = offset
        if since >= state.high_watermark:
            detail = f"{node.id} has reported the voters at {since}, committed is {state.high_watermark - 1}"
            self._checker.fail(NO_ANSWER_BEFORE_COMMIT, detail)

    @property
    def agree(self) -> bool:
        """Whether every node has the same voters, which all exist, and all that join have joined."""
        sets = {self._state(node).voters for node in self._world.nodes.values()}  # type: ignore[union-attr]
        if len(sets) != 1:
            return False
        described = [
            node.parts.quorum.describe(node.clock.wall_ms())
            for node in self._world.nodes.values()
            if node.parts.quorum
        ]
        described_ids = {tuple(sorted(replica.key.id for replica in one.voters)) for one in described}
        (voters,) = sets
        if described_ids != {voters.ids}:
            return False
        if not self._world.options.auto_join:
            return True
        return [voter.key for voter in voters] == [node.key for node in self._world.controllers]

    @property
    def description(self) -> str:
        """The voters as each node knows them, for error messages."""
        states = {node.id: self._state(node) for node in self._world.nodes.values()}
        return str({id: "-" if state is None else state.voters for id, state in states.items()})

    def _state(self, node: Machine) -> CoreState | None:
        core = None if node.parts.quorum is None else node.parts.quorum._core
        return None if core is None else core.state

    # --- the administrators' rules --------------------------------------------------------------------

    def admits(self, request: Message) -> bool:
        """Whether an administrator who knows the disks would still make this request at its arrival."""
        nodes = self._world.nodes
        match request:
            case RemoveRaftVoterRequest():
                gone = nodes[request.voter_id].directory_id != request.voter_directory_id
                return gone or not self._some_disk_is_lost()
            case AddRaftVoterRequest():
                return nodes[request.voter_id].directory_id == request.voter_directory_id
        return True

    def _some_disk_is_lost(self) -> bool:
        states = [self._state(node) for node in self._world.nodes.values()]
        return any(not self._is_held(v.key) for state in states if state for v in state.voters)

    def _is_held(self, key: ReplicaKey) -> bool:
        return self._world.nodes[key.id].key == key

    # --- lost disks -----------------------------------------------------------------------------------

    def may_lose_disk(self, victim: Machine) -> bool:
        """Whether the voters can lose the victim's votes and records, also after a pending change."""
        world = self._world
        if not victim.may_start or not victim.starts:
            return False
        if not victim.is_controller:
            return True
        sets, others = set(), [node for node in world.controllers if node is not victim]
        for node in others if not victim.alive else world.controllers:
            state = self._state(node)
            if not node.alive or state is None or not node.may_start:
                return False
            if isinstance(state.role, Leader) and state.role.changes:
                return False
            if state.history.records and state.history.records[-1][0] >= self._checker.end_offset:
                return False
            sets.add(state.voters)
        if len(sets) != 1 or not self._checker.end_offset:
            return False
        (voters,) = sets
        if not world.options.voters_in_log:
            return len(voters) > 2 and self._state(victim) is not None
        kept = [v for v in voters if self._is_held(v.key) and v.key.id != victim.id]
        return len(kept) >= max(voters.majority, len(voters) - 1)

    def lose_disk(self, victim: Machine, rng: random.Random, back_after_ms: int) -> None:
        """The machine gets an empty disk under a new directory id."""
        world, state = self._world, self._state(victim)
        epoch = 0 if state is None else state.election.epoch
        victim.kill(power_loss=True)
        victim.replace_disk(Uuid(rng.randbytes(16)))
        if victim.is_controller and not world.options.voters_in_log:
            victim.may_start = False
            world.later(back_after_ms, self._return_when_safe, victim, epoch, 1)
        else:
            world.later(back_after_ms, victim.start)

    def _holds_all_committed(self, state: CoreState) -> bool:
        """Its log may be as long and diverge from the committed records; then it may still be truncated."""
        end_offset, log = self._checker.end_offset, state.log
        if log.flushed_offset < end_offset:
            return False
        return log.epoch_of(end_offset - 1) == self._checker.epoch_at[end_offset - 1]

    def _return_when_safe(self, victim: Machine, lost_epoch: int, polls: int) -> None:
        """The operator checks at intervals, and restarts a leader if its epoch does not end."""
        world = self._world
        others = [node for node in world.controllers if node is not victim]
        states = [self._state(node) if node.alive else None for node in others]
        if all(
            state is not None and state.election.epoch > lost_epoch and self._holds_all_committed(state)
            for state in states
        ):
            victim.may_start = True
            victim.start()
            return
        for node, state in zip(others, states, strict=True):
            leads = state is not None and isinstance(state.role, Leader)
            if leads and state.election.epoch <= lost_epoch and polls % _PATIENCE_POLLS == 0:  # type: ignore[union-attr]
                node.kill(power_loss=False)
                node.start()
        world.later(_RETURN_POLL_MS, self._return_when_safe, victim, lost_epoch, polls + 1)
