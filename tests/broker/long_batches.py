"""Batches that take longer to validate in Python than a turn of the loop has room for."""

import asyncio
from typing import Unpack

from pykraft.broker.apis.records.produce import ProduceHandler
from pykraft.broker.replicas.leading.validate import ClientBatch
from pykraft.broker.replicas.leading.validation_turns import PIECE_WORK, ValidationTurns, Walkable
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.records import write_crc
from pykraft.runtime.turns import TURN_US
from tests.batch_fields import BatchFields
from tests.broker.data_cluster import DataClient, DataCluster, make_batch
from tests.narrowing import as_type
from tests.waits import until

WORK_PER_US = 2
BATCH_US = 20
PIECE_US = BATCH_US + PIECE_WORK // WORK_PER_US

LONG = 3 * TURN_US * WORK_PER_US
"""Records of a batch whose validation takes several turns in Python, if no two neighbours are alike."""


def long_batch(**fields: Unpack[BatchFields]) -> bytes:
    return make_batch(*(bytes(1 + n % 2) for n in range(LONG)), **fields)


class Gate(ValidationTurns):
    """Walks long batches only when a test allows it, and counts them.

    ``short_at_once``: batches of fewer records are walked at once, however slow the machine is.
    """

    def __init__(self, cluster: DataCluster, *, short_at_once: bool = True) -> None:
        handler = as_type(cluster.brokers[1]._hot[0], ProduceHandler)
        super().__init__(handler.validation._turns)
        handler.validation = self
        self.waiting = 0
        self.is_open = asyncio.Event()
        self.error: Exception | None = None
        """In the middle of a walk."""
        self._short_at_once = short_at_once

    def walk_now(self, batch: Walkable, *, is_first: bool = False) -> bool:
        if not self._short_at_once:
            return super().walk_now(batch, is_first=is_first)
        if as_type(batch, ClientBatch).header.record_count >= LONG:
            return False
        while not (batch.is_done or batch.is_large):
            batch.advance(PIECE_WORK)
        return True

    async def walk(self, batch: Walkable) -> None:
        self.waiting += 1
        await self.is_open.wait()
        if self.error is not None:
            batch.advance(PIECE_WORK)
            raise self.error
        await super().walk(batch)


def produce_request(batch: bytes, partitions: int) -> records.ProduceRequest:
    data = [records.PartitionProduceData(index=0, records=batch) for _ in range(partitions)]
    return records.ProduceRequest(
        acks=1, topic_data=[records.TopicProduceData(name="t", partition_data=data)]
    )


def overwritten(batch: bytes, at: int, value: bytes) -> bytes:
    """The CRC agrees with what stands there now."""
    data = bytearray(batch)
    data[at : at + len(value)] = value
    write_crc(data, 0, len(data))
    return bytes(data)


def damaged(batch: bytes) -> bytes:
    """At its end."""
    return overwritten(batch, len(batch) - 1, b"\x7f")


async def walking(
    cluster: DataCluster, *batches: bytes, acks: int = -1, timeout_ms: int = 5000
) -> tuple[Gate, DataClient]:
    """A client whose first batch is being walked."""
    gate, client = Gate(cluster), await cluster.client(1)
    for batch in batches:
        client.send_produce(batch, acks=acks, timeout_ms=timeout_ms)
    await until(lambda: gate.waiting)
    return gate, client
