"""A log of ``__consumer_offsets`` with real batches and markers, and a coordinator on it, driven by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pykraft.broker.logs.producers.state import ProducerState
from pykraft.broker.logs.producers.verification import UNVERIFIED
from pykraft.broker.replicas.leading.coordinator_topic import unfold_batches
from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.offsets.transactional import TransactionalCommit
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state.result import Call
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker, build_marker
from pykraft.kafka_protocol.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pykraft.kafka_protocol.records import BatchHeader, assign_offset, read_header
from tests.group_coordinator import tools


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes


class TransactionalLog:
    """The high watermark follows by itself unless ``hold`` is set."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.producers = ProducerState()
        self.hold = False
        self.refuse: ErrorCode | None = None
        self.mark = 0

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    def append(self, partition: int, leader_epoch: int, records: BatchBuilder, now_ms: int) -> int:
        data = records.build(leader_epoch, now_ms)
        header = read_header(memoryview(data))
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        if header.producer_id >= 0:
            self.producers.check(header, UNVERIFIED)
        return self._append(data, None)

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        self.producers.check_end(end)
        data = bytearray(build_marker(end.producer_id, end.producer_epoch, end.marker, now_ms))
        return self._append(data, end.marker)

    def _append(self, data: bytearray, marker: Marker | None) -> int:
        assign_offset(data, 0, self.end, 0)
        header = read_header(memoryview(data))
        self.producers.replay(header, marker)
        self.batches.append(Batch(header, bytes(data)))
        if not self.hold:
            self.mark = self.end
        return self.end

    def max_batch_bytes(self, partition: int) -> int:
        return 1_048_588

    def high_watermark(self, partition: int) -> int:
        return self.mark

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        data = b"".join(batch.data for batch in self.batches if batch.header.next_offset > start_offset)
        return unfold_batches(data, start_offset, "test")


def load_state(log: TransactionalLog) -> ShardState:
    """What a new leader makes of the log, read from its beginning."""
    loader = Loader(0)
    batches, _ = unfold_batches(b"".join(batch.data for batch in log.batches), 0, "test")
    for work in (loader.load(batches), loader.finish()):
        for _ in work:
            pass
    return loader.state


class TransactionalLab(tools.ShardLab):
    def __init__(self, sizes: Mapping[str, int] = MappingProxyType({"t": 4, "u": 4})) -> None:
        self.log = TransactionalLog()
        super().__init__(dict(sizes))

    def load(self) -> GroupShard:
        shard = GroupShard(0, 1, self.log)
        shard.finish_loading(self.log.end, load_state(self.log), lambda _: self.config)
        shard.start_sessions(self.clock.now_ms, 2**31)
        return shard

    def call(self, version: int = 5, **more: str) -> Call:
        return super().call(version, **more)

    def commit(self, request: TxnOffsetCommitRequest, version: int = 5) -> list[int]:
        """The error codes of all partitions."""
        return codes_of(self.answer(request, version))

    def answer(self, request: TxnOffsetCommitRequest, version: int = 5) -> TxnOffsetCommitResponse:
        commit = TransactionalCommit(request, self.call(version))
        try:
            codes = self.apply(commit.decide).result.response
        except KafkaError as error:
            return at_once(commit.refuse(error.code))
        assert isinstance(codes, list)
        return at_once(commit.build(codes))

    def end(self, producer_id: int, *, commits: bool, epoch: int = 0) -> None:
        self.shard.end_transaction(
            end_of(producer_id, commits=commits, epoch=epoch), wall_ms=self.clock.now_ms
        )

    def offset(self, partition: int = 0, topic: str = "t", group_id: str = "g") -> int | None:
        value = self.state.committed(group_id, topic, partition)
        return None if value is None else value.offset

    def is_open(self, partition: int = 0, topic: str = "t", group_id: str = "g") -> bool:
        return partition in self.state.pending.of_topic(group_id, topic)


def end_of(producer_id: int, *, commits: bool, epoch: int = 0) -> EndOfTransaction:
    return EndOfTransaction(producer_id, epoch, Marker(COMMIT if commits else ABORT, 0))


def commit_request(
    offsets: dict[int, int],
    producer_id: int = 1,
    *,
    topic: str = "t",
    group_id: str = "g",
    epoch: int = 0,
    metadata: str | None = "",
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> TxnOffsetCommitRequest:
    """``offsets`` by partition."""
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id=f"txn-{producer_id}",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def codes_of(response: TxnOffsetCommitResponse) -> list[int]:
    return [one.error_code for topic in response.topics for one in topic.partitions]


async def verified(partition: int) -> Callable[[], None]:
    """A transaction coordinator that agrees to everything."""
    await asyncio.sleep(0)
    return lambda: None


Verify = Callable[[int], Awaitable[Callable[[], None]]]
