"""ListOffsets: what each negative time means, and from which version on. The table is Apache Kafka 4.3's."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pykraft.broker.apis.records import list_offsets
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.records import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store import timestamps
from pykraft.runtime.tasks import Workers
from tests.broker.answers import as_read
from tests.broker.damage import empty
from tests.broker.data_cluster import DataCluster, make_batch
from tests.waits import until

FIRST_VERSION = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
OFFSET = {-1: 3, -2: 0, -3: 1, -4: 0, -5: -1, -6: -1}


@pytest.mark.parametrize("version", range(1, 12))
async def test_negative_times_mean_what_they_mean_in_kafka_from_the_version_on_that_knows_them(
    cluster: DataCluster, version: int
) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    for timestamp_ms in (1000, 3000, 2000):
        await client.produce(make_batch(b"v", timestamp_ms=timestamp_ms))
    for timestamp in (*FIRST_VERSION, -7, -1000):
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsTopic(name="t", partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        services = cluster.brokers[1].services
        response = as_read(await list_offsets.handle(services, RequestContext(), request, version), version)
        (found,) = response.topics[0].partitions
        if version >= FIRST_VERSION.get(timestamp, 99):
            assert (found.error_code, found.offset) == (ErrorCode.NONE, OFFSET[timestamp])
            assert found.timestamp == (3000 if timestamp == -3 else -1)
        else:
            assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_partition_that_is_named_twice_is_refused_and_others_are_not(
    cluster: DataCluster,
) -> None:
    for topic in ("t", "u"):
        await cluster.create(1, topic=topic)
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=name, partitions=[asked]) for name in ("t", "u", "t")]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    services = cluster.brokers[1].services
    response = as_read(await list_offsets.handle(services, RequestContext(), request, 7), 7)
    assert [topic.partitions[0].error_code for topic in response.topics] == [42, 0, 42]


class Held(Workers):
    """Holds its jobs until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.jobs = 0

    async def run(self, job: Callable[[], Any]) -> Any:
        self.jobs += 1
        await self.may_go.wait()
        return job()


def ask(cluster: DataCluster, timestamp: int) -> asyncio.Future[ListOffsetsResponse]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    services = cluster.brokers[1].services
    return asyncio.ensure_future(list_offsets.handle(services, RequestContext(), request, 9))


@pytest.mark.parametrize("change", ["truncated", "deleted", "index"])
async def test_look_up_by_time_runs_in_a_worker_and_survives_what_happens_to_its_log(
    cluster: DataCluster, change: str
) -> None:
    await cluster.create(1, configs={"retention.bytes": "0", "index.interval.bytes": "0"})
    client, broker = await cluster.client(1), cluster.brokers[1]
    for time_ms in (1000, 2000, 3000, 4000):
        await client.produce(make_batch(b"v", timestamp_ms=time_ms))
        cluster.partition(1).log.roll(0)
    log = cluster.partition(1).log
    workers = broker.logs.time_lookups._workers = Held()
    if change == "index":
        log._segments[1].close()
        log._segments[1]._indexes_checked = False
        empty(cluster.disk(1), f"/d1/t-0/{1:020}.index")
        cluster.disk(1).remove(f"/d1/t-0/{1:020}.timeindex")
    answer = ask(cluster, 2000)
    await until(lambda: workers.jobs == 1)
    assert not answer.done()
    if change == "truncated":
        log.truncate_to(1)
        cluster.partition(1).high_watermark = 1
    elif change == "deleted":
        log.retire_old_segments(0, limit_offset=3)
        log.delete_retired_segments(3)
    workers.may_go.set()
    found = as_read(await answer, 7).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE and not broker.logs.offline
    expected = {"truncated": (-1, -1), "deleted": (4000, 3), "index": (2000, 1)}
    assert (found.timestamp, found.offset) == expected[change]


async def test_batch_that_unfolds_to_a_hundred_times_its_size_is_searched_by_one_worker_at_a_time(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1)
    records = [RecordInput(None, bytes(1000), (), time_ms) for time_ms in range(1000, 1500)]
    client, broker = await cluster.client(1), cluster.brokers[1]
    result = await client.produce(encode_batch(records, compression=Compression.ZSTD))
    assert result.error_code == ErrorCode.NONE
    workers = broker.logs.time_lookups._workers = Held()
    answers = [ask(cluster, 1400 + number) for number in range(5)]
    await until(lambda: workers.jobs > 0)
    jobs = workers.jobs
    workers.may_go.set()
    assert jobs == 1
    found = [as_read(await answer, 7).topics[0].partitions[0].offset for answer in answers]
    assert found == [400, 401, 402, 403, 404]
    monkeypatch.setattr(timestamps, "MOST_UNFOLDED_BYTES", 10_000)
    too_large = as_read(await ask(cluster, 1400), 7).topics[0].partitions[0]
    assert (too_large.error_code, too_large.offset) == (ErrorCode.NONE, 0), "not later than the record"
