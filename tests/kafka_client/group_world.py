"""The product's group coordinators behind a scripted network, in virtual time; a test chooses the faults."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypedDict, Unpack

from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig as CoordinatorConfig
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.group.member import GroupConfig, GroupMember
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.messages.records import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.simulated.virtual_loop import VirtualClock, VirtualLoop
from tests.group_coordinator.tools import MemoryWriter, answer, make_image, topic_id
from tests.kafka_client.scripted import HOST, Later, Outcome, ScriptedCluster
from tests.kafka_client.virtual_cluster import VirtualNetwork, network_of, nothing_unseen
from tests.unexpected import unexpected

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
GROUP_APIS = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)

Kind = tuple[Literal["classic", "consumer"], str | None]
"""The protocol of a group and its assignor."""
Fault = Callable[[int, Message], str | None]
"""The fault of a request to a broker: None, "lost" (before it is carried out), "unanswered", "broken"
(carried out, then the connection breaks), "late" (carried out late) or "slow" (answered late).
"""


class MemberSettings(TypedDict, total=False):
    """What tests set of :class:`GroupConfig`."""

    group_instance_id: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    metadata_max_age_ms: int
    auto_offset_reset: Literal["earliest", "latest"]


class Seat:
    """A listener that records what its member was told, and checks each change."""

    def __init__(self, world: "GroupWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.held: set[TopicPartition] = set()
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.heartbeats: list[tuple[int, str, int]] = []
        self.while_revoking: Callable[[], Awaitable[None]] | None = None

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.held.isdisjoint(partitions), "assigned twice"
        self.held.update(partitions)
        self._note("assigned", partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.held.issuperset(partitions), "revoked a partition that it does not own"
        if self.while_revoking is not None:
            await self.while_revoking()
        if self.held.issuperset(partitions):  # else they were lost meanwhile
            self.held.difference_update(partitions)
            self._note("revoked", partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.held.issuperset(partitions), "lost a partition that it does not own"
        self.held.difference_update(partitions)
        self._note("lost", partitions)

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None:
        self.heartbeats.append((sent_ms, member_id, member_epoch))

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.events.append((what, tuple(sorted(where.partition for where in partitions))))
        self.world.check()

    @property
    def partitions(self) -> list[int]:
        return sorted(where.partition for where in self.held)


class GroupWorld:
    """Three brokers, a coordinator on one of them, and members. Only in virtual time."""

    def __init__(self, scripted: ScriptedCluster, partitions: int = 6) -> None:
        self.scripted = scripted
        self.loop = asyncio.get_running_loop()
        assert isinstance(self.loop, VirtualLoop)
        self.writer = MemoryWriter()
        self.values: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        self.fetch_takes_ms: Counter[int] = Counter()
        scripted.add_topic("t", dict.fromkeys(range(partitions), (1, 0)), topic_id("t"))
        config = CoordinatorConfig(
            offsets_topic_num_partitions=1,
            consumer_session_timeout_ms=SESSION_MS,
            consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            initial_rebalance_delay_ms=500,
        )
        self.services = {}
        for broker_id in scripted.brokers:
            service = GroupCoordinatorService(
                config, self.writer, VirtualClock(self.loop), random.Random(broker_id), unexpected
            )
            image = make_image({"t": partitions})
            service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
            self.services[broker_id] = service
        self.coordinator = 0
        self.leader_epoch = 0
        self.fault: Fault = lambda broker_id, request: None
        self.network: VirtualNetwork = network_of(scripted)
        self.seats: dict[GroupMember, Seat] = {}
        self.joined = 0
        scripted.script(ApiKey.FIND_COORDINATOR, self._find_coordinator)
        scripted.script(ApiKey.FETCH, self._fetch)
        scripted.script(ApiKey.LIST_OFFSETS, self._list_offsets)
        for key in GROUP_APIS:
            scripted.script(key, self._group_api)

    async def start(self) -> None:
        for service in self.services.values():
            await service.start()
        self.move_coordinator(1)

    async def stop(self) -> None:
        for member in list(self.seats):
            self.abandon(member)
        for service in self.services.values():
            await service.stop()

    def move_coordinator(self, broker_id: int) -> None:
        if self.coordinator:
            self.services[self.coordinator].on_resigned(0)
        self.coordinator = broker_id
        self.leader_epoch += 1
        self.services[broker_id].on_elected(0, self.leader_epoch)

    def join(
        self,
        protocol: Literal["classic", "consumer"],
        assignor: str | None = None,
        topics: tuple[str, ...] = ("t",),
        network: VirtualNetwork | None = None,
        **more: Unpack[MemberSettings],
    ) -> GroupMember:
        name = f"m{self.joined}"
        self.joined += 1
        settings: MemberSettings = {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "max_poll_interval_ms": 10_000,
            "auto_offset_reset": "earliest",
        }
        config = GroupConfig("g", topics, protocol, assignor, **(settings | more))
        addresses = tuple(broker.address for broker in self.scripted.brokers.values())
        client = ClientConfig(addresses, client_id=name, request_timeout_ms=2_000, connect_timeout_ms=500)
        seat = Seat(self, name)
        chance = random.Random(name)
        member = GroupMember(network or self.network, client, config, seat, chance)
        self.seats[member] = seat
        return member

    async def leave(self, member: GroupMember) -> None:
        await member.close(2_000)
        self.seats.pop(member)

    def abandon(self, member: GroupMember) -> None:
        """Like a killed process: its beliefs end with it."""
        member.abandon()
        self.seats.pop(member)

    def check(self) -> None:
        """No two members believe that they own the same partition."""
        owner: dict[TopicPartition, str] = {}
        for member, seat in list(self.seats.items()):
            owned = member.owned
            assert seat.held <= owned, f"{seat.name} was told of more partitions than it believes to own"
            for where in owned:
                assert where not in owner, f"{where} belongs to {owner[where]} and {seat.name}"
                owner[where] = seat.name

    async def until(self, done: Callable[[], bool], timeout_s: float = 60.0) -> float:
        """Wait for the condition in virtual time; returns how long it took."""
        began = self.loop.time()
        while not done():
            owned = {seat.name: member.fatal or seat.partitions for member, seat in self.seats.items()}
            assert self.loop.time() - began < timeout_s, f"not in {timeout_s} s: {owned}"
            self.check()
            await asyncio.sleep(0.05)
        return self.loop.time() - began

    def is_shared(self) -> bool:
        """Every partition has an owner, and no member has two more than another."""
        counts = [len(seat.held) for seat in self.seats.values()]
        return sum(counts) == len(self.values) and max(counts) - min(counts) <= 1

    def _group_api(self, broker_id: int, request: Message, version: int) -> Later:
        return self._faulty(broker_id, request, lambda: self._serve(broker_id, request, version))

    def _faulty(
        self, broker_id: int, request: Message, serve: Callable[[], Message | Awaitable[Message]]
    ) -> Later:
        fault = self.fault(broker_id, request)
        if fault == "lost":
            return Later(None)

        async def carry_out() -> Outcome:
            if fault == "late":
                await asyncio.sleep(random.Random(self.loop.time()).random() * 3)
            answer = serve()
            answer = await answer if isinstance(answer, Awaitable) else answer
            if fault == "slow":
                await asyncio.sleep(random.Random(self.loop.time()).random() * 2)
            if fault == "unanswered":
                return None
            return ConnectionResetError("gone") if fault == "broken" else answer

        return Later(carry_out(), 1)

    async def _serve(self, broker_id: int, request: Message, version: int) -> Message:
        context = RequestContext(client_id="c", client_address="127.0.0.1")
        return await answer(self.services[broker_id], context, request, version)

    def _find_coordinator(self, broker_id: int, request: FindCoordinatorRequest, version: int) -> Later:
        def answer() -> FindCoordinatorResponse:
            found = Coordinator(
                key=request.coordinator_keys[0], node_id=self.coordinator, host=HOST, port=self.coordinator
            )
            return FindCoordinatorResponse(coordinators=[found])

        return self._faulty(broker_id, request, answer)

    def _fetch(self, broker_id: int, request: FetchRequest, version: int) -> Later:
        topic = request.topics[0]
        wanted = topic.partitions[0]
        values = self.values[wanted.partition][wanted.fetch_offset :]
        data = PartitionData(partition_index=wanted.partition, high_watermark=len(self.values))
        if wanted.fetch_offset > len(self.values[wanted.partition]):
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        if values:
            inputs = [RecordInput(None, value) for value in values]
            data.records = encode_batch(inputs, base_offset=wanted.fetch_offset, leader_epoch=0)
        held = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        waited_ms = 1 if values or data.error_code else request.max_wait_ms + 1
        return Later(FetchResponse(responses=[held]), waited_ms + self.fetch_takes_ms[wanted.partition])

    def _list_offsets(self, broker_id: int, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, offset=0, error_code=ErrorCode.NONE
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


@asynccontextmanager
async def running_group(scripted: ScriptedCluster, *, partitions: int = 6) -> AsyncIterator[GroupWorld]:
    async with nothing_unseen():
        world = GroupWorld(scripted, partitions)
        await world.start()
        try:
            yield world
        finally:
            await world.stop()
