"""Large requests: refused if they ask for too much, split between topics, answered as one."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import configs as legacy
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from pykraft.metadata_log.controller.calls.joined_answer import JoinedAnswer
from pykraft.metadata_log.controller.calls.rehearsal import Rehearsal
from pykraft.metadata_log.controller.calls.request_cuts import CUTS
from pykraft.metadata_log.controller.calls.request_parts import PART_COST, UNITS_AT_ONCE, cut_request
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.records import PartitionChangeRecord
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import as_type

TOPIC = 2


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


def incremental(*resources: tuple[str, int]) -> IncrementalAlterConfigsRequest:
    """Resources by topic name, each with a number of entries."""
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[AlterableConfig(name=f"k{n}", config_operation=0, value="1") for n in range(count)],
            )
            for name, count in resources
        ]
    )


def steps(request: Message, image: MetadataImage = EMPTY_IMAGE) -> Iterator[Message | None]:
    return cut_request(request, lambda: image, ControllerConfig())


def parts_of(request: Message, image: MetadataImage = EMPTY_IMAGE) -> list[Any]:
    return [part for part in steps(request, image) if part is not None]


def test_short_request_is_not_split() -> None:
    request = create(("a", 100), ("b", 100))
    assert parts_of(request) == [request]
    assert parts_of(request)[0] is request
    other = AlterPartitionReassignmentsRequest()
    assert parts_of(other) == [other]


def test_parts_are_bounded_and_hold_every_topic_once_in_order() -> None:
    request = create(*((f"t{number}", 30) for number in range(100)), timeout_ms=7)
    parts = parts_of(request)
    assert [topic for part in parts for topic in part.topics] == request.topics
    assert max(sum(topic.num_partitions + 1 for topic in part.topics) for part in parts) <= PART_COST
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
    assert [[topic.name for topic in part.topics] for part in parts_of(request)] == [["a"], ["long"], ["b"]]


def test_requests_are_read_in_slices() -> None:
    """However many items there are, few are looked at before other work may run."""
    count = 5 * UNITS_AT_ONCE
    request = create(*((f"t{number}", 0) for number in range(count)))
    it = steps(request)
    assert [next(it) for _ in range(1 + 5 + 2)] == [None] * 8, "they are told apart, and counted"
    assert next(it) is not None
    assert len(parts_of(request)) >= count * 7 // PART_COST


def test_topic_named_twice_stays_in_one_part() -> None:
    request = create(*((f"t{number % 300}", 30) for number in range(301)))
    (together,) = [part for part in parts_of(request) if any(t.name == "t0" for t in part.topics)]
    assert [topic.name for topic in together.topics].count("t0") == 2


REQUESTS = [
    create(*((f"t{n}", 1) for n in range(1200))),
    DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{n}") for n in range(1200)]),
    DeleteTopicsRequest(topic_names=[f"t{n}" for n in range(1200)]),
    CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=f"t{n}", count=1) for n in range(1200)]),
    incremental(*((f"t{n}", n % 2) for n in range(1200))),
    legacy.AlterConfigsRequest(
        resources=[
            legacy.LegacyAlterConfigsResource(resource_type=2, resource_name=f"t{n}") for n in range(1200)
        ]
    ),
    ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=f"t{n}", partitions=[0]) for n in range(1200)]
    ),
    AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=f"t{n}", partitions=[]) for n in range(1200)]
    ),
    ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(name=f"t{n}", partition_indexes=[0]) for n in range(1200)]
    ),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_every_request_with_a_list_is_split(request_: Message) -> None:
    parts = parts_of(request_)
    assert len(parts) > 1
    cut = CUTS[type(request_)]
    for attribute in cut.lists:
        joined = [item for part in parts for item in getattr(part, attribute)]
        assert joined == getattr(request_, attribute)
    assert all(sum(map(cut.cost, cut.iter_units(part))) <= PART_COST for part in parts)


def test_every_splittable_request_is_tried_here() -> None:
    assert {type(request) for request in REQUESTS} == set(CUTS)


def test_validation_is_split_too() -> None:
    request = create(*((f"t{number}", 30) for number in range(100)), validate_only=True)
    parts = parts_of(request)
    assert len(parts) > 5 and all(part.validate_only for part in parts)


def test_validated_topics_collide_with_topics_of_earlier_parts(cluster: ControllerHarness) -> None:
    """As if these had been created, and nothing is."""
    names = ["a.b", *(f"t{number}" for number in range(400)), "a_b"]
    request = create(*((name, 1) for name in names), validate_only=True)
    before, rehearsal, answer = cluster.image, Rehearsal(cluster.image), JoinedAnswer(request)
    for part in parts_of(request, cluster.image):
        result = at_once(cluster.core.handle_forwarded(cluster.context, part, rehearsal=rehearsal))
        assert result.records == ()
        answer.add(result.response)
    errors = {topic.name: topic.error_code for topic in answer.whole.topics if topic.error_code}
    assert errors == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [topic.name for topic in answer.whole.topics] == names
    assert cluster.image is before


def test_what_is_worked_on_is_not_kept_while_the_answer_grows() -> None:
    asked = [TopicPartitions(topic="t", partitions=list(range(20_000)))]
    request = ElectLeadersRequest(topic_partitions=asked)
    tracemalloc.start()
    try:
        held = []
        for part in cut_request(request, lambda: EMPTY_IMAGE, ControllerConfig()):
            if part is not None:
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(held) > 100
    early, half, late = (held[len(held) // 4 * quarter] for quarter in (1, 2, 3))
    assert early > 1.2 * half > 1.4 * late


def test_partitions_that_are_refused_alike_share_the_reason(cluster: ControllerHarness) -> None:
    asked = [TopicPartitions(topic="absent", partitions=list(range(50)))]
    response = cluster.forward(ElectLeadersRequest(topic_partitions=asked))
    (topic,) = response.replica_election_results
    messages = [result.error_message for result in topic.partition_result]
    assert messages == ["there is no topic absent"] * 50
    assert len(set(map(id, messages))) == 1


# --- a topic with many partitions ------------------------------------------------------------------------


def test_the_partitions_of_one_topic_are_split_and_answered_as_one_topic(cluster: ControllerHarness) -> None:
    cluster.create_topic("t", 700, 1)
    wanted = [ReassignablePartition(partition_index=index, replicas=[2]) for index in range(701)]
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name="u", partitions=[ReassignablePartition(partition_index=3)]),
            ReassignableTopic(name="t", partitions=wanted),
        ]
    )
    assert len(parts_of(request)) > 2
    answer = cluster.forward(request)
    assert [topic.name for topic in answer.responses] == ["u", "t"]
    assert [p.partition_index for p in answer.responses[1].partitions] == list(range(701))
    assert [p.error_code for p in answer.responses[1].partitions] == [0] * 700 + [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert request.topics[1].partitions == wanted, "the request itself is not changed"
    moving = sum(p.is_reassigning for p in cluster.topic("t").partitions)
    asked = ListPartitionReassignmentsTopics(name="t", partition_indexes=[*range(700), 5, -1])
    for topics in (None, [asked]):
        listed = cluster.forward(ListPartitionReassignmentsRequest(topics=topics))
        assert [topic.name for topic in listed.topics] == ["t"]
        indexes = [p.partition_index for p in listed.topics[0].partitions]
        assert len(indexes) == len(set(indexes)) == moving > 400


def test_a_topic_named_twice_is_listed_with_all_partitions_that_were_asked_for(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1], [1])
    for index in (0, 1):
        cluster.reassign("t", [2], index=index)
    asked = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[index]) for index in (1, 0)]
    (topic,) = cluster.forward(ListPartitionReassignmentsRequest(topics=asked)).topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]


def test_nothing_under_way_is_an_empty_answer(cluster: ControllerHarness) -> None:
    cluster.create_topic("t", 3, 1)
    assert cluster.forward(ListPartitionReassignmentsRequest(topics=None)).topics == []
    assert cluster.forward(ElectLeadersRequest(topic_partitions=None)).replica_election_results == []


# --- duplicates ------------------------------------------------------------------------------------------


def test_a_topic_named_thousands_of_times_is_refused_once(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    many = 3000
    requests: list[Any] = [
        create(*[("new", 9)] * many),
        create(*[("new", 9)] * many, validate_only=True),
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=9)] * many),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")] * many),
        DeleteTopicsRequest(topic_names=["t"] * many),
        DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=cluster.topic("t").id)] * many),
    ]
    for request in requests:
        (part,) = parts_of(request, cluster.image)
        assert sum(len(getattr(part, attribute)) for attribute in CUTS[type(request)].lists) == 2
        (result,) = getattr(cluster.forward(request), CUTS[type(request)].answers)
        assert result.error_code == ErrorCode.INVALID_REQUEST
    assert len(cluster.topic("t").partitions) == 1
    assert "new" not in cluster.image.topic_ids


def test_a_resource_named_thousands_of_times_is_refused_every_time(cluster: ControllerHarness) -> None:
    cluster.create_topic("t")
    for many in (2, 600, 601, 401):
        answer = cluster.forward(incremental(*[("t", 0)] * many))
        assert [it.error_code for it in answer.responses] == [ErrorCode.INVALID_REQUEST] * many


def test_a_partition_named_thousands_of_times_is_not_moved(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1])
    wanted = [ReassignablePartition(partition_index=0, replicas=[2])] * 1001
    answer = cluster.forward(
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=wanted)])
    )
    assert {it.error_code for it in answer.responses[0].partitions} == {ErrorCode.INVALID_REQUEST}
    assert len(answer.responses[0].partitions) == 1001
    assert not cluster.partition("t").is_reassigning


# --- requests that ask for too much ----------------------------------------------------------------------


def is_too_much(request: Message, image: MetadataImage = EMPTY_IMAGE) -> bool:
    """Whether it is refused before its first part."""
    try:
        next(part for part in steps(request, image) if part is not None)
    except KafkaError as error:
        assert error.code is ErrorCode.POLICY_VIOLATION
        return True
    return False


@pytest.mark.parametrize("validate_only", [False, True])
def test_ten_thousand_partitions_may_be_created_at_once_and_no_more(validate_only: bool) -> None:
    full = [(f"t{number}", 100) for number in range(100)]
    assert not is_too_much(create(*full, validate_only=validate_only))
    assert is_too_much(create(*full, ("one more", 1), validate_only=validate_only))
    assert is_too_much(create(("huge", 2**31 - 1), validate_only=validate_only))
    assert is_too_much(create(*((f"t{number}", -1) for number in range(10_001))), EMPTY_IMAGE)
    assert not is_too_much(create(*full, *((f"wrong{number}", 0) for number in range(9000))))
    assert not is_too_much(create(*full, ("twice", 10_000), ("twice", 10_000))), "refused by themselves"


def test_given_replicas_count_as_partitions() -> None:
    def assigned(count: int) -> CreateTopicsRequest:
        replicas = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(count)]
        return CreateTopicsRequest(topics=[CreatableTopic(name="t", assignments=replicas)])

    assert not is_too_much(assigned(10_000))
    assert is_too_much(assigned(10_001))


def test_ten_thousand_partitions_may_be_added_at_once_and_no_more(cluster: ControllerHarness) -> None:
    cluster.create_topic("a", 3)
    cluster.create_topic("b", 5)

    def add(*counts: tuple[str, int]) -> CreatePartitionsRequest:
        topics = [CreatePartitionsTopic(name=name, count=count) for name, count in counts]
        return CreatePartitionsRequest(topics=topics)

    assert not is_too_much(add(("a", 5003), ("b", 5005), ("missing", 10_000)), cluster.image)
    assert is_too_much(add(("a", 5003), ("b", 5006)), cluster.image)
    assert is_too_much(add(("a", 2**31 - 1)), cluster.image)


def test_ten_thousand_configurations_may_be_changed_at_once_and_no_more() -> None:
    assert not is_too_much(incremental(*((f"t{n}", 20) for n in range(500))))
    assert is_too_much(incremental(*((f"t{n}", 20) for n in range(500)), ("one", 1)))
    assert is_too_much(incremental(("t", 10_001)))
    entries = [legacy.LegacyAlterableConfig(name=f"k{n}", value="1") for n in range(10_001)]
    resource = legacy.LegacyAlterConfigsResource(resource_type=2, resource_name="t", configs=entries)
    assert is_too_much(legacy.AlterConfigsRequest(resources=[resource]))


# --- the whole and its parts -----------------------------------------------------------------------------


def test_parts_have_the_same_result_as_the_whole(cluster: ControllerHarness) -> None:
    """On a controller: the same topics, the same answers, the same refusals."""
    wanted = [(f"t{number}", 20) for number in range(60)]
    request = create(*wanted, ("t7", 20), ("bad name", 1), ("t_0.x", 1), ("t.0_x", 1))
    assert len(parts_of(request)) > 2
    answer = cluster.forward(request)
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
    assert len(parts_of(request, cluster.image)) >= 3
    answer = cluster.forward(request)
    elected = {topic.topic: len(topic.partition_result) for topic in answer.replica_election_results}
    assert elected == {"t0": 300, "t1": 300, "t2": 300}
    assert {p.leader for p in cluster.topic("t1").partitions} == {1}
    (nothing,) = parts_of(ElectLeadersRequest(topic_partitions=None), cluster.image)
    assert as_type(nothing, ElectLeadersRequest).topic_partitions == []
