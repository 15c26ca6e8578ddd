"""Shared by the tests of the group coordinator: a log in memory, a clock set by hand, topics."""

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Unpack

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator.consumer.heartbeat import handle_consumer_heartbeat
from pykraft.group_coordinator.consumer.regex_refresh import handle_resolution
from pykraft.group_coordinator.consumer.regex_worker import resolve_now
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.shard import GroupOutcome, GroupShard
from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey
from pykraft.group_coordinator.state.result import AnyResult, Call, CommitCodes, CoordinatorResult, Resolution
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.headers import encode_response_header
from pykraft.kafka_protocol.hot.offset_commit import (
    CommitRequestView,
    build_offset_commit_response,
    parse_offset_commit,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
)
from pykraft.kafka_protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.features import GROUP_VERSION
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.persistent import Map
from tests.broker.answers import as_read
from tests.clocks import ManualClock
from tests.group_coordinator.requests import HeartbeatFields, consumer_heartbeat
from tests.group_coordinator.requests import to_request as to_request
from tests.group_coordinator.requests import topic_id as topic_id
from tests.stand_ins import stand_in

CALLER = RequestContext(client_id="cli", client_address="127.0.0.1")

ROWS: dict[int, Any] = {api.key: api for api in make_apis()}


@dataclass
class MemoryWriter:
    """``__consumer_offsets`` in memory. The high watermark follows by itself unless ``hold`` is set."""

    logs: dict[int, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    batches: list[tuple[int, int, list[tuple[bytes, bytes | None]]]] = field(default_factory=list)
    watermarks: dict[int, int] = field(default_factory=dict)
    hold: bool = False
    refuse: ErrorCode | None = None
    read_slice: int = 100
    read_gate: asyncio.Event | None = None

    max_bytes: int = 1_048_588

    def append(
        self, partition: int, leader_epoch: int, records: Iterable[tuple[bytes, bytes | None]], now_ms: int
    ) -> int:
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        batch = list(records)
        assert batch, "an empty batch"
        log = self.logs.setdefault(partition, [])
        log.extend(batch)
        self.batches.append((partition, leader_epoch, batch))
        if not self.hold:
            self.watermarks[partition] = len(log)
        return len(log)

    def high_watermark(self, partition: int) -> int:
        return self.watermarks.get(partition, 0)

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        raise AssertionError("no transaction ends here")

    def max_batch_bytes(self, partition: int) -> int:
        return self.max_bytes

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        if self.read_gate is not None:
            await self.read_gate.wait()
        records = self.logs.get(partition, [])[start_offset : start_offset + self.read_slice]
        return as_batches(start_offset, records), start_offset + len(records)


def as_batches(base_offset: int, records: Iterable[tuple[bytes, bytes | None]]) -> list[BatchBody]:
    """The records as one batch, as a coordinator reads it; none if there are none."""
    builder = BatchBuilder()
    for key, value in records:
        builder.add(key, value)
    if not builder.record_count:
        return []
    return [BatchBody(base_offset, builder.record_count, bytes(builder.body[HEADER_BYTES:]))]


def load(shard: GroupShard, records: Sequence[tuple[bytes, bytes | None]], config: GroupConfig) -> None:
    """Load all that is in a log into a shard."""
    loader = Loader(shard.partition)
    for work in (loader.load(as_batches(0, records)), loader.finish()):
        for _ in work:
            pass
    shard.finish_loading(len(records), loader.state, lambda group_id: config)


def commit_view(request: OffsetCommitRequest, version: int) -> CommitRequestView:
    """The request as the coordinator reads it from the wire."""
    return parse_offset_commit(memoryview(request.encode(version)), 0, version)


def commit_response(view: CommitRequestView, codes: CommitCodes, version: int) -> OffsetCommitResponse:
    """The response as a client reads it from the wire."""
    frame = build_offset_commit_response(version, 0, view.topics, codes)
    header_bytes = len(encode_response_header(ApiKey.OFFSET_COMMIT, version, 0))
    return OffsetCommitResponse.decode(bytes(frame[SIZE_BYTES + header_bytes :]), version)


async def commit(
    service: GroupCoordinatorService, context: RequestContext, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse:
    """What a broker answers to a commit."""
    view = commit_view(request, version)
    waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    codes: CommitCodes
    try:
        if service.commit_offsets(context, view, version, waiter):
            codes = await waiter
        else:
            codes = await service.offset_commit(context, view, version)
    except KafkaError as error:
        codes = int(error.code)
    return commit_response(view, codes, version)


def make_image(
    sizes: dict[str, int], offset: int = 1, incarnations: dict[str, int] | None = None
) -> MetadataImage:
    """An image with topics of the given numbers of partitions."""
    registration = PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    topics = [
        TopicImage(name, topic_id(name, (incarnations or {}).get(name, 1)), (registration,) * count)
        for name, count in sizes.items()
    ]
    return MetadataImage(
        offset=offset,
        topics_by_id=Map({topic.id: topic for topic in topics}),
        topic_ids=Map({topic.name: topic.id for topic in topics}),
    )


class ShardLab:
    """One loaded shard, driven without an event loop."""

    def __init__(self, sizes: dict[str, int], config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig(consumer_assignment_interval_ms=0)
        self.resolution: Resolution | None = None
        self.clock = ManualClock()
        self.writer = MemoryWriter()
        self.topics = TopicsView(make_image(sizes))
        self.shard = self.load()

    def load(self) -> GroupShard:
        """A shard that knows only what the log says."""
        shard = GroupShard(0, 1, self.writer)
        load(shard, self.writer.logs.get(0, []), self.config)
        shard.start_sessions(self.clock.now_ms, 2**31)
        return shard

    def fail_over(self) -> None:
        self.shard = self.load()

    def set_topics(self, sizes: dict[str, int], incarnations: dict[str, int] | None = None) -> None:
        old = self.topics.image
        image = make_image(sizes, old.offset + 1, incarnations)
        are_new = any(topic_id not in old.topics_by_id for topic_id in image.topics_by_id)
        self.topics = TopicsView(image, self.topics, are_new=are_new)

    def call(self, version: int = 1, **more: str) -> Call:
        values = {"client_id": "client", "client_host": "/127.0.0.1", "new_member_id": "new-id"} | more
        return Call(self.config, self.topics, version, self.clock.now_ms, **values)  # type: ignore[arg-type]

    @property
    def state(self) -> ShardState:
        return self.shard.state

    def apply(self, decide: Callable[[ShardState], AnyResult]) -> GroupOutcome:
        outcome = self.shard.apply(decide, wall_ms=self.clock.now_ms, now_ms=self.clock.now_ms)
        self.resolution = outcome.result.resolution or self.resolution
        return outcome

    def resolve(self) -> bool:
        """Find the topics of regular expressions, if a heartbeat has asked for that."""
        asked, self.resolution = self.resolution, None
        if asked is not None:
            found = resolve_now(asked, self.topics)
            self.apply(lambda state: handle_resolution(state, asked.group_id, found, self.topics))
        return asked is not None

    def pass_time(self, delay_ms: int) -> list[GroupOutcome]:
        self.clock.now_ms += delay_ms
        return self.shard.expire(self.call(), now_ms=self.clock.now_ms)

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        owned: Set[tuple[Uuid, int]] | None = None,
        *,
        version: int = 1,
        **fields: Unpack[HeartbeatFields],
    ) -> ConsumerGroupHeartbeatResponse:
        """Heartbeat of a member of group ``g``; a join fills in the fields that a join must have."""
        request = consumer_heartbeat(member_id, epoch, owned, **fields)
        outcome = self.apply(lambda state: handle_consumer_heartbeat(state, request, self.call(version)))
        assert isinstance(outcome.result.response, ConsumerGroupHeartbeatResponse)
        return outcome.result.response

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.state.consumer_group("g")
        assert group is not None
        return group


def assigned(response: ConsumerGroupHeartbeatResponse) -> frozenset[tuple[Uuid, int]]:
    assert response.assignment is not None
    return frozenset((t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions)


DESCRIPTIONS = (DescribeGroupsResponse, ConsumerGroupDescribeResponse, DeleteGroupsResponse)
"""Of these a part is encoded already."""


async def answer(
    service: GroupCoordinatorService, context: RequestContext, request: Message, version: int
) -> Message:
    """The broker's answer to a request for its coordinator, errors included."""
    if isinstance(request, OffsetCommitRequest):
        return await commit(service, context, request, version)
    row = ROWS[request.API_KEY]
    image = MetadataImage(features=Map({GROUP_VERSION: 1}))
    broker = stand_in(BrokerServices, groups=service, metadata=MetadataCache(1, "cluster", image))
    try:
        response: Message = await row.handle(broker, context, request, version)
    except KafkaError as error:
        response = row.error_response(request, version, error)
    return as_read(response, version) if isinstance(response, DESCRIPTIONS) else response


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    return decode_record(key, value)


def tombstones(keys: Iterable[tuple[str, str, int]]) -> AnyResult:
    """Delete committed offsets, by group, topic and partition."""
    return CoordinatorResult(None, tuple(GroupRecord(OffsetCommitKey(*key), None) for key in keys))


def heartbeat_result(lab: ShardLab, state: ShardState, member_id: str) -> AnyResult:
    """What is decided when a member joins group ``g``."""
    return handle_consumer_heartbeat(state, consumer_heartbeat(member_id), lab.call())
