"""A controller core with its own log, and a standby, driven by hand."""

from collections.abc import Generator
from random import Random
from typing import Any, TypedDict, TypeVar

import pytest

from pykraft.jepsen_like.simulation.cluster.checks.image_invariants import (
    check_batch,
    check_final,
    check_image,
)
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.controller.calls.joined_answer import JoinedAnswer
from pykraft.metadata_log.controller.calls.request_parts import cut_request
from pykraft.metadata_log.controller.calls.requests import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
    RegisterBrokerRequest,
    ReplicaDirectory,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.core import ControllerCore
from pykraft.metadata_log.controller.result import ControllerResult, InSlices
from pykraft.metadata_log.controller.topics.topic_walk import TopicWalk
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.incarnations import incarnation_id_of
from pykraft.metadata_log.loader import fold_batch
from pykraft.metadata_log.records import Endpoint, FeatureRange, Record
from pykraft.quorum.listener import CommittedBatch

CLUSTER_ID = "test-cluster"
T = TypeVar("T")


def walk_in_slices(monkeypatch: pytest.MonkeyPatch, slice_cost: int) -> None:
    """Let walks over all partitions take slices of this cost, where the caller says nothing else."""
    monkeypatch.setattr(TopicWalk.__init__, "__defaults__", (slice_cost,))


def secret_of(broker_id: int, number: int) -> bytes:
    return bytes([broker_id + 1]) * 8 + bytes([number]) * 8


def incarnation_id(broker_id: int, number: int) -> Uuid:
    return incarnation_id_of(secret_of(broker_id, number))


class RegistrationFields(TypedDict, total=False):
    """What tests set of a registration: the keywords of :meth:`ControllerHarness.register`."""

    incarnation: int
    rack: str
    log_dirs: tuple[Uuid, ...]
    port: int
    dead: tuple[int, ...]
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    previous_broker_epoch: int


class ControllerHarness:
    """The active core, a standby, and the log between them. Every step is checked against the invariants."""

    def __init__(
        self,
        seed: int = 0,
        config: ControllerConfig | None = None,
        features: dict[str, int] | None = None,
    ) -> None:
        self.config = config or ControllerConfig()
        self.rng = Random(seed)
        self.context = RequestContext()
        self.now_ms = 1_000_000
        self.epoch = 1
        self.core = ControllerCore(self.config, CLUSTER_ID, self.rng, features or {"group.version": 1})
        self.standby = ControllerCore(self.config, CLUSTER_ID, Random(seed + 1), {})
        self.log: list[CommittedBatch] = []
        self.committed = 0
        self.sweeps_at_once = True
        self.run(self.core.claim(self.now_ms))

    @property
    def image(self) -> MetadataImage:
        return self.core.image

    def run(self, result: ControllerResult[T] | InSlices[T]) -> T:
        """Append and replay the records of a result, and run the sweep that follows; returns its response."""
        if isinstance(result, Generator):
            result = at_once(result)
        base_offset = self.core.last_offset + 1
        self._append_checked(result.records)
        if self.sweeps_at_once:
            self.sweep()
        return result.response_at(base_offset)

    def sweep(self, most_slices: int | None = None) -> int:
        """Run slices until nothing is left, or at most this many; returns their number."""
        slices = 0
        while self.core.is_sweeping and slices != most_slices:
            self._append_checked(self.core.next_sweep_slice().records)
            slices += 1
        if not self.core.is_sweeping:
            check_final(self.image)
        return slices

    def _append_checked(self, records: tuple[Record, ...]) -> None:
        if records:
            before = self.image
            self.append(records)
            check_image(self.image)
            check_batch(before, self.image)

    def append(self, records: tuple[Record, ...]) -> None:
        base_offset = self.core.last_offset + 1
        values = tuple(encode_record(record) for record in records)
        self.log.append(
            CommittedBatch(base_offset, base_offset + len(records) - 1, self.epoch, self.now_ms, values)
        )
        self.core.replay(records, base_offset, self.epoch, self.now_ms)

    def commit(self) -> None:
        """Commit everything appended so far, and let the standby see it."""
        for batch in self.log[self.committed :]:
            taken = self.core.take_committed(batch)
            assert taken is not None
            self.core.follow(taken[0])
            self.standby.follow(fold_batch(self.standby.image, batch)[0])
        self.committed = len(self.log)

    def lose_leadership(self) -> None:
        """Truncate the uncommitted records; the same node then leads the next epoch."""
        del self.log[self.committed :]
        self.core.resign()
        self.epoch += 1
        self.run(self.core.claim(self.now_ms))

    def succeed(self, config: ControllerConfig) -> None:
        """Truncate the uncommitted records; another node, with this configuration, leads the next epoch."""
        del self.log[self.committed :]
        committed = self.core.committed_image
        self.config, self.core = config, ControllerCore(config, CLUSTER_ID, self.rng, {})
        self.core.follow(committed)
        self.epoch += 1
        self.run(self.core.claim(self.now_ms))

    def register(
        self,
        broker_id: int,
        *,
        incarnation: int = 1,
        rack: str | None = None,
        log_dirs: tuple[Uuid, ...] | None = None,
        cluster_id: str = CLUSTER_ID,
        port: int = 9092,
        dead: tuple[int, ...] = (),
        endpoints: tuple[Endpoint, ...] | None = None,
        features: tuple[FeatureRange, ...] = SUPPORTED_RANGES,
        previous_broker_epoch: int = -1,
        dead_incarnation_secrets: tuple[bytes, ...] = (),
    ) -> int:
        """Register a broker, still fenced; returns its epoch. ``dead``: incarnations it knows to be dead."""
        request = RegisterBrokerRequest(
            cluster_id=cluster_id,
            broker_id=broker_id,
            incarnation_id=incarnation_id(broker_id, incarnation),
            log_dirs=(Uuid(bytes([100 + broker_id]) * 16),) if log_dirs is None else log_dirs,
            rack=rack,
            endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", port),) if endpoints is None else endpoints,
            features=features,
            previous_broker_epoch=previous_broker_epoch,
            dead_incarnation_secrets=(
                *(secret_of(broker_id, number) for number in dead),
                *dead_incarnation_secrets,
            ),
        )
        return self.run(self.core.handle_register_broker(request, self.now_ms)).broker_epoch

    def heartbeat(
        self,
        broker_id: int,
        *,
        epoch: int | None = None,
        offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: tuple[Uuid, ...] = (),
        cordoned_log_dirs: tuple[Uuid, ...] | None = None,
    ) -> BrokerHeartbeatResponse:
        """A heartbeat of a broker, by default of one that has caught up."""
        request = BrokerHeartbeatRequest(
            broker_id,
            self.image.brokers[broker_id].epoch if epoch is None else epoch,
            self.image.offset if offset is None else offset,
            want_fence,
            want_shut_down,
            offline_log_dirs,
            cordoned_log_dirs,
        )
        return self.run(self.core.handle_broker_heartbeat(request, self.now_ms))

    def assign(self, broker_id: int, topic: str, directory: Uuid, *, index: int = 0) -> ErrorCode:
        """A broker says that its replica is in this directory."""
        assignment = ReplicaDirectory(self.topic(topic).id, index, directory)
        request = AssignReplicasToDirsRequest(broker_id, self.epoch_of(broker_id), (assignment,))
        (error,) = self.run(self.core.handle_assign_replicas_to_dirs(request)).errors
        return error

    def heartbeat_active_brokers(self) -> None:
        """A heartbeat of every broker that is active."""
        for broker_id in sorted(self.image.brokers):
            if self.image.is_active(broker_id):
                self.heartbeat(broker_id)

    def shut_down(self, broker_id: int) -> BrokerHeartbeatResponse:
        """Run a whole controlled shutdown; returns the last answer."""
        self.heartbeat(broker_id, want_shut_down=True)
        self.heartbeat(broker_id, want_shut_down=True)
        self.heartbeat_active_brokers()
        return self.heartbeat(broker_id, want_shut_down=True)

    def start_brokers(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        """Register and unfence."""
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.heartbeat(broker_id)

    def forward(self, request: Message) -> Any:
        """A client's request, part by part as in the driver; returns the whole response."""
        answer = JoinedAnswer(request)
        for part in cut_request(request, lambda: self.image, self.config):
            if part is not None:
                answer.add(self.run(self.core.handle_forwarded(self.context, part)))
        return answer.whole

    def stop_heartbeats(self, *silent: int) -> None:
        """Let a session timeout pass in which all but these brokers send heartbeats; fence overdue ones."""
        self.now_ms += self.config.session_timeout_ms
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            if broker_id not in silent and not broker.fenced:
                self.heartbeat(broker_id, want_shut_down=broker.in_controlled_shutdown)
        self.run(self.core.handle_fence_check(self.now_ms))

    def create_topics(
        self, *topics: CreatableTopic, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        response: CreateTopicsResponse = self.run(self.core.handle_forwarded(self.context, request))
        return response.topics

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1) -> TopicImage:
        (result,) = self.create_topics(
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
        )
        assert result.error_code == 0, result.error_message
        return self.topic(name)

    def create_assigned(self, name: str, *assignments: list[int]) -> TopicImage:
        """A topic with exactly these replica lists."""
        from pykraft.kafka_protocol.messages.topics import CreatableReplicaAssignment

        (result,) = self.create_topics(
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=broker_ids)
                    for index, broker_ids in enumerate(assignments)
                ],
            )
        )
        assert result.error_code == 0, result.error_message
        return self.topic(name)

    def set_isr(self, name: str, *isr: int, index: int = 0) -> PartitionIsrResult:
        """The leader of a partition proposes an ISR."""
        members = [(broker_id, self.epoch_of(broker_id)) for broker_id in isr]
        return self.propose_isr(name, members, index=index)

    def propose_isr(
        self, name: str, members: list[tuple[int, int]], *, sender: int | None = None, index: int = 0
    ) -> PartitionIsrResult:
        """A proposal for the current state of a partition: brokers and their epochs."""
        topic, partition = self.topic(name), self.partition(name, index)
        leader = partition.leader if sender is None else sender
        change = PartitionIsrChange(
            topic.id,
            index,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(IsrMember(broker_id, epoch) for broker_id, epoch in members),
        )
        request = AlterPartitionRequest(leader, self.epoch_of(leader), (change,))
        (result,) = self.run(self.core.handle_alter_partition(request)).partitions
        return result

    def epoch_of(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def reassign(
        self, name: str, replicas: list[int] | None, *, index: int = 0, allow_factor_change: bool = True
    ) -> ErrorCode:
        """Ask for other replicas of one partition, or (None) cancel that; returns the answer."""
        wanted = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=allow_factor_change,
            topics=[ReassignableTopic(name=name, partitions=[wanted])],
        )
        response = self.run(self.core.handle_forwarded(self.context, request))
        return ErrorCode(response.responses[0].partitions[0].error_code)

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str, index: int = 0) -> PartitionRegistration:
        return self.topic(name).partitions[index]
