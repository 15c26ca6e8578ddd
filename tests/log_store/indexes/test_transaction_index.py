"""Transaction indexes of a log: entries byte for byte, found, cut and flushed with their segments."""

import struct

import pytest

from pykraft.kafka_protocol.markers import ABORT, Marker, build_marker
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.indexes.transaction_index import (
    AbortedTransaction,
    BadEntryError,
    TransactionIndex,
    decode_index,
    encode_index,
)
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.batch_fields import BatchFields

PATH = "/x.txnindex"
ENTRIES = [AbortedTransaction(7, 10 * n, 10 * n + 4, 10 * n + 5) for n in range(300)]


@pytest.fixture
def index() -> TransactionIndex:
    found = TransactionIndex(MemoryDisk(), PATH, 0)
    for entry in ENTRIES:
        found.append(entry)
    return found


def test_entries_are_those_of_kafka() -> None:
    entry = AbortedTransaction(producer_id=5, first_offset=6, last_offset=9, last_stable_offset=8)
    assert encode_index([entry]) == struct.pack(">hqqqq", 0, 5, 6, 9, 8)
    assert decode_index(encode_index(ENTRIES), 0, PATH) == ENTRIES


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 33,
        bytes(34),
        struct.pack(">hqqqq", 1, 5, 6, 9, 8),
        struct.pack(">hqqqq", 0, 5, 9, 9, 8),
        struct.pack(">hqqqq", 0, 5, 6, 9, 11),
        struct.pack(">hqqqq", 0, 5, 0, 2, 1),
        2 * struct.pack(">hqqqq", 0, 5, 6, 9, 8),
    ],
)
def test_what_makes_no_sense_is_no_entry(data: bytes) -> None:
    with pytest.raises(BadEntryError):
        decode_index(data, 3, PATH)


def test_file_exists_only_with_entries(index: TransactionIndex) -> None:
    disk = MemoryDisk()
    empty = TransactionIndex(disk, PATH, 0)
    assert empty.count == 0 and empty.collect(0, 100) == ([], False)
    empty.truncate_to_offset(5)
    empty.clear()
    assert not disk.exists(PATH)
    index.truncate_to_offset(0)
    assert not index.storage.exists() and index.count == 0


@pytest.mark.parametrize("end", [4, 5, 1000, 1004, 1005, 2994, 2995])
def test_cut_takes_the_markers_from_there_on(index: TransactionIndex, end: int) -> None:
    index.truncate_to_offset(end)
    assert list(index.entries()) == [entry for entry in ENTRIES if entry.last_offset < end]


@pytest.mark.parametrize("end", [0, 5, 1004, 1005, 9999])
def test_unclean_stop_leaves_what_was_flushed(index: TransactionIndex, end: int) -> None:
    index.storage.file.append(b"\0" * 20)  # a torn write
    again = TransactionIndex(index.storage._disk, PATH, 0)
    assert again.recover(end)
    assert list(again.entries()) == [entry for entry in ENTRIES if entry.last_offset < end]


def test_unclean_stop_that_left_garbage_below_what_was_flushed_leaves_nothing() -> None:
    disk = MemoryDisk()
    disk.write_atomic(PATH, encode_index(ENTRIES[:2]) + bytes(34) + encode_index(ENTRIES[3:4]))
    index = TransactionIndex(disk, PATH, 0)
    assert not index.recover(34)
    assert not disk.exists(PATH)


def test_transactions_of_a_range_are_found(index: TransactionIndex) -> None:
    assert index.collect(1000, 1001) == ([ENTRIES[100]], True)
    assert index.collect(1005, 1010) == ([], True)
    assert index.collect(2000, 2021) == (ENTRIES[200:203], True)
    assert index.collect(2990, 5000) == ([ENTRIES[299]], False)
    assert index.collect(0, 5000) == (ENTRIES, False)


def test_search_goes_on_while_a_transaction_may_reach_back() -> None:
    index = TransactionIndex(MemoryDisk(), PATH, 0)
    entries = [AbortedTransaction(1, 5, 9, 2), AbortedTransaction(2, 2, 20, 21)]
    for entry in entries:
        index.append(entry)
    assert index.collect(0, 4) == ([entries[1]], True)
    assert index.collect(0, 8) == (entries, True)


def append(log: Log, batch: bytes) -> None:
    data = bytearray(batch)
    assign_offset(data, 0, log.log_end_offset, 0)
    log.append(data, [read_header(data)], now_ms=0)


def abort_some(log: Log, count: int, *, is_noted: bool = True) -> list[AbortedTransaction]:
    """``is_noted``: in the indexes, too, which wait while the state of the producers is read again."""
    entries = []
    for number in range(count):
        first = log.log_end_offset
        record = RecordInput(None, b"v", (), 1)
        fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
        append(log, encode_batch([record], **fields))
        append(log, build_marker(7, 0, Marker(ABORT, 1), 1))
        entries.append(AbortedTransaction(7, first, first + 1, first + 2))
        if is_noted:
            log.note_aborted(entries[-1])
    return entries


def test_indexes_follow_their_log() -> None:
    disk = MemoryDisk()
    log = Log.open(disk, "/t-0", LogConfig(segment_bytes=500), now_ms=0)
    entries = abort_some(log, 12)
    assert len([name for name in disk.list("/t-0") if name.endswith(".txnindex")]) > 2
    assert list(log.iter_aborted()) == entries
    log.truncate_to(entries[7].last_offset)
    assert list(log.iter_aborted()) == entries[:7]
    log.close()
    log = Log.open(disk, "/t-0", LogConfig(segment_bytes=500), now_ms=0, clean=True)
    assert list(log.iter_aborted()) == entries[:7]
    log.truncate_fully_and_start_at(100)
    assert list(log.iter_aborted()) == []
    assert not any(name.endswith(".txnindex") for name in disk.list("/t-0"))


def test_flush_makes_the_entries_durable_with_the_records() -> None:
    disk = MemoryDisk()
    log = Log.open(disk, "/t-0", LogConfig(segment_bytes=500), now_ms=0)
    entries = abort_some(log, 4)
    log.flush()
    recovery_point = log.recovery_point
    abort_some(log, 4)
    disk.crash(_Nothing())
    log = Log.open(disk, "/t-0", LogConfig(segment_bytes=500), now_ms=0, recovery_point=recovery_point)
    assert list(log.iter_aborted())[:4] == entries
    assert all(entry.last_offset < recovery_point for entry in log.iter_aborted())


@pytest.mark.parametrize("is_flushed", [False, True])
def test_entries_restored_beside_a_flush_are_durable_with_it(is_flushed: bool) -> None:
    """Their segments are sealed, and no later flush would look at them."""
    disk = MemoryDisk()
    log = Log.open(disk, "/t-0", LogConfig(segment_bytes=500), now_ms=0)
    entries = abort_some(log, 8, is_noted=False)
    job = log.prepare_flush()
    if is_flushed:
        job.run()
    log.restore_aborted(entries, 0)
    if not is_flushed:
        job.run()
    log.complete_flush(job)
    log.flush()
    disk.crash(_Nothing())
    config, recovery_point = LogConfig(segment_bytes=500), log.recovery_point
    log = Log.open(disk, "/t-0", config, now_ms=0, recovery_point=recovery_point)
    assert recovery_point == log.log_end_offset
    assert list(log.iter_aborted()) == entries


class _Nothing:
    """Of what was not flushed, nothing is left."""

    def random(self) -> float:
        return 0.9

    def randrange(self, stop: int) -> int:
        return 0


def test_entry_that_was_added_while_the_index_was_bad_goes_with_its_marker() -> None:
    disk = MemoryDisk()
    index, built = TransactionIndex(disk, PATH, 0), TransactionIndex(disk, f"{PATH}.rebuilt", 0)
    for entry in ENTRIES[:4]:
        index.append(entry)
        built.append(entry)
    index.is_bad = True
    for entry in ENTRIES[4:8]:
        index.append(entry)
    index.truncate_to_offset(ENTRIES[6].last_offset)
    index.adopt(built)
    assert list(index.entries()) == ENTRIES[:6] and not index.is_bad
    index.append(ENTRIES[8])
    assert list(index.entries()) == [*ENTRIES[:6], ENTRIES[8]]
