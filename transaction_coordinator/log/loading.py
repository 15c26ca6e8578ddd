"""Makes the state of a shard from its log, a slice at a time: the last record of each transactional id.

Records that are unknown or cannot be decoded are skipped: one of them must not make the others unavailable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pykraft.coordinator.partitioning import TRANSACTION_STATE_TOPIC
from pykraft.coordinator.writer import BatchBody
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import read_records
from pykraft.transaction_coordinator.log.codec import decode_record
from pykraft.transaction_coordinator.log.records import TransactionRecord
from pykraft.transaction_coordinator.log.replay import replay
from pykraft.transaction_coordinator.state import EMPTY_STATE, ShardState

log = logging.getLogger(__name__)

_SLICE_RECORDS = 100
"""Some two milliseconds."""


class Loader:
    """See :class:`pykraft.coordinator.runtime.Loader`."""

    def __init__(self, partition: int) -> None:
        self.state: ShardState = EMPTY_STATE
        self._partition = partition
        self._newest: dict[str, TransactionRecord] = {}

    def load(self, batches: Iterable[BatchBody]) -> Iterator[int]:
        for batch in batches:
            try:
                read = read_records(batch.body, batch.record_count, batch.base_offset, 0)
            except ProtocolError as error:
                log.error("%s-%d, batch %d: %s", *self._name, batch.base_offset, error)
                continue
            for number, one in enumerate(read, 1):
                if one.offset >= batch.start_offset and one.key is not None:
                    self._take(one.offset, one.key, one.value)
                if number % _SLICE_RECORDS == 0:
                    yield _SLICE_RECORDS
        yield 1

    @property
    def _name(self) -> tuple[str, int]:
        return TRANSACTION_STATE_TOPIC, self._partition

    def _take(self, offset: int, key: bytes, value: bytes | None) -> None:
        try:
            record = decode_record(key, value)
        except ProtocolError as error:
            log.error("%s-%d, offset %d: %s", *self._name, offset, error)
            return
        if record is None:
            return
        if record.value is None:
            self._newest.pop(record.transactional_id, None)
        else:
            self._newest[record.transactional_id] = record

    def finish(self) -> Iterator[int]:
        for number, record in enumerate(self._newest.values(), 1):
            self.state = replay(self.state, record)
            if number % _SLICE_RECORDS == 0:
                yield _SLICE_RECORDS
        self._newest.clear()
        yield 1
