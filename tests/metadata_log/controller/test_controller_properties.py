"""Random commands on an active controller and a standby: invariants that hold for all of them."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
)
from pykraft.metadata_log.controller.calls.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    IsrMember,
    LostReplica,
    PartitionIsrChange,
    ReportLostReplicasRequest,
)
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.persistent import Map
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import present

BROKERS = range(1, 6)
NAMES = ("a", "b.c", "b_c", "d", "bad name")


class Commands:
    """One random command at a time, valid and invalid ones mixed."""

    def __init__(self, harness: ControllerHarness, seed: int) -> None:
        self.harness = harness
        self.rng = Random(seed)
        self.incarnations = dict.fromkeys(BROKERS, 1)
        harness.start_brokers(*BROKERS)

    def one(self) -> None:
        rng, harness = self.rng, self.harness
        harness.now_ms += rng.choice((0, 10, 100, 1500))
        often = [*[self.heartbeat] * 5, *[self.alter_isr] * 3, self.create, self.create]
        seldom = [self.shut_down, self.fence_check, self.delete, self.grow]
        command: Callable[[], Any] = rng.choice(
            [
                *often,
                *seldom,
                self.register,
                self.alter_config,
                self.allocate,
                self.move,
                self.elect,
                self.lose,
            ]
        )
        with suppress(KafkaError):
            command()

    def broker_id(self) -> int:
        return self.rng.choice(BROKERS)

    def register(self) -> None:
        broker_id = self.broker_id()
        self.incarnations[broker_id] += self.rng.random() < 0.5
        rack = self.rng.choice(("r1", "r2", None))
        known = self.harness.image.brokers[broker_id]
        self.harness.register(
            broker_id,
            incarnation=self.incarnations[broker_id],
            rack=rack,
            previous_broker_epoch=self.rng.choice((known.epoch, -1)),
            log_dirs=known.log_dirs if self.rng.random() < 0.8 else (Uuid(self.rng.randbytes(16)),),
        )

    def heartbeat(self, want_shut_down: bool = False) -> None:
        broker_id = self.broker_id()
        if broker_id in self.harness.image.brokers:
            offset = self.harness.image.offset - self.rng.choice((0, 0, 0, 5))
            want_fence = self.rng.random() < 0.05
            self.harness.heartbeat(
                broker_id, offset=offset, want_fence=want_fence, want_shut_down=want_shut_down
            )

    def shut_down(self) -> None:
        self.heartbeat(want_shut_down=True)

    def fence_check(self) -> None:
        self.harness.run(self.harness.core.handle_fence_check(self.harness.now_ms))

    def create(self) -> None:
        self.harness.create_topics(
            CreatableTopic(
                name=self.rng.choice(NAMES),
                num_partitions=self.rng.randint(-1, 5),
                replication_factor=self.rng.randint(-1, 4),
                configs=[CreatableTopicConfig(name="retention.ms", value="7")]
                if self.rng.random() < 0.3
                else [],
            )
        )

    def delete(self) -> None:
        if self.rng.random() < 0.3:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=self.rng.choice(NAMES))])
            self.harness.run(self.harness.core.handle_forwarded(self.harness.context, request))

    def grow(self) -> None:
        topic = CreatePartitionsTopic(
            name=self.rng.choice(NAMES), count=self.rng.randint(0, 7), assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic])
        self.harness.run(self.harness.core.handle_forwarded(self.harness.context, request))

    def alter_config(self) -> None:
        entry = AlterableConfig(
            name=self.rng.choice(
                (
                    "retention.ms",
                    "cleanup.policy",
                    "nonsense",
                    "min.insync.replicas",
                    "unclean.leader.election.enable",
                )
            ),
            config_operation=self.rng.randint(0, 3),
            value=self.rng.choice(("2", "5", "compact", "delete", "true", "false", None)),
        )
        resource = AlterConfigsResource(
            resource_type=2, resource_name=self.rng.choice(NAMES), configs=[entry]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.harness.run(self.harness.core.handle_forwarded(self.harness.context, request))

    def move(self) -> None:
        partitions = [(topic.name, index) for topic, index, _ in iter_partitions(self.harness.image)]
        if partitions:
            name, index = self.rng.choice(partitions)
            replicas = self.rng.choices((*BROKERS, *BROKERS, 99), k=self.rng.randint(0, 3))
            self.harness.reassign(
                name,
                None if self.rng.random() < 0.3 else replicas,
                index=index,
                allow_factor_change=self.rng.random() < 0.8,
            )

    def elect(self) -> None:
        request = ElectLeadersRequest(election_type=self.rng.randint(0, 2), topic_partitions=None)
        self.harness.forward(request)

    def alter_isr(self) -> None:
        image: MetadataImage = self.harness.image
        led = [(topic, index, p) for topic, index, p in iter_partitions(image) if p.leader != -1]
        if not led:
            return
        topic, index, partition = self.rng.choice(led)
        members = {
            partition.leader,
            *self.rng.sample(partition.replicas, self.rng.randint(0, len(partition.replicas))),
        }
        change = PartitionIsrChange(
            topic.id,
            index,
            partition.leader_epoch + self.rng.choice((0, 0, 0, 0, -1, 1)),
            partition.partition_epoch + self.rng.choice((0, 0, 0, 0, -1, 1)),
            tuple(IsrMember(id, image.brokers[id].epoch) for id in partition.replicas if id in members),
        )
        sender = image.brokers[partition.leader]
        request = AlterPartitionRequest(sender.id, sender.epoch, (change,))
        self.harness.run(self.harness.core.handle_alter_partition(request))

    def lose(self) -> None:
        image: MetadataImage = self.harness.image
        held = [(topic, index, p) for topic, index, p in iter_partitions(image) if p.replicas]
        if not held:
            return
        topic, index, partition = self.rng.choice(held)
        broker = image.brokers.get(self.rng.choice(partition.replicas))
        if broker is not None:
            behind = self.rng.choice((0, 0, 0, 0, -1, 1))
            lost = LostReplica(topic.id, index, partition.leader_epoch - behind)
            request = ReportLostReplicasRequest(broker.id, broker.epoch, (lost,))
            self.harness.run(self.harness.core.handle_report_lost_replicas(request))
            after = present(self.harness.image.partition(topic.id, index))
            if behind:
                assert after == partition
            else:
                assert broker.id in after.lost and after.leader_epoch > partition.leader_epoch

    def allocate(self) -> None:
        broker = self.harness.image.brokers.get(self.broker_id())
        if broker is not None:
            request = AllocateProducerIdsRequest(broker.id, broker.epoch)
            self.harness.run(self.harness.core.handle_allocate_producer_ids(request))


def plain(image: MetadataImage) -> dict[str, Any]:
    """The image as ordinary dictionaries."""
    return {
        "topics": dict(image.topics_by_id.items()),
        "brokers": dict(image.brokers.items()),
        "configs": dict(image.configs.items()),
        "features": dict(image.features.items()),
    }


def apply_delta(old: dict[str, Any], delta: MetadataDelta) -> dict[str, Any]:
    """``old`` with only the parts that the delta names replaced from the new image."""
    new = {part: dict(values) for part, values in old.items()}
    for topic_id in delta.deleted_topics:
        del new["topics"][topic_id]
    for topic_id, indexes in delta.changed_partitions.items():
        after = delta.new.topics_by_id[topic_id]
        before = new["topics"].get(topic_id)
        partitions = list(before.partitions) if before is not None else []
        for index in sorted(indexes):
            partitions[index : index + 1] = [after.partitions[index]]
        new["topics"][topic_id] = type(after)(after.name, after.id, tuple(partitions))
    parts: Sequence[tuple[str, Iterable[Any], Map[Any, Any]]] = (
        ("brokers", delta.changed_brokers, delta.new.brokers),
        ("configs", delta.changed_configs, delta.new.configs),
        ("features", delta.changed_features, delta.new.features),
    )
    for part, keys, source in parts:
        for key in keys:
            if key in source:
                new[part][key] = source[key]
            else:
                new[part].pop(key)
    return new


@pytest.mark.parametrize("seed", range(25))
def test_standby_and_active_agree_at_every_commit_and_no_invariant_breaks(
    make_controller: Callable[..., ControllerHarness], seed: int
) -> None:
    harness = make_controller(seed, features={"eligible.leader.replicas.version": seed % 2})
    commands, rng = Commands(harness, seed), Random(-seed - 1)
    for _ in range(200):
        commands.one()
        if rng.random() < 0.3:
            harness.commit()
            assert harness.core.committed_image == harness.core.image == harness.standby.committed_image
    harness.commit()
    assert len(harness.image.topics_by_id) + harness.image.next_producer_id > 0, "the run did nothing"
    assert harness.standby.image == harness.image


@pytest.mark.parametrize("seed", range(10))
def test_lost_leadership_leaves_no_trace_of_uncommitted_changes(
    make_controller: Callable[..., ControllerHarness], seed: int
) -> None:
    harness = make_controller(seed)
    commands, rng = Commands(harness, seed), Random(-seed - 1)
    for _ in range(200):
        commands.one()
        if rng.random() < 0.2:
            harness.commit()
        if rng.random() < 0.1 and harness.committed:
            committed = harness.standby.image
            harness.lose_leadership()
            assert harness.core.image == committed
    harness.commit()
    assert harness.standby.image == harness.image


@pytest.mark.parametrize("seed", range(10))
def test_old_image_plus_delta_is_the_new_image_however_batches_are_sliced(
    make_controller: Callable[..., ControllerHarness], seed: int
) -> None:
    harness = make_controller(seed)
    commands, rng = Commands(harness, seed), Random(seed)
    for _ in range(150):
        commands.one()

    class Follower:
        state = plain(EMPTY_IMAGE)

        def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
            self.state = apply_delta(self.state, delta)
            assert self.state == plain(image)

    follower = Follower()
    loader = MetadataLoader([follower])
    rest = list(harness.log)
    while rest:
        count = rng.randint(1, 8)
        loader.handle_commit(rest[:count])
        rest = rest[count:]
    assert loader.image == harness.image
    assert follower.state == plain(harness.image)


def test_same_seed_writes_the_same_log(make_controller: Callable[..., ControllerHarness]) -> None:
    logs = []
    for _ in range(2):
        harness = make_controller(5)
        commands = Commands(harness, 5)
        for _ in range(150):
            commands.one()
        logs.append(harness.log)
    assert logs[0] == logs[1]
