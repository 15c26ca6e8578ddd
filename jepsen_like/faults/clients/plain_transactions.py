"""A transactional producer that sends one request after the other, for workloads that break transactions.

It goes by the rules of ``transaction.version`` 2 (KIP-890), or by the old ones, as clients do: then it puts
partitions into the transaction itself, and takes a new epoch (KIP-360) after a write without an answer. It
keeps count of nothing that a broker must know, and can do what no client does on purpose: a write that
arrives late (:meth:`PlainTransactions.send_late`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from pykraft.jepsen_like.faults.clients.interface import (
    FencedError,
    RefusedError,
    TransactionalConfig,
    UnknownOutcomeError,
)
from pykraft.kafka_client.cluster import ClientConfig, Cluster, is_passing
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import FindCoordinatorRequest
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.runtime.address import Address

T = TypeVar("T")
M = TypeVar("M", bound=Message)

GROUP: Final = 0
TRANSACTION: Final = 1
_INIT_VERSION: Final = 5
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class PlainTransactions:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.TransactionalProducer`; for one task.

    ``wall_ms`` is the time that is written into records.
    """

    def __init__(
        self,
        network: ConcurrentNetwork,
        client: ClientConfig,
        config: TransactionalConfig,
        wall_ms: Callable[[], int],
    ) -> None:
        self._network = network
        self._client = client
        self._config = config
        self._wall_ms = wall_ms
        self._cluster = Cluster(network, client)
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition | str] = set()
        self._needs_epoch = False
        self._late: set[asyncio.Task[None]] = set()

    @property
    def _by_new_rules(self) -> bool:
        return self._config.rules == 2

    async def init(self) -> None:
        await self._init(-1, -1)

    async def recover(self) -> None:
        await self._init(*self._producer)

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._config.transactional_id,
            transaction_timeout_ms=self._config.timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

        async def attempt() -> InitProducerIdResponse:
            response = await self._ask(TRANSACTION, self._config.transactional_id, request, _INIT_VERSION)
            self._check(response.error_code, TRANSACTION, self._config.transactional_id)
            return response

        response = await self._with_outcome("InitProducerId", attempt)
        self._producer = response.producer_id, response.producer_epoch
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._sequences.clear()
        self._added.clear()
        self._needs_epoch = False

    async def send(self, partition: TopicPartition, values: Sequence[str]) -> int | None:
        if not self._by_new_rules:
            await self._add(partition)
        request = self._write(partition, values)

        async def attempt() -> int:
            return await self._produce(self._cluster, partition, request)

        try:
            return await self._with_outcome(f"Produce to {partition}", attempt)
        except (RefusedError, UnknownOutcomeError):
            self._needs_epoch = True
            raise

    def send_late(self, partition: TopicPartition, values: Sequence[str], after_s: float) -> None:
        request = self._write(partition, values)
        self._needs_epoch = True
        task = asyncio.get_running_loop().create_task(self._arrive(partition, request, after_s))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _arrive(self, partition: TopicPartition, request: ProduceRequest, after_s: float) -> None:
        await asyncio.sleep(after_s)
        cluster = Cluster(self._network, self._client)
        with suppress(KafkaError):  # nobody waits for the answer any more
            await self._produce(cluster, partition, request)
        cluster.close()

    def _write(self, partition: TopicPartition, values: Sequence[str]) -> ProduceRequest:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        batch = encode_batch(
            [RecordInput(None, value.encode(), (), self._wall_ms()) for value in values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition.partition, records=batch)
        return ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=-1,
            timeout_ms=self._client.request_timeout_ms,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )

    async def _produce(self, cluster: Cluster, partition: TopicPartition, request: ProduceRequest) -> int:
        deadline_ms = cluster.deadline(self._client.request_timeout_ms)
        leader = await cluster.leader(*partition, deadline_ms)
        assert leader.leader_id is not None
        version = 12 if self._by_new_rules else 11
        try:
            response = await cluster.ask_broker(leader.leader_id, request, deadline_ms, max_version=version)
            answer = response.responses[0].partition_responses[0]
            if answer.error_code:
                code = ErrorCode(answer.error_code)
                raise KafkaError(code, answer.error_message or code.name)
        except KafkaError as error:
            if is_passing(error):
                with suppress(KafkaError):
                    await cluster.refresh([partition.topic], deadline_ms)
            raise
        return answer.base_offset

    async def _add(self, partition: TopicPartition) -> None:
        if partition in self._added:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._config.transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )

        async def attempt() -> None:
            name = self._config.transactional_id
            response = await self._ask(TRANSACTION, name, request, 3)
            result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
            self._check(result.partition_error_code, TRANSACTION, name)

        await self._with_outcome("AddPartitionsToTxn", attempt)
        self._added.add(partition)

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        name = self._config.transactional_id
        producer_id, producer_epoch = self._producer
        if not self._by_new_rules and group not in self._added:
            add = AddOffsetsToTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                group_id=group,
            )

            async def attempt_to_add() -> None:
                response = await self._ask(TRANSACTION, name, add, 3)
                self._check(response.error_code, TRANSACTION, name)

            await self._with_outcome("AddOffsetsToTxn", attempt_to_add)
            self._added.add(group)
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place, offset in sorted(offsets.items()):
            topics.setdefault(place.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=of) for topic, of in topics.items()],
        )

        async def attempt() -> None:
            version = 5 if self._by_new_rules else 4
            response = await self._ask(GROUP, group, request, version)
            for topic in response.topics:
                for partition in topic.partitions:
                    self._check(partition.error_code, GROUP, group)

        await self._with_outcome("TxnOffsetCommit", attempt)

    async def committed(self, group: str, partition: TopicPartition) -> int | None:
        topics = [OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )

        async def attempt() -> int | None:
            response = await self._ask(GROUP, group, request, 9)
            (found,) = response.groups
            self._check(found.error_code, GROUP, group)
            for topic in found.topics:
                for one in topic.partitions:
                    self._check(one.error_code, GROUP, group)
                    return one.committed_offset if one.committed_offset >= 0 else None
            return None

        return await self._with_outcome("OffsetFetch", attempt)

    async def commit(self) -> None:
        await self._end(committed=True)

    async def abort(self) -> None:
        await self._end(committed=False)
        if self._needs_epoch:
            await self._init(*self._producer)

    async def _end(self, *, committed: bool) -> None:
        name = self._config.transactional_id
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=committed,
        )

        async def attempt() -> EndTxnResponse:
            version = 5 if self._by_new_rules else 4
            response = await self._ask(TRANSACTION, name, request, version)
            self._check(response.error_code, TRANSACTION, name)
            return response

        if not self._by_new_rules and not self._added:
            return  # nothing has begun
        response = await self._with_outcome("EndTxn", attempt)
        self._added.clear()
        if self._by_new_rules:
            self._producer = response.producer_id, response.producer_epoch
            self._begin_anew()

    async def close(self) -> None:
        """Late writes still arrive."""
        self._cluster.close()

    # Coordinators.

    async def _ask(self, kind: int, key: str, request: Request[M], max_version: int) -> M:
        """One attempt."""
        deadline_ms = self._cluster.deadline(self._client.request_timeout_ms)
        address = self._coordinators.get((kind, key))
        if address is None:
            find = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
            found = (await self._cluster.ask_any(find, deadline_ms)).coordinators[0]
            if found.error_code:
                raise KafkaError(ErrorCode(found.error_code), f"FindCoordinator of {key}")
            address = self._coordinators[kind, key] = Address(found.host, found.port)
        try:
            connection = await self._cluster.connection(address, deadline_ms)
            return await connection.call(request, deadline_ms, max_version=max_version)
        except BaseException:
            self._coordinators.pop((kind, key), None)
            raise

    def _check(self, error_code: int, kind: int, key: str) -> None:
        if error_code in _MOVED:
            self._coordinators.pop((kind, key), None)
        if error_code:
            code = ErrorCode(error_code)
            raise KafkaError(code, code.name)

    async def _with_outcome(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the timeout. A final answer to the first attempt says that nothing has happened."""
        attempts = 0

        async def counted() -> T:
            nonlocal attempts
            attempts += 1
            return await attempt()

        try:
            return await self._cluster.retrying(what, counted, self._cluster.deadline())
        except KafkaError as error:
            text = f"{what}: {error.code.name}: {error.message}"
            is_certain = attempts == 1 and not is_passing(error)
            if error.code in _FENCED:
                raise FencedError(text, is_certain=is_certain) from error
            raise (RefusedError if is_certain else UnknownOutcomeError)(text) from error
