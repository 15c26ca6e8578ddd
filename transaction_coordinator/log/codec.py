"""Encodes and decodes records in Kafka's own ``__transaction_state`` format (:mod:`.records`).

Unknown versions decode to None, with a warning: a reader must skip the records of a newer coordinator, for
instance after an upgrade that was taken back. ``last_producer_epoch`` is in no version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pykraft.kafka_protocol.codec.versioned import (
    VERSION_BYTES,
    decode_versioned,
    encode_versioned,
    read_version,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.transaction_coordinator.log.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
)
from pykraft.transaction_coordinator.transaction import (
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    Partitions,
    Transaction,
    TransactionState,
    TransactionVersion,
)

MAX_TRANSACTIONAL_ID_BYTES: Final = 0x7FFF
"""Keys have strings with a length of 16 bits."""

_RECORD_TYPE = 0
_NEWEST_VERSION = TransactionLogValue.MAX_VERSION
_LOGGED_STATES = {
    state.value: state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT
}

log = logging.getLogger(__name__)


def encode_record(
    record: TransactionRecord, transaction_version: TransactionVersion
) -> tuple[bytes, bytes | None]:
    """Key and value as they go into a record batch, in the version of a cluster with this feature."""
    key = encode_versioned(TransactionLogKey, record, 0, stated=_RECORD_TYPE)
    if record.value is None:
        return key, None
    return key, encode_versioned(
        TransactionLogValue, _to_table(record.value), _version_for(record.value, transaction_version)
    )


def _version_for(value: Transaction, transaction_version: TransactionVersion) -> int:
    """Version 0 lacks what only transactions of TV_2 have. One may be open when the feature is taken back."""
    is_of_tv_2 = value.client_version or value.next_producer_id != NO_PRODUCER_ID
    return 0 if transaction_version is TransactionVersion.TV_0 and not is_of_tv_2 else 1


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None if its version is unknown. :class:`ProtocolError` if it cannot be decoded."""
    key_version = read_version(key)
    if key_version != _RECORD_TYPE:
        log.warning("ignored a record of __transaction_state with the unknown key version %d", key_version)
        return None
    transactional_id = TransactionLogKey.decode_from(key, VERSION_BYTES, 0)[0].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = read_version(value)
    if not 0 <= version <= _NEWEST_VERSION:
        log.warning("ignored a record of __transaction_state with the unknown value version %d", version)
        return None
    return TransactionRecord(
        transactional_id, _from_table(transactional_id, decode_versioned(TransactionLogValue, value))
    )


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The same partitions grouped by topic, topics and partitions in ascending order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return {topic: sorted(grouped[topic]) for topic in sorted(grouped)}


def _to_table(value: Transaction) -> TransactionLogValue:
    """Only an empty transaction has no list of partitions; one that is complete has an empty list."""
    partitions = [
        PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in by_topic(value.partitions).items()
    ]
    return TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=None if value.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=value.last_update_timestamp_ms,
        transaction_start_timestamp_ms=value.start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_version,
    )


def _from_table(transactional_id: str, read: TransactionLogValue) -> Transaction:
    state = _LOGGED_STATES.get(read.transaction_status)
    if state is None:
        raise ProtocolError(f"{transactional_id}: unknown transaction state {read.transaction_status}")
    return Transaction(
        transactional_id,
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        state,
        _read_partitions(transactional_id, state, read.transaction_partitions),
        read.transaction_last_update_timestamp_ms,
        read.transaction_start_timestamp_ms,
        read.previous_producer_id,
        read.next_producer_id,
        _read_client_version(read.client_transaction_version),
    )


def _read_partitions(
    transactional_id: str, state: TransactionState, read: list[PartitionsSchema] | None
) -> Partitions:
    if state is TransactionState.EMPTY:
        return NO_PARTITIONS
    if read is None:
        raise ProtocolError(f"{transactional_id}: the state {state.label} has no partitions")
    return frozenset((topic.topic, index) for topic in read for index in topic.partition_ids)


def _read_client_version(read: int) -> TransactionVersion:
    """A newer version keeps to the rules of the newest that is known."""
    return TransactionVersion(min(max(read, 0), TransactionVersion.TV_2))
