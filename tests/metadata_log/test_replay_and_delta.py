import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.delta import Changes, MetadataDelta, build_delta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from pykraft.metadata_log.replay import replay

T1, T2 = Uuid(b"1" * 16), Uuid(b"2" * 16)
REGISTER = RegisterBrokerRecord(
    1, Uuid(b"i" * 16), OWN_OFFSET, (Endpoint("A", "a", 1), Endpoint("B", "b", 2))
)


def fold(image: MetadataImage, *records: Record) -> MetadataImage:
    return replay(image, records, image.offset + 1, 1)[0]


def topic(name: str, topic_id: Uuid, partitions: int = 2) -> list[Record]:
    created: list[Record] = [TopicRecord(name, topic_id)]
    return created + [PartitionRecord(index, topic_id, (1, 2), (1, 2), 1) for index in range(partitions)]


def test_broker_epoch_is_the_offset_of_its_own_record_in_the_batch() -> None:
    image = fold(EMPTY_IMAGE, FeatureLevelRecord("a", 1), REGISTER)
    assert image.brokers[1].epoch == 1
    assert image.brokers[1].fenced
    assert image.offset == 1


def test_changed_registration_keeps_its_epoch() -> None:
    image = fold(EMPTY_IMAGE, REGISTER)
    image = fold(image, RegisterBrokerRecord(1, REGISTER.incarnation_id, 0, REGISTER.endpoints[:1]))
    assert image.brokers[1].epoch == 0
    assert image.brokers[1].last_change_offset == 1


def test_endpoint_is_found_by_listener_name() -> None:
    broker = fold(EMPTY_IMAGE, REGISTER).brokers[1]
    assert broker.endpoint("B") == Endpoint("B", "b", 2)
    assert broker.endpoint("C") is None


def test_change_record_keeps_unnamed_fields_and_raises_the_partition_epoch() -> None:
    image = fold(EMPTY_IMAGE, *topic("t", T1))
    image = fold(image, PartitionChangeRecord(1, T1, isr=(1,)))
    partition = image.topics_by_id[T1].partitions[1]
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == (
        (1,),
        1,
        0,
        1,
    )


def test_naming_a_leader_raises_the_leader_epoch() -> None:
    image = fold(EMPTY_IMAGE, *topic("t", T1), PartitionChangeRecord(0, T1, leader=2))
    partition = image.topics_by_id[T1].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 1, 1)


def test_removed_topic_removes_its_configs_and_its_name() -> None:
    image = fold(EMPTY_IMAGE, *topic("t", T1), ConfigRecord(2, "t", "k", "v"))
    image = fold(image, RemoveTopicRecord(T1))
    assert image.topic("t") is None
    assert not image.topic_config("t")
    assert len(image.configs) == 0


def test_config_without_value_is_back_at_the_default() -> None:
    image = fold(EMPTY_IMAGE, ConfigRecord(2, "t", "k", "v"), ConfigRecord(2, "t", "l", "w"))
    image = fold(image, ConfigRecord(2, "t", "k", None))
    assert dict(image.topic_config("t")) == {"l": "w"}


def test_an_older_image_does_not_change() -> None:
    old = fold(EMPTY_IMAGE, *topic("t", T1))
    fold(old, RemoveTopicRecord(T1), REGISTER)
    assert old.topic("t") is not None
    assert len(old.brokers) == 0


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(5, T1, (1,), (1,), 1),
        PartitionChangeRecord(9, T1, leader=1),
        PartitionChangeRecord(0, T2, leader=1),
        RemoveTopicRecord(T2),
        TopicRecord("t", T2),
        BrokerRegistrationChangeRecord(1, 99, fenced=False),
        UnregisterBrokerRecord(4, 0),
    ],
)
def test_a_record_that_contradicts_the_image_is_a_bug_and_changes_nothing(record: Record) -> None:
    image = fold(EMPTY_IMAGE, *topic("t", T1), REGISTER)
    with pytest.raises(AssertionError):
        fold(image, record)
    assert image == fold(EMPTY_IMAGE, *topic("t", T1), REGISTER)


def delta_of(old: MetadataImage, *batches: list[Record]) -> MetadataDelta:
    changes, new = Changes(), old
    for records in batches:
        new, touched = replay(new, records, new.offset + 1, 1)
        changes.merge(touched)
    return build_delta(old, new, changes)


def test_delta_names_created_changed_and_deleted_topics() -> None:
    old = fold(EMPTY_IMAGE, *topic("b", T1))
    t3 = Uuid(b"3" * 16)
    delta = delta_of(
        old, [PartitionChangeRecord(1, T1, isr=(2,), leader=2), *topic("a", T2), *topic("x", t3)]
    )
    assert delta.created_topics == {T2, t3}
    changed = {topic.name: set(delta.changed_partitions[topic.id]) for topic in delta.iter_changed_topics()}
    assert changed == {"a": {0, 1}, "b": {1}, "x": {0, 1}}
    later = delta_of(delta.new, [RemoveTopicRecord(T1)])
    assert [topic.name for topic in later.iter_deleted_topics()] == ["b"]
    assert not later.changed_topics


def test_topic_created_and_deleted_is_in_no_delta() -> None:
    delta = delta_of(EMPTY_IMAGE, topic("t", T1), [RemoveTopicRecord(T1)])
    assert delta.is_empty


def test_topic_recreated_under_its_name_is_deleted_and_created() -> None:
    old = fold(EMPTY_IMAGE, *topic("t", T1))
    delta = delta_of(old, [RemoveTopicRecord(T1), *topic("t", T2)])
    assert set(delta.deleted_topics) == {T1}
    assert delta.created_topics == {T2}


def test_delta_names_brokers_configs_and_features_that_really_differ() -> None:
    old = fold(EMPTY_IMAGE, REGISTER, ConfigRecord(2, "t", "k", "v"), FeatureLevelRecord("f", 1))
    delta = delta_of(
        old,
        [
            BrokerRegistrationChangeRecord(1, 0, fenced=False),
            ConfigRecord(2, "t", "k", "v"),
            ConfigRecord(2, "u", "k", "v"),
            FeatureLevelRecord("f", 1),
            FeatureLevelRecord("g", 2),
        ],
    )
    assert sorted(delta.changed_brokers) == [1]
    assert delta.changed_configs == {(2, "u")}
    assert delta.changed_features == {"g"}
