"""Group coordinators over a log in memory, and clients of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage, TopicImage
from pykraft.runtime.clock import Clock
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.unexpected import unexpected
from tests.waits import settle

CONFIG = GroupConfig(
    offsets_topic_num_partitions=1,
    initial_rebalance_delay_ms=0,
    consumer_session_timeout_ms=45_000,
    consumer_assignment_interval_ms=0,
)


class Lease:
    """The broker's state towards the controller, as a test sets it."""

    def __init__(self) -> None:
        self.valid = True

    def lease_valid(self, now_ms: int) -> bool:
        return self.valid

    def expired_ms(self, now_ms: int) -> int | None:
        return 0 if self.valid else None


class JoinSettings(TypedDict, total=False):
    """What tests set of a JoinGroup, besides the group and the protocols."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str
    protocol_type: str
    reason: str


class JoinFields(JoinSettings, total=False):
    group_id: str
    protocols: list[JoinGroupRequestProtocol]


class SyncFields(TypedDict, total=False):
    """What tests set of a SyncGroup."""

    group_instance_id: str
    protocol_type: str
    protocol_name: str


class CommitFields(TypedDict, total=False):
    """What tests set of an OffsetCommit."""

    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str


class World:
    """One coordinator that leads partition 0 of a log in memory."""

    def __init__(self) -> None:
        self.clock, self.writer, self.lease = ManualClock(), tools.MemoryWriter(), Lease()
        self.faults: list[BaseException] = []
        self.client_id = "cli"
        self.service = GroupCoordinatorService(
            CONFIG,
            self.writer,
            self.clock,
            Random(1),
            self.faults.append,
            lease=self.lease,
        )
        self.image = EMPTY_IMAGE
        self.publish(tools.make_image({"t": 4}))

    def publish(
        self, image: MetadataImage, deleted_topics: Mapping[Uuid, TopicImage] = MappingProxyType({})
    ) -> None:
        created = frozenset(image.topics_by_id) - frozenset(self.image.topics_by_id)
        delta = MetadataDelta(self.image, image, created_topics=created, deleted_topics=deleted_topics)
        self.image = image
        self.service.on_metadata(delta, image)

    def delete_topic(self, name: str, sizes_after: dict[str, int]) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        image = tools.make_image(sizes_after, self.image.offset + 1)
        self.publish(image, deleted_topics={topic.id: topic})

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def lead(self, epoch: int = 1) -> None:
        self.service.on_elected(0, epoch)
        await settle()

    def pass_time(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        self.service.tick()

    def send(self, request: Message, version: int) -> asyncio.Task[Any]:
        ctx = RequestContext(client_id=self.client_id, client_address="127.0.0.1")
        return asyncio.ensure_future(tools.answer(self.service, ctx, request, version))

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group_id: str = "g",
        topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None,
        **fields: Unpack[tools.HeartbeatFields],
    ) -> asyncio.Task[Any]:
        values: tools.HeartbeatFields = {}
        if epoch == 0:
            values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
            topic_partitions = topic_partitions or []
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=topic_partitions,
            **(values | fields),
        )
        return self.send(request, 1)

    def join(self, member_id: str = "", version: int = 3, **fields: Unpack[JoinFields]) -> asyncio.Task[Any]:
        values: JoinFields = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
        }
        return self.send(JoinGroupRequest(member_id=member_id, **(values | fields)), version)

    def sync(self, member_id: str, generation: int, **assignments: bytes) -> asyncio.Task[Any]:
        given = [
            SyncGroupRequestAssignment(member_id=name.replace("_", "-"), assignment=assignment)
            for name, assignment in assignments.items()
        ]
        request = SyncGroupRequest(
            group_id="g", member_id=member_id, generation_id=generation, assignments=given
        )
        return self.send(request, 3)

    def heartbeat(self, member_id: str, generation: int) -> asyncio.Task[Any]:
        return self.send(HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation), 3)

    async def commit(self, offset: int, *, group_id: str = "g", **fields: Unpack[CommitFields]) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = OffsetCommitRequest(group_id=group_id, topics=topics, **fields)
        answer = await self.send(request, 8)
        return int(answer.topics[0].partitions[0].error_code)

    async def fetch(self) -> tuple[int, dict[int, int]]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = (await self.send(request, 8)).groups
        return group.error_code, {
            p.partition_index: p.committed_offset for t in group.topics for p in t.partitions
        }

    async def stable_pair(self) -> tuple[str, str, int]:
        """Two classic members that have their assignment: leader, other, generation."""
        first = self.join()
        await settle()
        self.pass_time(1)
        leader = (await first).member_id
        second = self.join()
        await settle()
        again = self.join(leader)
        joined = [await again, await second]
        members = sorted(answer.member_id for answer in joined)
        generation = joined[0].generation_id
        leader = joined[0].leader
        (other,) = [name for name in members if name != leader]
        waiting = self.sync(other, generation)
        assert (await self.sync(leader, generation)).error_code == 0
        assert (await waiting).error_code == 0
        return leader, other, generation


SHORT_METADATA = GroupConfig(offsets_topic_num_partitions=1, offset_metadata_max_bytes=10)

Offsets = dict[tuple[str, int], int]


class Broker:
    """One coordinator over a log in memory whose high watermark a test can hold back."""

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.clock, self.writer = ManualClock(), tools.MemoryWriter()
        self.image = tools.make_image({"t": 4, "u": 2})
        self.service = self.new_service()

    def new_service(self) -> GroupCoordinatorService:
        service = GroupCoordinatorService(self.config, self.writer, self.clock, Random(1), unexpected)
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, self.image), self.image)
        return service

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def lead(self, epoch: int = 1) -> None:
        self.service.on_elected(0, epoch)
        await settle()
        self.service.tick()  # sessions start, and the remainders of earlier coordinators are cleaned up

    def clean_up(self) -> None:
        for _ in range(3):  # offsets, then groups, one slice per tick
            self.service.tick()

    async def fail_over(self) -> None:
        await self.service.stop()
        self.service = self.new_service()
        await self.lead(2)

    def release(self) -> None:
        end = len(self.writer.logs[0])
        self.writer.watermarks[0] = end
        self.service.on_high_watermark(0, end)

    def send(self, request: Message, version: int) -> asyncio.Task[Any]:
        ctx = RequestContext(client_id="cli", client_address="127.0.0.1")
        return asyncio.ensure_future(tools.answer(self.service, ctx, request, version))

    async def wire(self, request: Message, version: int) -> Any:
        """Pass the message through the codec both ways: what a client of that version would see."""
        request = type(request).decode(request.encode(version), version)
        response = await self.send(request, version)
        return type(response).decode(response.encode(version), version)

    def beat(self, member_id: str = "m", epoch: int = 0, group_id: str = "g") -> asyncio.Task[Any]:
        joining: tools.HeartbeatFields = {}
        if epoch == 0:
            joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if epoch else [],
            **joining,
        )
        return self.send(request, 1)

    def commit(
        self,
        offsets: Offsets,
        version: int = 8,
        *,
        group_id: str = "g",
        metadata: str = "",
        **fields: Unpack[CommitFields],
    ) -> asyncio.Task[Any]:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (name, partition), offset in offsets.items():
            topics.setdefault(name, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=tools.topic_id(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
            **fields,
        )
        return self.send(request, version)

    async def fetch(
        self, group_id: str = "g", version: int = 8, *, member_id: str | None = None, member_epoch: int = -1
    ) -> Offsets:
        group = OffsetFetchRequestGroup(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=None
        )
        answer = (await self.wire(OffsetFetchRequest(groups=[group]), version)).groups[0]
        assert answer.error_code == 0
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}


def codes(response: OffsetCommitResponse) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
CLASSIC_CONFIG = GroupConfig(offsets_topic_num_partitions=1, initial_rebalance_delay_ms=DELAY_MS, max_size=4)


class Classic:
    """A coordinator of group ``g``, and its clients."""

    def __init__(
        self,
        config: GroupConfig = CLASSIC_CONFIG,
        topics: Mapping[str, int] = MappingProxyType({"t": 4}),
    ) -> None:
        """``topics``: the number of partitions of each."""
        self.image = tools.make_image(dict(topics))
        self.config = config
        self.clock, self.writer = ManualClock(), tools.MemoryWriter()
        self.service = self._new_service(1)

    def _new_service(self, leader_epoch: int) -> GroupCoordinatorService:
        service = GroupCoordinatorService(self.config, self.writer, self.clock, Random(1), unexpected)
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, self.image), self.image)
        service.on_elected(0, leader_epoch)
        return service

    async def fail_over(self) -> None:
        await self.service.stop()
        self.service = self._new_service(2)
        await settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        self.service.tick()
        await settle()

    def send(self, request: Message, version: int) -> asyncio.Task[Any]:
        ctx = RequestContext(client_id="cli", client_address="127.0.0.1")
        return asyncio.ensure_future(tools.answer(self.service, ctx, request, version))

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 5,
        protocols: Mapping[str, bytes] = MappingProxyType({"range": b"meta"}),
        **fields: Unpack[JoinSettings],
    ) -> asyncio.Task[Any]:
        values: JoinSettings = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
        }
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
            **(values | fields),
        )
        return self.send(request, version)

    async def member_id(self) -> str:
        """The first of the two steps of a join: get a member id."""
        response = await self.join()
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.member_id.startswith("cli-")
        return str(response.member_id)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Unpack[SyncFields],
    ) -> asyncio.Task[Any]:
        given = [
            SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id="g", member_id=member_id, generation_id=generation, assignments=given, **fields
        )
        return self.send(request, 5 if fields.get("protocol_name") else 4)

    async def heartbeat(
        self, member_id: str, generation: int, *, group_instance_id: str | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id="g",
            member_id=member_id,
            generation_id=generation,
            group_instance_id=group_instance_id,
        )
        return int((await self.send(request, 4)).error_code)

    async def leave(self, *identities: MemberIdentity) -> Any:
        return await self.send(LeaveGroupRequest(group_id="g", members=list(identities)), 5)

    async def commit(self, member_id: str, generation: int) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(
            group_id="g", member_id=member_id, generation_id_or_member_epoch=generation, topics=[topic]
        )
        return int((await self.send(request, 8)).topics[0].partitions[0].error_code)

    async def state(self) -> Any:
        return (await self.send(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]

    async def stable_pair(self) -> tuple[str, str]:
        """Two members in generation 1: the leader and the other one."""
        first, second = await self.member_id(), await self.member_id()
        joins = [self.join(first), self.join(second)]
        await settle()
        await self.pass_time(DELAY_MS)
        await self.pass_time(DELAY_MS)
        answers = {answer.member_id: answer for answer in await asyncio.gather(*joins)}
        leader = answers[first].leader
        other = second if leader == first else first
        assert {m.member_id for m in answers[leader].members} == {first, second}
        assert answers[other].members == []
        waiting = self.sync(other, 1)
        await settle()
        assert not waiting.done()
        handed_in = await self.sync(leader, 1, {leader: b"L", other: b"O"})
        assert (handed_in.assignment, (await waiting).assignment) == (b"L", b"O")
        return leader, other


class LeaseUntil:
    """A lease that ends at a time of the coordinator's own clock; None: the broker knows it is fenced."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.end_ms: int | None = 2**60

    def lease_valid(self, now_ms: int) -> bool:
        return self.end_ms is not None and now_ms < self.end_ms

    def expired_ms(self, now_ms: int) -> int | None:
        return None if self.end_ms is None else max(0, now_ms + 1 - self.end_ms)


class Leased(World):
    def __init__(self, clock: Clock | None = None, config: GroupConfig = CONFIG, seed: int = 1) -> None:
        super().__init__()
        self.until = LeaseUntil(clock or self.clock)
        self.service = GroupCoordinatorService(
            config, self.writer, self.until.clock, Random(seed), self.faults.append, lease=self.until
        )
        self.service.on_metadata(MetadataDelta(EMPTY_IMAGE, self.image), self.image)

    def expire_lease(self) -> None:
        self.until.end_ms = self.until.clock.monotonic_ms()

    def regain(self) -> None:
        self.until.end_ms = 2**60

    def replicate(self) -> None:
        self.writer.watermarks[0] = len(self.writer.logs[0])
        self.service.on_high_watermark(0, self.writer.watermarks[0])

    async def join_classic(self) -> tuple[str, int]:
        """A stable group of one."""
        joining = self.join()
        await settle()
        self.pass_time(1)
        joined = await joining
        assert (await self.sync(joined.member_id, joined.generation_id)).error_code == 0
        return joined.member_id, joined.generation_id


@asynccontextmanager
async def running_world() -> AsyncIterator[World]:
    made = World()
    try:
        async with asyncio.timeout(20):
            yield made
    finally:
        await made.service.stop()
    assert not made.faults, made.faults


@asynccontextmanager
async def running_broker(config: GroupConfig = SHORT_METADATA) -> AsyncIterator[Broker]:
    world = Broker(config)
    try:
        yield world
    finally:
        await world.service.stop()


@asynccontextmanager
async def running_classic(config: GroupConfig = CLASSIC_CONFIG) -> AsyncIterator[Classic]:
    world = Classic(config)
    await settle()
    try:
        yield world
    finally:
        await world.service.stop()


@asynccontextmanager
async def running_leased() -> AsyncIterator[Leased]:
    made = Leased()
    try:
        await made.lead()
        made.service.tick()
        async with asyncio.timeout(20):
            yield made
    finally:
        await made.service.stop()
