"""The records of ``__transaction_state``, the state of a transaction coordinator: values, and Kafka's tables.

There is one type: the key is a transactional id, the value all that is known of it. A value of None deletes
the id (a tombstone). :mod:`.codec` puts it into tables (a key begins with the type of the record, which is 0,
a value with its version); what it means is in :mod:`.replay`.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.transaction_coordinator.transaction import Transaction


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    transactional_id: str
    value: Transaction | None


def record_of(value: Transaction) -> TransactionRecord:
    return TransactionRecord(value.transactional_id, value)


@message(versions="0")
class TransactionLogKey(Message):
    transactional_id: str = string()


@struct
class PartitionsSchema:
    topic: str = string()
    partition_ids: list[int] = array("int32")


@message(versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    """``next_producer_epoch`` belongs to two-phase commit (KIP-939), which Kafka 4.3 does not write yet."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    client_transaction_version: int = int16("1+", tag=2)
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
