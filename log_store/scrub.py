"""The scrub of one segment, a step at a time: every batch is as it was written, and they continue each other.

A CRC does not cover the base offset, the leader epoch and the length of its batch; offsets without gaps, and
the epochs of the log, cover those. Reads through a descriptor of its own, so that it can
run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable

from pykraft.kafka_protocol.markers import read_marker
from pykraft.kafka_protocol.records import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from pykraft.log_store.epoch_cache import Epochs, find_wrong_epoch
from pykraft.log_store.index_build import IndexCheck
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.scan import CheckedScan
from pykraft.runtime.disk import Disk

STEP_BYTES = 256 * 1024
IN_TRANSACTIONS = CONTROL_BIT | TRANSACTIONAL_BIT


class Scrub:
    """``end`` and ``end_offset``: where the segment ends. ``has_gaps``: compaction may have left some in
    it. ``epochs``: of the log, as far as they are known. ``has_bad_index`` and ``has_bad_transactions`` tell
    at the end whether the index files, and the transaction index, have to be built again, if they are
    checked.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: int,
        end: int,
        end_offset: int,
        epochs: Epochs,
        *,
        has_gaps: bool,
        begin_index_check: Callable[[], IndexCheck] | None = None,
    ) -> None:
        self.step_bytes = 0
        self.has_bad_index = self.has_bad_transactions = False
        self._begin_index_check = begin_index_check
        self._index_check: IndexCheck | None = None
        self._disk = disk
        self._path = path
        self._position = 0
        self._next_offset = base_offset
        self._epoch = -1
        self._end = end
        self._end_offset = end_offset
        self._epochs = epochs
        self._has_gaps = has_gaps

    @property
    def is_done(self) -> bool:
        return self._position >= self._end

    def step(self) -> None:
        """Check the next part; raises :class:`CorruptLogError` with the position of damage. Blocks."""
        file = self._disk.open(self._path, create=False)
        try:
            begin = self._position
            if begin == 0 and self._begin_index_check is not None:
                self._index_check = self._begin_index_check()
            scan = CheckedScan(file, begin, self._next_offset, self._epoch, end=self._end)
            for _, header in scan:
                if not self._has_gaps and header.base_offset != self._next_offset:
                    raise CorruptLogError(
                        self._path,
                        self._position,
                        f"batch of offset {header.base_offset}, expected {self._next_offset}",
                    )
                if wrong := find_wrong_epoch(self._epochs, header):
                    raise CorruptLogError(self._path, self._position, wrong)
                if self._index_check is not None:
                    self._index_check.note(self._position, header)
                    if header.attributes & IN_TRANSACTIONS:
                        self._note_transaction(self._index_check, header, scan)
                self._position += header.size_bytes
                self._next_offset, self._epoch = header.next_offset, header.partition_leader_epoch
                if self._position - begin >= STEP_BYTES:
                    break
            if scan.bad is not None:
                raise CorruptLogError(self._path, scan.bad.position, scan.bad.reason)
            if self._position == begin:
                raise CorruptLogError(self._path, begin, f"the file ends here, it had {self._end} bytes")
            self.step_bytes = self._position - begin
        finally:
            file.close()
        if self.is_done and self._index_check is not None:
            self.has_bad_index = not self._index_check.finish()
            self.has_bad_transactions = self._index_check.has_wrong_transactions()
        if self.is_done and not self._has_gaps and self._next_offset != self._end_offset:
            reason = f"ends at offset {self._next_offset}, not {self._end_offset}"
            raise CorruptLogError(self._path, self._position, reason)

    @staticmethod
    def _note_transaction(check: IndexCheck, header: BatchHeader, scan: CheckedScan) -> None:
        marker = read_marker(header, scan.batch(header)) if header.is_control else None
        check.note_transaction(header, marker)
