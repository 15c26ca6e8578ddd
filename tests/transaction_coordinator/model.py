"""A small model of a transaction coordinator, from what is known of Kafka's, to compare ours with.

It has neither records nor immutable values, and no table: one mutable row for each transactional id, and the
rules of each request as a list of conditions. Answers are error codes, or producers (id and epoch).
"""

from dataclasses import dataclass, field

from pykraft.kafka_protocol.errors import ErrorCode

Producer = tuple[int, int]
Answer = int | Producer

NONE = 0
UNSUPPORTED_VERSION = 35
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90
TRANSACTION_ABORTABLE = 120


@dataclass
class Row:
    """``before``: the producer id before the last change. ``following``: the one after the completion."""

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    before: int
    last_epoch: int = -1
    following: int = -1
    started_ms: int = -1
    rules: int = 0
    partitions: set[tuple[str, int]] = field(default_factory=set)

    def is_idle(self) -> bool:
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")

    def change(self, state: str, now_ms: int) -> None:
        self.state, self.updated_ms, self.before = state, now_ms, self.producer_id


class Model:
    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.feature = 2
        self.now_ms = 0

    def fail_over(self, in_version_0: set[str]) -> None:
        """``in_version_0``: the ids whose last record has no room for the producer id before."""
        for name, row in self.rows.items():
            row.last_epoch = -1
            if name in in_version_0:
                row.before = -1

    def init(self, name: str, expected: Producer | None, timeout_ms: int, version: int, fresh: int) -> Answer:
        """``fresh``: the producer id to use if a new one is needed."""
        fenced = PRODUCER_FENCED if version >= 4 else INVALID_PRODUCER_EPOCH
        row = self.rows.get(name)
        if row is None:
            self.rows[name] = Row("Empty", fresh, 0, timeout_ms, self.now_ms, fresh)
            return fresh, 0
        is_other = expected is not None and expected[0] != row.producer_id
        is_early = expected == (row.following, 0)
        is_before = expected is not None and expected[0] == row.before and expected[1] >= 32766
        if is_other and not is_early and not is_before:
            return fenced
        if row.state.startswith("Prepare"):
            return CONCURRENT_TRANSACTIONS
        if row.state == "Ongoing":
            self._fence(row, fresh)
            return CONCURRENT_TRANSACTIONS
        if expected is None:
            last, bumps = -1, True
        elif expected[1] == row.epoch:
            last, bumps = row.epoch, True
        elif expected[1] == row.last_epoch and is_other == (row.epoch == 0):
            last, bumps = row.last_epoch, False
        else:
            return fenced
        row.change("Empty", self.now_ms)
        row.last_epoch, row.timeout_ms, row.started_ms = last, timeout_ms, -1
        if bumps and row.epoch >= 32766:
            row.producer_id, row.epoch = fresh, 0
        elif bumps:
            row.epoch += 1
        return row.producer_id, row.epoch

    def _fence(self, row: Row, fresh: int) -> None:
        if self.feature == 2:
            row.last_epoch, row.rules = row.epoch, 2
            row.following = fresh if row.epoch >= 32766 else -1
        else:
            row.last_epoch, row.rules = -1, 0
        row.epoch = min(row.epoch + 1, 32767)
        row.change("PrepareAbort", self.now_ms)

    def add(
        self, name: str, producer: Producer, partitions: set[tuple[str, int]], version: int, rules: int
    ) -> int:
        code = self._refusal(name, producer, version)
        if code:
            return code
        if rules == 2 and self.feature == 0:
            return UNSUPPORTED_VERSION
        row = self.rows[name]
        if row.state == "Ongoing" and row.partitions >= partitions:
            return NONE
        if row.is_idle():
            row.started_ms = self.now_ms
        row.partitions |= partitions
        row.rules = rules
        row.change("Ongoing", self.now_ms)
        return NONE

    def verify(
        self, name: str, producer: Producer, partitions: set[tuple[str, int]], version: int
    ) -> dict[tuple[str, int], int]:
        code = self._refusal(name, producer, version)
        if code:
            return dict.fromkeys(partitions, code)
        there = self.rows[name].partitions
        return {one: NONE if one in there else TRANSACTION_ABORTABLE for one in partitions}

    def _refusal(self, name: str, producer: Producer, version: int) -> int:
        row = self.rows.get(name)
        if row is not None and producer == (row.following, 0):
            return CONCURRENT_TRANSACTIONS
        if row is None or row.producer_id != producer[0]:
            return INVALID_PRODUCER_ID_MAPPING
        if row.epoch != producer[1]:
            return PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
        return CONCURRENT_TRANSACTIONS if row.state.startswith("Prepare") else NONE

    def end(self, name: str, producer: Producer, commit: bool, version: int, fresh: int) -> Answer:
        row = self.rows.get(name)
        if row is None:
            return INVALID_PRODUCER_ID_MAPPING
        result = "Commit" if commit else "Abort"
        return (self._end_new if version >= 5 else self._end_old)(row, producer, result, version, fresh)

    def _end_old(self, row: Row, producer: Producer, result: str, version: int, fresh: int) -> Answer:
        if producer[0] != row.producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if producer[1] != row.epoch:
            return PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
        if row.state == "Complete" + result:
            return -1, -1
        if row.state == "Prepare" + result:
            return CONCURRENT_TRANSACTIONS
        if row.state != "Ongoing":
            return INVALID_TXN_STATE
        row.rules, row.following = 0, -1
        row.change("Prepare" + result, self.now_ms)
        return -1, -1

    def _end_new(self, row: Row, producer: Producer, result: str, version: int, fresh: int) -> Answer:
        if producer == (row.following, 0):
            return CONCURRENT_TRANSACTIONS
        is_retry = producer == (row.producer_id, row.epoch - 1) and row.rules == 2
        if producer[0] != row.producer_id:
            is_retry = producer == (row.before, 32766) and row.epoch == 0
            if not is_retry:
                return INVALID_PRODUCER_ID_MAPPING
        elif not is_retry and producer[1] != row.epoch:
            return PRODUCER_FENCED
        if row.state in ("Empty", "Ongoing") and is_retry:
            return PRODUCER_FENCED
        if row.state.startswith("Prepare"):
            if not is_retry:
                return CONCURRENT_TRANSACTIONS
            return CONCURRENT_TRANSACTIONS if row.state == "Prepare" + result else INVALID_TXN_STATE
        if is_retry:  # of something that is complete
            return (row.producer_id, row.epoch) if row.state == "Complete" + result else INVALID_TXN_STATE
        if row.state != "Ongoing" and result == "Commit":
            return INVALID_TXN_STATE
        if self.feature == 0:
            return UNSUPPORTED_VERSION
        if row.is_idle():
            row.started_ms = self.now_ms
        row.following = fresh if row.epoch >= 32766 else -1
        row.last_epoch, row.rules = row.epoch, 2
        row.epoch = min(row.epoch + 1, 32767)
        row.change("Prepare" + result, self.now_ms)
        return (fresh, 0) if row.following != -1 else (row.producer_id, row.epoch)

    def complete(self, name: str) -> None:
        row = self.rows[name]
        following, row.following = row.following, -1
        row.partitions = set()
        row.change(row.state.replace("Prepare", "Complete"), self.now_ms)
        if following != -1:
            row.producer_id, row.epoch = following, 0

    def time_out(self, name: str, fresh: int) -> bool:
        row = self.rows.get(name)
        if row is None or row.state != "Ongoing" or row.started_ms + row.timeout_ms >= self.now_ms:
            return False
        self._fence(row, fresh)
        return True

    def expire(self, after_ms: int) -> list[str]:
        gone = sorted(
            name
            for name, row in self.rows.items()
            if row.is_idle() and row.updated_ms <= self.now_ms - after_ms
        )
        for name in gone:
            del self.rows[name]
        return gone


def code_of(answer: object) -> object:
    """An answer of a shard, in the terms of the model."""
    return int(answer) if isinstance(answer, ErrorCode) else answer
