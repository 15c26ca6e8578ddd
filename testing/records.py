"""Records as tests write and read them, over pykraft's own client."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import ClientTimeoutError, ProduceError
from pykraft.kafka_client.fetcher import FetchConfig, PartitionFetcher
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    list_offsets,
)
from pykraft.kafka_client.metadata import Partition, TopicPartition
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import NO_TIMESTAMP

_AGAIN_AFTER_MS: Final = 10

Data = bytes | str | None
"""Text is written as UTF-8."""


@dataclass(frozen=True, slots=True)
class Record:
    """One to write, or one that was written: then it has its partition, its offset and its timestamp."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    """A record to write without one gets the time of writing."""
    topic: str = field(default="", kw_only=True)
    partition: int = field(default=-1, kw_only=True)
    offset: int = field(default=-1, kw_only=True)


Writable = Data | tuple[Data, Data] | Record
"""A value, a key and a value, or a whole record."""


def as_record(written: Writable, now_ms: int) -> Record:
    """:class:`TypeError` for what no client could write."""
    if isinstance(written, Record):
        record = written if written.timestamp_ms != NO_TIMESTAMP else replace(written, timestamp_ms=now_ms)
    elif isinstance(written, tuple):
        if len(written) != 2:
            raise TypeError(f"a pair must be key and value: {written!r} has {len(written)} items")
        record = Record(_encoded(written[1]), _encoded(written[0]), timestamp_ms=now_ms)
    else:
        record = Record(_encoded(written), timestamp_ms=now_ms)
    for data in (record.value, record.key, *(value for _, value in record.headers)):
        if data is not None and not isinstance(data, bytes):
            raise TypeError(
                f"a record is bytes, text or None, not {data!r}, which is of type {type(data).__name__}"
            )
    return record


def _encoded(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def produce(
    client: ClientConfig,
    topic: str,
    written: Sequence[Writable],
    partition: int | None,
    timeout_s: float,
    running: Collection[int],
) -> list[Record]:
    """Write them in order, each acknowledged by all replicas in sync; as they are in the log.

    ``running``: ids of the nodes that run. :class:`TimeoutError` says what was last in the way.
    """
    now_ms = round(time.time() * 1000)
    records = [as_record(one, now_ms) for one in written]
    timeout_ms = max(1, round(timeout_s * 1000))
    _check_homes(_look_up(client, topic, partition, timeout_ms), running)
    config = ProducerConfig(delivery_timeout_ms=timeout_ms, max_block_ms=timeout_ms)
    with BlockingProducer(client, config) as producer:
        sent = [
            producer.send(topic, partition, one.key, one.value, one.headers, one.timestamp_ms)
            for one in records
        ]
        places: list[RecordMetadata] = []
        try:
            places.extend(one.result() for one in sent)
        except ProduceError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            missing = f"{len(sent) - len(places)} of {len(sent)} records were not written to {topic}"
            raise TimeoutError(f"{missing} within {timeout_s:g} s: {error.message}") from error
    return [
        Record(
            one.value,
            one.key,
            one.headers,
            place.timestamp_ms,
            topic=topic,
            partition=place.partition,
            offset=-1 if place.offset is None else place.offset,
        )
        for one, place in zip(records, places, strict=True)
    ]


def _look_up(client: ClientConfig, topic: str, partition: int | None, timeout_ms: int) -> list[Partition]:
    """The partitions of the topic, or the one that is meant. :class:`KafkaError` if there is none."""
    cluster = Cluster(BlockingNetwork(), client)
    try:
        return run(_partitions(cluster, topic, partition, cluster.deadline(timeout_ms)))
    finally:
        cluster.close()


def _check_homes(partitions: Sequence[Partition], running: Collection[int]) -> None:
    """Nothing can be written where no replica runs: :class:`RuntimeError`."""
    homes = {node for one in partitions for node in one.replicas}
    if homes.isdisjoint(running):
        which = (
            f"{partitions[0].topic}-{partitions[0].index}" if len(partitions) == 1 else partitions[0].topic
        )
        raise RuntimeError(f"no replica of {which} runs; its nodes are {', '.join(map(str, sorted(homes)))}")


def read(
    client: ClientConfig,
    topic: str,
    count: int | None,
    partition: int | None,
    *,
    committed: bool,
    timeout_s: float,
) -> list[Record]:
    """All records there are, or the first ``count`` that are found, by partition and offset.

    :class:`TimeoutError` if there are not so many in time; :class:`KafkaError`.
    """
    cluster = Cluster(BlockingNetwork(), client)
    try:
        return run(_read(cluster, topic, count, partition, committed, round(timeout_s * 1000)))
    finally:
        cluster.close()


async def _read(
    cluster: Cluster, topic: str, count: int | None, partition: int | None, committed: bool, timeout_ms: int
) -> list[Record]:
    deadline_ms = cluster.deadline(timeout_ms)
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    found: list[Record] = []
    reason = ""
    try:
        known = await _partitions(cluster, topic, partition, deadline_ms)
        places = [TopicPartition(topic, one.index) for one in known]
        starts = await _offsets(cluster, places, EARLIEST_TIMESTAMP, level, deadline_ms)
        ends = await _offsets(cluster, places, LATEST_TIMESTAMP, level, deadline_ms)
        config = FetchConfig(max_wait_ms=0, isolation_level=level)
        fetchers = {
            place: PartitionFetcher(cluster, topic, None, place.partition, starts[place], config)
            for place in places
        }
        while len(found) < count if count is not None else _is_behind(fetchers, ends):
            if cluster.network.now_ms() >= deadline_ms:
                break
            before = len(found)
            for place, fetcher in fetchers.items():
                if count is not None or fetcher.position < ends[place]:
                    found += await _fetch(fetcher, place, deadline_ms)
            if len(found) == before:
                await cluster.network.sleep(_AGAIN_AFTER_MS)
        else:
            return sorted(found[:count], key=lambda one: (one.partition, one.offset))
    except ClientTimeoutError as error:
        reason = f": {error.message}"
    wanted = f"all of {topic}" if count is None else f"{count} of {topic}"
    raise TimeoutError(f"{len(found)} records, not {wanted}, in {timeout_ms / 1000:g} s{reason}")


def _is_behind(
    fetchers: Mapping[TopicPartition, PartitionFetcher], ends: Mapping[TopicPartition, int]
) -> bool:
    return any(fetchers[place].position < end for place, end in ends.items())


async def _partitions(
    cluster: Cluster, topic: str, partition: int | None, deadline_ms: int
) -> list[Partition]:
    (known,) = await cluster.topics([topic], deadline_ms)
    if partition is None:
        return [one for _, one in sorted(known.partitions.items())]
    if partition not in known.partitions:
        raise no_partition(topic, partition, len(known.partitions))
    return [known.partitions[partition]]


def no_partition(topic: str, partition: int, count: int) -> KafkaError:
    there = f"0 to {count - 1}" if count > 1 else "only 0"
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}; there is {there}"
    )


async def _offsets(
    cluster: Cluster, places: Sequence[TopicPartition], time_ms: int, level: int, deadline_ms: int
) -> dict[TopicPartition, int]:
    listed = await list_offsets(cluster, dict.fromkeys(places, time_ms), deadline_ms, level)
    return {place: one.offset or 0 for place, one in listed.items()}


async def _fetch(fetcher: PartitionFetcher, place: TopicPartition, deadline_ms: int) -> list[Record]:
    position = fetcher.position
    fetched = await fetcher.fetch(deadline_ms)
    return [
        Record(
            one.value,
            one.key,
            tuple(one.headers),
            one.timestamp_ms,
            topic=place.topic,
            partition=place.partition,
            offset=one.offset,
        )
        for at, header in visible_batches(fetched.data, fetched.headers, fetched.aborted)
        for one in decode_batch(fetched.data[at : at + header.size_bytes], header)
        if one.offset >= position
    ]
