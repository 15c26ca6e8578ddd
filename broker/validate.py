"""Whether a record set that a client sent may enter a log: by its 61-byte header and its CRC alone.

Never opens the records, so a compressed batch stays as it is and no bomb is ever unfolded here. Since Produce
version 3 a partition gets exactly one batch. Transactions are not there yet: a transactional batch is refused
with INVALID_TXN_STATE, since no coordinator has begun a transaction for it.
"""

from __future__ import annotations

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from pykraft.log_store.interface import LogConfig

_ZSTD_FROM_PRODUCE_VERSION = 7
_MAGIC_OFFSET = 16
LOG_APPEND_TIME = "LogAppendTime"


def validate_client_batch(
    records: memoryview | None, config: LogConfig, now_ms: int, version: int
) -> BatchHeader:
    """The header of the one batch in ``records``, or the :class:`KafkaError` that its partition gets.

    ``now_ms`` is the wall clock; ``version`` the Produce version, which decides whether zstd may be used.
    """
    size = 0 if records is None else len(records)
    if records is None or size == 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a record set holds exactly one batch, this one holds none"
        )
    if size > _MAGIC_OFFSET and records[_MAGIC_OFFSET] != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"message format {records[_MAGIC_OFFSET]}, required is {MAGIC}"
        )
    if size < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are less than a batch header")
    header = read_header(records)
    if header.size_bytes != size:
        _raise_wrong_size(header, size)
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes; allowed are {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes; a segment has {config.segment_bytes}"
        )
    if not crc_is_valid(records, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
    _check_kind(header, version)
    _check_counts(header)
    _check_timestamps(header, config, now_ms)
    return header


def _raise_wrong_size(header: BatchHeader, size: int) -> None:
    if header.size_bytes > size or header.size_bytes < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size_bytes} bytes in {size} bytes")
    raise KafkaError(ErrorCode.INVALID_RECORD, "a record set holds exactly one batch, this one holds more")


def _check_kind(header: BatchHeader, version: int) -> None:
    codec = header.attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD or (codec == Compression.ZSTD and version < _ZSTD_FROM_PRODUCE_VERSION):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in Produce version {version}"
        )
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker does not coordinate transactions")


def _check_counts(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta}",
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer epoch {header.producer_epoch} and sequence {header.base_sequence}"
            f" with producer id {header.producer_id}",
        )


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may stamp the time of an append")
    newest, first = header.max_timestamp, header.base_timestamp
    if newest != NO_TIMESTAMP and newest - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, f"timestamp {newest} is {newest - now_ms} ms in the future"
        )
    if first != NO_TIMESTAMP and now_ms - first > config.message_timestamp_before_max_ms:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {first} is {now_ms - first} ms old")
