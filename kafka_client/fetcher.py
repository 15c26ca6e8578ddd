"""Fetches the raw record batches of one partition, in order, across leader changes.

Decides which broker to ask, what an error means, and how far an answer reaches; never reads more of a batch
than its header. Temporary errors (a moved leader, a fenced epoch, a broken connection) are retried with
growing pauses; permanent ones are raised with a type of their own: records expired or truncated
(:class:`DataLossError`), the topic deleted or created again with a new id. Follows KIP-320 (epochs on every
request), KIP-516 (topic ids), KIP-951 (leader hints), KIP-392 (a replica in the reader's rack, for
``metadata_max_age_ms`` at a time). Sends without a fetch session.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_client.errors import (
    DataLossError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicDeletedError,
    TopicRecreatedError,
)
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
    list_offsets,
)
from pykraft.kafka_client.metadata import Broker, Partition, TopicPartition, has_id
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, iter_headers
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address

_LAST_VERSION_WITH_TOPIC_NAMES: Final = 12
_LARGEST_PARTITION_MAX_BYTES: Final = 1 << 30

_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Limits of a fetch, under Kafka's names. The broker may return less."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 1 << 20
    isolation_level: int = READ_UNCOMMITTED
    rack: str = ""
    check_crcs: bool = True
    metadata_max_age_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """One answer: ``data`` holds the whole batches that ``headers`` describe (position in ``data``, header).

    The first batch may begin below the requested offset: batches are sent whole. The next fetch begins at
    ``next_offset``. ``aborted`` holds the (producer id, first offset) of aborted transactions, with
    read_committed only.
    """

    data: memoryview
    headers: tuple[tuple[int, BatchHeader], ...]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()


class PartitionFetcher:
    """Reads one partition from ``position`` on. With ``topic_id`` any other topic of that name is refused."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        topic_id: Uuid | None,
        partition: int,
        position: int,
        config: FetchConfig,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._topic_id = topic_id if topic_id is not None and has_id(topic_id) else None
        self._partition = partition
        self._config = config
        self._max_partition_bytes = config.max_partition_fetch_bytes
        self._last_fetched_epoch = -1
        self._replica_id: int | None = None
        self._replica_until_ms = 0  # how long the leader's choice of a replica is followed
        self._leader_until_ms = 0  # how long only the leader is asked, since that replica was of no use
        self._max_wait_ms = config.max_wait_ms
        self._sent: tuple[Connection, int] | None = None
        self._position = position

    @property
    def position(self) -> int:
        """The next offset. Set it to go on elsewhere.

        Then the leader must not compare what was read last with what comes before: of records that were
        deleted meanwhile it knows no epoch, and would say that this offset is out of range, too.
        """
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        self.close()
        self._last_fetched_epoch = -1
        self._position = position

    async def fetch(
        self, deadline_ms: int, *, read_ahead_until: int | None = None, max_wait_ms: int | None = None
    ) -> FetchedBatches:
        """The next answer; it is empty when nothing arrived within ``max_wait_ms`` (None: as configured).

        With ``read_ahead_until`` the request for the next records is sent before this returns, if the answer
        held data and did not reach that offset: the broker works while the caller decodes.
        """
        self._max_wait_ms = self._config.max_wait_ms if max_wait_ms is None else max_wait_ms
        try:
            fetched = await self._cluster.retrying(
                f"fetch of {self._topic}-{self._partition} at {self.position}",
                lambda: self._attempt(deadline_ms),
                deadline_ms,
            )
        except KafkaError as error:
            if error.code in _UNKNOWN_TOPIC:
                raise TopicDeletedError(self._topic, error.message) from error
            raise
        began, self._position = self._position, fetched.next_offset
        if read_ahead_until is not None and fetched.headers and self.position < read_ahead_until:
            try:
                await self._send_ahead(deadline_ms)
            except BaseException:  # cancelled: nobody gets what was fetched
                self.position = began
                raise
        return fetched

    def close(self) -> None:
        """Drop an answer that has not arrived yet."""
        if self._sent is not None:
            self._sent[0].close()
            self._sent = None

    async def _attempt(self, deadline_ms: int) -> FetchedBatches:
        try:
            while True:
                fetched = await self._exchange(deadline_ms)
                if fetched is not None:
                    return fetched
        except KafkaError as error:
            self._replica_id = None
            if is_passing(error):
                await self._refresh(deadline_ms)
            raise

    async def _exchange(self, deadline_ms: int) -> FetchedBatches | None:
        """One request and its answer; None if another broker, or more bytes, must be asked for."""
        if self._sent is None:
            self._sent = await self._send(deadline_ms)
        (connection, version), self._sent = self._sent, None  # a connection ends with a wait that is cut off
        response = await connection.receive(FetchResponse, self._answer_by(deadline_ms))
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"fetch from {connection.address}")
        result = self._find(response, version)
        diverges = result.diverging_epoch.end_offset >= 0
        if self._replica_id is not None and (diverges or result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE):
            # A follower may be behind; only the leader's answer counts. Stay with the leader for a while.
            self._replica_id = None
            self._leader_until_ms = self._cluster.network.now_ms() + self._config.metadata_max_age_ms
            return None
        if result.error_code:
            await self._raise_for(result, response, deadline_ms)
        if diverges:
            raise LogTruncatedError(
                self._topic, self._partition, self.position, result.diverging_epoch.end_offset
            )
        return self._interpret(result)

    def _interpret(self, result: PartitionData) -> FetchedBatches | None:
        data = memoryview(result.records or b"")
        headers = self._read_headers(data)
        if headers:
            last_position, last = headers[-1]
            data = data[: last_position + last.size_bytes]
            self._last_fetched_epoch = last.partition_leader_epoch
        elif len(data):
            # Only brokers before Fetch v3 truncate the first batch; ask again with room for it.
            if self._max_partition_bytes >= _LARGEST_PARTITION_MAX_BYTES:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{self._topic}-{self._partition}: the batch at offset {self.position} is too large",
                )
            self._max_partition_bytes *= 2
            return None
        elif result.preferred_read_replica >= 0 and self._replica_id is None:
            self._replica_id = result.preferred_read_replica
            self._replica_until_ms = self._cluster.network.now_ms() + self._config.metadata_max_age_ms
            return None
        return FetchedBatches(
            data=data,
            headers=headers,
            next_offset=max(self.position, headers[-1][1].next_offset) if headers else self.position,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted=tuple((one.producer_id, one.first_offset) for one in result.aborted_transactions or ()),
        )

    def _read_headers(self, data: memoryview) -> tuple[tuple[int, BatchHeader], ...]:
        """CORRUPT_MESSAGE, which is retried, if a batch is not as it was written."""
        try:
            headers = tuple(iter_headers(data))
        except ProtocolError as error:
            raise self._corrupt(self.position, str(error)) from None
        if self._config.check_crcs:
            for position, header in headers:
                if not crc_is_valid(data, position, header):
                    raise self._corrupt(header.base_offset, "its CRC does not match")
        return headers

    def _corrupt(self, offset: int, why: str) -> KafkaError:
        where = f"{self._topic}-{self._partition}: the batch at offset {offset}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{where} is corrupt: {why}")

    async def _send(self, deadline_ms: int) -> tuple[Connection, int]:
        known = await self._cluster.leader(self._topic, self._partition, deadline_ms)
        self._check_identity(known)
        now_ms = self._cluster.network.now_ms()
        if now_ms >= self._replica_until_ms:
            self._replica_id = None  # the leader chooses again
        target = known.leader_id if self._replica_id is None else self._replica_id
        assert target is not None
        connection = await self._cluster.broker(target, deadline_ms)
        ceiling = None if has_id(known.topic_id) else _LAST_VERSION_WITH_TOPIC_NAMES
        request = self._request(known, self._config.rack if now_ms >= self._leader_until_ms else "")
        version = await connection.send(
            request, self._cluster.request_deadline(deadline_ms), max_version=ceiling
        )
        return connection, version

    async def _send_ahead(self, deadline_ms: int) -> None:
        """Send the next request early. A failure is not reported here: the next attempt meets it again."""
        try:
            self._sent = await self._send(deadline_ms)
        except KafkaError:
            self._sent = None

    def _request(self, known: Partition, rack: str) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._partition,
            current_leader_epoch=-1 if known.leader_epoch is None else known.leader_epoch,
            fetch_offset=self.position,
            last_fetched_epoch=self._last_fetched_epoch,
            partition_max_bytes=self._max_partition_bytes,
        )
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._config.min_bytes,
            max_bytes=max(self._config.max_bytes, self._max_partition_bytes),
            isolation_level=self._config.isolation_level,
            topics=[FetchTopic(topic=self._topic, topic_id=known.topic_id, partitions=[wanted])],
            rack_id=rack,
        )

    def _check_identity(self, known: Partition) -> None:
        if self._topic_id is None:
            self._topic_id = known.topic_id if has_id(known.topic_id) else None
        elif has_id(known.topic_id) and known.topic_id != self._topic_id:
            raise TopicRecreatedError(self._topic, self._topic_id, known.topic_id)

    def _find(self, response: FetchResponse, version: int) -> PartitionData:
        for topic in response.responses:
            if version <= _LAST_VERSION_WITH_TOPIC_NAMES and topic.topic != self._topic:
                continue
            for partition in topic.partitions:
                if partition.partition_index == self._partition:
                    return partition
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the response to a fetch lacks {self._topic}-{self._partition}"
        )

    async def _raise_for(self, result: PartitionData, response: FetchResponse, deadline_ms: int) -> None:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await self._out_of_range(deadline_ms)
        if code in _UNKNOWN_TOPIC:
            # A broker that has just become leader may not know it yet. The metadata, which is refreshed next,
            # tells whether the topic is deleted.
            code = ErrorCode.LEADER_NOT_AVAILABLE
        hint = result.current_leader
        brokers = [
            Broker(node.node_id, Address(node.host, node.port), node.rack) for node in response.node_endpoints
        ]
        self._cluster.metadata.replay_leader(
            self._topic, self._partition, hint.leader_id, hint.leader_epoch, brokers
        )
        raise KafkaError(code, f"fetch of {self._topic}-{self._partition} at {self.position}")

    async def _out_of_range(self, deadline_ms: int) -> DataLossError:
        key = TopicPartition(self._topic, self._partition)
        first = await list_offsets(self._cluster, {key: EARLIEST_TIMESTAMP}, deadline_ms)
        end = await list_offsets(self._cluster, {key: LATEST_TIMESTAMP}, deadline_ms)
        return OffsetOutOfRangeError(
            self._topic, self._partition, self.position, first[key].offset or 0, end[key].offset or 0
        )

    async def _refresh(self, deadline_ms: int) -> None:
        """After a temporary error: find the current leader. That error decides about the retry."""
        with suppress(KafkaError):
            await self._cluster.refresh([self._topic], deadline_ms)

    def _answer_by(self, deadline_ms: int) -> int:
        """A long poll may take its whole wait in addition to the request timeout."""
        limit_ms = self._cluster.config.request_timeout_ms + self._max_wait_ms
        return min(deadline_ms + self._max_wait_ms, self._cluster.network.now_ms() + limit_ms)
