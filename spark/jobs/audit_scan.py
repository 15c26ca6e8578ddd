"""Reads one segment of an audit by its batch headers, and checks every CRC, without opening a batch.

What the CRC does not cover (base offset, length, leader epoch) is checked against the batches around: a batch
whose length is wrong is passed over if the one after it can be found by the offset with which it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.spark.jobs.audit_files import EVERYTHING, Segment
from pykraft.spark.jobs.audit_findings import Kind, Place, Subject, Tally
from pykraft.spark.jobs.audit_segment_file import SegmentFile

MOST_HOLES: Final = 1000
"""More holes of a segment than this are joined to one."""

Hole = tuple[int, int]
"""Offsets, the end exclusive, of which damage has left nothing to compare."""


class Batch(NamedTuple):
    """The compared fields of a batch that is in its place."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    position: int
    size_bytes: int


@dataclass(slots=True)
class SegmentReport:
    """The content of one segment. Epochs are -1 without a batch; ``error``: why it could not be read."""

    number: int
    end_offset: int
    batches: int = 0
    records: int = 0
    first_epoch: int = -1
    last_epoch: int = -1
    holes: list[Hole] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    error: str | None = None


class SegmentScan:
    """Iterates over the batches that are in their place; ``report`` is complete afterwards."""

    def __init__(self, segment: Segment, replica: str) -> None:
        self.report = SegmentReport(segment.number, segment.base_offset)
        self._segment = segment
        self._replica = replica
        self._is_damaged = False  # since the last batch that was in its place

    def batches(self) -> Iterator[Batch]:
        try:
            with open(self._segment.path, "rb", buffering=0) as file:
                yield from self._in_place(SegmentFile(file))
        except OSError as error:
            self.report.error = f"{self._segment.path}: {error.strerror}"
            self._add_hole(self.report.end_offset, self._segment.limit or EVERYTHING)

    def _in_place(self, file: SegmentFile) -> Iterator[Batch]:
        """A batch is out of place if offsets rise without it, so each waits for the one after it."""
        segment, limit = self._segment, self._segment.limit
        waiting: Batch | None = None
        is_after_damage = False
        reached = end_offset = segment.base_offset  # before and after the waiting one
        for batch in self._intact(file):
            if batch.base_offset < segment.base_offset:
                self._note(Kind.BELOW_BASE_OFFSET, batch)
            elif limit is not None and batch.last_offset >= limit:
                self._note(Kind.OVERLAP, batch, f"to {batch.last_offset}, next segment: {limit}")
            elif batch.base_offset >= end_offset:
                if waiting is not None:
                    self._place(waiting, reached, is_after_damage)
                    yield waiting
                reached, waiting, end_offset = end_offset, batch, batch.last_offset + 1
                is_after_damage, self._is_damaged = self._is_damaged, False
            elif waiting is not None and reached <= batch.base_offset and reached < waiting.base_offset:
                self._note(Kind.OVERLAP, waiting, f"to {waiting.last_offset}, then {batch.base_offset}")
                waiting, end_offset = batch, batch.last_offset + 1
            else:
                self._note(Kind.OVERLAP, batch, f"to {batch.last_offset}, after {end_offset - 1}")
        if waiting is not None:
            self._place(waiting, reached, is_after_damage)
            yield waiting
        if limit is not None and end_offset < limit:
            self._skip(end_offset, limit, file.size_bytes, self._is_damaged)

    def _place(self, batch: Batch, reached: int, is_after_damage: bool) -> None:
        if batch.base_offset > reached:
            self._skip(reached, batch.base_offset, batch.position, is_after_damage)
        self.report.end_offset = batch.last_offset + 1

    def _skip(self, start: int, end: int, position: int, is_damage: bool) -> None:
        if is_damage:
            self._add_hole(start, end)
        elif end > max(self._segment.gaps_below, self._segment.log_start):
            self._note_at(Kind.GAP, Place(start, self._segment.number, position, f"up to {end - 1}"))

    def _add_hole(self, start: int, end: int) -> None:
        holes = self.report.holes
        if len(holes) == MOST_HOLES:
            start = holes.pop()[0]
        holes.append((start, end))

    def _intact(self, file: SegmentFile) -> Iterator[Batch]:
        position, end_offset = 0, self._segment.base_offset
        while position < file.size_bytes:
            header = file.header(position)
            kind, detail = self._judge(file, position, header)
            if kind is None and header is not None:
                yield self._count(position, header)
                position, end_offset = position + header.size_bytes, header.next_offset
                continue
            if kind is not None:
                self._is_damaged = True
                self._note_at(kind, Place(end_offset, self._segment.number, position, detail))
            if header is None or kind is Kind.TORN_TAIL:
                return
            following = file.position_after_bad(position, header)
            if following is None:
                return
            position = following

    def _judge(self, file: SegmentFile, position: int, header: BatchHeader | None) -> tuple[Kind | None, str]:
        """Check the batch at this position; return the kind of damage and details, None if it is intact."""
        problem = file.problem(position, header)
        if problem is None and header is not None and file.crc_is_valid(position, header):
            if header.last_offset_delta >= 0 and header.record_count >= 0 and header.next_offset < EVERYTHING:
                return None, ""
            problem = f"{header.record_count} records, offset {header.base_offset} to {header.last_offset}"
            return Kind.MALFORMED_BATCH, problem
        if self._segment.limit is None and file.is_torn(position, header):
            return Kind.TORN_TAIL, problem or "CRC does not match"
        return (Kind.CRC_MISMATCH, "") if problem is None else (Kind.MALFORMED_BATCH, problem)

    def _count(self, position: int, header: BatchHeader) -> Batch:
        report, epoch = self.report, header.partition_leader_epoch
        offsets = header.base_offset, header.last_offset
        batch = Batch(*offsets, epoch, header.crc, position, header.size_bytes)
        if report.batches == 0:
            report.first_epoch = epoch
        elif epoch < report.last_epoch:
            self._note(Kind.EPOCH_GOES_BACK, batch, f"from {report.last_epoch} to {epoch}")
        report.last_epoch = epoch
        report.batches += 1
        report.records += header.record_count
        return batch

    def _note(self, kind: Kind, batch: Batch, detail: str = "") -> None:
        self._note_at(kind, Place(batch.base_offset, self._segment.number, batch.position, detail))

    def _note_at(self, kind: Kind, place: Place) -> None:
        self.report.tally.note(Subject(kind, self._segment.log, self._replica), place)
