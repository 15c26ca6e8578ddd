"""Checks a compacted log as a map: a reader that reaches its end finds the newest value of every key.

Compaction removes only what a later record of the same key supersedes, so a read from the start to some
offset must have found, of every key, the newest record below that offset, or a later one if there may be one
behind. The same is required of every replica's own log, up to the high watermark. (That offsets stay what
they were is checked by ``compacted_places``.)

A record that deletes its key may go itself, ``delete.retention.ms`` after it was cleaned for the first time,
and what it deleted has gone before. Who sees neither, sees the same; but who reads for longer than that, or a
replica that was cut off for longer, may keep the value that was deleted, in Apache Kafka, too. Where that is
possible, or the clocks were wrong, deletions are not judged, but counted.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from pykraft.jepsen_like.faults.checkers.compacted.log import CompactedLog, MapRead, Put, read_compacted
from pykraft.jepsen_like.faults.checkers.compacted.places import check_places
from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import KeyIndex
from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.faults.record_text import parse_pair
from pykraft.jepsen_like.faults.timeline.faults import faults_of

CATCH_UP_US: Final = 10_000_000
"""How long after a fault a replica may still lag."""
CLOCK_PERCENT: Final = 90
"""A broker's clock and ours run at rates that are a little different."""
AFTER_EVERYTHING_US: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Circumstances:
    """``longest_trouble_us``: for how long at most one node suffered from faults, one after another."""

    clocks_are_right: bool = True
    longest_trouble_us: int = 0


def find_circumstances(events: Sequence[Event]) -> Circumstances:
    """``events``: with all faults of a history."""
    faults = faults_of(events)
    last_us = events[-1].time_us if events else 0
    stretches: dict[str, tuple[int, int]] = {}
    longest_us = 0
    for fault in faults:
        repaired_us = last_us if fault.repaired_us is None else fault.repaired_us
        for node in fault.victims:
            begin_us, end_us = stretches.get(node, (fault.begin_us, fault.begin_us))
            if fault.begin_us > end_us + CATCH_UP_US:
                begin_us = fault.begin_us
            stretches[node] = begin_us, max(end_us, repaired_us)
            longest_us = max(longest_us, stretches[node][1] - begin_us)
    return Circumstances(all(not fault.kind.startswith("clock") for fault in faults), longest_us)


def check_compacted(key: KeyIndex, circumstances: Circumstances, findings: Findings) -> int:
    """Returns how many deletions could not be judged, each in each read."""
    if not key.map_events:
        return 0
    log = read_compacted(key.map_events)
    check_places(key, log, findings)
    judge = _Judge(key.key, log, circumstances, findings)
    reads = sorted(_whole_reads(key, log), key=lambda read: read.end or 0)
    earliest_us = list(accumulate((read.ended_us for read in reversed(reads)), min))
    for read in reads:
        judge.judge(read, earliest_us.pop())
    return judge.unjudged


def _whole_reads(key: KeyIndex, log: CompactedLog) -> list[MapRead]:
    """Also what is in the replicas' own logs, which were read when everything else was over."""
    reads = [read for read in log.reads if read.end is not None]
    if not reads:
        return []
    last = max(reads, key=lambda read: read.end or 0)
    for name, replica in sorted(key.replicas.items()):
        records = sorted(replica.records.items())
        after = AFTER_EVERYTHING_US
        reads.append(replace(last, process=name, began_us=after, ended_us=after, records=records))
    return reads


class _Judge:
    """Compares what reads, in the order of their ends, found of each key with what was put.

    ``there``: the keys that were put below the end of a read, and not deleted so long ago that the read need
    not find the deletion. The others are not looked at, since more and more keys may have been used.
    """

    def __init__(
        self, name: str, log: CompactedLog, circumstances: Circumstances, findings: Findings
    ) -> None:
        self._name = name
        self._circumstances = circumstances
        self._findings = findings
        self._puts: dict[str, list[Put]] = {}
        self.unjudged = 0
        for put in log.puts.values():
            if put.outcome != "fail":
                self._puts.setdefault(put.key, []).append(put)
        self._placed = {key: _in_order(puts) for key, puts in self._puts.items()}
        firsts = ((offsets[0], key) for key, (offsets, _) in self._placed.items() if offsets)
        self._coming = deque(sorted(firsts))
        self._there: dict[str, None] = {}

    def judge(self, read: MapRead, earliest_us: int) -> None:
        """``earliest_us``: when the first of this read and those to come ended."""
        assert read.end is not None
        while self._coming and self._coming[0][0] < read.end:
            self._there[self._coming.popleft()[1]] = None
        found = {parse_pair(text)[0]: offset for offset, text in read.records if offset < read.end}
        for key in [*self._there, *(key for key in found if key not in self._there)]:
            offsets, puts = self._placed.get(key, ((), ()))
            place = bisect_left(offsets, read.end) - 1
            if place < 0 or found.get(key, -1) >= offsets[place]:
                continue
            newest = puts[place]
            if key not in found and newest is puts[-1] and _is_time(newest, earliest_us, read):
                del self._there[key]
            elif not any(_may_be_behind(put, newest, read) for put in self._puts[key]):
                self._judge_missing(read, newest, found.get(key))

    def _judge_missing(self, read: MapRead, newest: Put, found: int | None) -> None:
        what = "nothing" if found is None else f"offset {found}"
        example = f"{read.process} read up to {read.end} and found {what} of the key of {newest}"
        took_us = read.ended_us - read.began_us
        circumstances = self._circumstances
        if not newest.deletes:
            kind = Anomaly.LOST_WRITE if found is None else Anomaly.STALE_MAP_READ
        elif found is None and _is_time(newest, read.ended_us, read):
            return
        elif not circumstances.clocks_are_right:
            self.unjudged += 1
            return
        elif found is None:
            kind = Anomaly.TOMBSTONE_LOST
        elif max(took_us, circumstances.longest_trouble_us) >= _retention_us(read):
            self.unjudged += 1
            return
        else:
            kind = Anomaly.RESURRECTED_KEY
        self._findings.add(kind, self._name, example)


def _retention_us(read: MapRead) -> int:
    return read.delete_retention_ms * 1_000 * CLOCK_PERCENT // 100


def _is_time(newest: Put, now_us: int, read: MapRead) -> bool:
    """Whether what has deleted a key may itself be gone."""
    return newest.deletes and now_us - newest.invoked_us >= _retention_us(read)


def _in_order(puts: Sequence[Put]) -> tuple[Sequence[int], Sequence[Put]]:
    """Those whose offset is known, with their offsets."""
    placed = sorted((put.offset, n) for n, put in enumerate(puts) if put.offset is not None)
    return [offset for offset, _ in placed], [puts[n] for _, n in placed]


def _may_be_behind(put: Put, newest: Put, read: MapRead) -> bool:
    """Whether a put may have superseded ``newest`` at an offset that the read did not reach."""
    assert read.end is not None
    if put is newest or put.invoked_us > read.ended_us:
        return False
    if put.process == newest.process and put.number < newest.number:
        return False
    return put.offset is None or put.offset >= read.end
