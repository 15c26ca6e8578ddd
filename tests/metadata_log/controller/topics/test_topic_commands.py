"""CreateTopics, DeleteTopics, CreatePartitions and IncrementalAlterConfigs, decided by the controller."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.topics.create_topics import make_topic_id
from pykraft.metadata_log.controller.topics.topic_names import check_collision
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import present


def wanted(
    name: str = "t",
    partitions: int = 1,
    factor: int = 1,
    configs: Sequence[CreatableTopicConfig] = (),
    assignments: Sequence[CreatableReplicaAssignment] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=list(configs),
        assignments=list(assignments),
    )


def assigned(*assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    rows = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments]
    return wanted(partitions=partitions, factor=factor, assignments=rows)


def config(name: str, value: str | None) -> CreatableTopicConfig:
    return CreatableTopicConfig(name=name, value=value)


# CreateTopics


def test_created_topic_is_answered_with_its_actual_properties(cluster: ControllerHarness) -> None:
    (result,) = cluster.create_topics(wanted("t", 4, 3, configs=[config("min.insync.replicas", "2")]))
    topic = cluster.topic("t")
    assert (result.error_code, result.topic_id) == (0, topic.id)
    assert (result.num_partitions, result.replication_factor) == (4, 3)
    assert len(topic.partitions) == 4
    assert all(p.isr == p.replicas and p.leader == p.replicas[0] for p in topic.partitions)
    assert dict(cluster.image.topic_config("t")) == {"min.insync.replicas": "2"}
    described = {entry.name: (entry.value, entry.config_source) for entry in present(result.configs)}
    assert described["min.insync.replicas"] == ("2", 1)
    assert described["segment.bytes"] == ("1073741824", 5)


def test_minus_one_takes_the_clusters_defaults(make_controller: Callable[..., ControllerHarness]) -> None:
    cluster = make_controller(
        0,
        ControllerConfig(
            num_partitions=5, default_replication_factor=2, topic_defaults={"retention.ms": "1000"}
        ),
    )
    cluster.start_brokers(1, 2)
    (result,) = cluster.create_topics(wanted("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (5, 2)
    assert ("1000", 4) in [(entry.value, entry.config_source) for entry in present(result.configs)]


def test_validating_only_creates_nothing(cluster: ControllerHarness) -> None:
    before = cluster.image
    (result,) = cluster.create_topics(wanted("t", 2, 3), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, ZERO_UUID)
    assert cluster.image is before


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "ä", "a/b", "a" * 250, "line\n", "__cluster_metadata"]
)
def test_illegal_names_are_refused(cluster: ControllerHarness, name: str) -> None:
    (result,) = cluster.create_topics(wanted(name))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_longest_legal_name_is_accepted(cluster: ControllerHarness) -> None:
    cluster.create_topic("a" * 249)


def test_names_that_differ_only_in_dot_and_underscore_collide(cluster: ControllerHarness) -> None:
    cluster.create_topic("a.b_c")
    (existing, _, within) = cluster.create_topics(wanted("a_b.c"), wanted("x_y"), wanted("x.y"))
    assert existing.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert within.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("topics", [2, 40])
def test_collision_is_found_however_many_topics_and_spellings_there_are(
    cluster: ControllerHarness, topics: int
) -> None:
    for index in range(topics):
        cluster.create_topic(f"other-{index}")
    cluster.create_topic("a.b_c.d")
    for name in ("a_b_c_d", "a.b.c.d", "a_b.c_d"):
        (result,) = cluster.create_topics(wanted(name, 1, 1))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and "a.b_c.d" in present(
            result.error_message
        )
    for name in ("a.b_c", "a.bc.d", "a..b_c.d", "_" * 60, "a.b_c.d."):
        (result,) = cluster.create_topics(wanted(name, 1, 1))
        assert result.error_code == 0, name


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (wanted(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (wanted(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (wanted(partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (wanted(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted(configs=[config("retention.msx", "1")]), ErrorCode.INVALID_CONFIG),
        (wanted(configs=[config("retention.msx", "1")] * 9998), ErrorCode.INVALID_CONFIG),
        (wanted(configs=[config("retention.msx", "1")] * 9999), ErrorCode.POLICY_VIOLATION),
        (wanted(configs=[config("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
        (wanted(configs=[config("min.insync.replicas", "0")]), ErrorCode.INVALID_CONFIG),
        (wanted(configs=[config("remote.storage.enable", "true")]), ErrorCode.INVALID_CONFIG),
        (wanted(configs=[config("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (
            wanted(configs=[config("min.compaction.lag.ms", "6"), config("max.compaction.lag.ms", "5")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (assigned((0, [1]), partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [1]), factor=1), ErrorCode.INVALID_REQUEST),
        (assigned((1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1]), (0, [2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1, 2]), (1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_unusable_topics_are_refused(
    cluster: ControllerHarness, topic: CreatableTopic, expected: ErrorCode
) -> None:
    before = cluster.image
    (result,) = cluster.create_topics(topic)
    assert result.error_code == expected, result.error_message
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, None)
    assert cluster.image is before


def test_unknown_config_names_the_nearest_known_one(cluster: ControllerHarness) -> None:
    (result,) = cluster.create_topics(wanted(configs=[config("retention.msx", "1")]))
    assert "retention.ms" in present(result.error_message)


def test_topics_of_one_request_succeed_and_fail_alone(cluster: ControllerHarness) -> None:
    cluster.create_topic("old")
    results = cluster.create_topics(wanted("old"), wanted("twice"), wanted("new"), wanted("twice"))
    assert {result.name: result.error_code for result in results} == {
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "twice": ErrorCode.INVALID_REQUEST,
        "new": ErrorCode.NONE,
    }
    assert cluster.image.topic("twice") is None


def test_given_assignment_is_used_and_fenced_brokers_start_outside_the_isr(
    cluster: ControllerHarness,
) -> None:
    cluster.stop_heartbeats(1)
    topic = cluster.create_assigned("t", [1, 2, 3])
    assert (topic.partitions[0].replicas, topic.partitions[0].isr, topic.partitions[0].leader) == (
        (1, 2, 3),
        (2, 3),
        2,
    )


def test_given_assignment_to_fenced_brokers_only_is_refused(cluster: ControllerHarness) -> None:
    cluster.stop_heartbeats(1)
    (result,) = cluster.create_topics(assigned((0, [1])))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_fenced_brokers_receive_replicas_only_where_the_others_are_too_few(
    cluster: ControllerHarness,
) -> None:
    cluster.stop_heartbeats(2)
    topic = cluster.create_topic("t", partitions=10, replication_factor=2)
    assert {broker for p in topic.partitions for broker in p.replicas} == {1, 3}
    wide = cluster.create_topic("u", partitions=4, replication_factor=3)
    for partition in wide.partitions:
        assert partition.replicas[2] == 2 and set(partition.isr) == {1, 3} and partition.leader in (1, 3)
    (result,) = cluster.create_topics(wanted("v", 1, 4))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.stop_heartbeats(1, 3)
    (result,) = cluster.create_topics(wanted("w", 1, 1))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "no broker is active" in present(result.error_message)


def test_brokers_that_are_shutting_down_receive_no_replicas(cluster: ControllerHarness) -> None:
    cluster.create_assigned("held", [2, 1])
    cluster.heartbeat(2, want_shut_down=True)
    topic = cluster.create_topic("t", partitions=10, replication_factor=2)
    assert {broker for p in topic.partitions for broker in p.replicas} == {1, 3}
    (result,) = cluster.create_topics(wanted("u", 1, 3))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# DeleteTopics


def delete(
    cluster: ControllerHarness, *states: DeleteTopicState, names: list[str] | None = None
) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(states), topic_names=names or [])
    return list(cluster.run(cluster.core.handle_forwarded(cluster.context, request)).responses)


def test_topics_are_deleted_by_name_and_by_id(cluster: ControllerHarness) -> None:
    one, two, three = (cluster.create_topic(name) for name in ("one", "two", "three"))
    results = delete(
        cluster, DeleteTopicState(name="one"), DeleteTopicState(topic_id=two.id), names=["three"]
    )
    assert [(r.name, r.topic_id, r.error_code) for r in results] == [
        ("one", one.id, 0),
        ("two", two.id, 0),
        ("three", three.id, 0),
    ]
    assert len(cluster.image.topics_by_id) == 0


def test_name_can_be_used_again_after_deletion_with_another_id(cluster: ControllerHarness) -> None:
    old = cluster.create_topic("t")
    delete(cluster, DeleteTopicState(name="t"))
    assert cluster.create_topic("t").id != old.id


def test_undeletable_topics_are_refused(cluster: ControllerHarness) -> None:
    topic = cluster.create_topic("t")
    unknown = Uuid(b"?" * 16)
    results = delete(
        cluster,
        DeleteTopicState(name="missing"),
        DeleteTopicState(topic_id=unknown),
        DeleteTopicState(name="t", topic_id=topic.id),
        DeleteTopicState(),
    )
    assert [result.error_code for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.image.topic("t") is not None


def test_topic_named_twice_is_not_deleted(cluster: ControllerHarness) -> None:
    topic = cluster.create_topic("t")
    results = delete(cluster, DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic.id))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.image.topic("t") is not None


def test_deletion_can_be_disabled(make_controller: Callable[..., ControllerHarness]) -> None:
    cluster = make_controller(0, ControllerConfig(delete_topic_enable=False))
    cluster.start_brokers(1)
    cluster.create_topic("t")
    (result,) = delete(cluster, DeleteTopicState(name="t"))
    assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED


# CreatePartitions


def grow(
    cluster: ControllerHarness, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[int]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    response = cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    return [result.error_code for result in response.results]


def growth(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    rows = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows or None)


def test_partitions_are_added_after_existing_ones(cluster: ControllerHarness) -> None:
    before = cluster.create_topic("t", 2, 2).partitions
    assert grow(cluster, growth("t", 5)) == [0]
    after = cluster.topic("t").partitions
    assert after[:2] == before
    assert [len(p.replicas) for p in after] == [2] * 5


def test_partitions_are_added_on_the_given_brokers(cluster: ControllerHarness) -> None:
    cluster.create_topic("t", 1, 2)
    assert grow(cluster, growth("t", 2, [3, 1])) == [0]
    assert cluster.partition("t", 1).replicas == (3, 1)


def test_refused_growth_changes_nothing(cluster: ControllerHarness) -> None:
    cluster.create_topic("t", 3, 2)
    before = cluster.image
    codes = [
        grow(cluster, topic)[0]
        for topic in (
            growth("t", 3),
            growth("t", 2),
            growth("missing", 5),
            growth("t", 5, [1, 2]),
            growth("t", 4, [1]),
            growth("t", 4, [1, 9]),
            growth("t", 2**31 - 1),
        )
    ]
    assert codes == [
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert grow(cluster, growth("t", 4), growth("t", 5)) == [ErrorCode.INVALID_REQUEST]
    assert grow(cluster, growth("t", 9), validate_only=True) == [0]
    assert cluster.image is before


@pytest.mark.parametrize("others", [0, 5000])
@pytest.mark.parametrize("name", ["a.b_c", "a_b", "_", "..a", "plain", "a.b.c.d.e.f"])
def test_collision_is_found_among_few_and_many_topics(name: str, others: int) -> None:
    crowd = {f"topic_{number}": f"topic.{number}" for number in range(others)}
    in_metrics = name.replace(".", "_")
    check_collision(name, crowd | {in_metrics: name})
    if "." in name or "_" in name:
        twin = in_metrics if "." in name else name.replace("_", ".")
        with pytest.raises(KafkaError, match=f"collides with existing topic {re.escape(twin)}"):
            check_collision(name, crowd, {in_metrics: twin})


def test_deleted_topic_collides_with_none(cluster: ControllerHarness) -> None:
    cluster.create_topic("a.b")
    cluster.run(cluster.core.handle_forwarded(cluster.context, DeleteTopicsRequest(topic_names=["a.b"])))
    cluster.create_topic("a_b")
    assert dict(cluster.image.metric_names) == {"a_b": "a_b"}


# --- a request that a broker had to pass on more than once -----------------------------------------------


def create_at(
    cluster: ControllerHarness,
    attempt: int,
    *names: str,
    request_id: bytes = b"request",
    validate_only: bool = False,
) -> Any:
    """The answers for the topics, by name, to this attempt of the request."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names],
        validate_only=validate_only,
    )
    context = replace(cluster.context, request_id=request_id, attempt=attempt)
    response = cluster.run(cluster.core.handle_forwarded(context, request))
    return {result.name: result for result in response.topics}


def test_own_topic_of_an_earlier_attempt_is_answered_as_created(cluster: ControllerHarness) -> None:
    first = create_at(cluster, 0, "a", "b")
    before = cluster.image
    for attempt in (1, 2, 999):
        again = create_at(cluster, attempt, "a", "b")
        assert again == first
    assert cluster.image is before
    later = create_at(cluster, 3, "a", "c")
    assert [later[name].error_code for name in "ac"] == [0, 0], "the missing topic is created"
    assert create_at(cluster, 4, "a", "c") == later


@pytest.mark.parametrize(
    ("request_id", "attempt"), [(b"another", 5), (b"request", 0), (b"", 5), (b"", 0), (b"request", -5)]
)
def test_topic_of_another_client_already_exists(
    cluster: ControllerHarness, request_id: bytes, attempt: int
) -> None:
    create_at(cluster, 0, "t")
    before = cluster.image
    answer = create_at(cluster, attempt, "t", request_id=request_id)["t"]
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert cluster.image is before


def test_topic_deleted_between_two_attempts_is_created_with_a_new_id(cluster: ControllerHarness) -> None:
    first = create_at(cluster, 0, "t")["t"]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    second = create_at(cluster, 1, "t")["t"]
    assert second.error_code == 0 and second.topic_id != first.topic_id
    assert create_at(cluster, 2, "t")["t"].topic_id == second.topic_id


def test_attempt_that_arrives_again_after_its_topic_was_deleted_gives_another_id(
    cluster: ControllerHarness,
) -> None:
    """One id for two topics would let replicas keep the records of the first."""
    first = create_at(cluster, 0, "t")["t"]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    second = create_at(cluster, 0, "t")["t"]
    assert second.error_code == 0 and second.topic_id != first.topic_id
    assert create_at(cluster, 1, "t")["t"].topic_id == second.topic_id


def test_two_topics_and_two_requests_never_share_an_id() -> None:
    ids = {
        make_topic_id(request_id, attempt, name)
        for request_id in (b"a", b"b", b"a:1")
        for attempt in range(3)
        for name in ("t", "u", "1:t")
    }
    assert len(ids) == 27


def test_validating_the_creation_of_an_own_topic_answers_like_creating_it(cluster: ControllerHarness) -> None:
    create_at(cluster, 0, "t")
    before = cluster.image
    answer = create_at(cluster, 1, "t", validate_only=True)["t"]
    assert answer.error_code == 0 and answer.topic_id == ZERO_UUID and cluster.image is before


class CountedTopics(list[CreatableTopic]):
    """How often all of them were looked at."""

    walks = 0

    def __iter__(self) -> Iterator[CreatableTopic]:
        self.walks += 1
        return super().__iter__()


def test_topics_of_a_request_are_not_searched_for_each_of_them(cluster: ControllerHarness) -> None:
    topics = CountedTopics(
        CreatableTopic(name=f"new{number}", num_partitions=1, replication_factor=1) for number in range(50)
    )
    request = CreateTopicsRequest(topics=topics)
    response = cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    assert not any(topic.error_code for topic in response.topics) and len(response.topics) == 50
    assert topics.walks <= 3
