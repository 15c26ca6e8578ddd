"""Checks of a source topic, and of the copies that two queries made of it. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_SHOWN: Final = 3


class Record(NamedTuple):
    """A record of the source: ``number`` is its value, and unique."""

    partition: int
    offset: int
    number: int


class Copy(NamedTuple):
    """In the sink topic, in the order of ``sink_partition``."""

    sink_partition: int
    record: Record


@dataclass(frozen=True, slots=True)
class Seen:
    """``acknowledged``: numbers, with the place that the broker has named. ``sent``: numbers below it were.
    ``open_transactions``: partitions of the sink whose end is not stable."""

    acknowledged: Mapping[int, tuple[int, int]]
    sent: int
    source: Sequence[Record]
    sink: Sequence[Copy]
    parquet: Sequence[Record]
    open_transactions: Sequence[str] = ()


def anomalies(seen: Seen) -> list[str]:
    """One line for each kind that occurs, with the first few records."""
    found = _of_source(seen)
    found += _of_copies("the sink topic", seen.source, [copy.record for copy in seen.sink])
    found += _of_copies("the Parquet sink", seen.source, seen.parquet)
    found += _line("out of order in the sink topic", out_of_order(seen.sink))
    found += _line("a transaction is left open in", seen.open_transactions)
    return found


def _of_source(seen: Seen) -> list[str]:
    places = {record.number: (record.partition, record.offset) for record in seen.source}
    lost = (number for number, place in seen.acknowledged.items() if places.get(number) != place)
    twice = (n for n, count in Counter(record.number for record in seen.source).items() if count > 1)
    unsent = (record for record in seen.source if not 0 <= record.number < seen.sent)
    return [
        *_line("acknowledged and not where the broker has said", lost),
        *_line("twice in the source", twice),
        *_line("in the source and never sent", unsent),
    ]


def _of_copies(where: str, source: Sequence[Record], copies: Sequence[Record]) -> list[str]:
    wanted, found = set(source), Counter(copies)
    return [
        *_line(f"missing in {where}", sorted(wanted - found.keys())),
        *_line(f"in {where} and not in the source", sorted(found.keys() - wanted)),
        *_line(f"more than once in {where}", sorted(one for one, count in found.items() if count > 1)),
    ]


def out_of_order(copies: Iterable[Copy]) -> list[Record]:
    """Records that come after one of the same source partition that is newer, or lie in another partition of
    the sink than it: the key is the source partition."""
    last: dict[int, Copy] = {}
    found = []
    for copy in copies:
        before = last.setdefault(copy.record.partition, copy)
        if before.sink_partition != copy.sink_partition or before.record.offset > copy.record.offset:
            found.append(copy.record)
        last[copy.record.partition] = copy
    return found


def _line(what: str, found: Iterable[object]) -> list[str]:
    items = list(found)
    if not items:
        return []
    shown = ", ".join(map(str, items[:_SHOWN]))
    return [f"{len(items)} {what}: {shown}{' …' if len(items) > _SHOWN else ''}"]
