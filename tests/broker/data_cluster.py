"""Brokers reduced to their data plane, on real sockets, with a model of the controller.

It is long because the brokers, the controller's model and the clients of a test share one cluster.
"""

import asyncio
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from pykraft.broker.apis.records.fetch import FetchHandler
from pykraft.broker.apis.records.produce import ProduceHandler
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.config import BrokerConfig
from pykraft.broker.fetch_sessions.cache import FetchSessionCache
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.replicas.data_plane import DataPlane
from pykraft.broker.replicas.leading.coordinator_topic import CoordinatorTopic
from pykraft.broker.replicas.leading.partition_markers import PartitionMarkers
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.ports import TopicCoordinator
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.serving.api import HotHandler
from pykraft.broker.serving.listener import KafkaListener
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import decode_request_header, decode_response_header, encode_request
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages import records as record_messages
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.calls.requests import (
    LostReplica,
    LostReplicaResult,
    PartitionIsrChange,
    PartitionIsrResult,
    ReplicaDirectory,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.persistent import Map
from pykraft.metadata_log.records import UNASSIGNED_DIRECTORY, Endpoint
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.disk import Disk
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import Workers
from pykraft.runtime.turns import UnlimitedTurn
from tests.batch_fields import BatchFields
from tests.broker.crash import abandon
from tests.narrowing import as_type
from tests.stand_ins import stand_in
from tests.waits import until

TOPIC_ID = Uuid(b"0123456789abcdef")


def id_of(topic: str) -> Uuid:
    return TOPIC_ID if topic == "t" else Uuid(topic.encode()[:16].ljust(16, b"_"))


class Lease:
    """Valid and unfenced unless a test says otherwise."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_fenced = False
        self.valid = True

    def lease_valid(self, now_ms: int) -> bool:
        return self.valid


class PausedWorkers(Workers):
    """``before`` is awaited before each job."""

    before: Callable[[Callable[[], object]], Awaitable[None]] | None = None

    async def run(self, job: Callable[[], Any]) -> Any:
        if self.before is not None:
            await self.before(job)
        return await super().run(job)


class ImageFields(TypedDict, total=False):
    """What the controller changes in the image."""

    brokers: Map[int, BrokerRegistration]
    topics_by_id: Map[Uuid, TopicImage]
    topic_ids: Map[str, Uuid]
    configs: Map[tuple[int, str], Map[str, str]]
    features: Map[str, int]


class Controller:
    """Holds the image, applies ISR proposals and informs every broker, at once or when a test allows it."""

    def __init__(self) -> None:
        self.metadata = MetadataCache(0, "cluster", MetadataImage())
        self.brokers: dict[int, DataBroker] = {}
        self.proposals: list[tuple[int, ...]] = []
        self.requests = 0
        self.refuse: ErrorCode | None = None
        self.silent = False
        self.lost: list[tuple[int, str]] = []
        self.reports: list[tuple[LostReplica, ...]] = []

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def handle_failed_dirs(self, node_id: int) -> None:
        """Replicas in failed directories leave the ISR, and others lead, as with the real controller."""
        if node_id not in self.brokers:
            return  # it has not registered yet
        offline = self.brokers[node_id].logs.dirs.offline_ids()
        for topic in list(self.image.topics_by_id.values()):
            old = self.partition(topic.name)
            if old.directory(node_id) in offline and node_id in old.isr and len(old.isr) > 1:
                self.remove_from_isr(node_id, topic.name)

    def remove_from_isr(self, node_id: int, topic: str) -> None:
        old = self.partition(topic)
        isr = tuple(id for id in old.isr if id != node_id)
        leader = old.leader if old.leader in isr else (isr or (-1,))[0]
        leader_epoch = old.leader_epoch + (leader != old.leader)
        moved = replace(old, isr=isr, leader=leader, leader_epoch=leader_epoch)
        self.set_partition(replace(moved, partition_epoch=old.partition_epoch + 1), topic=topic)

    def register(self, broker: "DataBroker", epoch: int) -> None:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", broker.listener.port, "PLAINTEXT")
        registration = BrokerRegistration(
            broker.node_id,
            epoch,
            ZERO_UUID,
            (endpoint,),
            fenced=False,
            rack=broker.config.rack,
        )
        old = self._change(brokers=self.image.brokers.set(broker.node_id, registration))
        delta = MetadataDelta(old, self.image, changed_brokers=frozenset([broker.node_id]))
        for other in self.brokers.values():
            other.data.publisher.publish(delta, self.image)
        self.brokers[broker.node_id] = broker
        everything = MetadataDelta(
            MetadataImage(),
            self.image,
            changed_topics=frozenset(self.image.topics_by_id),
            changed_partitions={id: frozenset([0]) for id in self.image.topics_by_id},
            changed_brokers=frozenset(self.image.brokers),
        )
        broker.data.publisher.publish(everything, self.image)

    def _change(self, **fields: Unpack[ImageFields]) -> MetadataImage:
        old = self.image
        self.metadata.image = replace(old, offset=old.offset + 1, **fields)
        return old

    def set_partition(
        self, registration: PartitionRegistration, *, topic: str = "t", configs: dict[str, str] | None = None
    ) -> None:
        """Create topic ``topic`` with one partition, or change it, and inform every broker."""
        known = self.image.topic(topic)
        image = TopicImage(topic, known.id if known else id_of(topic), (registration,))
        fields: ImageFields = {
            "topics_by_id": self.image.topics_by_id.set(image.id, image),
            "topic_ids": self.image.topic_ids.set(topic, image.id),
        }
        if configs is not None:
            from pykraft.metadata_log.persistent import Map
            from pykraft.metadata_log.records import ConfigResourceType

            fields["configs"] = self.image.configs.set((int(ConfigResourceType.TOPIC), topic), Map(configs))
        old = self._change(**fields)
        delta = MetadataDelta(
            old,
            self.image,
            changed_topics=frozenset([image.id]),
            changed_partitions={image.id: frozenset([0])},
            created_topics=frozenset() if known else frozenset([image.id]),
        )
        for broker in list(self.brokers.values()):
            broker.data.publisher.publish(delta, self.image)

    def delete_topic(self, topic: str) -> None:
        """Inform every broker of the image."""
        image = self.image.topic(topic)
        assert image is not None
        old = self._change(
            topics_by_id=self.image.topics_by_id.delete(image.id),
            topic_ids=self.image.topic_ids.delete(topic),
        )
        delta = MetadataDelta(old, self.image, deleted_topics={image.id: image})
        for broker in list(self.brokers.values()):
            broker.data.publisher.publish(delta, self.image)

    def set_configs(self, resource_type: int, name: str, configs: dict[str, str]) -> None:
        """Replace the configuration of a resource, and inform every broker."""
        from pykraft.metadata_log.persistent import Map

        key = (resource_type, name)
        old = self._change(configs=self.image.configs.set(key, Map(configs)))
        delta = MetadataDelta(old, self.image, changed_configs=frozenset([key]))
        for broker in list(self.brokers.values()):
            broker.data.publisher.publish(delta, self.image)

    def partition(self, topic: str = "t") -> PartitionRegistration:
        image = self.image.topic(topic)
        assert image is not None
        return image.partitions[0]

    def elect(self, leader: int, isr: Sequence[int] | None = None, topic: str = "t") -> None:
        old = self.partition(topic)
        self.set_partition(
            PartitionRegistration(
                old.replicas,
                tuple(isr if isr is not None else old.isr),
                leader,
                old.leader_epoch + 1,
                old.partition_epoch + 1,
                directories=old.directories,
            ),
            topic=topic,
        )

    async def alter_partitions(self, changes: Sequence[PartitionIsrChange]) -> list[PartitionIsrResult]:
        self.requests += 1
        await asyncio.sleep(0)
        self.proposals += [_members(change) for change in changes]
        if self.silent:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return [self._alter_partition(change) for change in changes]

    def _alter_partition(self, change: PartitionIsrChange) -> PartitionIsrResult:
        topic = self.image.topic_by_id(change.topic_id)
        assert topic is not None
        if self.refuse is not None:
            return PartitionIsrResult(change.topic_id, change.index, self.refuse)
        old = topic.partitions[change.index]
        if (change.leader_epoch, change.partition_epoch) != (old.leader_epoch, old.partition_epoch):
            return PartitionIsrResult(change.topic_id, change.index, ErrorCode.INVALID_UPDATE_VERSION)
        new = replace(old, isr=_members(change), partition_epoch=old.partition_epoch + 1)
        self.set_partition(new, topic=topic.name)
        return PartitionIsrResult(
            change.topic_id,
            change.index,
            leader=new.leader,
            leader_epoch=new.leader_epoch,
            isr=new.isr,
            partition_epoch=new.partition_epoch,
        )


def _members(change: PartitionIsrChange) -> tuple[int, ...]:
    return tuple(member.broker_id for member in change.new_isr)


class LostReplicasOf:
    """Replicas that a broker reports as lost leave the ISR, as with the real controller."""

    def __init__(self, node_id: int, controller: Controller) -> None:
        self._node_id = node_id
        self._controller = controller

    async def report_lost_replicas(self, replicas: Sequence[LostReplica]) -> list[LostReplicaResult]:
        controller = self._controller
        controller.reports.append(tuple(replicas))
        if controller.silent:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        answers = []
        for lost in replicas:
            topic_id, index = lost.topic_id, lost.index
            topic = controller.image.topic_by_id(topic_id)
            assert topic is not None and index == 0
            old = controller.partition(topic.name)
            if lost.leader_epoch != old.leader_epoch:
                answers.append(LostReplicaResult(topic_id, index, ErrorCode.FENCED_LEADER_EPOCH))
                continue
            controller.lost.append((self._node_id, topic.name))
            isr = tuple(id for id in old.isr if id != self._node_id)
            leader = old.leader if old.leader in isr else (isr or (-1,))[0]
            new = PartitionRegistration(
                old.replicas,
                isr,
                leader,
                old.leader_epoch + 1,
                old.partition_epoch + 1,
                lost=(self._node_id,),
                directories=tuple(
                    UNASSIGNED_DIRECTORY if id == self._node_id else old.directory(id) for id in old.replicas
                ),
            )
            controller.set_partition(new, topic=topic.name)
            answers.append(LostReplicaResult(topic_id, index, ErrorCode.NONE, new.partition_epoch))
        return answers


def directory_id(path: str) -> Uuid:
    return Uuid(path.encode().ljust(16, b"."))


def log_dirs_on(disk: Disk, paths: Sequence[str]) -> LogDirs:
    """As a start finds them: the id of a directory that cannot be read is not known."""
    broken = {path for path in paths if isinstance(disk, MemoryDisk) and disk.is_broken(path)}
    ids = {path: directory_id(path) for path in paths if path not in broken}
    return LogDirs(paths, ids, dict.fromkeys(broken, "it cannot be read"))


class DirectoriesOf:
    """Replicas whose directory a broker reports are there at once."""

    def __init__(self, node_id: int, controller: Controller) -> None:
        self._node_id = node_id
        self._controller = controller

    async def assign_replicas_to_dirs(self, replicas: Sequence[ReplicaDirectory]) -> list[ErrorCode]:
        controller = self._controller
        if controller.silent:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        for one in replicas:
            topic = controller.image.topic_by_id(one.topic_id)
            assert topic is not None and one.index == 0
            old = controller.partition(topic.name)
            directories = tuple(
                one.directory if id == self._node_id else old.directory(id) for id in old.replicas
            )
            epoch = old.partition_epoch + 1
            new = replace(old, directories=directories, partition_epoch=epoch)
            controller.set_partition(new, topic=topic.name)
            if self._node_id in controller.brokers:
                controller.handle_failed_dirs(self._node_id)
        return [ErrorCode.NONE] * len(replicas)


class ConfigFields(TypedDict, total=False):
    """What tests set of :class:`BrokerConfig`."""

    markers_from_clients: str
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...]
    replica_lag_time_max_ms: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_socket_timeout_ms: int
    max_incremental_fetch_session_cache_slots: int
    num_replica_fetchers: int
    replica_selector_class: str | None
    rack: str | None


class DataBroker:
    """One broker's data plane."""

    def __init__(
        self,
        node_id: int,
        controller: Controller,
        disk: Disk,
        coordinators: Mapping[str, TopicCoordinator] = MappingProxyType({}),
        **config: Unpack[ConfigFields],
    ) -> None:
        values: ConfigFields = {
            "log_dirs": (f"/d{node_id}",),
            "replica_lag_time_max_ms": 500,
            "replica_fetch_backoff_ms": 50,
            "replica_fetch_wait_max_ms": 200,
        }
        values |= config
        self.node_id = node_id
        self.config = BrokerConfig(node_id, "cluster", listeners=(), **values)
        self.controller = controller
        self.disk = disk
        self.lease = Lease(100 + node_id)
        self.faults: list[str] = []
        self.received: Counter[int] = Counter()
        runtime = self.runtime = StreamRuntime(asyncio.get_running_loop())
        clock = self.clock = SystemClock()
        data = self.data = DataPlane(
            self.config,
            ReplicaTable(),
            coordinators,
            controller,
            self.lease,
            controller,
            LostReplicasOf(node_id, controller),
            DirectoriesOf(node_id, controller),
            disk=disk,
            clock=clock,
            rng=random.Random(node_id),
            streams=runtime,
            workers=PausedWorkers(),
            on_fatal=lambda error: self.faults.append(repr(error)),
            log_dirs=log_dirs_on(disk, values["log_dirs"]),
            on_log_dir_failure=lambda: controller.handle_failed_dirs(node_id),
        )
        self.table, self.logs, self.replicas = data.table, data.logs, data.replicas
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots, random.Random(node_id)
        )
        markers = PartitionMarkers(data.replicas, data.wakeups, clock)
        self.services = stand_in(
            BrokerServices,
            config=self.config,
            clock=clock,
            metadata=controller.metadata,
            replicas=data.replicas,
            logs=data.logs,
            moves=data.moves,
            isr_proposals=data.isr_proposals,
            fetch_sessions=self.fetch_sessions,
            wakeups=data.wakeups,
            tasks=data.tasks,
            slices=Slices(UnlimitedTurn(), "tests"),
            workers=data.workers,
            markers=markers,
            verifier=None,  # tests with transactions bring one
            offsets_transactions=markers,
        )
        self.listener = KafkaListener(runtime, "127.0.0.1", 0, "PLAINTEXT")
        self._hot: dict[int, HotHandler] = {
            0: ProduceHandler(self.services, runtime.budget),
            1: FetchHandler(self.services, runtime.budget),
        }

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        try:
            header, at = decode_request_header(frame)
            self.received[header.api_key] += 1
            self._hot[header.api_key].handle(connection, RequestContext(), header, frame[at:], slot)
        except KafkaError as error:
            connection.close(str(error))

    def coordinator_log(self, topic: str = "t") -> CoordinatorTopic:
        """The log of a coordinator that keeps its state in ``topic``."""
        return CoordinatorTopic(topic, self.table, self.lease, self.clock, self.data.workers)

    def check_lag(self) -> None:
        self.data.isr_proposals.check_lag(self.data.isr_proposals.behind)

    async def start(self) -> None:
        await self.logs.start()
        await self.listener.start(self, self.replicas.check_unsent)
        self.controller.register(self, self.lease.epoch)
        self.data.tasks.start(self.data.reconciler.run(), "log-reconciler")

    async def stop(self, *, clean: bool = True) -> None:
        await self.listener.stop()
        await self.data.stop()
        if clean:
            await self.data.stop_logs(self.lease.epoch)
        else:
            abandon(self.logs)
        del self.controller.brokers[self.node_id]


class FetchOptions(TypedDict, total=False):
    """The options of :meth:`DataClient.send_fetch`."""

    version: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    epoch: int
    last_epoch: int
    topic: str
    rack: str
    isolation_level: int


class DataClient:
    """Sends table-driven messages to one broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0
        self._asked: list[tuple[int, type[Message], int]] = []

    def send(self, request: Request[Any], version: int) -> None:
        self._correlation_id += 1
        body = encode_request(request, version, self._correlation_id, "test")
        self.writer.write(struct.pack(">i", len(body)) + body)
        self._asked.append((self._correlation_id, request.RESPONSE, version))

    async def receive(self) -> Any:
        correlation_id, response_class, version = self._asked.pop(0)
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        frame = await self.reader.readexactly(size)
        got, at = decode_response_header(response_class.API_KEY, version, frame)
        assert got == correlation_id
        return response_class.decode(frame[at:], version)

    async def produce(
        self,
        batch: bytes | None,
        *,
        acks: int = -1,
        timeout_ms: int = 5000,
        version: int = 9,
        topic: str = "t",
    ) -> record_messages.PartitionProduceResponse:
        self.send_produce(batch, acks=acks, timeout_ms=timeout_ms, version=version, topic=topic)
        return await self.produced()

    async def produced(self) -> record_messages.PartitionProduceResponse:
        response: record_messages.ProduceResponse = await self.receive()
        return response.responses[0].partition_responses[0]

    def send_produce(
        self,
        batch: bytes | None,
        *,
        acks: int = -1,
        timeout_ms: int = 5000,
        version: int = 9,
        topic: str = "t",
    ) -> None:
        data = [record_messages.PartitionProduceData(index=0, records=batch)]
        key = {"topic_id": id_of(topic)} if version >= 13 else {"name": topic}
        topics = [record_messages.TopicProduceData(partition_data=data, **key)]
        request = record_messages.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
        self.send(request, version)

    async def fetch(self, offset: int, **options: Unpack[FetchOptions]) -> record_messages.PartitionData:
        self.send_fetch(offset, **options)
        return await self.fetched()

    async def fetched(self) -> record_messages.PartitionData:
        response: record_messages.FetchResponse = await self.receive()
        return response.responses[0].partitions[0]

    def send_fetch(
        self,
        offset: int,
        *,
        version: int = 12,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        epoch: int = -1,
        last_epoch: int = -1,
        topic: str = "t",
        rack: str = "",
        isolation_level: int = 0,
    ) -> None:
        partition = record_messages.FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )
        key = {"topic_id": id_of(topic)} if version >= 13 else {"topic": topic}
        request = record_messages.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=isolation_level,
            topics=[record_messages.FetchTopic(partitions=[partition], **key)],
            rack_id=rack,
        )
        self.send(request, version)

    def close(self) -> None:
        self.writer.close()


class DataCluster:
    """Some brokers and a controller; topic ``t`` has one partition on all of them."""

    def __init__(self, disks: dict[int, Disk]) -> None:
        self.controller = Controller()
        self.disks = disks
        self.brokers: dict[int, DataBroker] = {}
        self._clients: list[DataClient] = []

    def disk(self, node_id: int) -> MemoryDisk:
        return as_type(self.disks[node_id], MemoryDisk)

    async def start(
        self,
        node_id: int,
        coordinators: Mapping[str, TopicCoordinator] = MappingProxyType({}),
        **config: Unpack[ConfigFields],
    ) -> DataBroker:
        disk = self.disks.setdefault(node_id, MemoryDisk())
        broker = DataBroker(node_id, self.controller, disk, coordinators, **config)
        await broker.start()
        self.brokers[node_id] = broker
        return broker

    async def reopen(self, node_id: int, **config: Unpack[ConfigFields]) -> DataBroker:
        """Start a broker; wait until it has its replica."""
        broker = await self.start(node_id, **config)
        await until(lambda: broker.table.find("t", 0))
        return broker

    async def create(
        self,
        *replicas: int,
        leader: int | None = None,
        configs: dict[str, str] | None = None,
        topic: str = "t",
    ) -> None:
        leader = replicas[0] if leader is None else leader
        self.controller.set_partition(
            PartitionRegistration(replicas, replicas, leader, 0, 0), configs=configs, topic=topic
        )
        await until(
            lambda: all(self.brokers[id].table.find(topic, 0) for id in replicas if id in self.brokers)
        )

    async def client(self, node_id: int) -> DataClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.brokers[node_id].listener.port)
        client = DataClient(reader, writer)
        self._clients.append(client)
        return client

    async def shrink(self, leader: int) -> None:
        """Have the leader look for followers that lag until one has left the ISR."""
        before = len(self.controller.partition().isr)

        def has_shrunk() -> bool:
            self.brokers[leader].check_lag()
            return len(self.controller.partition().isr) < before

        await until(has_shrunk)

    def partition(self, node_id: int, topic: str = "t") -> Partition:
        partition = self.brokers[node_id].table.find(topic, 0)
        assert partition is not None
        return partition

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        for broker in list(self.brokers.values()):
            if broker.node_id in self.controller.brokers:
                await broker.stop()


def make_batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **fields: Unpack[BatchFields]) -> bytes:
    return encode_batch([RecordInput(None, value, (), timestamp_ms) for value in values], **fields)


def values_in(records: Buffer | None) -> list[bytes]:
    data = bytes(records or b"")
    return [
        record.value
        for position, header in iter_headers(data)
        for record in decode_batch(data[position : position + header.size_bytes])
        if record.value is not None
    ]


@asynccontextmanager
async def running_cluster(
    brokers: Sequence[int] = (1,),
    *,
    topics: Iterable[str] = (),
    configs: dict[str, str] | None = None,
    disks: dict[int, Disk] | None = None,
    **config: Unpack[ConfigFields],
) -> AsyncIterator[DataCluster]:
    """Each of the topics, which all have these configs, has one partition on all brokers."""
    made = DataCluster(disks if disks is not None else {})
    try:
        for node_id in brokers:
            await made.start(node_id, **config)
        for topic in topics:
            await made.create(*brokers, topic=topic, configs=configs)
        yield made
    finally:
        await made.stop()
        faults = [fault for broker in made.brokers.values() for fault in broker.faults]
        assert not faults, faults


class DataPlaneTools:
    """Everything a data-plane test needs."""

    topic_id = TOPIC_ID
    Registration = PartitionRegistration
    until = staticmethod(until)
    batch = staticmethod(make_batch)
    values = staticmethod(values_in)

    def cluster(self, *node_ids: int, **options: Any) -> AbstractAsyncContextManager[DataCluster]:
        return running_cluster(node_ids, **options)
