"""Very many transactions that are decided at one coordinator when it dies: the next one has to end them all.

Beside the workload of transactions, on a topic of its own. All transactional ids of the crowd have the same
coordinator. While its markers are lost every id commits or aborts a transaction; then it is killed. There is
no history: that nothing is left open in the end is what is required (:mod:`.checks.transaction_checks`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from pykraft.coordinator.partitioning import partition_for_key
from pykraft.jepsen_like.faults.clients.interface import OperationError, TransactionalConfig
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.simulation.cluster.checks.data_watch import MIN_INSYNC_REPLICAS
from pykraft.jepsen_like.simulation.cluster.transaction_faults import STATE_PARTITIONS, STATE_TOPIC
from pykraft.kafka_client.metadata import TopicPartition

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.world import World

TOPIC: Final = "crowd"
MEMBERS: Final = 320
TIMEOUT_MS: Final = 60_000
GATHERS_FOR_MS: Final = 20_000
DIES_WITHIN_MS: Final = 2_000
"""Before all faults end."""
_CONFIGS: Final = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
_AT_A_TIME: Final = 40
_COMMIT_SHARE: Final = 0.7
_RETRY_S: Final = 0.5


async def gather(world: World, clients: OwnClients) -> None:
    """Once, shortly before all faults end: another coordinator that dies would make up for what is left."""
    rng = random.Random(f"crowd {world.seed}")
    index = rng.randrange(STATE_PARTITIONS)
    await _create(world, clients)
    faults, turn = world.transaction_faults, asyncio.Semaphore(_AT_A_TIME)
    await _sleep_until(world, faults.ends_at_ms - GATHERS_FOR_MS)
    if faults.is_over:
        return
    faults.holds = TOPIC
    decided = (_decide(clients, name, rng.random() < _COMMIT_SHARE, turn) for name in _names(index))
    tasks = [asyncio.get_running_loop().create_task(one) for one in islice(decided, MEMBERS)]
    await _sleep_until(world, faults.ends_at_ms - rng.randrange(1, DIES_WITHIN_MS))
    many = sum(task.done() and task.result() for task in tasks)
    coordinator = faults.leader_of(STATE_TOPIC, index)
    if coordinator is not None and coordinator.alive and not faults.is_over:
        world.log_event(coordinator.id, f"is to die now, with {many} transactions that are decided")
        coordinator.kill(power_loss=False)
        world.later(rng.choice((100, 2000)), coordinator.start)
    faults.holds = None
    await asyncio.wait(tasks)


async def _sleep_until(world: World, at_ms: int) -> None:
    await asyncio.sleep(max(0.0, at_ms / 1000 - world.loop.now_s))


async def _create(world: World, clients: OwnClients) -> None:
    admin = clients.admin(TOPIC)
    while True:
        try:
            await admin.create_topic(TOPIC, 1, min(3, len(world.brokers)), _CONFIGS)
        except OperationError:
            await asyncio.sleep(_RETRY_S)
        else:
            break
    await admin.close()


def _names(index: int) -> Iterator[str]:
    """Names of transactional ids in one partition of the coordinators' topic."""
    names = (f"{TOPIC}-{number}" for number in count())
    return (name for name in names if partition_for_key(name, STATE_PARTITIONS) == index)


async def _decide(clients: OwnClients, name: str, commits: bool, turn: asyncio.Semaphore) -> bool:
    """One transaction with one record; whether its end was answered."""
    async with turn:
        producer = clients.plain_transactional(TransactionalConfig(name, name, TIMEOUT_MS))
        try:
            await producer.init()
            await producer.send(TopicPartition(TOPIC, 0), [name])
            await (producer.commit() if commits else producer.abort())
        except OperationError:
            return False
        finally:
            await producer.close()
        return True
