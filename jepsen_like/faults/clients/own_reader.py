"""Workloads' reader through pykraft's own fetcher: one partition after another, from given offsets."""

from collections.abc import Mapping

from pykraft.jepsen_like.faults.clients.interface import Polled, PositionLostError
from pykraft.jepsen_like.faults.clients.outcomes import answered
from pykraft.jepsen_like.faults.record_text import record_text
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import LogTruncatedError, OffsetOutOfRangeError
from pykraft.kafka_client.fetcher import FetchConfig, FetchedBatches, PartitionFetcher
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    list_offsets,
)
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Network
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import decode_batch

LOOK_UP_TIMEOUT_MS = 2_000
SHORTEST_FETCH_MS = 20
SHORTEST_RACK_FETCH_MS = 1_000
"""The leader answers first, and then the replica that it names, perhaps over a new connection."""
RACK_MAX_AGE_MS = 3_000
"""How long the leader's choice of a replica is followed."""


class OwnReader:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Reader`; for one task."""

    def __init__(
        self,
        network: Network,
        config: ClientConfig,
        positions: Mapping[TopicPartition, int],
        rack: str,
        *,
        committed: bool = False,
    ) -> None:
        self._network = network
        self._shortest_ms = SHORTEST_FETCH_MS if not rack else SHORTEST_RACK_FETCH_MS
        self._cluster = Cluster(network, config)
        self._isolation_level = READ_COMMITTED if committed else READ_UNCOMMITTED
        fetch = FetchConfig(
            max_wait_ms=SHORTEST_FETCH_MS,
            isolation_level=self._isolation_level,
            rack=rack,
            metadata_max_age_ms=RACK_MAX_AGE_MS,
        )
        self._fetchers = {
            place: PartitionFetcher(self._cluster, place.topic, None, place.partition, offset, fetch)
            for place, offset in positions.items()
        }

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        """Fetch from all partitions in turn, repeatedly until there are records or the time is over."""
        end_ms = self._network.now_ms() + round(timeout_s * 1000)
        polled: dict[TopicPartition, Polled] = {}
        while not polled and self._network.now_ms() < end_ms:
            for place in self._fetchers:
                found = await self._fetch(place, end_ms)
                if found is not None and found.records:
                    polled[place] = found
        return polled

    async def log_start(self, partition: TopicPartition) -> int:
        return await self._look_up(partition, EARLIEST_TIMESTAMP)

    async def end_offset(self, partition: TopicPartition) -> int:
        return await self._look_up(partition, LATEST_TIMESTAMP)

    async def _look_up(self, partition: TopicPartition, timestamp: int) -> int:
        deadline_ms = self._cluster.deadline(LOOK_UP_TIMEOUT_MS)
        with answered():
            found = await list_offsets(
                self._cluster, {partition: timestamp}, deadline_ms, self._isolation_level
            )
        return found[partition].offset or 0

    async def close(self) -> None:
        self._cluster.close()

    async def _fetch(self, place: TopicPartition, end_ms: int) -> Polled | None:
        """An error other than a lost position ends this poll, so that it is not repeated without a pause."""
        fetcher = self._fetchers[place]
        position = fetcher.position
        try:
            fetched = await fetcher.fetch(max(end_ms, self._network.now_ms() + self._shortest_ms))
        except (OffsetOutOfRangeError, LogTruncatedError) as error:
            raise PositionLostError(place, position, error.message) from error
        except KafkaError:
            await self._network.sleep(max(1, end_ms - self._network.now_ms()))
            return None
        is_committed = self._isolation_level == READ_COMMITTED
        limit = fetched.last_stable_offset if is_committed else fetched.high_watermark
        return Polled(read_records(fetched, position), limit)


def read_records(fetched: FetchedBatches, position: int) -> tuple[tuple[int, str], ...]:
    """Offset and text of the records from the position on: batches are sent whole, and may begin earlier."""
    return tuple(
        (record.offset, record_text(record.key, record.value))
        for start, header in visible_batches(fetched.data, fetched.headers, fetched.aborted)
        for record in decode_batch(fetched.data[start : start + header.size_bytes], header)
        if record.offset >= position
    )
