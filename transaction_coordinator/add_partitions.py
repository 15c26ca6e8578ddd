"""AddPartitionsToTxn: partitions that a transaction writes to (KIP-98), before its first record gets there.

Versions up to 3 come from clients. Versions 4 and 5 come from partition leaders, for many transactional ids
at once: on behalf of clients of TV_2, or only to verify that a client of TV_0 has added its partition
(KIP-890). Such a request is split by transactional id (:func:`transactions_of`); each is decided on its own.

One partition that does not exist fails all of an id: the others are OPERATION_NOT_ATTEMPTED. So does one of
an internal topic in a request of a client, which could not write to it. Which other topics a client may write
to is not checked, since there is no authorization yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.add_partitions_to_txn import (
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
from pykraft.transaction_coordinator.records import TransactionRecord, record_of
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

_FIRST_VERSION_OF_BROKERS = 4
_INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    """What is asked for each transactional id; one in the versions of clients."""
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


def handle_add_partitions(
    state: ShardState, transaction: AddPartitionsToTxnTransaction, call: Call
) -> CoordinatorResult:
    """Decide for one transactional id. Errors are in the answer, an :class:`AddPartitionsToTxnResult`."""
    wanted = _partitions_of(transaction)
    refused = _refuse_some(wanted, call)
    if refused:
        codes = {one: refused.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in wanted}
        return CoordinatorResult(_build_result(transaction.transactional_id, codes))
    records: tuple[TransactionRecord, ...] = ()
    try:
        if transaction.verify_only:
            codes = _verify(state, transaction, wanted, call)
        else:
            by_broker = call.version >= _FIRST_VERSION_OF_BROKERS
            records = add_partitions(
                current_transaction(state, transaction, call, AddPartitionsToTxnRequest.API_KEY),
                frozenset(wanted),
                TransactionVersion.TV_2 if by_broker else TransactionVersion.TV_0,
                call,
            )
            codes = dict.fromkeys(wanted, ErrorCode.NONE)
    except KafkaError as error:
        return CoordinatorResult(build_failure(transaction, error.code))
    return CoordinatorResult(_build_result(transaction.transactional_id, codes), records)


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
    if old.state is TransactionState.ONGOING and added <= old.partitions:
        return ()
    return (record_of(to_ongoing(old, call.wall_ms, added=added, client_version=client_version)),)


def build_failure(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    """The part of an answer for a transactional id that failed as a whole."""
    codes = dict.fromkeys(_partitions_of(transaction), code)
    return _build_result(transaction.transactional_id, codes)


def build_response(results: Sequence[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    """The answer from its parts, which are in the order of :func:`transactions_of`."""
    if version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(results_by_transaction=list(results))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _verify(
    state: ShardState,
    transaction: AddPartitionsToTxnTransaction,
    wanted: Sequence[TopicPartition],
    call: Call,
) -> dict[TopicPartition, ErrorCode]:
    """Whether the transaction has these partitions. If not, a request was lost: abort it."""
    found = current_transaction(state, transaction, call, AddPartitionsToTxnRequest.API_KEY)
    return {
        one: ErrorCode.NONE if one in found.partitions else ErrorCode.TRANSACTION_ABORTABLE for one in wanted
    }


def _refuse_some(wanted: Sequence[TopicPartition], call: Call) -> dict[TopicPartition, ErrorCode]:
    """The partitions that nobody may add, or no client."""
    by_client = call.version < _FIRST_VERSION_OF_BROKERS
    refused = {}
    for one in wanted:
        if by_client and one[0] in _INTERNAL_TOPICS:
            refused[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not call.has_partition(*one):
            refused[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _partitions_of(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    """Each once, in the order of the request."""
    return list(
        dict.fromkeys((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    )


def _build_result(
    transactional_id: str, codes: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        by_topic.setdefault(topic, []).append(result)
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
            for topic, results in by_topic.items()
        ],
    )


def build_error(
    request: AddPartitionsToTxnRequest, version: int, error: KafkaError
) -> AddPartitionsToTxnResponse:
    """For a request that fails as a whole: up to version 3 only the partitions have an error."""
    if version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error.code)
    failed = [build_failure(one, error.code) for one in transactions_of(request, version)]
    return build_response(failed, version)
