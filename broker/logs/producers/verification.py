"""Which producers are being verified before the first batch of a transaction is appended (KIP-890).

The leader asks the transaction coordinator about a transaction that it does not know yet. A guard connects
the answer with the append: if a marker arrives in between, the guard is gone, and the answer speaks of a
transaction that has ended. Knows neither logs nor coordinators.
"""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import BatchHeader


class Guard:
    """Equal to itself only."""

    __slots__ = ()


UNVERIFIED: Final = Guard()
"""Lets a batch pass without verification, where that is switched off."""


class Verification:
    """One producer whose transaction is being asked about.

    ``lowest_sequence``: the batches before it have not been appended. ``supports_epoch_bump``: the producer
    gets a new epoch for each transaction. ``since_ms`` is monotonic.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "since_ms", "supports_epoch_bump")

    def __init__(self, sequence: int, epoch: int, now_ms: int, *, supports_epoch_bump: bool) -> None:
        self.guard = Guard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.since_ms = now_ms


class Verifications:
    """Those of one partition, by producer id."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, header: BatchHeader, now_ms: int, *, supports_epoch_bump: bool) -> Guard:
        """The guard for the first batch of a transaction: of a verification that is under way, or a new one.

        It is kept when an answer does not come: a batch with a lower sequence is not overtaken.
        """
        sequence, epoch = header.base_sequence, header.producer_epoch
        known = self._pending.get(header.producer_id)
        if known is None:
            known = Verification(sequence, epoch, now_ms, supports_epoch_bump=supports_epoch_bump)
            self._pending[header.producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
            known.supports_epoch_bump = supports_epoch_bump  # it may go by other rules than before
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known.guard

    def check(self, header: BatchHeader, guard: Guard | None, *, is_known: bool) -> None:
        """Whether the first batch of a transaction may be appended; ``is_known``: batches of its producer are
        in the log.

        INVALID_TXN_STATE if its transaction is not verified, or was ended since.
        """
        if guard is UNVERIFIED:
            return
        pending = self._pending.get(header.producer_id)
        if pending is None or pending.guard is not guard:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the batch is not part of an ongoing transaction")
        sequence = header.base_sequence
        if pending.supports_epoch_bump and sequence > 0 and not is_known:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} is unknown, its first batch has sequence {sequence}, not 0",
            )
        if sequence > pending.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: {sequence} after {pending.lowest_sequence} was not appended",
            )

    def appended(self, header: BatchHeader) -> None:
        """A batch of a transaction, or a marker, is in the log.

        A marker with the epoch of a producer that gets a new one for each transaction ends the one before:
        the next has begun.
        """
        pending = self._pending.get(header.producer_id)
        if pending is None:
            return
        if header.is_control and pending.supports_epoch_bump and header.producer_epoch == pending.epoch:
            return
        del self._pending[header.producer_id]

    def expire(self, now_ms: int, max_age_ms: int) -> None:
        """Forget those that were begun long ago and came to nothing."""
        for producer_id, pending in list(self._pending.items()):
            if now_ms - pending.since_ms >= max_age_ms:
                del self._pending[producer_id]

    def clear(self) -> None:
        self._pending.clear()
