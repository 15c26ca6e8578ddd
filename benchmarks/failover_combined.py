"""Failovers of combined nodes that hold real replicas: ``failover.py --combined`` (see there).

Every partition has a replica on each of three combined nodes. A trial kills the node of the active controller
(kill -9), starts it again at once, and measures, from the kill on:

- controller: until a client's change of a configuration, sent through a surviving broker, is acknowledged;
- served: until the killed process is known to be gone, and every partition has a leader that is not fenced;
- in sync: until the restarted node is back in the ISR of every partition.

The next kill follows then. A kill forces one election: each further epoch of the quorum counts as an election
that no fault forced. The last line is the verdict: every failover within the target, and no such election.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_nodes import (
    ControllerClient,
    KafkaClient,
    NodeProcess,
    make_combined_cluster,
    percentile,
    until,
)

from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

NODES = 3
PER_TOPIC = 100
SETTLE_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Trial:
    """Milliseconds since the kill, and epochs beyond the one that the kill forced."""

    controller_ms: float
    served_ms: float
    in_sync_ms: float
    unforced: int


async def _sum(nodes: Sequence[NodeProcess], command: str) -> int:
    return sum([await node.ask(command) for node in nodes])


async def _epoch(nodes: Sequence[NodeProcess]) -> int:
    return max([int(await node.ask("quorum_epoch")) for node in nodes])


async def _create_topics(client: ControllerClient, partitions: int) -> None:
    sizes = [PER_TOPIC] * (partitions // PER_TOPIC) + [partitions % PER_TOPIC] * bool(partitions % PER_TOPIC)
    request = CreateTopicsRequest(
        timeout_ms=60_000,
        topics=[
            CreatableTopic(name=f"t-{number}", num_partitions=size, replication_factor=NODES)
            for number, size in enumerate(sizes)
        ],
    )
    response = await client.forward(request, 7, CreateTopicsResponse)
    for topic in response.topics:
        assert topic.error_code == 0, topic.error_message


async def _change_something(port: int, value: int) -> None:
    """Asks a broker for a change that the controller has to commit; returns when it is acknowledged."""
    change = AlterableConfig(name="retention.ms", config_operation=0, value=str(1_000_000_000 + value))
    resource = AlterConfigsResource(
        resource_type=int(ConfigResourceType.TOPIC), resource_name="t-0", configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    while True:
        client = KafkaClient(port)
        await client.connect()
        try:
            response = await client.call(request, 1, IncrementalAlterConfigsResponse)
        finally:
            client.close()
        if response.responses[0].error_code == 0:
            return
        await asyncio.sleep(0.02)


async def _all_in_sync(nodes: Sequence[NodeProcess]) -> None:
    async def quiet() -> bool:
        active = sum([await node.ask("is_active") for node in nodes])
        offsets = [await node.ask("offset") for node in nodes]
        return (
            active == 1
            and max(offsets) - min(offsets) < 100
            and not await _sum(nodes, "unserved")
            and not await _sum(nodes, "out_of_sync")
            and all([await node.ask("has_opened_logs") for node in nodes])
        )

    await until(quiet, SETTLE_TIMEOUT_S)


async def _trial(nodes: Sequence[NodeProcess], number: int, rng: random.Random) -> Trial:
    await _all_in_sync(nodes)
    await asyncio.sleep(rng.uniform(0.3, 1.0))
    before = await _epoch(nodes)
    (victim,) = [node for node in nodes if await node.ask("is_active")]
    survivors = [node for node in nodes if node is not victim]
    old_epoch = await survivors[0].ask(f"broker_epoch {victim.spec.node_id}")
    killed_s = time.monotonic()
    await victim.kill()
    restarting = asyncio.create_task(victim.start())

    async def since_the_kill(work: Any) -> float:
        await work
        return (time.monotonic() - killed_s) * 1000

    async def all_served() -> bool:
        for node in survivors:
            epoch = await node.ask(f"broker_epoch {victim.spec.node_id}")
            if epoch == old_epoch or await node.ask("unserved"):
                return False
        return True

    async def all_in_sync() -> bool:
        return restarting.done() and not await _sum(nodes, "out_of_sync")

    controller_ms, served_ms, in_sync_ms = await asyncio.gather(
        since_the_kill(_change_something(rng.choice(survivors).spec.port, number)),
        since_the_kill(until(all_served, SETTLE_TIMEOUT_S)),
        since_the_kill(until(all_in_sync, SETTLE_TIMEOUT_S)),
    )
    await restarting
    await _all_in_sync(nodes)
    return Trial(controller_ms, served_ms, in_sync_ms, await _epoch(nodes) - before - 1)


async def run_combined(
    trials: int, seed: int, partitions: int, busy: int, target_ms: int, watch_s: float
) -> bool:
    """Prints a line per trial and the figures; returns whether the target was met."""
    rng = random.Random(seed)
    busy_processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    done: list[Trial] = []
    with tempfile.TemporaryDirectory() as directory:
        nodes = [NodeProcess(spec) for spec in make_combined_cluster(Path(directory), NODES)]
        client = ControllerClient([node.spec.controller_port for node in nodes])
        try:
            await asyncio.gather(*(node.start() for node in nodes))
            await _create_topics(client, partitions)
            for number in range(trials):
                trial = await _trial(nodes, number, rng)
                done.append(trial)
                requests, proposals, refused = [
                    sum(column)
                    for column in zip(*[await node.ask("isr_proposals") for node in nodes], strict=True)
                ]
                print(
                    f"trial {number + 1}: controller {trial.controller_ms:.0f} ms, served"
                    f" {trial.served_ms:.0f} ms, in sync {trial.in_sync_ms:.0f} ms, {trial.unforced}"
                    f" elections that no fault forced; since the nodes' starts {requests} AlterPartition"
                    f" requests for {proposals} partitions, {refused} refused; longest"
                    f" turns {[round((await node.ask('stalls'))['max_cpu_ms']) for node in nodes]} ms",
                    flush=True,
                )
            before = await _epoch(nodes)
            await asyncio.sleep(watch_s)
            idle = await _epoch(nodes) - before
        finally:
            await asyncio.gather(*(node.kill() for node in nodes))
            await client.close()
            for busy_process in busy_processes:
                busy_process.kill()
                busy_process.wait()
    return _judge(done, idle, target_ms)


def _judge(done: Sequence[Trial], idle: int, target_ms: int) -> bool:
    def figures(name: str, of: Callable[[Trial], float]) -> None:
        values = [of(trial) for trial in done]
        print(
            f"{name}: p50 {statistics.median(values):.0f} ms, p99 {percentile(values, 0.99):.0f} ms,"
            f" longest {max(values):.0f} ms"
        )

    figures("controller", lambda trial: trial.controller_ms)
    figures("served", lambda trial: trial.served_ms)
    figures("in sync", lambda trial: trial.in_sync_ms)
    inside = sum(trial.controller_ms <= target_ms for trial in done)
    unforced = sum(trial.unforced for trial in done) + idle
    met = inside == len(done) and unforced == 0
    print(
        f"{'met' if met else 'MISSED'}: {inside} of {len(done)} failovers within {target_ms} ms,"
        f" {unforced} elections that no fault forced"
    )
    return met
