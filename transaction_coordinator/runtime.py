"""The transactions of the shards that this broker leads: their markers, their timeouts.

Extends :mod:`pykraft.coordinator.runtime`, which decides when answers are sent. A decision to end a
transaction is carried out here once it is committed: markers are written to all of its partitions, then a
record says that the transaction is complete. A new coordinator does the same for every transaction that it
finds decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial

from pykraft.coordinator.answers import Answers
from pykraft.coordinator.hosted import HostedShard
from pykraft.coordinator.lease import Lease
from pykraft.coordinator.partitioning import TRANSACTION_STATE_TOPIC
from pykraft.coordinator.runtime import CoordinatorRuntime
from pykraft.coordinator.writer import PartitionWriter
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.features import TRANSACTION_VERSION
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.runtime.clock import Clock
from pykraft.runtime.paced import paced
from pykraft.runtime.tasks import FatalHandler
from pykraft.runtime.turns import Turns
from pykraft.transaction_coordinator.call import Call, NeedsProducerIdError
from pykraft.transaction_coordinator.config import TransactionConfig
from pykraft.transaction_coordinator.log.loading import Loader
from pykraft.transaction_coordinator.ports import MarkersRefusedError, MarkerWriter, ProducerIds
from pykraft.transaction_coordinator.requests.endings import (
    find_expired,
    find_timed_out,
    handle_complete,
    handle_expiry,
    handle_timeout,
)
from pykraft.transaction_coordinator.result import A, AnyResult, CoordinatorResult
from pykraft.transaction_coordinator.shard import TransactionShard
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import PREPARED, Transaction, TransactionVersion


class HostedTransactions(HostedShard[TransactionShard, AnyResult]):
    """A shard with the transactions whose markers are being written."""

    def __init__(self, shard: TransactionShard, answers: Answers) -> None:
        super().__init__(shard, answers)
        self.prepared: deque[tuple[int, tuple[str, ...]]] = deque()
        """Decided transactions, by the offset from which on their markers may be written."""
        self.completing: dict[asyncio.Task[None], None] = {}
        """Their markers are being written, and then that they are complete."""
        self.next_timeouts_ms = 0
        self.next_expiry_ms = 0
        self.walk: asyncio.Task[None] | None = None
        """Looks for timeouts and expired ids."""

    def drop(self) -> None:
        for task in self.completing:
            task.cancel()
        if self.walk is not None:
            self.walk.cancel()
        super().drop()


log = logging.getLogger(__name__)

Handle = Callable[[ShardState, Call], AnyResult]

_NOT_NOW = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Errors of the log, which every other decision would meet as well."""
_RETRY_MS = 100
_EXPIRED_PER_BATCH = 100


class TransactionRuntime(CoordinatorRuntime[ShardState, AnyResult, HostedTransactions, None]):
    def __init__(
        self,
        config: TransactionConfig,
        writer: PartitionWriter,
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        clock: Clock,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        super().__init__(TRANSACTION_STATE_TOPIC, writer, clock, on_fatal, lease, on_growth, turns)
        self.config = config
        self.image: MetadataImage = EMPTY_IMAGE
        self._markers = markers
        self._producer_ids = producer_ids

    @property
    def _linger_ms(self) -> int:
        return -1

    @property
    def _write_timeout_ms(self) -> int:
        return self.config.write_timeout_ms

    @property
    def transaction_version(self) -> TransactionVersion:
        """The finalized feature."""
        return TransactionVersion(self.image.features.get(TRANSACTION_VERSION, 0))

    # ---- leadership

    def _host(self, partition: int, leader_epoch: int) -> HostedTransactions:
        shard = TransactionShard(partition, leader_epoch, self._writer, lambda: self.transaction_version)
        return HostedTransactions(shard, self._answers)

    def _loader(self, partition: int) -> Loader:
        return Loader(partition)

    def _finish_loading(self, hosted: HostedTransactions, end_offset: int, state: ShardState) -> None:
        hosted.shard.adopt(end_offset, state)
        now_ms = self._clock.monotonic_ms()
        hosted.next_timeouts_ms = now_ms + self.config.timeout_check_interval_ms
        hosted.next_expiry_ms = now_ms + self.config.expiry_check_interval_ms
        hosted.prepared.append((end_offset, tuple(sorted(state.prepared))))
        self._complete_committed(hosted)

    # ---- requests

    def call(self, version: int = 0) -> Call:
        """Return the handlers' arguments of this moment."""
        return Call(
            self.config, version, self._clock.wall_ms(), self.transaction_version, self._has_partition
        )

    def _has_partition(self, topic: str, index: int) -> bool:
        found = self.image.topic(topic)
        return found is not None and 0 <= index < len(found.partitions)

    async def decide(
        self, partition: int, handle: Callable[[ShardState, Call], CoordinatorResult[A]], call: Call
    ) -> A:
        """As :meth:`write`; a producer id is got if the decision needs one."""
        while True:
            try:
                answer: A = await self.write(partition, lambda state: handle(state, call))
                return answer
            except NeedsProducerIdError:
                call.new_producer_id = self._producer_ids.next_id()

    # ---- the end of transactions

    def _take_effect(self, hosted: HostedTransactions, result: AnyResult) -> None:
        hosted.prepared.append((hosted.shard.end_offset, result.prepared))
        self._complete_committed(hosted)

    def _committed(self, hosted: HostedTransactions, high_watermark: int) -> None:
        self._complete_committed(hosted)

    def _complete_committed(self, hosted: HostedTransactions) -> None:
        """Carry out decisions that can no longer be lost."""
        if not hosted.prepared:
            return
        committed, end_offset = hosted.shard.committed, hosted.shard.committed_offset
        while hosted.prepared and hosted.prepared[0][0] <= end_offset:
            _, names = hosted.prepared.popleft()
            for name in names:
                value = committed.transactions.get(name)
                if value is not None and value.state in PREPARED:
                    task = self._tasks.start(self._complete(hosted, value), f"markers of {name}")
                    hosted.completing[task] = None
                    task.add_done_callback(hosted.completing.pop)

    async def _complete(self, hosted: HostedTransactions, prepared: Transaction) -> None:
        shard = hosted.shard
        try:
            await self._markers.write(prepared, shard.leader_epoch)
        except MarkersRefusedError as refused:
            log.warning("%s: no more markers of %s: %s", self._topic, prepared.transactional_id, refused)
            return
        while True:
            try:
                await self.decide(
                    shard.partition, lambda state, call: handle_complete(state, prepared, call), self.call()
                )
                return
            except KafkaError as error:
                if error.code is ErrorCode.NOT_COORDINATOR:
                    return
                log.debug("%s is complete, and not yet written: %s", prepared.transactional_id, error)
            await self._tasks.sleep(_RETRY_MS)

    # ---- time

    def _next_deadline_ms(self, hosted: HostedTransactions, now_ms: int) -> int | None:
        return None if hosted.walk is not None else min(hosted.next_timeouts_ms, hosted.next_expiry_ms)

    def _run_timers_of(self, hosted: HostedTransactions, now_ms: int) -> None:
        if hosted.walk is not None:
            return
        if hosted.next_timeouts_ms <= now_ms:
            hosted.next_timeouts_ms = now_ms + self.config.timeout_check_interval_ms
            if hosted.shard.state.deadlines_ms:
                self._walk(hosted, self._abort_timed_out)
                return
        if hosted.next_expiry_ms <= now_ms:
            hosted.next_expiry_ms = now_ms + self.config.expiry_check_interval_ms
            self._walk(hosted, self._delete_expired)

    def _walk(
        self, hosted: HostedTransactions, walk: Callable[[HostedTransactions], Coroutine[None, None, None]]
    ) -> None:
        def walked(_: object) -> None:
            hosted.walk = None
            self._wake.set()

        hosted.walk = self._tasks.start(walk(hosted), f"{walk.__name__} {hosted.shard.partition}")
        hosted.walk.add_done_callback(walked)

    async def _abort_timed_out(self, hosted: HostedTransactions) -> None:
        """One that cannot be aborted keeps no other open."""
        async for name in paced(find_timed_out(hosted.shard.state, self._clock.wall_ms())):
            if not await self._try(hosted, partial(_time_out, name)):
                return

    async def _delete_expired(self, hosted: HostedTransactions) -> None:
        names: list[str] = []
        async for name in paced(find_expired(hosted.shard.state, self.call())):
            names.append(name)
            if len(names) == _EXPIRED_PER_BATCH:
                if not await self._try(hosted, partial(_expire, names)):
                    return
                names = []
        if names:
            await self._try(hosted, partial(_expire, names))

    async def _try(self, hosted: HostedTransactions, handle: Handle) -> bool:
        """Decide on behalf of nobody; False if nothing can be decided now."""
        if not self._lease.lease_valid(self._clock.monotonic_ms()):
            return False
        try:
            await self.decide(hosted.shard.partition, handle, self.call())
        except KafkaError as error:
            log.warning("%s-%d: %s", self._topic, hosted.shard.partition, error)
            return error.code not in _NOT_NOW
        return True


def _time_out(name: str, state: ShardState, call: Call) -> AnyResult:
    return handle_timeout(state, name, call)


def _expire(names: list[str], state: ShardState, call: Call) -> AnyResult:
    return handle_expiry(state, names, call)
