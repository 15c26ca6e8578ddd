"""Checks histories in Spark, with the checkers of this package and to the same verdicts.

Tasks read parts of the files and deal out their lines, not parsed, to buckets by log; each bucket is examined
by one task, every log in it whole and in the order of its file. What is of no log (groups, changes, faults)
goes to every bucket in its place, because it says what a log is owed, and to one of its own, where it is
examined. Transactions are of several logs at once: one task examines those of a history, if it has any.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec

from pykraft.jepsen_like.faults.checkers.history import (
    Report,
    examine_logs,
    examine_the_rest,
    examine_transactions,
    merge,
)
from pykraft.jepsen_like.faults.checkers.log_index import OPS_OF_A_LOG
from pykraft.jepsen_like.faults.history import HistoryError, event_from_json, read_history
from pykraft.jepsen_like.faults.plain_text import PlainConsole
from pykraft.jepsen_like.faults.reports.report import (
    EXIT_ANOMALY,
    EXIT_CLEAN,
    EXIT_COULD_NOT_RUN,
    print_findings,
)
from pykraft.spark.jobs.session import job_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_BYTES: Final = 32 << 20
"""A task reads this much of a file at once."""
BUCKET_BYTES: Final = 256 << 20
"""A task holds the lines of a bucket and what the checkers remember of them, some ten times as much."""
BUCKETS_PER_CORE: Final = 4
"""Logs differ in length: with more buckets than cores the small ones fill the time of the large ones."""

_AS_RECORDED: Final = re.compile(
    rb'\{"type":"\w+","process":"[^"\\]*","time_us":\d+,"op":"([^"\\]*)"'
    rb'(?:,"key":"([^"\\]*)"|(?!,"key":))[,}]'
)
"""How a line begins that our recorder has written, unless something in it is escaped: its ``op`` and ``key``
are found without parsing it."""
_OPS_OF_A_LOG: Final = {op.encode("utf-8") for op in OPS_OF_A_LOG}

Lines = list[bytes]


class Part(NamedTuple):
    """The lines of the file of a history that begin in bytes ``start`` to ``end``."""

    history: int
    path: str
    start: int
    end: int


class Chunk(NamedTuple):
    """Lines of one part for one bucket, in order."""

    history: int
    start: int
    lines: bytes


class Found(NamedTuple):
    """A task's result for a history. ``report`` is None if one of its lines is no event."""

    history: int
    report: Report | None
    has_transactions: bool = False


class _OpAndKey(msgspec.Struct):
    op: str
    key: str | None = None


def check_histories(
    session: SparkSession, paths: Sequence[Path], min_insync_replicas: int = 2
) -> list[Report]:
    """The report of each history, as by :func:`~pykraft.jepsen_like.faults.checkers.history.examine`.

    Every executor must find the files at these paths. :class:`HistoryError` if a line is not an event,
    OSError if a file cannot be read.
    """
    spark = session.sparkContext
    parts = [part for history, path in enumerate(paths) for part in _parts(history, path)]
    if not parts:
        return [Report(()) for _ in paths]
    total_bytes = sum(part.end - part.start for part in parts)
    buckets = max(BUCKETS_PER_CORE * spark.defaultParallelism, -(-total_bytes // BUCKET_BYTES))
    dealt = spark.parallelize(parts, len(parts)).flatMap(partial(_deal, buckets=buckets))
    of_a_bucket = partial(_examine, rest_in=buckets, min_insync_replicas=min_insync_replicas)
    reports: list[list[Report]] = [[] for _ in paths]
    with_transactions: list[tuple[int, str]] = []
    for found in dealt.partitionBy(buckets + 1, int).mapPartitionsWithIndex(of_a_bucket).collect():
        path = paths[found.history]
        if found.report is None:
            _name_bad_line(path)
        else:
            reports[found.history].append(found.report)
        if found.has_transactions:
            with_transactions.append((found.history, str(path.resolve())))
    if with_transactions:
        of_a_history = partial(_examine_transactions, min_insync_replicas=min_insync_replicas)
        tasks = spark.parallelize(with_transactions, len(with_transactions)).map(of_a_history)
        for history, report in tasks.collect():
            reports[history].append(report)
    return [merge(found) for found in reports]


def examine_in_spark(path: Path) -> Report:
    """The report of one history, by a session of its own on this machine."""
    with job_session("pykraft check-history", "local[*]") as session:
        return check_histories(session, [path])[0]


def main(session: SparkSession, paths: Sequence[Path], min_insync_replicas: int) -> int:
    """Print what is found in each history; the exit status is that of a fault run (see ``report``)."""
    console = PlainConsole(soft_wrap=True)
    try:
        reports = check_histories(session, paths, min_insync_replicas)
    except (HistoryError, OSError) as error:
        console.print(str(error), markup=False, highlight=False)
        return EXIT_COULD_NOT_RUN
    for path, report in zip(paths, reports, strict=True):
        print_findings(console, report.findings)
        count = sum(finding.count for finding in report.findings)
        verdict = f"{count:,} anomalies" if count != 1 else "1 anomaly"
        console.print(f"{path}: {verdict if count else 'no anomaly'}", markup=False, highlight=False)
    return EXIT_ANOMALY if any(report.findings for report in reports) else EXIT_CLEAN


def _parts(history: int, path: Path) -> Iterator[Part]:
    size = path.stat().st_size
    for start in range(0, size, PART_BYTES):
        yield Part(history, str(path.resolve()), start, min(start + PART_BYTES, size))


def _deal(part: Part, buckets: int) -> Iterator[tuple[int, Chunk]]:
    """The lines of a part by bucket; ``buckets`` itself is that of what is of no log."""
    dealt: list[Lines] = [[] for _ in range(buckets + 1)]
    known: dict[tuple[bytes | None, ...], Lines | None] = {}
    for line in _lines(part):
        match = _AS_RECORDED.match(line)
        op_and_key = match.groups() if match is not None else _parse_op_and_key(line)
        try:
            bucket = known[op_and_key]
        except KeyError:
            op, key = op_and_key
            is_of_a_log = op in _OPS_OF_A_LOG and key is not None
            bucket = dealt[(crc32(key or b"") + part.history) % buckets] if is_of_a_log else None
            known[op_and_key] = bucket
        if bucket is not None:
            bucket.append(line)
        else:
            for every in dealt:
                every.append(line)
    for number, lines in enumerate(dealt):
        if lines:
            yield number, Chunk(part.history, part.start, b"\n".join(lines))


def _lines(part: Part) -> Lines:
    """A last line of the file without a line break is what a killed writer leaves behind; it is dropped."""
    with open(part.path, "rb") as file:
        if part.start > 0:
            file.seek(part.start - 1)
            file.readline()  # it begins in the part before
        begin = file.tell()
        if begin >= part.end:
            return []
        data = file.read(part.end - begin)
        if not data.endswith(b"\n"):
            data += file.readline()
    return data.split(b"\n")[:-1]


def _parse_op_and_key(line: bytes) -> tuple[bytes | None, ...]:
    """Neither, if the line is no event: then every bucket will find out."""
    try:
        named = msgspec.json.decode(line, type=_OpAndKey)
    except msgspec.DecodeError:
        return None, None
    return named.op.encode("utf-8"), None if named.key is None else named.key.encode("utf-8")


def _examine(
    bucket: int, chunks: Iterable[tuple[int, Chunk]], rest_in: int, min_insync_replicas: int
) -> Iterator[Found]:
    gc.disable()  # millions of objects without a cycle
    try:
        in_order = sorted(chunk for _, chunk in chunks)
        for history, group in groupby(in_order, itemgetter(0)):
            try:
                events = [event_from_json(line) for chunk in group for line in chunk.lines.split(b"\n")]
            except HistoryError:
                yield Found(history, None)
                continue
            if bucket != rest_in:
                yield Found(history, examine_logs(events, min_insync_replicas))
            else:
                has_transactions = any(event.op.startswith("txn-") for event in events)
                yield Found(history, examine_the_rest(events, min_insync_replicas), has_transactions)
    finally:
        gc.enable()


def _examine_transactions(numbered: tuple[int, str], min_insync_replicas: int) -> tuple[int, Report]:
    history, path = numbered
    return history, examine_transactions(read_history(Path(path)), min_insync_replicas)


def _name_bad_line(path: Path) -> None:
    """:class:`HistoryError` with the number of the first line that is no event."""
    for _ in read_history(path):
        pass
