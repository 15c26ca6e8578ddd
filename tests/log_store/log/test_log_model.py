"""A log against a plain list: appends, flushes, truncations, retention, restarts, power losses in any order.

After a power loss everything flushed is present, followed by a prefix of what was appended later.
"""

import random
from collections.abc import Callable, Sequence

import pytest

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.interface import CorruptLogError, EpochEnd, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.files import DELETED_SUFFIX
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store.places import Batch, MakeBatch
from tests.seeds import seeds

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
            segment_bytes=segment_bytes,
            index_interval_bytes=self.rng.choice([1, 100, 500]),
            retention_bytes=self.rng.choice([500, 2000]),
            retention_ms=-1,
        )
        self.disk = MemoryDisk()
        self.disk.make_dirs("/data")
        #: What is not wholly below ``start_offset``.
        self.batches: list[Batch] = []
        self.start_offset = 0
        #: Nothing below is truncated, nothing above it is retired.
        self.committed = 0
        self.epoch = 1
        self.stored_recovery_point = 0
        self.log = Log.open(self.disk, DIRECTORY, self.config, now_ms=0)
        #: Whether deleted segments are only renamed, to be removed later.
        self.removes_later = seed % 2 == 1
        #: Whether what a start has truncated is flushed by the owner of the log.
        self.flushes_itself = seed % 3 == 1
        # The log's content before truncations that were not flushed: a power loss may undo them.
        self.undone: list[list[Batch]] = []
        self._take_over()

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start_offset

    def step(self) -> None:
        names = ["append"] * 12 + ["flush"] * 3 + ["job"] * 2 + ["truncate", "restart", "kill", "crash"]
        names += ["stop_and_lose_power", "truncate_and_lose_power", "truncate_and_stop", "crash_again"]
        names += ["retain", "advance_start", "build_index", "build_index"]
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
        """A flush beside appends, and perhaps a truncation; sometimes never finished."""
        job = self.log.prepare_flush()
        is_cut = self.rng.random() < 0.3
        if is_cut:
            self.truncate()
        least_end = self.end_offset
        for _ in range(self.rng.randrange(4)):
            self.append()
        job.run()
        if self.rng.random() < 0.8:
            self.log.complete_flush(job)
            if is_cut:
                assert self.log.recovery_point <= least_end
            else:
                assert self.log.recovery_point >= job.end_offset
        if self.rng.random() < 0.5:
            self._store_recovery_point()

    def truncate(self) -> None:
        kept = sum(batch.header.base_offset < self.committed for batch in self.batches)
        keep = self.rng.randrange(max(kept, len(self.batches) - 12), len(self.batches) + 1)
        if keep < len(self.batches):
            self.undone.append(list(self.batches))
        del self.batches[keep:]
        self.log.truncate_to(self.end_offset)
        self.epoch += 1
        self.stored_recovery_point = min(self.stored_recovery_point, self.log.recovery_point)

    def truncate_and_lose_power(self) -> None:
        """What was cut may be back, beside what was appended in its place."""
        if self.rng.random() < 0.5:
            self.flush()
        self.truncate()
        for _ in range(self.rng.randrange(8)):
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

    def retain(self) -> None:
        """By size and log start, never above the offset that is committed."""
        bases = self.log.segment_base_offsets
        ends = [*bases[1:], self.end_offset]
        sizes = [len(self.disk.read(f"{DIRECTORY}/{base:020}.log")) for base in bases]
        self.committed = limit = max(
            self.committed, self.start_offset, self.rng.choice(ends) + self.rng.choice([-1, 0])
        )
        count = 0
        while ends[count] <= limit and (
            sum(sizes[count + 1 :]) >= self.config.retention_bytes
            or (ends[count] <= self.start_offset and count < len(bases) - 1)
        ):
            count += 1
        assert self.log.retire_old_segments(0, limit_offset=limit) == (count > 0)
        self._start_at(max(self.start_offset, bases[count]))
        if self.rng.random() < 0.8:
            self.log.delete_retired_segments(self.start_offset)
            assert self.log.segment_base_offsets == bases[count:]

    def build_index(self) -> None:
        """An index is built again beside whatever happens to the log meanwhile."""
        segment = self.rng.choice(self.log._segments)
        build = self.log.prepare_index_build(segment)
        assert build is not None
        meanwhile = [self.append, self.append, self.append, self.truncate, self.retain, self.flush]
        actions = [self.rng.choice(meanwhile) for _ in range(self.rng.randrange(3))]
        ran_after = self.rng.randrange(len(actions) + 1)
        for action in actions[:ran_after]:
            action()
        try:
            build.run()
        except (CorruptLogError, FileNotFoundError):
            assert not self.log.is_as_prepared(build)
        for action in actions[ran_after:]:
            action()
        if self.log.is_as_prepared(build):
            assert self.log.complete_index_build(build)

    def advance_start(self) -> None:
        if self.batches:
            batch = self.rng.choice(self.batches[: len(self.batches) // 2 + 1])
            last = batch.header.next_offset - 1
            offset = max(self.start_offset, self.rng.choice([batch.header.base_offset, last]))
            self.committed = max(self.committed, offset)
            self.log.advance_log_start(offset)
            self._start_at(offset)
            if self.rng.random() < 0.5:
                self.retain()

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        for history in (self.batches, *self.undone):
            history[:] = [batch for batch in history if batch.header.next_offset > offset]

    def restart(self) -> None:
        self.log.close()
        self.undone.clear()
        self._open(recovery_point=self.log.recovery_point, clean=True)
        self._store_recovery_point()

    def stop_and_lose_power(self) -> None:
        self.log.close()
        self.undone.clear()
        self.disk.crash(self.rng, zero_tails=self.zero_tails)
        self._open(clean=True)
        self._store_recovery_point()

    def kill(self) -> None:
        """The process dies, the machine does not: nothing written is lost. The checkpoint may be older."""
        self.log.abandon()
        if self.rng.random() < 0.3:
            self.stored_recovery_point = self.rng.randrange(self.stored_recovery_point + 1)
        self._reopen()

    def crash(self) -> None:
        self.disk.crash(self.rng, zero_tails=self.zero_tails)
        durable = [b for b in self.batches if b.header.next_offset <= self.log.recovery_point]
        self._reopen(lost=True)
        assert self.batches[: len(durable)] == durable
        # The lost tail was never acknowledged; its offsets are written again in another epoch.
        self.epoch += 1

    def _reopen(self, *, lost: bool = False) -> None:
        seen: list[BatchHeader] = []
        self._open(recovery_point=self.stored_recovery_point, on_batch=seen.append)
        if lost:
            self.batches = self._history()
            self.undone.clear()
        checked = [b.header for b in self.batches if b.header.last_offset >= self.stored_recovery_point]
        assert [header for header in seen if header.next_offset > self.start_offset] == checked

    def _open(
        self,
        *,
        recovery_point: int = 0,
        clean: bool = False,
        on_batch: Callable[[BatchHeader], None] | None = None,
    ) -> None:
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            now_ms=0,
            log_start_offset=self.start_offset,
            recovery_point=recovery_point,
            clean=clean,
            on_batch=on_batch,
            flush=not self.flushes_itself,
        )
        if self.flushes_itself:
            self.log.flush_recovered()
        self._take_over()

    def _take_over(self) -> None:
        """A start has removed the files of deleted segments; after it they may be left to their owner."""
        assert not [name for name in self.disk.list(DIRECTORY) if name.endswith(DELETED_SUFFIX)]
        if self.removes_later:
            self.log.on_deleted = self._remove_some

    def _remove_some(self, paths: Sequence[str]) -> None:
        for path in paths:
            assert self.disk.exists(path) and path.endswith(DELETED_SUFFIX)
            if self.rng.random() < 0.5:
                self.disk.remove(path)

    def _history(self) -> list[Batch]:
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
        assert (log.log_start_offset, log.log_end_offset) == (self.start_offset, self.end_offset)
        assert log.recovery_point <= log.log_end_offset
        assert [data for _, data in log.iter_batches(0)] == [batch.data for batch in self.batches]
        self._check_epochs()
        self._check_indexes()
        for _ in range(3):
            if self.batches:
                batch = self.rng.choice(self.batches)
                first = max(self.start_offset, batch.header.base_offset)
                offset = self.rng.randrange(first, batch.header.next_offset)
                found = log.read(offset, 1, end_offset=self.rng.choice([None, batch.header.next_offset]))
                assert found is not None
                assert found.file.pread(found.position, found.size_bytes) == batch.data
        for time_ms in (0, self.rng.randrange(1000)):
            as_new = next((b for b in self.batches if b.header.max_timestamp >= time_ms), None)
            at = log.lookup_timestamp(time_ms)
            expected = None if as_new is None else max(self.start_offset, as_new.header.base_offset)
            assert (None if at is None else at.offset) == expected
        if self.start_offset == log.segment_base_offsets[0]:  # else the latest may be below the log start
            latest_ms = max((b.header.max_timestamp for b in self.batches), default=None)
            latest = log.max_timestamp()
            assert (None if latest is None else latest.timestamp_ms) == latest_ms

    def _check_indexes(self) -> None:
        """What the growing segment knows of its batches is in its indexes, except for the last interval."""
        segment = self.log._active
        index, times = segment.offset_index, segment.time_index
        held = [b.header for b in self.batches if b.header.base_offset >= segment.base_offset]
        if not held or held[0].base_offset != segment.base_offset:
            return
        unindexed = position = 0
        newest = (-1, segment.base_offset)
        indexed = [0]
        for header in held:
            if index.lookup_entry(header.last_offset) == (header.last_offset, position):
                indexed.append(header.last_offset)
                unindexed = 0
            assert unindexed <= self.config.index_interval_bytes + header.size_bytes + 300
            unindexed += header.size_bytes
            position += header.size_bytes
            if header.max_timestamp > newest[0]:
                newest = (header.max_timestamp, header.last_offset)
        assert segment.max_timestamp == newest
        assert index.count == len(indexed) - 1
        last = times.last_entry
        assert last is None or last in [(h.max_timestamp, h.last_offset) for h in held]

    def _check_epochs(self) -> None:
        starts: dict[int, int] = {}
        for batch in self.batches:
            starts.setdefault(
                batch.header.partition_leader_epoch, max(self.start_offset, batch.header.base_offset)
            )
        if not starts:
            return
        cache = self.log.epoch_cache
        assert [(e.epoch, e.start_offset) for e in cache.entries] == list(starts.items())
        newest = max(starts)
        assert self.log.latest_epoch == newest
        for epoch in range(min(starts) - 1, newest + 1):
            known = max((one for one in starts if one <= epoch), default=epoch)
            end_offset = min((starts[one] for one in starts if one > epoch), default=self.end_offset)
            assert self.log.end_offset_for_epoch(epoch) == EpochEnd(known, end_offset)
        batch = self.rng.choice(self.batches)
        for offset in (max(self.start_offset, batch.header.base_offset), batch.header.last_offset):
            assert cache.epoch_for_offset(offset) == batch.header.partition_leader_epoch


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


@pytest.mark.parametrize("seed", seeds(100, checked=40))
def test_truncation_of_a_killed_process_survives_a_clean_stop_and_a_power_loss(
    seed: int, make_batch: MakeBatch
) -> None:
    model = Model(2000 + seed, make_batch)
    for _ in range(10):
        for _ in range(4):
            model.append()
        model.flush()
        model.truncate()
        model.kill()
        model.stop_and_lose_power()
        model.check()


@pytest.mark.parametrize("seed", range(20))
def test_truncation_of_a_killed_process_is_not_undone_behind_newer_segments(
    seed: int, make_batch: MakeBatch
) -> None:
    model = Model(3001 + 3 * seed, make_batch)
    for _ in range(10):
        for _ in range(4):
            model.append()
        model.flush()
        model.truncate()
        model.kill()
        for _ in range(model.rng.randrange(12)):
            model.append()
        model.crash()
        model.check()
