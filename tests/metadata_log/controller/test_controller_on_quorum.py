"""The driver on a real quorum of one node."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.controller.calls.requests import BrokerHeartbeatRequest, RegisterBrokerRequest
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import Endpoint
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.driver import QuorumNode
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.runtime.address import Address
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.rpc import PendingCall, RpcFailure
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.quorum.nodes import Recorder

DIRECTORY = "/data/__cluster_metadata-0"


class NoTransport:
    """A quorum of one makes no calls."""

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        raise AssertionError("a quorum of one makes no calls")

    async def close(self) -> None: ...


class News(Recorder):
    """The last listener: a test waits with it until the other listeners have been called."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.arrived.set()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.arrived.set()


class Node:
    """Controller and loader of one combined node on a disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        key = ReplicaKey(1, Uuid(b"d" * 16))
        clock = SystemClock()
        self.fatal: list[BaseException] = []
        self.news = News()
        self.quorum = QuorumNode(
            config=QuorumConfig(),
            cluster_id="c",
            local=key,
            voters=VoterSet([Voter(key, Address("localhost", 1))]),
            log=Log.open(disk, DIRECTORY, LogConfig(), now_ms=0),
            state_store=QuorumStateStore(disk, DIRECTORY),
            transport=NoTransport(),
            clock=clock,
            rng=Random(1),
            on_fatal=self.fatal.append,
        )
        self.driver = ControllerDriver(
            node_id=1,
            config=ControllerConfig(),
            cluster_id="c",
            clock=clock,
            rng=Random(1),
            bootstrap_features={"group.version": 1},
            quorum=self.quorum,
            on_fatal=self.fatal.append,
        )
        self.loader = MetadataLoader(controller=self.driver)

    async def start(self) -> None:
        await self.quorum.start([self.loader, self.news])
        await self.driver.start()
        await self.until(lambda image: self.driver.active and "group.version" in image.features)

    async def until(self, condition: Callable[[MetadataImage], bool]) -> None:
        while not condition(self.loader.image):
            self.news.arrived.clear()
            await self.news.arrived.wait()

    async def stop(self) -> None:
        await self.driver.stop()
        await self.quorum.stop()
        assert self.fatal == []


def test_acknowledged_changes_survive_a_restart_and_both_images_agree() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        format_log(disk, DIRECTORY, now_ms=0)
        node = Node(disk)
        await node.start()
        registered = await node.driver.register_broker(
            RegisterBrokerRequest(
                "c", 1, Uuid(b"i" * 16), (Endpoint("P", "h", 1),), (Uuid(b"l" * 16),), SUPPORTED_RANGES
            )
        )
        await node.until(lambda image: 1 in image.brokers)
        beat = BrokerHeartbeatRequest(1, registered.broker_epoch, node.loader.offset)
        assert not (await node.driver.broker_heartbeat(beat)).is_fenced
        topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        body = CreateTopicsRequest(topics=[topic]).encode(7)
        answer = await node.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, body, 5000)
        created = CreateTopicsResponse.decode(answer, 7).topics[0]
        await node.until(lambda image: image.topic("t") is not None)
        assert node.driver.committed_image == node.loader.image
        before = node.loader.image
        await node.stop()

        again = Node(disk)
        await again.start()
        await again.until(lambda image: image.topic("t") is not None)
        found = again.loader.image.topic("t")
        assert found is not None and found.id == created.topic_id
        assert again.driver.image.brokers == before.brokers
        assert again.driver.image.topics_by_id == before.topics_by_id
        await again.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))
