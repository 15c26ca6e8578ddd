"""A group coordinator over a log in memory, and clients of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, Unpack

from pykraft.coordinator.writer import PartitionWriter
from pykraft.group_coordinator.runtime import HostedGroups
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import DescribeGroupsRequest, MemberIdentity
from pykraft.kafka_protocol.messages.offsets import OffsetCommitResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage, TopicImage
from pykraft.runtime.clock import Clock
from tests.clocks import ManualClock
from tests.group_coordinator import requests, tools
from tests.group_coordinator.requests import CommitFields, HeartbeatFields, JoinFields, Offsets, SyncFields
from tests.waits import settle

CONFIG = GroupConfig(
    offsets_topic_num_partitions=1,
    initial_rebalance_delay_ms=0,
    consumer_session_timeout_ms=45_000,
    consumer_assignment_interval_ms=0,
)
SHORT_METADATA = GroupConfig(offsets_topic_num_partitions=1, offset_metadata_max_bytes=10)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
CLASSIC_CONFIG = GroupConfig(offsets_topic_num_partitions=1, initial_rebalance_delay_ms=DELAY_MS, max_size=4)


class LeaseUntil:
    """A lease that ends at a time of the coordinator's own clock; None: the broker knows it is fenced."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.end_ms: int | None = 2**60

    def lease_valid(self, now_ms: int) -> bool:
        return self.end_ms is not None and now_ms < self.end_ms

    def expired_ms(self, now_ms: int) -> int | None:
        return None if self.end_ms is None else max(0, now_ms + 1 - self.end_ms)


class Coordinator:
    """One coordinator of a log in memory, whose high watermark a test can hold back, and its clients."""

    join_version = 3
    joins: ClassVar[JoinFields] = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 10_000}
    protocols: Mapping[str, bytes] = MappingProxyType({"range": b""})
    shares = (b"", b"")
    everything = b""

    def __init__(self, config: GroupConfig = CONFIG, *, clock: Clock | None = None, seed: int = 1) -> None:
        self.config, self.seed = config, seed
        self.clock, self.writer = ManualClock(), tools.MemoryWriter()
        self.lease = LeaseUntil(clock or self.clock)
        self.faults: list[BaseException] = []
        self.client_id = "cli"
        self.image = tools.make_image({"t": 4, "u": 2})
        self.service = self.new_service()

    # ---- the coordinator

    @property
    def written_to(self) -> PartitionWriter:
        return self.writer

    def new_service(self) -> GroupCoordinatorService:
        service = GroupCoordinatorService(
            self.config,
            self.written_to,
            self.lease.clock,
            Random(self.seed),
            self.faults.append,
            lease=self.lease,
        )
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, self.image), self.image)
        return service

    async def lead(self, epoch: int = 1) -> None:
        self.service.on_elected(0, epoch)
        await settle()
        self.service.tick()  # sessions start, and the remainders of earlier coordinators are cleaned up

    async def fail_over(self) -> None:
        await self.service.stop()
        self.service = self.new_service()
        await self.lead(2)

    @property
    def hosted(self) -> HostedGroups:
        return self.service._runtime._hosted[0]

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

    async def pass_time(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        self.service.tick()
        await settle()

    def release(self) -> None:
        """The replicas have all that is in the log."""
        self.writer.watermarks[0] = end = len(self.writer.logs[0])
        self.service.on_high_watermark(0, end)

    def expire_lease(self) -> None:
        self.lease.end_ms = self.lease.clock.monotonic_ms()

    def regain_lease(self) -> None:
        self.lease.end_ms = 2**60

    # ---- requests

    def send(self, request: Message, version: int) -> asyncio.Task[Any]:
        ctx = RequestContext(client_id=self.client_id, client_address="127.0.0.1")
        return asyncio.ensure_future(tools.answer(self.service, ctx, request, version))

    async def wire(self, request: Message, version: int) -> Any:
        """Pass the message through the codec both ways: what a client of that version would see."""
        request = type(request).decode(request.encode(version), version)
        response = await self.send(request, version)
        return type(response).decode(response.encode(version), version)

    def beat(
        self,
        member_id: str = "m",
        epoch: int = 0,
        owned: Set[int] | None = None,
        *,
        group_id: str = "g",
        **fields: Unpack[HeartbeatFields],
    ) -> asyncio.Task[Any]:
        """ConsumerGroupHeartbeat of a member that owns partitions of ``t``; None if it does not say."""
        reported = None if owned is None else {(tools.topic_id("t"), index) for index in owned}
        request = requests.consumer_heartbeat(member_id, epoch, reported, group_id=group_id, **fields)
        return self.send(request, 1)

    def join(
        self,
        member_id: str = "",
        *,
        version: int | None = None,
        protocols: Mapping[str, bytes] | None = None,
        **fields: Unpack[JoinFields],
    ) -> asyncio.Task[Any]:
        given = self.protocols if protocols is None else protocols
        request = requests.join_group(member_id, given, **(self.joins | fields))
        return self.send(request, self.join_version if version is None else version)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] = MappingProxyType({}),
        **fields: Unpack[SyncFields],
    ) -> asyncio.Task[Any]:
        request = requests.sync_group(member_id, generation, assignments, **fields)
        return self.send(request, 5 if fields.get("protocol_name") else 4)

    async def heartbeat(
        self, member_id: str, generation: int, *, group_instance_id: str | None = None
    ) -> int:
        request = requests.heartbeat(member_id, generation, group_instance_id)
        return int((await self.send(request, 4)).error_code)

    async def leave(self, *members: MemberIdentity | str) -> Any:
        return await self.send(requests.leave_group(*members), 5)

    def commit(
        self,
        offsets: Offsets,
        version: int = 8,
        *,
        group_id: str = "g",
        metadata: str = "",
        **fields: Unpack[CommitFields],
    ) -> asyncio.Task[Any]:
        request = requests.commit_offsets(offsets, group_id=group_id, metadata=metadata, **fields)
        return self.send(request, version)

    async def commit_one(self, offset: int, *, group_id: str = "g", **fields: Unpack[CommitFields]) -> int:
        """For one partition: its error code."""
        return codes(await self.commit({("t", 0): offset}, group_id=group_id, **fields))[0]

    async def commit_as(self, member_id: str, generation: int) -> int:
        return await self.commit_one(5, member_id=member_id, generation_id_or_member_epoch=generation)

    async def fetch(
        self, group_id: str = "g", version: int = 8, *, member_id: str | None = None, epoch: int = -1
    ) -> Offsets:
        request = requests.fetch_offsets(group_id, member_id=member_id, epoch=epoch)
        answer = (await self.wire(request, version)).groups[0]
        assert answer.error_code == 0
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}

    async def state(self) -> Any:
        return (await self.send(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]

    # ---- members of classic groups

    async def first(self, protocols: Mapping[str, bytes] | None = None, **fields: Unpack[JoinFields]) -> str:
        """One that has joined, at generation 1, and has yet to assign partitions."""
        version = 5 if "group_instance_id" in fields else 3
        join = self.join(version=version, protocols=protocols, **fields)
        await settle()
        await self.pass_time(1)
        return str((await join).member_id)

    async def single(self) -> str:
        """One at generation 1 that has everything."""
        member = await self.first()
        assert (await self.sync(member, 1, {member: self.everything})).error_code == 0
        return member

    async def pair(
        self, protocols: Mapping[str, bytes] | None = None, *, instance_ids: Sequence[str] = ()
    ) -> tuple[str, str]:
        """Two at generation 2, each with its share: the leader and the other one."""
        joined: list[tuple[str, JoinFields]] = []
        for number in range(2):
            fields: JoinFields = {"group_instance_id": instance_ids[number]} if instance_ids else {}
            join = self.join(version=5 if instance_ids else 3, protocols=protocols, **fields)
            await settle()
            await self.pass_time(1)
            again = [self.join(name, protocols=protocols, **earlier) for name, earlier in joined]
            joined.append(((await join).member_id, fields))
            answers = [await one for one in again]
        leader, other = joined[0][0], joined[1][0]
        assert {answer.leader for answer in answers} == {leader}
        waiting = self.sync(other, 2)
        await settle()
        handed_in = await self.sync(leader, 2, dict(zip((leader, other), self.shares, strict=True)))
        assert (handed_in.assignment, (await waiting).assignment) == self.shares
        return leader, other


class Classic(Coordinator):
    """Its clients join in two steps, and a group waits for more of them at first."""

    join_version = 5
    joins: ClassVar[JoinFields] = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
    protocols: Mapping[str, bytes] = MappingProxyType({"range": b"meta"})

    async def member_id(self) -> str:
        """The first of the two steps of a join: get a member id."""
        response = await self.join()
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.member_id.startswith("cli-")
        return str(response.member_id)

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


def codes(response: OffsetCommitResponse) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


W = TypeVar("W", bound=Coordinator)


@asynccontextmanager
async def running(world: W, *, leads: bool = True) -> AsyncIterator[W]:
    try:
        if leads:
            await world.lead()
        async with asyncio.timeout(20):
            yield world
    finally:
        await world.service.stop()
    assert not world.faults, world.faults


def running_world(
    config: GroupConfig = CONFIG, leads: bool = True
) -> AbstractAsyncContextManager[Coordinator]:
    return running(Coordinator(config), leads=leads)


def running_broker(
    config: GroupConfig = SHORT_METADATA, leads: bool = True
) -> AbstractAsyncContextManager[Coordinator]:
    return running(Coordinator(config), leads=leads)


def running_classic() -> AbstractAsyncContextManager[Classic]:
    return running(Classic(CLASSIC_CONFIG))
