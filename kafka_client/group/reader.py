"""A group member's reading: its position in each partition it owns, and the records from there on.

A position belongs to one assignment of a partition: another member may have read, and committed, before the
next one. What a partition answers counts only while it is owned and the position is still the one that was
asked from; records that nobody was given, since the call was cancelled, are read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    TopicDeletedError,
    TopicRecreatedError,
)
from pykraft.kafka_client.fetcher import FetchConfig, FetchedBatches, PartitionFetcher
from pykraft.kafka_client.group.config import GroupConfig
from pykraft.kafka_client.group.ownership import Ownership
from pykraft.kafka_client.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import CommittedOffset
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.lazy_dataclass import dataclass

SHORT_WAIT_MS = 100
"""How long a poll waits for the broker of one partition while other partitions may have records."""
_MIN_FETCH_TIMEOUT_MS = 1_000
"""A fetch gets at least this time, however short the poll is: a connection may have to be opened."""

# An OffsetFetch between two epochs, or while the group moves: retry when the member has caught up.
_NOT_YET = frozenset(
    {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
)

Committed = Callable[[Sequence[TopicPartition], int], Awaitable[Mapping[TopicPartition, CommittedOffset]]]
"""``(partitions, timeout_ms)`` → the offsets that the group has committed."""


@dataclass(frozen=True, slots=True)
class PolledRecords:
    """Records of one partition in order. The offset to commit is ``next_offset``, with ``leader_epoch``."""

    records: tuple[Record, ...]
    next_offset: int
    leader_epoch: int | None
    high_watermark: int


@dataclass(frozen=True, slots=True)
class _Read:
    """Records that ``fetcher`` has read from ``position`` on."""

    fetcher: PartitionFetcher
    position: int
    polled: PolledRecords


class GroupReader:
    """For one task that reads; others may :meth:`seek`, and the ownership changes meanwhile."""

    def __init__(
        self,
        cluster: Cluster,
        config: GroupConfig,
        fetch: FetchConfig,
        ownership: Ownership,
        committed: Committed,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._fetch = fetch
        self._ownership = ownership
        self._committed = committed
        self._fetchers: dict[TopicPartition, PartitionFetcher] = {}
        self._looked_for: set[TopicPartition] = set()
        self._out_of_range: set[TopicPartition] = set()
        self._put_off: KafkaError | None = None
        self._turn = 0

    @property
    def has_positions(self) -> bool:
        return bool(self._fetchers)

    def begin_anew(self, partitions: Collection[TopicPartition]) -> None:
        """These were assigned: what was known of their positions is out of date."""
        for partition in partitions:
            self._forget_position(partition)
        self._out_of_range.difference_update(partitions)
        self._looked_for.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset``; only for a partition that is owned."""
        if partition not in self._ownership.held():
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"{partition} is not owned")
        self._forget_position(partition)
        self._out_of_range.discard(partition)
        self._fetchers[partition] = PartitionFetcher(
            self._cluster, partition.topic, None, partition.partition, offset, self._fetch
        )

    async def read(self, deadline_ms: int) -> dict[TopicPartition, PolledRecords]:
        """One round over the owned partitions. The last one is waited for.

        Raises what ended the round before, after that has returned its records.
        """
        if self._put_off is not None:
            error, self._put_off = self._put_off, None
            raise error
        readable = sorted(self._ownership.readable())
        for partition in sorted(self._fetchers.keys() - set(readable)):
            self._forget_position(partition)
        fetch_deadline_ms = max(deadline_ms, self._cluster.network.now_ms() + _MIN_FETCH_TIMEOUT_MS)
        await self._find_positions([p for p in readable if p not in self._fetchers], fetch_deadline_ms)
        turn = [p for p in readable if p in self._fetchers]
        self._turn += 1
        if turn:
            first = self._turn % len(turn)
            turn = turn[first:] + turn[:first]
        found: dict[TopicPartition, _Read] = {}
        for partition in turn:
            wait_ms = 0
            if partition == turn[-1] and not found:
                wait_ms = max(0, min(SHORT_WAIT_MS, deadline_ms - self._cluster.network.now_ms()))
            try:
                read = await self._read_one(partition, fetch_deadline_ms, wait_ms)
            except KafkaError as error:
                if not found:
                    raise
                self._put_off = error  # the others' positions are behind what was found
                break
            except BaseException:  # cancelled
                for read in found.values():
                    read.fetcher.position = read.position
                raise
            if read is not None and read.polled.records:
                found[partition] = read
        # Partitions that were revoked or lost meanwhile must not be read.
        for partition in sorted(found.keys() - set(self._ownership.readable())):
            self._forget_position(partition)
        return {where: read.polled for where, read in found.items() if self._is_read_by(read.fetcher, where)}

    async def _read_one(self, partition: TopicPartition, deadline_ms: int, wait_ms: int) -> _Read | None:
        fetcher = self._fetchers.get(partition)
        if fetcher is None:
            return None
        position = fetcher.position
        try:
            fetched = await fetcher.fetch(deadline_ms, max_wait_ms=wait_ms)
        except KafkaError as error:
            if not self._is_read_by(fetcher, partition):
                return None
            if isinstance(error, DataLossError):
                self._forget_position(partition)
                if isinstance(error, TopicDeletedError | TopicRecreatedError):
                    return None  # the next assignment says what to read instead
                if isinstance(error, OffsetOutOfRangeError):
                    self._out_of_range.add(partition)
            elif is_passing(error):
                return None
            raise
        return _Read(fetcher, position, _decode(fetched, position))

    def _is_read_by(self, fetcher: PartitionFetcher, partition: TopicPartition) -> bool:
        """Whether it still is: the application may have sought, or the partition been away, meanwhile."""
        return self._fetchers.get(partition) is fetcher

    async def _find_positions(self, partitions: Sequence[TopicPartition], deadline_ms: int) -> None:
        """Where the group committed, else where ``auto_offset_reset`` says."""
        if not partitions:
            return
        self._looked_for = set(partitions)
        timeout_ms = max(0, deadline_ms - self._cluster.network.now_ms())
        try:
            committed = {
                partition: found.offset
                for partition, found in (await self._committed(partitions, timeout_ms)).items()
                if partition not in self._out_of_range
            }
            reset = LATEST_TIMESTAMP if self._config.auto_offset_reset == "latest" else EARLIEST_TIMESTAMP
            unknown = {partition: reset for partition in partitions if partition not in committed}
            listed = await list_offsets(self._cluster, unknown, deadline_ms) if unknown else {}
        except KafkaError as error:
            if is_passing(error) or error.code in _NOT_YET:
                return
            raise
        for partition in sorted(self._looked_for & self._ownership.held().keys()):
            if partition not in self._fetchers:
                known = committed.get(partition)
                self.seek(partition, listed[partition].offset or 0 if known is None else known)

    def _forget_position(self, partition: TopicPartition) -> None:
        fetcher = self._fetchers.pop(partition, None)
        if fetcher is not None:
            fetcher.close()


def _decode(fetched: FetchedBatches, position: int) -> PolledRecords:
    """The records from ``position`` on: the first batch may begin below it."""
    shown = visible_batches(fetched.data, fetched.headers, fetched.aborted)
    records = [
        record
        for at, header in shown
        for record in decode_batch(fetched.data[at : at + header.size_bytes], header)
        if record.offset >= position
    ]
    epoch = fetched.headers[-1][1].partition_leader_epoch if fetched.headers else -1
    return PolledRecords(
        tuple(records), fetched.next_offset, epoch if epoch >= 0 else None, fetched.high_watermark
    )
