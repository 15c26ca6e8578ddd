"""Finds duplicates that the client wrote itself, as librdkafka does after a leader change.

A first request may be refused with a retriable error and the second for its sequence number. librdkafka then
takes a new producer epoch and writes all unanswered records again, also those that the old leader had
replicated (its issue 4953, open). For a broker these are new records. With several requests in flight the
second may be on its way already. With one, too: what is in flight is counted down before the records of the
refused request are back in their queue, and meanwhile the thread of the new leader may send the next ones
(met with Apache Kafka 4.3.0 as well: in 2 of 139 changes of six leaders each). librdkafka tells of that in
its log, by which it is known.

Such a pair is recognized by its batch headers: one producer id, and a higher producer epoch at the higher
offset. It is counted, not silently excused, and only for producers that the history declares to have several
requests in flight, or to have skipped a sequence; for all others it is a finding, so that a broker that
needlessly forces clients to new epochs is still noticed.
"""

from bisect import bisect_right
from collections.abc import Container
from itertools import pairwise

from pykraft.jepsen_like.faults.checkers.log_index import BatchMark, KeyIndex


def client_resends(key: KeyIndex, skippers: Container[str]) -> dict[str, frozenset[int]]:
    """The values that the client itself wrote more than once, each with the offsets of its copies.

    ``skippers``: the producers that are known to have sent a batch before an earlier one.
    """
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
        if send is not None and (send.kind.pipelined or send.process in skippers):
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
