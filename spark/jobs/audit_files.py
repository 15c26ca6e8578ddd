"""Which segment files an audit reads: those in log directories, pykraft's and Kafka's alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pykraft.kafka_client.metadata import TopicPartition

_PARTITION: Final = re.compile(r"(.+)-(\d+)")
_OUT_OF_USE: Final = re.compile(r".+-(delete|future|stray|damaged)")
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_REPLACEMENT: Final = re.compile(r"\d{20}\.log\.(swap|cleaned)")

EVERYTHING: Final = (1 << 63) - 1
"""Above every offset."""
COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A log directory of a replica, and what its checkpoint files say: where logs begin, how far they are
    known to be replicated, how far compaction may have taken records out."""

    replica: str
    path: Path
    log_starts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    high_watermarks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    compacted_ends: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class AuditedLog:
    """A partition. ``high_watermark``: the highest that a replica has stored; None if none has.
    ``compacted_end``: below it records may be missing. ``starts``: by the number of the replica."""

    topic: str
    partition: int
    high_watermark: int | None
    compacted_end: int
    starts: dict[int, int] = field(default_factory=dict)


class Segment(NamedTuple):
    """A file. ``limit``: the base offset of the next segment; None: it is the newest. ``log_start``: below it
    nothing is read any more. ``gaps_below``: gaps that end there or below are no surprise."""

    number: int
    log: int
    replica: int
    path: str
    base_offset: int
    limit: int | None
    size_bytes: int
    log_start: int
    gaps_below: int


@dataclass(slots=True)
class AuditPlan:
    """The files to read. ``segments`` and ``logs`` are in the order of their numbers.

    ``skipped``: directories and files not to be read, with the reason; ``unreadable``: those that cannot be.
    """

    replicas: list[str]
    logs: list[AuditedLog] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def plan_audit(log_dirs: Sequence[LogDir], topics: Sequence[str], compacted: Sequence[str]) -> AuditPlan:
    """List the directories. ``topics``: only these; all if there is none. ``compacted``: topics from which
    compaction may have removed records anywhere. Several directories may be of the same replica."""
    plan = AuditPlan(list(dict.fromkeys(one.replica for one in log_dirs)))
    numbers: dict[TopicPartition, int] = {}
    for log_dir in log_dirs:
        for folder, partition in _partitions(log_dir, plan):
            if topics and partition.topic not in topics:
                continue
            if partition not in numbers:
                numbers[partition] = len(plan.logs)
                plan.logs.append(_log(partition, log_dirs, compacted))
            _add_segments(plan, numbers[partition], log_dir, folder)
    return plan


def _partitions(log_dir: LogDir, plan: AuditPlan) -> Iterator[tuple[Path, TopicPartition]]:
    try:
        folders = sorted(path for path in log_dir.path.iterdir() if path.is_dir())
    except OSError as error:
        plan.unreadable.append(f"{log_dir.path}: {error.strerror}")
        return
    for folder in folders:
        if (match := _PARTITION.fullmatch(folder.name)) is not None:
            yield folder, TopicPartition(match[1], int(match[2]))
        elif (match := _OUT_OF_USE.fullmatch(folder.name)) is not None:
            plan.skipped.append(f"{folder}: its log is out of use ({match[1]})")
        else:
            plan.skipped.append(f"{folder}: its name is not that of a partition")


def _log(partition: TopicPartition, log_dirs: Sequence[LogDir], compacted: Sequence[str]) -> AuditedLog:
    stored = [one.high_watermarks[partition] for one in log_dirs if partition in one.high_watermarks]
    if partition.topic in compacted or partition.topic in COMPACTED_TOPICS:
        compacted_end = EVERYTHING
    else:
        compacted_end = max((one.compacted_ends.get(partition, 0) for one in log_dirs), default=0)
    return AuditedLog(*partition, max(stored, default=None), compacted_end)


def _add_segments(plan: AuditPlan, number: int, log_dir: LogDir, folder: Path) -> None:
    log, replica = plan.logs[number], plan.replicas.index(log_dir.replica)
    if replica in log.starts:
        plan.skipped.append(f"{folder}: the replica holds this partition in another directory, too")
        return
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        plan.unreadable.append(f"{folder}: {error.strerror}")
        return
    found = [(int(match[1]), folder / name) for name in names if (match := _SEGMENT.fullmatch(name))]
    if any(map(_REPLACEMENT.fullmatch, names)):
        plan.skipped.append(
            f"{folder}: of a replacement of segments that did not end, only .log files are read"
        )
    if not found:
        plan.skipped.append(f"{folder}: there is no segment in it")
        return
    log.starts[replica] = max(found[0][0], log_dir.log_starts.get((log.topic, log.partition), 0))
    limits = [*(base_offset for base_offset, _ in found[1:]), None]
    for (base_offset, path), limit in zip(found, limits, strict=True):
        number_of_segment = len(plan.segments)
        bounds = base_offset, limit, _size_bytes(path), log.starts[replica], log.compacted_end
        plan.segments.append(Segment(number_of_segment, number, replica, str(path.resolve()), *bounds))


def _size_bytes(path: Path) -> int:
    """0 if it cannot be known: the task that reads the file will say why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
