"""ListTransactions: the transactional ids of a coordinator that pass all filters of a request. Read-only.

By state (a name that does not exist is sent back), producer id, duration (KIP-994) and a regular expression
for the whole transactional id (KIP-1152). As in Kafka, an id without a transaction has been open since 1970.
Matching is paused in between, since there may be very many ids, and one pattern may be slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import drain
from pykraft.regex.pattern import Pattern, RegexError, known_pattern
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import Transaction, TransactionState

MAX_STATES: Final = 100
"""There are seven; each that does not exist is sent back."""

_STATES = {state.label: state for state in TransactionState}


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """The filter of a request. Empty sets, a negative duration and no pattern select everything.

    ``only_unknown_states``: no name of a state that the request gives exists, so nothing is selected.
    """

    states: frozenset[TransactionState]
    only_unknown_states: bool
    producer_ids: frozenset[int]
    longer_than_ms: int
    pattern: Pattern | None

    def selects_but_for_pattern(self, value: Transaction, now_ms: int) -> bool:
        if self.only_unknown_states or (self.states and value.state not in self.states):
            return False
        if self.producer_ids and value.producer_id not in self.producer_ids:
            return False
        return self.longer_than_ms < 0 or now_ms - value.start_timestamp_ms > self.longer_than_ms


def read_filter(request: ListTransactionsRequest) -> TransactionFilter:
    """:class:`KafkaError` INVALID_REGULAR_EXPRESSION if the pattern cannot be used, INVALID_REQUEST for more
    names of states than :data:`MAX_STATES`.
    """
    if len(request.state_filters) > MAX_STATES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {MAX_STATES} names of states.")
    states = frozenset(_STATES[name] for name in request.state_filters if name in _STATES)
    pattern = request.transactional_id_pattern
    try:
        compiled = known_pattern(pattern).copy() if pattern else None
    except RegexError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error}.",
        ) from None
    return TransactionFilter(
        states,
        bool(request.state_filters) and not states,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        compiled,
    )


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """The names of states in a request that do not exist, each once."""
    return [name for name in dict.fromkeys(request.state_filters) if name not in _STATES]


def iter_listed(
    state: ShardState, wanted: TransactionFilter, now_ms: int
) -> Iterator[ListedTransaction | None]:
    """Those that are selected, in no order; None is a step of the walk that found nothing yet."""
    for transactional_id, value in drain(state.transactions):
        selected = wanted.selects_but_for_pattern(value, now_ms)
        if selected and wanted.pattern is not None:
            matching = wanted.pattern.matching(transactional_id)
            while True:
                try:
                    next(matching)
                except StopIteration as end:
                    selected = end.value
                    break
                yield None
        yield _listed(value) if selected else None


def build_response(
    request: ListTransactionsRequest, found: list[ListedTransaction]
) -> ListTransactionsResponse:
    found.sort(key=lambda one: one.transactional_id)
    return ListTransactionsResponse(unknown_state_filters=unknown_states(request), transaction_states=found)


def _listed(value: Transaction) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=value.transactional_id,
        producer_id=value.producer_id,
        transaction_state=value.state.label,
    )
