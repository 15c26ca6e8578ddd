"""Logs that a model has written, and then one thing is wrong with their files: nobody is given less
than was stored, or anything else, without an error.
"""

import pytest

from pykraft.log_store.epoch_cache import LeaderEpochCache, encode_entries
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.log.log import Log
from tests.log_store.log.test_log_model import DIRECTORY, Model
from tests.log_store.places import Batch, MakeBatch

EPOCH_BYTES = range(12, 16)
"""Of a batch: no checksum covers its leader epoch."""


class Damaged:
    """A copy of the disk of a model, whose files may be spoiled."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rng = model.rng
        self.disk = model.disk.copy()
        bases = model.log.segment_base_offsets
        found = {
            base: [batch for batch in model.batches if base <= batch.header.base_offset < end]
            for base, end in zip(bases, (*bases[1:], model.end_offset), strict=True)
        }
        #: By the base offset of their segment: what is visible.
        self.held = {base: batches for base, batches in found.items() if batches}

    def path(self, base_offset: int, suffix: str = "log") -> str:
        return f"{DIRECTORY}/{base_offset:020}.{suffix}"

    def open(self, *, clean: bool) -> Log:
        model = self.model
        return Log.open(
            self.disk,
            DIRECTORY,
            model.config,
            now_ms=0,
            recovery_point=model.end_offset,
            log_start_offset=model.start_offset,
            clean=clean,
        )

    def cut_out(self, base: int, batch: Batch) -> None:
        """A segment without one of its batches."""
        content = bytes(self.disk.read(self.path(base)))
        assert content.count(batch.data) == 1
        self.disk.write_atomic(self.path(base), content.replace(batch.data, b""))

    def read_all(self, log: Log) -> None:
        for batch in self.model.batches:
            offset = max(self.model.start_offset, batch.header.base_offset)
            found = log.read(offset, 1)
            assert found is not None
            assert found.file.pread(found.position, found.size_bytes) == batch.data

    def scrub(self, log: Log) -> None:
        for base in self.held:
            scrub = log.scrub_segment(base)
            while scrub is not None and not scrub.is_done:
                scrub.step()


@pytest.fixture(params=range(30))
def damaged(request: pytest.FixtureRequest, make_batch: MakeBatch) -> Damaged:
    model = Model(request.param, make_batch)
    for _ in range(40):
        model.step()
    while not model.batches or not any(len(batches) > 1 for batches in Damaged(model).held.values()):
        model.append()
    model.flush()
    model.restart()
    return Damaged(model)


@pytest.mark.parametrize("clean", [False, True])
def test_segment_that_is_missing_is_noticed(damaged: Damaged, clean: bool) -> None:
    base = damaged.rng.choice(list(damaged.held))
    damaged.disk.remove(damaged.path(base))
    with pytest.raises(CorruptLogError):
        damaged.open(clean=clean)


@pytest.mark.parametrize("clean", [False, True])
def test_segment_without_its_last_batch_is_noticed(damaged: Damaged, clean: bool) -> None:
    base, batches = damaged.rng.choice(list(damaged.held.items()))
    damaged.cut_out(base, batches[-1])
    with pytest.raises(CorruptLogError):
        damaged.open(clean=clean)


def test_batch_that_is_missing_is_not_read_and_found_by_the_scrub(damaged: Damaged) -> None:
    base, batches = damaged.rng.choice([one for one in damaged.held.items() if len(one[1]) > 1])
    damaged.cut_out(base, damaged.rng.choice(batches[:-1]))
    log = damaged.open(clean=True)
    with pytest.raises(CorruptLogError):
        damaged.scrub(log)
    with pytest.raises(CorruptLogError):
        damaged.read_all(log)


def test_any_bit_that_is_flipped_is_found_by_the_scrub(damaged: Damaged) -> None:
    base, batches = damaged.rng.choice(list(damaged.held.items()))
    log = damaged.open(clean=True)
    content = bytes(damaged.disk.read(damaged.path(base)))
    batch = damaged.rng.choice(batches)
    inside = damaged.rng.choice([at for at in range(len(batch.data)) if at not in EPOCH_BYTES])
    damaged.disk.flip_bit(damaged.path(base), content.index(batch.data) + inside, damaged.rng.randrange(8))
    with pytest.raises(CorruptLogError):
        damaged.scrub(log)


def test_wrong_entry_of_an_index_misleads_no_reader(damaged: Damaged) -> None:
    for base in damaged.held:
        path = damaged.path(base, "index")
        size_bytes = len(damaged.disk.read(path)) if damaged.disk.exists(path) else 0
        if size_bytes:
            damaged.disk.flip_bit(path, damaged.rng.randrange(size_bytes), damaged.rng.randrange(3))
    damaged.read_all(damaged.open(clean=True))


@pytest.mark.parametrize("clean", [False, True])
def test_epochs_that_cannot_be_are_read_from_the_batches(damaged: Damaged, clean: bool) -> None:
    cache = LeaderEpochCache.load(damaged.disk, DIRECTORY)
    damaged.disk.write_atomic(cache.path, encode_entries(cache.entries[:-1]))
    log = damaged.open(clean=clean)
    batches = damaged.model.batches
    known = {batch.header.partition_leader_epoch for batch in batches}
    assert {entry.epoch for entry in log.epoch_cache.entries} == known
