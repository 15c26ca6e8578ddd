"""The transaction coordinator's interface to the broker: takes leadership and metadata, answers requests.

Finds the shard of a transactional id and calls the handler of the API: one method each, from request to
response. An error for a request as a whole is raised as :class:`KafkaError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from pykraft.coordinator.descriptions import as_named, each_once
from pykraft.coordinator.lease import Lease
from pykraft.coordinator.partitioning import TRANSACTION_STATE_TOPIC, partition_for_key
from pykraft.coordinator.writer import PartitionWriter
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.regex.pattern import LONG_PATTERN_CHARS, prepare_regex
from pykraft.runtime.clock import Clock
from pykraft.runtime.paced import paced
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import FatalHandler, Workers
from pykraft.runtime.turns import Turns, UnlimitedTurn
from pykraft.transaction_coordinator.config import TransactionConfig
from pykraft.transaction_coordinator.ports import MarkerWriter, ProducerIds
from pykraft.transaction_coordinator.requests import add_partitions, describe, list_transactions
from pykraft.transaction_coordinator.requests.add_partitions import handle_add_offsets
from pykraft.transaction_coordinator.requests.end_txn import handle_end_txn
from pykraft.transaction_coordinator.requests.init_producer_id import handle_init_producer_id
from pykraft.transaction_coordinator.runtime import TransactionRuntime
from pykraft.transaction_coordinator.state import ShardState

_IDS_PER_TURN = 200
"""For a request that names very many: some milliseconds."""


class TransactionCoordinatorService:
    """The coordinator of every transactional id whose ``__transaction_state`` partition this broker leads."""

    def __init__(
        self,
        config: TransactionConfig,
        writer: PartitionWriter,
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        clock: Clock,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
        workers: Workers | None = None,
    ) -> None:
        """``workers`` compile long regular expressions, by default in the turn."""
        self._workers = workers
        self._producer_ids = producer_ids
        self._clock = clock
        self._slices = Slices(UnlimitedTurn() if turns is None else turns, "large transactions")
        self._runtime = TransactionRuntime(
            config, writer, markers, producer_ids, clock, on_fatal, lease, on_growth, turns
        )

    def start(self) -> None:
        self._runtime.start()

    async def stop(self) -> None:
        """Stop; requests that still wait are answered with NOT_COORDINATOR."""
        await self._runtime.stop()

    def partition_for(self, transactional_id: str) -> int:
        return partition_for_key(transactional_id, self.num_partitions)

    def leads(self, partition: int) -> bool:
        """Whether this broker has been elected for the partition, which it may still have to load."""
        return self._runtime.leads(partition)

    @property
    def num_partitions(self) -> int:
        """The number of partitions of the topic; the configured one until it exists."""
        topic = self._runtime.image.topic(TRANSACTION_STATE_TOPIC)
        return self._runtime.config.num_partitions if topic is None else len(topic.partitions)

    def states(self) -> Iterator[ShardState]:
        """The newest state of every partition that it serves, for counting."""
        return self._runtime.states()

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition: load it. Until then requests get COORDINATOR_LOAD_IN_PROGRESS."""
        self._runtime.elect(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition: all waiting requests fail with NOT_COORDINATOR."""
        self._runtime.resign(partition)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        self._runtime.on_high_watermark(partition, high_watermark)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._runtime.image = image

    def on_config(self, config: TransactionConfig) -> None:
        """This broker's settings have changed."""
        self._runtime.config = config

    def tick(self) -> None:
        """Run every timer that is due (the started service does this by itself)."""
        self._runtime.tick()

    # The APIs. A :class:`KafkaError` is the error of a request as a whole.

    async def init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        """Also for producers without a transactional id, which no coordinator has to know."""
        name = request.transactional_id
        if name is None:
            return InitProducerIdResponse(producer_id=self._producer_ids.next_id(), producer_epoch=0)
        return await self._runtime.decide(
            self.partition_for(name),
            lambda state, call: handle_init_producer_id(state, request, call),
            self._runtime.call(version),
        )

    async def add_partitions(
        self, request: AddPartitionsToTxnRequest, version: int
    ) -> AddPartitionsToTxnResponse:
        """Each transactional id by itself: what fails for one does not concern the others."""

        async def add(wanted: add_partitions.Wanted) -> add_partitions.Codes:
            try:
                return await self._runtime.decide(
                    self.partition_for(wanted.transaction.transactional_id),
                    lambda state, call: add_partitions.handle_add_partitions(state, wanted, call),
                    self._runtime.call(version),
                )
            except KafkaError as error:
                return wanted.all_with(error.code)

        results: list[AddPartitionsToTxnResult] = []
        for some in add_partitions.some_at_a_time(add_partitions.transactions_of(request, version)):
            wanted = [add_partitions.Wanted(one) for one in some]
            call = self._runtime.call(version)
            await self._slices.finish(chain.from_iterable(one.look_up(call) for one in wanted))
            codes = [await add(wanted[0])] if len(wanted) == 1 else await asyncio.gather(*map(add, wanted))
            for one, of_one in zip(some, codes, strict=True):
                results.append(
                    await self._slices.result(add_partitions.build_result(one.transactional_id, of_one))
                )
        return add_partitions.build_response(results, version)

    async def add_offsets(
        self, request: AddOffsetsToTxnRequest, version: int, offsets_partition: int
    ) -> AddOffsetsToTxnResponse:
        """``offsets_partition``: the partition of ``__consumer_offsets`` that holds the group."""
        call = self._runtime.call(version)
        call.offsets_partition = offsets_partition
        return await self._runtime.decide(
            self.partition_for(request.transactional_id),
            lambda state, call: handle_add_offsets(state, request, call),
            call,
        )

    async def end_txn(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        return await self._runtime.decide(
            self.partition_for(request.transactional_id),
            lambda state, call: handle_end_txn(state, request, call),
            self._runtime.call(version),
        )

    async def describe_transactions(
        self, request: DescribeTransactionsRequest, version: int
    ) -> DescribeTransactionsResponse:
        """One that is named twice is described twice, as in Kafka."""
        described: dict[str, bytes] = {}
        names = await self._slices.result(each_once(request.transactional_ids))
        for number, name in enumerate(names, 1):
            if number % _IDS_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                result = await self._runtime.read(
                    self.partition_for(name),
                    lambda state, name=name: describe.handle_describe(  # type: ignore[misc]
                        state, name, self._runtime.call(version)
                    ),
                )
            except KafkaError as error:
                one = describe.build_failure(name, error.code)
            else:
                one = result.response
            described[name] = DescribeTransactionsResponse.encode_part(one, version)
            await self._slices.pause()
        states = await self._slices.result(as_named(request.transactional_ids, described))
        return DescribeTransactionsResponse(transaction_states=states)

    async def list_transactions(
        self, request: ListTransactionsRequest, version: int
    ) -> ListTransactionsResponse:
        """Those of all shards; an error if one of them is loading, since the list would lack some."""
        pattern = request.transactional_id_pattern
        if pattern and len(pattern) > LONG_PATTERN_CHARS and self._workers is not None:
            await self._workers.run(partial(prepare_regex, pattern))
        wanted = list_transactions.read_filter(request)
        found: list[ListedTransaction] = []
        for partition in self._runtime.hosted_partitions():
            try:
                state = await self._runtime.read(partition, lambda state: state)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_COORDINATOR:
                    continue  # the ids of a partition that has moved are listed by their new coordinator
                raise
            now_ms = self._clock.wall_ms()
            found += [one async for one in paced(list_transactions.iter_listed(state, wanted, now_ms))]
        return list_transactions.build_response(request, found)
