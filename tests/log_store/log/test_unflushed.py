"""Which appends a log lets be acknowledged before they are flushed, and when its owner is told to flush."""

from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from tests.log_store.places import Fill, MemoryPlace, make_batch


def opened(
    place: MemoryPlace, told: list[bool], *, messages: int | None = None, ms: int | None = None
) -> Log:
    log = place.open(LogConfig(flush_messages=messages, flush_ms=ms))
    log.on_unflushed = lambda: told.append(log.is_flush_due)
    return log


def test_each_append_that_makes_it_so_many_messages_waits_for_a_flush(
    memory: MemoryPlace, fill: Fill
) -> None:
    told: list[bool] = []
    log = opened(memory, told, messages=3)
    fill(log, 2)
    assert (told, log.acknowledged_end_offset) == ([], 2)
    fill(log, 1)
    assert (told, log.acknowledged_end_offset) == ([True], 2)
    fill(log, 2)  # counted from the end of the append that is to be flushed
    assert (told, log.acknowledged_end_offset) == ([True], 2)
    fill(log, 1)
    assert (told, log.acknowledged_end_offset) == ([True, True], 2)
    log.flush()
    assert log.acknowledged_end_offset == 6 and not log.is_flush_due
    fill(log, 2)
    assert (told, log.acknowledged_end_offset) == ([True, True], 8)


def test_a_flush_confirms_nothing_that_was_appended_after_it_began(memory: MemoryPlace, fill: Fill) -> None:
    log = opened(memory, [], messages=1)
    fill(log, 1)
    job = log.prepare_flush()
    fill(log, 1)
    job.run()
    log.complete_flush(job)
    assert log.acknowledged_end_offset == 1 and log.is_flush_due


def test_a_batch_of_many_records_waits_as_a_whole(memory: MemoryPlace, fill: Fill) -> None:
    log = opened(memory, [], messages=3)
    fill(log, 1, records=5)
    assert log.acknowledged_end_offset == 0


def test_a_truncation_takes_back_what_waits_above_it(memory: MemoryPlace, fill: Fill) -> None:
    log = opened(memory, [], messages=2)
    fill(log, 2)
    fill(log, 2)
    job = log.prepare_flush()
    job.run()
    log.truncate_to(3)
    log.complete_flush(job)  # it was prepared for another end
    assert log.acknowledged_end_offset == 1 and log.is_flush_due
    log.flush()
    assert log.acknowledged_end_offset == 3
    fill(log, 2)
    log.truncate_to(3)
    assert not log.is_flush_due


def test_a_truncation_within_an_append_leaves_the_rest_of_it_waiting(memory: MemoryPlace) -> None:
    log = opened(memory, [], messages=2)
    batches = [make_batch(offset) for offset in range(3)]
    log.append(b"".join(batch.data for batch in batches), [batch.header for batch in batches], now_ms=0)
    log.truncate_to(2)
    assert log.is_flush_due and log.acknowledged_end_offset == 0
    log.flush()
    assert not log.is_flush_due and log.acknowledged_end_offset == 2


def test_the_first_record_after_a_flush_begins_sets_a_time(memory: MemoryPlace, fill: Fill) -> None:
    told: list[bool] = []
    log = opened(memory, told, ms=100)
    fill(log, 3)
    assert told == [False]
    job = log.prepare_flush()
    fill(log, 2)
    assert told == [False, False] and log.acknowledged_end_offset == 5
    job.run()
    log.complete_flush(job)
    fill(log, 1)
    assert told == [False, False]


def test_settings_that_change_hold_for_what_is_unflushed(memory: MemoryPlace, fill: Fill) -> None:
    told: list[bool] = []
    log = opened(memory, told)
    fill(log, 3)
    log.config = LogConfig(flush_ms=100)
    assert told == [False]
    log.config = LogConfig(flush_ms=200)
    assert told == [False]
    log.config = LogConfig(flush_messages=4)
    fill(log, 1)
    assert told == [False, True]


def test_without_an_owner_nothing_waits(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(LogConfig(flush_messages=1, flush_ms=1))
    fill(log, 2)
    assert log.acknowledged_end_offset == 2
