"""kafka-python's administration, also of groups whose members fetch by sessions."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

with warnings.catch_warnings():
    # It reads its message definitions by a function that Python 3.11 deprecated and 3.13 restored.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        MemberToRemove,
        NewPartitions,
        OffsetSpec,
    )
    from kafka.admin import NewTopic as TopicRequest
    from kafka.errors import (
        GroupIdNotFoundError,
        GroupSubscribedToTopicError,
        InvalidReplicationFactorError,
        NoError,
        TopicAlreadyExistsError,
        UnknownMemberIdError,
        UnknownTopicOrPartitionError,
    )
    from kafka.structs import OffsetAndMetadata

pytestmark = [
    pytest.mark.interop,
    # It leaves sockets of its closed loop to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NewTopic = Callable[..., str]
Fresh = Callable[[str], str]


def new_consumer(cluster: Cluster, *topics: str, **settings: object) -> KafkaConsumer:
    defaults = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "fetch_max_wait_ms": 100,
    }
    return KafkaConsumer(*topics, **(defaults | settings))


class Member:
    """A group member on its own thread.

    It polls with a long timeout: a poll that ends while it joins its group makes it join again.
    """

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._consumer = new_consumer(cluster, topic, group_id=group)
        self._stop = threading.Event()
        self.owned: set[int] = set()
        self.values: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            found = [record for part in self._consumer.poll(timeout_ms=1000).values() for record in part]
            self.owned = {item.partition for item in self._consumer.assignment()}
            if found:
                self._consumer.commit()
                self.values.extend(int(record.value) for record in found)
        self._consumer.close()
        self.owned = set()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def group_of(cluster: Cluster, topic: str, group: str, count: int) -> Iterator[list[Member]]:
    members = [Member(cluster, topic, group) for _ in range(count)]
    try:
        yield members
    finally:
        for member in members:
            member.leave()


@pytest.fixture(scope="module")
def admin(trio: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=trio.bootstrap_servers)) as client:
        yield client


@pytest.mark.shows("kafka-python", "admin")
def test_admin_creates_describes_extends_and_deletes_topics(admin: KafkaAdminClient, fresh: Fresh) -> None:
    topic = fresh("topic")
    admin.create_topics([TopicRequest(topic, num_partitions=2, replication_factor=3)])
    admin.wait_for_topics([topic])
    (described,) = admin.describe_topics([topic])
    assert [len(partition["replica_nodes"]) for partition in described["partitions"]] == [3, 3]
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([TopicRequest(topic, num_partitions=2, replication_factor=3)])
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics([TopicRequest(fresh("topic"), num_partitions=1, replication_factor=9)])
    admin.create_partitions({topic: NewPartitions(5)})
    wait_until(
        "five partitions", lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, PATIENCE_S
    )
    admin.delete_topics([topic])
    wait_until("topic gone", lambda: topic not in admin.list_topics(), PATIENCE_S)


def test_admin_pages_through_topic_partitions(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic(5)
    first = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert [p["partition_index"] for p in first["topics"][0]["partitions"]] == [0, 1, 2]
    assert first["next_cursor"] == {"topic_name": topic, "partition_index": 3}
    rest = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert [p["partition_index"] for p in rest["topics"][0]["partitions"]] == [3, 4]
    assert rest["next_cursor"] is None


def test_admin_describes_the_cluster_and_its_quorum(trio: Cluster, admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert {broker["broker_id"] for broker in cluster["brokers"]} == {1, 2, 3}
    assert len(cluster["cluster_id"]) == 22
    quorum = admin.describe_metadata_quorum()
    (partition,) = quorum["topics"][0]["partitions"]
    assert partition["leader_id"] in (1, 2, 3)
    assert {voter["replica_id"] for voter in partition["current_voters"]} == {1, 2, 3}
    assert partition["high_watermark"] > 0
    assert {node["node_id"] for node in quorum["nodes"]} == {1, 2, 3}


def test_admin_sees_the_served_apis_and_features(admin: KafkaAdminClient) -> None:
    versions = admin.api_versions()
    assert "ConsumerGroupHeartbeat" in str(versions)
    assert "group.version" in str(admin.describe_features())


def test_admin_changes_topic_configs(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "4242"})])

    def changed() -> bool:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return bool(found["topic"][topic].get("retention.ms", {}).get("value") == "4242")

    wait_until("the new value", changed, PATIENCE_S)


def test_admin_lists_describes_and_deletes_groups(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic, group = new_topic(2), fresh("group")
    with group_of(trio, topic, group, 1) as (member,):
        wait_until("both partitions", lambda: member.owned == {0, 1}, PATIENCE_S)
        with closing(KafkaProducer(bootstrap_servers=trio.bootstrap_servers)) as producer:
            for n in range(2):
                producer.send(topic, b"%d" % n, partition=n)
        wait_until("both records", lambda: sorted(member.values) == [0, 1], PATIENCE_S)
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        assert group in {item["group_id"] for item in admin.list_groups()}
    wait_until("empty", lambda: admin.describe_groups([group])[group]["group_state"] == "Empty", PATIENCE_S)
    offsets = admin.list_group_offsets({group: None})
    assert {p.partition: o.offset for p, o in offsets[group].items()} == {0: 1, 1: 1}
    admin.delete_groups([group])
    assert group not in {item["group_id"] for item in admin.list_groups()}


def test_admin_sets_resets_and_deletes_offsets_of_groups(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic, group = new_topic(3), fresh("group")
    first, second, third = (TopicPartition(topic, index) for index in range(3))

    def offsets() -> dict[int, int]:
        return {it.partition: at.offset for it, at in admin.list_group_offsets({group: None})[group].items()}

    with closing(KafkaProducer(bootstrap_servers=trio.bootstrap_servers)) as producer:
        for n in range(4):
            producer.send(topic, b"%d" % n, partition=0).get(PATIENCE_S)
    wanted = {it: OffsetAndMetadata(at, "", -1) for it, at in ((first, 3), (second, 0), (third, 0))}
    assert set(admin.alter_group_offsets(group, wanted).values()) == {NoError}
    assert offsets() == {0: 3, 1: 0, 2: 0}
    reset = admin.reset_group_offsets(group, {first: OffsetSpec.EARLIEST, second: OffsetSpec.LATEST})
    assert {it.partition: found["offset"] for it, found in reset.items()} == {0: 0, 1: 0}
    unknown = TopicPartition(topic, 9)
    assert admin.delete_group_offsets(group, [second, third, unknown]) == {
        second: NoError,
        third: NoError,
        unknown: UnknownTopicOrPartitionError,
    }
    assert offsets() == {0: 0}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets(fresh("nobody"), [first])
    listed = {
        it["group_id"]: it for it in admin.list_groups(states_filter=["Empty"], types_filter=["classic"])
    }
    assert listed[group]["group_type"] == "classic"
    for filters in ({"states_filter": ["Stable"]}, {"types_filter": ["consumer"]}):
        assert group not in {it["group_id"] for it in admin.list_groups(**filters)}


def test_admin_deletes_no_offsets_that_are_read_and_removes_members(
    trio: Cluster, admin: KafkaAdminClient, new_topic: NewTopic, fresh: Fresh
) -> None:
    topic, other, group = new_topic(1), new_topic(1), fresh("group")
    read, unread = TopicPartition(topic, 0), TopicPartition(other, 0)
    start = {it: OffsetAndMetadata(0, "", -1) for it in (read, unread)}
    assert set(admin.alter_group_offsets(group, start).values()) == {NoError}
    with group_of(trio, topic, group, 1) as (member,):
        wait_until("its partition", lambda: member.owned == {0}, PATIENCE_S)
        assert admin.delete_group_offsets(group, [read, unread]) == {
            read: GroupSubscribedToTopicError,
            unread: NoError,
        }
        assert set(admin.alter_group_offsets(group, start).values()) == {UnknownMemberIdError}
        (described,) = admin.describe_groups([group])[group]["members"]
        removed = admin.remove_group_members(group, [MemberToRemove(member_id=described["member_id"])])
        assert set(removed.values()) == {NoError}
        wait_until(
            "it has joined again",
            lambda: (
                described["member_id"]
                not in {it["member_id"] for it in admin.describe_groups([group])[group]["members"]}
            ),
            PATIENCE_S,
        )
