"""Three nodes and many idle partitions: what acks=all costs beside them, and what they cost by themselves.

    python benchmarks/idle_partitions.py [--partitions 0,1000,5000] [--writes 2000]
                                         [--idle-s 20] [--lag-ms 30000]

For each number of idle partitions (replication factor 3) three combined nodes are started anew. One client
writes a batch of one record with acks=all to a topic of its own, one at a time, after the nodes have come to
rest: a created topic is there long before all its replicas are open. Then nothing happens for
``--idle-s``. A row has the median and the 99th percentile of the writes, the processor time of each node in
the quiet time, in percent of a core, and the ratio of its median to that of the first row. ``--lag-ms`` is
``replica.lag.time.max.ms``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench_nodes import KafkaClient, NodeSpec, make_combined_cluster, until

from pykraft.kafka_protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykraft.kafka_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch

NODES = 3
PER_TOPIC = 500
WRITTEN = "written"
SETTLE_S = 10
AT_REST_PERCENT = 5
"""A node that uses less of a core over :data:`SETTLE_S` has nothing left to open."""


@dataclass(frozen=True, slots=True)
class Row:
    """Latencies in milliseconds, processor time in percent of a core."""

    partitions: int
    p50_ms: float
    p99_ms: float
    idle_percent: tuple[float, ...]


class Cluster:
    """Nodes as users run them: ``pykraft server start`` in processes of their own."""

    def __init__(self, specs: Sequence[NodeSpec]) -> None:
        self.specs = specs
        self._processes: list[subprocess.Popen[bytes]] = []

    async def __aenter__(self) -> Cluster:
        for spec in self.specs:
            with open(spec.properties.with_suffix(".log"), "ab") as log:
                command = [sys.executable, "-m", "pykraft.node", "server", "start", str(spec.properties)]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        for spec in self.specs:
            await until(partial(_listens, spec.port))
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            await asyncio.to_thread(process.wait)

    def cpu_s(self) -> list[float]:
        """The processor time that each node has used so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        used = []
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used.append((int(fields[11]) + int(fields[12])) / ticks)
        return used

    async def use(self, duration_s: float) -> tuple[float, ...]:
        """The processor time of each node over a while, in percent of a core."""
        before, start_s = self.cpu_s(), time.monotonic()
        await asyncio.sleep(duration_s)
        after, passed_s = self.cpu_s(), time.monotonic() - start_s
        return tuple(100 * (b - a) / passed_s for a, b in zip(before, after, strict=True))

    async def come_to_rest(self) -> None:
        while max(await self.use(SETTLE_S)) > AT_REST_PERCENT:
            pass


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def create(client: KafkaClient, name: str, partitions: int) -> None:
    """Create a topic; returns once all its partitions have a leader and a full ISR."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=NODES)
    made = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)
    assert made.topics[0].error_code == 0, made
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])

    async def is_whole() -> bool:
        (seen,) = (await client.call(asked, 9, MetadataResponse)).topics
        return len(seen.partitions) == partitions and all(
            p.leader_id >= 0 and len(p.isr_nodes) == NODES for p in seen.partitions
        )

    await until(is_whole)


async def write(port: int, writes: int) -> list[float]:
    """Milliseconds of each write, one at a time; the first tenth is left out."""
    client = KafkaClient(port)
    await client.connect()
    batch = encode_batch([RecordInput(None, b"x" * 100, (), 1_700_000_000_000)])
    data = [TopicProduceData(name=WRITTEN, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    took_ms = []
    for _ in range(writes):
        start_s = time.perf_counter()
        response = await client.call(request, 9, ProduceResponse)
        took_ms.append((time.perf_counter() - start_s) * 1000)
        assert response.responses[0].partition_responses[0].error_code == 0, response
    client.close()
    return sorted(took_ms[writes // 10 :])


async def measure(partitions: int, writes: int, idle_s: float, lag_ms: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="idle-partitions-") as directory:
        specs = make_combined_cluster(Path(directory), NODES, replica_lag_time_max_ms=str(lag_ms))
        async with Cluster(specs) as cluster:
            client = KafkaClient(specs[0].port)
            await client.connect()
            await create(client, WRITTEN, 1)
            for first in range(0, partitions, PER_TOPIC):
                await create(client, f"idle-{first}", min(PER_TOPIC, partitions - first))
            await cluster.come_to_rest()
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=WRITTEN)])
            (topic,) = (await client.call(asked, 9, MetadataResponse)).topics
            leader = next(spec for spec in specs if spec.node_id == topic.partitions[0].leader_id)
            took_ms = await write(leader.port, writes)
            await asyncio.sleep(SETTLE_S)
            idle = await cluster.use(idle_s)
            client.close()
    return Row(partitions, took_ms[len(took_ms) // 2], took_ms[int(len(took_ms) * 0.99)], idle)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", default="0,1000,5000")
    parser.add_argument("--writes", type=int, default=2000)
    parser.add_argument("--idle-s", type=float, default=20)
    parser.add_argument("--lag-ms", type=int, default=30_000)
    options = parser.parse_args()
    first: Row | None = None
    print(f"{'partitions':>10} {'p50 ms':>8} {'p99 ms':>8} {'ratio':>6}  idle, % of a core a node")
    for partitions in map(int, options.partitions.split(",")):
        row = await measure(partitions, options.writes, options.idle_s, options.lag_ms)
        first = first or row
        idle = "  ".join(f"{percent:5.1f}" for percent in row.idle_percent)
        ratio = row.p50_ms / first.p50_ms
        print(f"{partitions:>10} {row.p50_ms:>8.2f} {row.p99_ms:>8.2f} {ratio:>6.2f}  {idle}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
