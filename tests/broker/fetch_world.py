"""One broker's handler of Fetch over replicas in memory, without sockets and without time of its own.

A :class:`FetchWorld` holds partitions of topics ``a``, ``b``, …, one each, that broker 1 leads; what happens
to them is a method. Requests go through the product's handler, and what it answers is decoded by the message
tables.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from pykraft.broker.apis.records.fetch import FetchHandler
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_sessions.cache import FetchSessionCache
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.leading.isr_proposals import IsrProposals
from pykraft.broker.replicas.leading.log_starts import LogStarts
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.partition_events import BrokerPartitionEvents
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.replicas.replication_quota import ReplicationQuotas
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader, decode_response_header
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, PartitionRegistration
from pykraft.metadata_log.persistent import Map
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.runtime.turns import BULK, UnlimitedTurn
from tests.broker.data_cluster import Lease
from tests.clocks import ManualClock
from tests.stand_ins import stand_in
from tests.unexpected import unexpected

LEADER, FOLLOWER, OTHER = 1, 2, 3
REPLICAS = (LEADER, FOLLOWER, OTHER)
FOLLOWER_EPOCH = 102


class Slot(ResponseSlot):
    """Holds the answer to one request."""

    abandoned = False

    def __init__(self, version: int) -> None:
        super().__init__(connect(0))
        self.version = version
        self.response: records.FetchResponse | None = None

    def complete_framed(self, chunks: Sequence[Any]) -> None:
        assert not self.done, "a request is answered once"
        self.done = True
        data = b"".join(
            bytes(c) if isinstance(c, bytes | bytearray) else c.file.pread(c.position, c.size_bytes)
            for c in chunks
        )
        _, at = decode_response_header(1, self.version, memoryview(data)[4:])
        self.response = records.FetchResponse.decode(data[4 + at :], self.version)


class Loop:
    """Never calls anything: :meth:`FetchWorld.run` does."""

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        return SimpleNamespace(cancel=lambda: None)


class Turns(UnlimitedTurn):
    """``deferred``: what is to be done in later turns."""

    def __init__(self) -> None:
        self.deferred: deque[Callable[[], None]] = deque()

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        self.deferred.append(resume)


class Replicas(ReplicaManager):
    """The part of the replica manager that Fetch uses."""

    def __init__(self, table: ReplicaTable) -> None:
        self.node_id = LEADER
        self.table = table
        self.lease = self.own_lease = Lease(100 + LEADER)
        self.quotas = ReplicationQuotas()

    @property
    def is_reconciled(self) -> bool:
        return True

    def by_name(self, topic: str, index: int) -> Partition:
        return self._found(self.table.look_up(topic, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def by_id(self, topic_id: Uuid, index: int) -> Partition:
        return self._found(self.table.look_up(topic_id, index), ErrorCode.UNKNOWN_TOPIC_ID)

    def _found(self, partition: Partition | None, code: ErrorCode) -> Partition:
        if partition is None:
            raise KafkaError(code, "not here")
        return partition

    def refuse_if_fenced(self) -> None:
        if self.lease.is_fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced")

    def refuse_past_lease(self) -> None:
        """This broker hears of its controller all the time."""

    def hold_until_open(self, *_: object) -> bool:
        return False

    def check_epoch(self, partition: Partition, offset: int) -> None: ...
    def check_sent(self, partition: Partition, offset: int) -> None: ...


def _store(partition: Partition) -> None:
    partition.log.log_start_stored(partition.log.log_start_offset)
    partition.log_start_stored()


class FetchWorld:
    def __init__(self, topics: str = "abcd", *, slots: int = 1000, selector: str | None = None) -> None:
        self.clock = ManualClock(1_000)
        self.table = ReplicaTable()
        self.replicas = Replicas(self.table)
        self.generations: dict[str, int] = dict.fromkeys(topics, 0)
        self.turns = Turns()
        self.wakeups = Wakeups(cast(Any, Loop()), self.turns, self.clock, {})
        self.behind: set[Partition] = set()
        self.proposed: set[Partition] = set()
        proposals = stand_in(IsrProposals, expect_changes=self.behind.add, maybe_propose=self.proposed.add)
        self.events = BrokerPartitionEvents(
            cast(Any, None),
            stand_in(LogStarts, store=staticmethod(_store)),
            self.wakeups,
            proposals,
            stand_in(ReplicaFetchers, state_changed=lambda fetchers, partition: None),
            TaskSupervisor(unexpected),
            urgent_high_watermarks=selector is not None,
        )
        brokers = {
            broker: BrokerRegistration(broker, 100 + broker, ZERO_UUID, (), fenced=False, rack=f"r{broker}")
            for broker in REPLICAS
        }
        self.metadata = MetadataCache(LEADER, "cluster", MetadataImage(brokers=Map(brokers)))
        self.sessions = FetchSessionCache(slots, random.Random(1))
        services = stand_in(
            BrokerServices,
            replicas=self.replicas,
            isr_proposals=proposals,
            clock=self.clock,
            metadata=self.metadata,
            fetch_sessions=self.sessions,
            wakeups=self.wakeups,
            config=SimpleNamespace(fetch_max_bytes=1 << 26, replica_selector_class=selector, rack="r1"),
        )
        self.handler = FetchHandler(services, self.turns)
        for topic in topics:
            self.create(topic)

    # -- what happens to partitions --------------------------------------------------------------------

    def topic_id(self, topic: str) -> Uuid:
        return Uuid(f"{topic}{self.generations[topic]}".encode().ljust(16, b"_"))

    def find(self, topic: str) -> Partition | None:
        return self.table.find(topic, 0)

    def create(self, topic: str) -> None:
        if self.find(topic) is not None:
            return
        self.generations[topic] += 1
        log = Log.open(MemoryDisk(), f"{topic}-0", LogConfig(segment_bytes=500), now_ms=0)
        partition = Partition(topic, self.topic_id(topic), 0, LEADER, log, self.events)
        self.table.add(partition)
        self._change(partition, leader=LEADER, epoch=0, isr=REPLICAS)

    def delete(self, topic: str) -> None:
        partition = self.find(topic)
        if partition is not None:
            self.table.remove(partition)
            partition.leader_id = None
            partition.refuse_waiters(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(self, partition: Partition, *, leader: int, epoch: int, isr: tuple[int, ...]) -> None:
        version = partition.isr.partition_epoch + 1
        registration = PartitionRegistration(REPLICAS, isr, leader, epoch, version)
        partition.apply(registration, self.clock.now_ms)

    def elect(self, topic: str, leader: int) -> None:
        partition = self.find(topic)
        if partition is not None:
            isr = partition.isr.committed
            isr = isr if leader in isr else (*isr, leader)
            self._change(partition, leader=leader, epoch=partition.leader_epoch + 1, isr=isr)

    def set_isr(self, topic: str, isr: tuple[int, ...]) -> None:
        partition = self.find(topic)
        if partition is not None and partition.is_leader:
            self._change(partition, leader=LEADER, epoch=partition.leader_epoch, isr=isr)

    def append(self, topic: str) -> None:
        partition = self.find(topic)
        if partition is not None and partition.is_leader:
            data = bytearray(encode_batch([RecordInput(None, b"v" * 50, (), 1)]))
            header = read_header(data)
            partition.append_as_leader(memoryview(data), header, self.clock.now_ms, all_acks=False)

    def acknowledge(self, topic: str, *replicas: int) -> None:
        """Other followers, which fetch by themselves, have the whole log."""
        partition = self.find(topic)
        if partition is not None and partition.is_leader:
            now_ms = self.clock.now_ms
            for replica in replicas:
                end_offset = partition.log.log_end_offset
                partition.handle_follower_fetch(
                    replica, end_offset, 100 + replica, now_ms, partition.log.log_start_offset
                )

    def delete_records(self, topic: str) -> None:
        partition = self.find(topic)
        if partition is not None:
            partition.delete_records(partition.high_watermark)

    def set_fenced(self, fenced: bool) -> None:
        self.replicas.own_lease.is_fenced = fenced

    # -- requests --------------------------------------------------------------------------------------

    def send(self, request: records.FetchRequest, version: int, connection: Any) -> Slot:
        slot = Slot(version)
        self.begin(request, version, connection, slot)
        self.run()
        return slot

    def begin(self, request: records.FetchRequest, version: int, connection: Any, slot: Slot) -> None:
        """The turn in which the request arrives."""
        header = RequestHeader(1, version, 1, "test")
        body = memoryview(request.encode(version))
        self.handler.handle(connection, RequestContext(), header, body, slot)

    def run(self) -> None:
        """Everything that is due by now, in as many turns as it takes."""
        while self.turns.deferred:
            self.turns.deferred.popleft()()
        self.wakeups.run()
        self.wakeups.deadlines.expire(self.clock.now_ms)
        self.wakeups.run()


@cache
def connect(connection_id: int) -> Connection:
    """The connection with that number, always the same."""
    return stand_in(Connection, connection_id=connection_id, listener_name="PLAINTEXT")
