"""Well-formed requests of a broken or hostile peer to a real node: impossible names, counts and batches."""

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    AddRaftVoterRequest,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    FeatureUpdateKey,
    Listener,
    MetadataRequest,
    MetadataRequestTopic,
    UpdateFeaturesRequest,
)
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreateTopicsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import wait_until
from tests.interop.peer import SEED, Peer, batch

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("unharmed")]


def produce_error(peer: Peer, topic: str, records: bytes | None) -> tuple[ErrorCode, int]:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        ],
    )
    (partition,) = peer.call(request, 9).responses[0].partition_responses
    return ErrorCode(partition.error_code), partition.base_offset


def changed(data: bytearray, position: int, new: bytes, *, checksum: bool = True) -> bytes:
    """The batch with some bytes replaced and, if wanted, a matching CRC."""
    from crc32c import crc32c

    data[position : position + len(new)] = new
    if checksum:
        data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("bad crc", ErrorCode.CORRUPT_MESSAGE),
        ("cut short", ErrorCode.CORRUPT_MESSAGE),
        ("length beyond the end", ErrorCode.CORRUPT_MESSAGE),
        ("negative length", ErrorCode.CORRUPT_MESSAGE),
        ("old magic", ErrorCode.INVALID_RECORD),
        ("unknown magic", ErrorCode.INVALID_RECORD),
        ("two batches", ErrorCode.INVALID_RECORD),
        ("no batch", ErrorCode.INVALID_RECORD),
        ("null", ErrorCode.INVALID_RECORD),
        ("count without records", ErrorCode.INVALID_RECORD),
        ("a count of a million for one record", ErrorCode.INVALID_RECORD),
        ("random bytes as records", ErrorCode.INVALID_RECORD),
        ("random bytes as compressed records", ErrorCode.INVALID_RECORD),
        ("offset deltas 0 and 2", ErrorCode.INVALID_RECORD),
        ("base offset 5", ErrorCode.INVALID_RECORD),
        ("control batch", ErrorCode.INVALID_RECORD),
        ("unknown codec", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("garbage", ErrorCode.INVALID_RECORD),
    ],
)
def test_bad_record_batch_is_refused_with_its_error_and_the_next_good_one_is_accepted(
    single: Cluster, fresh: Callable[[str], str], what: str, error: ErrorCode
) -> None:
    bad: dict[str, bytes | None] = {
        "bad crc": changed(batch(b"v"), 17, b"\0\0\0\0", checksum=False),
        "cut short": bytes(batch(b"v")[:-1]),
        "length beyond the end": changed(batch(b"v"), 8, struct.pack(">i", 1000)),
        "negative length": changed(batch(b"v"), 8, struct.pack(">i", -1)),
        "old magic": changed(batch(b"v"), 16, b"\x01"),
        "unknown magic": changed(batch(b"v"), 16, b"\x07"),
        "two batches": bytes(batch(b"v") + batch(b"w")),
        "no batch": b"",
        "null": None,
        "count without records": changed(batch(b"v"), 57, struct.pack(">i", 1_000_000)),
        "a count of a million for one record": changed(
            bytearray(changed(batch(b"v"), 57, struct.pack(">i", 1_000_000))), 23, struct.pack(">i", 999_999)
        ),
        "random bytes as records": changed(batch(bytes(100)), 61, b"\x7f" * 100),
        "random bytes as compressed records": changed(batch(b"v"), 21, struct.pack(">h", 4)),
        "offset deltas 0 and 2": changed(batch(b"v", b"w"), 61 + 8 + 3, b"\x04"),
        "base offset 5": changed(batch(b"v"), 0, struct.pack(">q", 5)),
        "control batch": changed(batch(b"v"), 21, struct.pack(">h", 0x20)),
        "unknown codec": changed(batch(b"v"), 21, struct.pack(">h", 7)),
        "garbage": random.Random(SEED).randbytes(300),
    }
    topic = fresh("records")
    with Peer(single) as peer:
        new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        created = peer.call(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
        assert created.topics[0].error_code == 0
        wait_until(
            "the topic", lambda: produce_error(peer, topic, bytes(batch(b"a")))[0] is ErrorCode.NONE, 10
        )
        found, _ = produce_error(peer, topic, bad[what])
        assert found is error
        assert produce_error(peer, topic, bytes(batch(b"b"))) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "\u00e9", "a\0b", "x" * 250])
def test_illegal_topic_name_is_refused_wherever_it_is_given(single: Cluster, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    with Peer(single) as peer:
        created = peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert created.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        (described,) = peer.call(request, 8).topics
        assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        found, _ = produce_error(peer, name, bytes(batch(b"v")))
        assert found in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
        listed = peer.call(MetadataRequest(topics=None), 8)
        assert all(item.name != name for item in listed.topics)


def test_absurd_partition_count_is_refused_at_once(single: Cluster, fresh: Callable[[str], str]) -> None:
    with Peer(single) as peer:
        for count in (2**31 - 1, 100_000, 0, -2):
            topic = CreatableTopic(name=fresh("huge"), num_partitions=count, replication_factor=1)
            answer = peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
            assert answer.topics[0].error_code != 0, count


MANY = 60_000
"""Items that fit into the largest request that is decoded, 2 MiB, with names of ten bytes."""


def _many_items() -> dict[str, tuple[Any, int]]:
    names = [f"nobody-{number:05}" for number in range(MANY)]
    partitions = [DescribeQuorumRequestPartitionData(partition_index=index) for index in range(-1, MANY)]
    return {
        "features": (
            UpdateFeaturesRequest(
                feature_updates=[FeatureUpdateKey(feature=name, max_version_level=-1) for name in names]
            ),
            1,
        ),
        "reassignments": (
            AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(
                        name="bystander",
                        partitions=[
                            ReassignablePartition(partition_index=index, replicas=[-1, 1])
                            for index in range(-1, MANY)
                        ],
                    )
                ]
            ),
            0,
        ),
        "elections": (
            ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic="bystander", partitions=[0, -1] * MANY)]
            ),
            2,
        ),
        "configurations": (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name="bystander",
                        configs=[AlterableConfig(name=name, value="1") for name in names],
                    )
                ]
            ),
            1,
        ),
        "directories": (
            DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic="bystander", partitions=[number]) for number in range(MANY)
                ]
            ),
            4,
        ),
        "quorum": (
            DescribeQuorumRequest(
                topics=[
                    DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)
                ]
            ),
            2,
        ),
        "voters": (
            AddRaftVoterRequest(
                voter_id=9,
                voter_directory_id=Uuid(bytes(range(16))),
                listeners=[Listener(name=name, host="h", port=1) for name in names],
            ),
            1,
        ),
    }


@pytest.mark.parametrize("kind", sorted(_many_items()))
def test_as_many_items_as_fit_into_a_request_are_answered_in_time_and_change_nothing(
    single: Cluster, kind: str
) -> None:
    request, version = _many_items()[kind]
    quorum = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
            )
        ]
    )
    topics = MetadataRequest(topics=[MetadataRequestTopic(name="bystander")])
    with Peer(single) as peer:
        before = peer.call(topics, 12).topics
        answer = peer.call(request, version)
        assert peer.call(topics, 12).topics == before
        (described,) = peer.call(quorum, 2).topics
        assert described.partitions[0].leader_epoch == 1
    assert getattr(answer, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR


def test_refusal_with_a_very_long_name_does_not_prevent_the_rest_of_the_answer(
    single: Cluster,
) -> None:
    longest = "x" * 32_767
    with Peer(single) as peer:
        elect = ElectLeadersRequest(
            topic_partitions=[
                TopicPartitions(topic=longest, partitions=[0]),
                TopicPartitions(topic="bystander", partitions=[0]),
            ]
        )
        answer = peer.call(elect, 1)
        assert answer.error_code == ErrorCode.NONE
        assert {
            item.topic: item.partition_result[0].error_code for item in answer.replica_election_results
        } == {
            longest: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "bystander": ErrorCode.ELECTION_NOT_NEEDED,
        }
        move = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="bystander",
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=[1] * 50_000),
                        ReassignablePartition(partition_index=1, replicas=None),
                    ],
                )
            ]
        )
        moved = peer.call(move, 0)
        assert moved.error_code == ErrorCode.NONE
        assert [item.error_code for item in moved.responses[0].partitions] == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
