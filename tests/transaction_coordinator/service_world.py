"""A transaction coordinator as a broker uses it, in virtual time: its log, its clients, the leaders."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from pykraft.coordinator.writer import BatchBody
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.features import TRANSACTION_VERSION
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.persistent import Map
from pykraft.runtime.turns import Turns
from pykraft.transaction_coordinator.config import TransactionConfig
from pykraft.transaction_coordinator.ports import MarkersRefusedError
from pykraft.transaction_coordinator.service import TransactionCoordinatorService
from pykraft.transaction_coordinator.transaction import Transaction
from tests.broker.answers import as_read
from tests.group_coordinator.coordinators import LeaseUntil
from tests.group_coordinator.tools import MemoryWriter, make_image
from tests.waits import settle

NAME = "my-id"


class LoopClock:
    """Both clocks follow the loop."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    wall_ms = monotonic_ms


class Leaders:
    """Takes markers; holds them back while ``open`` is not set."""

    def __init__(self) -> None:
        self.written: list[tuple[Transaction, int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.refuses = False

    async def write(self, prepared: Transaction, coordinator_epoch: int) -> None:
        await self.open.wait()
        if self.refuses:
            raise MarkersRefusedError("t-0: INVALID_PRODUCER_EPOCH")
        self.written.append((prepared, coordinator_epoch))


class Ids:
    def __init__(self) -> None:
        self.last = 999
        self.refuse: ErrorCode | None = None

    def next_id(self) -> int:
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        self.last += 1
        return self.last


class Log(MemoryWriter):
    """Counts how often it is read."""

    reads = 0

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        self.reads += 1
        return await super().read(partition, start_offset)


class World:
    """A broker that leads the only partition of ``__transaction_state``, and its clients."""

    turns: Turns | None = None

    def __init__(self) -> None:
        self.writer = Log()
        self.leaders = Leaders()
        self.ids = Ids()
        self.failures: list[BaseException] = []
        self.lease = LeaseUntil(LoopClock())
        self.service = self.make_service()

    def make_service(self) -> TransactionCoordinatorService:
        service = TransactionCoordinatorService(
            TransactionConfig(num_partitions=1),
            self.writer,
            self.leaders,
            self.ids,
            LoopClock(),
            self.failures.append,
            lease=self.lease,
            turns=self.turns,
        )
        image = make_image({"t": 2, "__transaction_state": 1})
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
        service.start()
        return service

    async def lead(self, epoch: int = 3) -> None:
        self.service.on_elected(0, epoch)
        await settle()

    async def fail_over(self, epoch: int) -> None:
        """Another broker takes over, with nothing but the log."""
        await self.service.stop()
        self.service = self.make_service()
        await self.lead(epoch)

    def expire_lease(self) -> None:
        self.lease.end_ms = LoopClock().monotonic_ms()

    def regain_lease(self) -> None:
        self.lease.end_ms = 2**60

    async def begin(self, timeout_ms: int = 60_000, name: str = NAME) -> InitProducerIdResponse:
        return await self.service.init_producer_id(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4
        )

    def upgrade(self) -> None:
        """From now on records have the version of transaction.version 2, which is longer."""
        image = replace(
            make_image({"t": 2, "__transaction_state": 1}), features=Map({TRANSACTION_VERSION: 2})
        )
        self.service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)

    async def add(self, producer: InitProducerIdResponse, partition: int = 0, name: str = NAME) -> int:
        response = await self.service.add_partitions(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[partition])],
            ),
            3,
        )
        return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def end(self, producer: InitProducerIdResponse, *, committed: bool = True, name: str = NAME) -> int:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        try:
            return (await self.service.end_txn(request, 4)).error_code
        except KafkaError as error:
            return error.code

    async def end_without_replicas(self) -> asyncio.Future[int]:
        """The end of a transaction whose decision no replica has yet."""
        producer = await self.begin()
        await self.add(producer)
        self.writer.hold = True
        ending = asyncio.ensure_future(self.end(producer))
        await settle()
        return ending

    async def state(self, name: str = NAME) -> str:
        response = await self.service.describe_transactions(
            DescribeTransactionsRequest(transactional_ids=[name]), 0
        )
        return as_read(response, 0).transaction_states[0].transaction_state

    def replicas_catch_up(self) -> None:
        self.writer.watermarks[0] = len(self.writer.logs[0])
        self.service.on_high_watermark(0, self.writer.watermarks[0])


@asynccontextmanager
async def running_world(leads: bool = True) -> AsyncIterator[World]:
    world = World()
    try:
        if leads:
            await world.lead()
        yield world
    finally:
        await world.service.stop()
    assert world.failures == []
