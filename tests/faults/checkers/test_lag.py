"""What counts as a stale read, and how late it is at least."""

from collections.abc import Sequence

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.lag import WorstLag, measure_lag
from pykraft.jepsen_like.faults.checkers.self_test.plants import clean_history
from pykraft.jepsen_like.faults.history import Event

KEY = "t-0"


def acknowledged(offset: int, time_us: int, process: str = "p") -> list[Event]:
    value = f"{process}-{offset}"
    return [
        Event("invoke", process, time_us - 1, "send", KEY, value),
        Event("ok", process, time_us, "send", KEY, value, offset),
    ]


def poll(asked_us: int, *offsets: int, reader: str = "r", key: str = KEY) -> list[Event]:
    if not offsets:
        return [Event("ok", reader, asked_us, "poll-empty")]
    records = [(offset, f"p-{offset}") for offset in offsets]
    return [
        Event("invoke", reader, asked_us, "poll", key),
        Event("ok", reader, asked_us + 5, "poll", key, records=records),
    ]


def history(*parts: Sequence[Event]) -> list[Event]:
    return [event for part in parts for event in part]


def test_reader_at_the_end_of_the_log_is_not_late() -> None:
    lag = measure_lag(history(acknowledged(0, 10), poll(20, 0), acknowledged(1, 30), poll(40, 1)))
    assert (lag.worst, lag.polls, lag.stale_polls) == (None, 2, 0)


def test_lag_begins_when_the_next_record_is_acknowledged() -> None:
    """The second poll is invoked 60 us after that, and still has the first record only."""
    events = history(acknowledged(0, 10), poll(20, 0), acknowledged(1, 40), poll(100), poll(200, 1))
    lag = measure_lag(events)
    assert lag.worst == WorstLag(KEY, 60, 100, "r")
    assert (lag.polls, lag.stale_polls) == (3, 1)


def test_record_is_known_when_another_reader_has_it() -> None:
    """It was never acknowledged. The other reader has it at 35."""
    events = history(acknowledged(0, 10), poll(20, 0), poll(30, 1, reader="other"), poll(100), poll(200, 1))
    assert measure_lag(events).worst == WorstLag(KEY, 65, 100, "r")


def test_poll_that_brings_records_of_one_partition_found_nothing_in_the_others() -> None:
    events = history(
        acknowledged(0, 10),
        poll(20, 0),
        poll(20, 0, key="t-1"),
        acknowledged(1, 40),
        poll(100, 1, key="t-1"),
        poll(200, 1),
    )
    assert measure_lag(events).worst == WorstLag(KEY, 60, 100, "r")


def test_reader_that_begins_again_is_not_late_for_what_it_missed() -> None:
    events = history(
        *(acknowledged(offset, 10 + offset) for offset in range(4)),
        [Event("ok", "r", 1_000, "assign")],
        poll(1_100, 0, 1),
        poll(1_200, 2, 3),
    )
    assert measure_lag(events).worst == WorstLag(KEY, 100, 1_100, "r")


def test_member_is_not_late_for_a_partition_that_it_no_longer_has() -> None:
    taken = Event("info", "r", 50, "revoked", detail={"partitions": [KEY]})
    given = Event("info", "r", 1_000, "assigned", detail={"partitions": [KEY]})
    events = history(acknowledged(0, 10), poll(20, 0), acknowledged(1, 40), [taken], poll(500), [given])
    assert measure_lag([*events, *poll(1_100)]).worst is None
    late = history(poll(1_100, 0), poll(1_300, 1))
    assert measure_lag([*events, *late]).worst == WorstLag(KEY, 100, 1_100, "r")
    gone = Event("info", "r", 1_200, "member-gone")
    assert measure_lag([*events, *late[:2], gone]).worst == WorstLag(KEY, 100, 1_100, "r")


def test_acknowledgement_of_few_replicas_is_no_promise() -> None:
    weak = Event("info", "w", 0, "producer", detail={"acks": 1})
    events = history([weak], acknowledged(0, 10), poll(20, 0), acknowledged(1, 40, "w"), poll(100), poll(200))
    assert measure_lag(events).worst is None


def test_last_read_and_lost_records_do_not_count() -> None:
    lost = Event("info", "disks", 60, "exempted", key=KEY)
    events = history(acknowledged(0, 10), poll(20, 0), acknowledged(1, 40), [lost], poll(100), poll(200))
    assert measure_lag(events).worst is None
    final = Event("ok", "final", 900, "final", KEY, records=[(0, "p-0")])
    assert measure_lag([*history(acknowledged(0, 10), acknowledged(1, 20)), final]).polls == 0


def test_worst_of_all_partitions_is_one_of_theirs() -> None:
    def of(key: str, asked_us: int) -> list[Event]:
        events = history(acknowledged(0, 10), poll(20, 0), acknowledged(1, 40), poll(asked_us, 0))
        return [replace(event, key=key, process=f"{event.process} {key}") for event in events]

    lag = measure_lag(history(of("t-0", 100), of("t-1", 300), of("t-2", 200)))
    assert {key: worst.lag_us for key, worst in lag.by_key.items()} == {"t-0": 60, "t-1": 260, "t-2": 160}
    assert lag.worst == lag.by_key["t-1"]
    assert measure_lag(clean_history()).worst is None
