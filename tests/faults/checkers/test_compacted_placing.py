"""Which deletion of unknown outcome is where, if it can be one of several."""

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import examine
from pykraft.jepsen_like.faults.history import Event

KEY = "compacted-0"


def put(process: str, number: int, text: str) -> list[Event]:
    """Of unknown outcome."""
    detail = {"number": number}
    return [
        Event("invoke", process, number, "put", KEY, text, detail=detail),
        Event("info", process, number + 1, "put", KEY, text, error="closed", detail=detail),
    ]


def read(*records: tuple[int, str]) -> list[Event]:
    start = {"delete_retention_ms": 1_000_000}
    return [
        Event("ok", "r", 5_000, "map-start", KEY, detail=start),
        Event("ok", "r", 5_001, "map-read", KEY, records=records),
        Event("ok", "r", 5_002, "map-end", KEY, offset=200),
    ]


def kinds(events: list[Event]) -> set[Anomaly]:
    return {finding.kind for finding in examine(events).findings}


def test_deletion_is_not_taken_for_one_that_was_written_before_its_place() -> None:
    """The numbers in between are of puts into other partitions."""
    first = [*put("w.0", 165, "a"), *put("w.0", 253, "b")]
    assert kinds([*first, *put("w.1", 900, "a"), *read((101, "b"), (105, "a"))]) == set()


def test_deletion_that_can_only_be_out_of_order_is_a_finding() -> None:
    first = [*put("w.0", 165, "a"), *put("w.0", 253, "b")]
    assert kinds([*first, *read((101, "b"), (105, "a"))]) == {Anomaly.PHANTOM_READ}


def test_deletion_that_is_left_after_compaction_may_be_a_later_one() -> None:
    """Who reads last finds one of two deletions, where another log still has both, and what is between."""
    puts = [
        event
        for number, text in ((1, "a"), (2, "b=1"), (3, "a"), (4, "b=2"))
        for event in put("w.0", number, text)
    ]
    whole = [(99, "a"), (101, "b=1"), (105, "a"), (110, "b=2")]
    replica = Event("ok", "replica-1", 6_000, "replica", KEY, records=whole)
    assert kinds([*puts, *read(*whole[2:]), replica]) == set()
