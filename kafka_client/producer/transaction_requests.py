"""The requests of a transactional producer to its coordinators. Each function is one attempt.

Which version is sent tells the coordinator which rules apply (KIP-890), so the versions are bounded on both
sides. An error is raised as the type that says what can be done about it (:func:`classified`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from pykraft.kafka_client.cluster import is_passing
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.errors import (
    AbortableError,
    FatalTransactionError,
    FencedError,
    MalformedAnswerError,
    TransactionError,
    UnsupportedByBrokerError,
)
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.transaction import ProducerIdentity, ProducerTransaction, TransactionConfig
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)

LAST_INIT_PRODUCER_ID_VERSION: Final = 5
"""Version 6 is two-phase commit, which no broker offers yet."""
_INIT_PRODUCER_ID_VERSION_WITH_EPOCH: Final = 3
_LAST_ADD_PARTITIONS_VERSION_OF_CLIENTS: Final = 3
_IMPLICIT_TXN_OFFSET_COMMIT_VERSION: Final = 5
_TXN_OFFSET_COMMIT_VERSION_WITH_MEMBER: Final = 3
_IMPLICIT_END_TXN_VERSION: Final = 5
_IMPLICIT_RULES: Final = 2
"""The level of the feature ``transaction.version`` that stands for KIP-890."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_FATAL = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)

NOT_CARRIED_OUT: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The passing answers after which a request had no effect and will have none.

Others are also given to requests that are being replicated.
"""


def may_take_effect(error: KafkaError) -> bool:
    """Whether a request that ended with this error may have been carried out, or be carried out later."""
    if isinstance(error, MalformedAnswerError):
        return True
    return is_passing(error) and error.code not in NOT_CARRIED_OUT


def classified(error: KafkaError, what: str) -> KafkaError:
    """The error as a type that says what to do: close, or abort and go on. Passing ones as they are."""
    if isinstance(error, TransactionError):
        return error
    message = f"{what}: {error.message}"
    if error.code in _FENCED:
        return FencedError(error.code, message)
    if error.code in _FATAL:
        return FatalTransactionError(error.code, message)
    if is_passing(error):
        return error
    return AbortableError(error.code, message)


def failure(error: KafkaError) -> TransactionError:
    """The error that a record, or an offset, was given up with, as the type that says what to do.

    An epoch that a leader refuses is no proof of another producer: the coordinator knows, when it is asked to
    abort.
    """
    if isinstance(error, TransactionError):
        return error
    if error.code in _FATAL:
        return FatalTransactionError(error.code, error.message)
    return AbortableError(error.code, error.message)


def _check(link: CoordinatorLink, code: int, what: str) -> None:
    try:
        link.check(code, ErrorCode(code).name)
    except KafkaError as error:
        raise classified(error, what) from None


async def implicit_rules(link: CoordinatorLink, deadline_ms: int) -> bool:
    """Whether the cluster had finalized ``transaction.version`` 2 when the coordinator was connected."""
    connection = await link.connection(deadline_ms)
    return connection.finalized_features.get("transaction.version", 0) >= _IMPLICIT_RULES


async def init_producer_id(
    link: CoordinatorLink, config: TransactionConfig, known: ProducerIdentity | None, deadline_ms: int
) -> ProducerIdentity:
    """Become the producer of the transactional id and fence every other; or, as ``known``, get an epoch."""
    request = InitProducerIdRequest(
        transactional_id=config.transactional_id, transaction_timeout_ms=config.transaction_timeout_ms
    )
    if known is not None:
        request.producer_id, request.producer_epoch = known
        await _need(link, request, _INIT_PRODUCER_ID_VERSION_WITH_EPOCH, deadline_ms)
    response = await link.call(request, deadline_ms, max_version=LAST_INIT_PRODUCER_ID_VERSION)
    _check(link, response.error_code, "InitProducerId")
    return ProducerIdentity(response.producer_id, response.producer_epoch)


async def add_partitions(
    link: CoordinatorLink,
    transaction: ProducerTransaction,
    partitions: Iterable[TopicPartition],
    deadline_ms: int,
) -> None:
    """Put the partitions into the transaction: all of them or none."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.config.transactional_id,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()
        ],
    )
    request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = _identity(transaction)
    response = await link.call(
        request,
        deadline_ms,
        max_version=_LAST_ADD_PARTITIONS_VERSION_OF_CLIENTS,
    )
    codes = {
        result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }
    _check_worst(link, codes, "AddPartitionsToTxn")


async def add_offsets(
    link: CoordinatorLink, transaction: ProducerTransaction, group_id: str, deadline_ms: int
) -> None:
    """Put the group's offsets into the transaction."""
    producer_id, producer_epoch = _identity(transaction)
    request = AddOffsetsToTxnRequest(
        transactional_id=transaction.config.transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        group_id=group_id,
    )
    response = await link.call(request, deadline_ms)
    _check(link, response.error_code, f"AddOffsetsToTxn of group {group_id}")


async def commit_offsets(
    group_link: CoordinatorLink,
    transaction: ProducerTransaction,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: GroupIdentity | None,
    deadline_ms: int,
) -> None:
    """Commit offsets of the group with the transaction. ``member``: who read up to them (KIP-447)."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), offset in sorted(offsets.items()):
        by_topic[topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    producer_id, producer_epoch = _identity(transaction)
    request = TxnOffsetCommitRequest(
        transactional_id=transaction.config.transactional_id,
        group_id=group_link.key,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=p) for name, p in by_topic.items()],
    )
    if member is not None:
        request.member_id, request.generation_id = member.member_id, member.member_epoch
        request.group_instance_id = member.instance_id
        await _need(group_link, request, _TXN_OFFSET_COMMIT_VERSION_WITH_MEMBER, deadline_ms)
    if transaction.is_implicit:
        await _need(group_link, request, _IMPLICIT_TXN_OFFSET_COMMIT_VERSION, deadline_ms)
    ceiling = None if transaction.is_implicit else _IMPLICIT_TXN_OFFSET_COMMIT_VERSION - 1
    response = await group_link.call(request, deadline_ms, max_version=ceiling)
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    _check_worst(group_link, codes, f"TxnOffsetCommit of group {group_link.key}")


async def end_txn(
    link: CoordinatorLink, transaction: ProducerTransaction, committed: bool, deadline_ms: int
) -> ProducerIdentity:
    """Commit or abort; who writes the next transaction. Repeating it gets the same answer."""
    identity = _identity(transaction)
    request = EndTxnRequest(
        transactional_id=transaction.config.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )
    if transaction.is_implicit:
        await _need(link, request, _IMPLICIT_END_TXN_VERSION, deadline_ms)
    ceiling = None if transaction.is_implicit else _IMPLICIT_END_TXN_VERSION - 1
    response = await link.call(request, deadline_ms, max_version=ceiling)
    _check(link, response.error_code, "EndTxn")
    if not transaction.is_implicit:
        return identity
    if response.producer_id < 0 or response.producer_epoch < 0:
        raise MalformedAnswerError("EndTxn: the answer leaves out the producer's next epoch")
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def _identity(transaction: ProducerTransaction) -> ProducerIdentity:
    assert transaction.identity is not None, "a producer id comes first"
    return transaction.identity


def _check_worst(link: CoordinatorLink, codes: Iterable[int], what: str) -> None:
    """Raise what is final rather than what passes.

    OPERATION_NOT_ATTEMPTED only tells that another partition was refused.
    """
    errors = [KafkaError(ErrorCode(code)) for code in sorted(set(codes)) if code]
    refused = [error for error in errors if error.code is not ErrorCode.OPERATION_NOT_ATTEMPTED] or errors
    if refused:
        _check(link, min(refused, key=is_passing).code, what)


async def _need(
    link: CoordinatorLink,
    request: InitProducerIdRequest | TxnOffsetCommitRequest | EndTxnRequest,
    version: int,
    deadline_ms: int,
) -> None:
    """:class:`UnsupportedByBrokerError` if the coordinator serves older versions of the request only."""
    connection = await link.connection(deadline_ms)
    served = connection.version_for(request)
    if served < version:
        raise UnsupportedByBrokerError(
            f"the broker at {connection.address} serves {type(request).__name__} up to version {served}, "
            f"version {version} is needed"
        )
