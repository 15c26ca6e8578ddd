"""A log compared with a plain list: appends, flushes, truncations, restarts and power losses in any order.

After a power loss everything flushed is present, followed by a prefix of what was appended later.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykraft.jepsen_like.sim.memory_disk import MemoryDisk
from pykraft.log_store.interface import EpochEnd
from pykraft.log_store.log import Log, LogConfig
from tests.log_store.places import MakeBatch

DIRECTORY = "/data/orders-0"


class Model:
    """The log under test, the batches that it must hold, and the checkpoint that its owner keeps."""

    def __init__(self, seed: int, make_batch: MakeBatch, *, zero_tails: bool = False) -> None:
        self.rng = random.Random(seed)
        self.make_batch = make_batch
        self.zero_tails = zero_tails
        # A single segment where zeros may appear: in an older one they differ from damage only if they reach
        # from the start of a batch to its end, and a log with other zeros is refused.
        segment_bytes = 1 << 20 if zero_tails else self.rng.choice([300, 700, 1500])
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=self.rng.choice([1, 100, 500])
        )
        self.disk = MemoryDisk()
        self.disk.make_dirs("/data")
        self.batches: list[Any] = []
        self.epoch = 1
        self.stored_recovery_point = 0
        self.log = Log.open(self.disk, DIRECTORY, self.config, now_ms=0)
        # The log's content before truncations that were not flushed: a power loss may undo them.
        self.undone: list[list[Any]] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    def step(self) -> None:
        names = ["append"] * 12 + ["flush"] * 3 + ["job"] * 2 + ["truncate", "restart", "kill", "crash"]
        names += ["stop_and_lose_power", "truncate_and_lose_power", "truncate_and_stop", "crash_again"]
        getattr(self, self.rng.choice(names))()

    def append(self) -> None:
        if self.rng.random() < 0.1:
            self.epoch += self.rng.randrange(1, 3)
        count = self.rng.randrange(1, 4)
        added = []
        offset = self.end_offset
        for _ in range(count):
            batch = self.make_batch(
                offset,
                records=self.rng.randrange(1, 4),
                value_bytes=self.rng.randrange(60),
                epoch=self.epoch,
                times=(self.rng.randrange(1000),),
            )
            added.append(batch)
            offset = batch.header.next_offset
        self.log.append(b"".join(b.data for b in added), [b.header for b in added], now_ms=0)
        self.batches += added

    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end_offset
        self.undone.clear()
        self._store_recovery_point()

    def job(self) -> None:
        """A flush concurrent with appends, sometimes never finished."""
        job = self.log.prepare_flush()
        for _ in range(self.rng.randrange(4)):
            self.append()
        job.run()
        if self.rng.random() < 0.8:
            self.log.complete_flush(job)
            assert self.log.recovery_point >= job.end_offset
        if self.rng.random() < 0.5:
            self._store_recovery_point()

    def truncate(self) -> None:
        keep = self.rng.randrange(max(0, len(self.batches) - 12), len(self.batches) + 1)
        if keep < len(self.batches):
            self.undone.append(list(self.batches))
        del self.batches[keep:]
        self.log.truncate_to(self.end_offset)
        self.epoch += 1
        self.stored_recovery_point = min(self.stored_recovery_point, self.log.recovery_point)

    def truncate_and_lose_power(self) -> None:
        """Truncated batches may be back, next to those appended in their place."""
        self.truncate()
        for _ in range(self.rng.randrange(4)):
            self.append()
        self.crash()

    def truncate_and_stop(self) -> None:
        self.flush()
        self.truncate()
        self.stop_and_lose_power()

    def crash_again(self) -> None:
        """Two crashes with few changes and no flush between them."""
        self.crash()
        for _ in range(self.rng.randrange(4)):
            self.append()
        self.crash()

    def restart(self) -> None:
        self.log.close()
        self.undone.clear()
        self.log = Log.open(
            self.disk, DIRECTORY, self.config, now_ms=0, recovery_point=self.log.recovery_point, clean=True
        )
        self._store_recovery_point()

    def stop_and_lose_power(self) -> None:
        self.log.close()
        self.undone.clear()
        self.disk.crash(self.rng, zero_tails=self.zero_tails)
        self.log = Log.open(self.disk, DIRECTORY, self.config, now_ms=0, clean=True)
        self._store_recovery_point()

    def kill(self) -> None:
        """The process is killed, the machine runs on: nothing written is lost."""
        self.log.abandon()
        self._reopen()

    def crash(self) -> None:
        self.disk.crash(self.rng, zero_tails=self.zero_tails)
        durable = [b for b in self.batches if b.header.next_offset <= self.log.recovery_point]
        self._reopen(lost=True)
        assert self.batches[: len(durable)] == durable
        # The lost tail was never acknowledged; its offsets are written again in another epoch.
        self.epoch += 1

    def _reopen(self, *, lost: bool = False) -> None:
        seen: list[Any] = []
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            now_ms=0,
            recovery_point=self.stored_recovery_point,
            on_batch=seen.append,
        )
        if lost:
            self.batches = self._history()
            self.undone.clear()
        checked = [b.header for b in self.batches if b.header.last_offset >= self.stored_recovery_point]
        assert seen == checked

    def _history(self) -> list[Any]:
        """The appended batches that the log still holds: a prefix, in whole batches."""
        held = [data for _, data in self.log.iter_batches(0)]
        for history in [self.batches, *self.undone]:
            if [batch.data for batch in history[: len(held)]] == held:
                return history[: len(held)]
        raise AssertionError("the log holds batches that were never appended in this order")

    def _store_recovery_point(self) -> None:
        self.stored_recovery_point = self.log.recovery_point

    def check(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end_offset
        assert log.recovery_point <= log.log_end_offset
        assert [data for _, data in log.iter_batches(0)] == [batch.data for batch in self.batches]
        self._check_epochs()
        for _ in range(3):
            if self.batches:
                batch = self.rng.choice(self.batches)
                offset = self.rng.randrange(batch.header.base_offset, batch.header.next_offset)
                found = log.read(offset, 1, end_offset=self.rng.choice([None, batch.header.next_offset]))
                assert found is not None
                assert found.file.pread(found.position, found.size_bytes) == batch.data
        for time_ms in (0, self.rng.randrange(1000)):
            first = next((b for b in self.batches if b.header.max_timestamp >= time_ms), None)
            at = log.lookup_timestamp(time_ms)
            assert (None if at is None else at.offset) == (first and first.header.base_offset)
        latest_ms = max((b.header.max_timestamp for b in self.batches), default=None)
        latest = log.max_timestamp()
        assert (None if latest is None else latest.timestamp_ms) == latest_ms

    def _check_epochs(self) -> None:
        starts: dict[int, int] = {}
        for batch in self.batches:
            starts.setdefault(batch.header.partition_leader_epoch, batch.header.base_offset)
        assert [(e.epoch, e.start_offset) for e in self.log.epoch_cache.entries] == list(starts.items())
        if starts:
            newest = max(starts)
            assert self.log.end_offset_for_epoch(newest) == EpochEnd(newest, self.end_offset)
            assert self.log.latest_epoch == newest


@pytest.mark.parametrize("seed", range(40))
def test_flushed_batches_survive_and_the_rest_is_a_prefix(seed: int, make_batch: MakeBatch) -> None:
    model = Model(seed, make_batch)
    for _ in range(60):
        model.step()
        model.check()


@pytest.mark.parametrize("seed", range(20))
def test_zeros_in_place_of_unflushed_bytes_are_truncated(seed: int, make_batch: MakeBatch) -> None:
    model = Model(1000 + seed, make_batch, zero_tails=True)
    for _ in range(60):
        model.step()
        model.check()
