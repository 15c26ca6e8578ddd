"""The findings of an audit of log directories, and their counts: tasks add up, the driver merges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

EXAMPLES: Final = 3
"""So many places of a finding are kept, those of the lowest offsets."""


class Kind(Enum):
    """Each with what it means. The last ones are notes: they are no anomaly by themselves."""

    CRC_MISMATCH = "crc-mismatch", "the CRC of a batch does not match its bytes"
    MALFORMED_BATCH = "malformed-batch", "no whole batch is where one must begin"
    OVERLAP = "overlap", "a batch is at offsets that other batches of the replica, or its next segment, hold"
    BELOW_BASE_OFFSET = "below-base-offset", "a batch begins below the offset that its file is named by"
    EPOCH_GOES_BACK = "epoch-goes-back", "the leader epoch of a batch is lower than that of the one before"
    DIVERGENCE = "divergence", "replicas hold different records at the same offset"
    EPOCH_DIFFERS = "epoch-differs", "replicas hold the same record with different leader epochs"
    MISSING_RECORDS = "missing-records", "a replica lacks records within its log that another one holds"
    TORN_TAIL = "torn-tail", "the newest segment ends within a batch, as an unclean stop leaves it"
    UNREPLICATED_TAIL = "unreplicated-tail", "replicas differ above the high watermark, by leader epochs"
    GAP = "gap", "offsets that no batch of the replica covers"
    LATER_START = "later-start", "the log begins later than that of another replica"
    EARLIER_END = "earlier-end", "the log ends earlier than that of another replica"

    def __init__(self, label: str, meaning: str) -> None:
        self.label = label
        self.meaning = meaning

    @property
    def is_anomaly(self) -> bool:
        return self not in _NOTES


_NOTES: Final = frozenset(
    {Kind.TORN_TAIL, Kind.UNREPLICATED_TAIL, Kind.GAP, Kind.LATER_START, Kind.EARLIER_END}
)


class Place(NamedTuple):
    """Where something was found: the offset, the number of the segment, the position in its file."""

    offset: int
    segment: int
    position: int
    detail: str = ""


class Subject(NamedTuple):
    """The subject of a finding. ``log``: the partition's number. ``replicas``: the name of one, or of several
    that differ, ``a, b / c``: those that agree together."""

    kind: Kind
    log: int
    replicas: str


@dataclass(frozen=True, slots=True)
class Found:
    """``count``: batches, or, where replicas are compared, offsets; ``places``: the first of them."""

    count: int
    places: tuple[Place, ...]


class Tally:
    """Findings by subject; the order in which they are noted and merged makes no difference."""

    def __init__(self) -> None:
        self._found: dict[Subject, Found] = {}

    def __iter__(self) -> Iterator[tuple[Subject, Found]]:
        return iter(self._found.items())

    def __len__(self) -> int:
        return len(self._found)

    def note(self, subject: Subject, place: Place, count: int = 1) -> None:
        self._add(subject, Found(count, (place,)))

    def merge(self, other: Tally) -> None:
        for subject, found in other:
            self._add(subject, found)

    def _add(self, subject: Subject, more: Found) -> None:
        found = self._found.get(subject)
        if found is None:
            self._found[subject] = more
            return
        places = tuple(sorted({*found.places, *more.places})[:EXAMPLES])
        self._found[subject] = Found(found.count + more.count, places)
