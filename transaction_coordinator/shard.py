"""One partition of ``__transaction_state`` while this broker leads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykraft.coordinator.shard import Shard
from pykraft.coordinator.writer import PartitionWriter
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.transaction_coordinator.log.codec import encode_record
from pykraft.transaction_coordinator.log.replay import replay_decided
from pykraft.transaction_coordinator.result import AnyResult
from pykraft.transaction_coordinator.state import EMPTY_STATE, ShardState
from pykraft.transaction_coordinator.transaction import TransactionState, TransactionVersion

_ROOM_FOR_THE_END_BYTES: Final = 100
"""The record that ends a transaction is longer than the last one of its partitions, and must fit as well."""


class TransactionShard(Shard[ShardState, AnyResult]):
    """See :class:`.Shard`. ``transaction_version`` tells the finalized feature: records depend on it."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        writer: PartitionWriter,
        transaction_version: Callable[[], TransactionVersion],
    ) -> None:
        super().__init__(partition, leader_epoch, writer, EMPTY_STATE)
        self._transaction_version = transaction_version

    def _replay(self, state: ShardState, result: AnyResult) -> ShardState:
        return replay_decided(state, result.records)

    def _write(self, builder: BatchBuilder, result: AnyResult) -> bool:
        version = self._transaction_version()
        for record in result.records:
            builder.add(*encode_record(record, version))
        return True

    def _room_bytes(self, result: AnyResult) -> int:
        is_open = any(one.value and one.value.state is TransactionState.ONGOING for one in result.records)
        return _ROOM_FOR_THE_END_BYTES if is_open else 0

    def _has_happened(self, result: AnyResult, now_ms: int) -> None:
        """Nothing but records."""

    def _as_error(self, error: KafkaError) -> KafkaError:
        """Kafka's TransactionStateManager: find the new coordinator, retry, or give up."""
        match error.code:
            case (
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                | ErrorCode.FENCED_LEADER_EPOCH
                | ErrorCode.KAFKA_STORAGE_ERROR
            ):
                code = ErrorCode.NOT_COORDINATOR
            case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            case _:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return KafkaError(code, error.message)
