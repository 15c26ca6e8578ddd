"""One simulated replica: the real Raft core over a model of a disk that forgets what was not flushed.

The effects of a step are carried out in order; the process may be killed between any two of them. A crash
keeps what was flushed and a random number of the batches after it (a torn batch fails its CRC and is lost
with all that follow). Only the core is the product's code; everything else here is the world around it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pykraft.jepsen_like.simulation.quorum.invariants.history import StoredBatch
from pykraft.jepsen_like.simulation.quorum.scheduler import Scheduler
from pykraft.jepsen_like.simulation.quorum.snapshots import SimSnapshots
from pykraft.jepsen_like.simulation.quorum.world import ReplicaWorld
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AdvanceLogStart,
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    AppendSnapshotChunk,
    AppendVoters,
    CheckSnapshot,
    Effect,
    EndRecovery,
    FlushLog,
    InstallSnapshot,
    LeaderChanged,
    PeerDisbelieved,
    PersistElectionState,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    TruncateTo,
    VotersChanged,
)
from pykraft.quorum.core.events import Event, LogFlushed, RequestFailed, Started, TimerFired
from pykraft.quorum.core.messages import BatchSpan, Request, VoteResponse
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState, Leader
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, VoterSet
from pykraft.quorum.flushed_mark import FlushedMark
from pykraft.runtime.address import Address


class SimClock:
    """A replica's monotonic clock: it may run a little fast or slow, and may jump ahead, never back."""

    __slots__ = ("_base_local_ms", "_base_ms", "_rate_permille", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._base_ms = self._base_local_ms = 0
        self._rate_permille = 1000

    def now_ms(self) -> int:
        elapsed_ms = self._scheduler.now_ms - self._base_ms
        return self._base_local_ms + elapsed_ms * self._rate_permille // 1000

    def reached_at_ms(self, local_ms: int) -> int:
        """The world's time at which this clock shows ``local_ms`` at its current rate."""
        return self._base_ms - (self._base_local_ms - local_ms) * 1000 // self._rate_permille

    def jump(self, by_ms: int) -> None:
        self._base_local_ms += by_ms

    def set_rate(self, permille: int) -> None:
        """Set the rate: 1000 is accurate. A quartz is off by a few permille, these clocks by up to 100."""
        self._base_local_ms = self.now_ms()
        self._base_ms = self._scheduler.now_ms
        self._rate_permille = permille


class SimReplica:
    """``durable_*`` survives a crash; ``batches`` is the log as the process sees it."""

    def __init__(self, cluster: ReplicaWorld[SimReplica], key: ReplicaKey) -> None:
        self.cluster = cluster
        self.key = key
        self.id = key.id
        self.base_voters = cluster.voters
        self.rng = random.Random(cluster.seed * 1009 + key.id)
        self.incarnation = 0
        self.alive = False
        self.paused_until_ms = 0
        self.slow_disk_until_ms = 0
        self.may_start = True
        self.clock = SimClock(cluster.scheduler)
        self.durable_election = ElectionState()
        self.durable_end_offset = 0
        self.durable_mark = FlushedMark(0)
        self.batches: list[StoredBatch] = []
        self._index_of: dict[int, int] = {}
        self.epoch_starts: list[tuple[int, int]] = []
        self._voter_records: list[tuple[int, VoterSet]] = []
        self.snapshots: SimSnapshots = SimSnapshots(self)
        self.core: RaftCore
        self.requests: dict[int, tuple[int, int, int, Request]] = {}
        self.answered: set[int] = set()
        self.outstanding: set[int] = set()
        self.timer_ms: int | None = None
        self.flush_wanted: FlushLog | None = None
        self.flushing = False
        self.proposals: list[tuple[int, int, object]] = []

    # --- what the invariants look at ------------------------------------------------------------------

    @property
    def core_state(self) -> CoreState:
        return self.core.state

    def batch_index(self, offset: int) -> int:
        return self._index_of.get(offset, len(self.batches))

    @property
    def voters_in_log(self) -> VoterSet:
        return self._voter_records[-1][1] if self._voter_records else self.base_voters

    @property
    def is_voter(self) -> bool:
        return self.voters_in_log.is_voter(self.key)

    def candidate_of(self, token: int) -> ReplicaKey:
        request = self.requests[token][3]
        return request.candidate  # type: ignore[union-attr]

    @property
    def leads(self) -> bool:
        return self.alive and isinstance(self.core.state.role, Leader)

    # --- life and death ---------------------------------------------------------------------------------

    def start(self) -> None:
        assert not self.alive
        self.alive = True
        self.incarnation += 1
        shape = self.snapshots.recover()
        self.durable_end_offset = shape.end_offset
        recovery = self._compare_with_mark()
        self.core = RaftCore(
            config=self.cluster.configs[self.id],
            cluster_id="sim",
            local=self.key,
            history=VoterHistory(
                self.base_voters, self._voter_records, is_shared=not self.cluster.options.voters_in_log
            ),
            rng=self.rng,
            election=self.durable_election,
            log=shape,
            latest_snapshot=self.snapshots.latest,
            now_ms=self.clock.now_ms(),
            local_address=Address("sim", self.id),
            recovery=recovery,
            losses=self.durable_mark.losses,
        )
        self.cluster.log_event(self.id, f"starts with a log that ends at {shape.end_offset}")
        self.step(Started())

    def _compare_with_mark(self) -> Recovery | None:
        """Find lost records, like :meth:`pykraft.quorum.storage.QuorumStorage.recover`."""
        mark, end_offset = self.durable_mark, self.durable_end_offset
        assert mark.end_offset is not None
        if mark.end_offset <= end_offset:
            self._mark_whole(end_offset)
            self.cluster.checker.recovered(self)
            return None
        if not mark.is_recovering:
            self.durable_mark = mark._replace(losses=mark.losses + 1, is_recovering=True)
        self.cluster.checker.history.losses[self.id] = self.durable_mark.losses
        return Recovery(mark.end_offset)

    def _mark_whole(self, end_offset: int) -> None:
        self.durable_mark = FlushedMark(end_offset, losses=self.durable_mark.losses)

    @property
    def has_lost_records(self) -> bool:
        """Whether it has lost records that it had flushed, and may have acknowledged."""
        return self.id in self.cluster.checker.history.lost_batches

    def lose_flushed(self, count: int) -> bool:
        """The last ``count`` of its flushed batches can no longer be read; False if there are none."""
        assert not self.alive
        first = self.batch_index(self.snapshots.start.end_offset)
        marked = self.durable_mark.end_offset or 0
        held = [batch for batch in self.batches[first:] if batch.end_offset <= marked]
        if not held or self.has_lost_records:
            return False
        lost = held[-count:]
        self.cluster.checker.history.damage(self.id, marked, lost)
        self._drop_from(self.batch_index(lost[0].base_offset))
        self.durable_end_offset = lost[0].base_offset
        self.cluster.log_event(self.id, f"its log cannot be read from {self.durable_end_offset} on")
        self.cluster.checker.storage_shrank()
        return True

    def crash(self) -> None:
        """Lose power: unflushed batches survive only as a contiguous run after the flushed ones."""
        if not self.alive:
            return
        self.alive = False
        self.incarnation += 1
        self.requests.clear()
        self.answered.clear()
        self.outstanding.clear()
        self.proposals.clear()
        self.timer_ms = None
        self.flush_wanted = None
        self.flushing = False
        first_unflushed = self.batch_index(self.durable_end_offset)
        kept = first_unflushed + self.rng.randrange(len(self.batches) - first_unflushed + 1)
        self._drop_from(kept)
        self.durable_end_offset = self.batches[-1].end_offset if self.batches else 0
        self.cluster.log_event(self.id, f"loses power; its log ends at {self.durable_end_offset} now")
        self.cluster.checker.storage_shrank()

    def replace_disk(self, key: ReplicaKey) -> None:
        """Come back, when started, with an empty disk of another directory id."""
        assert not self.alive and key.id == self.id
        self.cluster.checker.history.forget(self.id)
        self.cluster.log_event(self.id, "has a new, empty disk")
        self.key = key
        options = self.cluster.options
        if options.voters_in_log or (options.upgraded and self.voters_in_log.is_dynamic):
            self.base_voters = NO_VOTERS  # formatted without voters: it has to ask other nodes for the leader
        self._drop_from(0)
        self.snapshots.forget()
        self.durable_election = ElectionState()
        self.durable_end_offset = 0
        self.durable_mark = FlushedMark(0)

    def _drop_from(self, index: int) -> None:
        for batch in self.batches[index:]:
            del self._index_of[batch.base_offset]
        del self.batches[index:]
        end_offset = self.batches[-1].end_offset if self.batches else 0
        while self.epoch_starts and self.epoch_starts[-1][1] >= end_offset:
            self.epoch_starts.pop()
        while self._voter_records and self._voter_records[-1][0] >= end_offset:
            self._voter_records.pop()

    def batch_ending_at(self, end_offset: int) -> StoredBatch | None:
        index = self._index_of.get(end_offset)
        if index is None and self.batches and self.batches[-1].end_offset == end_offset:
            index = len(self.batches)
        return self.batches[index - 1] if index else None

    def batches_before(self, end_offset: int) -> list[StoredBatch]:
        return self.batches[: self.batch_index(end_offset)]

    def replace_log(self, batches: Sequence[StoredBatch]) -> None:
        """A snapshot of these batches has replaced the log. It is durable."""
        self._drop_from(0)
        for batch in batches:
            self._append(batch)
        self.durable_end_offset = batches[-1].end_offset
        self.cluster.checker.storage_shrank()

    # --- stepping ---------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        cluster = self.cluster
        effects = self.core.step(event, self.clock.now_ms())
        cluster.note_step(self, event)
        checker, kill_chance = cluster.checker, cluster.kill_chance
        for effect in effects:
            _RUN[type(effect)](self, effect)
            if not self.alive:
                return
            checker.effect_done(self, effect)
            if kill_chance and self.rng.random() < kill_chance.get(type(effect), 0.0):
                cluster.killed(self, effect)
                return
        checker.step_done(self)
        if self.proposals:
            self._acknowledge()
        if self.flush_wanted is not None and not self.flushing:
            self._start_flush()
        self._arm_timer()

    def rearm_timer(self) -> None:
        """Set the timer again after a change of the clock."""
        if self.alive:
            self.timer_ms = None
            self._arm_timer()

    def _arm_timer(self) -> None:
        deadline_ms = self.core.next_deadline_ms
        if deadline_ms is None:
            return
        due_ms = self.clock.reached_at_ms(deadline_ms)
        if self.timer_ms is not None and self.timer_ms <= due_ms:
            return
        self.timer_ms = max(due_ms, self.cluster.scheduler.now_ms + 1)
        self.cluster.scheduler.at(self.timer_ms, self._fire, self.incarnation, self.timer_ms)

    def _fire(self, incarnation: int, timer_ms: int) -> None:
        if incarnation != self.incarnation or timer_ms != self.timer_ms:
            return
        if self.cluster.postpone(self, self._fire, incarnation, timer_ms):
            return
        self.timer_ms = None
        self.step(TimerFired())

    def _start_flush(self) -> None:
        assert self.flush_wanted is not None
        self.flushing = True
        end_offset = self.batches[-1].end_offset if self.batches else 0
        generation, self.flush_wanted = self.flush_wanted.generation, None
        self.cluster.start_flush(self, end_offset, generation)

    def finish_flush(self, incarnation: int, end_offset: int, generation: int) -> None:
        if incarnation != self.incarnation:
            return
        if self.cluster.postpone(self, self.finish_flush, incarnation, end_offset, generation):
            return
        self.flushing = False
        if generation == self.core.state.log.generation:
            self.durable_end_offset = max(self.durable_end_offset, end_offset)
            if not self.durable_mark.is_recovering:
                self.durable_mark = self.durable_mark._replace(end_offset=self.durable_end_offset)
        self.step(LogFlushed(end_offset, generation))

    def finish_check(self, incarnation: int, effect: CheckSnapshot) -> None:
        if incarnation != self.incarnation:
            return
        if self.cluster.postpone(self, self.finish_check, incarnation, effect):
            return
        self.step(self.snapshots.checked(effect))

    def _acknowledge(self) -> None:
        """Answer proposals that are committed; forget those of epochs that we no longer lead."""
        state = self.core.state
        if not isinstance(state.role, Leader):
            self.proposals.clear()
            return
        while self.proposals and self.proposals[0][0] < state.high_watermark:
            offset, _, value = self.proposals.pop(0)
            batch = self.batches[self._index_of[offset]]
            assert batch.value == value
            self.cluster.acknowledge(batch)

    # --- effects ----------------------------------------------------------------------------------------

    def _append(self, batch: StoredBatch) -> None:
        end_offset = self.batches[-1].end_offset if self.batches else 0
        assert batch.base_offset == end_offset, "an append must continue the log"
        self._index_of[batch.base_offset] = len(self.batches)
        if not self.batches or batch.epoch > self.batches[-1].epoch:
            self.epoch_starts.append((batch.epoch, batch.base_offset))
        self.batches.append(batch)
        if isinstance(batch.value, VoterSet):
            self._voter_records.append((batch.base_offset, batch.value))

    def _persist(self, effect: PersistElectionState) -> None:
        self.durable_election = effect.state

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        value = f"leader {effect.leader_id}"
        self._append(StoredBatch(effect.offset, effect.offset + 1, effect.epoch, value))
        self.cluster.leader_elected(self)

    def _append_proposal(self, effect: AppendProposal) -> None:
        self._append(StoredBatch(effect.base_offset, effect.end_offset, effect.epoch, effect.payload))

    def _append_voters(self, effect: AppendVoters) -> None:
        self._append(StoredBatch(effect.base_offset, effect.end_offset, effect.epoch, effect.voters))

    def _append_fetched(self, effect: AppendFetched) -> None:
        payload: Sequence[StoredBatch] = effect.payload  # type: ignore[assignment]
        for batch in payload:
            self._append(batch)

    def _disbelieve(self, effect: PeerDisbelieved) -> None:
        """Honest peers send nothing that a replica disbelieves."""
        if not self.cluster.has_stranger:
            raise InvariantViolation("honest peers are believed", f"{self.id}: {effect.reason}")

    def _truncate(self, effect: TruncateTo) -> None:
        index = self._index_of.get(effect.end_offset, 0 if effect.end_offset == 0 else None)
        assert index is not None, "truncation is not on a batch boundary"
        self._drop_from(index)
        self.durable_end_offset = effect.end_offset
        self.lower_mark(effect.end_offset)
        self.cluster.checker.storage_shrank()

    def lower_mark(self, end_offset: int) -> None:
        marked = self.durable_mark.end_offset
        if marked is not None and marked > end_offset:
            self.replace_mark(end_offset)

    def replace_mark(self, end_offset: int) -> None:
        if not self.durable_mark.is_recovering:
            self.durable_mark = self.durable_mark._replace(end_offset=end_offset)

    def _end_recovery(self, effect: EndRecovery) -> None:
        self._mark_whole(effect.end_offset)

    def _flush(self, effect: FlushLog) -> None:
        self.flush_wanted = effect

    def _send(self, effect: Send) -> None:
        self.outstanding.add(effect.correlation_id)
        self.cluster.send_request(self, effect)

    def _reply(self, effect: Reply) -> None:
        self.cluster.send_response(self, effect.token, effect.response)
        response = effect.response
        if isinstance(response, VoteResponse) and response.vote_granted and not response.pre_vote:
            self.cluster.vote_granted(self)

    def _reply_with_records(self, effect: ReplyWithRecords) -> None:
        assert effect.start_offset >= self.snapshots.start.end_offset, "records before the log start"
        first = self._index_of[effect.start_offset]
        found = self.batches[first : first + self.cluster.max_fetch_batches]
        found = [batch for batch in found if batch.end_offset <= effect.end_offset]
        spans = tuple(_span(batch) for batch in found)
        filled = replace(effect.response, batches=spans, payload=found)
        self.cluster.send_response(self, effect.token, filled)

    def _reply_with_snapshot(self, effect: ReplyWithSnapshot) -> None:
        self.cluster.send_response(self, effect.token, self.snapshots.respond(effect))

    def _install(self, effect: InstallSnapshot) -> None:
        if not self.snapshots.install(effect):
            self.cluster.killed(self, effect)

    def _nothing(self, effect: Effect) -> None:
        pass

    def request_failed(self, incarnation: int, correlation_id: int) -> None:
        """The deadline of a request, or a refused connection."""
        if incarnation != self.incarnation or correlation_id not in self.outstanding:
            return
        if self.cluster.postpone(self, self.request_failed, incarnation, correlation_id):
            return
        self.outstanding.discard(correlation_id)
        self.step(RequestFailed(correlation_id))


def _span(batch: StoredBatch) -> BatchSpan:
    voters = batch.value if isinstance(batch.value, VoterSet) else None
    return BatchSpan(batch.base_offset, batch.end_offset, batch.epoch, voters)


_RUN: dict[type[Effect], Callable[[SimReplica, Any], None]] = {
    PersistElectionState: SimReplica._persist,
    AppendLeaderChange: SimReplica._append_leader_change,
    AppendProposal: SimReplica._append_proposal,
    AppendVoters: SimReplica._append_voters,
    AppendFetched: SimReplica._append_fetched,
    AdvanceLogStart: lambda replica, effect: replica.snapshots.advance_start(effect),
    AppendSnapshotChunk: lambda replica, effect: replica.snapshots.append_chunk(effect),
    CheckSnapshot: lambda replica, effect: replica.cluster.start_check(replica, effect),
    InstallSnapshot: SimReplica._install,
    ReplyWithSnapshot: SimReplica._reply_with_snapshot,
    TruncateTo: SimReplica._truncate,
    EndRecovery: SimReplica._end_recovery,
    FlushLog: SimReplica._flush,
    Send: SimReplica._send,
    Reply: SimReplica._reply,
    ReplyWithRecords: SimReplica._reply_with_records,
    AdvanceHighWatermark: SimReplica._nothing,
    LeaderChanged: SimReplica._nothing,
    VotersChanged: SimReplica._nothing,
    PeerDisbelieved: SimReplica._disbelieve,
}
