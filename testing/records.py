"""Records as tests write and read them, over pykraft's own client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.blocking_producer import BlockingProducer
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import ClientTimeoutError
from pykraft.kafka_client.fetcher import FetchConfig, PartitionFetcher
from pykraft.kafka_client.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    list_offsets,
)
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.visible import visible_batches
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
    """Of one to write: if none is given, when it is written."""
    topic: str = field(default="", kw_only=True)
    partition: int = field(default=-1, kw_only=True)
    offset: int = field(default=-1, kw_only=True)


Writable = Data | tuple[Data, Data] | Record
"""A value, a key and a value, or a whole record."""


def as_record(written: Writable, now_ms: int) -> Record:
    if isinstance(written, Record):
        return written if written.timestamp_ms != NO_TIMESTAMP else replace(written, timestamp_ms=now_ms)
    key, value = written if isinstance(written, tuple) else (None, written)
    return Record(_encoded(value), _encoded(key), timestamp_ms=now_ms)


def _encoded(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def produce(
    client: ClientConfig, topic: str, written: Sequence[Writable], partition: int | None, timeout_s: float
) -> list[Record]:
    """Write them in order, each acknowledged by all replicas in sync; as they are in the log."""
    now_ms = round(time.time() * 1000)
    records = [as_record(one, now_ms) for one in written]
    with BlockingProducer(client) as producer:
        sent = [
            producer.send(topic, partition, one.key, one.value, one.headers, one.timestamp_ms)
            for one in records
        ]
        deadline = time.monotonic() + timeout_s
        places = [one.result(max(0.0, deadline - time.monotonic())) for one in sent]
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
    try:
        places = [TopicPartition(topic, n) for n in await _partitions(cluster, topic, partition, deadline_ms)]
        starts = await _offsets(cluster, places, EARLIEST_TIMESTAMP, level, deadline_ms)
        ends = await _offsets(cluster, places, LATEST_TIMESTAMP, level, deadline_ms)
        config = FetchConfig(max_wait_ms=0, isolation_level=level)
        fetchers = {
            place: PartitionFetcher(cluster, topic, None, place.partition, starts[place], config)
            for place in places
        }
        while len(found) < count if count is not None else _is_behind(fetchers, ends):
            before = len(found)
            for place, fetcher in fetchers.items():
                if count is not None or fetcher.position < ends[place]:
                    found += await _fetch(fetcher, place, deadline_ms)
            if len(found) == before:
                await cluster.network.sleep(_AGAIN_AFTER_MS)
    except ClientTimeoutError as error:
        wanted = f"all of {topic}" if count is None else f"{count} of {topic}"
        raise TimeoutError(f"{len(found)} records, not {wanted}, in {timeout_ms / 1000:g} s") from error
    return sorted(found[:count], key=lambda one: (one.partition, one.offset))


def _is_behind(
    fetchers: Mapping[TopicPartition, PartitionFetcher], ends: Mapping[TopicPartition, int]
) -> bool:
    return any(fetchers[place].position < end for place, end in ends.items())


async def _partitions(cluster: Cluster, topic: str, partition: int | None, deadline_ms: int) -> list[int]:
    if partition is not None:
        return [partition]
    (known,) = await cluster.topics([topic], deadline_ms)
    return sorted(known.partitions)


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
