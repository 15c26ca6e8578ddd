"""Every file of a partition directory, damaged in every way, at rest and in use.

What is damaged is found, wrong bytes are never taken for right ones, and everything but the records and the
topic id is repaired from the records. (Those are copied from the leader: :mod:`.test_damaged_replicas`.)
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from pykraft.broker.logs.log_loading import OpenLog, create_log, load_dir
from pykraft.broker.logs.producers.rebuild import snapshot_entries
from pykraft.broker.logs.producers.snapshots import load_producers
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, iter_headers, read_header
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import DAMAGE_ERRORS, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.log_store.producer_snapshot import encode_snapshot, pack_entries, snapshot_path
from pykraft.log_store.reader import read_checked
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.narrowing import present

KEY, PATH = ("t", 0), "/d/t-0"
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=0)
LOGS = tuple(f"{PATH}/{base:020}.log" for base in (0, 10, 20))
INDEXES = tuple(f"{PATH}/{base:020}.index" for base in (0, 10, 20))
TIME_INDEXES = tuple(f"{PATH}/{base:020}.timeindex" for base in (0, 10, 20))
SNAPSHOTS = tuple(f"{PATH}/{offset:020}.snapshot" for offset in (10, 20, 26))
EPOCHS, TOPIC_ID = f"{PATH}/leader-epoch-checkpoint", f"{PATH}/partition.metadata"
GAPS = f"/d/{checkpoint.GAP_OFFSET_CHECKPOINT}"
REPAIRED = (*INDEXES, *TIME_INDEXES, *SNAPSHOTS, EPOCHS, GAPS)
"""What is repaired from the records; without the last one more is accepted, once."""


def packed(producers: ProducerState) -> bytes:
    """A snapshot of them."""
    return encode_snapshot([pack_entries(snapshot_entries(producers.capture()))])


@dataclass(frozen=True)
class Stored:
    """An intact partition directory of three segments, after an orderly stop or a kill."""

    disk: MemoryDisk
    batches: tuple[tuple[BatchHeader, bytes], ...]
    producers: bytes


def _batch(offset: int) -> bytes:
    times = {4: 9000, 5: 1, 14: 9500}  # the latest of a segment is neither its first nor its last
    records = [
        RecordInput(b"k", bytes([offset]) * 9, (), times.get(offset, 1000 * (offset // 8) + offset))
    ] * 2
    return encode_batch(
        records,
        base_offset=offset,
        leader_epoch=1 + offset // 12,
        producer_id=7 + offset % 3,
        producer_epoch=0,
        base_sequence=2 * (offset // 6),
    )


def _store(*, clean: bool) -> Stored:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    opened = create_log(disk, "/d", PATH, CONFIG, Uuid(b"i" * 16), 0)
    log, batches = opened.log, []
    for offset in range(0, 26, 2):
        if offset in (10, 20):
            log.roll(0)
            producers = packed(opened.producers)
            disk.write_atomic(snapshot_path(PATH, offset), producers)
        data = _batch(offset)
        header = read_header(data)
        log.append(data, [header], now_ms=0)
        opened.producers.replay(header)
        batches.append((header, data))
    producers = packed(opened.producers)
    disk.write_atomic(snapshot_path(PATH, 26), producers)
    log.close()
    points = {KEY: 26}
    checkpoint.write_offset_checkpoint(disk, f"/d/{checkpoint.RECOVERY_POINT_CHECKPOINT}", points)
    checkpoint.write_offset_checkpoint(disk, f"/d/{checkpoint.REPLICATION_OFFSET_CHECKPOINT}", points)
    checkpoint.write_offset_checkpoint(disk, f"/d/{checkpoint.LOG_START_OFFSET_CHECKPOINT}", {KEY: 0})
    checkpoint.write_offset_checkpoint(disk, GAPS, {})  # not from Kafka
    if clean:
        checkpoint.write_clean_shutdown(disk, "/d", 5)
    return Stored(disk, tuple(batches), producers)


STORED = {clean: _store(clean=clean) for clean in (True, False)}

Damage = Callable[[MemoryDisk], None]


def _replace(path: str, content: bytes) -> Damage:
    def damage(disk: MemoryDisk) -> None:
        disk.write_atomic(path, content)

    return damage


def _epoch_bytes(content: bytes) -> frozenset[int]:
    """Where the leader epochs of batches are. No checksum covers them: replicas that differ in the epoch of
    an offset find that out from each other (:mod:`.test_damaged_replicas`)."""
    starts = [position for position, _ in iter_headers(content)]
    return frozenset(start + at for start in starts for at in range(12, 16))


def damages(disk: MemoryDisk, path: str) -> Iterator[tuple[str, Damage]]:
    """Every byte flipped, the file cut at every place, in zeros, with zeros or more behind it, missing,
    unreadable."""
    content = disk.read(path)
    epochs = _epoch_bytes(content) if path in LOGS else frozenset()
    for position in range(len(content)):
        if position in epochs:
            continue
        changed = bytearray(content)
        changed[position] ^= 1 << position * 5 % 8
        yield f"flip {position}", _replace(path, bytes(changed))
    for size_bytes in range(0, len(content), 5 if path in LOGS else 1):
        yield f"cut {size_bytes}", _replace(path, content[:size_bytes])
    yield "zeros", _replace(path, bytes(len(content)))
    yield "zeros behind", _replace(path, content + bytes(24))
    yield "twice", _replace(path, content + content)
    yield "missing", lambda disk: disk.remove(path)
    yield "unreadable", lambda disk: disk.make_unreadable(path)


def check_everything(stored: Stored, log: Log) -> None:
    """Every offset and time leads to the right record."""
    assert (log.log_start_offset, log.log_end_offset) == (0, 26)
    for header, data in stored.batches:
        for offset in (header.base_offset, header.last_offset):
            piece = present(log.read(offset, 1))
            assert read_checked(piece, log.epoch_cache.entries) == data
            up_to = log.read(0, 10_000, end_offset=header.next_offset)
            assert up_to is not None and up_to.size_bytes > 0
    assert [data for _, data in log.iter_batches(0)] == [data for _, data in stored.batches]
    for time_ms in (0, 1, 2, 1000, 3012, 8999, 9000, 9001, 9500, 9501):
        first = next((h for h, _ in stored.batches if h.max_timestamp >= time_ms), None)
        found = log.lookup_timestamp(time_ms)
        assert (None if found is None else found.offset) == (None if first is None else first.base_offset)
    latest = log.max_timestamp()
    assert latest is not None and (latest.timestamp_ms, latest.offset) == (9500, 14)
    assert [(entry.epoch, entry.start_offset) for entry in log.epoch_cache.entries] == [
        (1, 0),
        (2, 12),
        (3, 24),
    ]


def load(disk: MemoryDisk) -> OpenLog | None:
    loaded = load_dir(disk, "/d", CONFIG, 0)
    return loaded.logs[0] if loaded.logs else None


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("path", REPAIRED, ids=lambda path: path.rpartition("/")[2].lstrip("0"))
def test_what_can_be_built_from_the_records_is_repaired_by_the_start(path: str, clean: bool) -> None:
    stored = STORED[clean]
    logging.disable()
    try:
        for what, damage in damages(stored.disk, path):
            disk = stored.disk.copy()
            damage(disk)
            opened = load(disk)
            assert opened is not None, what
            check_everything(stored, opened.log)
            assert packed(opened.producers) == stored.producers, what
            opened.log.close()
            checkpoint.write_clean_shutdown(disk, "/d", 5)
            again = load(disk)
            assert again is not None, what
            check_everything(stored, again.log)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("path", REPAIRED, ids=lambda path: path.rpartition("/")[2].lstrip("0"))
def test_what_can_be_built_from_the_records_misleads_nobody_while_it_is_used(path: str) -> None:
    stored = STORED[True]
    logging.disable()
    try:
        for what, damage in damages(stored.disk, path):
            disk = stored.disk.copy()
            opened = present(load(disk))
            log = opened.log
            damage(disk)
            for segment in log._segments:
                segment.close()  # as if the files had been released
            check_everything(stored, log)
            if path in (INDEXES[1], TIME_INDEXES[1]):
                if scrub(log):
                    rebuild(log)
                assert disk.read(path) == stored.disk.read(path), what
            state = load_producers(disk, log, log.log_end_offset)
            assert packed(state) == stored.producers, what
    finally:
        logging.disable(logging.NOTSET)


def scrub(log: Log) -> bool:
    """Whether the scrub of all segments found a bad index."""
    found = False
    for base_offset in log.segment_base_offsets:
        one = present(log.scrub_segment(base_offset))
        while not one.is_done:
            one.step()
        found = found or one.has_bad_index
    return found


def rebuild(log: Log) -> None:
    for segment in log._segments[:-1]:
        build = present(log.prepare_index_build(segment))
        build.run()
        assert log.complete_index_build(build)


def is_served_as_stored(stored: Stored, log: Log) -> bool:
    """Whether all batches are read as they were written; a wrong one must not pass the check of a reader."""
    for header, data in stored.batches:
        try:
            piece = present(log.read(header.base_offset, 1))
            assert read_checked(piece, log.epoch_cache.entries) == data
        except DAMAGE_ERRORS:
            return False
    return True


def is_found_by_the_scrub(log: Log) -> bool:
    try:
        scrub(log)
    except DAMAGE_ERRORS:
        return True
    return False


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("path", [*LOGS, TOPIC_ID], ids=lambda path: path.rpartition("/")[2].lstrip("0"))
def test_damaged_records_are_set_aside_at_the_start_or_found_before_they_pass_for_right(
    path: str, clean: bool
) -> None:
    stored = STORED[clean]
    outcomes: set[str] = set()
    logging.disable()
    try:
        for what, damage in damages(stored.disk, path):
            disk = stored.disk.copy()
            damage(disk)
            opened = load(disk)
            if opened is None:
                assert disk.is_dir(f"{PATH}.00000000-damaged"), what
                outcomes.add("set aside")
            elif not is_served_as_stored(stored, opened.log):
                outcomes.add("noticed by readers")
            elif is_found_by_the_scrub(opened.log):
                outcomes.add("found by the scrub")
            else:
                # Nothing is lost: the end of the file had no records.
                check_everything(stored, opened.log)
                outcomes.add("harmless")
    finally:
        logging.disable(logging.NOTSET)
    assert "set aside" in outcomes


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.rpartition("/")[2].lstrip("0"))
def test_records_that_are_damaged_while_they_are_used_never_pass_for_right(path: str) -> None:
    stored = STORED[True]
    logging.disable()
    try:
        for what, damage in damages(stored.disk, path):
            disk = stored.disk.copy()
            opened = present(load(disk))
            damage(disk)
            for segment in opened.log._segments:
                segment.close()
            is_whole = is_served_as_stored(stored, opened.log)
            assert is_found_by_the_scrub(opened.log) or (is_whole and disk.read(path) != b""), what
    finally:
        logging.disable(logging.NOTSET)
