"""Large requests: split between topics, answered as one."""

from __future__ import annotations

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pykraft.kafka_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykraft.kafka_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from pykraft.kafka_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykraft.kafka_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykraft.kafka_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.controller.request_parts import PART_RECORDS, cut_request, join_answers
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.records import PartitionChangeRecord
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import as_type


def create(
    *topics: tuple[str, int], validate_only: bool = False, timeout_ms: int = 60_000
) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics
        ],
        validate_only=validate_only,
        timeout_ms=timeout_ms,
    )


def cut_topics(request: CreateTopicsRequest) -> list[CreateTopicsRequest]:
    return [as_type(part, CreateTopicsRequest) for part in cut_request(request, EMPTY_IMAGE)]


def test_short_request_is_not_split() -> None:
    request = create(("a", 100), ("b", 100))
    assert cut_request(request, EMPTY_IMAGE) == [request]
    assert cut_request(request, EMPTY_IMAGE)[0] is request
    other = AlterPartitionReassignmentsRequest()
    assert cut_request(other, EMPTY_IMAGE) == [other]


def test_parts_are_bounded_and_hold_every_topic_once_in_order() -> None:
    request = create(*((f"t{number}", 30) for number in range(100)), timeout_ms=7)
    parts = cut_topics(request)
    assert [topic for part in parts for topic in part.topics] == request.topics
    assert max(sum(topic.num_partitions + 1 for topic in part.topics) for part in parts) <= PART_RECORDS
    assert {part.timeout_ms for part in parts} == {7}
    assert len(parts) < 10


def test_one_long_topic_is_a_part_of_its_own() -> None:
    long = CreatableTopic(
        name="long",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(2000)],
    )
    request = create(("a", 1), ("b", 1))
    request.topics.insert(1, long)
    assert [[topic.name for topic in part.topics] for part in cut_topics(request)] == [
        ["a"],
        ["long"],
        ["b"],
    ]


def test_topic_named_twice_stays_in_one_part() -> None:
    request = create(*((f"t{number % 300}", 30) for number in range(301)))
    (together,) = [part for part in cut_topics(request) if any(t.name == "t0" for t in part.topics)]
    assert [topic.name for topic in together.topics].count("t0") == 2


def test_validation_is_not_split() -> None:
    request = create(*((f"t{number}", 30) for number in range(100)), validate_only=True)
    assert cut_request(request, EMPTY_IMAGE) == [request]


@pytest.mark.parametrize(
    "request_",
    [
        DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{n}") for n in range(1200)]),
        DeleteTopicsRequest(topic_names=[f"t{n}" for n in range(1200)]),
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=f"t{n}", count=1) for n in range(1200)]),
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2, resource_name=f"t{n}", configs=[AlterableConfig(name="retention.ms")]
                )
                for n in range(1200)
            ]
        ),
    ],
)
def test_other_requests_about_many_topics_are_also_split(request_: Message) -> None:
    parts = cut_request(request_, EMPTY_IMAGE)
    assert len(parts) == 3
    for attribute in ("topics", "topic_names", "resources"):
        if hasattr(request_, attribute):
            joined = [item for part in parts for item in getattr(part, attribute)]
            assert joined == getattr(request_, attribute)


def test_parts_have_the_same_result_as_the_whole(cluster: ControllerHarness) -> None:
    """On a controller: the same topics, the same answers, the same refusals."""
    wanted = [(f"t{number}", 20) for number in range(60)]
    request = create(*wanted, ("t7", 20), ("bad name", 1), ("t_0.x", 1), ("t.0_x", 1))
    parts = cut_request(request, EMPTY_IMAGE)
    assert len(parts) > 2
    answers = [cluster.run(cluster.core.handle_forwarded(cluster.context, part)) for part in parts]
    answer = join_answers(request, answers)
    errors = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
    assert errors == {
        "t7": ErrorCode.INVALID_REQUEST,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t.0_x": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert [topic.name for topic in answer.topics] == list(dict.fromkeys(t.name for t in request.topics))
    assert len(cluster.image.topics_by_id) == 60


@pytest.mark.parametrize("asked", ["all", "by name"])
def test_election_of_many_preferred_leaders_is_split_and_answers_only_what_was_needed(
    cluster: ControllerHarness, asked: str
) -> None:
    for number in range(3):
        cluster.create_assigned(f"t{number}", *[[1, 2, 3]] * 300)
    cluster.create_assigned("other", [2, 1])
    cluster.stop_heartbeats(1)
    cluster.heartbeat(1)
    for topic in cluster.image.topics_by_id.values():
        records = [PartitionChangeRecord(i, topic.id, isr=p.replicas) for i, p in enumerate(topic.partitions)]
        cluster.append(tuple(records))
    names = [TopicPartitions(topic=f"t{number}", partitions=list(range(300))) for number in range(3)]
    request = ElectLeadersRequest(topic_partitions=None if asked == "all" else names)
    parts = cut_request(request, cluster.image)
    assert len(parts) == 3
    answers = [cluster.run(cluster.core.handle_forwarded(cluster.context, part)) for part in parts]
    answer = join_answers(request, answers)
    elected = {topic.topic: len(topic.partition_result) for topic in answer.replica_election_results}
    assert elected == {"t0": 300, "t1": 300, "t2": 300}
    assert {p.leader for p in cluster.topic("t1").partitions} == {1}
    (nothing,) = cut_request(ElectLeadersRequest(topic_partitions=None), cluster.image)
    assert cluster.core.handle_forwarded(cluster.context, nothing).records == ()
