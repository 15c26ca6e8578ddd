"""Reads the partitions that a Fetch asks for, within the limits of the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pykraft.broker.apis.records.leader_hints import HINTED, find_leader
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_sessions.session import Results, topic_key
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.replica_selector import RACK_AWARE_SELECTOR, ReplicaView, select_follower
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition, FetchRequestView, FetchTopic
from pykraft.kafka_protocol.hot.fetch_responses import FetchResult
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import STORAGE_ERRORS, LogSlice
from pykraft.log_store.segment.reading import BadIndexError

_NONE = int(ErrorCode.NONE)

Aborted: TypeAlias = Sequence[tuple[int, int]] | None
"""(producer id, first offset) of each aborted transaction; None for readers that do not ask."""


@dataclass(slots=True)
class Found:
    """Results so far. ``is_final``: answer now. ``is_short``: limits left too little room for some."""

    results: Results
    size_bytes: int
    is_final: bool
    is_short: bool = False


class FetchReader:
    """One per broker."""

    def __init__(self, services: BrokerServices) -> None:
        self._replicas = services.replicas
        self._metadata = services.metadata
        self._clock = services.clock
        self._max_bytes = services.config.fetch_max_bytes
        self._selects = services.config.replica_selector_class == RACK_AWARE_SELECTOR
        self._rack = services.config.rack

    def find(self, topic: FetchTopic, asked: FetchPartition, *, needs_leader: bool) -> Partition:
        """The replica here, in the role and epoch that the request needs; :class:`KafkaError` if not."""
        if topic.topic_id is not None:
            partition = self._replicas.by_id(topic.topic_id, asked.partition)
        else:
            assert topic.name is not None
            partition = self._replicas.by_name(topic.name, asked.partition)
        if needs_leader and not partition.is_leader:
            partition.require_leader(asked.current_leader_epoch)
        elif asked.current_leader_epoch >= 0:
            partition.require_epoch(asked.current_leader_epoch)
        return partition

    def diverging(
        self, partition: Partition, replica_id: int, asked: FetchPartition
    ) -> tuple[int, int] | None:
        """(epoch, end offset) where the reader's log diverges from this one; None if it does not."""
        if replica_id >= 0:
            end = partition.check_follower(replica_id, asked.fetch_offset, asked.last_fetched_epoch)
        elif asked.last_fetched_epoch >= 0:
            before = asked.fetch_offset - 1
            if partition.log.epoch_cache.epoch_for_offset(before) != asked.last_fetched_epoch:
                # The log was truncated since, the batch has rotted in its header, or the epoch is made up.
                self._replicas.check_epoch(partition, before)
            end = partition.diverging_epoch(asked.fetch_offset, asked.last_fetched_epoch)
        else:
            return None
        return None if end is None else (end.epoch, end.end_offset)

    def read(self, request: FetchRequestView, topics: Sequence[FetchTopic], read_bytes: int = 0) -> Found:
        """Read ``topics``, which the request names or stands for; others of them gave ``read_bytes``."""
        left = min(request.max_bytes, self._max_bytes) - read_bytes
        is_replica = request.replica_id >= 0
        is_committed = request.reads_committed
        needs_leader = request.needs_leader
        rack = request.rack_id if self._selects and not is_replica and request.rack_id else None
        refusal = None if is_replica else self._refusal_if_fenced()
        found: Results = []
        total = read_bytes
        is_final = is_short = False
        for topic in topics:
            results: list[FetchResult] = []
            found.append((topic_key(topic), results))
            for asked in topic.partitions:
                try:
                    if refusal is not None:
                        raise refusal
                    partition = self.find(topic, asked, needs_leader=needs_leader)
                    preferred = -1 if rack is None else self._preferred_replica(partition, asked, rack)
                    diverging = self.diverging(partition, request.replica_id, asked)
                    if diverging is not None and not is_replica:
                        self._replicas.refuse_past_lease()
                    records = None
                    aborted: Aborted = () if is_committed else None
                    if is_replica and partition.must_send_log_start(request.replica_id):
                        is_final = True
                    if diverging is not None or preferred >= 0:
                        is_final = True
                    elif is_replica and self._is_held_back(partition, request.replica_id):
                        pass  # the same as if nothing were there to read
                    elif left > 0 or total == 0:
                        limit = asked.max_bytes
                        if limit > left:
                            limit, is_short = left, True
                        offset = asked.fetch_offset
                        if is_committed:
                            records, aborted = self._read_stable(partition, offset, limit, total == 0)
                        else:
                            records = self._read_log(partition, offset, limit, is_replica, total == 0)
                        if records is not None:
                            total += records.size_bytes
                            left -= records.size_bytes
                            if is_replica:
                                partition.followers[request.replica_id].sent_offset = asked.fetch_offset
                    else:
                        is_short = True
                except KafkaError as error:
                    is_final = True
                    said = error if is_replica else self._said(error)
                    results.append(self._error(topic, asked, said, needs_leader=needs_leader))
                    continue
                results.append(
                    FetchResult(
                        asked.partition,
                        _NONE,
                        partition.high_watermark,
                        partition.log.log_start_offset,
                        records,
                        diverging,
                        None,
                        preferred,
                        partition.last_stable_offset,
                        aborted,
                    )
                )
        return Found(found, total, is_final, is_short)

    def _refusal_if_fenced(self) -> KafkaError | None:
        try:
            self._replicas.refuse_if_fenced()
        except KafkaError as error:
            return error
        return None

    def _said(self, error: KafkaError) -> KafkaError:
        """Translate for a consumer: past its lease a broker cannot know that an offset is in no log."""
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                self._replicas.refuse_past_lease()
            except KafkaError as refusal:
                return refusal
        return error

    def _is_held_back(self, partition: Partition, replica_id: int) -> bool:
        """Whether the throttle of leaders keeps records from a follower that is not in sync (KIP-73)."""
        return (
            partition.is_throttled_leader
            and replica_id not in partition.isr.committed
            and self._replicas.quotas.leader.is_exceeded(self._clock.monotonic_ms())
        )

    def count_sent(self, results: Results, *, is_replica: bool) -> None:
        """Records sent count as traffic, throttled ones also against the limit, even to followers in sync."""
        throttled = 0
        for topic, of_topic in results:
            for result in of_topic:
                if not isinstance(result.records, LogSlice):
                    continue
                partition = self._replicas.table.look_up(topic, result.partition)
                if partition is None:
                    continue
                if is_replica:
                    partition.traffic.replication_bytes_out += result.records.size_bytes
                    throttled += result.records.size_bytes if partition.is_throttled_leader else 0
                else:
                    partition.traffic.bytes_out += result.records.size_bytes
        quota = self._replicas.quotas.leader
        if throttled and quota.limit is not None:
            quota.record(throttled, self._clock.monotonic_ms())

    def _read_log(
        self, partition: Partition, offset: int, limit: int, is_replica: bool, at_least_one: bool
    ) -> LogSlice | None:
        read = partition.read_replica if is_replica else partition.read_committed
        try:
            return read(offset, max(limit, 0), at_least_one=at_least_one)
        except BadIndexError:
            return None  # the fetch is woken when the index has been built again
        except STORAGE_ERRORS as error:
            raise partition.storage_failed(error) from error

    def _read_stable(
        self, partition: Partition, offset: int, limit: int, at_least_one: bool
    ) -> tuple[LogSlice | None, Aborted]:
        """Read committed records, and list the aborted transactions among them."""
        try:
            piece = partition.read_stable(offset, max(limit, 0), at_least_one=at_least_one)
            if piece is None:
                return None, ()
            found = partition.aborted_in(piece, offset)
            return piece, [(one.producer_id, one.first_offset) for one in found]
        except BadIndexError:
            return None, ()  # the fetch is woken when the index has been built again
        except STORAGE_ERRORS as error:
            raise partition.storage_failed(error) from error

    def _preferred_replica(self, partition: Partition, asked: FetchPartition, rack: str) -> int:
        """The follower in the ISR that the consumer is to read; -1 for the leader."""
        if not partition.is_leader:
            return -1
        brokers, offset = self._metadata.image.brokers, asked.fetch_offset
        views = [
            ReplicaView(
                replica, brokers[replica].rack, follower.log_end_offset, follower.last_caught_up_ms or 0
            )
            for replica, follower in partition.followers.items()
            if replica in partition.isr.committed
            and follower.log_start_offset <= offset <= follower.log_end_offset
            and self._metadata.image.is_active(replica)
        ]
        selected = select_follower(rack, self._rack, views)
        return -1 if selected is None else selected

    def _error(
        self, topic: FetchTopic, asked: FetchPartition, error: KafkaError, *, needs_leader: bool
    ) -> FetchResult:
        """The error, with a hint at the leader (KIP-951) or the valid offsets if the error calls for them."""
        self._replicas.table.traffic.failed_fetch += 1
        leader: tuple[int, int] | None = None
        high_watermark = log_start = stable = -1
        if error.code in HINTED:
            image, node_id = self._metadata.image, self._replicas.node_id
            leader = find_leader(image, topic.name, topic.topic_id, asked.partition, node_id)
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            partition = self.find(topic, asked, needs_leader=needs_leader)
            high_watermark, log_start = partition.high_watermark, partition.log.log_start_offset
            stable = partition.last_stable_offset
        return FetchResult(
            asked.partition,
            int(error.code),
            high_watermark,
            log_start,
            leader=leader,
            last_stable_offset=stable,
        )
