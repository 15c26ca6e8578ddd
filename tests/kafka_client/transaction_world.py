"""A cluster in virtual time that decides about transactions as the product does.

Its coordinator is a shard of the product's own handlers, its leaders check batches with the product's
producer state, and ask the coordinator as leaders do (KIP-890). Networks are scripted: any request may be
refused, lost, carried out without an answer, or carried out long after its sender has given it up.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, Unpack

from pykraft.broker.logs.producers.state import ProducerState
from pykraft.broker.logs.producers.verification import Guard
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_client.producer.transactional import TransactionalProducer
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker, build_marker
from pykraft.kafka_protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from pykraft.kafka_protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pykraft.kafka_protocol.messages.records import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, assign_offset, read_header
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.config import TransactionConfig as CoordinatorConfig
from pykraft.transaction_coordinator.transaction import (
    IDLE,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from tests.kafka_client.scripted import HOST, Answer, ClientSettings, ScriptedCluster
from tests.kafka_client.virtual_cluster import (
    SILENCE,
    VirtualNetwork,
    network_of,
    nothing_unseen,
    run_virtual,
)
from tests.narrowing import present
from tests.transaction_coordinator.shards import KNOWN_TOPICS, NAME, Producer, Shard

T = TypeVar("T")
Place = tuple[str, int]
GROUP = "g"
OFFSETS: Place = ("__consumer_offsets", 11)
COORDINATOR, GROUP_COORDINATOR = 1, 2
_BROKEN = ConnectionResetError("gone")
_FIRST_ENROLLING_PRODUCE = 12
_FIRST_ENROLLING_OFFSETS = 5
_RETRIED_BY_PRODUCERS = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR})


@dataclass(frozen=True)
class Lost:
    """No answer comes. ``after_ms``: when the request is carried out, None: never.

    ``is_silent``: the connection stays open. ``is_begun``: a leader has asked the coordinator before that.
    """

    after_ms: int | None = None
    is_silent: bool = False
    is_begun: bool = False


Fault = ErrorCode | Lost | None
NEVER = Lost()
UNHEARD = Lost(0)


class _Shard(Shard):
    def call(self, version: int = 0, new_producer_id: int | None = None) -> Call:
        call = super().call(version, new_producer_id)
        call.has_partition = lambda topic, partition: (
            partition < KNOWN_TOPICS.get(topic, 0) or (topic, partition) == OFFSETS
        )
        return call


class PartitionLog:
    """One partition: batches and markers, and what its leader knows of producers."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.batches: list[tuple[BatchHeader, list[str], Marker | None]] = []
        self.end_offset = 0

    def append(self, data: bytes, guard: Guard | None) -> int:
        """The base offset. :class:`KafkaError` as the product's leaders refuse."""
        batch = bytearray(data)
        header = read_header(batch)
        duplicate = self.state.check(header, guard)
        if duplicate is not None:
            return duplicate.base_offset
        return self._write(batch, None, [present(one.value).decode() for one in decode_batch(batch)])

    def write_marker(self, end: EndOfTransaction) -> None:
        self.state.check_end(end)
        data = build_marker(end.producer_id, end.producer_epoch, end.marker, 0)
        self._write(bytearray(data), end.marker, [])

    def _write(self, batch: bytearray, marker: Marker | None, values: list[str]) -> int:
        base_offset = self.end_offset
        assign_offset(batch, 0, base_offset, 0)
        header = read_header(batch)
        self.state.replay(header, marker)
        self.batches.append((header, values, marker))
        self.end_offset = header.next_offset
        return base_offset

    def committed(self) -> list[str]:
        """What a reader with read_committed finds, once nothing is open."""
        assert self.state.transactions.first_open_offset is None
        found: list[tuple[int, list[str]]] = []
        undecided: defaultdict[int, list[tuple[int, list[str]]]] = defaultdict(list)
        for header, values, marker in self.batches:
            if marker is None:
                undecided[header.producer_id].append((header.base_offset, values))
            else:
                ended = undecided.pop(header.producer_id, [])
                found += ended if marker.kind == COMMIT else []
        return [value for _, values in sorted(found) for value in values]

    def everything(self) -> list[str]:
        return [value for _, values, _ in self.batches for value in values]


class TransactionWorld:
    """``fault`` is asked about every request of a producer. ``marker_delay_ms``: from decision to marker."""

    def __init__(self, rules: TransactionVersion = TransactionVersion.TV_2) -> None:
        self.cluster = ScriptedCluster()
        self.shard = _Shard(version=rules, config=CoordinatorConfig(max_timeout_ms=1 << 30))
        self.coordinator_id = COORDINATOR
        self.coordinator_epoch = 0
        self.logs: defaultdict[Place, PartitionLog] = defaultdict(PartitionLog)
        self.offsets: dict[Place, int] = {}
        self.pending: defaultdict[int, dict[Place, int]] = defaultdict(dict)
        self.member: tuple[str, int] = ("", -1)
        self.fault: Callable[[int, Any], Fault] = lambda api, request: None
        self.marker_delay_ms: Callable[[], int] = lambda: 5
        self.decided: list[Transaction] = []
        self._sent_markers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.cluster.add_topic("t", {0: (1, 0), 1: (2, 0)})
        self.cluster.add_topic("u", {0: (3, 0)})
        handlers: dict[int, Callable[[int, Any, int], Message]] = {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.END_TXN: self.end_txn,
            ApiKey.TXN_OFFSET_COMMIT: self.txn_offset_commit,
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
        }
        for api, handler in handlers.items():
            self.cluster.script(api, partial(self._answer, api, handler))
        self.cluster.script(ApiKey.PRODUCE, self._produce)
        self.cluster.script(ApiKey.API_VERSIONS, self._api_versions)

    # -- what tests do -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def sweeping(self) -> AsyncIterator[None]:
        sweeps = asyncio.ensure_future(self._sweep())
        try:
            yield
        finally:
            sweeps.cancel()

    def run(self, body: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self.sweeping():
                return await body()

        return run_virtual(main())

    def producer(
        self,
        *,
        transaction_timeout_ms: int = 60_000,
        config: ProducerConfig | None = None,
        network: VirtualNetwork | None = None,
        **client: Unpack[ClientSettings],
    ) -> TransactionalProducer:
        settings: ClientSettings = {"request_timeout_ms": 1_000}
        settings |= client
        addresses = tuple(broker.address for broker in self.cluster.brokers.values())
        return TransactionalProducer(
            network or network_of(self.cluster),
            ClientConfig(addresses, **settings),
            config or ProducerConfig(linger_ms=1, delivery_timeout_ms=8_000),
            TransactionConfig(NAME, transaction_timeout_ms),
        )

    async def settled(self) -> None:
        """No transaction is open or being completed."""
        while any(value.state not in IDLE for _, value in self.shard.state.transactions.items()):
            await asyncio.sleep(1)
        await asyncio.sleep(1)

    def committed(self, topic: str = "t", partition: int = 0) -> list[str]:
        return self.logs[topic, partition].committed()

    def set_rules(self, rules: TransactionVersion) -> None:
        self.shard.version = rules

    def limit(self, api: int, newest: int, brokers: Iterable[int] = (1, 2, 3)) -> None:
        """These brokers serve the API up to a version."""
        for broker_id in brokers:
            self.cluster.brokers[broker_id].ranges[api] = (0, newest)

    def move_coordinator(self) -> None:
        self.coordinator_id = self.coordinator_id % len(self.cluster.brokers) + 1
        self.coordinator_epoch += 1
        self.shard.fail_over()
        self._send_markers()

    # -- faults --------------------------------------------------------------------------------------------

    def _answer(
        self, api: int, handler: Callable[[int, Any, int], Message], broker: int, request: Any, version: int
    ) -> Answer:
        fault = self.fault(api, request)
        if fault is None:
            return handler(broker, request, version)
        if isinstance(fault, ErrorCode):
            return _refusal(request, version, fault)
        self._later(fault.after_ms, lambda: handler(broker, request, version))
        return SILENCE if fault.is_silent else _BROKEN

    def _later(self, after_ms: int | None, work: Callable[[], object]) -> None:
        if after_ms == 0:
            work()
        elif after_ms is not None:
            asyncio.get_running_loop().call_later(after_ms / 1000, work)

    def _decide(self) -> Shard:
        """The shard, at this moment; markers of what is decided are sent afterwards."""
        loop = asyncio.get_running_loop()
        self.shard.now_ms = int(loop.time() * 1000)
        loop.call_soon(self._send_markers)
        return self.shard

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self._decide().abort_timed_out()

    # -- brokers -------------------------------------------------------------------------------------------

    def _api_versions(self, broker_id: int, request: ApiVersionsRequest, version: int) -> Answer:
        broker = self.cluster.brokers[broker_id]
        ranges = {key: (0, request_class(key).MAX_VERSION) for key in broker.handlers} | broker.ranges
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in ranges.items()],
            finalized_features_epoch=1,
            finalized_features=[
                FinalizedFeatureKey(name="transaction.version", max_version_level=self.shard.version)
            ],
        )

    def find_coordinator(self, broker: int, request: FindCoordinatorRequest, version: int) -> Message:
        node = GROUP_COORDINATOR if request.key_type == 0 else self.coordinator_id
        (key,) = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, node_id=node, host=HOST, port=node)]
        )

    def init_producer_id(self, broker: int, request: InitProducerIdRequest, version: int) -> Message:
        if broker != self.coordinator_id:
            return _refusal(request, version, ErrorCode.NOT_COORDINATOR)
        found = self._decide().init(
            request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=(request.producer_id, request.producer_epoch),
            version=version,
        )
        if isinstance(found, ErrorCode):
            return _refusal(request, version, found)
        return InitProducerIdResponse(producer_id=found[0], producer_epoch=found[1])

    def add_partitions(self, broker: int, request: AddPartitionsToTxnRequest, version: int) -> Message:
        if broker != self.coordinator_id:
            return _refusal(request, version, ErrorCode.NOT_COORDINATOR)
        topics = request.v3_and_below_topics
        codes = self._decide().add(
            (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            [(topic.name, index) for topic in topics for index in topic.partitions],
            name=request.v3_and_below_transactional_id,
            version=version,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=codes[topic.name, index]
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    def add_offsets(self, broker: int, request: AddOffsetsToTxnRequest, version: int) -> Message:
        if broker != self.coordinator_id:
            return _refusal(request, version, ErrorCode.NOT_COORDINATOR)
        producer = request.producer_id, request.producer_epoch
        code = self._decide().add_offsets(producer, name=request.transactional_id, version=version)
        return AddOffsetsToTxnResponse(error_code=code)

    def end_txn(self, broker: int, request: EndTxnRequest, version: int) -> Message:
        if broker != self.coordinator_id:
            return _refusal(request, version, ErrorCode.NOT_COORDINATOR)
        producer = request.producer_id, request.producer_epoch
        found = self._decide().end(
            producer, commit=request.committed, version=version, name=request.transactional_id
        )
        if isinstance(found, ErrorCode):
            return _refusal(request, version, found)
        return EndTxnResponse(producer_id=found[0], producer_epoch=found[1])

    def txn_offset_commit(self, broker: int, request: TxnOffsetCommitRequest, version: int) -> Message:
        if broker != GROUP_COORDINATOR:
            return _refusal(request, version, ErrorCode.NOT_COORDINATOR)
        if request.member_id and (request.member_id, request.generation_id) != self.member:
            return _refusal(request, version, ErrorCode.ILLEGAL_GENERATION)
        data = encode_batch(
            [RecordInput(None, b"offsets", (), 0)],
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            is_transactional=True,
        )
        log = self.logs[OFFSETS]
        try:
            guard = self._verified(OFFSETS, data, version >= _FIRST_ENROLLING_OFFSETS)
            log.append(data, guard)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_ENROLLING_OFFSETS - 1:
                code = ErrorCode.INVALID_TXN_STATE
            return _refusal(request, version, code)
        self.pending[request.producer_id] |= {
            (topic.name, one.partition_index): one.committed_offset
            for topic in request.topics
            for one in topic.partitions
        }
        return _refusal(request, version, ErrorCode.NONE)

    def _verified(self, place: Place, data: bytes, adds: bool) -> Guard | None:
        """What a leader asks the coordinator before the first batch of a transaction."""
        header = read_header(data)
        guard = self.logs[place].state.begin_verification(header, 0, supports_epoch_bump=adds)
        if guard is None:
            return None
        producer: Producer = header.producer_id, header.producer_epoch
        code = self._decide().add(producer, [place], version=5, verify_only=not adds)[place]
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code:
            raise KafkaError(code, code.name)
        return guard

    def _produce(self, broker: int, request: ProduceRequest, version: int) -> Answer:
        assert request.transactional_id == NAME
        fault = self.fault(ApiKey.PRODUCE, request)
        if isinstance(fault, ErrorCode):
            return self._produced(request, lambda place, data: _produce_error(fault))
        begin = partial(self._begin_produce, broker, version)
        if fault is None:
            return self._finish_produce(request, version, self._each(request, begin))
        if fault.is_begun:
            begun = self._each(request, begin)
            self._later(fault.after_ms, lambda: self._finish_produce(request, version, begun))
        else:
            self._later(
                fault.after_ms,
                lambda: self._finish_produce(request, version, self._each(request, begin)),
            )
        return SILENCE if fault.is_silent else _BROKEN

    def _each(
        self, request: ProduceRequest, work: Callable[[Place, bytes], T | KafkaError]
    ) -> dict[Place, T | KafkaError]:
        names = {id: name for name, id in self.cluster.topic_ids.items()}
        return {
            (topic.name or names[topic.topic_id], one.index): work(
                (topic.name or names[topic.topic_id], one.index), bytes(present(one.records))
            )
            for topic in request.topic_data
            for one in topic.partition_data
        }

    def _begin_produce(
        self, broker: int, version: int, place: Place, data: bytes
    ) -> Guard | KafkaError | None:
        if self.cluster.leaders[place[0]][place[1]][0] != broker:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        adds = version >= _FIRST_ENROLLING_PRODUCE
        try:
            return self._verified(place, data, adds)
        except KafkaError as error:
            if error.code in _RETRIED_BY_PRODUCERS and not adds:
                return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            if error.code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_ENROLLING_PRODUCE - 1:
                return KafkaError(ErrorCode.INVALID_TXN_STATE)
            return error

    def _finish_produce(
        self, request: ProduceRequest, version: int, begun: dict[Place, Guard | KafkaError | None]
    ) -> Answer:
        def finish(place: Place, data: bytes) -> PartitionProduceResponse:
            guard = begun[place]
            if isinstance(guard, KafkaError):
                return _produce_error(guard.code)
            try:
                return PartitionProduceResponse(base_offset=self.logs[place].append(data, guard))
            except KafkaError as error:
                return _produce_error(error.code)

        return self._produced(request, finish)

    def _produced(
        self, request: ProduceRequest, work: Callable[[Place, bytes], PartitionProduceResponse]
    ) -> Answer:
        results = self._each(request, work)
        names = {id: name for name, id in self.cluster.topic_ids.items()}
        topics = []
        for topic in request.topic_data:
            answers = []
            for one in topic.partition_data:
                answer = results[topic.name or names[topic.topic_id], one.index]
                assert isinstance(answer, PartitionProduceResponse)
                answer.index = one.index
                answers.append(answer)
            topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return ProduceResponse(responses=topics)

    # -- markers -------------------------------------------------------------------------------------------

    def _send_markers(self) -> None:
        prepared, self.shard.prepared = self.shard.prepared, []
        for value in prepared:
            self.decided.append(value)
            task = asyncio.ensure_future(self._complete(value, self.coordinator_epoch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _complete(self, value: Transaction, coordinator_epoch: int) -> None:
        kind = COMMIT if value.state is TransactionState.PREPARE_COMMIT else ABORT
        end = EndOfTransaction(
            value.producer_id,
            value.producer_epoch,
            Marker(kind, coordinator_epoch),
            value.client_version,
        )
        for place in sorted(value.partitions):
            await asyncio.sleep(self.marker_delay_ms() / 1000)
            try:
                self.logs[place].write_marker(end)
            except KafkaError:
                assert self.coordinator_epoch > coordinator_epoch, "a marker that nobody repeats is refused"
                return
            if place == OFFSETS:
                offsets = self.pending.pop(value.producer_id, {})
                self.offsets |= offsets if kind == COMMIT else {}
        if coordinator_epoch == self.coordinator_epoch:
            self._decide().complete(value.transactional_id, value)


def _produce_error(code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(error_code=code, base_offset=-1)


def _refusal(request: Message, version: int, code: ErrorCode) -> Message:
    """The answer that has this code everywhere."""
    if isinstance(request, InitProducerIdRequest):
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if isinstance(request, EndTxnRequest):
        return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if isinstance(request, AddOffsetsToTxnRequest):
        return AddOffsetsToTxnResponse(error_code=code)
    if isinstance(request, FindCoordinatorRequest):
        (key,) = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, error_code=code)])
    if isinstance(request, AddPartitionsToTxnRequest):
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )
    assert isinstance(request, TxnOffsetCommitRequest)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@asynccontextmanager
async def running_world(rules: TransactionVersion) -> AsyncIterator[TransactionWorld]:
    world = TransactionWorld(rules)
    async with nothing_unseen(), world.sweeping():
        yield world
