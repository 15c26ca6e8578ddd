"""One coordinator in virtual time, by seed: replicas that lag, a lease that lapses, a leadership that moves.

The simulations beside this one run the decisions; here the service decides when they are answered. Appends
fail, the high watermark stalls, records that were not replicated are lost with a leadership, late news of an
earlier leadership arrive, topics are deleted and created again, members pause and come back, and impatient
clients send again. The log and the requests are checked against a plain model: what was answered is below the
high watermark, in time, and is found again; nothing waits for ever; members that are alive are kept and the
others removed, but nobody past the lease; the state is that of the log.

It is long because replicas, lease, clients and the model are one world.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from pykraft.coordinator import runtime
from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.records import (
    ConsumerGroupMemberMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.kafka_protocol.messages.groups import (
    JoinGroupRequest,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, TopicImage
from pykraft.runtime.simulated.virtual_loop import VirtualClock, VirtualLoop
from tests.group_coordinator import tools
from tests.group_coordinator.requests import (
    HeartbeatFields,
    commit_offsets,
    consumer_heartbeat,
    fetch_offsets,
    heartbeat,
    join_group,
    sync_group,
)

SESSION_S = 10.0
COMMIT_S = 5.0
CHECK_S = 0.1
SLACK_S = 4.0
"""How much later than its time a timer may act: timers are retried a second after a failed append."""
DURATION_S = 90.0
CALM_S = 100.0
CONFIG = GroupConfig(
    offsets_topic_num_partitions=1,
    initial_rebalance_delay_ms=500,
    consumer_session_timeout_ms=int(SESSION_S * 1000),
    consumer_heartbeat_interval_ms=2_000,
    offset_commit_timeout_ms=int(COMMIT_S * 1000),
    offsets_retention_check_interval_ms=5_000,
)
RETRIABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
GROWTH_RECORDS = 20


class Lease:
    """Renewed every second, except in an outage."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.until_s = 3.0
        self.outage_until_s = 0.0
        self.regained_s = 0.0

    def renew(self) -> None:
        if self.loop.now_s >= self.outage_until_s:
            if self.is_expired:
                self.regained_s = self.loop.now_s
            self.until_s = self.loop.now_s + 3.0

    @property
    def is_expired(self) -> bool:
        return self.lost_ms(int(self.loop.now_s * 1000)) > 0

    def lost_ms(self, now_ms: int) -> int:
        return max(0, now_ms - int(self.until_s * 1000))

    def lease_valid(self, now_ms: int) -> bool:
        return self.lost_ms(now_ms) == 0

    def expired_ms(self, now_ms: int) -> int | None:
        return self.lost_ms(now_ms)


class OffsetsLog:
    """One partition of ``__consumer_offsets``. None stands for a batch without records of groups."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.records: list[tuple[bytes, bytes | None] | None] = []
        self.decoded: list[GroupRecord | None] = []
        #: The end of each batch: a high watermark, and a log that was cut, is at one of these.
        self.ends: list[int] = []
        self.mark = 0
        #: When the high watermark reached what, in order.
        self.marks: list[int] = []
        self.mark_times_s: list[float] = []
        #: (group, offset that was committed): the end of its batch, and what was written.
        self.committed_at: dict[tuple[str, int], int] = {}
        self.committed_as: dict[tuple[str, int], OffsetCommitValue] = {}
        self.failing = 0.0
        self.failed_s = 0.0
        self.appended = 0

    def append(
        self, partition: int, leader_epoch: int, records: Iterable[tuple[bytes, bytes | None]], now_ms: int
    ) -> int:
        world = self.world
        assert leader_epoch == world.leader_epoch, "written as the leader of an earlier epoch"
        if world.rng.random() < self.failing:
            self.failed_s = world.loop.now_s
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        batch = list(records)
        end = len(self.records) + len(batch)
        for key, value in batch:
            decoded = decode_record(key, value)
            assert decoded is not None
            if world.lease.is_expired and isinstance(decoded.key, ConsumerGroupMemberMetadataKey):
                assert decoded.value is not None, "a member is removed past the lease"
            self.records.append((key, value))
            self.decoded.append(decoded)
            if isinstance(decoded.key, OffsetCommitKey) and isinstance(decoded.value, OffsetCommitValue):
                committed = decoded.key.group_id, decoded.value.offset
                self.committed_at[committed], self.committed_as[committed] = end, decoded.value
        self.appended += len(batch)
        self.ends.append(end)
        return end

    def append_other(self) -> None:
        """A batch without records of groups."""
        self.records.append(None)
        self.decoded.append(None)
        self.ends.append(len(self.records))

    def some_end(self) -> int:
        """Of the batches above the high watermark, or that."""
        return self.world.rng.choice([self.mark, *self.ends[bisect_right(self.ends, self.mark) :]])

    def high_watermark(self, partition: int) -> int:
        return self.mark

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        raise AssertionError("no transaction ends here")

    def max_batch_bytes(self, partition: int) -> int:
        return 1_048_588

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        await asyncio.sleep(self.world.rng.random() * 0.1)
        if self.world.rng.random() < 0.1:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        found: list[tuple[bytes, bytes | None]] = []
        for offset in range(start_offset, min(start_offset + 30, len(self.records))):
            record = self.records[offset]
            if record is None:
                return tools.as_batches(start_offset, found), offset if found else offset + 1
            found.append(record)
        return tools.as_batches(start_offset, found), start_offset + len(found)

    def advance(self, mark: int) -> None:
        self.mark = mark
        self.marks.append(mark)
        self.mark_times_s.append(self.world.loop.now_s)

    def reached_s(self, end: int) -> float | None:
        """When the high watermark reached this offset."""
        at = bisect_left(self.marks, end)
        return self.mark_times_s[at] if at < len(self.marks) else None

    def lose_tail(self) -> None:
        """A new leader has all below the high watermark, and some of the rest."""
        end = self.some_end()
        del self.ends[bisect_right(self.ends, end) :]
        del self.records[end:], self.decoded[end:]
        self.committed_at = {key: at for key, at in self.committed_at.items() if at <= end}

    def state(self, end: int) -> ShardState:
        return replay_all(EMPTY_STATE, [one for one in self.decoded[:end] if one is not None])


@dataclass(eq=False)
class Member:
    """Of a consumer group, as it sees itself."""

    member_id: str
    rebalance_s: float
    #: Subscribes to a topic by name, or else by a regular expression, which the coordinator has to resolve.
    regex: str | None = None
    epoch: int = 0
    owned: set[tuple[Uuid, int]] = field(default_factory=set)
    #: When it sent the last request that the coordinator is known to have taken with a valid lease.
    heard_s: float = -1.0
    silent_since_s: float | None = None


class World:
    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.rng = Random(seed)
        self.loop = loop
        self.is_quiet = seed % 10 == 3
        """One classic member, and no faults."""
        self.log = OffsetsLog(self)
        self.lease = Lease(loop)
        self.leader_epoch = 0
        self.is_leader = False
        self.moved_s = 0.0
        self.grown = 0
        self.faults: list[BaseException] = []
        self.service = GroupCoordinatorService(
            CONFIG,
            self.log,
            VirtualClock(loop),
            Random(seed),
            self.faults.append,
            lease=self.lease,
            on_growth=self.count_growth,
        )
        self.image = EMPTY_IMAGE
        self.sizes = {"t": 4, "u": 1}
        self.incarnation = 1
        self.recreated_s = 0.0
        self.publish()
        self.acknowledged: dict[str, int] = {}
        self.value = 0
        self.members: list[Member] = []
        self.open_requests: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.is_calm = False
        self.stalled_until_s = 0.0
        self.tasks: list[asyncio.Task[None]] = []

    def count_growth(self) -> None:
        self.grown += 1

    # -- the broker ------------------------------------------------------------------------------------

    def publish(self, deleted: dict[Any, TopicImage] | None = None) -> None:
        image = tools.make_image(self.sizes, self.image.offset + 1, {"u": self.incarnation})
        delta = MetadataDelta(
            self.image,
            image,
            created_topics=frozenset(image.topics_by_id) - frozenset(self.image.topics_by_id),
            deleted_topics=MappingProxyType(deleted or {}),
        )
        self.image = image
        self.service.on_metadata(delta, image)

    def recreate(self) -> None:
        """Topic ``u`` is deleted, and created again later or at once."""
        topic = self.image.topic("u")
        self.recreated_s = self.loop.now_s
        if topic is not None:
            del self.sizes["u"]
            self.publish({topic.id: topic})
            self.counts["deleted"] += 1
        if "u" not in self.sizes and self.rng.random() < 0.7:
            self.sizes["u"] = 1
            self.incarnation += 1
            self.publish()
            self.tasks.append(asyncio.ensure_future(self.fetch("v", "u")))

    def elect(self) -> None:
        self.leader_epoch += 1
        self.is_leader = True
        self.moved_s = self.loop.now_s
        self.service.on_elected(0, self.leader_epoch)

    async def move(self) -> None:
        self.is_leader = False
        self.moved_s = self.loop.now_s
        self.service.on_resigned(0)
        self.counts["moved"] += 1
        await asyncio.sleep(self.rng.random() * 3)
        self.log.lose_tail()
        self.elect()

    async def replicate(self) -> None:
        while True:
            if self.loop.now_s < self.stalled_until_s:
                await asyncio.sleep(self.stalled_until_s - self.loop.now_s)
            stall_s = self.rng.choice((0.01, 0.05, 0.2)) if self.is_calm else self.stall_s()
            await asyncio.sleep(stall_s)
            if self.is_leader and self.log.mark < len(self.log.records):
                whole = self.rng.random() < 0.5
                end = len(self.log.records) if whole else self.log.some_end()
                self.log.advance(end)
                self.service.on_high_watermark(0, end)

    def stall_s(self) -> float:
        if self.rng.random() < 0.03:
            return 4.8 + self.rng.random()
        return self.rng.choice((0.001, 0.05, 0.3))

    async def disturb(self) -> None:
        while self.loop.now_s < DURATION_S:
            await asyncio.sleep(self.rng.random() * 3)
            self.log.failing = self.rng.choice((0.0, 0.0, 0.0, 0.5))
            roll = self.rng.random()
            if roll < 0.1:
                await self.move()
            elif roll < 0.2:
                self.service.on_elected(0, self.leader_epoch - 1)  # late news
            elif roll < 0.3:
                self.recreate()
            elif roll < 0.4:
                self.log.append_other()
            elif roll < 0.55:
                self.lease.outage_until_s = self.loop.now_s + self.rng.choice((4.0, 15.0, 30.0))
                if self.rng.random() < 0.5:
                    self.stalled_until_s = self.lease.outage_until_s
        self.lease.outage_until_s = 0.0
        self.is_calm = True
        self.log.failing = 0.7
        await asyncio.sleep(15)  # the sessions of all members end
        self.log.failing = 0.0
        appended, grown = self.log.appended, self.grown
        while self.log.appended < appended + 2 * GROWTH_RECORDS:
            await self.commit("s", "t")
        assert self.grown > grown, "growth is not reported"

    async def keep_lease(self) -> None:
        while True:
            self.lease.renew()
            await asyncio.sleep(1)

    @property
    def is_loaded(self) -> bool:
        hosted = self.service._runtime._hosted.get(0)
        return hosted is not None and hosted.shard.loaded

    # -- requests --------------------------------------------------------------------------------------

    async def send(self, request: Message, version: int) -> Any:
        name = type(request).__name__
        self.open_requests[name] += 1
        context = RequestContext(client_id="cli", client_address="127.0.0.1")
        answer = await tools.answer(self.service, context, request, version)
        self.open_requests[name] -= 1
        self.counts[name] += 1
        return answer

    async def commit(self, group_id: str, topic: str) -> None:
        self.value += 1
        value, began_s, incarnation = self.value, self.loop.now_s, self.incarnation
        answer = await self.send(commit_offsets({(topic, 0): value}, group_id=group_id), 8)
        code = answer.topics[0].partitions[0].error_code
        took_s = self.loop.now_s - began_s
        assert took_s <= COMMIT_S + 0.6, f"a commit is answered after {took_s} s"
        end = self.log.committed_at.get((group_id, value))
        if code == ErrorCode.NONE:
            assert end is not None and end <= self.log.mark, "a commit is acknowledged that can be lost"
            assert took_s <= COMMIT_S, "a success is answered too late"
            if topic == "t" or (incarnation == self.incarnation and topic in self.sizes):
                self.acknowledged[group_id] = value
            return
        if topic == "t":
            assert code in RETRIABLE, code
        reached_s = None if end is None else self.log.reached_s(end)
        if code in RETRIABLE and reached_s is not None and self.moved_s < began_s and self.is_leader:
            assert not began_s <= reached_s < began_s + COMMIT_S, "a commit that was replicated is refused"

    async def keep_committing(self, group_id: str, topic: str) -> None:
        while self.loop.now_s < DURATION_S:
            await self.commit(group_id, topic)
            await asyncio.sleep(self.rng.choice((0.0, 0.1, 1.0, 7.0)))

    async def commit_briefly(self) -> None:
        """As old clients do, which name a retention time of their own."""
        while self.loop.now_s < DURATION_S:
            request = commit_offsets({("t", 0): 1}, group_id="brief", retention_time_ms=20_000)
            await self.send(request, 3)
            await asyncio.sleep(self.rng.random() * 10)

    async def fetch(self, group_id: str, topic: str) -> None:
        began_s, floor, incarnation = self.loop.now_s, self.acknowledged.get(group_id, -1), self.incarnation
        (group,) = (await self.send(fetch_offsets(group_id), 8)).groups
        assert self.loop.now_s - began_s <= 2 * COMMIT_S + 1.2, "offsets are answered late"
        if group.error_code:
            assert group.error_code in RETRIABLE, group.error_code
            return
        self.counts["offsets"] += 1
        assert self.lease.until_s + 0.001 >= began_s, "offsets are told past the lease"
        offsets = {t.name: p.committed_offset for t in group.topics for p in t.partitions}
        found = offsets.get(topic, -1)
        if topic == "u" and self.recreated_s > began_s:
            return
        end = self.log.committed_at.get((group_id, found))
        if found != -1:
            assert end is not None and end <= self.log.mark, "an offset is told that can be lost"
        if topic == "t":
            assert found >= floor, f"the offset {floor} was committed, {found} is found"
        elif found != -1:
            assert end is not None
            value = self.log.committed_as[group_id, found]
            assert value.topic_id == tools.topic_id("u", incarnation), "an offset of an earlier topic is told"
        if topic == "u" and topic in self.sizes and floor in self.values_of_u(group_id, incarnation):
            assert found >= floor, f"the offset {floor} was committed to the new topic, {found} is found"

    def values_of_u(self, group_id: str, incarnation: int) -> set[int]:
        wanted = tools.topic_id("u", incarnation)
        return {
            offset
            for (group, offset) in self.log.committed_at
            if group == group_id and self.log.committed_as[group, offset].topic_id == wanted
        }

    async def keep_fetching(self, group_id: str, topic: str) -> None:
        while self.loop.now_s < DURATION_S:
            await self.fetch(group_id, topic)
            await asyncio.sleep(self.rng.random() * 1.5)

    # -- members ---------------------------------------------------------------------------------------

    async def beat(self, member: Member, epoch: int) -> None:
        began_s, mark = self.loop.now_s, self.log.mark
        end, was_expired = len(self.log.records), self.lease.is_expired
        joins: HeartbeatFields = {}
        if epoch == 0:
            member.owned = set()
            joins = {
                "rebalance_timeout_ms": int(member.rebalance_s * 1000),
                "subscribed_topic_names": [] if member.regex else ["t"],
                "subscribed_topic_regex": member.regex,
            }
        request = consumer_heartbeat(member.member_id, epoch, member.owned, **joins)
        answer = await self.send(request, 1)
        code = answer.error_code
        if code == ErrorCode.NONE:
            self.counts["beats"] += 1
            if not was_expired:
                member.heard_s = began_s
            elif self.loop.now_s == began_s and len(self.log.records) == end:
                self.check_past_lease(member, mark, end)
            if epoch in (0, member.epoch) or member.epoch == 0:
                member.epoch = answer.member_epoch
                if answer.assignment is not None:
                    assigned = answer.assignment.topic_partitions
                    member.owned = {(one.topic_id, number) for one in assigned for number in one.partitions}
        elif code in REMOVED:
            assert not was_expired or not self.lease.is_expired, "a member is refused past the lease"
            is_late = member.rebalance_s < SESSION_S  # it may not have heard of what it had to revoke
            if (
                code == ErrorCode.UNKNOWN_MEMBER_ID
                and not is_late
                and member.heard_s >= 0
                and epoch == member.epoch
            ):
                assert began_s - member.heard_s >= SESSION_S - 0.1, "a member that is alive was removed"
            member.epoch, member.heard_s = 0, -1.0
        else:
            assert code in RETRIABLE, code

    def check_past_lease(self, member: Member, mark: int, end: int) -> None:
        """A heartbeat was answered without error and without a record."""
        self.counts["past the lease"] += 1
        expired_s = self.loop.now_s - self.lease.until_s
        assert expired_s < 0.9 * min(SESSION_S, member.rebalance_s) + 0.002, (
            "answered too long past the lease"
        )
        for state in (self.log.state(mark), self.log.state(end)):
            group = state.consumer_group("g")
            assert group is not None and member.member_id in group.members, (
                "a member is answered past the lease that a later coordinator may not know"
            )

    async def be_member(self, number: int) -> None:
        regex = self.rng.choice((None, None, "[tu]", "t"))
        member = Member(f"m{number}", self.rng.choice((5.0, 8.0, 60.0)), regex)
        self.members.append(member)
        await asyncio.sleep(self.rng.random() * 40)
        while self.loop.now_s < DURATION_S:
            beat = asyncio.ensure_future(self.beat(member, member.epoch))
            if member.epoch == 0 and self.rng.random() < 0.3:
                await asyncio.sleep(0.2)
                state = self.service._runtime._hosted.get(0)
                group = None if state is None else state.shard.state.consumer_group("g")
                if group is not None and not beat.done():
                    await self.beat(member, group.epoch)  # a guess
            await beat
            roll = self.rng.random()
            if roll < 0.03:
                break
            await asyncio.sleep(5 + self.rng.random() * 20 if roll < 0.15 else 2)
        member.silent_since_s = self.loop.now_s

    async def be_classic(self, number: int) -> None:
        """Joins (sometimes twice at once, or with another session), syncs and sends heartbeats."""
        member_id, generation = "", -1
        await asyncio.sleep(self.rng.random() * 40)
        while self.loop.now_s < DURATION_S:
            if generation < 0:
                request = join_group(
                    member_id,
                    {"range": b"%d" % number},
                    group_id="c",
                    session_timeout_ms=self.rng.choice((6_000, 12_000)),
                    rebalance_timeout_ms=20_000,
                )
                if member_id and self.rng.random() < 0.3:
                    self.tasks.append(asyncio.ensure_future(self.give_up(request)))
                    await asyncio.sleep(0.1)
                began_s = self.loop.now_s
                joined = await self.send(request, 5)
                if self.is_quiet:
                    took_s = self.loop.now_s - began_s
                    assert took_s <= SLACK_S, f"the only member waits for {took_s} s until it has joined"
                member_id = joined.member_id or member_id
                if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    member_id = ""
                elif joined.error_code == ErrorCode.NONE:
                    generation = joined.generation_id
                    given = {one.member_id: b"a" for one in joined.members}
                    sync = sync_group(member_id, generation, given, group_id="c")
                    synced = await self.send(sync, 3)
                    generation = generation if synced.error_code == ErrorCode.NONE else -1
                    self.counts["synced"] += synced.error_code == ErrorCode.NONE
            else:
                beat = heartbeat(member_id, generation, group_id="c")
                was_expired, began_s = self.lease.is_expired and self.is_loaded, self.loop.now_s
                code = (await self.send(beat, 3)).error_code
                # While the group is loaded, all members are told that nothing has changed, as in Kafka.
                if code == ErrorCode.NONE and was_expired and self.loop.now_s == began_s:
                    expired_s = began_s - self.lease.until_s
                    assert expired_s < 0.9 * 12.0 + 0.002, "answered too long past the lease"
                if code not in (ErrorCode.NONE, *RETRIABLE):
                    generation = -1
                    if code == ErrorCode.UNKNOWN_MEMBER_ID:
                        member_id = ""
            await asyncio.sleep(15 if self.rng.random() < 0.05 else 1 + self.rng.random())

    async def give_up(self, request: JoinGroupRequest) -> None:
        await self.send(request, 5)

    # -- checks ----------------------------------------------------------------------------------------

    async def watch(self) -> None:
        seen: tuple[ShardState | None, int, int] = None, 0, 0
        while True:
            await asyncio.sleep(CHECK_S)
            assert not self.faults, self.faults[0]
            hosted = self.service._runtime._hosted.get(0)
            if hosted is None or not hosted.shard.loaded:
                seen = None, 0, 0
                continue
            state, end = hosted.shard.appended, len(self.log.records)
            if seen[0] is not None and self.lease.is_expired and seen[1:] == (end, self.leader_epoch):
                assert state is seen[0], "a group changes past the lease without a record"
            seen = (state, end, self.leader_epoch) if self.lease.is_expired else (None, 0, 0)
            self.check_silent(state)
            if self.rng.random() < 0.1:
                known = self.log.state(end)
                assert state.offsets == known.offsets, "the state is not that of the log"
                assert state.groups_by_topic == known.groups_by_topic
                assert state.consumer_group("g") == known.consumer_group("g")

    def check_silent(self, state: ShardState) -> None:
        """Whoever has been silent for a session is removed, unless something forbade it meanwhile."""
        group = state.consumer_group("g")
        if group is None or self.lease.is_expired:
            return
        quiet_s = max(self.moved_s, self.lease.regained_s, self.log.failed_s, self.recreated_s) + 2
        for member in self.members:
            since_s = member.silent_since_s
            if since_s is not None and member.member_id in group.members:
                due_s = max(since_s, quiet_s) + SESSION_S + SLACK_S
                assert self.loop.now_s <= due_s, f"{member.member_id} is silent and still a member"

    async def run(self) -> None:
        rng = self.rng
        await self.service.start()
        self.elect()
        background = [
            asyncio.ensure_future(one) for one in (self.keep_lease(), self.replicate(), self.watch())
        ]
        if self.is_quiet:
            clients = [self.be_classic(0)]
        else:
            clients = [self.disturb(), *(self.be_member(number) for number in range(rng.randrange(1, 5)))]
        if not self.is_quiet and rng.random() < 0.8:
            clients += [self.keep_committing("s", "t"), self.keep_fetching("s", "t")]
            clients += [self.commit_briefly(), self.keep_committing("v", "u"), self.keep_fetching("v", "u")]
            clients += [self.be_classic(number) for number in range(rng.randrange(4))]
        running = [asyncio.ensure_future(client) for client in clients]
        try:
            done, _ = await asyncio.wait([*running, *background], timeout=DURATION_S + CALM_S)
            for task in done:
                task.result()
            assert not any(self.open_requests.values()), f"requests wait for ever: {self.open_requests}"
            self.check_end()
        finally:
            for task in (*running, *background, *self.tasks):
                task.cancel()
            await asyncio.gather(*running, *background, *self.tasks, return_exceptions=True)
            await self.service.stop()

    def check_end(self) -> None:
        state = self.log.state(len(self.log.records))
        current = self.image.topic("u")
        for (name, topic_id), groups in state.groups_by_topic.items():
            assert name == "t" or (current is not None and topic_id == current.id), (
                f"offsets of {groups} for a deleted topic are kept"
            )
        group = state.consumer_group("g")
        if group is not None:
            assert set(group.resolved) <= set(group.subscribed_regexes), "a regular expression is kept"
        assert "brief" not in state.offsets, "offsets are kept for longer than their commit asked for"


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_durable_in_time_and_never_withheld_for_ever(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_GROWTH_RECORDS", GROWTH_RECORDS)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        world = World(seed, loop)
        runner.run(world.run())
    assert world.counts.total() > 10, world.counts
