"""The service around the shards: answers at the high watermark, loading, resignation, offsets, admin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykraft.kafka_protocol.messages.delete_groups import DeleteGroupsRequest
from pykraft.kafka_protocol.messages.describe_groups import DescribeGroupsRequest
from pykraft.kafka_protocol.messages.heartbeat import HeartbeatRequest
from pykraft.kafka_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykraft.kafka_protocol.messages.leave_group import LeaveGroupRequest
from pykraft.kafka_protocol.messages.list_groups import ListGroupsRequest
from pykraft.kafka_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykraft.kafka_protocol.messages.sync_group import SyncGroupRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.persistent import freeze

CONFIG = GroupConfig(offsets_topic_num_partitions=1, offset_metadata_max_bytes=10)
Offsets = dict[tuple[str, int], int]


class Broker:
    """One coordinator over a log in memory whose high watermark a test can hold back."""

    def __init__(self, tools: SimpleNamespace, config: GroupConfig) -> None:
        self.tools, self.config = tools, config
        self.clock, self.writer = tools.ManualClock(), tools.MemoryWriter()
        self.image = tools.make_image({"t": 4, "u": 2})
        self.service = self.new_service()

    def new_service(self) -> GroupCoordinatorService:
        service = GroupCoordinatorService(self.config, self.writer, self.clock, self.tools.random(1))
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, self.image), self.image)
        return service

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def lead(self, epoch: int = 1) -> None:
        self.service.on_elected(0, epoch)
        await self.settle()
        self.service.tick()  # sessions begin, and what earlier coordinators left is cleaned up

    def clean_up(self) -> None:
        for _ in range(3):  # offsets, then groups, a slice a tick
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
        return asyncio.ensure_future(self.service.handle(ctx, request, version))

    async def wire(self, request: Message, version: int) -> Any:
        """Through the codec both ways: what a client of that version would get to see."""
        request = type(request).decode(request.encode(version), version)
        response = await self.send(request, version)
        return type(response).decode(response.encode(version), version)

    def beat(self, member_id: str = "m", epoch: int = 0, group_id: str = "g") -> asyncio.Task[Any]:
        joining: dict[str, Any] = {}
        if epoch == 0:
            joining = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": ["t"],
                "topic_partitions": [],
            }
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **joining
        )
        return self.send(request, 1)

    def commit(
        self, offsets: Offsets, version: int = 8, *, group_id: str = "g", metadata: str = "", **fields: Any
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
                OffsetCommitRequestTopic(name=name, topic_id=self.tools.topic_id(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
            **fields,
        )
        return self.send(request, version)

    async def fetch(self, group_id: str = "g", version: int = 8, **fields: Any) -> Offsets:
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None, **fields)
        answer = (await self.wire(OffsetFetchRequest(groups=[group]), version)).groups[0]
        assert answer.error_code == 0
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}


def codes(response: Any) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


@pytest.fixture
def broker(tools: SimpleNamespace) -> Callable[..., None]:
    def run(scenario: Callable[[Broker], Coroutine[Any, Any, None]], config: GroupConfig = CONFIG) -> None:
        async def main() -> None:
            world = Broker(tools, config)
            try:
                await scenario(world)
            finally:
                await world.service.stop()

        asyncio.run(main())

    return run


# ---- leadership and the high watermark


def all_requests() -> list[tuple[Message, int]]:
    return [
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 1),
        (JoinGroupRequest(group_id="g", session_timeout_ms=10_000), 9),
        (JoinGroupRequest(group_id="g", session_timeout_ms=10_000), 0),
        (SyncGroupRequest(group_id="g"), 5),
        (HeartbeatRequest(group_id="g"), 4),
        (LeaveGroupRequest(group_id="g"), 5),
        (OffsetFetchRequest(group_id="g", topics=None), 7),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8),
        (DescribeGroupsRequest(groups=["g"]), 6),
        (ConsumerGroupDescribeRequest(group_ids=["g"]), 1),
        (DeleteGroupsRequest(groups_names=["g"]), 2),
    ]


# What clients of the classic protocol understand there: that they are alive, and that they are to join again.
WHILE_LOADING = {HeartbeatRequest: ErrorCode.NONE, SyncGroupRequest: ErrorCode.REBALANCE_IN_PROGRESS}


def error_of(response: Any) -> int:
    for part in (response, *getattr(response, "groups", []), *getattr(response, "results", [])):
        if getattr(part, "error_code", 0):
            return int(part.error_code)
    return 0


@pytest.mark.parametrize(("request_", "version"), all_requests())
def test_other_brokers_groups_are_not_ours(broker: Any, request_: Message, version: int) -> None:
    async def scenario(world: Broker) -> None:
        assert error_of(await world.wire(request_, version)) == ErrorCode.NOT_COORDINATOR

    broker(scenario)


@pytest.mark.parametrize(("request_", "version"), all_requests())
def test_requests_are_turned_away_while_loading(broker: Any, request_: Message, version: int) -> None:
    async def scenario(world: Broker) -> None:
        world.writer.read_gate = asyncio.Event()
        await world.lead()
        told = error_of(await world.wire(request_, version))
        assert told == WHILE_LOADING.get(type(request_), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        world.writer.read_gate.set()
        await world.settle()
        loaded = error_of(await world.wire(request_, version))
        assert loaded != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    broker(scenario)


def test_answer_waits_for_the_high_watermark(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        world.writer.hold = True
        join = world.beat()
        await world.settle()
        assert not join.done()
        world.service.on_high_watermark(0, len(world.writer.logs[0]) - 1)
        await world.settle()
        assert not join.done()
        world.release()
        assert (await join).member_epoch == 1

    broker(scenario)


def test_answer_without_records_waits_for_what_it_is_based_on(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        world.writer.hold = True
        waiting = [world.beat(), world.beat("m", 1)]
        waiting.append(world.send(ConsumerGroupDescribeRequest(group_ids=["g"]), 1))
        waiting.append(world.send(OffsetFetchRequest(group_id="g", topics=None), 7))
        waiting.append(world.send(ListGroupsRequest(), 5))
        await world.settle()
        assert not any(task.done() for task in waiting), "an uncommitted epoch leaked"
        world.release()
        await asyncio.gather(*waiting)
        assert (await world.beat("m", 1)).member_epoch == 1, "nothing pending: answered at once"

    broker(scenario)


def test_resignation_fails_everyone_who_waits(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        parked = world.send(
            JoinGroupRequest(
                group_id="c", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
            ),
            3,
        )
        world.writer.hold = True
        waiting = [world.beat(), world.commit({("t", 0): 1}, group_id="o")]
        await world.settle()
        world.service.on_resigned(0)
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        assert (await waiting[0]).error_code == ErrorCode.NOT_COORDINATOR
        assert codes(await waiting[1]) == [ErrorCode.NOT_COORDINATOR]
        assert (await world.beat("m", 1)).error_code == ErrorCode.NOT_COORDINATOR

    broker(scenario)


def test_new_leader_knows_what_was_answered_and_holds_back_what_was_not(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 7})
        world.writer.hold = True
        lost = world.commit({("t", 0): 8})
        await world.settle()
        await world.fail_over()
        assert codes(await lost) == [ErrorCode.NOT_COORDINATOR]
        reading = asyncio.ensure_future(world.fetch())
        await world.settle()
        assert not reading.done(), "the tail of the log is not committed yet"
        world.release()
        assert await reading == {("t", 0): 8}

    broker(scenario)


def test_replicas_that_take_too_long_are_not_waited_for_forever(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        world.writer.hold = True
        commit = world.commit({("t", 0): 1})
        await world.settle()
        world.clock.now_ms += CONFIG.offset_commit_timeout_ms
        world.service.tick()
        assert codes(await commit) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    broker(scenario)


def test_newer_leader_epoch_loads_again_and_an_older_one_is_ignored(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead(5)
        world.service.on_elected(0, 4)
        await world.beat()
        world.service.on_elected(0, 6)
        assert (await world.beat("m", 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.settle()
        assert (await world.beat("m", 1)).member_epoch == 1
        await world.commit({("t", 0): 1}, group_id="o")
        assert [epoch for _, epoch, _ in world.writer.batches] == [5, 6]

    broker(scenario)


def test_long_log_is_loaded_slice_by_slice(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        for offset in range(50):
            await world.commit({("t", p): offset for p in range(4)})
        world.writer.read_slice = 7
        await world.service.stop()
        world.service = world.new_service()
        world.service.on_elected(0, 2)
        while (await world.beat("m", 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
        assert await world.fetch() == {("t", p): 49 for p in range(4)}

    broker(scenario)


def test_started_service_runs_its_timers_by_itself(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.service.start()
        await world.lead()
        await world.beat()
        world.clock.now_ms += CONFIG.consumer_session_timeout_ms
        await world.beat("other", group_id="h")
        world.service.tick()
        assert (await world.beat("m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    broker(scenario)


def test_group_with_settings_of_its_own_goes_by_them_after_a_failover_too(broker: Any) -> None:
    def configure(world: Broker, **settings: str) -> None:
        configs = {name.replace("_", "."): value for name, value in settings.items()}
        old = world.image
        world.image = replace(old, configs=old.configs.set((32, "g"), freeze(configs)))
        world.service.on_metadata(
            MetadataDelta(old, world.image, changed_configs=frozenset({(32, "g")})), world.image
        )

    async def scenario(world: Broker) -> None:
        await world.lead()
        configure(world, consumer_session_timeout_ms="120000", consumer_heartbeat_interval_ms="7000")
        assert (await world.beat()).heartbeat_interval_ms == 7000
        await world.beat("other", group_id="h")
        assert (await world.beat("other", 1, "h")).heartbeat_interval_ms == 5000
        for _ in range(2):
            world.clock.now_ms += 60_000
            world.service.tick()
            assert (await world.beat("other", 1, "h")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert (await world.beat("m", 1)).error_code == 0
            await world.fail_over()
        world.clock.now_ms += 120_000
        world.service.tick()
        assert (await world.beat("m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        configure(world, consumer_session_timeout_ms="4000")
        assert (await world.beat("new")).heartbeat_interval_ms == 1333, "it fits into the session"

    broker(scenario)


# ---- offsets


def test_committed_offsets_are_read_back_by_every_version(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        assert codes(await world.commit({("t", 0): 5, ("u", 1): 6}, metadata="note")) == [0, 0]
        names = [
            OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3]),
            OffsetFetchRequestTopic(name="nope", partition_indexes=[0]),
        ]
        for version in range(1, 8):
            answer = await world.wire(OffsetFetchRequest(group_id="g", topics=names), version)
            seen = [
                (p.committed_offset, p.metadata, p.error_code) for t in answer.topics for p in t.partitions
            ]
            assert seen == [(5, "note", 0), (-1, "", 0), (-1, "", 0)]
        for version in (8, 9):
            assert await world.fetch(version=version) == {("t", 0): 5, ("u", 1): 6}
        topics = [
            OffsetFetchRequestTopics(topic_id=world.tools.topic_id("t"), partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=world.tools.topic_id("nope"), partition_indexes=[0]),
        ]
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        answer = (await world.wire(OffsetFetchRequest(groups=[group]), 10)).groups[0]
        seen = [(p.committed_offset, p.error_code) for t in answer.topics for p in t.partitions]
        assert seen == [(5, 0), (-1, ErrorCode.UNKNOWN_TOPIC_ID)]

    broker(scenario)


def test_unknown_group_has_no_offsets_and_no_error(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        assert await world.fetch("nobody") == {}

    broker(scenario)


def test_all_partitions_of_a_commit_are_one_batch(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 1, ("t", 1): 2, ("u", 0): 3})
        assert [len(batch) for _, _, batch in world.writer.batches] == [3]

    broker(scenario)


def test_bad_partitions_are_refused_one_by_one(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        answer = await world.commit({("t", 9): 1, ("nope", 0): 1, ("u", 0): 3})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(answer) == [unknown, unknown, 0]
        answer = await world.commit({("nope", 0): 1, ("u", 1): 4}, version=10)
        assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
        answer = await world.commit({("t", 0): 1}, metadata="x" * 11)
        assert codes(answer) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await world.fetch() == {("u", 0): 3, ("u", 1): 4}

    broker(scenario)


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_failed_append_is_reported_and_forgotten(broker: Any, refusal: ErrorCode, answer: ErrorCode) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 1})
        world.writer.refuse = refusal
        assert codes(await world.commit({("t", 0): 2})) == [answer]
        world.writer.refuse = None
        assert await world.fetch() == {("t", 0): 1}

    broker(scenario)


def test_commit_by_a_consumer_member_needs_its_epoch(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.beat()
        member = {"member_id": "m", "generation_id_or_member_epoch": 1}
        assert codes(await world.commit({("t", 0): 1}, 9, **member)) == [0]
        stale = member | {"generation_id_or_member_epoch": 0}
        assert codes(await world.commit({("t", 0): 1}, 9, **stale)) == [ErrorCode.STALE_MEMBER_EPOCH]
        assert codes(await world.commit({("t", 0): 1}, 8, **member)) == [ErrorCode.UNSUPPORTED_VERSION]
        stranger = member | {"member_id": "x"}
        assert codes(await world.commit({("t", 0): 1}, 9, **stranger)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert codes(await world.commit({("t", 0): 1}, 9)) == [ErrorCode.UNKNOWN_MEMBER_ID]

    broker(scenario)


def test_reading_at_a_stale_member_epoch_is_refused(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.beat()
        assert await world.fetch(version=9, member_id="m", member_epoch=1) == {}
        for member_id, epoch, code in (
            ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
            ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            group = OffsetFetchRequestGroup(
                group_id="g", member_id=member_id, member_epoch=epoch, topics=None
            )
            answer = await world.wire(OffsetFetchRequest(groups=[group]), 9)
            assert answer.groups[0].error_code == code

    broker(scenario)


def test_commit_to_a_group_that_is_not_there_depends_on_the_epoch(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        named = {"member_id": "m", "generation_id_or_member_epoch": 3}
        assert codes(await world.commit({("t", 0): 1}, 8, **named)) == [ErrorCode.ILLEGAL_GENERATION]
        assert codes(await world.commit({("t", 0): 1}, 9, **named)) == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert codes(await world.commit({("t", 0): 1})) == [0]

    broker(scenario)


def test_offsets_of_a_deleted_topic_are_forgotten(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 1, ("u", 0): 2})
        old, world.image = world.image, world.tools.make_image({"t": 4}, 2)
        gone = old.topic("u")
        delta = MetadataDelta(old, world.image, deleted_topics={gone.id: gone})
        world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        world.service.on_metadata(delta, world.image)
        world.writer.refuse = None
        world.service.tick()
        assert await world.fetch() == {("t", 0): 1}
        await world.fail_over()
        assert await world.fetch() == {("t", 0): 1}

    broker(scenario)


def test_topic_deleted_while_nobody_led_is_forgotten_on_load(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 1, ("u", 0): 2})
        world.image = world.tools.make_image({"t": 4}, 2)
        await world.fail_over()
        assert await world.fetch() == {("t", 0): 1}

    broker(scenario)


def test_unused_offsets_and_their_group_expire(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 1})
        world.clock.now_ms += CONFIG.offsets_retention_ms - 1
        await world.commit({("t", 1): 2})
        world.clock.now_ms += 1
        world.clean_up()
        assert await world.fetch() == {("t", 1): 2}
        world.clock.now_ms += CONFIG.offsets_retention_ms
        world.clean_up()
        assert (await world.wire(ListGroupsRequest(), 5)).groups == []

    broker(scenario)


# ---- admin


def test_groups_are_listed_by_state_and_type(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.beat()
        await world.commit({("t", 0): 1}, group_id="simple")
        everything = await world.wire(ListGroupsRequest(), 5)
        assert {(g.group_id, g.group_type, g.group_state, g.protocol_type) for g in everything.groups} == {
            ("g", "Consumer", "Stable", "consumer"),
            ("simple", "Classic", "Empty", ""),
        }
        by_state = await world.wire(ListGroupsRequest(states_filter=["empty"]), 4)
        assert [g.group_id for g in by_state.groups] == ["simple"]
        by_type = await world.wire(ListGroupsRequest(types_filter=["consumer"]), 5)
        assert [g.group_id for g in by_type.groups] == ["g"]

    broker(scenario)


def test_each_describe_sends_the_client_to_the_other(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.beat()
        await world.commit({("t", 0): 1}, group_id="simple")
        classic = (await world.wire(DescribeGroupsRequest(groups=["g", "simple"]), 6)).groups
        assert [(g.group_state, g.error_code) for g in classic] == [
            ("Dead", ErrorCode.GROUP_ID_NOT_FOUND),
            ("Empty", 0),
        ]
        assert (await world.wire(DescribeGroupsRequest(groups=["g"]), 5)).groups[0].error_code == 0
        consumer = await world.wire(ConsumerGroupDescribeRequest(group_ids=["g", "simple"]), 1)
        group, other = consumer.groups
        assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
        assert group.assignor_name == "uniform"
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.client_host) == ("m", 1, "/127.0.0.1")
        assert member.assignment == member.target_assignment
        assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [
            ("t", [0, 1, 2, 3])
        ]

    broker(scenario)


def test_only_empty_groups_are_deleted_and_with_everything_they_had(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.beat()
        await world.commit({("t", 0): 1}, group_id="simple")
        await world.commit({("t", 0): 1}, 9, member_id="m", generation_id_or_member_epoch=1)
        names = ["g", "simple", "nobody"]
        answer = await world.wire(DeleteGroupsRequest(groups_names=names), 2)
        assert {r.group_id: r.error_code for r in answer.results} == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "simple": 0,
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        await world.beat("m", -1)
        assert (await world.wire(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == 0
        await world.fail_over()
        assert (await world.wire(ListGroupsRequest(), 5)).groups == []
        assert await world.fetch() == {}

    broker(scenario)


def test_empty_groups_change_protocol_and_keep_their_offsets(broker: Any) -> None:
    async def scenario(world: Broker) -> None:
        await world.lead()
        await world.commit({("t", 0): 1})
        assert (await world.beat()).error_code == 0, "an empty classic group is replaced"
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert (await world.wire(join, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await world.beat("m", -1)
        assert (await world.wire(join, 5)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (await world.beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND, (
            "a classic member is on its way"
        )
        assert await world.fetch() == {("t", 0): 1}

    broker(scenario)
