"""Records with a short retention: a producer fills a topic whose segments are small and deleted soon.

They have no history, because most are deleted before they could be read. The invariants of their logs are in
:mod:`.checks.data_watch`: segments are rolled and deleted while leaders change and replicas follow.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from pykraft.jepsen_like.faults.clients.interface import OperationError, ProducerConfig
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.simulation.cluster.checks.data_watch import MIN_INSYNC_REPLICAS
from pykraft.kafka_client.metadata import TopicPartition

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.world import World

TOPIC: Final = "brief"
CONFIGS: Final = {
    "min.insync.replicas": str(MIN_INSYNC_REPLICAS),
    "retention.ms": "800",
    "segment.ms": "300",
}
PARTITIONS: Final = 2
SENDS_PER_S: Final = 15

_RETRY_S: Final = 0.5


async def fill(world: World, clients: OwnClients) -> None:
    """Create the topic and write to it until the workload's process ends."""
    rng = random.Random(f"brief {world.seed}")
    admin = clients.admin(TOPIC)
    while True:
        try:
            await admin.create_topic(TOPIC, PARTITIONS, min(3, len(world.brokers)), CONFIGS)
        except OperationError:
            await asyncio.sleep(_RETRY_S)
        else:
            break
    await admin.close()
    producer = clients.producer(ProducerConfig(TOPIC, max_in_flight=5))
    number = 0
    while not world.checker.is_given_up:
        await asyncio.sleep(rng.expovariate(SENDS_PER_S))
        number += 1
        place = TopicPartition(TOPIC, rng.randrange(PARTITIONS))
        answer = producer.send(place, str(number), clients.wall_ms())
        if answer is not None:
            answer.add_done_callback(_take)


def _take(answer: asyncio.Future[int | None]) -> None:
    """The outcome of the write is ignored."""
    answer.exception()
