"""EndTxn: commit or abort a transaction (KIP-98), by the rules of the client's transaction version.

Versions up to 4 (TV_0): the epoch stays, so that a retry looks like the request itself. If the transaction is
complete with the same result the answer is success.

Version 5 (TV_2, KIP-890): the epoch rises, and the answer carries it. A request at the current epoch belongs
to the current transaction, one at the epoch before it is a retry. If the epochs of the producer id are used
up, the answer has a new id at epoch 0; the retry is then known by the old id. Two requests are refused that
Kafka would take for such a retry and answer with the epoch of another producer: one at the epoch before a
transaction that ended by the rules of TV_0, and one at the last epoch of an id that never had it.

The two tables say what follows from state, result and epoch. Anything that ends a transaction is one record;
the answer is sent when it is committed, and the markers are written after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.errors import (
    concurrent_transactions,
    find_transaction,
    other_producer_id,
    producer_fenced,
)
from pykraft.transaction_coordinator.log.records import record_of
from pykraft.transaction_coordinator.result import CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import (
    LAST_EPOCH_OF_CLIENTS,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from pykraft.transaction_coordinator.transitions import to_complete, to_prepared

_FIRST_VERSION_OF_TV_2 = 5


class Verdict(Enum):
    END = auto()
    """Write the Prepare record."""
    DONE = auto()
    """Success: a retry of what is complete."""
    WAIT = auto()
    """CONCURRENT_TRANSACTIONS: a retry of what is being completed, or the end of what comes after it."""
    WRONG = auto()
    """INVALID_TXN_STATE: there is nothing to end, or it ended the other way."""
    FENCED = auto()


class Epoch(Enum):
    """The producer and epoch of a request of TV_2, seen from the stored ones."""

    CURRENT = auto()
    RETRY = auto()
    OTHER = auto()


END, DONE, WAIT, WRONG, FENCED = Verdict
CURRENT, RETRY, OTHER = Epoch
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

# fmt: off
_TV_0: Final[Mapping[TransactionState, tuple[Verdict, Verdict]]] = {
    #                abort  commit
    EMPTY:           (WRONG, WRONG),
    ONGOING:         (END,   END),
    PREPARE_COMMIT:  (WRONG, WAIT),
    PREPARE_ABORT:   (WAIT,  WRONG),
    COMPLETE_COMMIT: (WRONG, DONE),
    COMPLETE_ABORT:  (DONE,  WRONG),
}
_TV_2: Final[Mapping[TransactionState, Mapping[Epoch, tuple[Verdict, Verdict]]]] = {
    #                          abort  commit                 abort  commit
    EMPTY:           {RETRY: (FENCED, FENCED), CURRENT: (END,    WRONG)},
    ONGOING:         {RETRY: (FENCED, FENCED), CURRENT: (END,    END)},
    PREPARE_COMMIT:  {RETRY: (WRONG,  WAIT),   CURRENT: (WAIT,   WAIT)},
    PREPARE_ABORT:   {RETRY: (WAIT,   WRONG),  CURRENT: (WAIT,   WAIT)},
    COMPLETE_COMMIT: {RETRY: (WRONG,  DONE),   CURRENT: (END,    WRONG)},
    COMPLETE_ABORT:  {RETRY: (DONE,   WRONG),  CURRENT: (END,    WRONG)},
}
# fmt: on


def handle_end_txn(
    state: ShardState, request: EndTxnRequest, call: Call
) -> CoordinatorResult[EndTxnResponse]:
    version = TransactionVersion.TV_2 if call.version >= _FIRST_VERSION_OF_TV_2 else TransactionVersion.TV_0
    old = find_transaction(state, request.transactional_id)
    if version is TransactionVersion.TV_2:
        verdict = _verdict_of_tv_2(old, request)
    else:
        verdict = _verdict_of_tv_0(old, request)
    match verdict:
        case Verdict.END:
            call.check_served(version)
            return _end(old, request.committed, version, call)
        case Verdict.DONE:
            return CoordinatorResult(_build_response(old, version))
        case Verdict.WAIT:
            raise concurrent_transactions(old.transactional_id)
        case Verdict.WRONG:
            wish = "commit" if request.committed else "abort"
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"The transaction of {old.transactional_id} is {old.state.label}: cannot {wish} it.",
            )
        case Verdict.FENCED:
            raise producer_fenced(EndTxnRequest.API_KEY, call.version, old.transactional_id)


def _verdict_of_tv_0(old: Transaction, request: EndTxnRequest) -> Verdict:
    if request.producer_id != old.producer_id:
        raise other_producer_id(old.transactional_id)
    if request.producer_epoch != old.producer_epoch:
        return Verdict.FENCED
    return _TV_0[old.state][request.committed]


def _verdict_of_tv_2(old: Transaction, request: EndTxnRequest) -> Verdict:
    epoch = _epoch_of(old, request)
    return Verdict.FENCED if epoch is OTHER else _TV_2[old.state][epoch][request.committed]


def _epoch_of(old: Transaction, request: EndTxnRequest) -> Epoch:
    if old.is_producer_of_next(request.producer_id, request.producer_epoch):
        return CURRENT
    if request.producer_id != old.producer_id:
        # Completed over the last epoch: the id is another, and the client may not know it yet.
        is_retry = (
            request.producer_id == old.previous_producer_id
            and request.producer_epoch == LAST_EPOCH_OF_CLIENTS
            and old.producer_epoch == 0
        )
        if not is_retry:
            raise other_producer_id(old.transactional_id)
        return RETRY
    if request.producer_epoch == old.producer_epoch:
        return CURRENT
    # What ended by the rules of TV_0 was at the stored epoch; the one before is of an earlier producer.
    bumped = old.client_version is TransactionVersion.TV_2
    return RETRY if bumped and request.producer_epoch == old.producer_epoch - 1 else OTHER


def _end(
    old: Transaction, commit: bool, version: TransactionVersion, call: Call
) -> CoordinatorResult[EndTxnResponse]:
    needs_id = version is TransactionVersion.TV_2 and old.is_exhausted
    new = to_prepared(
        old,
        call.wall_ms,
        commit=commit,
        client_version=version,
        next_producer_id=call.take_producer_id() if needs_id else NO_PRODUCER_ID,
    )
    response = _build_response(to_complete(new, call.wall_ms), version)
    return CoordinatorResult(response, (record_of(new),), (old.transactional_id,))


def _build_response(completed: Transaction, version: TransactionVersion) -> EndTxnResponse:
    """With the producer id and epoch for the next transaction, if the version has them."""
    if version is not TransactionVersion.TV_2:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=completed.producer_id, producer_epoch=completed.producer_epoch)
