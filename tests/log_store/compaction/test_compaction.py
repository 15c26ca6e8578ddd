"""The rules of compaction, one at a time: what stays of a batch, of a segment, of a log that a crash met.

It is long because each rule is played on the same few lines of records.
"""

import random
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.markers import ABORT, COMMIT
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.record_spans import iter_spans, write_record
from pykraft.kafka_protocol.records import (
    HEADER_BYTES,
    BatchHeader,
    crc_is_valid,
    read_header,
    set_log_append_time,
)
from pykraft.log_store.compaction import record_filter
from pykraft.log_store.compaction.candidates import find_cleanable
from pykraft.log_store.compaction.cleaning import MAX_SEGMENTS, group_segments
from pykraft.log_store.compaction.offset_map import BYTES_PER_KEY, OffsetMap
from pykraft.log_store.compaction.record_filter import ActiveProducers, BatchFilter
from pykraft.log_store.compaction.transactions import CleanedTransactions
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.segment import Segment
from pykraft.runtime.disk import Buffer
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store.cleaned_logs import clean, contents, records
from tests.log_store.compaction.test_compaction_model import CrashingDisk, PowerLossError
from tests.stand_ins import interpreted_only

DIRECTORY = "/data/orders-0"
CONFIG = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000)
Keyed = tuple[bytes | None, bytes | None]


def append(log: Log, *keyed: Keyed, timestamp_ms: int = 1000, **fields: object) -> BatchHeader:
    inputs = [RecordInput(key, value, (), timestamp_ms) for key, value in keyed]
    options = {"leader_epoch": 1, **fields}
    data = encode_batch(inputs, base_offset=log.log_end_offset, **options)  # type: ignore[arg-type]
    log.append(data, [read_header(data)], now_ms=0)
    return read_header(data)


def open_log(disk: MemoryDisk, config: LogConfig = CONFIG, **options: object) -> Log:
    return Log.open(disk, DIRECTORY, config, now_ms=0, **options)  # type: ignore[arg-type]


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    return disk


@pytest.fixture
def log(disk: MemoryDisk) -> Log:
    return open_log(disk)


def offsets(log: Log) -> list[int]:
    return [record.offset for record in records(log)]


# -- records ----------------------------------------------------------------------------------------------


def test_tombstone_stays_until_the_horizon_that_the_first_round_sets(log: Log) -> None:
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None), (b"c", b"1"))
    log.roll(0)
    append(log, (b"d", b"1"))
    end = clean(log, now_ms=5000)
    assert offsets(log) == [1, 2, 3, 4]
    assert [header.delete_horizon_ms for header in log.iter_headers(0)] == [None, 6000, None]
    assert [record.timestamp_ms for record in records(log)] == [1000] * 4
    clean(log, cleaned_offset=end, now_ms=5999)
    assert offsets(log) == [1, 2, 3, 4]
    clean(log, cleaned_offset=end, now_ms=6000)
    assert offsets(log) == [1, 3, 4]
    assert [record.timestamp_ms for record in records(log)] == [1000] * 3


@pytest.mark.parametrize("timestamp_ms", [-(1 << 63), -2, 1000, (1 << 63) - 1])
@pytest.mark.parametrize("retention_ms", [0, 1000, (1 << 63) - 1])
def test_records_of_any_time_are_compacted_again_and_again(
    disk: MemoryDisk, timestamp_ms: int, retention_ms: int
) -> None:
    log = open_log(disk, replace(CONFIG, delete_retention_ms=retention_ms))
    append(log, (b"a", b"1"), (b"b", b"1"), timestamp_ms=timestamp_ms)
    append(log, (b"a", None), (b"c", b"1"), timestamp_ms=timestamp_ms)
    log.roll(0)
    end = 0
    for number in range(3):
        append(log, (b"c", b"%d" % number), timestamp_ms=timestamp_ms)
        log.roll(0)
        append(log, (b"z", b"1"), timestamp_ms=timestamp_ms)
        end = clean(log, cleaned_offset=end, now_ms=5000 + number)
        assert {record.timestamp_ms for record in records(log)} == {timestamp_ms}
    is_kept = timestamp_ms - (5000 + retention_ms) < -(1 << 63) or retention_ms > 0
    assert (2 in offsets(log)) == is_kept
    assert contents(records(log)) == {b"b": b"1", b"c": b"2", b"z": b"1"}


@interpreted_only
def test_batch_that_would_be_read_with_other_records_is_not_written(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in how records are written is no damage: the log stays as it is."""
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None), (b"c", b"1"))
    log.roll(0)
    append(log, (b"d", b"1"))
    before = records(log)
    write = write_record

    def write_late(out: bytearray, timestamp_delta: int, rest: bytes) -> None:
        write(out, timestamp_delta + 1, rest)

    for name, wrong in (
        ("write_record", write_late),
        ("write_record", lambda out, delta, rest: write(out, delta, rest.replace(b"c", b"x"))),
        ("compress", lambda codec, payload: bytes(len(payload))),
        ("compress", lambda codec, payload: payload[: len(payload) // 2]),
    ):
        with monkeypatch.context() as bug:
            bug.setattr(record_filter, name, wrong)
            with pytest.raises((AssertionError, ProtocolError)):
                clean(log, now_ms=5000)
            assert records(log) == before


@interpreted_only
def test_segment_that_is_not_written_as_it_should_be_does_not_take_its_place(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, (b"a", b"1"))
    append(log, (b"a", b"2"))
    log.roll(0)
    append(log, (b"d", b"1"))
    before = records(log)
    append_to = Segment.append

    def append_wrong(segment: Segment, data: Buffer, headers: Sequence[BatchHeader]) -> None:
        wrong = bytearray(data)
        wrong[-1] ^= 1
        append_to(segment, wrong, headers)

    monkeypatch.setattr(Segment, "append", append_wrong)
    with pytest.raises(AssertionError, match="a compacted segment is wrong"):
        clean(log)
    assert records(log) == before


def test_horizon_does_not_begin_for_a_tombstone_that_was_not_mapped(log: Log) -> None:
    """The records that it deletes are still there when the round ends."""
    append(log, (b"a", b"1"))
    append(log, (b"b", b"1"), (b"a", None))
    log.roll(0)
    append(log, (b"d", b"1"))
    assert clean(log, keys=1, now_ms=5000) == 1
    assert [header.delete_horizon_ms for header in log.iter_headers(0)] == [None] * 3


def test_records_without_a_key_go(log: Log) -> None:
    append(log, (None, b"1"), (b"a", b"1"))
    log.roll(0)
    append(log, (None, b"1"))
    clean(log)
    assert offsets(log) == [1, 2]


@pytest.mark.parametrize("codec", list(Compression))
def test_codec_and_header_stay(log: Log, codec: Compression) -> None:
    append(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), compression=codec, producer_id=7, producer_epoch=3,
           base_sequence=5)  # fmt: skip
    log.roll(0)
    append(log, (b"z", b"1"))
    before = next(log.iter_headers(0))
    clean(log)
    (header, batch), *_ = log.iter_batches(0)
    assert crc_is_valid(batch, 0, header)
    kept = replace_sizes(header, before)
    assert kept == replace(before, record_count=2)
    assert [record.value for record in decode_batch(batch)] == [b"2", b"3"]


def replace_sizes(header: BatchHeader, like: BatchHeader) -> BatchHeader:
    return replace(header, batch_length=like.batch_length, crc=like.crc)


def test_batch_in_which_nothing_changes_is_copied(log: Log) -> None:
    append(log, (b"a", b"1"), (b"b", b"2"), compression=Compression.ZSTD)
    append(log, (b"c", b"1"), (b"d", b"2"), compression=Compression.GZIP)
    log.roll(0)
    append(log, (b"z", b"1"))
    before = [batch for _, batch in log.iter_batches(0)]
    clean(log)
    assert [batch for _, batch in log.iter_batches(0)] == before


def test_append_time_stays(log: Log) -> None:
    data = bytearray(
        encode_batch([RecordInput(b"a", b"1", (), 7), RecordInput(b"a", None, (), 9)], leader_epoch=1)
    )
    set_log_append_time(data, 0, 5555)
    log.append(data, [read_header(data)], now_ms=0)
    log.roll(0)
    append(log, (b"z", b"1"))
    clean(log)
    assert [record.timestamp_ms for record in records(log)] == [5555, 1000]
    assert log.lookup_timestamp(5555) == (5555, 1, 1)
    latest = log.max_timestamp()
    assert latest is not None and latest.timestamp_ms == 5555


@st.composite
def times_of_one_batch(draw: st.DrawFn) -> list[int]:
    """Any that a producer may give its records: their deltas have 64 bits."""
    extremes = (-(1 << 63), -2, -1, 0, 1, 10**12, (1 << 63) - 1)
    first = draw(st.sampled_from(extremes)) + draw(st.integers(-(10**6), 10**6))
    times = [first + draw(st.integers(-(10**6), 10**6) | st.just(1 << 62)) for _ in range(3)]
    return [max(-(1 << 63), min(time, (1 << 63) - 1)) for time in times]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=80)), min_size=1),
    times_of_one_batch(),
    st.sampled_from(list(Compression)),
    st.integers(0, 40),
    st.sampled_from((0, 500, (1 << 63) - 1)),
)
@settings(max_examples=120, deadline=None)
def test_any_batch_keeps_what_the_rules_say(
    keyed: list[Keyed], times: list[int], codec: Compression, map_end: int, retention_ms: int
) -> None:
    inputs = [
        RecordInput(key, value, [("h", value)], times[index % len(times)])
        for index, (key, value) in enumerate(keyed)
    ]
    batch = encode_batch(inputs, base_offset=0, leader_epoch=1, compression=codec)
    newest = OffsetMap(1 << 20)
    for offset, (key, _) in enumerate(keyed[:map_end]):
        if key is not None:
            newest.put(key, offset)
    newest.end_offset = map_end
    rules = BatchFilter(newest, CleanedTransactions(()), ActiveProducers(), 10**7, retention_ms)
    kept = run_filter(rules, batch)
    expected = [
        record
        for record in decode_batch(batch)
        if record.offset >= map_end
        or (record.key is not None and last_index(keyed[:map_end], record.key) == record.offset)
    ]
    assert ([] if kept is None else decode_batch(kept)) == expected
    if kept is not None:
        header = read_header(kept)
        assert crc_is_valid(kept, 0, header) and header.last_offset == len(keyed) - 1
        if kept != batch:
            assert header.max_timestamp == max(-1, *(record.timestamp_ms for record in expected))
        has_tombstone = any(record.value is None and record.offset < map_end for record in expected)
        horizon_ms = min(10**7 + retention_ms, (1 << 63) - 1)
        may_have_one = min(record.timestamp_ms for record in expected) - horizon_ms >= -(1 << 63)
        assert header.delete_horizon_ms == (horizon_ms if has_tombstone and may_have_one else None)


def last_index(keyed: list[Keyed], key: bytes) -> int:
    return max(index for index, (other, _) in enumerate(keyed) if other == key)


def run_filter(rules: BatchFilter, batch: bytes) -> bytes | None:
    work = rules.filter(read_header(batch), batch)
    while True:
        try:
            next(work)
        except StopIteration as done:
            kept: bytes | None = done.value
            return kept


@given(st.binary(max_size=60), st.integers(-1, 5))
def test_any_bytes_are_records_or_refused(body: bytes, count: int) -> None:
    try:
        spans = list(iter_spans(body, count))
    except ProtocolError:
        return
    assert len(spans) == count
    assert [span.start for span in spans] == [0, *(span.end for span in spans)][: len(spans)]


# -- the map ----------------------------------------------------------------------------------------------


def test_keys_of_any_length_are_told_apart() -> None:
    newest = OffsetMap(1 << 20)
    keys = [b"x" * length for length in range(40)]
    for offset, key in enumerate(keys):
        assert newest.put(key, offset)
    assert len(newest) == 40
    for offset, key in enumerate(keys):
        assert newest.is_newest(key, offset) and not newest.is_newest(key, offset - 1)


def test_full_map_takes_known_keys_only() -> None:
    newest = OffsetMap(2 * BYTES_PER_KEY)
    assert newest.put(b"a", 0) and newest.put(b"b", 1)
    assert not newest.put(b"c", 2)
    assert newest.put(b"a", 3)
    assert OffsetMap(100).put(b"a", 0)  # or a round would never advance


def test_rounds_with_a_small_map_reach_the_end(log: Log) -> None:
    for number in range(40):
        append(log, (b"%d" % (number % 8), b"%d" % number))
    log.roll(0)
    append(log, (b"z", b"1"))
    end, before = 0, -1
    while end > before:
        before, end = end, clean(log, cleaned_offset=end, keys=3)
    assert end == 40
    assert offsets(log) == list(range(32, 41))


# -- producers and transactions ---------------------------------------------------------------------------


def test_batch_of_an_active_producer_stays_without_records(log: Log) -> None:
    fields = {"producer_id": 7, "producer_epoch": 2}
    append(log, (b"a", b"1"), base_sequence=0, **fields)
    last = append(log, (b"a", b"2"), (b"b", b"2"), base_sequence=1, compression=Compression.ZSTD, **fields)
    append(log, (b"a", b"3"), (b"b", b"3"))
    log.roll(0)
    append(log, (b"z", b"1"))
    producers = ActiveProducers({last.last_offset})
    for now_ms in (0, 10**6):
        clean(log, producers=producers, now_ms=now_ms)
        spanning, empty, *_ = log.iter_headers(0)
        assert (spanning.base_offset, spanning.last_offset, spanning.producer_id) == (0, 0, -1)
        assert (empty.record_count, empty.size_bytes, empty.attributes) == (0, HEADER_BYTES, 0)
        assert (empty.producer_id, empty.producer_epoch, empty.last_sequence) == (7, 2, 2)
        assert empty.max_timestamp == 1000
    clean(log)
    assert next(log.iter_headers(0)).last_offset == 2


def marker(log: Log, kind: int, producer_id: int) -> None:
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1)
    append(
        log, (key, value), is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=0
    )


def in_transaction(log: Log, producer_id: int, *keyed: Keyed, sequence: int = 0) -> None:
    append(
        log, *keyed, is_transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


def kinds(log: Log) -> list[tuple[int, bool]]:
    return [
        (header.base_offset, header.is_control) for header in log.iter_headers(0) if header.producer_id >= 0
    ]


def test_aborted_data_goes_at_once_and_supersedes_nothing(log: Log) -> None:
    append(log, (b"a", b"committed"))
    in_transaction(log, 7, (b"a", b"aborted"))
    in_transaction(log, 8, (b"b", b"committed"))
    marker(log, ABORT, 7)
    marker(log, COMMIT, 8)
    log.roll(0)
    append(log, (b"z", b"1"))
    clean(log, now_ms=0)
    assert contents(records(log)) == {b"a": b"committed", b"b": b"committed", b"z": b"1"}
    assert kinds(log) == [(2, False), (3, True), (4, True)]
    index = log.disk.read(f"{DIRECTORY}/{0:020d}.txnindex")
    assert struct.unpack(">hqqqq", index) == (0, 7, 1, 3, 2)
    # The next rounds find no data of the aborted transaction: its marker goes after its horizon.
    for now_ms, left in ((100, [2, 3, 4]), (1099, [2, 3, 4]), (1100, [2, 4])):
        clean(log, now_ms=now_ms)
        assert [base for base, _ in kinds(log)] == left
    assert not log.disk.exists(f"{DIRECTORY}/{0:020d}.txnindex")


def test_transaction_under_way_bounds_the_round(log: Log) -> None:
    append(log, (b"a", b"1"))
    log.roll(0)
    append(log, (b"a", b"2"))
    log.roll(0)
    in_transaction(log, 7, (b"a", b"3"))
    log.roll(0)
    append(log, (b"a", b"4"))
    log.roll(0)
    append(log, (b"z", b"1"))
    assert clean(log) == 2
    assert offsets(log) == [1, 2, 3, 4]
    marker(log, COMMIT, 7)
    log.roll(0)
    append(log, (b"z", b"1"))
    clean(log)
    assert [record.value for record in records(log)][:1] == [b"4"]


def test_marker_of_a_producer_without_data_stays() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 1, 3, 4)])
    rules = BatchFilter(OffsetMap(1000), transactions, ActiveProducers(set(), {(8, 0)}), 10**6, 0)
    key, value = struct.pack(">hh", 0, COMMIT), struct.pack(">hi", 0, 1)
    batch = encode_batch(
        [RecordInput(key, value, (), 1)],
        base_offset=9,
        is_control=True,
        is_transactional=True,
        producer_id=8,
        producer_epoch=0,
    )
    once = run_filter(rules, batch)
    assert once is not None and read_header(once).delete_horizon_ms == 10**6
    empty = run_filter(rules, once)
    assert empty is not None and read_header(empty).record_count == 0
    assert run_filter(rules, empty) == empty
    assert run_filter(replace(rules, producers=ActiveProducers()), empty) is None


# -- what is cleanable ------------------------------------------------------------------------------------


class Facts:
    def __init__(self, base_offset: int, size_bytes: int = 100, first_ms: int = 0, last_ms: int = 0) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset + 10
        self.size_bytes = size_bytes
        self.first_timestamp_ms = first_ms
        self.max_timestamp = (last_ms, base_offset)


SEGMENTS = [
    Facts(0, 100, 1000, 1999),
    Facts(10, 100, 2000, 2999),
    Facts(20, 200, 3000, 3999),
    Facts(30, 1, 4000),
]


def cleanable(config: LogConfig = CONFIG, **changes: int | None) -> tuple[int, int, int, int, bool]:
    given: dict[str, int | None] = {"cleaned_offset": None, "limit_offset": 40, "now_ms": 10_000, **changes}
    found = find_cleanable(SEGMENTS, config, log_start_offset=3, log_end_offset=40, **given)  # type: ignore[arg-type]
    return (
        found.first_dirty_offset,
        found.end_offset,
        found.clean_bytes,
        found.cleanable_bytes,
        found.is_due(config),
    )


def test_whole_segments_below_the_active_one_and_the_limit() -> None:
    assert cleanable() == (3, 30, 100, 400, True)
    for limit, end in ((40, 30), (31, 30), (30, 30), (29, 20), (20, 20), (19, 10), (10, 10), (9, 3), (0, 3)):
        assert cleanable(limit_offset=limit)[1] == end


def test_the_checkpoint_counts_unless_it_is_outside_of_the_log() -> None:
    assert cleanable(cleaned_offset=20) == (20, 30, 200, 200, False)  # exactly half is not more than half
    assert cleanable(cleaned_offset=10) == (10, 30, 100, 300, True)
    for impossible in (2, 41):
        assert cleanable(cleaned_offset=impossible)[0] == 3


def test_least_lag_holds_segments_back() -> None:
    for lag, end in ((7001, 20), (7000, 20), (6001, 30), (8001, 10), (8002, 3)):
        assert cleanable(replace(CONFIG, min_compaction_lag_ms=lag))[1] == end, lag


def test_greatest_lag_makes_a_round_due() -> None:
    for lag, is_due in ((7000, False), (6999, True)):
        config = replace(CONFIG, max_compaction_lag_ms=lag)
        assert cleanable(config, cleaned_offset=20)[4] == is_due


def test_neighbours_are_grouped_as_far_as_they_fit() -> None:
    def grouped(segments: list[Facts], **fields: int) -> list[int]:
        config = LogConfig(**{"segment_bytes": 400, **fields})  # type: ignore[arg-type]
        return [group.stop - group.start for group in group_segments(segments, config)]

    assert grouped(SEGMENTS[:3]) == [3]
    assert grouped(SEGMENTS[:3], segment_bytes=399) == [2, 1]
    assert grouped(SEGMENTS[:3], segment_bytes=10) == [1, 1, 1]
    assert grouped(SEGMENTS[:3], index_bytes=24, index_interval_bytes=100) == [1, 1, 1]
    assert grouped([Facts(0), Facts((1 << 31) - 10)]) == [2]
    assert grouped([Facts(0), Facts((1 << 31) - 9)]) == [1, 1]
    many = [Facts(10 * number, 1) for number in range(MAX_SEGMENTS + 1)]
    assert grouped(many) == [MAX_SEGMENTS, 1]


# -- crashes and damage -----------------------------------------------------------------------------------


def three_segments(disk: MemoryDisk) -> Log:
    log = open_log(disk)
    for number in range(9):
        append(log, (b"%d" % (number % 2), b"x" * 40))
        if number % 3 == 2:
            log.roll(0)
    append(log, (b"z", b"1"))
    log.flush()
    return log


@pytest.mark.parametrize("segment_bytes", [400, 1200])
def test_crash_at_any_change_leaves_the_old_or_the_new_segments(segment_bytes: int) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)

    def make() -> tuple[CrashingDisk, Log]:
        disk = CrashingDisk()
        disk.make_dirs("/data")
        log = three_segments(disk)
        log.config = config
        return disk, log

    disk, log = make()
    states = [records(log)]
    clean(log, before_swap=lambda: states.append(records(log)))
    states.append(records(log))
    changes = disk.changes
    disk, log = make()
    seen = set()
    for index in range(changes - disk.changes + 1):
        for seed in range(4):
            disk, log = make()
            disk.changes_left = index
            with suppress(PowerLossError):
                clean(log)
            disk.changes_left = None
            disk.crash(random.Random(seed))
            again = open_log(disk, config, recovery_point=log.recovery_point, log_start_offset=0)
            found = records(again)
            assert found in states
            seen.add(states.index(found))
            assert not [name for name in disk.list(DIRECTORY) if name.count(".") > 1]
    assert seen >= {0, len(states) - 1}


def test_start_finishes_what_had_begun_and_undoes_what_had_not(disk: MemoryDisk) -> None:
    log = three_segments(disk)
    old = records(log)
    log.close()
    base, other = f"{DIRECTORY}/{0:020d}", f"{DIRECTORY}/{3:020d}"
    for name in (f"{base}.log.cleaned", f"{other}.log.swap", f"{other}.index.swap", f"{other}.log.deleted"):
        disk.write_atomic(name, b"half")
    log = open_log(disk, recovery_point=10, log_start_offset=0, clean=True)
    assert records(log) == old
    assert not [name for name in disk.list(DIRECTORY) if name.count(".") > 1]


def test_damaged_batch_ends_the_round(disk: MemoryDisk) -> None:
    log = three_segments(disk)
    path = f"{DIRECTORY}/{3:020d}.log"
    for position in (7, 15, 30, 80):
        spoiled = disk.copy()
        spoiled.flip_bit(path, position, 2)
        with pytest.raises(CorruptLogError):
            clean(open_log(spoiled, recovery_point=log.recovery_point, log_start_offset=0, clean=True))
        assert spoiled.read(path) != disk.read(path)


def test_cleaned_segments_are_flushed_before_their_names_count(disk: MemoryDisk) -> None:
    log = three_segments(disk)
    disk.calls.clear()
    clean(log)
    calls = [(call.operation, call.path.rpartition("/")[2]) for call in disk.calls]
    for kind in ("log", "index", "timeindex"):
        name = f"{0:020d}.{kind}.cleaned"
        if ("append", name) in calls:
            assert calls.index(("flush", name)) < calls.index(("rename", name))


def test_compacted_segments_roll_in_time(disk: MemoryDisk) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_ms=1000, max_compaction_lag_ms=100)
    assert config.max_segment_ms == 100
    assert replace(config, segment_ms=50).max_segment_ms == 50
    assert replace(config, cleanup_policy=frozenset({"delete"})).max_segment_ms == 1000
    log = open_log(disk, config)
    for timestamp_ms, bases in ((0, (0,)), (100, (0,)), (101, (0, 2))):
        append(log, (b"a", b"1"), timestamp_ms=timestamp_ms)
        assert log.segment_base_offsets == bases


def test_reader_of_a_replaced_segment_reads_on(log: Log) -> None:
    for number in range(6):
        append(log, (b"a", b"%d" % number))
    log.roll(0)
    append(log, (b"z", b"1"))
    piece = log.read(2, 1 << 20)
    assert piece is not None
    before = piece.file.pread(piece.position, piece.size_bytes)
    clean(log)
    assert piece.file.pread(piece.position, piece.size_bytes) == before
    assert [record.offset for record in records(log)] == [5, 6]


def test_latest_time_is_of_a_record_that_is_there(log: Log) -> None:
    append(log, (b"a", b"1"), timestamp_ms=9000, producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, (b"a", b"2"), timestamp_ms=50)
    log.roll(0)
    append(log, (b"z", b"1"), timestamp_ms=40)
    clean(log, producers=ActiveProducers({0}))
    assert log.max_timestamp() == (50, 1, 1)
    assert log.lookup_timestamp(60) is None


def test_records_of_all_kinds_are_found_by_their_offsets(log: Log) -> None:
    inputs = [Record(0, 1000, b"a", b"1"), Record(1, 1000, b"", b""), Record(2, 1000, b"b", None)]
    append(log, *[(record.key, record.value) for record in inputs])
    log.roll(0)
    append(log, (b"z", b"1"))
    clean(log)
    assert records(log)[:3] == inputs
