"""The metadata layer with many partitions: prints figures and their growth, asserts none.

    python benchmarks/metadata.py [--partitions 1000,100000] [--rows ROW,…] [--trials 20]

Runs real nodes in their own processes (benchmarks/bench_nodes.py): one controller and one broker without
replicas, three controllers for the failover row. The replicas belong to synthetic brokers that only register
and send heartbeats. Topics have 100 partitions, replication factor 3.

Rows: create, memory, change, propagation, answers, fence, broker-start, failover, replay. ``stall`` is the
longest time the event loop was blocked during a phase: by the wall clock (which on a shared machine includes
the time of other processes) and by the processor time of the loop's thread.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench_nodes import (
    ControllerClient,
    KafkaClient,
    NodeProcess,
    SyntheticBroker,
    percentile,
    running,
)

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykraft.kafka_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import PartitionRecord, TopicRecord
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.listener import CommittedBatch
from pykraft.runtime.memory import keep_out_of_collection
from pykraft.testing.processes.waits import until
from pykraft.testing.processes.wire_client import decode_answer

ROWS = ("create", "memory", "change", "propagation", "answers", "fence", "broker-start", "failover", "replay")
PER_TOPIC = 100
TOPICS_A_REQUEST = 20
SESSION_MS = 9000
SYNTHETIC = (1001, 1002, 1003)


def say(row: str, partitions: int, text: str) -> None:
    print(f"{row:<14}{partitions:>9,}  {text}", flush=True)


def stall(figures: dict[str, float]) -> str:
    return (
        f"stall p99 {figures['p99_ms']:.1f}, max {figures['max_ms']:.1f} ms"
        f" (of its own {figures['max_cpu_ms']:.1f} ms)"
    )


@dataclass
class Cluster:
    """Controllers, a broker without replicas (none for the failover row), and the synthetic brokers."""

    controllers: list[NodeProcess]
    broker: NodeProcess | None
    client: ControllerClient
    synthetic: dict[int, SyntheticBroker]
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    async def create_all(self, partitions: int) -> None:
        """Topics ``t-0``, ``t-1`` … with ``partitions`` partitions in all, leaders in turn."""
        count = max(1, partitions // PER_TOPIC)
        for first in range(0, count, TOPICS_A_REQUEST):
            last = min(count, first + TOPICS_A_REQUEST)
            await self.create([f"t-{number}" for number in range(first, last)], PER_TOPIC)

    async def create(self, names: Sequence[str], partitions: int) -> None:
        ring = SYNTHETIC * 2
        request = CreateTopicsRequest(
            timeout_ms=60_000,
            topics=[
                CreatableTopic(
                    name=name, num_partitions=-1, replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(
                            partition_index=index, broker_ids=list(ring[index % 3 : index % 3 + 3])
                        )
                        for index in range(partitions)
                    ],
                )
                for name in names
            ],
        )  # fmt: skip
        response = await self.client.forward(request, 7)
        for topic in response.topics:
            assert topic.error_code == 0, topic.error_message
            self.topic_ids[topic.name] = topic.topic_id

    async def shrink_and_grow(self, name: str, round_number: int) -> None:
        """One changed partition: its leader removes a follower from the ISR, or adds it again."""
        leader = self.synthetic[SYNTHETIC[0]]
        isr = SYNTHETIC[:2] if round_number % 2 == 0 else SYNTHETIC
        change = pb.AlterPartitionPartition(
            index=0, leader_epoch=0, partition_epoch=round_number,
            new_isr=[pb.IsrMember(broker_id=id, broker_epoch=self.synthetic[id].epoch) for id in isr],
        )  # fmt: skip
        topic = pb.AlterPartitionTopic(topic_id=self.topic_ids[name], partitions=[change])
        request = pb.AlterPartitionRequest(
            broker_id=leader.broker_id, broker_epoch=leader.epoch, topics=[topic]
        )
        response = await self.client.call("AlterPartition", request, pb.AlterPartitionResponse)
        assert response.topics[0].partitions[0].error_code == 0, response

    async def caught_up(self, *nodes: NodeProcess) -> None:
        """Wait until every one of ``nodes`` has applied what the first controller has."""
        offset = max([int(await node.ask("offset")) for node in self.controllers])

        async def reached() -> bool:
            return min([int(await node.ask("offset")) for node in nodes]) >= offset

        await until(reached, timeout_s=600)


@contextlib.asynccontextmanager
async def cluster(controllers: int, brokers: int) -> AsyncIterator[Cluster]:
    session = {"broker_session_timeout_ms": str(SESSION_MS)}
    async with running(controllers, brokers, SYNTHETIC, **session) as (nodes, client, synthetic):
        yield Cluster(nodes[:controllers], nodes[controllers] if brokers else None, client, synthetic)


# --- one controller, one broker ---


async def measure(partitions: int, rows: Sequence[str], trials: int) -> dict[str, float]:
    """The rows of a small cluster with ``partitions`` partitions; returns the figures to compare."""
    compared: dict[str, float] = {}
    async with cluster(1, 1) as small:
        controller, broker = small.controllers[0], small.broker
        assert broker is not None
        before = [await node.ask("memory") for node in (controller, broker)]
        await reset(controller, broker)
        begin = time.monotonic()
        await small.create_all(partitions)
        seconds = time.monotonic() - begin
        await small.caught_up(broker)
        behind = time.monotonic() - begin - seconds
        if "create" in rows:
            say(
                "create",
                partitions,
                f"{seconds:.2f} s ({partitions / seconds:,.0f}/s), broker {behind * 1000:.0f} ms later",
            )
            await say_stalls("create", partitions, controller, broker)
        if "memory" in rows:
            after = [await node.ask("memory") for node in (controller, broker)]
            each = [(late - early) / partitions for early, late in zip(before, after, strict=True)]
            say("memory", partitions, f"bytes a partition: controller {each[0]:.0f}, broker {each[1]:.0f}")
        if "change" in rows:
            compared["change"] = await measure_change(small, partitions)
        if "propagation" in rows:
            await measure_propagation(small, partitions)
        if "answers" in rows:
            compared["answer"] = await measure_answers(small, partitions)
        if "broker-start" in rows:
            await measure_broker_start(small, partitions)
        if "fence" in rows:
            await measure_fence(small, partitions)
    return compared


async def reset(*nodes: NodeProcess) -> None:
    for node in nodes:
        await node.ask("reset")


async def say_stalls(row: str, partitions: int, controller: NodeProcess, broker: NodeProcess) -> None:
    for name, node in (("controller", controller), ("broker", broker)):
        say(f"{row} stall", partitions, f"{name}: {stall(await node.ask('stalls'))}")


async def until_idle(nodes: Sequence[NodeProcess]) -> None:
    """Wait: snapshots of the new topics may still be written."""

    async def idle() -> bool:
        before = [await node.ask("cpu") for node in nodes]
        await asyncio.sleep(1)
        after = [await node.ask("cpu") for node in nodes]
        return all(new - old < 0.3 for new, old in zip(after, before, strict=True))

    await until(idle)


async def measure_change(small: Cluster, partitions: int, rounds: int = 300) -> float:
    controller, broker = small.controllers[0], small.broker
    assert broker is not None
    await until_idle([controller, broker])
    cpu = [await node.ask("cpu") for node in (controller, broker)]
    latencies = []
    for number in range(rounds):
        begin = time.monotonic()
        await small.shrink_and_grow("t-0", number)
        latencies.append(time.monotonic() - begin)
    await small.caught_up(broker)
    spent = [
        (await node.ask("cpu") - old) / rounds for node, old in zip((controller, broker), cpu, strict=True)
    ]
    say(
        "change", partitions,
        f"one changed partition: answered p50 {percentile(latencies, 0.5) * 1000:.1f} ms, p99"
        f" {percentile(latencies, 0.99) * 1000:.1f} ms; CPU controller {spent[0] * 1e6:.0f} µs, broker"
        f" {spent[1] * 1e6:.0f} µs (tickers and fetches included)",
    )  # fmt: skip
    return float(sum(spent))


async def measure_propagation(small: Cluster, partitions: int, rounds: int = 200) -> None:
    assert small.broker is not None
    lags = []
    for number in range(rounds):
        seen = asyncio.create_task(small.broker.ask(f"has_topic p-{number}"))
        await small.create([f"p-{number}"], 1)
        answered = time.monotonic()
        lags.append((await seen - answered) * 1000)
    say(
        "propagation", partitions,
        f"answered → another broker's image: p50 {percentile(lags, 0.5):.1f} ms, p99"
        f" {percentile(lags, 0.99):.1f} ms (negative: before the answer had arrived)",
    )  # fmt: skip


async def measure_answers(small: Cluster, partitions: int) -> float:
    broker = small.broker
    assert broker is not None
    client = KafkaClient(broker.spec.port)
    await client.connect()
    one = MetadataRequest(topics=[MetadataRequestTopic(name="t-0")], allow_auto_topic_creation=False)
    everything = MetadataRequest(topics=None)
    await client.ask(one, 12)
    times_one = [await timed(client.ask(one, 12)) for _ in range(300)]
    await reset(broker)
    first = await timed(client.ask(everything, 12))
    times_all = [await timed(client.ask(everything, 12)) for _ in range(5)]
    figures = await broker.ask("stalls")
    answer = await client.ask(everything, 12)
    topics = decode_answer(MetadataResponse, 12, answer).topics
    listed = sum(len(topic.partitions) for topic in topics)
    assert listed >= partitions, f"{listed} partitions listed"
    client.close()
    say(
        "answers", partitions,
        f"Metadata: one topic p50 {percentile(times_one, 0.5) * 1e6:.0f} µs, p99"
        f" {percentile(times_one, 0.99) * 1e6:.0f} µs; all topics first {first * 1000:.0f} ms, then"
        f" {statistics.median(times_all) * 1000:.0f} ms ({len(answer) / 1e6:.1f} MB)",
    )  # fmt: skip
    say("answers stall", partitions, f"broker: {stall(figures)}")
    return percentile(times_one, 0.5)


async def timed(work: Any) -> float:
    begin = time.monotonic()
    await work
    return time.monotonic() - begin


async def measure_broker_start(small: Cluster, partitions: int) -> None:
    broker = small.broker
    assert broker is not None
    await restart(small, broker)
    say(
        "broker-start", partitions, f"from the log: process start → serving {await say_start(broker)}"
    )  # fmt: skip
    say("start stall", partitions, f"broker: {stall(await broker.ask('stalls'))}")
    with open(broker.spec.properties, "a") as file:
        # So low that reading the log at the start triggers a snapshot of nearly all of it.
        file.write(f"metadata.log.max.record.bytes.between.snapshots={partitions * 40}\n")
    await restart(small, broker)
    log_directory = broker.spec.properties.parent / "data" / "__cluster_metadata-0"

    async def has_snapshot() -> bool:
        return any(int(path.name[:20]) > partitions // 2 for path in log_directory.glob("*.checkpoint"))

    await until(has_snapshot, timeout_s=120)
    await restart(small, broker)
    say(
        "broker-start", partitions,
        f"from a snapshot: process start → serving {await say_start(broker)}",
    )  # fmt: skip
    say("start stall", partitions, f"broker: {stall(await broker.ask('stalls'))}")


async def say_start(broker: NodeProcess) -> str:
    return f"{broker.ready_s - broker.started_s:.2f} s, {await broker.ask('cpu'):.2f} s of CPU"


async def restart(small: Cluster, broker: NodeProcess) -> None:
    await broker.stop()
    await broker.start()
    await small.caught_up(broker)


async def measure_fence(small: Cluster, partitions: int) -> None:
    controller, broker = small.controllers[0], small.broker
    assert broker is not None
    victim = small.synthetic[SYNTHETIC[1]]
    led = await broker.ask(f"led_by {victim.broker_id}")
    await reset(controller, broker)
    await victim.fall_silent()

    async def is_fenced() -> bool:
        return str(victim.broker_id) in (await broker.ask("changes"))["fenced_s"]

    async def is_over() -> bool:
        # Not by counting leaders: that would block the loop that is being measured.
        before = await broker.ask("changes")
        await asyncio.sleep(1.5)
        after = await broker.ask("changes")
        return bool(after["count"] >= led and after == before)

    await until(is_fenced, timeout_s=60)
    await until(is_over, timeout_s=60)
    changes = await broker.ask("changes")
    figures = [
        (name, await node.ask("stalls")) for name, node in (("controller", controller), ("broker", broker))
    ]
    left = await broker.ask(f"led_by {victim.broker_id}")
    fenced_s = changes["fenced_s"][str(victim.broker_id)]
    first_ms, last_ms = ((changes[when] - fenced_s) * 1000 for when in ("first_s", "last_s"))
    say(
        "fence", partitions,
        f"a dead broker's {led:,} leaders moved {first_ms:.0f} to {last_ms:.0f} ms after the fence"
        f" ({left} left behind, {changes['count']:,} partitions changed)",
    )  # fmt: skip
    for name, held in figures:
        say("fence stall", partitions, f"{name}: {stall(held)}")


# --- three controllers ---


async def measure_failover(partitions: int, trials: int) -> float:
    """Median milliseconds from kill -9 of the active controller to the next answered command."""
    outages = []
    async with cluster(3, 0) as trio:
        await trio.create_all(partitions)
        for _ in range(trials):
            await trio.caught_up(*trio.controllers)
            active = [node for node in trio.controllers if await node.ask("is_active")][-1]
            begin = time.monotonic()
            await active.kill()
            request = pb.AllocateProducerIdsRequest(
                broker_id=SYNTHETIC[0], broker_epoch=trio.synthetic[SYNTHETIC[0]].epoch
            )
            await trio.client.call("AllocateProducerIds", request, pb.AllocateProducerIdsResponse)
            outages.append((time.monotonic() - begin) * 1000)
            await active.start()
    say(
        "failover", partitions,
        f"kill -9 of the active controller → next answer: median {statistics.median(outages):.0f} ms"
        f" ({min(outages):.0f} to {max(outages):.0f}) of {trials}",
    )  # fmt: skip
    return statistics.median(outages)


# --- replay alone ---


def measure_replay(partitions: int) -> None:
    """Feed committed batches, and then a snapshot, to a loader as in a node; no disk, no network."""
    batches, offset = [], 0
    for number in range(max(1, partitions // PER_TOPIC)):
        topic_id = Uuid((number + 1).to_bytes(16, "big"))
        ring = SYNTHETIC * 2
        records: list[Any] = [TopicRecord(f"t-{number}", topic_id)]
        for index in range(PER_TOPIC):
            replicas = ring[index % 3 : index % 3 + 3]
            records.append(PartitionRecord(index, topic_id, replicas, replicas, replicas[0]))
        values = tuple(encode_record(record) for record in records)
        size = sum(len(value) for value in values)
        batches.append(CommittedBatch(offset, offset + len(values) - 1, 1, 0, values, size))
        offset += len(values)
    loader = MetadataLoader(on_growth=keep_out_of_collection)
    begin = time.process_time()
    for at in range(0, len(batches), 10):
        loader.handle_commit(batches[at : at + 10])
    seconds = time.process_time() - begin
    say("replay", partitions, f"{partitions / seconds:,.0f} partition records/s into a loader")
    image = loader.image
    begin = time.process_time()
    slices = list(iter_snapshot_values(image))
    written = time.process_time() - begin
    loader = MetadataLoader(on_growth=keep_out_of_collection)
    begin = time.process_time()
    loader.begin_snapshot(SnapshotId(offset, 1), 0)
    for part in slices:
        loader.handle_snapshot_values(part)
    loader.finish_snapshot()
    loaded = time.process_time() - begin
    assert loader.image == image
    say(
        "snapshot",
        partitions,
        f"made in {written:.2f} s, loaded in {loaded:.2f} s (records and image, no disk)",
    )


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", default="1000,100000")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--trials", type=int, default=20, help="of the failover row")
    options = parser.parse_args()
    rows = options.rows.split(",")
    unknown = set(rows) - set(ROWS)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    sizes = [int(size) for size in options.partitions.split(",")]
    compared = {}
    for size in sizes:
        if "replay" in rows:
            measure_replay(size)
        if set(rows) - {"replay", "failover"}:
            compared[size] = await measure(size, rows, options.trials)
        if "failover" in rows:
            compared.setdefault(size, {})["failover"] = await measure_failover(size, options.trials)
    smallest = compared.get(sizes[0], {})
    for size in sizes[1:]:
        for name, value in compared.get(size, {}).items():
            say(f"ratio {name}", size, f"{value / smallest[name]:.2f} times that of {sizes[0]:,}")


if __name__ == "__main__":
    asyncio.run(main())
