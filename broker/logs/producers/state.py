"""The producers of a partition: the last batches of each, so that a batch is appended once and in order.

The state is derived from batch headers and transaction markers alone: leader and followers replay the same,
so a new leader knows what the old one knew (KIP-98). The last five batches of each producer id are kept, as
many as a client may have in flight, and where its transaction began. Decides whether a batch is a duplicate,
next in sequence or refused; never opens a batch. :mod:`.open_transactions` and :mod:`.verification` decide
what concerns transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pykraft.broker.logs.producers.open_transactions import Transactions, check_end
from pykraft.broker.logs.producers.verification import Guard, Verifications
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction, Marker
from pykraft.kafka_protocol.records import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from pykraft.log_store.indexes.transaction_index import AbortedTransaction

KEPT_BATCHES = 5
MOST_CUT = 5000
"""So many producers are cut back in one turn of the event loop."""
MOST_EXPIRED = 20_000
"""So many are forgotten in one; the others by the next check."""
NO_EPOCH = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
_SEQUENCE_MASK = 0x7FFFFFFF


class ProducedBatch(NamedTuple):
    """One remembered batch. ``next_offset`` is exclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    timestamp_ms: int


class ProducerEntry:
    """One producer id: its newest epoch and the last batches written in it, oldest first.

    ``batches`` is empty if only a marker has that epoch. ``timestamp_ms``: of the last batch or marker.
    ``coordinator_epoch``: of the last marker, -1 if there was none. ``first_offset``: of its open
    transaction, -1 if it has none. Replaced, never changed, when the producer writes: so a copy of the table
    is the state at one offset. ``idle_since_ms``: when it was first found idle; None if it has written since
    the last check.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_offset", "idle_since_ms", "timestamp_ms")

    def __init__(
        self,
        epoch: int,
        batches: tuple[ProducedBatch, ...],
        timestamp_ms: int,
        coordinator_epoch: int = NO_EPOCH,
        first_offset: int = NO_OFFSET,
    ) -> None:
        self.epoch = epoch
        self.batches = batches
        self.timestamp_ms = timestamp_ms
        self.coordinator_epoch = coordinator_epoch
        self.first_offset = first_offset
        self.idle_since_ms: int | None = None

    @property
    def is_transactional(self) -> bool:
        """Whether it has written in a transaction, as far as is known."""
        return self.coordinator_epoch != NO_EPOCH or self.first_offset != NO_OFFSET


Captured = Iterator[tuple[int, ProducerEntry]]
"""Each producer id once, with its entry."""


class ProducerState:
    """All producers of one partition.

    ``complete``: the state reflects every batch ever written, so an unknown producer must start at sequence
    0. It becomes False when old segments or idle producers are forgotten; from then on an unknown producer
    may start anywhere, as in Kafka since 2.5. ``is_behind``: the log was truncated and is being read again;
    until that is done the state is unknown. ``high_watermark``: see :class:`.Transactions`.
    """

    __slots__ = ("_exact_from", "_producers", "complete", "is_behind", "transactions", "verifications")

    def __init__(self, *, complete: bool = True, high_watermark: int = 0) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self.complete = complete
        self.is_behind = False
        self.transactions = Transactions(high_watermark)
        self.verifications = Verifications()
        #: A truncation below cannot be undone: transactions ended before, or it is not known who wrote after
        #: whom. Those that have written since are the last producers, in the order of their last batches.
        self._exact_from = 0

    def __len__(self) -> int:
        return len(self._producers)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    # -- what may be appended --------------------------------------------------------------------------

    def check(self, header: BatchHeader, guard: Guard | None = None) -> ProducedBatch | None:
        """None if the batch is next in sequence; the original if it is a duplicate.

        :class:`KafkaError` OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH otherwise;
        INVALID_TXN_STATE for a batch outside of its producer's transaction, or of one that is not verified.
        Only for batches with a producer id; those of coordinators have no sequence.
        """
        if self.is_behind:
            self._require_known()
        entry = self._producers.get(header.producer_id)
        first = header.base_sequence
        if entry is not None:
            if entry.epoch == header.producer_epoch and entry.batches and first >= 0:
                if (
                    first == (entry.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
                    and entry.first_offset < 0
                    and not header.attributes & TRANSACTIONAL_BIT
                ):
                    return None  # like most
                last = header.last_sequence
                for batch in entry.batches:
                    if batch.first_sequence == first and batch.last_sequence == last:
                        return batch
            elif header.producer_epoch < entry.epoch:
                raise _old_epoch(header, entry)
        if header.attributes & TRANSACTIONAL_BIT and not self._is_ongoing(header, entry):
            self.verifications.check(header, guard, is_known=entry is not None and bool(entry.batches))
        if first >= 0:
            self._check_sequence(header, entry)
        if entry is not None and entry.first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} is in a transaction, and the batch is not part of one",
            )
        return None

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        first = header.base_sequence
        if entry is None:
            if first != 0 and self.complete:
                raise _out_of_order(header, "the first batch of a producer must have sequence 0")
        elif header.producer_epoch != entry.epoch or not entry.batches:
            if first != 0:
                raise _out_of_order(header, "the first batch of a producer epoch must have sequence 0")
        else:
            expected = (entry.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
            if first != expected:
                raise _out_of_order(header, f"expected sequence {expected}")

    def check_end(self, end: EndOfTransaction) -> None:
        """Whether a marker may be appended; see :func:`.transactions.check_end`."""
        self._require_known()
        entry = self._producers.get(end.producer_id)
        if entry is None:
            check_end(end, NO_EPOCH, NO_EPOCH, is_open=False)
        else:
            check_end(end, entry.epoch, entry.coordinator_epoch, is_open=entry.first_offset >= 0)

    def begin_verification(
        self, header: BatchHeader, now_ms: int, *, supports_epoch_bump: bool
    ) -> Guard | None:
        """A guard if the coordinator has to be asked before a transactional batch is appended; None if its
        transaction is known. INVALID_PRODUCER_EPOCH if its epoch is too low. ``now_ms`` is monotonic.
        """
        self._require_known()
        entry = self._producers.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            raise _old_epoch(header, entry)
        if self._is_ongoing(header, entry):
            return None
        return self.verifications.begin(header, now_ms, supports_epoch_bump=supports_epoch_bump)

    def _require_known(self) -> None:
        if self.is_behind:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the producers is being rebuilt")

    @staticmethod
    def _is_ongoing(header: BatchHeader, entry: ProducerEntry | None) -> bool:
        return entry is not None and entry.first_offset >= 0 and entry.epoch == header.producer_epoch

    # -- what is in the log ----------------------------------------------------------------------------

    def replay(self, header: BatchHeader, marker: Marker | None = None) -> AbortedTransaction | None:
        """Record a batch that is in the log, with its offsets assigned; ``marker``: of a control batch.

        Returns the transaction that is aborted by it, if it has data here.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            if header.record_count == 0:
                self.complete = False  # compaction removed batches here, perhaps of producers it forgot
            return None
        if self.is_behind:
            return None
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            return None if marker is None else self._replay_marker(header, marker)
        base_offset = header.base_offset
        batch = ProducedBatch(
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta + 1,
            header.max_timestamp,
        )
        entry = self._producers.pop(producer_id, None)  # it becomes the last
        coordinator_epoch, first_offset = NO_EPOCH, NO_OFFSET
        batches: tuple[ProducedBatch, ...] = (batch,)
        if entry is not None:
            coordinator_epoch, first_offset = entry.coordinator_epoch, entry.first_offset
            if entry.epoch == header.producer_epoch:
                batches = (*entry.batches[1 - KEPT_BATCHES :], batch)
        if attributes & TRANSACTIONAL_BIT:
            if first_offset < 0:
                first_offset = base_offset
                self.transactions.begin(producer_id, first_offset)
            self.verifications.appended(header)
        self._producers[producer_id] = ProducerEntry(
            header.producer_epoch, batches, header.max_timestamp, coordinator_epoch, first_offset
        )
        return None

    def _replay_marker(self, header: BatchHeader, marker: Marker) -> AbortedTransaction | None:
        if not marker.ends_transaction:
            return None
        producer_id = header.producer_id
        entry = self._producers.pop(producer_id, None)
        is_same_epoch = entry is not None and entry.epoch == header.producer_epoch
        batches = entry.batches if entry is not None and is_same_epoch else ()
        self._producers[producer_id] = ProducerEntry(
            header.producer_epoch, batches, header.max_timestamp, marker.coordinator_epoch
        )
        self._exact_from = header.next_offset
        self.verifications.appended(header)
        return self.transactions.end(producer_id, header.base_offset, marker.kind)

    def truncate_to(self, end_offset: int) -> bool:
        """Forget batches at or after ``end_offset``; False if that cannot be done exactly, or at once.

        It cannot if all remembered batches of a producer are dropped: the earlier ones are unknown, and the
        state must be rebuilt from the log. Nor if a marker is dropped, or what came after one. Where very
        many producers are concerned, it is built again as well, which holds up nobody.
        """
        if end_offset < self._exact_from:
            return False
        cut: dict[int, ProducerEntry] = {}
        for producer_id, entry in reversed(self._producers.items()):
            if not entry.batches or entry.batches[-1].next_offset <= end_offset:
                break  # as are all that wrote before it
            batches = tuple(batch for batch in entry.batches if batch.next_offset <= end_offset)
            if not batches or entry.coordinator_epoch != NO_EPOCH or len(cut) == MOST_CUT:
                return False
            first_offset = entry.first_offset
            if first_offset >= end_offset:
                first_offset = NO_OFFSET
                self.transactions.cancel(producer_id)
            cut[producer_id] = ProducerEntry(
                entry.epoch, batches, batches[-1].timestamp_ms, first_offset=first_offset
            )
        self._producers.update(cut)
        self._exact_from = end_offset if cut else self._exact_from
        return True

    def fall_behind(self) -> None:
        """Drop the state; it is unknown until :meth:`adopt`."""
        self._producers = {}
        self.transactions = Transactions()
        self.verifications.clear()
        self.is_behind = True

    def adopt(self, other: ProducerState) -> None:
        """Take over another state."""
        self._producers, self.complete, self.is_behind = other._producers, other.complete, False
        self.transactions, self._exact_from = other.transactions, other._exact_from
        self.verifications.clear()

    def restore(
        self, entries: dict[int, ProducerEntry], open_transactions: Iterable[tuple[int, int]], offset: int
    ) -> None:
        """Take what a snapshot of ``offset`` tells; (producer id, first offset) of each open transaction."""
        self._producers = entries
        self.transactions.restore(open_transactions)
        self._exact_from = offset

    def add(self, entries: dict[int, ProducerEntry], offset: int) -> None:
        """Take those of a snapshot of ``offset`` that are in no transaction, and unknown otherwise."""
        self._producers = {**entries, **self._producers}
        self._exact_from = max(self._exact_from, offset)

    # -- what is kept ----------------------------------------------------------------------------------

    def capture(self) -> dict[int, ProducerEntry]:
        """A copy of the producers as of now."""
        return dict(self._producers)

    def items(self) -> Captured:
        """The producers as of now, to be walked over once: all that the event loop does for a snapshot, or
        for a round of compaction. Faster than to copy a table in which producers change places.
        """
        return zip(list(self._producers), list(self._producers.values()), strict=True)

    def expire(self, now_ms: int, max_idle_ms: int) -> None:
        """Forget producers that have been idle for longer than ``max_idle_ms``, unless a transaction is open.

        By this broker's clock, not by the timestamps of records, which may be of any age: a retried batch of
        a producer that was forgotten would be appended a second time.
        """
        self.verifications.expire(now_ms, max_idle_ms)
        for entry in reversed(self._producers.values()):
            if entry.idle_since_ms is not None:
                break  # and so were all that wrote before it
            entry.idle_since_ms = now_ms
        idle: list[int] = []
        for producer_id, entry in self._producers.items():
            idle_since_ms = now_ms if entry.idle_since_ms is None else entry.idle_since_ms
            if now_ms - idle_since_ms <= max_idle_ms or len(idle) == MOST_EXPIRED:
                break
            if entry.first_offset < 0:
                idle.append(producer_id)
        for producer_id in idle:
            del self._producers[producer_id]
        if idle:
            self.complete = False


def _old_epoch(header: BatchHeader, entry: ProducerEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} has epoch {entry.epoch}, got {header.producer_epoch}",
    )


def _out_of_order(header: BatchHeader, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}: {why}",
    )
