"""Metadata answers: the bytes are what the general codec would write, and they follow every change."""

import asyncio
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from pykraft.broker.apis.cluster import describe_cluster, describe_topic_partitions, metadata
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis
from pykraft.broker.config import BrokerConfig
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.metadata.topic_answers import ListenerView, TopicAnswers, encode_topic
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.encode_plan import encoder
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.messages.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import Changes, build_delta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pykraft.metadata_log.replay import replay
from tests.broker.answers import as_read
from tests.narrowing import present
from tests.stand_ins import stand_in

VERSIONS = range(14)
LISTENER = "PLAINTEXT"
CONTEXT = RequestContext(listener=LISTENER)


def topic_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def broker(broker_id: int, *listeners: str, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=topic_id(broker_id),
        broker_epoch=broker_id,
        endpoints=tuple(Endpoint(name, f"host{broker_id}", 9092) for name in listeners),
        fenced=fenced,
    )


class MetadataOptions(TypedDict, total=False):
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class Cluster:
    """A metadata cache that replays records."""

    def __init__(self) -> None:
        self.cache = MetadataCache(1, "cluster", EMPTY_IMAGE)
        config = BrokerConfig(1, "cluster", listeners=(), log_dirs=(), auto_create_topics_enable=False)
        self.services = stand_in(BrokerServices, metadata=self.cache, config=config)
        self.apply(broker(1, LISTENER), broker(2, LISTENER), broker(3, LISTENER))

    @property
    def image(self) -> MetadataImage:
        return self.cache.image

    def apply(self, *records: Record) -> None:
        image, changes = replay(self.image, records, self.image.offset + 1, 1)
        self.cache.publish(build_delta(self.image, image, changes), image)

    def create(self, number: int, name: str, *replica_lists: tuple[int, ...]) -> None:
        self.apply(
            TopicRecord(name, topic_id(number)),
            *(
                PartitionRecord(index, topic_id(number), replicas, replicas, replicas[0], index)
                for index, replicas in enumerate(replica_lists)
            ),
        )

    def ask(self, version: int, *names: str) -> MetadataResponse:
        return self.ask_with(version, *names)

    def ask_with(self, version: int, *names: str, **options: Unpack[MetadataOptions]) -> MetadataResponse:
        topics = [MetadataRequestTopic(name=name) for name in names] if names else None
        request = MetadataRequest(topics=topics or ([] if version == 0 else None), **options)
        return as_read(metadata.handle(self.services, CONTEXT, request, version), version)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create(1, "a", (1, 2, 3), (2, 3, 1), (3, 1))
    cluster.create(2, "__consumer_offsets", (2,))
    cluster.create(3, "c", *[(1, 2)] * 200)
    return cluster


def by_the_general_codec(image: MetadataImage, name: str, version: int) -> bytes:
    """The expected topic of an answer, computed from the image alone."""
    topic = present(image.topic(name))

    def is_usable(id: int) -> bool:
        return id in image.brokers and not image.brokers[id].fenced

    def show(index: int, partition: PartitionRegistration) -> MetadataResponsePartition:
        error = ErrorCode.NONE
        if not is_usable(partition.leader):
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif image.brokers[partition.leader].endpoint(LISTENER) is None:
            error = ErrorCode.LISTENER_NOT_FOUND
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=-1 if error else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=[id for id in partition.replicas if not is_usable(id)],
        )

    shown = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name == "__consumer_offsets",
        partitions=[show(index, partition) for index, partition in enumerate(topic.partitions)],
    )
    out = bytearray()
    encoder(MetadataResponseTopic, version, version >= 9)(shown, out)
    return bytes(out)


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_encoded_as_the_general_codec_would(cluster: Cluster, version: int) -> None:
    cluster.apply(
        broker(4, "OTHER"),
        BrokerRegistrationChangeRecord(2, 2, fenced=True),
        PartitionChangeRecord(0, topic_id(1), isr=(3,), leader=4),
        PartitionChangeRecord(1, topic_id(1), leader=-1),
        PartitionChangeRecord(7, topic_id(3), isr=()),
    )
    view = cluster.cache.listener_view(LISTENER)
    for name in ("a", "__consumer_offsets", "c"):
        topic = present(cluster.image.topic(name))
        assert at_once(encode_topic(topic, view, version)) == by_the_general_codec(
            cluster.image, name, version
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_whole_answer_can_be_read_in_every_version(cluster: Cluster, version: int) -> None:
    everything = cluster.ask(version)
    assert [topic.name for topic in everything.topics] == ["__consumer_offsets", "a", "c"]
    assert [item.node_id for item in everything.brokers] == [1, 2, 3]
    assert [len(topic.partitions) for topic in everything.topics] == [1, 3, 200]
    some = cluster.ask(version, "a", "missing")
    assert [(topic.name, topic.error_code) for topic in some.topics] == [
        ("a", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    if version >= 13:
        assert everything.error_code == ErrorCode.NONE


def test_answer_follows_a_changed_partition(cluster: Cluster) -> None:
    cluster.ask(12)
    cluster.apply(PartitionChangeRecord(1, topic_id(1), isr=(3, 1), leader=3))
    partition = cluster.ask(12, "a").topics[0].partitions[1]
    assert (partition.leader_id, partition.isr_nodes, partition.leader_epoch) == (3, [3, 1], 2)


def test_answer_follows_a_broker_that_is_fenced_and_unfenced(cluster: Cluster) -> None:
    cluster.ask(12)
    cluster.apply(BrokerRegistrationChangeRecord(1, 1, fenced=True))
    fenced = cluster.ask(12, "a")
    assert [item.node_id for item in fenced.brokers] == [2, 3]
    assert fenced.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert fenced.topics[0].partitions[0].leader_id == -1
    assert fenced.topics[0].partitions[1].offline_replicas == [1]
    cluster.apply(BrokerRegistrationChangeRecord(1, 1, fenced=False))
    back = cluster.ask(12, "a").topics[0].partitions
    assert (back[0].leader_id, back[1].offline_replicas) == (1, [])


def test_answer_follows_a_broker_that_loses_the_listener(cluster: Cluster) -> None:
    cluster.ask(12)
    cluster.apply(broker(1, "OTHER"))
    first = cluster.ask(12, "a").topics[0].partitions[0]
    assert (first.error_code, first.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)


def test_recreated_topic_is_a_new_one(cluster: Cluster) -> None:
    cluster.ask(12)
    cluster.apply(RemoveTopicRecord(topic_id(1)))
    assert [topic.name for topic in cluster.ask(12).topics] == ["__consumer_offsets", "c"]
    cluster.create(9, "a", (3,))
    (answer,) = cluster.ask(12, "a").topics
    assert (answer.topic_id, len(answer.partitions)) == (topic_id(9), 1)


def test_one_changed_partition_leaves_the_bytes_of_other_topics_unchanged(cluster: Cluster) -> None:
    answers = TopicAnswers()

    def encoded(name: str) -> bytes:
        topic = present(cluster.image.topic(name))
        return at_once(answers.encode(topic, cluster.cache.listener_view(LISTENER), LISTENER, 12))

    before = {name: encoded(name) for name in ("a", "c")}
    cluster.apply(PartitionChangeRecord(0, topic_id(1), isr=(1,)))
    assert encoded("c") is before["c"]
    assert encoded("a") != before["a"]
    # A broker that looks the same as before is no reason to encode anything again.
    cluster.apply(replace(broker(3, LISTENER), rack="r"))
    assert encoded("c") is before["c"]


def test_cache_is_bounded(cluster: Cluster) -> None:
    view = cluster.cache.listener_view(LISTENER)
    topic = present(cluster.image.topic("c"))
    size = len(at_once(encode_topic(topic, view, 12)))
    answers = TopicAnswers(kept_bytes=3 * size)
    topics = [replace(topic, id=topic_id(100 + number)) for number in range(5)]
    for each in topics:
        at_once(answers.encode(each, view, LISTENER, 12))
    kept = [answers.find(each, view, LISTENER, 12) is not None for each in topics]
    assert kept == [False, False, True, True, True]
    alone = TopicAnswers(kept_bytes=size - 1)
    assert at_once(alone.encode(topic, view, LISTENER, 12))
    assert alone.find(topic, view, LISTENER, 12) is None


def test_each_listener_has_its_own_view() -> None:
    cluster = Cluster()
    cluster.apply(broker(2, "OTHER"))
    assert cluster.cache.listener_view(LISTENER) == ListenerView(frozenset({1, 2, 3}), frozenset({1, 3}))
    assert cluster.cache.listener_view("OTHER") == ListenerView(frozenset({1, 2, 3}), frozenset({2}))


def test_long_answer_is_made_in_slices_and_shows_one_image() -> None:
    cluster = Cluster()
    for number in range(60):
        cluster.create(1000 + number, f"t{number:02}", *[(1, 2)] * 200)
    slices = metadata.handle(cluster.services, CONTEXT, MetadataRequest(topics=None), 12)
    for _ in range(30):
        next(slices)
    cluster.apply(RemoveTopicRecord(topic_id(1059)))
    cluster.apply(BrokerRegistrationChangeRecord(1, 1, fenced=True))
    answer = as_read(slices, 12)
    assert len(answer.topics) == 60
    assert {partition.leader_id for topic in answer.topics for partition in topic.partitions} == {1}
    assert len(cluster.ask(12).topics) == 59


def test_names_stay_sorted_whatever_is_added_and_removed(cluster: Cluster) -> None:
    for number, name in enumerate(("b", "zz", "0", "ab"), start=10):
        held = cluster.cache.topic_names()
        shown = list(held)
        cluster.create(number, name, (1,))
        assert list(held) == shown, "a list that was returned has changed"
        assert list(cluster.cache.topic_names()) == sorted(cluster.image.topic_ids)
    cluster.apply(RemoveTopicRecord(topic_id(10)), RemoveTopicRecord(topic_id(1)))
    assert list(cluster.cache.topic_names()) == sorted(cluster.image.topic_ids)
    image, _ = replay(cluster.image, [RemoveTopicRecord(topic_id(3))], cluster.image.offset + 1, 1)
    unseen = build_delta(EMPTY_IMAGE, image, Changes(topics=set(image.topics_by_id)))
    cluster.cache.publish(unseen, image)
    assert list(cluster.cache.topic_names()) == sorted(image.topic_ids)


def test_described_partitions_continue_at_the_cursor(cluster: Cluster) -> None:
    def describe(*names: str, cursor: tuple[str, int] | None = None) -> list[tuple[str, int]]:
        at = None
        if cursor is not None:
            at = DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=3,
            cursor=at,
        )
        answer = as_read(describe_topic_partitions.handle(cluster.services, CONTEXT, request, 0), 0)
        return [
            (present(topic.name), item.partition_index)
            for topic in answer.topics
            for item in topic.partitions
        ]

    assert describe() == [("__consumer_offsets", 0), ("a", 0), ("a", 1)]
    assert describe(cursor=("a", 2)) == [("a", 2), ("c", 0), ("c", 1)]
    assert describe(cursor=("b", 7)) == [("c", 0), ("c", 1), ("c", 2)]
    assert describe("c", "a", cursor=("c", 199)) == [("c", 199)]


@pytest.mark.parametrize("version", range(8, 14))
def test_all_operations_are_authorized_and_listed_if_requested(cluster: Cluster, version: int) -> None:
    """The numbers are Apache Kafka 4.3's without an authorizer."""
    of_cluster = {"include_cluster_authorized_operations": True} if version <= 10 else {}
    for names in ((), ("a", "absent")):
        plain = cluster.ask(version, *names)
        assert {topic.topic_authorized_operations for topic in plain.topics} == {-(2**31)}
        assert plain.cluster_authorized_operations == -(2**31)
        response = cluster.ask_with(version, *names, include_topic_authorized_operations=True, **of_cluster)
        assert {topic.topic_authorized_operations for topic in response.topics} == {3576}
        assert response.cluster_authorized_operations == (8096 if version <= 10 else -(2**31))
        for topic in response.topics:
            topic.topic_authorized_operations = -(2**31)
        assert response.topics == plain.topics


def test_topic_of_which_only_an_unknown_id_is_named_has_no_operations(cluster: Cluster) -> None:
    asked = [MetadataRequestTopic(name=None, topic_id=topic_id(99))]
    request = MetadataRequest(topics=asked, include_topic_authorized_operations=True)
    (topic,) = as_read(metadata.handle(cluster.services, CONTEXT, request, 12), 12).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (ErrorCode.UNKNOWN_TOPIC_ID, -(2**31))


def test_described_topics_and_clusters_include_operations_as_in_kafka(cluster: Cluster) -> None:
    asked = [TopicRequest(name="a"), TopicRequest(name="absent")]
    request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=10)
    answer = as_read(describe_topic_partitions.handle(cluster.services, CONTEXT, request, 0), 0)
    assert [topic.topic_authorized_operations for topic in answer.topics] == [3576, 3576]
    for wanted, operations in ((True, 8096), (False, -(2**31))):
        question = DescribeClusterRequest(include_cluster_authorized_operations=wanted)
        response = asyncio.run(describe_cluster.handle(cluster.services, CONTEXT, question, 1))
        assert response.cluster_authorized_operations == operations


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_of_a_whole_request_is_given_for_every_topic(version: int) -> None:
    (api,) = (api for api in make_apis() if api.key is ApiKey.METADATA)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")])
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "internal error")
    answer = MetadataResponse.decode(api.error_response(request, version, error).encode(version), version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", -1), ("u", -1)]
    assert answer.error_code == (-1 if version >= 13 else 0)
