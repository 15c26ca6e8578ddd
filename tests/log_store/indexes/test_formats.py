"""Names and bytes on disk are Kafka's."""

from pykraft.log_store.indexes.offset_index import OffsetIndex
from pykraft.log_store.indexes.time_index import TimeIndex
from pykraft.log_store.interface import LogConfig
from tests.log_store.places import Fill, Place, Stored

# every batch below is 88 bytes: 61 of header, 27 of record
SMALL = LogConfig(segment_bytes=5 * 88, index_interval_bytes=100)


def test_offset_index_entry_is_relative_offset_and_position_big_endian(place: Place) -> None:
    index = OffsetIndex(place.disk, f"{place.root}/i", 1000)
    index.start_empty()
    index.append(1002, 0x01020304)
    index.append(1000 + 0x7FFFFFFF, 0x7FFFFFFF)
    index.seal()
    assert place.disk.read(f"{place.root}/i").hex(" ", 4) == "00000002 01020304 7fffffff 7fffffff"


def test_time_index_entry_is_timestamp_and_relative_offset_big_endian(place: Place) -> None:
    index = TimeIndex(place.disk, f"{place.root}/t", 1000)
    index.start_empty()
    index.maybe_append(-1, 1000)
    index.maybe_append(0x0102030405060708, 1005)
    index.maybe_append(0x0102030405060708, 1006)
    index.seal()
    assert place.disk.read(f"{place.root}/t").hex(" ", 4) == "01020304 05060708 00000005"


def test_segments_are_named_by_base_offset_and_indexed_sparsely(place: Place, fill: Fill) -> None:
    log = place.open(SMALL, log_start_offset=70)
    batches = fill(log, 7)
    assert {len(batch.data) for batch in batches} == {88}
    log.close()
    assert place.disk.list(place.path("")) == [
        "00000000000000000070.index",
        "00000000000000000070.log",
        "00000000000000000070.timeindex",
        "00000000000000000075.log",
        "leader-epoch-checkpoint",
    ]
    assert place.disk.read(place.path("00000000000000000070.log")) == b"".join(b.data for b in batches[:5])
    # More than 100 bytes lie between entries: batches 2 and 4, each by its last offset and its position.
    index = place.disk.read(place.path("00000000000000000070.index"))
    assert index.hex(" ", 4) == "00000002 000000b0 00000004 00000160"
    # One largest timestamp (1000), noted with the first batch that has it.
    times = place.disk.read(place.path("00000000000000000070.timeindex"))
    assert times.hex(" ", 4) == "00000000 000003e8 00000000"
    assert place.disk.read(place.path("leader-epoch-checkpoint")) == b"0\n1\n1 70\n"


def test_indexes_that_kafka_preallocated_with_zeros_are_understood(
    place: Place, fill: Fill, stored: Stored
) -> None:
    log = place.open(LogConfig(index_interval_bytes=100))
    batches = fill(log, 9)
    log.close()
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        place.disk.open(place.path(name)).append(bytes(24 * 100))
    log = place.open(LogConfig(index_interval_bytes=100), clean=True)
    assert stored(log) == [batch.data for batch in batches]
    fill(log, 9)
    for offset in range(18):
        found = log.read(offset, 1)
        assert found is not None and found.base_offset == offset
