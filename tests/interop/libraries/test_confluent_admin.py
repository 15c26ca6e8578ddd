"""confluent-kafka's AdminClient: topics, configurations, groups, offsets, the cluster."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from confluent_kafka.cimpl import NewTopic as TopicRequest

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.interop.clusters import probing
from tests.narrowing import present

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
Fresh = Callable[[str], str]
TIMEOUT_S = PATIENCE_S


@pytest.fixture(scope="module")
def admin(trio: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": trio.bootstrap_servers})


def refusal(future: object) -> str:
    """The name of the error a request ended with."""
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)  # type: ignore[attr-defined]
    error: KafkaError = caught.value.args[0]
    return error.name()


def create(admin: AdminClient, *topics: TopicRequest, validate_only: bool = False) -> dict[str, Future[Any]]:
    return admin.create_topics(list(topics), operation_timeout=TIMEOUT_S, validate_only=validate_only)


def described(admin: AdminClient, topic: str) -> TopicDescription:
    """The topic, once the asked broker knows it: a creation reaches the brokers at different times."""
    found: list[TopicDescription] = []

    def known() -> bool:
        future = admin.describe_topics(TopicCollection([topic]))[topic]
        try:
            found.append(future.result(TIMEOUT_S))
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return bool(found)

    wait_until(f"{topic} described", known, PATIENCE_S)
    return found[0]


def topic_config(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(TIMEOUT_S)  # type: ignore[no-any-return]


@pytest.mark.shows("confluent-kafka", "admin")
def test_created_topic_is_described_and_deleted_topic_is_gone(admin: AdminClient, fresh: Fresh) -> None:
    topic = fresh("topic")
    create(admin, TopicRequest(topic, 3, 3))[topic].result(TIMEOUT_S)
    description = described(admin, topic)
    assert [p.id for p in description.partitions] == [0, 1, 2]
    for partition in description.partitions:
        assert {node.id for node in partition.replicas} == {1, 2, 3}
        assert partition.leader.id == partition.replicas[0].id
    assert len({partition.leader.id for partition in description.partitions}) == 3
    admin.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    wait_until("topic gone", lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, PATIENCE_S)
    assert refusal(admin.delete_topics([topic])[topic]) == "UNKNOWN_TOPIC_OR_PART"


def test_topic_created_again_has_another_id_and_no_old_records(
    trio: Cluster, admin: AdminClient, fresh: Fresh
) -> None:
    topic = fresh("topic")
    ids = []
    offsets: list[int] = []
    for value in (b"old", b"new"):
        create(admin, TopicRequest(topic, 1, 3))[topic].result(TIMEOUT_S)
        ids.append(str(described(admin, topic).topic_id))
        producer = Producer({"bootstrap.servers": trio.bootstrap_servers})
        producer.produce(
            topic, value, on_delivery=lambda error, message: offsets.append(present(message.offset()))
        )
        assert producer.flush(20) == 0
        admin.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
        wait_until(
            "topic gone", lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, PATIENCE_S
        )
    assert offsets == [0, 0]
    assert ids[0] != ids[1]


def test_impossible_topics_are_refused_with_their_reason(admin: AdminClient, new_topic: NewTopic) -> None:
    cases = {
        "TOPIC_ALREADY_EXISTS": TopicRequest(new_topic(), 1, 1),
        "TOPIC_EXCEPTION": TopicRequest("no spaces allowed", 1, 1),
        "INVALID_REPLICATION_FACTOR": TopicRequest("too-many-replicas", 1, 4),
        "INVALID_PARTITIONS": TopicRequest("no-partitions", 0, 1),
        "INVALID_CONFIG": TopicRequest("bad-config", 1, 1, config={"retention.ms": "soon"}),
        "INVALID_REPLICA_ASSIGNMENT": TopicRequest("bad-assignment", 1, replica_assignment=[[1, 1]]),
    }
    futures = create(admin, *cases.values())
    assert {reason: refusal(futures[request.topic]) for reason, request in cases.items()} == {
        reason: reason for reason in cases
    }
    listed = admin.list_topics(timeout=PATIENCE_S).topics
    assert not {"no spaces allowed", "too-many-replicas", "no-partitions", "bad-config"} & listed.keys()


def test_validate_only_creates_nothing(admin: AdminClient, fresh: Fresh) -> None:
    topic = fresh("topic")
    create(admin, TopicRequest(topic, 1, 3), validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=PATIENCE_S).topics


def test_replica_assignment_is_followed(admin: AdminClient, fresh: Fresh) -> None:
    topic = fresh("topic")
    create(admin, TopicRequest(topic, 2, replica_assignment=[[3, 1], [2, 3]]))[topic].result(TIMEOUT_S)
    description = described(admin, topic)
    assert [[n.id for n in p.replicas] for p in description.partitions] == [[3, 1], [2, 3]]
    assert [p.leader.id for p in description.partitions] == [3, 2]


def test_partitions_are_added_and_never_removed(
    trio: Cluster, admin: AdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    admin.create_partitions([NewPartitions(topic, 4)], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)

    def known_everywhere() -> bool:
        views = [present(probe.topic(node, topic)) for node in trio.nodes]
        return [len(view.partitions) for view in views if view.fully_in_sync] == [4, 4, 4]

    with probing(trio) as probe:
        wait_until("four partitions", known_everywhere, PATIENCE_S)
    assert refusal(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == "INVALID_PARTITIONS"
    assert (
        refusal(admin.create_partitions([NewPartitions("missing", 2)])["missing"]) == "UNKNOWN_TOPIC_OR_PART"
    )
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers})
    producer.produce(topic, b"v", partition=3, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(20) == 0
    assert outcomes == [None]


def test_topic_configs_are_set_read_with_their_source_and_reset(
    admin: AdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic(1, retention_ms="123456")
    entry = topic_config(admin, topic)["retention.ms"]
    assert (entry.value, ConfigSource(entry.source)) == ("123456", ConfigSource.DYNAMIC_TOPIC_CONFIG)

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        change = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def becomes(name: str, value: str, source: ConfigSource) -> None:
        def holds() -> bool:
            entry = topic_config(admin, topic)[name]
            return (entry.value, ConfigSource(entry.source)) == (value, source)

        wait_until(f"{name}={value}", holds, PATIENCE_S)

    alter("retention.ms", "777", AlterConfigOpType.SET)
    becomes("retention.ms", "777", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    becomes("cleanup.policy", "delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    becomes("cleanup.policy", "compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    becomes("retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG)
    for name, value in (("retention.ms", "soon"), ("no.such.config", "1"), ("cleanup.policy", "burn")):
        with pytest.raises(KafkaException) as refused:
            alter(name, value, AlterConfigOpType.SET)
        assert refused.value.args[0].name() == "INVALID_CONFIG", name


def test_min_insync_replicas_above_the_replicas_requires_all_of_them(
    trio: Cluster, admin: AdminClient, fresh: Fresh
) -> None:
    topic = fresh("topic")
    create(admin, TopicRequest(topic, 1, 1, config={"min.insync.replicas": "2"}))[topic].result(TIMEOUT_S)
    outcomes: list[str] = []
    for acks in ("all", "1"):
        producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "acks": acks, "retries": 0})
        producer.produce(
            topic, b"v", on_delivery=lambda error, _: outcomes.append(error.name() if error else "delivered")
        )
        assert producer.flush(20) == 0
    assert outcomes == ["delivered", "delivered"]


def test_broker_configs_are_described(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, "2")
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert found["node.id"].value == "2"
    assert found["min.insync.replicas"].value == "2"
    missing = ConfigResource(ResourceType.TOPIC, "no-such-topic")
    assert refusal(admin.describe_configs([missing])[missing]) == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_altered_and_deleted(
    trio: Cluster, admin: AdminClient, new_topic: NewTopic, fresh: Fresh, protocol: str
) -> None:
    def ids(**filters: object) -> set[str]:
        """The groups that match."""
        return {item.group_id for item in admin.list_consumer_groups(**filters).result(TIMEOUT_S).valid}

    topic, group = new_topic(2), fresh("group")
    consumer = Consumer(
        {
            "bootstrap.servers": trio.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "me",
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(
            "assigned", lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 2, PATIENCE_S
        )
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        listed = {item.group_id: item for item in admin.list_consumer_groups().result(TIMEOUT_S).valid}
        assert listed[group].state is ConsumerGroupState.STABLE
        assert listed[group].type is ConsumerGroupType[protocol.upper()]
        for kind in (ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER):
            assert (group in ids(types={kind})) == (kind is ConsumerGroupType[protocol.upper()])
        for state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            assert (group in ids(states={state})) == (state is ConsumerGroupState.STABLE)
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 5)])
        refused = admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT_S)
        (partition,) = refused.topic_partitions
        assert present(partition.error).name() == "UNKNOWN_MEMBER_ID", "the group has a member"
        description = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert description.state is ConsumerGroupState.STABLE
        assert description.coordinator.id in (1, 2, 3)
        (member,) = description.members
        assert member.client_id == "me"
        assert member.host in ("/127.0.0.1", "127.0.0.1")
        assert sorted(item.partition for item in member.assignment.topic_partitions) == [0, 1]
        assert refusal(admin.delete_consumer_groups([group])[group]) == "NON_EMPTY_GROUP"
    finally:
        consumer.close()
    description = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (description.state, list(description.members)) == (ConsumerGroupState.EMPTY, [])
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 5)])
    admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT_S)
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(
        TIMEOUT_S
    )
    assert {item.partition: item.offset for item in offsets.topic_partitions} == {0: 0, 1: 5}
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert group not in {item.group_id for item in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    assert refusal(admin.delete_consumer_groups([group])[group]) == "GROUP_ID_NOT_FOUND"


def test_offsets_are_listed_by_every_specification(
    trio: Cluster, admin: AdminClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers})
    for timestamp in (1000, 3000, 2000):
        producer.produce(topic, b"v", timestamp=timestamp)
        assert producer.flush(20) == 0

    def listed(spec: OffsetSpec) -> int:
        partition = TopicPartition(topic, 0)
        offset: int = admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset
        return offset

    assert listed(OffsetSpec.earliest()) == 0
    assert listed(OffsetSpec.latest()) == 3
    assert listed(OffsetSpec.max_timestamp()) == 1
    assert listed(OffsetSpec.for_timestamp(1500)) == 1
    assert listed(OffsetSpec.for_timestamp(9999)) == -1


def test_cluster_is_described(trio: Cluster, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert {node.id: f"{node.host}:{node.port}" for node in cluster.nodes} == trio.broker_addresses
    assert len(cluster.cluster_id) == 22
    assert cluster.controller.id in trio.nodes
