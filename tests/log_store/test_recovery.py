"""After an unclean stop: what is truncated, what is refused, what is rebuilt.

It is long because there is a test for each kind of damage to each kind of file.
"""

import random

import pytest

from pykraft.log_store.indexes.offset_index import OffsetIndex
from pykraft.log_store.indexes.time_index import TimeIndex
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.scan import SCAN_BLOCK_BYTES
from pykraft.runtime.disk import UnreadableError
from tests.log_store.places import Fill, MakeBatch, MemoryPlace, Place, Stored

FIRST = "00000000000000000000"
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
LARGE = LogConfig(index_interval_bytes=100)


def _damage(place: Place, name: str, position: int, data: bytes) -> None:
    """Overwrite part of a file on any disk."""
    path = place.path(name)
    content = place.disk.read(path)
    place.disk.write_atomic(path, content[:position] + data + content[position + len(data) :])


@pytest.mark.parametrize("left_bytes", [1, 11, 12, 60, 61, 70, 87])
def test_torn_tail_is_truncated_after_the_last_whole_batch(
    place: Place, fill: Fill, stored: Stored, left_bytes: int
) -> None:
    log = place.open(LARGE)
    batches = fill(log, 5)
    log.abandon()
    file = place.disk.open(place.path(f"{FIRST}.log"))
    file.truncate(4 * 88 + left_bytes)
    log = place.open(LARGE)
    assert stored(log) == [batch.data for batch in batches[:4]]
    assert log.log_end_offset == 4
    (cut,) = log.recovery_report.truncations
    assert (cut.position, cut.lost_bytes) == (4 * 88, left_bytes)
    assert cut.path.endswith(f"{FIRST}.log") and "cut short" in cut.reason
    assert file.size() == 4 * 88 or place.disk.open(place.path(f"{FIRST}.log")).size() == 4 * 88
    fill(log, 3)
    log.close()
    assert place.open(LARGE).log_end_offset == 7


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (bytes(4096), "batch length is 0"),
        (bytes(30), "cut short"),
        (b"\xff" * 300, "batch length is -1"),
        (random.Random(7).randbytes(500), ""),
    ],
)
def test_tail_of_random_bytes_is_truncated(
    place: Place, fill: Fill, stored: Stored, tail: bytes, reason: str
) -> None:
    log = place.open(LARGE)
    batches = fill(log, 5)
    log.abandon()
    place.disk.open(place.path(f"{FIRST}.log")).append(tail)
    log = place.open(LARGE)
    assert stored(log) == [batch.data for batch in batches]
    (cut,) = log.recovery_report.truncations
    assert (cut.position, cut.lost_bytes) == (5 * 88, len(tail))
    assert reason in cut.reason


@pytest.mark.parametrize("damage", ["crc", "magic", "length"])
def test_corrupt_last_batch_is_truncated(place: Place, fill: Fill, stored: Stored, damage: str) -> None:
    log = place.open(LARGE)
    batches = fill(log, 5)
    log.abandon()
    offset, data = {"crc": (80, b"?"), "magic": (16, b"\1"), "length": (8, b"\0\0\0\1")}[damage]
    _damage(place, f"{FIRST}.log", 4 * 88 + offset, data)
    log = place.open(LARGE)
    assert stored(log) == [batch.data for batch in batches[:4]]


def test_batch_that_repeats_an_offset_is_truncated(place: Place, fill: Fill, make_batch: MakeBatch) -> None:
    log = place.open(LARGE)
    fill(log, 5)
    log.abandon()
    place.disk.open(place.path(f"{FIRST}.log")).append(make_batch(4).data)
    log = place.open(LARGE)
    assert log.log_end_offset == 5
    assert "offset falls from 5 to 4" in log.recovery_report.truncations[0].reason


def test_batch_of_an_older_epoch_is_truncated(place: Place, fill: Fill, make_batch: MakeBatch) -> None:
    log = place.open(LARGE)
    fill(log, 5, epoch=7)
    log.abandon()
    place.disk.open(place.path(f"{FIRST}.log")).append(make_batch(5, epoch=6).data)
    log = place.open(LARGE)
    assert (log.log_end_offset, log.latest_epoch) == (5, 7)
    assert "leader epoch falls from 7 to 6" in log.recovery_report.truncations[0].reason


@pytest.mark.parametrize("offset_in_batch", [17, 25, 61, 80])
def test_damage_in_the_middle_of_the_newest_segment_is_refused(
    place: Place, fill: Fill, offset_in_batch: int
) -> None:
    log = place.open(LARGE)
    fill(log, 5)
    log.abandon()
    _damage(place, f"{FIRST}.log", 2 * 88 + offset_in_batch, b"\x7b")
    before = place.disk.read(place.path(f"{FIRST}.log"))
    with pytest.raises(CorruptLogError, match="good batches follow") as raised:
        place.open(LARGE)
    assert raised.value.path == place.path(f"{FIRST}.log")
    assert raised.value.position == 2 * 88
    assert place.disk.read(place.path(f"{FIRST}.log")) == before


def test_page_that_never_reached_the_disk_is_a_lost_tail_not_damage(
    place: Place, make_batch: MakeBatch, stored: Stored
) -> None:
    log = place.open(LARGE)
    batches = [make_batch(offset, value_bytes=20_000) for offset in range(3)]
    for batch in batches:
        log.append(batch.data, [batch.header], now_ms=0)
    log.abandon()
    page = (len(batches[0].data) // 4096 + 2) * 4096
    _damage(place, f"{FIRST}.log", page, bytes(4096))
    log = place.open(LARGE)
    assert stored(log) == [batches[0].data]


# Batches of 128 bytes start at page boundaries, others cross them.
@pytest.mark.parametrize("value_bytes", [59, 80], ids=["aligned", "across"])
@pytest.mark.parametrize("rest_of_page", [False, True], ids=["whole page", "rest of a page"])
def test_page_of_small_batches_that_never_reached_the_disk_is_a_lost_tail_also_in_an_older_segment(
    place: Place, fill: Fill, stored: Stored, value_bytes: int, rest_of_page: bool
) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=100)
    log = place.open(config)
    batches = fill(log, 300, value_bytes=value_bytes)
    size = len(batches[0].data)
    assert len(log.segment_base_offsets) > 1 and (4096 % size == 0) == (value_bytes == 59)
    log.abandon()
    begin = -(-5000 // size) * size if rest_of_page else 4096
    _damage(place, f"{FIRST}.log", begin, bytes(-begin % 4096 or 4096))
    log = place.open(config)
    assert stored(log) == [batch.data for batch in batches[: begin // size]]
    assert log.recovery_report.removed


@pytest.mark.parametrize("zeros", [11, 100, 600])
def test_zeros_that_end_within_a_page_are_damage(place: Place, fill: Fill, zeros: int) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=100)
    log = place.open(config)
    size = len(fill(log, 300, value_bytes=59)[0].data)
    log.abandon()
    _damage(place, f"{FIRST}.log", 40 * size, bytes(zeros))
    with pytest.raises(CorruptLogError) as raised:
        place.open(config)
    assert raised.value.position == 40 * size


def test_damage_in_an_older_segment_is_refused(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 12)
    log.abandon()
    _damage(place, f"{5:020d}.log", 4 * 88 + 80, b"?")
    with pytest.raises(CorruptLogError, match="CRC does not match") as raised:
        place.open(SMALL)
    assert (raised.value.path, raised.value.position) == (place.path(f"{5:020d}.log"), 4 * 88)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "name",
    [f"{FIRST}.log", f"{5:020d}.log", f"{15:020d}.log"],
)
def test_bad_sector_is_named_and_nothing_is_truncated(
    memory: MemoryPlace, fill: Fill, name: str, clean: bool
) -> None:
    config = LogConfig(segment_bytes=SMALL.segment_bytes, index_interval_bytes=1)
    log = memory.open(config)
    fill(log, 18)
    log.close()
    before = {name: memory.disk.read(memory.path(name)) for name in memory.disk.list(memory.path(""))}
    memory.disk.make_unreadable(memory.path(name))
    with pytest.raises(UnreadableError) as raised:
        memory.open(config, clean=clean)
    assert raised.value.filename == memory.path(name)
    assert memory.disk.list(memory.path("")) == list(before)
    memory.disk.write_atomic(memory.path(name), before[name])  # from a copy
    assert memory.open(config, clean=clean).log_end_offset == 18


def test_torn_data_below_the_recovery_point_is_refused(place: Place, fill: Fill) -> None:
    log = place.open(LARGE)
    fill(log, 5)
    log.close()
    place.disk.open(place.path(f"{FIRST}.log")).truncate(3 * 88 + 40)
    with pytest.raises(CorruptLogError) as raised:
        place.open(LARGE, recovery_point=5)
    assert raised.value.position == 3 * 88
    assert f"{FIRST}.log" in str(raised.value)


@pytest.mark.parametrize("base_offset", [1 << 40, (1 << 31) + 1, -3])
def test_base_offset_that_no_batch_of_the_segment_can_have_is_damage(
    place: Place, fill: Fill, base_offset: int
) -> None:
    """No CRC covers the base offset, and an index entry holds 31 bits of it."""
    config = LogConfig(index_interval_bytes=1)
    log = place.open(config)
    fill(log, 200)
    log.close()
    for suffix in ("index", "timeindex"):
        place.disk.remove(place.path(f"{FIRST}.{suffix}"))
    _damage(place, f"{FIRST}.log", 150 * 88, base_offset.to_bytes(8, "big", signed=True))
    with pytest.raises(CorruptLogError, match="is not of this segment") as raised:
        place.open(config, recovery_point=200)
    assert raised.value.position == 150 * 88


def test_base_offset_of_the_newest_time_of_a_closed_segment_must_be_of_it(place: Place, fill: Fill) -> None:
    """The segment before the recovery point gets the last entry of its time index again."""
    config = LogConfig(segment_bytes=4 * 88)
    log = place.open(config)
    fill(log, 3)
    fill(log, 1, times=(2000,))
    fill(log, 4)
    log.close()
    place.disk.remove(place.path(f"{FIRST}.timeindex"))
    _damage(place, f"{FIRST}.log", 3 * 88, (1 << 40).to_bytes(8, "big"))
    with pytest.raises(CorruptLogError, match="is not of this segment"):
        place.open(config, recovery_point=4)


def test_base_offset_beyond_the_end_of_the_log_is_damage(place: Place, fill: Fill) -> None:
    """In a sealed segment below the recovery point, which a start does not read through."""
    config = LogConfig(segment_bytes=2 * 88)
    log = place.open(config)
    fill(log, 4)
    log.close()
    _damage(place, f"{FIRST}.log", 0, (1 << 32).to_bytes(8, "big"))
    with pytest.raises(CorruptLogError, match="offset falls from 4294967297") as raised:
        place.open(config, recovery_point=4)
    assert raised.value.path.endswith(f"{FIRST}.log")


@pytest.mark.parametrize("clean", [True, False])
def test_log_that_ends_before_the_recovery_point_is_refused(place: Place, fill: Fill, clean: bool) -> None:
    log = place.open(LARGE)
    fill(log, 5)
    log.close()
    place.disk.open(place.path(f"{FIRST}.log")).truncate(3 * 88)
    before = place.disk.read(place.path(f"{FIRST}.log"))
    with pytest.raises(CorruptLogError, match="ends at offset 3, it was stored up to 5"):
        place.open(LARGE, recovery_point=5, clean=clean)
    assert place.disk.read(place.path(f"{FIRST}.log")) == before
    assert place.open(LARGE, recovery_point=3, clean=clean).log_end_offset == 3


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept_bytes", [None, 0, 88, 4 * 88])
def test_gap_after_a_closed_segment_is_refused(
    place: Place, fill: Fill, clean: bool, kept_bytes: int | None
) -> None:
    log = place.open(SMALL)
    fill(log, 18)
    log.close()
    path = place.path(f"{5:020d}.log")
    if kept_bytes is None:
        place.disk.remove(path)
        named = f"{FIRST}.log .* it ends at offset 5, the next segment begins at 10"
    else:
        place.disk.open(path).truncate(kept_bytes)
        named = f"{5:020d}.log .* it ends at offset {5 + kept_bytes // 88}, the next segment begins at 10"
    held = place.disk.list(place.path(""))
    with pytest.raises(CorruptLogError, match=named):
        place.open(SMALL, clean=clean, recovery_point=18)
    assert [name for name in place.disk.list(place.path("")) if name.endswith(".log")] == [
        name for name in held if name.endswith(".log")
    ]


@pytest.mark.parametrize("clean", [True, False])
def test_gap_that_compaction_left_is_accepted(place: Place, fill: Fill, stored: Stored, clean: bool) -> None:
    log = place.open(SMALL)
    batches = fill(log, 18)
    log.close()
    place.disk.remove(place.path(f"{5:020d}.log"))
    with pytest.raises(CorruptLogError):
        place.open(SMALL, compacted_offset=9, clean=clean, recovery_point=18)
    log = place.open(SMALL, compacted_offset=10, clean=clean, recovery_point=18)
    assert stored(log) == [batch.data for batch in batches[:5] + batches[10:]]


@pytest.mark.parametrize("clean", [True, False])
def test_missing_beginning_is_refused_if_the_log_start_is_known(
    place: Place, fill: Fill, clean: bool
) -> None:
    log = place.open(SMALL)
    fill(log, 18)
    log.close()
    place.disk.remove(place.path(f"{FIRST}.log"))
    for start in (0, 3, 4):
        with pytest.raises(CorruptLogError, match=f"begins at offset 5, its start is {start}"):
            place.open(SMALL, log_start_offset=start, clean=clean, recovery_point=18)
    assert place.open(SMALL, log_start_offset=5, clean=clean, recovery_point=18).log_start_offset == 5
    assert place.open(SMALL, clean=clean, recovery_point=18).log_start_offset == 5


@pytest.mark.parametrize("clean", [True, False])
def test_log_without_any_segment_is_refused_if_something_was_flushed(
    place: Place, fill: Fill, clean: bool
) -> None:
    log = place.open(LARGE)
    fill(log, 5)
    log.close()
    place.disk.remove(place.path(f"{FIRST}.log"))
    with pytest.raises(CorruptLogError, match="no segment is left of what was stored up to 5"):
        place.open(LARGE, clean=clean, recovery_point=5)


def test_segments_below_the_log_start_that_a_power_loss_brought_back_are_no_gap(
    place: Place, fill: Fill
) -> None:
    log = place.open(SMALL)
    fill(log, 18)
    log.close()
    place.disk.remove(place.path(f"{5:020d}.log"))
    log = place.open(SMALL, clean=True, log_start_offset=12, recovery_point=18)
    assert [header.base_offset for header in log.iter_headers(0)] == list(range(12, 18))


@pytest.mark.parametrize(
    "content", [None, b"", b"0\n1\n1 0\n", b"0\n2\n1 0\n3 5\n", b"0\n2\n1 0\n2 6\n", b"0\n1\n3 6\n", b"9"]
)
@pytest.mark.parametrize("clean", [True, False])
def test_epochs_that_do_not_fit_the_batches_are_rebuilt(
    place: Place, fill: Fill, content: bytes | None, clean: bool
) -> None:
    log = place.open(SMALL)
    fill(log, 6, epoch=1)
    fill(log, 12, epoch=3)
    expected = log.epoch_cache.entries
    log.close()
    path = place.path("leader-epoch-checkpoint")
    if content is None:
        place.disk.remove(path)
    else:
        place.disk.write_atomic(path, content)
    log = place.open(SMALL, clean=clean, recovery_point=18)
    assert (log.epoch_cache.entries, log.latest_epoch) == (expected, 3)
    assert log.recovery_report.rebuilt == (path,)


def test_clean_start_refuses_a_torn_tail(place: Place, fill: Fill) -> None:
    log = place.open(LARGE)
    fill(log, 5)
    log.close()
    place.disk.open(place.path(f"{FIRST}.log")).append(b"torn")
    with pytest.raises(CorruptLogError, match="cut short"):
        place.open(LARGE, clean=True)


@pytest.mark.parametrize("cut", [2 * 88, 2 * 88 + 50])
def test_older_segment_that_lost_its_tail_drops_the_newer_ones(
    place: Place, fill: Fill, stored: Stored, cut: int
) -> None:
    log = place.open(SMALL)
    batches = fill(log, 18)
    log.abandon()
    place.disk.open(place.path(f"{5:020d}.log")).truncate(cut)
    log = place.open(SMALL, recovery_point=3)
    assert stored(log) == [batch.data for batch in batches[:7]]
    report = log.recovery_report
    assert report.removed == (place.path(f"{15:020d}.log"), place.path(f"{10:020d}.log"))
    assert not [name for name in place.disk.list(place.path("")) if name.startswith(f"{10:020d}")]
    more = fill(log, 9, epoch=2)
    assert stored(log) == [batch.data for batch in batches[:7] + more]
    for offset in range(16):
        found = log.read(offset, 1)
        assert found is not None and found.base_offset == offset


class _KeepsBytesForgetsNames:
    """A power loss after which files hold everything written, and directories only flushed entries."""

    def random(self) -> float:
        return 1.0

    def randrange(self, stop: int, /) -> int:
        return stop - 1 if stop > 88 else 0


def test_segments_that_a_start_dropped_do_not_return_after_newer_records(
    memory: MemoryPlace, fill: Fill, stored: Stored
) -> None:
    log = memory.open(SMALL)
    batches = fill(log, 4) + fill(log, 1, value_bytes=200)
    log.flush()
    log.abandon()
    assert log.segment_base_offsets == (0, 4)
    older = memory.disk.open(memory.path(f"{FIRST}.log"))
    older.truncate(2 * 88)
    older.flush()  # the newer segment reached the disk before the end of this one
    log = memory.open(SMALL)
    assert log.recovery_report.removed == (memory.path(f"{4:020d}.log"),)
    more = fill(log, 3, epoch=2)
    assert log.segment_base_offsets == (0,)
    memory.disk.crash(_KeepsBytesForgetsNames())
    log = memory.open(SMALL)
    assert stored(log) == [batch.data for batch in batches[:2] + more]


def test_lost_segment_in_the_middle_drops_the_following_ones(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 18)
    log.abandon()
    place.disk.remove(place.path(f"{5:020d}.log"))
    log = place.open(SMALL)
    assert log.log_end_offset == 5
    assert place.disk.list(place.path("")) == [f"{FIRST}.index", f"{FIRST}.log", f"{FIRST}.timeindex"]


def test_only_the_log_above_the_recovery_point_is_checked(place: Place, fill: Fill) -> None:
    seen: list[int] = []
    log = place.open(SMALL)
    fill(log, 23)
    log.abandon()
    log = place.open(SMALL, recovery_point=17, on_batch=lambda header: seen.append(header.base_offset))
    assert seen == list(range(17, 23))
    assert log.recovery_report.scanned_batches == 6
    log.abandon()
    place.open(SMALL, on_batch=lambda header: seen.append(header.base_offset))
    assert seen[6:] == list(range(23))


def test_recovery_point_inside_a_batch_checks_that_batch(place: Place, make_batch: MakeBatch) -> None:
    seen: list[int] = []
    log = place.open(LARGE)
    for offset in range(0, 30, 3):
        batch = make_batch(offset, records=3)
        log.append(batch.data, [batch.header], now_ms=0)
    log.abandon()
    place.open(LARGE, recovery_point=16, on_batch=lambda header: seen.append(header.base_offset))
    assert seen == [15, 18, 21, 24, 27]


def test_epochs_above_the_recovery_point_are_rebuilt_from_the_batches(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 6, epoch=1)
    log.flush()
    fill(log, 6, epoch=3)
    fill(log, 6, epoch=4)
    expected = log.epoch_cache.entries
    log.abandon()
    log = place.open(SMALL, recovery_point=6)
    assert log.epoch_cache.entries == expected
    assert log.latest_epoch == 4


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "ragged", "shuffled", "beyond", "zeros", "empty"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_index_is_rebuilt(
    place: Place, make_batch: MakeBatch, suffix: str, damage: str, clean: bool
) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100)
    log = place.open(config)
    for offset in range(60):
        batch = make_batch(offset, times=(1000 + offset,))
        log.append(batch.data, [batch.header], now_ms=0)
    end = log.log_end_offset
    log.close()
    for base in log.segment_base_offsets[0], log.segment_base_offsets[-1]:
        path = place.path(f"{base:020d}.{suffix}")
        content = place.disk.read(path)
        assert len(content) > 24
        match damage:
            case "missing":
                place.disk.remove(path)
            case "ragged":
                place.disk.write_atomic(path, content + b"?")
            case "shuffled":
                place.disk.write_atomic(path, content[12:] + content[:12])
            case "beyond":
                place.disk.write_atomic(path, content[:-12] + b"\x7f\xff\xff\xff" * 3)
            case "zeros":
                place.disk.write_atomic(path, bytes(len(content)))
            case _:
                place.disk.write_atomic(path, b"")
    log = place.open(config, clean=clean, recovery_point=end)
    for offset in range(60):
        found = log.read(offset, 1)
        assert found is not None and found.base_offset == offset


def test_rebuilt_index_is_the_one_that_was_lost(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 12)
    log.close()
    names = [f"{FIRST}.index", f"{FIRST}.timeindex"]
    before = [place.disk.read(place.path(name)) for name in names]
    for name in names:
        place.disk.remove(place.path(name))
    log = place.open(SMALL, clean=True)
    assert log.read(3, 1) is not None
    assert [place.disk.read(place.path(name)) for name in names] == before


def test_index_files_without_a_segment_are_removed(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 3)
    log.close()
    place.disk.open(place.path(f"{77:020d}.index")).append(b"12345678")
    place.disk.open(place.path(f"{77:020d}.snapshot")).append(b"not ours")
    place.open(SMALL)
    assert place.disk.list(place.path(""))[-2:] == [f"{77:020d}.snapshot", "leader-epoch-checkpoint"]


def test_log_that_ends_below_its_start_starts_over_there(place: Place, fill: Fill) -> None:
    log = place.open(SMALL)
    fill(log, 12)
    log.close()
    log = place.open(SMALL, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert fill(log, 1)[0].header.base_offset == 40


def test_start_leaves_only_the_newest_segment_open(memory: MemoryPlace, fill: Fill) -> None:
    log = memory.open(SMALL)
    fill(log, 40)
    log.close()
    log = memory.open(SMALL, clean=True)
    assert len(log.segment_base_offsets) == 8
    assert [segment._file is None for segment in log._segments] == 7 * [True] + [False]


def test_index_whose_last_batch_is_beyond_the_segment_makes_no_sense(place: Place) -> None:
    index = OffsetIndex(place.disk, f"{place.root}/x.index", 0)
    index.start_empty()
    index.append(3, 0)
    index.append(7, 200)
    index.seal()
    assert [index.is_sane(size) for size in (0, 199, 200, 201)] == [False, False, False, True]


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_index_that_is_missing_or_ends_within_an_entry_makes_no_sense(
    place: Place, kind: type[OffsetIndex | TimeIndex]
) -> None:
    index = kind(place.disk, f"{place.root}/x.some", 0)

    def is_sane() -> bool:
        return index.is_sane(1_000) if isinstance(index, OffsetIndex) else index.is_sane()

    assert not is_sane()
    assert not place.disk.exists(f"{place.root}/x.some"), "to look at it makes no file"
    index.start_empty()
    index.seal()
    assert is_sane()
    entry = bytes(index.storage.entry_bytes)
    for torn, whole in ((entry[:1], entry[1:]), (entry[:-1], entry[-1:])):
        index.storage.file.append(torn)
        assert not is_sane()
        index.storage.file.append(whole)
        assert is_sane()


def test_batch_that_is_larger_than_what_is_read_at_once_is_recovered(
    place: Place, make_batch: MakeBatch
) -> None:
    log = place.open()
    for offset, size in enumerate((10, SCAN_BLOCK_BYTES + 1, 10)):
        batch = make_batch(offset, value_bytes=size)
        log.append(batch.data, [batch.header], now_ms=0)
    log.abandon()
    assert place.open().log_end_offset == 3
