"""Very many producers of one partition: what each turn of the event loop, and each job, looks at of them."""

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykraft.broker.logs.producers import rebuild as producer_rebuild
from pykraft.broker.logs.producers import snapshots as producer_snapshots
from pykraft.broker.logs.producers.rebuild import (
    ENTRIES_PER_SLICE,
    ProducerRebuild,
    rebuild,
    remembered_offsets,
    snapshot_entries,
)
from pykraft.broker.logs.producers.snapshots import PRODUCERS_PER_JOB
from pykraft.broker.logs.producers.state import MOST_CUT, MOST_EXPIRED, ProducerEntry, ProducerState
from pykraft.kafka_protocol.markers import ABORT, COMMIT, Marker
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.compaction.cleaning import Step
from pykraft.log_store.compaction.offset_map import OffsetMap
from pykraft.log_store.compaction.record_filter import RECORDS_PER_PAUSE, ActiveProducers
from pykraft.log_store.producer_snapshot import (
    SnapshotEntry,
    encode_snapshot,
    list_snapshots,
    pack_entries,
    read_newest_snapshot,
    snapshot_path,
)
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.at_once import now
from tests.broker.logs.producers.test_producer_snapshots import DIRECTORY, HIGH_WATERMARK, KEY, Owner
from tests.stand_ins import interpreted_only

T = TypeVar("T")
SEEN = ("epoch", "batches", "timestamp_ms", "coordinator_epoch", "first_offset")


class _Untouched:
    """Stands for a producer that is not to be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def batch(
    producer_id: int, sequence: int, offset: int, *, transactional: bool = False, control: bool = False
) -> BatchHeader:
    data = encode_batch(
        [RecordInput(None, b"v", (), 100 + offset)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1 if control else sequence,
        is_transactional=transactional or control,
        is_control=control,
    )
    return read_header(data)


def state_of(count: int) -> ProducerState:
    """One batch each, at offsets that go the other way than the producers' ids."""
    state, some = ProducerState(), batch(0, 0, 0)
    for offset in range(count):
        state.replay(replace(some, producer_id=count - offset, base_offset=offset))
    return state


def seen(entries: dict[int, ProducerEntry]) -> dict[int, Any]:
    return {id: tuple(getattr(entry, name) for name in SEEN) for id, entry in entries.items()}


class Written(NamedTuple):
    header: BatchHeader
    marker: Marker | None


def cut_one_by_one(entries: dict[int, ProducerEntry], end_offset: int) -> dict[int, ProducerEntry] | None:
    """All producers looked at; None if what is left of one is not known."""
    left = {}
    for producer_id, entry in entries.items():
        left[producer_id] = entry
        if entry.batches and entry.batches[-1].next_offset > end_offset:
            batches = tuple(one for one in entry.batches if one.next_offset <= end_offset)
            if not batches:
                return None
            first_offset = entry.first_offset if entry.first_offset < end_offset else -1
            left[producer_id] = ProducerEntry(
                entry.epoch, batches, batches[-1].timestamp_ms, first_offset=first_offset
            )
    return left


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["write"] * 5 + ["begin", "end", "cut", "expire", "start"]), st.integers(0, 2)),
    min_size=10,
    max_size=60,
)
ONE_AGAIN = [("write", 0), ("write", 1), ("write", 0), ("cut", 1)]
TWICE_CUT = [("write", 0), ("write", 1), ("write", 1), ("write", 0), ("cut", 1), ("cut", 1)]
LONG_AGO = [("write", 0), *[("write", 1)] * 6, ("start", 0), ("cut", 1)]


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
@example(ONE_AGAIN)
@example(TWICE_CUT)
@example(LONG_AGO)
def test_truncation_leaves_what_it_would_if_all_producers_were_looked_at(
    actions: list[tuple[str, int]],
) -> None:
    state, log, now_ms = ProducerState(), list[Written](), 0

    def replay(header: BatchHeader, marker: Marker | None = None) -> None:
        log.append(Written(header, marker))
        state.replay(header, marker)

    for action, number in actions:
        end_offset, entry = len(log), state.entry(number)
        sequence = entry.batches[-1].last_sequence + 1 if entry is not None and entry.batches else 0
        is_open = entry is not None and entry.first_offset >= 0
        if action in ("write", "begin"):
            replay(batch(number, sequence, end_offset, transactional=is_open or action == "begin"))
        elif action == "end" and is_open:
            replay(batch(number, -1, end_offset, control=True), Marker((COMMIT, ABORT)[number % 2], 0))
        elif action == "expire":
            now_ms += 10
            state.expire(now_ms, 15)
        elif action == "start":  # from a snapshot, whose producers are in another order
            fresh = ProducerRebuild(snapshot_entries(state.capture()), end_offset, complete=False)
            for header, marker in log[max(0, end_offset - 5) :]:
                fresh.replay(header, marker)
            state = fresh.finish()
        elif action == "cut":
            cut = max(0, end_offset - number)
            expected = cut_one_by_one(state.capture(), cut)
            if state.truncate_to(cut):
                assert expected is not None and seen(state.capture()) == seen(expected)
            else:
                state = ProducerState(complete=False)
                for header, marker in log[:cut]:
                    state.replay(header, marker)
            del log[cut:]


def test_truncation_looks_only_at_producers_that_wrote_what_is_cut() -> None:
    state = state_of(1000)
    for number in range(1, 11):
        state.replay(batch(number, 1, 1000 + number - 1))
    entries = list(state.capture())
    assert entries[-10:] == list(range(1, 11))
    for producer_id in entries[:-11]:
        state._producers[producer_id] = _Untouched()  # type: ignore[assignment]
    assert state.truncate_to(1004)
    for number in range(1, 11):
        entry = state.entry(number)
        assert entry is not None and len(entry.batches) == (2 if number <= 4 else 1)


def test_very_many_producers_that_wrote_what_is_cut_are_read_again() -> None:
    known = 2 * MOST_CUT
    for count in (MOST_CUT, MOST_CUT + 1):
        state = state_of(known)
        for number in range(1, count + 1):
            state.replay(batch(number, 1, known - 1 + number))
        assert state.truncate_to(known) is (count == MOST_CUT)
    assert MOST_CUT <= 5000


def test_expiry_looks_only_at_producers_that_have_written_since_or_are_forgotten() -> None:
    state = state_of(1000)
    state.expire(0, 100)
    for number in range(1, 4):
        state.replay(batch(number, 1, 999 + number))
    ids = list(state.capture())
    kept = {id: state._producers[id] for id in ids[1:-4]}
    for producer_id in kept:
        state._producers[producer_id] = _Untouched()  # type: ignore[assignment]
    state.expire(100, 100)
    assert len(state) == 1000
    state._producers.update(kept)
    state.expire(101, 100)
    assert list(state.capture()) == [1, 2, 3] and not state.complete
    state.expire(200, 100)
    assert len(state) == 3, "their time began with the check at 100"
    state.expire(201, 100)
    assert not len(state)


def test_producers_are_walked_over_as_they_were() -> None:
    state = state_of(50)
    then, items = state.capture(), state.items()
    state.replay(batch(3, 1, 50))
    state.replay(batch(99, 0, 51))
    state.expire(0, 10)
    assert list(items) == list(then.items()) != list(state.items())


def test_very_many_idle_producers_are_forgotten_by_several_checks() -> None:
    rest = MOST_EXPIRED // 2
    state = state_of(2 * MOST_EXPIRED + rest)
    left = []
    for now_ms in (0, 11, 12, 13):
        state.expire(now_ms, 10)
        left.append(len(state))
    assert left == [2 * MOST_EXPIRED + rest, MOST_EXPIRED + rest, rest, 0] and MOST_EXPIRED <= 20_000


@pytest.mark.parametrize("count", [0, 1, PRODUCERS_PER_JOB - 1, PRODUCERS_PER_JOB, 2 * PRODUCERS_PER_JOB + 1])
def test_snapshot_is_made_in_jobs_of_some_producers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    owner, sizes = Owner(MemoryDisk()), list[int]()
    captured = state_of(count).capture()

    def note(part: dict[int, ProducerEntry]) -> Any:
        sizes.append(len(part))
        return snapshot_entries(part)

    monkeypatch.setattr(producer_snapshots, "snapshot_entries", note)
    assert owner.opened.snapshots is not None
    owner.append(7)
    writing = owner.opened.snapshots.write(1, iter(captured.items()), False)
    with pytest.raises(StopIteration):
        writing.send(None)
    assert sum(sizes) == count and max(sizes, default=0) <= PRODUCERS_PER_JOB
    assert list_snapshots(owner.disk, DIRECTORY) == [1]
    found = owner.disk.read(snapshot_path(DIRECTORY, 1))
    assert len(found) == len(encode_snapshot([pack_entries(snapshot_entries(captured))]))
    entries = read_newest_snapshot(owner.disk, DIRECTORY, 0, 1)
    assert entries is not None and sorted(entries.entries) == snapshot_entries(captured)


def test_what_compaction_leaves_to_producers_is_gathered_in_small_parts() -> None:
    state = state_of(1000)
    for number in range(1, 301):
        state.replay(batch(number, 1, 999 + number))
    for number in (5000, 5001):
        state.replay(batch(number, -1, 2000 + number, control=True), Marker(COMMIT, 0))
    captured = state.capture()
    producers = ActiveProducers(rest=remembered_offsets(state.items()))
    assert not producers.last_offsets and not producers.marker_epochs, "that is left to the steps"
    parts = list(producers.gather())
    assert sum(parts) == 1002 and max(parts) <= RECORDS_PER_PAUSE
    every = [one.next_offset - 1 for entry in captured.values() for one in entry.batches]
    assert producers.last_offsets == set(every) and len(every) == 1300
    assert producers.marker_epochs == {(5000, 0), (5001, 0)}


def test_round_of_compaction_takes_in_producers_with_its_first_steps() -> None:
    owner = Owner(MemoryDisk())
    while len(owner.opened.log.segment_base_offsets) < 4:
        owner.append(8)
    log = owner.opened.log
    log.flush()
    cleanable = log.find_cleanable(None, limit_offset=log.log_end_offset, now_ms=0)
    assert cleanable is not None
    producers = ActiveProducers(rest=remembered_offsets(state_of(1000).items()))
    steps = log.begin_cleaning(cleanable, producers=producers, newest=OffsetMap(1000), now_ms=0).steps()
    assert not producers.last_offsets
    records = 0
    while records < 1000:
        step = next(steps)
        assert isinstance(step, Step) and step.records <= RECORDS_PER_PAUSE
        records += step.records
        assert len(producers.last_offsets) == records


@interpreted_only
def test_snapshot_of_very_many_producers_is_taken_in_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the log is truncated meanwhile: it is read again then."""
    monkeypatch.setattr(producer_rebuild, "ENTRIES_PER_SLICE", 10)
    owner, cut = Owner(MemoryDisk()), list[int]()
    for number in range(35):
        owner.append(number)
    owner.stop()
    for number in range(3):
        owner.append(number)
    owner.truncate(37)
    at_once: list[int] = []
    known_entry = producer_rebuild._known_entry

    def note(known: SnapshotEntry) -> ProducerEntry:
        at_once[-1] += 1
        return known_entry(known)

    async def pause() -> None:
        at_once.append(0)
        if len(at_once) == 3:
            owner.opened.log.truncate_to(36)
            cut.append(len(at_once))

    monkeypatch.setattr(producer_rebuild, "_known_entry", note)
    monkeypatch.setattr(owner.logs.producers, "pause", pause)
    at_once.append(0)
    owner.state.fall_behind()
    now(owner.logs.producers.rebuild(KEY, HIGH_WATERMARK))
    assert cut and sum(at_once) == 20 + 35 and max(at_once) == 10 < ENTRIES_PER_SLICE <= 2000
    log = owner.opened.log
    whole = rebuild(log.iter_produced(0), log_start_offset=0)
    assert seen(owner.state.capture()) == seen(whole.capture()) and len(owner.state) == 35


def test_transactions_of_every_part_of_a_snapshot_stay_open() -> None:
    rest = ENTRIES_PER_SLICE // 2
    count = 2 * ENTRIES_PER_SLICE + rest
    state = ProducerState()
    for number in range(count):
        state.replay(batch(number, 0, number, transactional=number % 2 == 1))
    rebuild = ProducerRebuild(snapshot_entries(state.capture()), count, complete=True)
    assert list(rebuild.take_in()) == [ENTRIES_PER_SLICE, ENTRIES_PER_SLICE, rest]
    rebuilt, unstable = rebuild.finish(), []
    assert seen(rebuilt.capture()) == seen(state.capture())
    for number in range(1, count, 2):
        unstable.append(rebuilt.transactions.first_open_offset)
        rebuilt.replay(batch(number, -1, count + number, control=True), Marker(COMMIT, 0))
    assert unstable == list(range(1, count, 2))
