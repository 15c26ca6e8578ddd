"""Reads some records of partitions for a page, whatever is in their logs.

A page costs at most so many bytes fetched, records looked at and time; what it left out it says. Batches come
whole, as they are in the log: their records are walked one by one and only those that are wanted are decoded.
After every four milliseconds of that it pauses, so that the node's own loop gets its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Final

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.fetcher import FetchConfig, FetchedBatches, PartitionFetcher
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, read_kind
from pykraft.kafka_protocol.record_codec import Headers, decompress_records, read_records
from pykraft.kafka_protocol.record_spans import iter_spans
from pykraft.kafka_protocol.records import NO_PRODUCER_ID, BatchHeader
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.clock import monotonic_us

_FETCH_BYTES: Final = 512 << 10
_MOST_UNFOLDED_BYTES: Final = 16 << 20
"""A batch that is larger when it is decompressed is not shown."""
_LARGEST_WINDOW: Final = 8_192
_OVERDRAFT: Final = 4
"""A window is read to its end for so many times the bytes of a page, since its newest records come last."""
_SLICE_US: Final = 4_000
_PAUSE_S: Final = 0.001
_RECORDS_PER_LOOK: Final = 64
_MARKERS: Final = {ABORT: "abort", COMMIT: "commit"}


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record, or what is in the place of records: ``marker`` names a control batch (commit, abort, or
    another), ``problem`` says why the records of a batch, from this offset on, cannot be shown.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    batch: BatchHeader
    size_bytes: int = 0
    marker: str | None = None
    problem: str | None = None

    @property
    def is_record(self) -> bool:
        return self.marker is None and self.problem is None

    @property
    def producer(self) -> str | None:
        if self.batch.producer_id == NO_PRODUCER_ID:
            return None
        return f"{self.batch.producer_id}, epoch {self.batch.producer_epoch}"


Matches = Callable[[FoundRecord], bool]


@dataclass(slots=True)
class Allowance:
    """The reading that is still allowed. ``by_us`` is a reading of :func:`monotonic_us`."""

    bytes: int
    records: int
    by_us: int

    @property
    def is_used_up(self) -> bool:
        return self.bytes <= 0 or self.records <= 0 or monotonic_us() > self.by_us


@dataclass(frozen=True, slots=True)
class Found:
    """Records of one partition in the order of their offsets: all that match between ``start`` and ``end``
    (exclusive), or the first or last so many of them.
    """

    records: list[FoundRecord]
    start: int
    end: int


class RecordReader:
    """Reads one partition. ``isolation_level`` as in Fetch; errors are :class:`KafkaError`."""

    def __init__(
        self,
        cluster: Cluster,
        place: TopicPartition,
        isolation_level: int,
        allowance: Allowance,
        deadline_ms: int,
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._config = FetchConfig(
            max_wait_ms=0, max_partition_fetch_bytes=_FETCH_BYTES, isolation_level=isolation_level
        )
        self._allowance = allowance
        self._deadline_ms = deadline_ms
        self._sliced_us = monotonic_us()

    async def first(self, start: int, end: int, wanted: int, matches: Matches) -> Found:
        """The first ``wanted`` records from ``start`` on."""
        records: list[FoundRecord] = []
        async with aclosing(self._walk(start, end)) as walk:
            async for record in walk:
                if record is None:
                    if self._allowance.is_used_up:
                        break
                elif matches(record):
                    records.append(record)
                    if len(records) == wanted:
                        break
        return Found(records, start, self._reached)

    async def last(self, start: int, end: int, wanted: int, matches: Matches) -> Found:
        """The last ``wanted`` records before ``end``: windows are read one before the other."""
        records: list[FoundRecord] = []
        window, first = wanted, end
        record_bytes = await self._record_bytes(end) if start < end else 1
        while first > start and len(records) < wanted:
            window = max(1, min(window, _LARGEST_WINDOW, self._allowance.bytes // record_bytes))
            window_end, first = first, max(start, first - window)
            older = await self._window(first, window_end, matches)
            if older.end < window_end:  # its newest records are missing
                return older if window_end == end else Found(records, window_end, end)
            records = older.records + records
            window *= 4
            if self._allowance.is_used_up:
                break
        if len(records) > wanted:
            records = records[-wanted:]
            first = records[0].offset
        return Found(records, first, end)

    async def _record_bytes(self, end: int) -> int:
        """How large records are in the log, as far as the last batch before ``end`` tells."""
        fetched = await self._fetcher(end - 1).fetch(self._deadline_ms)
        self._allowance.bytes -= len(fetched.data)
        if not fetched.headers:
            return 1
        _, batch = fetched.headers[0]
        return batch.size_bytes // max(1, batch.record_count) + 1

    async def _window(self, start: int, end: int, matches: Matches) -> Found:
        """All that match, unless they are too many bytes."""
        records: list[FoundRecord] = []
        least_bytes = self._allowance.bytes * (1 - _OVERDRAFT)
        async with aclosing(self._walk(start, end)) as walk:
            async for record in walk:
                if record is None:
                    if self._allowance.bytes < least_bytes:
                        break
                elif matches(record):
                    records.append(record)
        return Found(records, start, self._reached)

    async def _walk(self, start: int, end: int) -> AsyncGenerator[FoundRecord | None, None]:
        """The records from ``start`` to ``end``; None after each answer and now and then between."""
        partition, fetcher = self._place.partition, self._fetcher(start)
        self._reached = start
        try:
            while fetcher.position < end:
                fetched = await fetcher.fetch(self._deadline_ms)
                if not fetched.headers:
                    self._reached = end
                    return
                self._allowance.bytes -= len(fetched.data)
                for number, record in enumerate(_records(fetched, partition, start, end)):
                    if number % _RECORDS_PER_LOOK == 0 and monotonic_us() - self._sliced_us > _SLICE_US:
                        await asyncio.sleep(_PAUSE_S)
                        self._sliced_us = monotonic_us()
                        yield None
                    self._allowance.records -= 1
                    if record is not None:
                        self._reached = record.offset + 1
                        yield record
                self._reached = min(end, fetcher.position)
                yield None
        finally:
            fetcher.close()

    def _fetcher(self, position: int) -> PartitionFetcher:
        topic, partition = self._place
        return PartitionFetcher(self._cluster, topic, None, partition, position, self._config)


def _records(fetched: FetchedBatches, partition: int, start: int, end: int) -> Iterator[FoundRecord | None]:
    """None for each that is passed over."""
    shown = {position for position, _ in visible_batches(fetched.data, fetched.headers, fetched.aborted)}
    for position, header in fetched.headers:
        if header.base_offset >= end:
            return
        batch = fetched.data[position : position + header.size_bytes]
        try:
            if header.is_control:
                if header.base_offset >= start:
                    yield _marker(batch, header, partition)
            elif position in shown:
                yield from _batch_records(batch, header, partition, start, end)
        except KafkaError as error:
            yield FoundRecord(
                *(partition, max(start, header.base_offset), header.max_timestamp, None, None, (), header),
                problem=f"records up to offset {header.last_offset:,}: {error.message}",
            )


def _batch_records(
    batch: memoryview, header: BatchHeader, partition: int, start: int, end: int
) -> Iterator[FoundRecord | None]:
    body = decompress_records(batch, header, max_bytes=_MOST_UNFOLDED_BYTES)
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in iter_spans(body, header.record_count):
        if not start <= header.base_offset + span.offset_delta < end:
            yield None
            continue
        one = body[span.start : span.end]
        (record,) = read_records(one, 1, header.base_offset, header.base_timestamp, append_time)
        yield FoundRecord(
            partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
            header,
            len(one),
        )


def _marker(batch: memoryview, header: BatchHeader, partition: int) -> FoundRecord:
    kind = read_kind(header, bytes(batch))
    name = "an empty control batch" if kind is None else _MARKERS.get(kind, "another control record")
    return FoundRecord(
        *(partition, header.base_offset, header.max_timestamp, None, None, (), header), marker=name
    )
