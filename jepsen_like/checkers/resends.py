"""Which duplicates a client wrote itself: librdkafka, with several requests in flight, may do that.

After a leader change a first request may be refused for a passing reason and the second, already on its
way, for its sequence number. librdkafka then takes a new producer epoch and writes everything unanswered
again, also what the old leader had replicated (its issue 4953, open). To any broker these are new records.
Such a pair is told by its batch headers: one producer id, a higher producer epoch at the higher offset. It
is counted, not excused silently, and only for producers that the history declares to have several requests
in flight; producers with a single one have no such excuse, so a broker that drives clients to new epochs
without need still shows.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from pykraft.jepsen_like.checkers.log_index import BatchMark, KeyIndex


def client_resends(key: KeyIndex) -> dict[str, frozenset[int]]:
    """The values that a client wrote more than once, each with the offsets of its copies."""
    copies: dict[str, list[int]] = {}
    first: dict[str, int] = {}
    for offset, value in sorted(key.final.items()):
        if value in first:
            copies.setdefault(value, [first[value]]).append(offset)
        else:
            first[value] = offset
    if not copies:
        return {}
    marks = sorted(mark for log in key.replicas.values() for mark in log.batches.values())
    bases = [mark[0] for mark in marks]
    resent: dict[str, frozenset[int]] = {}
    for value, offsets in copies.items():
        send = key.sends.get(value)
        if send is not None and send.kind.pipelined:
            found = [marks[max(0, bisect_right(bases, offset) - 1)] for offset in offsets] if marks else []
            if _new_epoch_each_time(found, offsets):
                resent[value] = frozenset(offsets)
    return resent


def _new_epoch_each_time(marks: list[BatchMark], offsets: list[int]) -> bool:
    if len(marks) != len(offsets):
        return False
    for mark, offset in zip(marks, offsets, strict=True):
        if len(mark) < 6 or not mark[0] <= offset <= mark[1]:
            return False
    epochs = [mark[5] for mark in marks]
    one_producer = len({mark[4] for mark in marks}) == 1
    return one_producer and all(a < b for a, b in pairwise(epochs))
