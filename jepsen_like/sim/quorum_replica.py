"""One simulated replica: the real Raft core over a model of a disk that forgets what was not flushed.

The effects of a step are carried out in order; the process may be made to die between any two of them. A
crash keeps what was flushed and a random run of the batches after it (a torn batch fails its CRC and goes
with its successors). Only the core is the product's code; everything else here is the world around it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pykraft.quorum.core import RaftCore
from pykraft.quorum.effects import (
    AdvanceHighWatermark,
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    Effect,
    FlushLog,
    LeaderChanged,
    PersistElectionState,
    Reply,
    ReplyWithRecords,
    Send,
    TruncateTo,
)
from pykraft.quorum.events import Event, LogFlushed, RequestFailed, Started, TimerFired
from pykraft.quorum.invariants import StoredBatch
from pykraft.quorum.log_shape import LogShape
from pykraft.quorum.messages import BatchSpan, FetchResponse, Request, VoteResponse
from pykraft.quorum.roles import ElectionState, Leader
from pykraft.quorum.state import CoreState
from pykraft.quorum.voters import ReplicaKey

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.quorum_cluster import SimCluster


class Killed(Exception):
    """The process dies here, between two effects."""


class SimReplica:
    """``durable_*`` survives a crash; ``batches`` is the log as the process sees it."""

    def __init__(self, cluster: SimCluster, key: ReplicaKey) -> None:
        self.cluster = cluster
        self.key = key
        self.id = key.id
        self.is_voter = cluster.voters.is_voter(key)
        self.rng = random.Random(cluster.seed * 1009 + key.id)
        self.incarnation = 0
        self.alive = False
        self.paused_until_ms = 0
        self.durable_election = ElectionState()
        self.durable_end_offset = 0
        self.batches: list[StoredBatch] = []
        self._index_of: dict[int, int] = {}
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
        starts: list[tuple[int, int]] = []
        for batch in self.batches:
            if not starts or batch.epoch > starts[-1][0]:
                starts.append((batch.epoch, batch.base_offset))
        end_offset = self.batches[-1].end_offset if self.batches else 0
        self.durable_end_offset = end_offset
        self.core = RaftCore(
            config=self.cluster.config,
            cluster_id="sim",
            local=self.key,
            voters=self.cluster.voters,
            rng=self.rng,
            election=self.durable_election,
            log=LogShape(end_offset, starts),
            now_ms=self.cluster.scheduler.now_ms,
        )
        self.step(Started())

    def crash(self) -> None:
        """Power loss: unflushed batches survive only as an unbroken run after the flushed ones."""
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
        self.cluster.checker.storage_shrank()

    def replace_disk(self, key: ReplicaKey) -> None:
        """Come back, when started, with an empty disk of another directory id."""
        assert not self.alive and key.id == self.id
        self.key = key
        self.is_voter = self.cluster.voters.is_voter(key)
        self._drop_from(0)
        self.durable_election = ElectionState()
        self.durable_end_offset = 0
        self.cluster.checker.history.forget(self.id)

    def _drop_from(self, index: int) -> None:
        for batch in self.batches[index:]:
            del self._index_of[batch.base_offset]
        del self.batches[index:]

    # --- stepping ---------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        cluster = self.cluster
        now_ms = cluster.scheduler.now_ms
        effects = self.core.step(event, now_ms)
        cluster.note_step(self, event)
        checker, kill_chance = cluster.checker, cluster.kill_chance
        try:
            for effect in effects:
                _RUN[type(effect)](self, effect)
                checker.effect_done(self, effect)
                if kill_chance and self.rng.random() < kill_chance.get(type(effect), 0.0):
                    raise Killed
        except Killed:
            cluster.kill(self)
            return
        checker.step_done(self)
        if self.proposals:
            self._acknowledge()
        if self.flush_wanted is not None and not self.flushing:
            self._start_flush()
        self._arm_timer(now_ms)

    def _arm_timer(self, now_ms: int) -> None:
        deadline_ms = self.core.next_deadline_ms
        if deadline_ms is None or (self.timer_ms is not None and self.timer_ms <= deadline_ms):
            return
        self.timer_ms = max(deadline_ms, now_ms + 1)
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
        self.step(LogFlushed(end_offset, generation))

    def _acknowledge(self) -> None:
        """Answer the clients whose values are committed; forget those whose leader we no longer are."""
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
        self.batches.append(batch)

    def _persist(self, effect: PersistElectionState) -> None:
        self.durable_election = effect.state

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        value = f"leader {effect.leader_id}"
        self._append(StoredBatch(effect.offset, effect.offset + 1, effect.epoch, value))
        self.cluster.leader_elected(self)

    def _append_proposal(self, effect: AppendProposal) -> None:
        self._append(StoredBatch(effect.base_offset, effect.end_offset, effect.epoch, effect.payload))

    def _append_fetched(self, effect: AppendFetched) -> None:
        payload: Sequence[StoredBatch] = effect.payload  # type: ignore[assignment]
        for batch in payload:
            self._append(batch)

    def _truncate(self, effect: TruncateTo) -> None:
        index = self._index_of.get(effect.end_offset, 0 if effect.end_offset == 0 else None)
        assert index is not None, "truncation is not on a batch boundary"
        self._drop_from(index)
        self.durable_end_offset = effect.end_offset
        self.cluster.checker.storage_shrank()

    def _flush(self, effect: FlushLog) -> None:
        self.flush_wanted = effect

    def _send(self, effect: Send) -> None:
        self.outstanding.add(effect.correlation_id)
        self.cluster.send_request(self, effect)

    def _reply(self, effect: Reply) -> None:
        self.cluster.send_response(self, effect.token, effect.response)
        response = effect.response
        if isinstance(response, VoteResponse) and response.vote_granted:
            self.cluster.vote_granted(self)

    def _reply_with_records(self, effect: ReplyWithRecords) -> None:
        first = self._index_of[effect.start_offset]
        found = self.batches[first : first + self.cluster.max_fetch_batches]
        found = [batch for batch in found if batch.end_offset <= effect.end_offset]
        spans = tuple(BatchSpan(batch.base_offset, batch.end_offset, batch.epoch) for batch in found)
        r = effect.response
        filled = FetchResponse(
            r.cluster_id, r.replica, r.error, r.epoch, r.leader_id, r.high_watermark, None, spans, found
        )
        self.cluster.send_response(self, effect.token, filled)

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


_RUN: dict[type[Effect], Callable[[SimReplica, Any], None]] = {
    PersistElectionState: SimReplica._persist,
    AppendLeaderChange: SimReplica._append_leader_change,
    AppendProposal: SimReplica._append_proposal,
    AppendFetched: SimReplica._append_fetched,
    TruncateTo: SimReplica._truncate,
    FlushLog: SimReplica._flush,
    Send: SimReplica._send,
    Reply: SimReplica._reply,
    ReplyWithRecords: SimReplica._reply_with_records,
    AdvanceHighWatermark: SimReplica._nothing,
    LeaderChanged: SimReplica._nothing,
}
