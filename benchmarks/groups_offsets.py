"""Committed offsets at scale: how fast they are loaded and committed, and what they take in memory.

Without a broker and a disk: the coordinator's own code, on a log in memory. For each shape of a million
entries (some groups, each with partitions of one topic) a process of its own reads a compacted log: first one
in which each batch holds the offsets of one commit, then one whose records are in random order, the worst
case. Memory is that of the process, before and after, with the log freed. Slices are what runs in one turn of
the event loop.

    python benchmarks/groups_offsets.py [--entries 1000000] [--partitions 1000 100 10]
"""

import argparse
import gc
import random
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state.commits import TopicCommit, write_commit
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.offset_table import Rows, pack_row
from pykraft.group_coordinator.state.result import Call
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.hot.offset_commit import build_offset_commit_response, parse_offset_commit
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.persistent import Map

T = TypeVar("T")
TOPIC = Uuid(b"benchmark-topic-")
NOW_MS = 1_800_000_000_000
VERSION = 9
_RECORDS_PER_BATCH = 10_000


def batches_in_order(groups: int, partitions: int) -> Iterator[BatchBody]:
    """Each batch is one commit."""
    row = pack_row(123_456_789, 3, NOW_MS)
    for group in range(groups):
        builder = BatchBuilder()
        rows = Rows(range(partitions), row * partitions, TOPIC)
        write_commit(builder, TopicCommit(f"group-{group:06}", "topic", rows))
        yield body_of(builder, group * partitions)


def batches_at_random(groups: int, partitions: int) -> Iterator[BatchBody]:
    """No two records of a group follow each other, other than by chance."""
    order = list(range(groups * partitions))
    random.Random(1).shuffle(order)
    row = pack_row(123_456_789, 3, NOW_MS)
    for start in range(0, len(order), _RECORDS_PER_BATCH):
        builder = BatchBuilder()
        for number in order[start : start + _RECORDS_PER_BATCH]:
            group, partition = divmod(number, partitions)
            write_commit(builder, TopicCommit(f"group-{group:06}", "topic", Rows((partition,), row, TOPIC)))
        yield body_of(builder, start)


def body_of(builder: BatchBuilder, base_offset: int) -> BatchBody:
    return BatchBody(base_offset, builder.record_count, bytes(builder.body[HEADER_BYTES:]))


def load(batches: Iterable[BatchBody]) -> tuple[Loader, float, float]:
    """Load the batches; return the loader, the time, and the longest slice."""
    loader = Loader(0)
    longest = 0.0
    started = time.process_time()
    for work in (loader.load(batches), loader.finish()):
        began = time.process_time()
        for _ in work:
            longest = max(longest, time.process_time() - began)
            began = time.process_time()
    return loader, time.process_time() - started, longest


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure_load(groups: int, partitions: int, at_random: bool) -> tuple[float, float]:
    """Entries a second, and the longest slice in ms."""
    make = batches_at_random if at_random else batches_in_order
    gc.collect()
    gc.freeze()
    gc.disable()
    loader, seconds, longest = load(list(make(groups, partitions)))
    loaded = sum(len(table) for topics in loader.state.offsets.values() for table in topics.values())
    assert loaded == groups * partitions
    return loaded / seconds, longest * 1000


def measure_memory(groups: int, partitions: int) -> float:
    """Bytes an entry."""
    gc.freeze()
    gc.disable()
    load(batches_in_order(10, partitions))
    before = resident_bytes()
    loader, _, _ = load(batches_in_order(groups, partitions))
    used = resident_bytes() - before
    assert len(loader.state.offsets) == groups
    return used / groups / partitions


class Log:
    """A writer that forgets what is written; all of it is committed."""

    def __init__(self) -> None:
        self.end = 0

    def append(self, partition: int, leader_epoch: int, records: BatchBuilder, now_ms: int) -> int:
        records.build(leader_epoch, now_ms)
        self.end += records.record_count
        return self.end

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        raise AssertionError("no transaction ends here")

    def max_batch_bytes(self, partition: int) -> int:
        return 1 << 20

    def high_watermark(self, partition: int) -> int:
        return self.end

    async def read(self, partition: int, start_offset: int) -> tuple[list[BatchBody], int]:
        return [], start_offset


def image_of(topic: str, partitions: int) -> MetadataImage:
    registration = PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    registered = TopicImage(topic, TOPIC, (registration,) * partitions)
    return MetadataImage(offset=1, topics_by_id=Map({TOPIC: registered}), topic_ids=Map({topic: TOPIC}))


def measure_commits(partitions: int, step: int) -> float:
    """µs from the bytes of a request to those of its response, each in a batch of its own."""
    config = GroupConfig()
    topics = TopicsView(image_of("topic", partitions * step))
    shard = GroupShard(0, 1, Log())
    shard.finish_loading(0, EMPTY_STATE, lambda _: config)
    committed = [
        OffsetCommitRequestPartition(partition_index=number * step, committed_offset=5)
        for number in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id="group", topics=[OffsetCommitRequestTopic(name="topic", partitions=committed)]
    )
    frame = memoryview(bytearray(request.encode(VERSION)))
    rounds = max(5, 20_000 // (partitions + 10))

    def commit(number: int) -> None:
        view = parse_offset_commit(frame, 0, VERSION)
        call = Call(config, topics, VERSION, NOW_MS + number)
        outcome = shard.stage(
            lambda state: handle_offset_commit(state, view, call), wall_ms=NOW_MS, now_ms=number
        )
        assert outcome is not None and isinstance(outcome.result.response, list)
        shard.flush()
        build_offset_commit_response(VERSION, number, view.topics, outcome.result.response)

    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for number in range(rounds):
            commit(number)
        best = min(best, time.process_time() - started)
    return best / rounds * 1e6


def alone(measure: Callable[..., T], *arguments: object) -> T:
    """In a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def lines(entries: int, shapes: Iterable[int]) -> Iterator[str]:
    yield "| one commit, without network and log | processor time |"
    yield "|---|---:|"
    for partitions, step in ((1, 1), (10, 1), (1_000, 1), (1_000, 3)):
        apart = "" if step == 1 else ", every third"
        plural = "" if partitions == 1 else "s"
        cost_us = alone(measure_commits, partitions, step)
        yield f"| {partitions:,} partition{plural}{apart} | {cost_us:,.0f} µs |"
    yield ""
    yield (
        f"| {entries:,} offsets | memory, bytes each | loaded, commit by commit | longest slice "
        "| loaded, in random order | longest slice |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for partitions in shapes:
        groups = entries // partitions
        memory = alone(measure_memory, groups, partitions)
        ordered, ordered_ms = alone(measure_load, groups, partitions, False)
        at_random, random_ms = alone(measure_load, groups, partitions, True)
        yield (
            f"| {groups:,} groups, {partitions:,} partitions each | {memory:.0f} | {ordered:,.0f}/s "
            f"| {ordered_ms:.1f} ms | {at_random:,.0f}/s | {random_ms:.1f} ms |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 100, 10])
    options = parser.parse_args()
    for line in lines(options.entries, options.partitions):
        print(line, flush=True)


if __name__ == "__main__":
    main()
