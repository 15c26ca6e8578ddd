"""Compares the segment files of replicas, pykraft's or Kafka's, and checks each of them by itself.

Tasks read whole segments by their headers, check every CRC, and yield a row per batch. Rows that all replicas
of a partition have alike are done with; the batches of the rest are opened and compared by record
(:mod:`.audit_records`). Only counts, and a few examples, come to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pykraft.spark.jobs.audit_files import AuditPlan, Segment
from pykraft.spark.jobs.audit_findings import Kind, Place, Subject, Tally
from pykraft.spark.jobs.audit_records import Comparison
from pykraft.spark.jobs.audit_rows import BATCH, Bucket, Extent, Rows, by_bucket, partition_of
from pykraft.spark.jobs.audit_scan import Batch, SegmentReport, SegmentScan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES: Final = 128 << 20
"""A task reads so much of small segments; never a part of a segment: only its headers lead to its batches."""
COMPARED_BYTES: Final = 1 << 30
"""A task compares the batches of so much; if replicas differ everywhere, it opens them all."""
_OPEN_BYTES: Final = 64 << 10
"""To open a file takes as long as to read so much of it."""
_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class ReplicaTotals:
    """Totals of one replica. ``records``: with those that mark the ends of transactions."""

    replica: str
    partitions: int
    segments: int
    batches: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The result: findings, and totals; ``unreadable``: files and directories, with the reason."""

    tally: Tally
    totals: tuple[ReplicaTotals, ...]
    unreadable: tuple[str, ...]


def audit_segments(session: SparkSession, plan: AuditPlan) -> Audit:
    """Every executor must find the files at the paths that the plan names."""
    from pyspark.storagelevel import StorageLevel

    spark = session.sparkContext
    tasks = list(_tasks(plan.segments))
    compared = frozenset(number for number, log in enumerate(plan.logs) if len(log.starts) > 1)
    scan = partial(_scan, replicas=plan.replicas, compared=compared)
    found = spark.parallelize(tasks, max(1, len(tasks))).flatMap(scan).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        reports = found.flatMap(_report).collect()
        reports.sort(key=lambda report: report.number)
        tally = _across_segments(plan, reports)
        paths = [segment.path for segment in plan.segments]
        comparison = Comparison(plan.replicas, plan.logs, paths, _extents(plan, reports))
        _note_ends(tally, comparison)
        size_bytes = sum(segment.size_bytes for segment in plan.segments if segment.log in compared)
        parts = max(spark.defaultParallelism, -(-size_bytes // COMPARED_BYTES))
        judged = (
            found.flatMap(_batches)
            .groupByKey(parts, partition_of)
            .flatMap(comparison.open_differing)
            .groupByKey(parts, partition_of)
            .mapPartitions(comparison.judge_buckets)
            .collect()
        )
    finally:
        found.unpersist()
    errors = {report.error for report in reports if report.error is not None}
    for of_a_task, unreadable in judged:
        tally.merge(of_a_task)
        errors.update(unreadable)
    return Audit(tally, _totals(plan, reports), (*plan.unreadable, *sorted(errors)))


def _tasks(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    task: list[Segment] = []
    size_bytes = 0
    for segment in segments:
        if task and size_bytes + segment.size_bytes > TASK_BYTES:
            yield task
            task, size_bytes = [], 0
        task.append(segment)
        size_bytes += segment.size_bytes + _OPEN_BYTES
    if task:
        yield task


def _scan(
    task: Sequence[Segment], replicas: Sequence[str], compared: frozenset[int]
) -> Iterator[tuple[Bucket, Rows] | SegmentReport]:
    """The batches of logs that can be compared, by bucket, and the report of each segment."""
    for segment in task:
        scan = SegmentScan(segment, replicas[segment.replica])
        batches = scan.batches()
        if segment.log in compared:
            while some := list(islice(batches, _ROWS)):
                yield from by_bucket(segment.log, _rows(segment, some), "base_offset")
        for _ in batches:
            pass
        yield scan.report


def _rows(segment: Segment, batches: Sequence[Batch]) -> Rows:
    where = segment.replica, segment.number
    return np.array([(*one, *where) for one in batches if one.last_offset >= segment.log_start], BATCH)


def _report(item: tuple[Bucket, Rows] | SegmentReport) -> list[SegmentReport]:
    return [item] if isinstance(item, SegmentReport) else []


def _batches(item: tuple[Bucket, Rows] | SegmentReport) -> list[tuple[Bucket, Rows]]:
    return [] if isinstance(item, SegmentReport) else [item]


def _across_segments(plan: AuditPlan, reports: Sequence[SegmentReport]) -> Tally:
    """Find damage in segments, and between them. A segment's range of offsets was checked in it."""
    tally = Tally()
    for report in reports:
        tally.merge(report.tally)
    with_batches = [(plan.segments[one.number], one) for one in reports if one.batches]
    for (before, earlier), (segment, later) in pairwise(with_batches):
        is_same_log = (before.log, before.replica) == (segment.log, segment.replica)
        if is_same_log and later.first_epoch < earlier.last_epoch:
            subject = Subject(Kind.EPOCH_GOES_BACK, segment.log, plan.replicas[segment.replica])
            detail = f"from {earlier.last_epoch} to {later.first_epoch}, between segments"
            tally.note(subject, Place(segment.base_offset, segment.number, 0, detail))
    return tally


def _extents(plan: AuditPlan, reports: Sequence[SegmentReport]) -> dict[int, dict[int, Extent]]:
    """By log and replica."""
    extents = {
        number: {replica: Extent(start, start) for replica, start in log.starts.items()}
        for number, log in enumerate(plan.logs)
    }
    for report in reports:
        segment = plan.segments[report.number]
        known = extents[segment.log][segment.replica]
        end = max(known.end, report.end_offset)
        extents[segment.log][segment.replica] = Extent(known.start, end, (*known.holes, *report.holes))
    return extents


def _note_ends(tally: Tally, comparison: Comparison) -> None:
    """How far the replicas of a log begin later, or end earlier, than the longest one."""
    for log, extents in comparison.extents.items():
        if not extents:
            continue
        start = min(extent.start for extent in extents.values())
        end = max(extent.end for extent in extents.values())
        for replica, extent in extents.items():
            name = comparison.replicas[replica]
            if extent.start > start:
                place = Place(extent.start, -1, 0, f"{start} elsewhere")
                tally.note(Subject(Kind.LATER_START, log, name), place, extent.start - start)
            if extent.end < end:
                place = Place(extent.end, -1, 0, f"{end} elsewhere")
                tally.note(Subject(Kind.EARLIER_END, log, name), place, end - extent.end)


def _totals(plan: AuditPlan, reports: Sequence[SegmentReport]) -> tuple[ReplicaTotals, ...]:
    totals = []
    for replica, name in enumerate(plan.replicas):
        mine = [one for one in reports if plan.segments[one.number].replica == replica]
        segments = [plan.segments[one.number] for one in mine]
        totals.append(
            ReplicaTotals(
                name,
                len({one.log for one in segments}),
                len(mine),
                sum(one.batches for one in mine),
                sum(one.records for one in mine),
                sum(one.size_bytes for one in segments),
            )
        )
    return tuple(totals)
