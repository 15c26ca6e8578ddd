"""The controller's state: commands in, records and responses out; only replay changes the state.

Commands are decided on the newest image, which may be ahead of what is committed. Their records are replayed
as soon as they are in the log; the timeline keeps the committed image to return to when leadership is lost. A
standby is given the image that the node's loader folds from the committed log, so it can become active
without loading anything. This file holds the state and passes it to the functions that decide; it never
waits, sends or reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.alter_partition import handle_alter_partition
from pykraft.metadata_log.controller.calls.forwarding import FORWARDED, Decided, Situation
from pykraft.metadata_log.controller.calls.rehearsal import Rehearsal
from pykraft.metadata_log.controller.calls.requests import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerRequest,
    ReportLostReplicasRequest,
    ReportLostReplicasResponse,
)
from pykraft.metadata_log.controller.cluster_control import (
    build_fence_records,
    handle_broker_heartbeat,
    handle_register_broker,
    handle_register_controller,
)
from pykraft.metadata_log.controller.config import ControllerConfig, Rng
from pykraft.metadata_log.controller.directories import handle_assign_replicas_to_dirs
from pykraft.metadata_log.controller.features_control import build_min_isr_records
from pykraft.metadata_log.controller.heartbeats import Heartbeats
from pykraft.metadata_log.controller.leader_balance import LeaderBalance
from pykraft.metadata_log.controller.lost_replicas import handle_report_lost_replicas
from pykraft.metadata_log.controller.producer_ids import handle_allocate_producer_ids
from pykraft.metadata_log.controller.result import ControllerResult, InSlices
from pykraft.metadata_log.controller.sweeps import Sweeps, changes_elections, find_moved_brokers
from pykraft.metadata_log.delta import Changes
from pykraft.metadata_log.features import (
    BOOTSTRAP_FEATURES,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
)
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.records import FeatureLevelRecord, Record, SessionTimeoutRecord
from pykraft.metadata_log.replay import replay
from pykraft.metadata_log.timeline import Timeline
from pykraft.quorum.listener import CommittedBatch


class ControllerCore:
    """State of one controller, active or standby."""

    def __init__(
        self, config: ControllerConfig, cluster_id: str, rng: Rng, bootstrap_features: Mapping[str, int]
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._rng = rng
        self._bootstrap_features = {
            METADATA_VERSION: BOOTSTRAP_FEATURES[METADATA_VERSION],
            **bootstrap_features,
        }
        self._timeline = Timeline(EMPTY_IMAGE)
        self._pending_changes: deque[tuple[MetadataImage, Changes]] = deque()
        self._heartbeats = Heartbeats(config.session_timeout_ms)
        self._sweeps = Sweeps(config)
        self._balance = LeaderBalance(config)

    # State

    @property
    def image(self) -> MetadataImage:
        """The newest image, on which commands are decided."""
        return self._timeline.current

    @property
    def committed_image(self) -> MetadataImage:
        return self._timeline.committed

    @property
    def last_offset(self) -> int:
        """The offset up to which the newest image has been replayed."""
        return self.image.offset

    @property
    def has_pending(self) -> bool:
        """Whether the newest image is ahead of the committed one."""
        return self._timeline.has_pending

    def replay(
        self,
        records: Sequence[Record],
        base_offset: int,
        epoch: int,
        now_ms: int,
        replayed: tuple[MetadataImage, Changes] | None = None,
    ) -> None:
        """Apply records that this controller has just appended to the log; ``replayed`` is what they make of
        the newest image, if it is known already.
        """
        before = self.image
        assert base_offset > before.offset, f"appended at {base_offset}, replayed up to {before.offset}"
        image, changes = replayed or replay(before, records, base_offset, epoch)
        assert image.offset == base_offset + len(records) - 1, f"{base_offset} is not where it was replayed"
        self._timeline.set(image.offset, image)
        self._pending_changes.append((image, changes))
        moved = find_moved_brokers(before, image, changes)
        if moved or changes_elections(before, image, changes):
            self._sweeps.request(moved)
        for broker_id in sorted(changes.brokers):
            old, new = before.brokers.get(broker_id), image.brokers.get(broker_id)
            if new is None:
                self._heartbeats.drop(broker_id)
            elif old is None or old.epoch != new.epoch:
                self._heartbeats.begin(broker_id, new.epoch, now_ms)

    def take_committed(self, batch: CommittedBatch) -> tuple[MetadataImage, Changes] | None:
        """The image after a committed batch of this controller, and what the batch changed.

        None for a batch that this controller has not replayed: the loader folds it once for the whole node.
        Either way it passes the result to :meth:`follow`, which is when the batch counts.
        """
        if not self._pending_changes or batch.last_offset < self._pending_changes[0][0].offset:
            return None
        image, changes = self._pending_changes.popleft()
        assert batch.last_offset == image.offset, f"committed {batch.last_offset}, replayed {image.offset}"
        return image, changes

    def follow(self, image: MetadataImage) -> None:
        """``image`` is the committed image."""
        pending = self._pending_changes
        assert not pending or pending[0][0].offset > image.offset, f"offset {image.offset} is pending here"
        self._timeline.commit(image.offset)
        self._timeline.rebase(image.offset, image)

    def claim(self, now_ms: int) -> ControllerResult[None]:
        """Become active: all sessions start again, and a log without features gets its first records.

        The log also holds how long leases may be, for a successor with a shorter session timeout.
        """
        assert not self._timeline.has_pending
        longest_ms, own_ms = self.image.longest_session_ms, self._config.session_timeout_ms
        self._heartbeats.start(self.image.brokers, self.image.offset, longest_ms, now_ms)
        self._sweeps.begin()
        records: list[Record] = []
        if METADATA_VERSION not in self.image.features:
            records += [FeatureLevelRecord(*level) for level in sorted(self._bootstrap_features.items())]
            if self._bootstrap_features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
                records += build_min_isr_records(self.image, self._config)
        if own_ms > longest_ms:
            # Committed before any lease is granted: a lease waits for the commit of a record of this epoch.
            records.append(SessionTimeoutRecord(own_ms))
        return ControllerResult(tuple(records), None)

    def resign(self) -> None:
        """Become a standby: changes that are not committed are reverted."""
        self._timeline.revert()
        self._pending_changes.clear()
        self._heartbeats.clear()
        self._sweeps.clear()
        self._balance.clear()

    # Sweeps and the balance of leaders

    @property
    def is_sweeping(self) -> bool:
        """Whether some partitions may not be updated yet after a change of brokers or configurations."""
        return self._sweeps.is_pending

    def begin_balance(self) -> None:
        """Begin to check whether leaderships should return to preferred replicas."""
        self._balance.begin(self.image)

    @property
    def is_balancing(self) -> bool:
        """Whether :meth:`next_balance_slice` has something to do."""
        return self._balance.is_running

    def next_balance_slice(self) -> ControllerResult[None]:
        """The next slice of preferred elections."""
        return ControllerResult(tuple(self._balance.next_slice(self.image)), None)

    def next_sweep_slice(self) -> ControllerResult[None]:
        """The next changes of partitions; they must be appended before anything else is decided."""
        return ControllerResult(tuple(self._sweeps.next_slice(self.image)), None)

    # Commands

    def handle_register_broker(
        self, request: RegisterBrokerRequest, now_ms: int
    ) -> ControllerResult[RegisterBrokerResponse]:
        return handle_register_broker(self.image, self._heartbeats, self._cluster_id, request, now_ms)

    def handle_register_controller(self, request: RegisterControllerRequest) -> ControllerResult[None]:
        return handle_register_controller(self.image, self._cluster_id, request)

    def handle_broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        committed_offset = self.committed_image.offset
        return handle_broker_heartbeat(
            self.image, self._heartbeats, self._sweeps, request, committed_offset, now_ms
        )

    def current_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """A time such that the broker has applied all that was committed then; None if none is known."""
        return self._heartbeats.current_ms(broker_id, broker_epoch)

    def extend_for_stall(self, duration_ms: int, now_ms: int) -> None:
        """This controller was stalled for ``duration_ms``, until now: no broker is fenced for that time."""
        self._heartbeats.extend_for_stall(duration_ms, now_ms)

    def handle_fence_check(self, now_ms: int) -> ControllerResult[frozenset[int]]:
        """Fence every broker that is silent or stale, all in one batch; returns the ids of the stale ones.

        Once no lease is left that is based on a longer session than ours, a record notes our session timeout.
        """
        brokers, heartbeats = self.image.brokers, self._heartbeats
        overdue = heartbeats.overdue(brokers.values(), now_ms)
        stale = frozenset(id for id in overdue if heartbeats.has_session(id, brokers[id].epoch, now_ms))
        records = build_fence_records(self.image, overdue)
        own_ms = self._config.session_timeout_ms
        if self.image.longest_session_ms > own_ms and heartbeats.has_outlasted_earlier_leases(now_ms):
            records.append(SessionTimeoutRecord(own_ms))
        return ControllerResult(tuple(records), stale)

    def handle_alter_partition(
        self, request: AlterPartitionRequest
    ) -> ControllerResult[AlterPartitionResponse]:
        return handle_alter_partition(self.image, self._config, request)

    def handle_report_lost_replicas(
        self, request: ReportLostReplicasRequest
    ) -> ControllerResult[ReportLostReplicasResponse]:
        return handle_report_lost_replicas(self.image, self._config, request)

    def handle_assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        return handle_assign_replicas_to_dirs(self.image, self._config, request)

    def handle_allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        return handle_allocate_producer_ids(self.image, request)

    def handle_forwarded(
        self,
        context: RequestContext,
        request: Message,
        voter_ids: Iterable[int] = (),
        kraft_version: int = 0,
        upgrade_objection: Callable[[], str | None] = lambda: None,
        rehearsal: Rehearsal | None = None,
    ) -> InSlices[Any]:
        """Decide on a client's request, or on a part of one
        (:mod:`~pykraft.metadata_log.controller.calls.forwarding`); no records if it only validates.

        ``voter_ids`` are the ids of the quorum's voters, and ``kraft_version`` is its level;
        ``upgrade_objection`` is why it cannot be upgraded now. ``rehearsal`` is that of all parts of a
        request that only validates.
        """
        row = FORWARDED[request.API_KEY]
        assert isinstance(row, Decided), type(request).__name__
        image = self.image if rehearsal is None else rehearsal.image
        at = Situation(image, self._config, self._rng, context, voter_ids, kraft_version, upgrade_objection)
        decided = row.decide(at, request)
        result: ControllerResult[Any] = (yield from decided) if isinstance(decided, Generator) else decided
        if not getattr(request, "validate_only", False):
            return result
        if rehearsal is not None and result.records:
            yield from rehearsal.append(result.records)
        return replace(result, records=())
