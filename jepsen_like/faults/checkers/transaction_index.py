"""One pass over the events of transactions: who began which, how it ended, and what its records say."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pykraft.jepsen_like.faults.history import Event, EventType

INTERNAL = ("__transaction_state", "__consumer_offsets")


class Name(NamedTuple):
    """A value's name: its transaction, and the input (key, offset) that it is the output of."""

    transaction: str
    input: tuple[str, int] | None


def parse_value(value: str) -> Name | None:
    """``TRANSACTION:INDEX/COUNT`` or ``TRANSACTION:INDEX/COUNT<KEY@OFFSET``; None for any other value."""
    name, colon, rest = value.partition(":")
    if not colon:
        return None
    _, is_output, source = rest.partition("<")
    if not is_output:
        return Name(name, None)
    key, _, offset = source.rpartition("@")
    return Name(name, (key, int(offset)))


def number_of(value: str) -> int:
    """The place of a record among those that its transaction sends: ``INDEX``, which begins at 1."""
    return int(value.partition(":")[2].partition("/")[0])


@dataclass(slots=True)
class Transaction:
    """Times in microseconds; ``outcome`` is that of the commit, "fail" if it was never asked for."""

    name: str
    transactional_id: str
    process: str
    count: int
    began_us: int
    asked_us: int | None = None
    ended_us: int | None = None
    outcome: EventType = "fail"


@dataclass(slots=True)
class Init:
    """A producer that takes a transactional id; ``ended_us`` None: it was not told that it had it."""

    process: str
    asked_us: int
    ended_us: int | None = None


@dataclass(slots=True)
class TransactionIndex:
    """``inits`` by transactional id; ``committed``: the offsets that groups have at the end, by
    ``GROUP/KEY``; ``exempted``: partitions whose records are not guaranteed."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    inits: dict[str, list[Init]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    exempted: set[str] = field(default_factory=set)

    @property
    def is_guaranteed(self) -> bool:
        """Whether coordinators may have lost nothing that they had answered."""
        return not any(key.startswith(INTERNAL) for key in self.exempted)


def index_transactions(events: Iterable[Event]) -> TransactionIndex:
    index = TransactionIndex()
    for event in events:
        if event.op == "exempted" and event.key is not None:
            index.exempted.add(event.key)
        elif event.op == "txn-committed" and event.key is not None:
            index.committed[event.key] = event.offset or 0
        elif event.value is None:
            continue
        elif event.op == "txn-init":
            _add_init(index, event, event.value)
        elif event.op == "txn-begin":
            detail = event.detail or {}
            index.transactions[event.value] = Transaction(
                event.value, detail["id"], event.process, detail["count"], event.time_us
            )
        elif event.op == "txn-commit":
            _add_commit(index.transactions[event.value], event)
    return index


def _add_init(index: TransactionIndex, event: Event, transactional_id: str) -> None:
    inits = index.inits.setdefault(transactional_id, [])
    if event.type == "invoke":
        inits.append(Init(event.process, event.time_us))
    elif event.type == "ok":
        next(one for one in reversed(inits) if one.process == event.process).ended_us = event.time_us


def _add_commit(transaction: Transaction, event: Event) -> None:
    if event.type == "invoke":
        transaction.asked_us, transaction.outcome = event.time_us, "info"
    else:
        transaction.outcome = event.type
        if event.type == "ok":
            transaction.ended_us = event.time_us
