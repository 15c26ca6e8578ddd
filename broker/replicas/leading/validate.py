"""Decides whether a client's record set may be appended to a log, as Kafka's LogValidator does.

First the 61-byte header and the CRC are checked, then every record: structure, offset deltas, keys and
timestamps (see :mod:`pykraft.kafka_protocol.record_walk`). Nothing that consumers or the broker rely on is
taken from the client unchecked: counts and offset deltas must be right, and the maximum timestamp is
corrected if it is not that of the records. Since Produce version 3 a partition gets exactly one batch. A
compressed batch is decompressed for the walk over its records, up to a limit, and stored as received, unless
the topic has another codec.

Both may take long: the caller decides how much is done at a time
(:mod:`pykraft.broker.replicas.leading.validation_turns`). Whether a transaction may be written to is not
decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_protocol.compiled_walk import IS_COMPILED, begin_walk
from pykraft.kafka_protocol.compression import Compression, compress, unfold
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import Buffer, ProtocolError
from pykraft.kafka_protocol.record_codec import MAX_DECOMPRESSED_BYTES
from pykraft.kafka_protocol.record_walk import MAX_REJECTED_RECORDS, RecordRules, RecordWalk
from pykraft.kafka_protocol.records import (
    CLIENT_BITS,
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
    replace_records,
    set_max_timestamp,
)
from pykraft.log_store.interface import LOG_APPEND_TIME, LogConfig

AS_PRODUCED = "producer"

_COMPACT = "compact"
_ZSTD_FROM_PRODUCE_VERSION = 7
_MAGIC_OFFSET = 16
_COPIED_RECORD_BYTES = 1024
"""Python reads records smaller than this on average from a copy of the batch: bytes are read faster than a
view, and for larger records the copy costs more than it saves.
"""
_COPIED_BATCH_BYTES = 4 << 20

_SMALL_BYTES = 1 << 20
"""A compressed batch of at most this uncompressed size is decompressed at once, a larger one in a thread.

It takes 0.4 to 2.5 ms, depending on the codec. Clients fill their batches up to about this size.
"""
_UNFOLDED_BYTES_PER_WORK = 512
"""Decompressing this many bytes takes about as long as the walk over one record."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class RejectedRecordsError(KafkaError):
    """A well-formed batch with records that the topic refuses: (index in the batch, reason) of each."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class ClientBatch:
    """One batch that is being validated: call :meth:`advance` until ``is_done``, then :meth:`finish`.

    If it ``is_large`` before that, call :meth:`unfold` in a thread and continue. Every step raises the
    :class:`KafkaError` that the partition is answered with. ``now_ms`` is the wall clock; ``version`` is the
    Produce version, which decides whether zstd may be used.
    """

    __slots__ = ("_body", "_config", "_rules", "_walk", "header", "is_done", "is_large", "records")

    def __init__(self, records: memoryview | None, config: LogConfig, now_ms: int, version: int) -> None:
        self.header = _check_header(records, config, version)
        assert records is not None
        self.records = records
        self.is_done = False
        self.is_large = False
        self._config = config
        self._rules = _rules(self.header, config, now_ms)
        self._body: Buffer = b""
        self._walk: RecordWalk | None = None

    def advance(self, work: int) -> int:
        """Continue the walk over the records; returns the work done (see :meth:`RecordWalk.advance`)."""
        done = 0
        walk = self._walk
        if walk is None:
            done = self._unfold_small()
            if self.is_large:
                return done
            walk = self._walk
        assert walk is not None
        done += walk.advance(work)
        self.is_done = walk.is_done
        return done

    def _unfold_small(self) -> int:
        """Make the records readable if that is quick, else set ``is_large``; returns the work done."""
        header = self.header
        if header.compression is Compression.NONE:
            payload = self.records[HEADER_BYTES:]
            self._begin_walk(payload if IS_COMPILED or not _is_copied(header) else bytes(payload))
            return 0
        try:
            self.unfold(_SMALL_BYTES)
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            self.is_large = True
            return _SMALL_BYTES // _UNFOLDED_BYTES_PER_WORK
        return len(self._body) // _UNFOLDED_BYTES_PER_WORK

    def unfold(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> None:
        """Decompress the records; :class:`KafkaError` if they are larger than ``max_bytes``."""
        try:
            body = unfold(self.header.compression, self.records[HEADER_BYTES:], max_bytes)
        except ProtocolError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise
            raise _invalid(error.message) from None
        self.is_large = False
        self._begin_walk(body)

    def _begin_walk(self, body: Buffer) -> None:
        self._body = body
        self._walk = begin_walk(body, self.header.record_count, self._rules)

    @property
    def needs_recompression(self) -> bool:
        """Whether :meth:`finish` compresses the batch, and so must run in a thread."""
        wanted = self._config.compression_type
        return wanted != AS_PRODUCED and _codec_of(wanted) is not self.header.compression

    def finish(self) -> None:
        """After the walk: refuse the batch for its records, or make ``records`` and ``header`` final."""
        walk = self._walk
        assert walk is not None
        if walk.rejected:
            self._reject(walk)
        if self.needs_recompression:
            self._recompress()
        if self._config.message_timestamp_type != LOG_APPEND_TIME:
            newest = max(self.header.base_timestamp + walk.greatest_delta, NO_TIMESTAMP)
            if newest != self.header.max_timestamp:
                set_max_timestamp(self.records, 0, newest)
                self.header = read_header(self.records)

    def _reject(self, walk: RecordWalk) -> None:
        base, rules = self.header.base_timestamp, self._rules
        errors = []
        is_late = False
        for index, lacks_key, delta in walk.rejected[:MAX_REJECTED_RECORDS]:
            if lacks_key:
                errors.append((index, "a record in a compacted topic must have a key"))
            else:
                is_late = True
                least, greatest = base + rules.least_delta, base + rules.greatest_delta
                errors.append((index, f"timestamp {base + delta} is not within [{least}, {greatest}]"))
        if is_late:
            raise RejectedRecordsError(
                ErrorCode.INVALID_TIMESTAMP, "the timestamp of a record is out of range", errors
            )
        raise RejectedRecordsError(
            ErrorCode.INVALID_RECORD, "a record lacks the key that compaction needs", errors
        )

    def _recompress(self) -> None:
        codec = _codec_of(self._config.compression_type)
        payload = compress(codec, self._body, self._config.compression_level)
        self.records = memoryview(replace_records(self.header, payload, codec))
        self.header = read_header(self.records)
        _check_size(len(self.records), self._config)


def _is_copied(header: BatchHeader) -> bool:
    limit = min(header.record_count * _COPIED_RECORD_BYTES, _COPIED_BATCH_BYTES)
    return header.size_bytes <= limit


def _codec_of(compression_type: str) -> Compression:
    """The codec of a topic that does not keep batches as produced."""
    return Compression.NONE if compression_type == "uncompressed" else Compression[compression_type.upper()]


def _check_header(records: memoryview | None, config: LogConfig, version: int) -> BatchHeader:
    size = 0 if records is None else len(records)
    if records is None or size == 0:
        raise _invalid("a record set must hold exactly one batch; this one holds none")
    if size > _MAGIC_OFFSET and records[_MAGIC_OFFSET] != MAGIC:
        raise _invalid(f"message format {records[_MAGIC_OFFSET]} is not supported; it must be {MAGIC}")
    if size < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are too few for a batch header")
    header = read_header(records)
    if header.size_bytes != size:
        _raise_wrong_size(header, size)
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a producer's batch must be 0, not {header.base_offset}")
    _check_size(size, config)
    if not crc_is_valid(records, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
    _check_kind(header, version)
    _check_counts(header)
    return header


def _raise_wrong_size(header: BatchHeader, size: int) -> None:
    if header.size_bytes > size or header.size_bytes < HEADER_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes, the record set has {size}",
        )
    raise _invalid("a record set must hold exactly one batch; this one holds more")


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes exceeds max.message.bytes ({config.max_message_bytes})",
        )
    if size > config.most_segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes exceeds segment.bytes ({config.most_segment_bytes})",
        )


def _check_kind(header: BatchHeader, version: int) -> None:
    attributes = header.attributes
    if attributes == 0:
        return  # like most
    codec = attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD or (codec == Compression.ZSTD and version < _ZSTD_FROM_PRODUCE_VERSION):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression codec {codec} is not supported in Produce version {version}",
        )
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set log append times")
    if attributes & ~CLIENT_BITS:
        raise _invalid(f"a producer must not set attributes {attributes:#06x}")


def _check_counts(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id < 0 and header.is_transactional:
        raise _invalid("a batch of a transaction without a producer id")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _invalid(
            f"producer epoch {header.producer_epoch} and sequence {header.base_sequence}"
            f" with producer id {header.producer_id}"
        )


def _rules(header: BatchHeader, config: LogConfig, now_ms: int) -> RecordRules:
    base = header.base_timestamp
    oldest, newest = _INT64_MIN, _INT64_MAX
    if config.message_timestamp_type != LOG_APPEND_TIME:
        oldest = max(oldest, now_ms - config.message_timestamp_before_max_ms)
        newest = min(newest, now_ms + config.message_timestamp_after_max_ms)
    return RecordRules(_COMPACT in config.cleanup_policy, oldest - base, newest - base, NO_TIMESTAMP - base)


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)
