"""How long other requests wait while clients commit offsets as fast as they can, and the loop's stalls.

Real nodes in their own processes: one controller, and brokers (``--brokers``, which are also the replicas of
``__consumer_offsets``). The committing clients run in another process, each with one connection, one group
and one commit in flight. Meanwhile requests of a few other APIs are sent, one at a time, and timed by their
client.

    python benchmarks/side_requests.py [--clients 1000] [--brokers 1] [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_nodes import (
    HOST,
    KafkaClient,
    NodeProcess,
    _new_loop,
    create_topic,
    decode_answer,
    make_cluster,
    percentile,
)

from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.messages import (
    api_versions,
    find_coordinator,
    heartbeat,
    metadata,
    offset_commit,
)

TOPIC = "side"
PAUSE_S = 0.005


# --- the committing clients ---


async def commit_for_ever(ports: list[int], count: int) -> None:
    """Prints the number of commits of every second."""
    done = [0]
    clients = [asyncio.create_task(_commit(ports[n % len(ports)], f"group-{n}", done)) for n in range(count)]
    try:
        while True:
            before = done[0]
            await asyncio.sleep(1)
            print(done[0] - before, flush=True)
            for client in clients:
                if client.done():
                    client.result()
    finally:
        for client in clients:
            client.cancel()


async def _commit(port: int, group_id: str, done: list[int]) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group_id=group_id, topics=[topic])
    body = encode_request(request, 8, 1, "bench")
    frame = struct.pack(">i", len(body)) + body
    reader, writer = await asyncio.open_connection(HOST, port)
    while True:
        writer.write(frame)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(length)
        response = decode_answer(answer, 8, offset_commit.OffsetCommitResponse)
        code = response.topics[0].partitions[0].error_code
        if code == 0:
            done[0] += 1
        else:  # another broker coordinates the group, or its partition is being loaded
            port = await _coordinator(reader, writer, group_id) or port
            writer.close()
            await asyncio.sleep(0.1)
            reader, writer = await asyncio.open_connection(HOST, port)


async def _coordinator(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, group_id: str
) -> int | None:
    body = encode_request(find_coordinator.FindCoordinatorRequest(coordinator_keys=[group_id]), 4, 1, "bench")
    writer.write(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    answer = await reader.readexactly(length)
    found = decode_answer(answer, 4, find_coordinator.FindCoordinatorResponse).coordinators[0]
    return None if found.error_code else int(found.port)


# --- what is measured beside them ---


async def measure(ports: list[int], seconds: float) -> dict[str, list[float]]:
    requests: dict[str, tuple[Any, int]] = {
        "ApiVersions": (api_versions.ApiVersionsRequest(), 3),
        "Metadata": (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]), 9),
        "Heartbeat": (heartbeat.HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m"), 4),
    }
    taken: dict[str, list[float]] = {name: [] for name in requests}
    client = KafkaClient(ports[0])
    await client.connect()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, (request, version) in requests.items():
            started = time.perf_counter()
            await client.ask(request, version)
            taken[name].append((time.perf_counter() - started) * 1000)
            await asyncio.sleep(PAUSE_S)
    client.close()
    return taken


async def run(options: argparse.Namespace, directory: Path) -> None:
    replicas = str(options.brokers)
    specs = make_cluster(
        directory,
        1,
        options.brokers,
        offsets_topic_replication_factor=replicas,
        offsets_topic_num_partitions="4",
    )
    nodes = [NodeProcess(spec) for spec in specs]
    load: subprocess.Popen[bytes] | None = None
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        ports = [spec.port for spec in specs if spec.port]
        client = KafkaClient(ports[0])
        await client.connect()
        await create_topic(client, TOPIC, 1)
        client.close()
        print(f"{options.brokers} brokers, seconds {options.seconds}")
        report("idle", await measure(ports, options.seconds / 4))
        arguments = [str(options.clients), *map(str, ports)]
        load = subprocess.Popen([sys.executable, __file__, "--load", *arguments], stdout=subprocess.PIPE)
        assert load.stdout is not None
        loop = asyncio.get_running_loop()
        while int(await loop.run_in_executor(None, load.stdout.readline) or 0) == 0:
            pass  # connecting; the groups' partitions are being created
        for node in nodes:
            await node.ask("reset")
        report(f"beside {options.clients} committing clients", await measure(ports, options.seconds))
        for node, spec in zip(nodes, specs, strict=True):
            stalls = await node.ask("stalls")
            print(f"  node {spec.node_id}: " + ", ".join(f"{key} {ms:.1f}" for key, ms in stalls.items()))
        load.terminate()
        rest, _ = load.communicate()
        rates = [int(line) for line in rest.split()]
        print(f"  commits a second: {percentile(rates, 0.5) if rates else 0:,.0f}")
    finally:
        if load is not None:
            load.kill()
            load.wait()
        await asyncio.gather(*(node.stop() for node in nodes))


def report(what: str, taken: dict[str, list[float]]) -> None:
    print(f"  {what}:")
    for name, times in taken.items():
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"    {name:12} p50 {p50:6.1f} ms, p99 {p99:6.1f} ms, max {max(times):6.1f} ms ({len(times)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--load", nargs="+", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        if options.load:
            runner.run(commit_for_ever(options.load[1:], options.load[0]))
        else:
            with tempfile.TemporaryDirectory(prefix="pykraft-bench-") as directory:
                runner.run(run(options, Path(directory)))


if __name__ == "__main__":
    main()
