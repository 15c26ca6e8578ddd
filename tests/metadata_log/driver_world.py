"""Controller drivers on a quorum that commits when a test says so."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, TypedDict, Unpack

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.calls.requests import RegisterBrokerRequest
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.driver import ControllerDriver, Registrar
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import Endpoint
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.delivery import SLICE_RECORDS
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumDescription, ReplicaProgress
from pykraft.runtime.address import Address
from tests.clocks import ManualClock
from tests.metadata_log.harness import T
from tests.waits import settle

NODE = 1
NOBODY = LeaderAndEpoch(None, 0)


class ManualQuorum:
    """A log that commits on demand, and any number of drivers that listen to it."""

    def __init__(self) -> None:
        self.leader = NOBODY
        self.batches: list[CommittedBatch] = []
        self.delivered = 0
        self.listeners: list[MetadataLoader] = []
        self.voters = VoterSet([Voter(ReplicaKey(NODE), Address("localhost", 9093))])
        self.objection: str | None = None

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        if self.leader.leader_id is None or self.leader.epoch != epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        base = self.log_end_offset
        self.batches.append(CommittedBatch(base, base + len(values) - 1, epoch, 0, tuple(values)))
        return base + len(values) - 1

    def upgrade_objection(self) -> str | None:
        return self.objection

    def upgrade_kraft_version(self, epoch: int) -> None:
        """The batch of two control records."""
        if self.objection is not None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, self.objection)
        if self.leader.leader_id is None or self.leader.epoch != epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        base = self.log_end_offset
        self.batches.append(CommittedBatch(base, base + 1, epoch, 0, ()))
        key = ReplicaKey(NODE, Uuid(b"directory of 1.."))
        self.voters = VoterSet([Voter(key, Address("localhost", 9093))])

    def describe(self, now_ms: int) -> QuorumDescription:
        voters = (ReplicaProgress(ReplicaKey(NODE), self.log_end_offset, now_ms, now_ms),)
        return QuorumDescription(self.leader.leader_id, self.leader.epoch, self.delivered, voters, ())

    async def add_voter(self, voter: Voter, timeout_ms: int, ack_when_committed: bool = True) -> None:
        raise AssertionError("this is not called")

    async def remove_voter(self, key: ReplicaKey, timeout_ms: int) -> None:
        raise AssertionError("this is not called")

    def commit(self, at_most: int | None = None) -> None:
        end = len(self.batches) if at_most is None else self.delivered + at_most
        batches = self.batches[self.delivered : end]
        self.delivered += len(batches)
        for listener in self.listeners:
            listener.handle_commit(batches)

    def commit_in_pieces(self) -> Iterator[None]:
        """Commit one batch after the other, in pieces; yields after each call of a listener."""
        while self.delivered < len(self.batches):
            batch = self.batches[self.delivered]
            self.delivered += 1
            for start in range(0, max(1, len(batch.values)), SLICE_RECORDS):
                values = batch.values[start : start + SLICE_RECORDS]
                piece = replace(batch, values=values, earlier=start)
                for listener in self.listeners:
                    listener.handle_commit([piece])
                    yield

    def elect(self, node_id: int, epoch: int) -> None:
        """Elect a new leader: uncommitted records are truncated, a LeaderChange batch follows."""
        del self.batches[self.delivered :]
        self.leader = LeaderAndEpoch(node_id, epoch)
        self.batches.append(CommittedBatch(self.log_end_offset, self.log_end_offset, epoch, 0, ()))
        if node_id == NODE:
            self.commit()
        for listener in self.listeners:
            listener.handle_leader_change(self.leader)
        self.commit()


class SuspendedClock(ManualClock):
    """Follows the loop's time, plus the time of suspensions, which a loop's timers do not include."""

    def __init__(self) -> None:
        self.suspended_ms = 0

    def monotonic_ms(self) -> int:
        return 50_000 + round(asyncio.get_running_loop().time() * 1000) + self.suspended_ms


class LoopClock(ManualClock):
    """The loop's own time, the only sign by which a process notices that it was stalled."""

    def __init__(self) -> None: ...

    def monotonic_ms(self) -> int:
        return 50_000 + round(asyncio.get_running_loop().time() * 1000)


class ConfigFields(TypedDict, total=False):
    """What tests set of :class:`ControllerConfig`."""

    session_timeout_ms: int
    max_idle_interval_ms: int
    request_timeout_ms: int


class World:
    def __init__(self, clock: ManualClock | None = None, **config: Unpack[ConfigFields]) -> None:
        self.clock = clock or ManualClock(50_000)
        self.quorum = ManualQuorum()
        self.fatal: list[BaseException] = []
        self.driver = self.make_driver(NODE, **config)
        self.standby = self.make_driver(2)

    def make_driver(
        self,
        node_id: int,
        register: Registrar | None = None,
        endpoints: tuple[Endpoint, ...] = (),
        **config: Unpack[ConfigFields],
    ) -> ControllerDriver:
        driver = ControllerDriver(
            node_id=node_id,
            config=ControllerConfig(**config),
            cluster_id="c",
            clock=self.clock,
            rng=Random(1),
            bootstrap_features={},
            quorum=self.quorum,
            register=register,
            endpoints=endpoints,
            on_fatal=self.fatal.append,
        )
        loader = MetadataLoader(controller=driver)
        loader.handle_commit(self.quorum.batches[: self.quorum.delivered])
        self.quorum.listeners.append(loader)
        return driver

    def restart_standby(
        self, register: Registrar | None = None, endpoints: tuple[Endpoint, ...] = ()
    ) -> None:
        """A driver with properties to register."""
        self.quorum.listeners.pop()
        self.standby = self.make_driver(2, register, endpoints)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a command, commit whatever it appends, and return its answer."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await settle()
            self.quorum.commit()
        return await task

    async def register(self, broker_id: int = 1) -> int:
        return int((await self.finish(self.driver.register_broker(registration(broker_id)))).broker_epoch)

    def create(
        self, name: str, timeout_ms: int = 30_000, partitions: int = 1, replication_factor: int = 1
    ) -> Coroutine[Any, Any, bytes]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
        body = CreateTopicsRequest(topics=[topic]).encode(7)
        return self.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, body, timeout_ms)


def registration(broker_id: int, incarnation: int = 1) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        "c",
        broker_id,
        Uuid(bytes([incarnation]) * 16),
        (Endpoint("PLAINTEXT", "h", 1),),
        (Uuid(bytes([100 + broker_id]) * 16),),
        SUPPORTED_RANGES,
    )


@asynccontextmanager
async def running_world(**config: Unpack[ConfigFields]) -> AsyncIterator[World]:
    async with asyncio.timeout(20):
        world = World(**config)
        world.quorum.elect(NODE, 1)
        yield world
        assert world.driver.committed_image == world.standby.committed_image


def error_code_of(body: bytes) -> int:
    return CreateTopicsResponse.decode(body, 7).topics[0].error_code
