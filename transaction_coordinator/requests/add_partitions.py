"""AddPartitionsToTxn: partitions that a transaction writes to (KIP-98), before its first record gets there.

Versions up to 3 come from clients. Versions 4 and 5 come from partition leaders, for many transactional ids
at once: on behalf of clients of TV_2, or only to verify that a client of TV_0 has added its partition
(KIP-890). Such a request is split by transactional id (:func:`transactions_of`); each is decided on its own.

One partition that does not exist fails all of an id: the others are OPERATION_NOT_ATTEMPTED. So does one of
an internal topic in a request of a client, which could not write to it. Which other topics a client may write
to is not checked, since there is no authorization yet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.errors import (
    concurrent_transactions,
    find_transaction,
    other_producer_id,
    producer_fenced,
)
from pykraft.transaction_coordinator.log.records import TransactionRecord, record_of
from pykraft.transaction_coordinator.result import CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import (
    PREPARED,
    Partitions,
    TopicPartition,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from pykraft.transaction_coordinator.transitions import to_ongoing

MAX_PARTITIONS: Final = 20_000
"""In a transaction: each of its records has all of them, which is ten milliseconds of work."""

Codes: TypeAlias = dict[TopicPartition, ErrorCode]

_FIRST_VERSION_OF_BROKERS = 4
_IDS_AT_ONCE = 200
_PARTITIONS_AT_ONCE = 5_000
_STEPS_AT_ONCE = 500
_INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    """Return the request's transactions; there is one in the versions of clients."""
    if version >= _FIRST_VERSION_OF_BROKERS:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def some_at_a_time(
    transactions: Sequence[AddPartitionsToTxnTransaction],
) -> Iterator[list[AddPartitionsToTxnTransaction]]:
    """Those that may be decided in one turn."""
    some: list[AddPartitionsToTxnTransaction] = []
    partitions = 0
    for one in transactions:
        size = sum(len(topic.partitions) for topic in one.topics)
        if some and (len(some) == _IDS_AT_ONCE or partitions + size > _PARTITIONS_AT_ONCE):
            yield some
            some, partitions = [], 0
        some.append(one)
        partitions += size
    if some:
        yield some


class Wanted:
    """One transactional id's partitions: each once, in the order of the request."""

    def __init__(self, transaction: AddPartitionsToTxnTransaction) -> None:
        self.transaction = transaction
        self.partitions: dict[TopicPartition, None] = {}
        self.refused: dict[TopicPartition, ErrorCode] = {}
        """Those that nobody may add, or no client."""

    def look_up(self, call: Call) -> Iterator[None]:
        """Find what exists; yields after some partitions."""
        by_client = call.version < _FIRST_VERSION_OF_BROKERS
        for number, one in enumerate(_partitions_of(self.transaction), 1):
            self.partitions[one] = None
            if by_client and one[0] in _INTERNAL_TOPICS:
                self.refused[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not call.has_partition(*one):
                self.refused[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if number % _STEPS_AT_ONCE == 0:
                yield

    def all_with(self, code: ErrorCode) -> Codes:
        return dict.fromkeys(self.partitions, code)


def handle_add_partitions(state: ShardState, wanted: Wanted, call: Call) -> CoordinatorResult[Codes]:
    """Decide for one transactional id, which was looked up. Returns the :data:`Codes` of all."""
    if wanted.refused:
        codes = wanted.all_with(ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes.update(wanted.refused)
        return CoordinatorResult(codes)
    transaction = wanted.transaction
    records: tuple[TransactionRecord, ...] = ()
    try:
        if transaction.verify_only:
            codes = _verify(state, wanted, call)
        else:
            by_broker = call.version >= _FIRST_VERSION_OF_BROKERS
            records = add_partitions(
                current_transaction(state, transaction, call, AddPartitionsToTxnRequest.API_KEY),
                frozenset(wanted.partitions),
                TransactionVersion.TV_2 if by_broker else TransactionVersion.TV_0,
                call,
            )
            codes = wanted.all_with(ErrorCode.NONE)
    except KafkaError as error:
        codes = wanted.all_with(error.code)
    return CoordinatorResult(codes, records)


def current_transaction(
    state: ShardState, request: AddPartitionsToTxnTransaction, call: Call, api_key: int
) -> Transaction:
    """The value of a request's id, if the request is of its current producer and partitions may be added."""
    found = find_transaction(state, request.transactional_id)
    if found.is_producer_of_next(request.producer_id, request.producer_epoch):
        raise concurrent_transactions(request.transactional_id)
    if found.producer_id != request.producer_id:
        raise other_producer_id(request.transactional_id)
    if found.producer_epoch != request.producer_epoch:
        raise producer_fenced(api_key, call.version, request.transactional_id)
    if found.state in PREPARED:
        raise concurrent_transactions(request.transactional_id)
    return found


def add_partitions(
    old: Transaction, added: Partitions, client_version: TransactionVersion, call: Call
) -> tuple[TransactionRecord, ...]:
    """The record of the transaction with these partitions; none if it has them already."""
    call.check_served(client_version)
    if len(added) > MAX_PARTITIONS or len(old.partitions | added) > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A transaction has at most {MAX_PARTITIONS} partitions.")
    if old.state is TransactionState.ONGOING and added <= old.partitions:
        return ()
    return (record_of(to_ongoing(old, call.wall_ms, added=added, client_version=client_version)),)


def build_response(results: Sequence[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    """The answer from its parts, which are in the order of :func:`transactions_of`."""
    if version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(results_by_transaction=list(results))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _verify(state: ShardState, wanted: Wanted, call: Call) -> Codes:
    """Whether the transaction has these partitions. If not, a request was lost: abort it."""
    found = current_transaction(state, wanted.transaction, call, AddPartitionsToTxnRequest.API_KEY)
    return {
        one: ErrorCode.NONE if one in found.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for one in wanted.partitions
    }


def _partitions_of(transaction: AddPartitionsToTxnTransaction) -> Iterator[TopicPartition]:
    for topic in transaction.topics:
        for index in topic.partitions:
            yield topic.name, index


def build_result(
    transactional_id: str, codes: Mapping[TopicPartition, ErrorCode]
) -> Generator[None, None, AddPartitionsToTxnResult]:
    """The part of an answer for a transactional id; yields after some partitions."""
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for number, ((topic, index), code) in enumerate(codes.items(), 1):
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        by_topic.setdefault(topic, []).append(result)
        if number % _STEPS_AT_ONCE == 0:
            yield
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
            for topic, results in by_topic.items()
        ],
    )


def build_error(
    request: AddPartitionsToTxnRequest, version: int, error: KafkaError
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    """For a request that fails as a whole: up to version 3 only the partitions have an error."""
    if version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error.code)
    (transaction,) = transactions_of(request, version)
    codes = dict.fromkeys(_partitions_of(transaction), error.code)
    failed = yield from build_result(transaction.transactional_id, codes)
    return build_response([failed], version)


def handle_add_offsets(
    state: ShardState, request: AddOffsetsToTxnRequest, call: Call
) -> CoordinatorResult[AddOffsetsToTxnResponse]:
    """The offsets of a group become part of a transaction, as a partition of ``__consumer_offsets``.

    Only clients of TV_0 send this; for others the group's coordinator adds its partition itself.
    """
    assert call.offsets_partition >= 0, "which partition holds the group?"
    producer = AddPartitionsToTxnTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    records = add_partitions(
        current_transaction(state, producer, call, AddOffsetsToTxnRequest.API_KEY),
        frozenset({(OFFSETS_TOPIC, call.offsets_partition)}),
        TransactionVersion.TV_0,
        call,
    )
    return CoordinatorResult(AddOffsetsToTxnResponse(), records)
