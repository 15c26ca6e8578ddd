"""How long the event loop of a coordinator is blocked while it loads, removes and expires very many offsets.

One controller and one broker in their own processes; one partition of ``__consumer_offsets`` holds all
offsets. Groups commit for every partition of a topic; then the broker is restarted and loads the offsets;
then the topic is deleted, and the coordinator writes a tombstone for each offset.

    python benchmarks/forgetting.py [--groups 1000] [--partitions 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bench_nodes import KafkaClient, NodeProcess, _new_loop, create_topic, make_cluster, until

from pykraft.kafka_protocol.messages import (
    delete_topics,
    find_coordinator,
    list_offsets,
    offset_commit,
    offset_fetch,
)

TOPIC, OFFSETS_TOPIC = "forgotten", "__consumer_offsets"


async def run(groups: int, partitions: int, directory: Path) -> None:
    controller_spec, broker_spec = make_cluster(
        directory, 1, 1, offsets_topic_replication_factor="1", offsets_topic_num_partitions="1"
    )
    controller, broker = NodeProcess(controller_spec), NodeProcess(broker_spec)
    try:
        await asyncio.gather(controller.start(), broker.start())
        client = await connected(broker_spec.port)
        await create_topic(client, TOPIC, partitions)
        await until(lambda: is_served(client))
        await broker.ask("reset")
        started = time.monotonic()
        for n in range(groups):
            await commit(client, f"group-{n}", partitions)
        print(f"{groups} groups of {partitions} partitions: {groups * partitions:,} offsets in one shard")
        await report("committed", broker, started)
        client.close()
        await broker.stop()

        started = time.monotonic()
        await broker.start()
        await broker.ask("reset")  # from here on others may need the loop
        client = await connected(broker_spec.port)
        await until(lambda: is_served(client))
        await report("started and loaded", broker, started)

        end = await log_end(client) + groups * partitions
        await broker.ask("reset")
        started = time.monotonic()
        deleted = await client.call(
            delete_topics.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000),
            5,
            delete_topics.DeleteTopicsResponse,
        )
        assert deleted.responses[0].error_code == 0, deleted

        async def all_forgotten() -> bool:
            await asyncio.sleep(0.2)
            return await log_end(client) >= end

        await until(all_forgotten, 600)
        await report("deleted the topic", broker, started)
        client.close()
    finally:
        await asyncio.gather(controller.stop(), broker.stop())


async def report(what: str, broker: NodeProcess, started: float) -> None:
    seconds = time.monotonic() - started
    stalls = ", ".join(f"{key} {ms:.1f}" for key, ms in (await broker.ask("stalls")).items())
    print(f"  {what:20} {seconds:6.1f} s; the loop: {stalls}", flush=True)


async def connected(port: int) -> KafkaClient:
    client = KafkaClient(port)
    await client.connect()
    return client


async def is_served(client: KafkaClient) -> bool:
    """Whether the coordinator of all groups is available and has loaded its partition."""
    asked = find_coordinator.FindCoordinatorRequest(coordinator_keys=["group-0"])
    found = await client.call(asked, 4, find_coordinator.FindCoordinatorResponse)
    if found.coordinators[0].error_code:
        return False
    group = offset_fetch.OffsetFetchRequestGroup(group_id="group-0", topics=None)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    answer = await client.call(request, 8, offset_fetch.OffsetFetchResponse)
    return bool(answer.groups[0].error_code == 0)


async def commit(client: KafkaClient, group_id: str, partitions: int) -> None:
    offsets = [
        offset_commit.OffsetCommitRequestPartition(partition_index=n, committed_offset=7)
        for n in range(partitions)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)
    request = offset_commit.OffsetCommitRequest(group_id=group_id, topics=[topic])
    response = await client.call(request, 8, offset_commit.OffsetCommitResponse)
    assert not any(partition.error_code for partition in response.topics[0].partitions), response


async def log_end(client: KafkaClient) -> int:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name=OFFSETS_TOPIC, partitions=[partition])
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
    (answer,) = (await client.call(request, 5, list_offsets.ListOffsetsResponse)).topics
    assert answer.partitions[0].error_code == 0, answer
    return int(answer.partitions[0].offset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    options = parser.parse_args()
    with (
        asyncio.Runner(loop_factory=_new_loop) as runner,
        tempfile.TemporaryDirectory(prefix="pykraft-bench-") as directory,
    ):
        runner.run(run(options.groups, options.partitions, Path(directory)))


if __name__ == "__main__":
    main()
