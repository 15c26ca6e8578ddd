"""What is advertised is what is served, and what a Kafka 4.3 broker advertises; how errors are answered."""

from typing import Any

import pytest

from pykraft.broker.apis.table import make_apis, make_controller_apis
from pykraft.broker.serving.api import Api
from pykraft.kafka_protocol.api_keys import ApiKey, flexible_from, request_class
from pykraft.kafka_protocol.codec.schema import NEVER_FLEXIBLE

KAFKA_4_3 = """
    0 Produce 0-13
    1 Fetch 4-18
    2 ListOffsets 1-11
    3 Metadata 0-13
    8 OffsetCommit 2-10
    9 OffsetFetch 1-10
    10 FindCoordinator 0-6
    11 JoinGroup 0-9
    12 Heartbeat 0-4
    13 LeaveGroup 0-5
    14 SyncGroup 0-5
    15 DescribeGroups 0-6
    16 ListGroups 0-5
    18 ApiVersions 0-4
    19 CreateTopics 2-7
    20 DeleteTopics 1-6
    21 DeleteRecords 0-2
    22 InitProducerId 0-5
    23 OffsetForLeaderEpoch 2-4
    24 AddPartitionsToTxn 0-5
    25 AddOffsetsToTxn 0-4
    26 EndTxn 0-5
    27 WriteTxnMarkers 1-2
    28 TxnOffsetCommit 0-5
    32 DescribeConfigs 1-4
    33 AlterConfigs 0-2
    34 AlterReplicaLogDirs 1-2
    35 DescribeLogDirs 1-5
    37 CreatePartitions 0-3
    42 DeleteGroups 0-2
    43 ElectLeaders 0-2
    44 IncrementalAlterConfigs 0-1
    45 AlterPartitionReassignments 0-1
    46 ListPartitionReassignments 0-0
    47 OffsetDelete 0-0
    55 DescribeQuorum 0-2
    57 UpdateFeatures 0-2
    60 DescribeCluster 0-2
    61 DescribeProducers 0-0
    64 UnregisterBroker 0-0
    65 DescribeTransactions 0-0
    66 ListTransactions 0-2
    68 ConsumerGroupHeartbeat 0-1
    69 ConsumerGroupDescribe 0-1
    74 ListConfigResources 0-1
    75 DescribeTopicPartitions 0-0
    80 AddRaftVoter 0-1
    81 RemoveRaftVoter 0-0
"""
"""As observed from brokers of Kafka 4.3, for the APIs that this project serves."""

APIS: dict[ApiKey, Api[Any, Any, Any]] = {api.key: api for api in make_apis()}


def test_advertised_ranges_are_those_of_kafka() -> None:
    expected = {}
    for line in KAFKA_4_3.split("\n"):
        if line.strip():
            number, _, versions = line.split()
            lowest, highest = versions.split("-")
            expected[int(number)] = (int(lowest), int(highest))
    advertised = {
        int(key): (api.min_version if api.advertised_min is None else api.advertised_min, api.max_version)
        for key, api in APIS.items()
    }
    assert advertised == expected


def test_only_produce_advertises_a_version_it_does_not_serve() -> None:
    assert [key for key, api in APIS.items() if api.advertised_min is not None] == [ApiKey.PRODUCE]


def test_every_row_names_the_two_messages_of_one_api() -> None:
    rows: list[Api[Any, Any, Any]] = [*make_apis(), *make_controller_apis()]
    for api in rows:
        assert api.request is request_class(api.key)
        assert api.response is request_class(api.key).RESPONSE
        assert (api.min_version, api.max_version) == (api.response.MIN_VERSION, api.response.MAX_VERSION)


def test_an_api_without_messages_is_never_flexible() -> None:
    with pytest.raises(KeyError):
        request_class(4)
    with pytest.raises(KeyError):
        request_class(9999)
    assert {flexible_from(key) for key in (4, 9999, ApiKey.ENVELOPE)} == {NEVER_FLEXIBLE}
