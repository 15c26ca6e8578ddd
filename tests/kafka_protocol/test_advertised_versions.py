"""What a broker advertises is what a Kafka 4.3 broker advertises, API by API."""

from __future__ import annotations

import pytest

from pykraft.kafka_protocol.api_keys import (
    ADVERTISED,
    FLEXIBLE_FROM,
    ApiKey,
    request_class,
    response_class,
)
from pykraft.kafka_protocol.schema import NEVER_FLEXIBLE

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
    22 InitProducerId 0-5
    23 OffsetForLeaderEpoch 2-4
    32 DescribeConfigs 1-4
    33 AlterConfigs 0-2
    35 DescribeLogDirs 1-5
    37 CreatePartitions 0-3
    42 DeleteGroups 0-2
    43 ElectLeaders 0-2
    44 IncrementalAlterConfigs 0-1
    45 AlterPartitionReassignments 0-1
    46 ListPartitionReassignments 0-0
    55 DescribeQuorum 0-2
    57 UpdateFeatures 0-2
    60 DescribeCluster 0-2
    64 UnregisterBroker 0-0
    68 ConsumerGroupHeartbeat 0-1
    69 ConsumerGroupDescribe 0-1
    74 ListConfigResources 0-1
    75 DescribeTopicPartitions 0-0
    80 AddRaftVoter 0-1
    81 RemoveRaftVoter 0-0
"""
"""As observed from brokers of that release, for the APIs that this project serves."""


def test_advertised_ranges_are_those_of_kafka() -> None:
    expected = {}
    for line in KAFKA_4_3.split("\n"):
        if line.strip():
            number, _, versions = line.split()
            lowest, highest = versions.split("-")
            expected[int(number)] = (int(lowest), int(highest))
    assert {int(key): versions for key, versions in ADVERTISED.items()} == expected


@pytest.mark.parametrize("key", ADVERTISED, ids=lambda key: key.name)
def test_every_advertised_version_has_a_table(key: ApiKey) -> None:
    lowest, highest = ADVERTISED[key]
    if key is ApiKey.PRODUCE:
        lowest = 3  # shown as 0 for librdkafka's sake, never served
    for cls in (request_class(key), response_class(key)):
        assert lowest >= cls.MIN_VERSION
        assert highest <= cls.MAX_VERSION


def test_headers_and_bodies_turn_flexible_together(message_class: type) -> None:
    if message_class.API_KEY >= 0:
        expected = FLEXIBLE_FROM.get(message_class.API_KEY, NEVER_FLEXIBLE)
        assert expected == message_class.FLEXIBLE_FROM


def test_unknown_api_has_no_class() -> None:
    with pytest.raises(KeyError):
        request_class(4)
    with pytest.raises(KeyError):
        response_class(9999)
