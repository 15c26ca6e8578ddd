"""ListOffsets: what each negative time means, and from which version on. The table is Apache Kafka 4.3's."""

from __future__ import annotations

import pytest

from pykraft.broker.apis import list_offsets
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from tests.broker.data_cluster import DataPlaneTools

FIRST_VERSION = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
OFFSET = {-1: 3, -2: 0, -3: 1, -4: 0, -5: -1, -6: -1}


@pytest.mark.parametrize("version", range(1, 12))
def test_negative_times_mean_what_they_mean_in_kafka_from_the_version_on_that_knows_them(
    data_plane: DataPlaneTools, version: int
) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1)
            client = await cluster.client(1)
            for timestamp_ms in (1000, 3000, 2000):
                await client.produce(data_plane.batch(b"v", timestamp_ms=timestamp_ms))
            for timestamp in (*FIRST_VERSION, -7, -1000):
                asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                topics = [ListOffsetsTopic(name="t", partitions=[asked])]
                request = ListOffsetsRequest(replica_id=-1, topics=topics)
                response = await list_offsets.handle(
                    cluster.brokers[1].services, RequestContext(), request, version
                )
                (found,) = response.topics[0].partitions
                if version >= FIRST_VERSION.get(timestamp, 99):
                    assert (found.error_code, found.offset) == (ErrorCode.NONE, OFFSET[timestamp])
                    assert found.timestamp == (3000 if timestamp == -3 else -1)
                else:
                    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)

    data_plane.run(body)
