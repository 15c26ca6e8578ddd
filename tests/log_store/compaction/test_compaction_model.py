"""A compacted log against a dictionary: appends, rounds, crashes, truncations and restarts in any order.

What the keys stand for never changes by compaction; what a reader finds was appended at that very offset;
what is missing was superseded or deleted long enough ago; and the head of the log is whole.
"""

import random
from collections.abc import Callable

import pytest

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.record_codec import Record, RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.compaction.cleaning import Step
from pykraft.log_store.compaction.record_filter import ActiveProducers
from pykraft.log_store.interface import DAMAGE_ERRORS, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store import cleaned_logs
from tests.log_store.cleaned_logs import contents, records

DIRECTORY = "/data/orders-0"
DELETE_RETENTION_MS = 1000
KEYS = [b"a", b"b", b"c", b"key-of-more-than-16-bytes-1", b"key-of-more-than-16-bytes-2", b""]


class PowerLossError(Exception):
    """The machine stops here."""


class CrashingDisk(MemoryDisk):
    """Stops at one of the next changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None
        self.changes = 0

    def enter(self, operation: str, path: str, target: str = "") -> int | None:
        if operation not in ("open", "read", "list", "usage"):
            self.changes += 1
            if self.changes_left is not None:
                if self.changes_left == 0:
                    raise PowerLossError
                self.changes_left -= 1
        return super().enter(operation, path, target)


class Model:
    """The log under test, all records that were appended to it, and what its owner stores."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.disk = CrashingDisk()
        self.disk.make_dirs("/data")
        self.config = LogConfig(
            segment_bytes=rng.choice([300, 700, 1500]),
            index_interval_bytes=rng.choice([0, 100, 500]),
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.log = Log.open(self.disk, DIRECTORY, self.config, now_ms=0)
        self.appended: list[Record] = []
        self.now_ms = 1_000_000
        self.epoch = 1
        self.committed = 0
        #: As the broker stores them: the recovery point, and the end of what is clean.
        self.recovery_point = 0
        self.cleaned_offset: int | None = None
        #: The end of the furthest round that began.
        self.touched = 0
        #: By the base offset of a batch: its delete horizon.
        self.horizons: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.last_of_producer: dict[int, int] = {}

    def step(self) -> None:
        names = ["append"] * 10 + ["clean"] * 4 + ["clean_and_lose_power"] * 3
        names += ["clean_and_lose_power_later"]
        names += [
            "flush",
            "commit",
            "wait",
            "truncate",
            "restart",
            "kill",
            "lose_power",
            "truncate_beside_a_round",
        ]
        getattr(self, self.rng.choice(names))()

    # -- what happens to the log -----------------------------------------------------------------------

    def append(self) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self.epoch += 1
            self.log.assign_epoch(self.epoch, self.log.log_end_offset)
        inputs = [
            RecordInput(
                rng.choice(KEYS),
                None if rng.random() < 0.25 else rng.randbytes(rng.randrange(40)),
                [("h", b"x")] if rng.random() < 0.2 else (),
                self.now_ms - rng.randrange(100),
            )
            for _ in range(rng.randrange(1, 5))
        ]
        base_offset = self.log.log_end_offset
        producer_id = rng.choice([-1, -1, 7, 8])
        data = encode_batch(
            inputs,
            base_offset=base_offset,
            leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, 0) if producer_id >= 0 else -1,
            compression=rng.choice(list(Compression)),
        )
        self.log.append(data, [read_header(data)], now_ms=self.now_ms)
        self.sequences[producer_id] = self.sequences.get(producer_id, 0) + len(inputs)
        if producer_id >= 0:
            self.last_of_producer[producer_id] = self.log.log_end_offset - 1
        self.appended += [
            Record(base_offset + index, one.timestamp_ms, one.key, one.value, tuple(one.headers))  # type: ignore[arg-type]
            for index, one in enumerate(inputs)
        ]

    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.log.recovery_point

    def commit(self) -> None:
        end_offset = self.log.log_end_offset
        self.committed = self.rng.choice([end_offset, self.rng.randrange(self.committed, end_offset + 1)])

    def wait(self) -> None:
        self.now_ms += self.rng.choice([10, DELETE_RETENTION_MS // 2, 2 * DELETE_RETENTION_MS])

    def clean_and_lose_power_later(self) -> None:
        """After a round, and before anything else is flushed."""
        self.append()
        self.log.roll(self.now_ms)
        self.append()
        self.committed = self.log.log_end_offset
        self.clean(is_flushed=False)
        self.lose_power()

    def clean(self, before_swap: Callable[[], None] = lambda: None, is_flushed: bool = True) -> None:
        if is_flushed:
            self.flush()
        log, keys = self.log, self.rng.choice([1, 2, 4, 100])
        cleanable = log.find_cleanable(self.cleaned_offset, limit_offset=self.committed, now_ms=self.now_ms)
        assert cleanable is not None
        assert cleanable.end_offset <= max(self.committed, cleanable.first_dirty_offset)
        self.touched = max(self.touched, cleanable.end_offset)
        producers = ActiveProducers(set(self.last_of_producer.values()))
        cleaning = cleaned_logs.begin(log, cleanable, keys, producers, self.now_ms)
        end_offset = cleaned_logs.finish(log, cleaning, before_swap)
        self.cleaned_offset = end_offset
        below = [one for one in records(log) if one.offset < end_offset]
        assert len({one.key for one in below}) == len(below)

    def clean_and_lose_power(self) -> None:
        """At any change of the disk; the end of the round is then not stored."""
        self.disk.changes_left = self.rng.choice([self.rng.randrange(12), self.rng.randrange(80)])
        before = self.cleaned_offset
        try:
            self.clean()
        except PowerLossError:
            self.cleaned_offset = before
            self.lose_power()
        finally:
            self.disk.changes_left = None

    def truncate_beside_a_round(self) -> None:
        """Between two steps: what the round prepared is not put in place, or still fits."""
        self.flush()
        cleanable = self.log.find_cleanable(
            self.cleaned_offset, limit_offset=self.committed, now_ms=self.now_ms
        )
        assert cleanable is not None
        cleaning = cleaned_logs.begin(
            self.log, cleanable, 100, ActiveProducers(set(self.last_of_producer.values())), self.now_ms
        )
        is_cut = False
        try:
            for step in cleaning.steps():
                if not is_cut and self.rng.random() < 0.05 and self.touched < cleanable.end_offset:
                    is_cut = True
                    self._truncate_to(self.rng.randrange(self.log.log_end_offset + 1))
                if not isinstance(step, Step):
                    if not is_cut:
                        self.touched = max(self.touched, cleanable.end_offset)
                    if not self.log.replace_segments(step):
                        break
                    self.disk.flush_dir(DIRECTORY)
        except DAMAGE_ERRORS:
            assert is_cut
        cleaning.discard()
        assert not any(name.endswith(".cleaned") for name in self.disk.list(DIRECTORY))

    def truncate(self) -> None:
        self._truncate_to(self.rng.randrange(self.committed, self.log.log_end_offset + 1))

    def _truncate_to(self, offset: int) -> None:
        """Also below what was committed, as in an unclean election: then it is the end of the history."""
        bases = [header.base_offset for header in self.log.iter_headers(0)]
        offset = max([base for base in bases if base <= offset], default=0)
        if offset < self.committed and self.touched > 0:
            # What superseded an older record may go, and then none is left: no history to compare with.
            offset = max(
                offset, min([base for base in [*bases, self.log.log_end_offset] if base >= self.touched])
            )
        self.log.truncate_to(offset)
        self.log.flush()  # or a power loss may undo it
        self._ends_at(offset)
        self.epoch += 1

    def _ends_at(self, offset: int) -> None:
        self.appended = [one for one in self.appended if one.offset < offset]
        self.horizons = {base: at for base, at in self.horizons.items() if base < offset}
        self.committed = min(self.committed, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.cleaned_offset = None if self.cleaned_offset is None else min(self.cleaned_offset, offset)
        self.last_of_producer = {
            producer: last for producer, last in self.last_of_producer.items() if last < offset
        }

    def restart(self) -> None:
        self.log.close()
        self._open(clean=True)

    def kill(self) -> None:
        self.log.abandon()
        self._open(clean=False)

    def lose_power(self) -> None:
        self.disk.changes_left = None
        self.disk.crash(self.rng)
        self._open(clean=False)
        assert self.log.log_end_offset >= self.recovery_point
        self._ends_at(self.log.log_end_offset)

    def _open(self, *, clean: bool) -> None:
        epochs = self.log.epoch_cache.entries
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            now_ms=self.now_ms,
            recovery_point=self.recovery_point,
            log_start_offset=0,
            clean=clean,
        )
        end = self.log.log_end_offset
        known = [one for one in epochs if one.start_offset < min(end, self.recovery_point)]
        assert [one for one in self.log.epoch_cache.entries if one in known] == known
        assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in self.disk.list(DIRECTORY))

    # -- what must hold --------------------------------------------------------------------------------

    def check(self) -> None:
        found = records(self.log)
        by_offset = {one.offset: one for one in self.appended}
        assert all(by_offset.get(one.offset) == one for one in found)
        self._note_horizons()
        there = {one.offset for one in found}
        for one in self.appended:
            if one.offset not in there:
                self._check_missing(one)
        assert contents(found) == contents(self.appended)
        self._check_producers()
        self._check_reads(found)

    def _note_horizons(self) -> None:
        for header in self.log.iter_headers(0):
            horizon_ms = header.delete_horizon_ms
            if horizon_ms is not None and self.horizons.get(header.base_offset) != horizon_ms:
                assert horizon_ms == self.now_ms + DELETE_RETENTION_MS
                self.horizons[header.base_offset] = horizon_ms

    def _check_missing(self, missing: Record) -> None:
        assert missing.offset < self.touched
        is_superseded = any(
            one.key == missing.key and missing.offset < one.offset < self.touched for one in self.appended
        )
        if not is_superseded:
            assert missing.value is None
            base_offset = max(base for base in self.horizons if base <= missing.offset)
            assert self.horizons[base_offset] <= self.now_ms

    def _check_producers(self) -> None:
        last: dict[int, tuple[int, int]] = {}
        for header in self.log.iter_headers(0):
            if header.producer_id >= 0:
                last[header.producer_id] = header.last_offset, header.last_sequence
        for producer_id, last_offset in self.last_of_producer.items():
            assert last[producer_id][0] == last_offset

    def _check_reads(self, found: list[Record]) -> None:
        log, rng = self.log, self.rng
        if log.log_end_offset:
            offset = rng.randrange(log.log_end_offset)
            piece = log.read(offset, 1)
            assert piece is not None
            header = read_header(piece.file.pread(piece.position, piece.size_bytes))
            assert header.base_offset <= offset < header.next_offset
        time_ms = self.now_ms - rng.randrange(200)
        expected = next((one.offset for one in found if one.timestamp_ms >= time_ms), None)
        at = log.lookup_timestamp(time_ms)
        assert (None if at is None else at.offset) == expected
        latest = log.max_timestamp()
        latest_ms = max((one.timestamp_ms for one in found), default=None)
        assert (None if latest is None else latest.timestamp_ms) == latest_ms


@pytest.mark.parametrize("seed", range(40))
def test_keys_stand_for_the_same_values_whatever_happens(seed: int) -> None:
    model = Model(seed)
    for _ in range(60):
        model.step()
        model.check()
