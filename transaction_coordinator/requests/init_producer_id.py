"""InitProducerId: a producer takes over a transactional id (KIP-98), or recovers after an error (KIP-360).

Each producer that begins gets an epoch of its own; from then on requests at older epochs are refused. A
transaction that its predecessor left open is aborted first: the answer is CONCURRENT_TRANSACTIONS, the client
tries again until the markers are written, and then gets an epoch that nobody had.

A producer that names its id and epoch goes on only if it is still the current one. If the answer to that was
lost it may ask again with the old ones, and gets the same answer; not after a failover, since the old epoch
is in no record. That holds for the last epoch of an id, too (where Kafka answers UNKNOWN_SERVER_ERROR).
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from pykraft.lazy_dataclass import dataclass
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.errors import (
    check_transactional_id,
    concurrent_transactions,
    producer_fenced,
)
from pykraft.transaction_coordinator.log.records import record_of
from pykraft.transaction_coordinator.requests.endings import fence
from pykraft.transaction_coordinator.result import CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import (
    LAST_EPOCH_OF_CLIENTS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from pykraft.transaction_coordinator.transitions import create, to_empty


@dataclass(frozen=True, slots=True)
class _Expected:
    """Which producer the client believes to be."""

    producer_id: int
    epoch: int


def handle_init_producer_id(
    state: ShardState, request: InitProducerIdRequest, call: Call
) -> CoordinatorResult[InitProducerIdResponse]:
    expected = _expected_producer(request)
    if request.transactional_id is None:  # idempotent only: nothing to remember, and always a new id
        return CoordinatorResult(
            InitProducerIdResponse(producer_id=call.take_producer_id(), producer_epoch=0)
        )
    check_transactional_id(request.transactional_id)
    if not 0 < request.transaction_timeout_ms <= call.config.max_timeout_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"The transaction timeout is not between 1 and {call.config.max_timeout_ms} ms.",
        )
    old = state.transactions.get(request.transactional_id)
    if old is None:
        new = create(
            request.transactional_id,
            call.take_producer_id(),
            request.transaction_timeout_ms,
            call.wall_ms,
        )
        return _answer_with(new)
    if expected is not None and not _may_be_current(expected, old):
        raise _fenced(old, call)
    if old.state in PREPARED:
        raise concurrent_transactions(old.transactional_id)
    if old.state is TransactionState.ONGOING:
        response = build_error(request, call.version, concurrent_transactions(old.transactional_id))
        return CoordinatorResult(response, (record_of(fence(old, call)),), (old.transactional_id,))
    return _answer_with(_begin_session(old, expected, request.transaction_timeout_ms, call))


def build_error(request: InitProducerIdRequest, version: int, error: KafkaError) -> InitProducerIdResponse:
    """As Kafka has it: not even an epoch of 0."""
    return InitProducerIdResponse(
        error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def _answer_with(new: Transaction) -> CoordinatorResult[InitProducerIdResponse]:
    response = InitProducerIdResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch)
    return CoordinatorResult(response, (record_of(new),))


def _expected_producer(request: InitProducerIdRequest) -> _Expected | None:
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id and an epoch must be given together.")
    return _Expected(request.producer_id, request.producer_epoch) if has_id else None


def _may_be_current(expected: _Expected, old: Transaction) -> bool:
    """Going by the id. The id before counts if its epochs are used up: the new one may have been lost. So
    does the one that follows the completion.
    """
    if expected.producer_id == old.producer_id or old.is_producer_of_next(
        expected.producer_id, expected.epoch
    ):
        return True
    return expected.producer_id == old.previous_producer_id and expected.epoch >= LAST_EPOCH_OF_CLIENTS


def _begin_session(old: Transaction, expected: _Expected | None, timeout_ms: int, call: Call) -> Transaction:
    """The next epoch, or a new id after the last one; the same as before for a retry."""
    is_current = expected is not None and expected.epoch == old.producer_epoch
    if expected is not None and not is_current:
        # The epoch before 0 was that of the id before. (Kafka compares the epochs alone.)
        id_before = expected.producer_id != old.producer_id
        if expected.epoch != old.last_producer_epoch or id_before != (old.producer_epoch == 0):
            raise _fenced(old, call)
        return to_empty(
            old,
            call.wall_ms,
            timeout_ms=timeout_ms,
            producer_epoch=old.producer_epoch,
            last_producer_epoch=old.last_producer_epoch,
        )
    # Only who names its epoch may ask again. Nobody else may pass for who was given the new one.
    last_epoch = old.producer_epoch if is_current else NO_PRODUCER_EPOCH
    return to_empty(
        old,
        call.wall_ms,
        timeout_ms=timeout_ms,
        producer_id=call.take_producer_id() if old.is_exhausted else old.producer_id,
        producer_epoch=0 if old.is_exhausted else old.producer_epoch + 1,
        last_producer_epoch=last_epoch,
    )


def _fenced(old: Transaction, call: Call) -> KafkaError:
    return producer_fenced(InitProducerIdRequest.API_KEY, call.version, old.transactional_id)
