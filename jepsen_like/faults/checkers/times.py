"""Checks that an offset found by time is that of the first record in the log at or after that time.

Records have the timestamps of their producers, in no order. The log below the high watermark only grows, so
an offset found at any moment must be the one that the last read shows, unless it was deleted, or all before
it were to be deleted: a deletion is lost with its leader's log. Finding nothing is wrong if a record at or
after the time was acknowledged before the look-up, and was not deleted.
"""

from bisect import bisect_left
from functools import cache
from itertools import accumulate

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import KeyIndex, TimeLookup


def check_times(key: KeyIndex, findings: Findings) -> None:
    """Checks nothing without a last read from offset 0, from which the log is known."""
    if key.final_end is None:
        return
    offsets, times = [], []
    for offset, value in sorted(key.final.items()):
        send = key.sends.get(value)
        if send is not None and send.timestamp_ms is not None:
            offsets.append(offset)
            times.append(send.timestamp_ms)
    newest = list(accumulate(times, max))
    newest_known = cache(lambda: _newest_known(key))  # mostly nobody asks
    for lookup in key.lookups:
        place = bisect_left(newest, lookup.timestamp_ms)
        expected = offsets[place] if place < len(offsets) else None
        if lookup.offset is not None and lookup.offset < key.deletable:
            continue
        if lookup.offset is None:
            answered_us, known = newest_known()
            by_then = bisect_left(answered_us, lookup.asked_us)
            if by_then and known[by_then - 1][0] >= lookup.timestamp_ms:
                value = known[by_then - 1][1]
                example = f"nothing at or after {lookup.timestamp_ms}, though {value} was acknowledged"
                findings.add(Anomaly.WRONG_OFFSET_FOR_TIME, key.key, example)
        elif lookup.offset != expected and not _began_later(key, lookup, offsets, times):
            example = f"{lookup.offset} for {lookup.timestamp_ms}, but the first such record is at {expected}"
            findings.add(Anomaly.WRONG_OFFSET_FOR_TIME, key.key, example)


def _began_later(key: KeyIndex, lookup: TimeLookup, offsets: list[int], times: list[int]) -> bool:
    """Whether the offset is right for a log from which all was deleted, at the most, that was asked for."""
    assert lookup.offset is not None
    start = lookup.offset if key.deletes_everything else min(lookup.offset, key.asked_to)
    place = bisect_left(offsets, start)
    later = zip(offsets[place:], times[place:], strict=True)
    return lookup.offset == next((offset for offset, ms in later if ms >= lookup.timestamp_ms), None)


def _newest_known(key: KeyIndex) -> tuple[list[int], list[tuple[int, str]]]:
    """When records were acknowledged that were not deleted, and which was the newest by its time then."""
    known = sorted(
        (send.answered_us, (send.timestamp_ms, send.value))
        for send in key.sends.values()
        if send.must_stay
        and send.timestamp_ms is not None
        and send.answered_us is not None
        and (send.offset or 0) >= key.deletable
    )
    return [answered_us for answered_us, _ in known], list(accumulate((newest for _, newest in known), max))
