"""A snapshot loses nothing, and continuing from it equals continuing with the log."""

from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.delta import build_delta, build_full_delta
from pykraft.metadata_log.image import EMPTY_IMAGE, BrokerRegistration, MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    SessionTimeoutRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from pykraft.metadata_log.replay import replay
from pykraft.metadata_log.snapshot import SLICE_RECORDS, ImageBuilder, iter_snapshot_values


def load(
    slices: Sequence[Sequence[bytes]], image: MetadataImage, previous: MetadataImage = EMPTY_IMAGE
) -> MetadataImage:
    builder = ImageBuilder(previous)
    for values in slices:
        builder.load(values)
    return builder.finish(image.offset, image.epoch)[0]


def some(rng: Random) -> tuple[int, ...]:
    return tuple(rng.sample(range(1, 7), rng.randint(0, 3)))


def some_directories(rng: Random, replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    if rng.random() < 0.5:
        return ()
    return tuple(rng.choice((UNASSIGNED_DIRECTORY, Uuid(bytes([id]) * 16))) for id in replicas)


def random_batch(rng: Random, image: MetadataImage) -> list[Record]:
    """A batch that is valid for the image, of any type of record that a log may hold."""
    topics = sorted(image.topics_by_id.values(), key=lambda topic: topic.id)
    brokers = sorted(image.brokers.values(), key=lambda broker: broker.id)
    match rng.randrange(13):
        case 0 | 1:
            name = f"t{rng.choice(('', '.'))}{rng.randrange(12)}"
            topic_id = Uuid(bytes([rng.randrange(256)]) + image.offset.to_bytes(15, "big", signed=True))
            created: list[Record] = []
            if (known := image.topic(name)) is not None:
                created.append(RemoveTopicRecord(known.id))
            created.append(TopicRecord(name, topic_id))
            for index in range(rng.randrange(4)):
                replicas, others = tuple(rng.sample(range(1, 7), 3)), [some(rng) for _ in range(5)]
                directories = some_directories(rng, replicas)
                created.append(
                    PartitionRecord(
                        *(index, topic_id, replicas, replicas[:2], 1, 3, 400),
                        *(others[0], others[1], others[2], others[3], others[4], directories),
                    )
                )
            return created
        case 2 | 3 | 4 if topics:
            topic = rng.choice(topics)
            if not topic.partitions or rng.random() < 0.2:
                return [PartitionRecord(len(topic.partitions), topic.id, (1, 2), (1,), 1)]
            values = [some(rng) if rng.random() < 0.5 else None for _ in range(7)]
            leader = rng.choice((None, -1, 1, 2))
            index = rng.randrange(len(topic.partitions))
            replicas = topic.partitions[index].replicas if values[1] is None else values[1]
            isr, _, adding, removing, elr, last_known, lost = values
            return [
                PartitionChangeRecord(
                    *(index, topic.id, isr, leader, values[1], adding, removing, elr, last_known, lost),
                    some_directories(rng, replicas) if rng.random() < 0.3 else None,
                )
            ]
        case 5:
            return [
                RegisterBrokerRecord(
                    rng.randint(1, 6),
                    Uuid(rng.randbytes(16)),
                    OWN_OFFSET,
                    (Endpoint("A", "h", rng.randrange(9)), Endpoint("B", "i", 1, "SSL")),
                    (FeatureRange("f", 1, rng.randrange(1, 5)),),
                    rng.choice((None, "r1", "r2")),
                    log_dirs=(Uuid(rng.randbytes(16)),),
                )
            ]
        case 6 if brokers:
            broker = rng.choice(brokers)
            if rng.random() < 0.2:
                return [UnregisterBrokerRecord(broker.id, broker.epoch)]
            fenced, leaves = rng.choice((None, True, False)), rng.choice((None, True, False))
            offline = rng.choice((None, (), broker.log_dirs))
            return [BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced, leaves, offline)]
        case 7:
            kind, resource = rng.choice(((2, "t1"), (2, "t2"), (2, "gone"), (4, ""), (4, "1"), (32, "g")))
            return [ConfigRecord(kind, resource, rng.choice("abc"), rng.choice((None, "", "1", "ü")))]
        case 8:
            return [FeatureLevelRecord(rng.choice("fgh"), rng.randrange(3))]
        case 9:
            return [ProducerIdsRecord(1, 2, image.next_producer_id + 1000)]
        case 10:
            return [SessionTimeoutRecord(rng.randrange(3) * 1000)]
        case 11:
            features = (FeatureRange("f", 1, rng.randrange(1, 5)),)
            endpoint = Endpoint("K", "h", rng.randrange(9))
            return [RegisterControllerRecord(rng.randint(1, 3), features, (endpoint,))]
        case _:
            return [NoOpRecord()]


def images_of(rng: Random, batches: int) -> tuple[list[MetadataImage], list[list[Record]]]:
    images, log = [EMPTY_IMAGE], []
    for number in range(batches):
        batch = random_batch(rng, images[-1])
        images.append(replay(images[-1], batch, images[-1].offset + 1, 1 + number // 10)[0])
        log.append(batch)
    return images, log


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 80), st.integers(0, 80), st.integers(0, 80))
def test_continuing_from_a_snapshot_equals_continuing_with_the_log(
    rng: Random, batches: int, cut: int, older: int
) -> None:
    images, log = images_of(rng, batches)
    cut, older = min(cut, batches), min(older, cut, batches)
    slices = list(iter_snapshot_values(images[cut]))
    image = load(slices, images[cut])
    assert image == images[cut]
    assert list(iter_snapshot_values(image)) == slices, "equal images, equal bytes"
    for number in range(cut, batches):
        image = replay(image, log[number], image.offset + 1, 1 + number // 10)[0]
    assert image == images[batches]

    # A node with an older image gets every difference, and nothing else.
    builder = ImageBuilder(images[older])
    for values in slices:
        builder.load(values)
    jumped, changes = builder.finish(images[cut].offset, images[cut].epoch)
    assert jumped == images[cut]
    found = build_delta(images[older], jumped, changes)
    everywhere = build_full_delta(images[older])
    changes.topics |= everywhere.changed_topics | build_full_delta(jumped).changed_topics
    for image in (images[older], jumped):
        for topic in image.topics_by_id.values():
            for index in range(len(topic.partitions)):
                changes.touch_partition(topic.id, index)
    changes.partitions = {
        id: {i for i in indexes if id in jumped.topics_by_id and i < len(jumped.topics_by_id[id].partitions)}
        for id, indexes in changes.partitions.items()
    }
    assert found == build_delta(images[older], jumped, changes)


@pytest.mark.parametrize("cls", [BrokerRegistration, PartitionRegistration])
def test_every_field_of_the_image_survives(cls: type[Any]) -> None:
    """A field added to the image but not to the records would be lost with the log."""
    samples: dict[str, object] = {
        "int": 77,
        "bool": True,
        "Uuid": Uuid(b"u" * 16),
        "str | None": "text",
        "tuple[int, ...]": (5, 6),
        "tuple[Uuid, ...]": (Uuid(b"v" * 16),),
        "tuple[Endpoint, ...]": (Endpoint("N", "h", 5, "SSL"),),
        "tuple[FeatureRange, ...]": (FeatureRange("f", 2, 3),),
    }
    value = cls(**{field.name: samples[str(field.type)] for field in fields(cls)})
    topic_id = Uuid(b"t" * 16)
    image, _ = replay(
        EMPTY_IMAGE, [TopicRecord("t", topic_id), PartitionRecord(0, topic_id, (1,), (1,), 1)], 0, 1
    )
    if cls is BrokerRegistration:
        image = replace(image, brokers=image.brokers.set(77, value))
    else:
        topic = replace(image.topics_by_id[topic_id], partitions=(value,))
        image = replace(image, topics_by_id=image.topics_by_id.set(topic_id, topic))
    assert load(list(iter_snapshot_values(image)), image) == image


def big_image(topics: int, partitions: int) -> MetadataImage:
    rng, image = Random(3), EMPTY_IMAGE
    for number in range(topics):
        topic_id = Uuid(rng.randbytes(16))
        records: list[Record] = [TopicRecord(f"t{number}", topic_id)]
        records += [PartitionRecord(index, topic_id, (1, 2), (1, 2), 1) for index in range(partitions)]
        image, _ = replay(image, records, image.offset + 1, 1)
    return image


def test_no_slice_is_larger_than_it_may_be() -> None:
    image = big_image(2000, 2)
    slices = list(iter_snapshot_values(image))
    assert sum(map(len, slices)) == 6000
    assert max(map(len, slices)) == SLICE_RECORDS
    assert load(slices, image) == image


def test_unchanged_parts_are_shared_with_the_previous_image() -> None:
    old = big_image(3, 3)
    changed = old.topics_by_id[min(old.topics_by_id)]
    new, _ = replay(old, [PartitionChangeRecord(1, changed.id, leader=2)], old.offset + 1, 1)
    loaded = load(list(iter_snapshot_values(new)), new, old)
    assert loaded == new
    for topic_id, topic in old.topics_by_id.items():
        assert (loaded.topics_by_id[topic_id] is topic) is (topic_id != changed.id)
    after = loaded.topics_by_id[changed.id].partitions
    assert [after[index] is changed.partitions[index] for index in range(3)] == [True, False, True]


def test_record_that_no_snapshot_contains_is_refused() -> None:
    for record in (NoOpRecord(), RemoveTopicRecord(Uuid(b"t" * 16)), ConfigRecord(2, "t", "k", None)):
        with pytest.raises(AssertionError, match="does not belong"):
            ImageBuilder().load([encode_record(record)])
