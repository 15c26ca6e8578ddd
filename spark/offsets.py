"""Plans a batch read: which offsets of which partitions, and how they are split into tasks.

Decides from the cluster's state (partitions, log start and end offsets) and the options. Pure. Offset maps
must name exactly the partitions that are read: one left out by mistake would otherwise be read from a default
that the user did not choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.spark.positions import EARLIEST, LATEST, Everywhere, OffsetSpec, PerPartition


class PlanError(ValueError):
    """The options do not match the topics and partitions of the cluster."""


class PlannedDataLossError(PlanError):
    """Requested offsets are not in the log, and ``failOnDataLoss`` is on."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` up to but not including ``end`` of one partition: the work of one task."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def check_exact(spec_partitions: Iterable[TopicPartition], read: Iterable[TopicPartition], name: str) -> None:
    """:class:`PlanError` unless an option's map names exactly the partitions that are read."""
    named, wanted = set(spec_partitions), set(read)
    missing, extra = sorted(wanted - named), sorted(named - wanted)
    if missing:
        raise PlanError(
            f"option {name!r} must name every partition that is read (use -2 for earliest, -1 for latest); "
            f"missing: {_listed(missing)}"
        )
    if extra:
        raise PlanError(f"option {name!r} names partitions that are not read: {_listed(extra)}")


def resolve_ranges(
    starting: Mapping[TopicPartition, int],
    ending: Mapping[TopicPartition, int],
    log_start: Mapping[TopicPartition, int],
    log_end: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The range of each partition, empty ones left out, in order of topic and partition.

    ``starting`` and ``ending`` may hold ``EARLIEST`` and ``LATEST``. Offsets outside the log are data loss:
    an error, or, with ``fail_on_data_loss`` off, limited to what the log holds.
    """
    ranges = []
    for key in sorted(log_end):
        first, last = log_start[key], log_end[key]
        start = _position(starting[key], first, last)
        end = _position(ending[key], first, last)
        for name, offset in (("starting", start), ("ending", end)):
            if fail_on_data_loss and not first <= offset <= last:
                raise PlannedDataLossError(
                    f"the {name} offset {offset} of {key} is not in the log, which holds "
                    f"{first} up to {last}; set 'failOnDataLoss' to 'false' to read what the log holds"
                )
        start, end = (min(max(offset, first), last) for offset in (start, end))
        if starting[key] >= 0 and ending[key] >= 0 and starting[key] > ending[key]:
            raise PlanError(
                f"the starting offset {starting[key]} of {key} is after its ending offset {ending[key]}"
            )
        if start < end:
            ranges.append(OffsetRange(key.topic, key.partition, start, end))
    return ranges


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Split ranges as Spark's Kafka connector does (its ``KafkaOffsetRangeCalculator``); empty ones are left
    out.

    First so that none is longer than ``max_records``; then, if there are less than ``min_partitions``, in
    proportion to their sizes: rounding makes that about ``min_partitions``.
    """
    pieces = [one for one in ranges if one.size > 0]
    if max_records is not None:
        pieces = [part for one in pieces for part in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(one.size for one in pieces)
    # A partition of which one piece would stay whole is not split at all, and takes no part in the shares.
    small = [one for one in pieces if _share(one.size, total, min_partitions) == 1]
    whole = {(one.topic, one.partition) for one in small}
    others_total = total - sum(one.size for one in small)
    others_wanted = max(min_partitions - len(small), 1)
    return [
        part
        for one in pieces
        for part in (
            [one]
            if (one.topic, one.partition) in whole
            else _cut(one, _share(one.size, others_total, others_wanted))
        )
    ]


def everywhere(spec: OffsetSpec, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The positions of a spec, which needs no lookup by timestamp."""
    match spec:
        case Everywhere(position):
            return dict.fromkeys(partitions, position)
        case PerPartition(positions):
            return dict(positions)
        case _:
            raise AssertionError("timestamps are looked up in the cluster")


def _share(size: int, total: int, pieces: int) -> int:
    return max(floor(size / total * pieces + 0.5), 1)


def _cut(one: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Into equal pieces, of which the last are longer by what is left over; into fewer if it is too short."""
    parts = []
    start = one.start
    for left in range(pieces, 0, -1):
        end = start + (one.end - start) // left
        if end > start:
            parts.append(replace(one, start=start, end=end))
        start = end
    return parts


def _position(position: int, first: int, last: int) -> int:
    return {EARLIEST: first, LATEST: last}.get(position, position)


def _listed(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(str(partition) for partition in partitions[:5])
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")
