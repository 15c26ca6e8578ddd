"""Producer snapshots of a log: a start reads the newest and the tail; no turn takes more than a slice.

It is long because every way to damage or to lose a snapshot ends in the same start.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.logs.producers import snapshots as producer_snapshots
from pykraft.broker.logs.producers.rebuild import ProducerRebuild, rebuild, snapshot_entries
from pykraft.broker.logs.producers.snapshots import HEADERS_PER_SLICE
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, assign_offset, read_header
from pykraft.log_store.producer_snapshot import encode_snapshot, list_snapshots, pack_entries, snapshot_path
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import refused
from tests.broker.at_once import AtOnce, Logs, Producers, now
from tests.broker.crash import abandon
from tests.narrowing import present
from tests.unexpected import unexpected

CONFIG = replace(build_log_config({}, {}), segment_bytes=1000, index_interval_bytes=100)
ID = Uuid(b"a" * 16)
KEY = ("t", 0)
HIGH_WATERMARK = 1 << 40
"""No snapshot is too new."""
DIRECTORY = "/d/t-0"
T = TypeVar("T")


def damage(key: tuple[str, int]) -> None:
    raise AssertionError(f"{key} is damaged")


class Owner:
    """One log, its producers, and what a broker does with them. ``complete`` ones begin at sequence 0."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.start()

    def start(self) -> None:
        self.logs = Logs(self.disk, ("/d",), CONFIG, SystemClock(), AtOnce(), unexpected, damage)
        now(self.logs.start())
        assert not self.logs.offline
        (self.opened,) = now(self.logs.open_or_create([(*KEY, ID, CONFIG)]))

    @property
    def state(self) -> ProducerState:
        return self.opened.producers

    def append(self, producer_id: int, records: int = 1, epoch: int = 0, sequence: int | None = None) -> None:
        log = self.opened.log
        if sequence is None:
            entry = self.state.entry(producer_id)
            fresh = entry is None or entry.epoch != epoch
            sequence = 0 if fresh else entry.batches[-1].last_sequence + 1  # type: ignore[union-attr]
        inputs = [RecordInput(None, b"v" * 20, (), log.log_end_offset) for _ in range(records)]
        data = bytearray(
            encode_batch(inputs, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        )
        assign_offset(data, 0, log.log_end_offset, 1)
        header = read_header(data)
        log.append(data, [header], now_ms=0)
        self.state.replay(header)

    def truncate(self, offset: int) -> None:
        """Append as a partition does."""
        if self.opened.log.truncate_to(offset) and not self.state.truncate_to(self.opened.log.log_end_offset):
            self.state.fall_behind()
            now(self.logs.producers.rebuild(KEY, HIGH_WATERMARK))

    def stop(self) -> None:
        now(self.logs.stop(1, {}))
        self.start()

    def kill(self) -> None:
        abandon(self.logs)
        self.start()

    def retire(self, offset: int) -> None:
        log = self.opened.log
        log.advance_log_start(offset)
        if log.retire_old_segments(0):
            now(self.logs.checkpoints.store_log_starts([KEY]))
            now(self.logs.producers.stand_in(KEY))
            self.logs.checkpoints.delete_retired_segments(KEY)
        self.logs.producers.expire(KEY, 0, 10**9)


@pytest.fixture
def owner() -> Owner:
    return Owner(MemoryDisk())


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the batches that rebuilds read."""
    seen: list[int] = []
    replay = ProducerRebuild.replay

    def note(self: ProducerRebuild, header: BatchHeader, marker: Marker | None = None) -> None:
        seen.append(header.base_offset)
        replay(self, header, marker)

    monkeypatch.setattr(ProducerRebuild, "replay", note)
    return seen


@pytest.fixture
def short_look_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_snapshots, "LOOK_BACK_BYTES", 300)


def last_batches(state: ProducerState) -> dict[int, Any]:
    return {id: (entry.epoch, entry.batches[-1]) for id, entry in state.capture().items()}


def from_all_batches(owner: Owner) -> ProducerState:
    log = owner.opened.log
    return rebuild(log.iter_produced(0), log_start_offset=log.log_start_offset)


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize("seed", range(25))
def test_state_from_snapshots_is_the_state_of_all_batches(seed: int) -> None:
    """After any writes, truncations, deletions, stops, kills and power losses."""
    rng, owner = random.Random(seed), Owner(MemoryDisk())
    epochs = dict.fromkeys(range(8), 0)
    forgotten = False
    for _ in range(400):
        action = rng.random()
        end = owner.opened.log.log_end_offset
        if action < 0.85:
            producer = rng.choice(range(8)) if rng.random() < 0.3 else rng.choice((0, 1))
            epochs[producer] += rng.random() < 0.05
            owner.append(producer, rng.randrange(1, 4), epochs[producer])
        elif action < 0.89:
            owner.truncate(rng.randrange(max(owner.opened.log.log_start_offset, end - 40), end + 1))
            epochs = {id: epoch + 1 for id, epoch in epochs.items()}
        elif action < 0.93:
            owner.stop()
        elif action < 0.96:
            owner.kill()
        elif action < 0.98:
            now(owner.logs.flush(KEY))
            now(owner.logs.checkpoints.write({}))
            owner.disk.crash(rng)
            owner.start()
        elif end:
            owner.retire(rng.randrange(end))
            forgotten = forgotten or owner.opened.log.log_start_offset > 0
        expected = from_all_batches(owner)
        have = last_batches(owner.state)
        assert last_batches(expected).items() <= have.items()
        if not forgotten:
            assert last_batches(expected) == have
            assert owner.state.complete
        offsets = list_snapshots(owner.disk, DIRECTORY)
        assert not offsets or offsets[-1] <= owner.opened.log.log_end_offset
        assert set(offsets[:-1]) <= {0, *owner.opened.log.segment_base_offsets}


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.usefixtures("short_look_back")
def test_start_walks_over_the_tail_only(owner: Owner, replayed: list[int], how: str) -> None:
    for number in range(200):
        owner.append(number % 3)
    expected = last_batches(owner.state)
    getattr(owner, how)()
    newest = list_snapshots(owner.disk, DIRECTORY)[-1]
    assert newest == (200 if how == "stop" else owner.opened.log.segment_base_offsets[-1])
    assert 0 < len(replayed) <= 200 - newest + 10
    assert last_batches(owner.state) == expected


def test_batches_in_flight_at_a_stop_are_still_known(owner: Owner) -> None:
    for _ in range(60):
        owner.append(7)
    before = owner.state.entry(7)
    owner.stop()
    after = owner.state.entry(7)
    assert before is not None and after is not None
    assert after.batches == before.batches and len(after.batches) == 5


@pytest.mark.parametrize("batches", [3, 60])
@pytest.mark.parametrize("others", [0, 1, 25])
def test_producer_whose_records_have_all_been_deleted_is_still_known_after_a_kill(
    owner: Owner, batches: int, others: int
) -> None:
    """Its answer was lost, and it sends its last batch again."""
    for _ in range(batches):
        owner.append(7)
    before = owner.state.entry(7)
    for _ in range(others):
        owner.append(8)
    owner.retire(owner.opened.log.log_end_offset - (others > 1))
    assert (owner.opened.log.segment_base_offsets[0] > 0) == (batches + others > 10)
    owner.kill()
    after = owner.state.entry(7)
    assert before is not None and after is not None
    assert (after.epoch, after.batches[-1]) == (before.epoch, before.batches[-1])
    owner.append(7)
    owner.truncate(owner.opened.log.log_end_offset - 1)
    assert last_batches(owner.state)[7] == (before.epoch, before.batches[-1])


def test_deleted_segments_that_a_power_loss_brings_back_are_not_read(owner: Owner) -> None:
    """Any part of them may return, and not be followed by the next segment."""
    for number in range(60):
        owner.append(number % 3)
    expected = last_batches(owner.state)
    first = snapshot_path(DIRECTORY, 0).replace(".snapshot", ".log")
    content = owner.disk.read(first)
    owner.retire(owner.opened.log.log_end_offset - 1)
    assert owner.opened.log.segment_base_offsets[0] > 20
    owner.disk.write_atomic(first, content)
    for offset in list_snapshots(owner.disk, DIRECTORY)[:-1]:
        owner.disk.remove(snapshot_path(DIRECTORY, offset))
    owner.kill()
    assert last_batches(owner.state) == expected


@pytest.mark.usefixtures("short_look_back")
def test_damaged_snapshots_are_skipped_and_removed(owner: Owner, replayed: list[int]) -> None:
    for number in range(200):
        owner.append(number % 3)
    expected = last_batches(owner.state)
    now(owner.logs.stop(1, {}))
    offsets = list_snapshots(owner.disk, DIRECTORY)
    for offset in offsets[-2:]:
        owner.disk.flip_bit(snapshot_path(DIRECTORY, offset), 9)
    owner.start()
    assert last_batches(owner.state) == expected
    assert list_snapshots(owner.disk, DIRECTORY) == offsets[:-2]
    assert min(replayed) <= offsets[-3] < min(replayed) + 10
    now(owner.logs.stop(1, {}))
    for offset in list_snapshots(owner.disk, DIRECTORY)[1:]:
        owner.disk.write_atomic(snapshot_path(DIRECTORY, offset), b"rot")
    replayed.clear()
    owner.start()
    assert last_batches(owner.state) == expected and min(replayed) == 0


def test_snapshot_of_truncated_records_is_removed_before_the_truncation(owner: Owner) -> None:
    for number in range(200):
        owner.append(number % 3)
    bases = owner.opened.log.segment_base_offsets
    owner.disk.calls.clear()
    owner.truncate(bases[-3] + 1)
    calls = [(call.operation, call.path) for call in owner.disk.calls]
    for base in bases[-2:]:
        removed = calls.index(("remove", snapshot_path(DIRECTORY, base)))
        assert (
            removed
            < calls.index(("flush_dir", DIRECTORY))
            < calls.index(("rename", f"{DIRECTORY}/{base:020d}.log"))
        )
    assert list_snapshots(owner.disk, DIRECTORY)[-1] == bases[-3]


def test_truncation_that_loses_a_producer_is_followed_by_a_rebuild_in_slices(
    owner: Owner, replayed: list[int]
) -> None:
    owner.opened.log.config = replace(CONFIG, segment_bytes=1 << 30)
    owner.append(1)
    for _ in range(3 * HEADERS_PER_SLICE):
        owner.append(2)
    log = owner.opened.log
    end = log.log_end_offset
    for _ in range(6):
        owner.append(2)
    log.truncate_to(end)
    assert not owner.state.truncate_to(end)
    owner.state.fall_behind()
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        owner.state.check(read_header(encode_batch([RecordInput(None, b"v", (), 0)], producer_id=1)))
    now(owner.logs.producers.rebuild(KEY, HIGH_WATERMARK))
    assert len(replayed) == end
    assert isinstance(owner.logs.producers, Producers)
    assert owner.logs.producers.pauses == end // HEADERS_PER_SLICE
    assert last_batches(owner.state) == last_batches(from_all_batches(owner))


@pytest.mark.parametrize("base_offset", [1 << 20, 0], ids=["beyond the end", "before"])
def test_rebuild_ends_at_a_base_offset_that_hides_what_follows(owner: Owner, base_offset: int) -> None:
    """It would read the same batches for ever, and hold the event loop meanwhile."""
    damaged: list[tuple[str, int]] = []
    owner.logs.damaged._on_damage = damaged.append
    for _ in range(4):
        owner.append(1)
    log = owner.opened.log
    size = log.size_bytes // 4
    path = f"{log.directory}/{0:020d}.log"
    for index, byte in enumerate(base_offset.to_bytes(8, "big")):
        for bit in range(8):
            if (byte ^ owner.disk.read(path)[3 * size + index]) >> bit & 1:
                owner.disk.flip_bit(path, 3 * size + index, bit)
    owner.state.fall_behind()
    now(owner.logs.producers.rebuild(KEY, HIGH_WATERMARK))
    assert damaged == [KEY]


def test_log_that_grows_and_is_truncated_during_a_rebuild_is_read_to_its_end(owner: Owner) -> None:
    owner.opened.log.config = replace(CONFIG, segment_bytes=1 << 30)
    for number in range(2 * HEADERS_PER_SLICE):
        owner.append(number % 5)
    log, logs = owner.opened.log, owner.logs
    steps: list[Callable[[], object]] = [
        lambda: owner.append(9),
        lambda: log.truncate_to(HEADERS_PER_SLICE // 2),
        lambda: owner.append(9),
    ]

    async def interfere() -> None:
        if steps:
            steps.pop(0)()

    logs.producers.pause = interfere  # type: ignore[method-assign]
    owner.state.fall_behind()
    now(logs.producers.rebuild(KEY, HIGH_WATERMARK))
    assert log.log_end_offset < HEADERS_PER_SLICE
    assert not owner.state.is_behind
    assert last_batches(owner.state) == last_batches(from_all_batches(owner))


def test_unknown_producer_must_begin_at_zero_unless_one_was_removed(owner: Owner) -> None:
    for number in range(100):
        owner.append(number % 3)
    owner.stop()
    assert owner.state.complete, "the snapshots hold every producer there ever was"
    owner.logs.producers.expire(KEY, 0, 10)
    owner.append(0)
    owner.logs.producers.expire(KEY, 11, 10)
    assert len(owner.state) == 1 and not owner.state.complete
    owner.stop()
    assert not owner.state.complete, "nor after a restart"


def test_empty_snapshot_that_is_written_while_a_producer_is_forgotten_is_not_left(owner: Owner) -> None:
    for number in range(30):
        owner.append(number % 3)
    owner.logs.producers.expire(KEY, 0, 10)
    owner.append(0)
    assert owner.opened.snapshots is not None and owner.state.complete
    run = owner.opened.snapshots._run

    async def forget_meanwhile(job: Callable[[], T]) -> T:
        result = await run(job)
        owner.logs.producers.expire(KEY, 11, 10)
        return result

    owner.opened.snapshots._run = forget_meanwhile
    owner.opened.log.roll(0)
    assert not owner.state.complete and list_snapshots(owner.disk, DIRECTORY) == [11, 22, 31]
    owner.kill()
    assert not owner.state.complete
    owner.append(1, sequence=10)


def test_unknown_producer_may_begin_at_any_sequence_after_a_deleted_segment(owner: Owner) -> None:
    for number in range(100):
        owner.append(number % 3)
    owner.retire(60)
    owner.stop()
    assert not owner.state.complete
    offsets = list_snapshots(owner.disk, DIRECTORY)
    assert min(offsets) >= owner.opened.log.segment_base_offsets[0]


@pytest.mark.parametrize("start", [0, 1, 60])
def test_deleted_records_may_have_been_all_of_a_producer_as_soon_as_there_are_any(
    owner: Owner, start: int
) -> None:
    for number in range(100):
        owner.append(number % 3)
    owner.stop()
    assert 0 in list_snapshots(owner.disk, DIRECTORY), "it says that all producers are known"
    owner.opened.log.advance_log_start(start)
    owner.logs.producers.expire(KEY, 0, 10**9)
    is_known = start == 0
    assert (owner.state.complete, 0 in list_snapshots(owner.disk, DIRECTORY)) == (is_known, is_known)
    header = read_header(
        encode_batch([RecordInput(None, b"v", (), 0)], producer_id=9, producer_epoch=0, base_sequence=5)
    )
    with pytest.raises(KafkaError, match="must have sequence 0") if is_known else contextlib.nullcontext():
        owner.state.check(header)


def test_snapshot_written_by_kafka_is_used(owner: Owner) -> None:
    for number in range(20):
        owner.append(number % 3)
    now(owner.logs.stop(1, {}))
    for offset in list_snapshots(owner.disk, DIRECTORY):
        owner.disk.remove(snapshot_path(DIRECTORY, offset))
    known = {**owner.state.capture(), 77: ProducerRebuildEntry}
    owner.disk.write_atomic(
        snapshot_path(DIRECTORY, 20), encode_snapshot([pack_entries(snapshot_entries(known))])
    )
    owner.start()
    assert last_batches(owner.state) == {id: (e.epoch, e.batches[-1]) for id, e in known.items()}
    assert not owner.state.complete


def test_truncation_while_a_snapshot_is_written_leaves_none_of_the_truncated_records(owner: Owner) -> None:
    for number in range(30):
        owner.append(number % 3)
    owner.stop()
    cuts = [lambda: owner.truncate(25), lambda: owner.truncate(20)]
    run = owner.logs._workers.run

    async def cut_meanwhile(job: Callable[[], T]) -> T:
        result = await run(job)
        if cuts:
            cuts.pop(0)()
        return result

    assert owner.opened.snapshots is not None
    owner.opened.snapshots._run = cut_meanwhile
    owner.append(0)
    owner.opened.log.roll(0)
    assert not cuts and owner.opened.log.log_end_offset == 20
    assert list_snapshots(owner.disk, DIRECTORY)[-1] <= 20
    owner.stop()
    assert last_batches(owner.state) == last_batches(from_all_batches(owner))


ProducerRebuildEntry = rebuild(
    [(read_header(encode_batch([RecordInput(None, b"v", (), 5)], producer_id=77, base_sequence=9)), None)],
    log_start_offset=0,
).capture()[77]


class LaterProducers(Producers):
    """Snapshots that are due wait, as when those of other logs come first."""

    def write_soon(self) -> None:
        pass


def later(owner: Owner) -> None:
    owner.logs.producers.__class__ = LaterProducers


def roll_with(owner: Owner) -> int:
    """Append batches of one producer until a snapshot is due; returns its offset."""
    while not owner.logs.producers._due:
        owner.append(7)
    return owner.logs.producers._due[KEY][1]


def test_snapshot_that_was_due_before_a_truncation_is_not_written_after_it(
    owner: Owner, short_look_back: None
) -> None:
    later(owner)
    offset = roll_with(owner)
    owner.truncate(3)  # another leader has other records
    now(owner.logs.producers.write_due())
    while owner.opened.log.log_end_offset <= offset:
        owner.append(8, 2)
    owner.kill()
    entry = present(owner.state.entry(7))
    assert entry.batches[-1].next_offset == 3, "a truncated batch is no duplicate when it is sent again"


def test_snapshot_that_is_due_at_the_end_of_a_truncated_log_is_written(owner: Owner) -> None:
    later(owner)
    offset = roll_with(owner)
    owner.append(7)
    owner.truncate(offset)
    now(owner.logs.producers.write_due())
    assert list_snapshots(owner.disk, DIRECTORY)[-1] == offset


def test_snapshot_that_was_due_of_a_deleted_log_is_not_written_into_its_namesake(owner: Owner) -> None:
    later(owner)
    roll_with(owner)
    now(owner.logs.delete([KEY]))
    now(owner.logs.open_or_create([(*KEY, Uuid(b"b" * 16), CONFIG)]))
    now(owner.logs.producers.write_due())
    assert list_snapshots(owner.disk, DIRECTORY) == []


def test_log_is_not_deleted_while_its_snapshot_is_written(owner: Owner) -> None:
    later(owner)
    roll_with(owner)
    assert owner.opened.snapshots is not None
    run = owner.opened.snapshots._run

    async def recreated_meanwhile(job: Callable[[], T]) -> T:
        deleting = owner.logs.delete([KEY])
        with contextlib.suppress(StopIteration):
            deleting.send(None)
        deleting.close()
        assert owner.disk.is_dir(DIRECTORY)
        return await run(job)

    owner.opened.snapshots._run = recreated_meanwhile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner.logs.uses._released, "wait", _Once)
        now(owner.logs.producers.write_due())


class _Once:
    def __await__(self) -> Iterator[None]:
        yield


def test_segments_stay_until_a_snapshot_stands_for_them(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would tell, after a kill, of a producer whose batches were in them."""
    log, snapshots = owner.opened.log, owner.opened.snapshots
    assert snapshots is not None
    with monkeypatch.context() as delayed:
        delayed.setattr(type(owner.logs.producers), "write_soon", lambda jobs: None)
        owner.append(7, records=3)
        while len(log.segment_base_offsets) < 4:
            owner.append(8)
        first, end_offset = log.segment_base_offsets[:2], log.log_end_offset
        owner.retire(end_offset)
        assert log.log_start_offset > first[1] and log.segment_base_offsets[:2] == first
    owner.kill()
    log, snapshots = owner.opened.log, owner.opened.snapshots
    assert snapshots is not None
    entry = owner.state.entry(7)
    assert entry is not None and entry.batches[-1].base_offset == 0, "what is left is read"
    now(owner.logs.producers.stand_in(KEY))
    assert snapshots.durable_offset >= log.first_retained_offset
    owner.logs.checkpoints.delete_retired_segments(KEY)
    assert log.segment_base_offsets[0] == log.first_retained_offset > first[1]
    owner.kill()
    entry = owner.state.entry(7)
    assert entry is not None and entry.batches[-1].base_offset == 0


@pytest.mark.parametrize("seed", range(8))
def test_snapshot_that_stands_for_deleted_segments_survives_a_power_loss(seed: int) -> None:
    owner = Owner(MemoryDisk())
    log = owner.opened.log
    owner.append(7, records=3)
    while len(log.segment_base_offsets) < 4:
        owner.append(8)
    log.flush()
    owner.retire(log.log_end_offset)
    abandon(owner.logs)
    owner.disk.crash(random.Random(seed))
    owner.start()
    assert owner.state.entry(7) is not None


class _LosesAllItCan(random.Random):
    def randrange(self, *_: object) -> int:
        return 0


def test_snapshot_counts_only_when_no_power_loss_can_take_it(owner: Owner) -> None:
    """Whatever of the later changes of the directory is kept."""
    while len(owner.opened.log.segment_base_offsets) < 4:
        owner.append(8)
    snapshots = owner.opened.snapshots
    assert snapshots is not None and snapshots.durable_offset == owner.opened.log.segment_base_offsets[-1]
    abandon(owner.logs)
    owner.disk.crash(_LosesAllItCan())
    assert snapshots.durable_offset in list_snapshots(owner.disk, DIRECTORY)


def test_segments_stay_while_producers_are_read_again(owner: Owner) -> None:
    log = owner.opened.log
    owner.append(7, records=3)
    while len(log.segment_base_offsets) < 4:
        owner.append(8)
    snapshots = present(owner.opened.snapshots)
    snapshots.remove_above(0)
    owner.state.fall_behind()
    owner.retire(log.log_end_offset)
    assert log.segment_base_offsets[0] == 0
    now(owner.logs.producers.rebuild(KEY, HIGH_WATERMARK))
    assert owner.state.entry(7) is not None
    owner.retire(log.log_end_offset)
    assert log.segment_base_offsets[0] > 0
    owner.kill()
    assert owner.state.entry(7) is not None


def test_snapshot_that_a_truncation_takes_stands_for_nothing(owner: Owner) -> None:
    log, snapshots = owner.opened.log, owner.opened.snapshots
    assert snapshots is not None
    while len(log.segment_base_offsets) < 3:
        owner.append(8)
    newest = log.segment_base_offsets[-1]
    assert snapshots.durable_offset == newest
    owner.truncate(newest)
    assert snapshots.durable_offset == newest
    owner.truncate(newest - 1)
    assert snapshots.durable_offset == 0


def test_log_without_records_leaves_no_snapshot(owner: Owner) -> None:
    owner.stop()
    assert not list_snapshots(owner.disk, DIRECTORY)


def test_truncation_to_the_beginning_leaves_no_snapshot(owner: Owner) -> None:
    """Not even that of a log without producers: what comes next may be another leader's log."""
    while len(owner.opened.log.segment_base_offsets) < 3:
        owner.append(8)
    assert list_snapshots(owner.disk, DIRECTORY)[0] == 0
    snapshots = present(owner.opened.snapshots)
    snapshots.remove_above(1)
    assert list_snapshots(owner.disk, DIRECTORY) == [0]
    snapshots.remove_above(0)
    assert not list_snapshots(owner.disk, DIRECTORY)
