"""A broker that knows it is fenced serves no client; past its lease it gives only answers that are safe.

Every served API is in one of two lists here, so that the behaviour of a new one must be decided. Produce and
Fetch have hand-written codecs and are tested on a real listener at the end.
"""

import asyncio
from typing import Any

import pytest

from pykraft.broker.apis.records import list_offsets, offset_for_leader_epoch
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis
from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.serving.api import Api, ReceivedRequest
from pykraft.broker.serving.request_server import RequestServer
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.records import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.simulated.memory_disk import MemoryFile
from pykraft.runtime.turns import UnlimitedTurn
from tests.broker.answers import as_read
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.narrowing import present
from tests.stand_ins import stand_in
from tests.unexpected import unexpected

BY_HAND = {ApiKey.PRODUCE, ApiKey.FETCH}

DESCRIBES_THE_CLUSTER = {
    # Answered from the metadata image, so that clients find a broker that serves them.
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.LIST_CONFIG_RESOURCES,
    # About the broker itself: settings and directories.
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    # The active controller answers; the broker forwards the request and the answer.
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
}

REFUSES = {
    ApiKey.LIST_OFFSETS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiKey.DELETE_RECORDS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiKey.WRITE_TXN_MARKERS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiKey.DESCRIBE_PRODUCERS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiKey.INIT_PRODUCER_ID: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
        ),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
}

APIS = {api.key: api for api in make_apis()}


def fenced_broker() -> BrokerServices:
    """A broker that only knows whether it is fenced: a handler that uses anything else first fails."""
    lifecycle = BrokerLifecycle()
    lifecycle.handle_registered(10)
    replicas = stand_in(ReplicaManager, lease=lifecycle)
    return stand_in(BrokerServices, lifecycle=lifecycle, replicas=replicas)


async def serve(api: Api[Any, Any, Any], request: Message, version: int) -> Message | bytes:
    """Serve a request as the server of the broker's listeners does."""
    server = RequestServer(fenced_broker(), [api], UnlimitedTurn(), unexpected, is_fenced=lambda: True)
    received = ReceivedRequest(api.request, version, request.encode(version))
    return await server._serve(api, RequestContext(), received)


def test_every_api_declares_what_it_does_on_a_fenced_broker() -> None:
    assert set(APIS) == BY_HAND | DESCRIBES_THE_CLUSTER | set(REFUSES)
    assert not BY_HAND & DESCRIBES_THE_CLUSTER and not set(REFUSES) & DESCRIBES_THE_CLUSTER


@pytest.mark.parametrize("api", [APIS[key] for key in sorted(REFUSES)], ids=lambda api: api.key.name)
def test_api_that_serves_clients_refuses_before_it_reads_anything(api: Api[Any, Any, Any]) -> None:
    for version in range(api.min_version, api.max_version + 1):
        request = request_class(api.key)()
        if isinstance(request, ListOffsetsRequest):
            request.replica_id = -1
        with pytest.raises(KafkaError) as refusal:
            asyncio.run(serve(api, request, version))
        assert refusal.value.code is REFUSES[api.key]
        assert "fenced" in refusal.value.message
        assert api.error_response(request, version, refusal.value).encode(version)


@pytest.mark.parametrize("replica_id", [-1, -2, -100])
def test_only_replicas_may_ask_a_fenced_broker_for_offsets(replica_id: int) -> None:
    request = ListOffsetsRequest(replica_id=replica_id)
    with pytest.raises(KafkaError, match="fenced"):
        asyncio.run(serve(APIS[ApiKey.LIST_OFFSETS], request, 5))


async def test_fenced_broker_accepts_and_returns_no_records(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"before"))).error_code == 0
    lease = cluster.brokers[1].lease
    lease.is_fenced = True
    for acks in (-1, 1):
        refused = await client.produce(make_batch(b"fenced"), acks=acks)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "fenced" in present(refused.error_message)
    assert (await client.fetch(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.partition(1).log.log_end_offset == 1
    lease.is_fenced = False
    assert values_in((await client.fetch(0)).records) == [b"before"]


async def test_write_is_not_acknowledged_if_the_lease_ended_while_it_was_appended(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process or its disk stalled: by now another broker may lead that does not have the record."""
    await cluster.create(1)
    client = await cluster.client(1)
    lease, append = cluster.brokers[1].lease, MemoryFile.append

    def append_slowly(file: MemoryFile, data: Buffer) -> None:
        lease.valid = False
        append(file, data)

    monkeypatch.setattr(MemoryFile, "append", append_slowly)
    refused = await client.produce(make_batch(b"acks=1"), acks=1)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.produce(make_batch(b"acks=all"))).error_code == 0


async def test_past_its_lease_a_broker_accepts_only_what_the_whole_isr_confirms(
    cluster: DataCluster,
) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    cluster.brokers[1].lease.valid = False
    refused = await client.produce(make_batch(b"acks=1"), acks=1)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "lost contact" in present(refused.error_message)
    assert (await client.produce(make_batch(b"acks=all"))).error_code == 0
    assert values_in((await client.fetch(0)).records) == [b"acks=all"]


async def test_past_its_lease_a_broker_returns_no_offset_of_its_log(cluster: DataCluster) -> None:
    """A newer leader may have more, and may have deleted what is the first here."""
    await cluster.create(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v", timestamp_ms=1000))
    cluster.brokers[1].lease.valid = False
    found = {
        timestamp: await list_offset(cluster.brokers[1].services, timestamp)
        for timestamp in (-1, -2, -3, 1000, 1001)
    }
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert found == dict.fromkeys((-1, -2, -3, 1000, 1001), refused)
    cluster.brokers[1].lease.valid = True
    assert await list_offset(cluster.brokers[1].services, -1) == (0, 1)
    assert await list_offset(cluster.brokers[1].services, 1001) == (0, -1)


async def test_past_its_lease_a_broker_tells_no_reader_that_records_are_lost(
    cluster: DataCluster,
) -> None:
    """A newer leader may have what is not in this log; what is in it is read all the same."""
    await cluster.create(1)
    client, lease = await cluster.client(1), cluster.brokers[1].lease
    await client.produce(make_batch(b"v"))
    for is_valid, beyond, other in (
        (True, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        lease.valid = is_valid
        assert (await client.fetch(2)).error_code == beyond
        told = await client.fetch(2, last_epoch=0)
        assert told.error_code == other
        assert told.diverging_epoch.end_offset == (1 if is_valid else -1)
        assert (await client.fetch(0)).records
        assert epoch_end(cluster.brokers[1].services) == other


def epoch_end(services: BrokerServices) -> int:
    """The error that a consumer gets."""
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[asked])]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    response = at_once(offset_for_leader_epoch.handle(services, RequestContext(), request, 4))
    (found,) = as_read(response, 4).topics[0].partitions
    return found.error_code


async def list_offset(services: BrokerServices, timestamp: int) -> tuple[int, int]:
    """The error and the offset."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    response = as_read(await list_offsets.handle(services, RequestContext(), request, 8), 8)
    (found,) = response.topics[0].partitions
    return found.error_code, found.offset
