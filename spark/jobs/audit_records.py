"""The second part of an audit: what replicas do not hold alike is opened, and compared record by record.

Compaction rewrites batches on each replica on its own, so that other borders, and other CRCs, are no
difference. A record is the same if its content is, and what makes its batch a transaction's or a marker.
"""

from __future__ import annotations

import marshal
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np

from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.kafka_protocol.records import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, read_header
from pykraft.spark.jobs.audit_files import AuditedLog
from pykraft.spark.jobs.audit_findings import Kind, Place, Subject, Tally
from pykraft.spark.jobs.audit_rows import (
    RECORD,
    Bucket,
    Extent,
    Extents,
    Rows,
    by_bucket,
    differing_batches,
    suspicious_records,
)

_KEPT_BITS: Final = CONTROL_BIT | TRANSACTIONAL_BIT
_WITHOUT_REFERENCES: Final = 2
"""The version of Python's format in which equal values have equal bytes."""
_PLACE: Final = ("replica", "segment", "position", "leader_epoch")
_MOST_UNFOLDED_BYTES: Final = 256 << 20
_ROWS: Final = 50_000
_UNREADABLE: Final = -1, 0
"""The bucket of what could not be read."""


class Copy(NamedTuple):
    """A record as a replica holds it. ``content``: a hash; None if its batch cannot be opened."""

    replica: int
    segment: int
    position: int
    leader_epoch: int
    content: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The tables that tasks use, by number: replicas' names, logs, segments' paths, replicas' extents."""

    replicas: Sequence[str]
    logs: Sequence[AuditedLog]
    paths: Sequence[str]
    extents: Mapping[int, Extents]

    def open_differing(self, bucket: tuple[Bucket, Iterable[Rows]]) -> Iterator[tuple[Bucket, Rows | str]]:
        """Batches of a bucket → the records of those that differ, by bucket."""
        (log, _), parts = bucket
        batches = differing_batches(np.concatenate(list(parts)), self.extents[log])
        batches.sort(order=["segment", "position"])
        rows: list[tuple[object, ...]] = []
        for segment, group in groupby(batches, key=lambda batch: int(batch["segment"])):
            path = self.paths[segment]
            try:
                with open(path, "rb", buffering=0) as file:
                    for batch in group:
                        rows += _records(batch, file.fileno())
                        if len(rows) >= _ROWS:
                            yield from by_bucket(log, np.array(rows, RECORD), "offset")
                            rows = []
            except OSError as error:
                yield _UNREADABLE, f"{path}: {error.strerror}"
        yield from by_bucket(log, np.array(rows, RECORD), "offset")

    def judge_buckets(
        self, buckets: Iterable[tuple[Bucket, Iterable[Rows | str]]]
    ) -> Iterator[tuple[Tally, list[str]]]:
        """Records by bucket → what is wrong with them, and what could not be read."""
        tally, errors = Tally(), []
        for (log, _), parts in buckets:
            errors += [part for part in parts if isinstance(part, str)]
            arrays = [part for part in parts if not isinstance(part, str)]
            if arrays:
                known = self.extents[log], self.logs[log].compacted_end
                for rows in suspicious_records(np.concatenate(arrays), *known):
                    self.judge(tally, log, int(rows["offset"][0]), map(_copy, rows))
        yield tally, errors

    def judge(self, tally: Tally, number: int, offset: int, copies: Iterable[Copy]) -> None:
        """Note what is wrong with the copies of one record of a log."""
        log, extents = self.logs[number], self.extents[number]
        held = {one.replica: one for one in copies if _holds(extents[one.replica], offset)}
        whole = [one for _, one in sorted(held.items()) if one.content is not None]
        for one in held.values():
            if one.content is None:
                detail = "its records are not what its header says"
                self._note(tally, Kind.MALFORMED_BATCH, number, offset, [[one]], detail)
        contents = _grouped(whole, [one.content for one in whole])
        epochs = _grouped(whole, [one.leader_epoch for one in whole])
        is_unreplicated = log.high_watermark is not None and offset >= log.high_watermark
        if len(contents) > 1:
            is_by_epoch = is_unreplicated and _epochs_tell(contents)
            kind = Kind.UNREPLICATED_TAIL if is_by_epoch else Kind.DIVERGENCE
            self._note(tally, kind, number, offset, contents)
        elif len(epochs) > 1:
            kind = Kind.UNREPLICATED_TAIL if is_unreplicated else Kind.EPOCH_DIFFERS
            self._note(tally, kind, number, offset, epochs)
        if whole and offset >= log.compacted_end:
            for replica, extent in extents.items():
                if replica not in held and _holds(extent, offset):
                    lacking = whole[0]._replace(replica=replica)  # the place is where another has it
                    self._note(tally, Kind.MISSING_RECORDS, number, offset, [[lacking]])

    def _note(
        self,
        tally: Tally,
        kind: Kind,
        log: int,
        offset: int,
        groups: Sequence[Sequence[Copy]],
        detail: str = "",
    ) -> None:
        names = " / ".join(", ".join(self.replicas[one.replica] for one in group) for group in groups)
        place = Place(offset, groups[-1][0].segment, groups[-1][0].position, detail)
        tally.note(Subject(kind, log, names), place)


def _holds(extent: Extent, offset: int) -> bool:
    if not extent.start <= offset < extent.end:
        return False
    index = bisect_right(extent.holes, offset, key=lambda hole: hole[0])
    return index == 0 or extent.holes[index - 1][1] <= offset


def _grouped(copies: Sequence[Copy], keys: Sequence[int | None]) -> list[list[Copy]]:
    groups: dict[int | None, list[Copy]] = {}
    for one, key in zip(copies, keys, strict=True):
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _epochs_tell(contents: Sequence[Sequence[Copy]]) -> bool:
    """Whether no leader epoch has two contents: then the next leader will have one of them cut off."""
    epochs = [{one.leader_epoch for one in group} for group in contents]
    return sum(map(len, epochs)) == len(set[int]().union(*epochs))


def _copy(row: np.void) -> Copy:
    replica, segment, position, leader_epoch = (int(row[name]) for name in _PLACE)
    return Copy(replica, segment, position, leader_epoch, int(row["content"]) if row["is_readable"] else None)


def _records(batch: np.void, descriptor: int) -> Iterator[tuple[object, ...]]:
    """As rows of :data:`RECORD`."""
    data = os.pread(descriptor, int(batch["size_bytes"]), int(batch["position"]))
    where = [int(batch[name]) for name in _PLACE]
    return ((offset, *where, content or 0, content is not None) for offset, content in contents_of(data))


def contents_of(data: bytes) -> list[tuple[int, int | None]]:
    """(offset, hash of the content) of each record; of a batch that cannot be opened, (base, None)."""
    header = read_header(data)
    try:
        found = decode_batch(data, header, max_bytes=_MOST_UNFOLDED_BYTES)
    except ProtocolError:
        return [(header.base_offset, None)]
    offsets = [header.base_offset - 1, *(record.offset for record in found), header.last_offset + 1]
    if any(after <= before for before, after in pairwise(offsets)):
        return [(header.base_offset, None)]
    return [(record.offset, content_hash(header, record)) for record in found]


def content_hash(header: BatchHeader, record: Record) -> int:
    """64 bits of key, value, headers and timestamp, and of the transaction or marker that it is of."""
    kept = header.attributes & _KEPT_BITS, header.producer_id, header.producer_epoch
    content = (record.timestamp_ms, record.key, record.value, record.headers, kept)
    encoded = marshal.dumps(content, _WITHOUT_REFERENCES)
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big", signed=True)
