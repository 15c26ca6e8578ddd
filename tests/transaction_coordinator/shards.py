"""One shard of a transaction coordinator without a broker: requests go in, records are kept as bytes.

What a handler decides is replayed at once, and its records are encoded and appended to ``log``; a new
coordinator (:meth:`Shard.fail_over`) has nothing else. Producer ids are given out from 1,000 on.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykraft.transaction_coordinator.call import Call, NeedsProducerIdError
from pykraft.transaction_coordinator.config import TransactionConfig
from pykraft.transaction_coordinator.log.codec import by_topic, decode_record, encode_record
from pykraft.transaction_coordinator.log.records import record_of
from pykraft.transaction_coordinator.log.replay import replay, replay_decided
from pykraft.transaction_coordinator.requests.add_partitions import (
    Codes,
    Wanted,
    build_result,
    handle_add_offsets,
    handle_add_partitions,
)
from pykraft.transaction_coordinator.requests.end_txn import handle_end_txn
from pykraft.transaction_coordinator.requests.endings import (
    find_expired,
    find_timed_out,
    handle_complete,
    handle_expiry,
    handle_timeout,
)
from pykraft.transaction_coordinator.requests.init_producer_id import handle_init_producer_id
from pykraft.transaction_coordinator.result import AnyResult
from pykraft.transaction_coordinator.state import EMPTY_STATE, ShardState
from pykraft.transaction_coordinator.transaction import (
    NO_PARTITIONS,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from tests.narrowing import as_type

NAME = "my-id"
TIMEOUT_MS = 60_000
T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)
KNOWN_TOPICS = {"t": 2, "u": 1, "__consumer_offsets": 50, "__transaction_state": 50}
FIRST_PRODUCER_ID = 1_000

Producer = tuple[int, int]
"""Producer id and epoch."""

NO_PRODUCER: Producer = (-1, -1)


def a_transaction(state: TransactionState, epoch: int = 5, **changes: object) -> Transaction:
    """A value of :data:`NAME` with producer id 7, as it may be in a log."""
    is_open = state not in (TransactionState.EMPTY, *_COMPLETE)
    value = Transaction(
        NAME,
        7,
        epoch,
        TIMEOUT_MS,
        state,
        frozenset({T0}) if is_open else NO_PARTITIONS,
        last_update_timestamp_ms=0,
        start_timestamp_ms=-1 if state is TransactionState.EMPTY else 0,
        previous_producer_id=7,
    )
    return replace(value, **changes)  # type: ignore[arg-type]


_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Shard:
    def __init__(
        self,
        *values: Transaction,
        version: TransactionVersion = TransactionVersion.TV_2,
        config: TransactionConfig | None = None,
    ) -> None:
        self.state: ShardState = EMPTY_STATE
        self.log: list[tuple[bytes, bytes | None]] = []
        self.version = version
        self.config = config or TransactionConfig()
        self.now_ms = 0
        self.next_producer_id = FIRST_PRODUCER_ID
        self.prepared: list[Transaction] = []
        """Every transaction that a result has ended: its markers are due once."""
        for value in values:
            self.state = replay(self.state, record_of(value))
            self.log.append(encode_record(record_of(value), version))

    # --- what a shard does with a handler ----------------------------------------------------------------

    def call(self, version: int = 0, new_producer_id: int | None = None) -> Call:
        return Call(
            self.config,
            version,
            self.now_ms,
            self.version,
            lambda topic, partition: 0 <= partition < KNOWN_TOPICS.get(topic, 0),
            new_producer_id,
            offsets_partition=11,
        )

    def run(self, decide: Callable[[Call], AnyResult], version: int = 0) -> AnyResult:
        """Decide, again with a new producer id if that is needed, then replay and append."""
        try:
            result = decide(self.call(version))
        except NeedsProducerIdError:
            result = decide(self.call(version, self.next_producer_id))
            self.next_producer_id += 1
        self.state = replay_decided(self.state, result.records)
        self.log += [encode_record(record, self.version) for record in result.records]
        ended = [one.value for one in result.records if one.value and one.value.state in PREPARED]
        assert result.prepared == tuple(value.transactional_id for value in ended)
        self.prepared += ended
        return result

    def rebuilt(self) -> ShardState:
        """What a new coordinator reads from the log."""
        state = EMPTY_STATE
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            state = replay(state, record)
        return state

    def fail_over(self) -> None:
        """A new coordinator sends the markers of all that it finds prepared."""
        self.state = self.rebuilt()
        self.prepared += [self.state.transactions[name] for name in sorted(self.state.prepared)]

    def value(self, name: str = NAME) -> Transaction:
        return self.state.transactions[name]

    # --- requests: the error code, or what the answer has --------------------------------------------------

    def init(
        self,
        name: str | None = NAME,
        *,
        timeout_ms: int = TIMEOUT_MS,
        expected: Producer = NO_PRODUCER,
        version: int = 5,
    ) -> Producer | ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        try:
            result = self.run(lambda call: handle_init_producer_id(self.state, request, call), version)
        except KafkaError as error:
            return error.code
        response = as_type(result.response, InitProducerIdResponse)
        producer = response.producer_id, response.producer_epoch
        if response.error_code:
            assert producer == NO_PRODUCER
            return ErrorCode(response.error_code)
        return producer

    def add(
        self,
        producer: Producer,
        partitions: Iterable[TopicPartition] = (T0,),
        *,
        name: str = NAME,
        version: int = 3,
        verify_only: bool = False,
    ) -> dict[TopicPartition, ErrorCode]:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        wanted = Wanted(transaction)
        assert len(list(wanted.look_up(self.call(version)))) <= 1
        result = self.run(lambda call: handle_add_partitions(self.state, wanted, call), version)
        codes: Codes = as_type(result.response, dict)
        answer = at_once(build_result(name, codes))
        assert answer.transactional_id == name
        return {
            (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
            for topic in answer.topic_results
            for one in topic.results_by_partition
        }

    def add_offsets(self, producer: Producer, *, name: str = NAME, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        try:
            self.run(lambda call: handle_add_offsets(self.state, request, call), version)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def end(
        self, producer: Producer, *, commit: bool, version: int = 5, name: str = NAME
    ) -> Producer | ErrorCode:
        """The producer for the next transaction, which is (-1, -1) in the versions that have none."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        try:
            result = self.run(lambda call: handle_end_txn(self.state, request, call), version)
        except KafkaError as error:
            return error.code
        response = as_type(result.response, EndTxnResponse)
        assert response.error_code == ErrorCode.NONE
        return response.producer_id, response.producer_epoch

    def complete(self, name: str = NAME, prepared: Transaction | None = None) -> AnyResult:
        """All markers of a prepared transaction are written."""
        value = prepared or self.value(name)
        return self.run(lambda call: handle_complete(self.state, value, call))

    def abort_timed_out(self) -> list[str]:
        """One sweep; the ids that it aborted."""
        found = [name for name in find_timed_out(self.state, self.now_ms) if name is not None]
        return [name for name in sorted(found) if self.time_out(name)]

    def time_out(self, name: str = NAME) -> bool:
        return bool(self.run(lambda call: handle_timeout(self.state, name, call)).records)

    def expire(self) -> list[str]:
        """One sweep; the ids that it deleted."""
        found = [name for name in find_expired(self.state, self.call()) if name is not None]
        result = self.run(lambda call: handle_expiry(self.state, found, call))
        return [record.transactional_id for record in result.records]
