"""Topics that are deleted and created again within one slice of the log."""

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.loader import MetadataLoader
from tests.metadata_log.harness import ControllerHarness


class Recorder:
    def __init__(self) -> None:
        self.deltas: list[MetadataDelta] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.deltas.append(delta)


@pytest.mark.parametrize("same_config", [True, False])
def test_topic_recreated_within_one_slice_is_one_deleted_and_one_created(
    cluster: ControllerHarness, same_config: bool
) -> None:
    def create(retention_ms: str) -> Uuid:
        config = CreatableTopicConfig(name="retention.ms", value=retention_ms)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=2, configs=[config])
        (result,) = cluster.create_topics(topic)
        assert result.error_code == 0
        return Uuid(result.topic_id)

    recorder = Recorder()
    loader = MetadataLoader([recorder])
    first = create("5")
    loader.handle_commit(cluster.log)
    position = len(cluster.log)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    second = create("5" if same_config else "6")
    loader.handle_commit(cluster.log[position:])
    delta = recorder.deltas[-1]
    assert set(delta.deleted_topics) == {first} and delta.created_topics == {second}
    assert delta.changed_partitions == {second: frozenset((0, 1))}
    assert bool(delta.changed_configs) is not same_config
    assert loader.image.topic_config("t")["retention.ms"] == ("5" if same_config else "6")


def test_topic_created_and_deleted_within_one_slice_is_not_published(cluster: ControllerHarness) -> None:
    recorder = Recorder()
    loader = MetadataLoader([recorder])
    loader.handle_commit(cluster.log)
    position, notified = len(cluster.log), len(recorder.deltas)
    cluster.create_topic("t", 3, 2)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    loader.handle_commit(cluster.log[position:])
    assert len(recorder.deltas) == notified
