"""How long requests of very many topics or partitions, or members, hold the event loop of their coordinator.

One controller and one broker in their own processes, with real logs. For each request: the longest time for
which the loop did nothing else, in wall time (of which other processes may have had a part) and in processor
time, and the processor time of all of it.

    python benchmarks/long_turns.py [--topics 10000] [--partitions 9000] [--members 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench_nodes import KafkaClient, NodeProcess, _new_loop, create_topic, make_cluster, until
from comparison.group_members import ClassicLife, ConsumerLife, Life, Topic
from coordination.fleet import Fleet, Seat

from pykraft.kafka_protocol.messages import (
    consumer_group_heartbeat,
    create_topics,
    delete_groups,
    find_coordinator,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
)

WIDE = "wide"
_TOPICS_AT_ONCE = 500
_VERSION = 9


async def run(topics: int, partitions: int, members: int, directory: Path) -> None:
    controller_spec, broker_spec = make_cluster(
        directory,
        1,
        1,
        offsets_topic_replication_factor="1",
        offsets_topic_num_partitions="1",
        group_initial_rebalance_delay_ms="0",
    )
    controller, broker = NodeProcess(controller_spec), NodeProcess(broker_spec)
    try:
        await asyncio.gather(controller.start(), broker.start())
        client = KafkaClient(broker_spec.port)
        await client.connect()
        await until(lambda: is_served(client))
        print("| request | longest turn | of it processor time | processor time of the request |")
        print("|---|---:|---:|---:|", flush=True)
        # First: with very many logs open the broker may refuse so many connections.
        for kind in (ClassicLife, ConsumerLife):
            await measure_members(kind, members, broker_spec.port, broker)
        await measure_upgrade(members, broker_spec.port, broker)
        await create_topics_of(client, topics)
        await create_topic(client, WIDE, partitions)
        await until(lambda: is_served(client))
        await asyncio.sleep(2)  # until checkpoints of the new logs are written
        names = [f"topic-{number}" for number in range(topics)]
        for what, request in requests(names, partitions):
            await measure(what, request, client, broker)
        client.close()
    finally:
        await asyncio.gather(controller.stop(), broker.stop())


def requests(names: list[str], partitions: int) -> list[tuple[str, Any]]:
    unknown = [f"unknown-{number}" for number in range(20_000)]
    wide = range(partitions)
    count = f"{len(names):,}"
    return [
        (f"a commit to {count} topics, the first of its group", commit_of("many", names, range(1))),
        ("the same again", commit_of("many", names, range(1))),
        ("a commit to 20,000 topics that do not exist", commit_of("many", unknown, range(1))),
        (f"a commit to {partitions:,} partitions with texts", commit_of("wide", [WIDE], wide, "text")),
        (f"a commit to {partitions:,} partitions", commit_of("wide", [WIDE], wide)),
        (f"a fetch of all offsets, of {count} topics", fetch_of("many", None)),
        (f"a fetch of {count} topics by name", fetch_of("many", [(name, [0]) for name in names])),
        (f"a fetch of all offsets, of {partitions:,} partitions", fetch_of("wide", None)),
        (f"a fetch of {partitions:,} partitions by name", fetch_of("wide", [(WIDE, list(wide))])),
        (f"a commit to {count} topics by another group", commit_of("more", names, range(1))),
        (f"the deletion of its offsets of {count} topics", delete_offsets_of("more", names)),
        (f"the deletion of a group with {partitions:,} offsets", delete_of("wide")),
        (f"the deletion of a group with offsets of {count} topics", delete_of("many")),
    ]


def commit_of(
    group_id: str, names: list[str], partitions: range, text: str | None = None
) -> offset_commit.OffsetCommitRequest:
    return offset_commit.OffsetCommitRequest(
        group_id=group_id,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=7,
                        committed_metadata=None if text is None else f"{text}{index}",
                    )
                    for index in partitions
                ],
            )
            for name in names
        ],
    )


def fetch_of(group_id: str, topics: list[tuple[str, list[int]]] | None) -> offset_fetch.OffsetFetchRequest:
    named = None
    if topics is not None:
        named = [offset_fetch.OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in topics]
    group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=named)
    return offset_fetch.OffsetFetchRequest(groups=[group])


def delete_of(group_id: str) -> delete_groups.DeleteGroupsRequest:
    return delete_groups.DeleteGroupsRequest(groups_names=[group_id])


def delete_offsets_of(group_id: str, names: list[str]) -> offset_delete.OffsetDeleteRequest:
    return offset_delete.OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in names
        ],
    )


async def measure(what: str, request: Any, client: KafkaClient, broker: NodeProcess) -> None:
    await asyncio.sleep(0.5)
    async with measured(what, broker):
        await client.ask(request, min(_VERSION, request.MAX_VERSION))


@contextlib.asynccontextmanager
async def measured(what: str, broker: NodeProcess) -> AsyncIterator[None]:
    await broker.ask("memory")  # collects garbage, so that no collection is due during the request
    before_s = await broker.ask("cpu")
    await broker.ask("reset")
    yield
    figures = await broker.ask("stalls")
    used_ms = (await broker.ask("cpu") - before_s) * 1000
    print(
        f"| {what} | {figures['max_ms']:.1f} ms | {figures['max_cpu_ms']:.1f} ms | {used_ms:.0f} ms |",
        flush=True,
    )


async def measure_members(kind: type[Life], members: int, port: int, broker: NodeProcess) -> None:
    """All members of a group join at once, over a connection each, until every partition has its owner."""
    name = f"members-{kind.__name__}"
    fleet, seats = await connect_members(name, kind, members, port)
    async with measured(f"{members:,} members join at once ({kind.__name__})", broker):
        fleet.join(seats)
        await asyncio.to_thread(fleet.run_until, fleet.shares.are_final, 90, "all members to join")
    await asyncio.to_thread(fleet.dissolve)
    fleet.close()


async def measure_upgrade(members: int, port: int, broker: NodeProcess) -> None:
    """A member of the consumer protocol joins a classic group."""
    fleet, seats = await connect_members("upgraded", ClassicLife, members, port)
    fleet.join(seats)
    await asyncio.to_thread(fleet.run_until, fleet.shares.are_final, 90, "all members to join")
    client = KafkaClient(port)
    await client.connect()
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="upgraded",
        member_id="first-of-its-kind-000",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["upgraded"],
        topic_partitions=[],
    )
    await measure(f"the first consumer that joins {members:,} classic members", request, client, broker)
    client.close()
    fleet.close()


async def connect_members(name: str, kind: type[Life], members: int, port: int) -> tuple[Fleet, list[Seat]]:
    client = KafkaClient(port)
    await client.connect()
    await create_topic(client, name, 2 * members)
    described = await client.call(
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)]),
        12,
        metadata.MetadataResponse,
    )
    client.close()
    topic = Topic(name, described.topics[0].topic_id, 2 * members)
    fleet = Fleet(port, topic.partitions)
    return fleet, fleet.connect(kind(name, topic, 45_000) for _ in range(members))


async def create_topics_of(client: KafkaClient, count: int) -> None:
    for start in range(0, count, _TOPICS_AT_ONCE):
        topics = [
            create_topics.CreatableTopic(name=f"topic-{number}", num_partitions=1, replication_factor=1)
            for number in range(start, min(start + _TOPICS_AT_ONCE, count))
        ]
        request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        made = await client.call(request, 7, create_topics.CreateTopicsResponse)
        assert not any(topic.error_code for topic in made.topics), made
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=f"topic-{count - 1}")])

    async def is_led() -> bool:
        (seen,) = (await client.call(asked, 9, metadata.MetadataResponse)).topics
        return bool(seen.partitions) and seen.partitions[0].leader_id >= 0

    await until(is_led)


async def is_served(client: KafkaClient) -> bool:
    asked = find_coordinator.FindCoordinatorRequest(coordinator_keys=["many"])
    found = await client.call(asked, 4, find_coordinator.FindCoordinatorResponse)
    if found.coordinators[0].error_code:
        return False
    answer = await client.call(fetch_of("many", None), 8, offset_fetch.OffsetFetchResponse)
    return bool(answer.groups[0].error_code == 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=9_000)
    parser.add_argument("--members", type=int, default=1_000)
    options = parser.parse_args()
    with (
        asyncio.Runner(loop_factory=_new_loop) as runner,
        tempfile.TemporaryDirectory(prefix="pykraft-bench-") as directory,
    ):
        runner.run(run(options.topics, options.partitions, options.members, Path(directory)))


if __name__ == "__main__":
    main()
