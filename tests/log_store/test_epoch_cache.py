"""Leader epochs and where they end: the rules of KIP-101, KIP-279 and KIP-320."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.log_store.epoch_cache import EpochEntry, LeaderEpochCache, decode_entries, encode_entries
from pykraft.log_store.interface import CorruptCheckpointError, EpochEnd
from tests.log_store.places import MemoryPlace


def _cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache("p", tuple(EpochEntry(*entry) for entry in entries))


def _pairs(cache: LeaderEpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, EpochEnd(-1, -1)),  # not an epoch
        (1, EpochEnd(1, 10)),  # older than every known epoch: no record of it at or after the oldest entry
        (2, EpochEnd(2, 20)),  # ends where the next begins
        (3, EpochEnd(2, 20)),  # unknown, so the one before it
        (4, EpochEnd(4, 30)),
        (6, EpochEnd(4, 30)),
        (7, EpochEnd(7, 55)),  # the latest ends at the log end
        (8, EpochEnd(-1, -1)),  # unknown
    ],
)
def test_epoch_ends_where_the_next_known_one_begins(epoch: int, expected: EpochEnd) -> None:
    assert _cache((2, 10), (4, 20), (7, 30)).end_offset_for(epoch, 55) == expected


def test_empty_cache_knows_no_end() -> None:
    assert _cache().end_offset_for(0, 10) == EpochEnd(-1, -1)
    assert _cache().latest_epoch == -1


def test_assigning_the_same_epoch_again_keeps_its_first_offset() -> None:
    cache = _cache((1, 0))
    assert not cache.assign(1, 5)
    assert not cache.assign(-1, 5)
    assert cache.assign(2, 7)
    assert _pairs(cache) == [(1, 0), (2, 7)]
    assert cache.latest_epoch == 2


def test_epoch_without_records_is_replaced_by_its_successor() -> None:
    cache = _cache((1, 0), (2, 7))
    assert cache.assign(3, 7)
    assert _pairs(cache) == [(1, 0), (3, 7)]


def test_assigning_an_older_epoch_drops_the_newer_ones() -> None:
    cache = _cache((1, 0), (3, 10), (5, 20))
    assert cache.assign(4, 15)
    assert _pairs(cache) == [(1, 0), (3, 10), (4, 15)]


def test_truncation_from_the_end_drops_epochs_that_start_there() -> None:
    cache = _cache((1, 0), (2, 10), (3, 20))
    cache.truncate_from_end(20)
    assert _pairs(cache) == [(1, 0), (2, 10)]
    cache.truncate_from_end(11)
    assert _pairs(cache) == [(1, 0), (2, 10)]
    cache.truncate_from_end(0)
    assert _pairs(cache) == []


def test_truncation_from_the_start_keeps_the_epoch_at_the_new_start() -> None:
    cache = _cache((1, 0), (2, 10), (3, 20))
    cache.truncate_from_start(0)
    assert _pairs(cache) == [(1, 0), (2, 10), (3, 20)]
    cache.truncate_from_start(15)
    assert _pairs(cache) == [(2, 15), (3, 20)]
    cache.truncate_from_start(20)
    assert _pairs(cache) == [(3, 20)]
    cache.truncate_from_start(99)
    assert _pairs(cache) == [(3, 99)]


def test_epoch_for_offset_is_the_one_at_that_offset() -> None:
    cache = _cache((2, 10), (4, 20))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_checkpoint_has_kafkas_bytes() -> None:
    entries = (EpochEntry(0, 0), EpochEntry(7, 1 << 33))
    assert encode_entries(entries) == b"0\n2\n0 0\n7 8589934592\n"
    assert decode_entries(encode_entries(entries), "p") == entries
    assert encode_entries(()) == b"0\n0\n"


@pytest.mark.parametrize(
    "content", [b"", b"0\n1\n", b"0\n1\nx 1\n", b"0\n1\n1\n", b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n"]
)
def test_malformed_checkpoint_is_ignored(memory: MemoryPlace, content: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="leader-epoch-checkpoint"):
        decode_entries(content, "leader-epoch-checkpoint")
    memory.disk.write_atomic(f"{memory.root}/leader-epoch-checkpoint", content)
    assert LeaderEpochCache.load(memory.disk, memory.root).entries == ()


_OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 8), st.integers(0, 30)), max_size=30
)


@settings(max_examples=150, deadline=None)
@given(_OPERATIONS)
def test_entries_always_rise_in_epoch_and_offset(operations: list[tuple[str, int, int]]) -> None:
    cache = _cache()
    for name, epoch, offset in operations:
        match name:
            case "assign":
                cache.assign(epoch, offset)
                assert cache.epoch_for_offset(offset) == epoch or (epoch, offset) not in _pairs(cache)
            case "end":
                cache.truncate_from_end(offset)
            case _:
                cache.truncate_from_start(offset)
        pairs = _pairs(cache)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
