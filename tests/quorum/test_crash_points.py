"""Log, snapshots and vote of one replica, killed or without power at every disk operation of a history.

Histories are drawn from seeds: appends of several epochs, flushes, truncations, voter changes, snapshots of
its own with the log before them deleted, snapshots of others in place of the log. Each history is played once
to count its disk operations, then again up to each of them. A start must read back what the model holds: no
flushed record is missing or reported as lost, no record appears that was never appended, and what was read
back is durable. If everything were lost, the mark would tell how far the log had been flushed and fetched.
"""

import errno
import random
from contextlib import suppress
from dataclasses import dataclass

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.records import read_header
from pykraft.kafka_protocol.value_batches import decode_values
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core import effects
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import BatchSpan
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.flushed_mark import FlushedMarkFile
from pykraft.quorum.rpc import FetchedRecords
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.quorum.storage import QuorumStorage, encode_proposal
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.quorum.nodes import DIRECTORY, fetch_snapshot

LOCAL = ReplicaKey(1, Uuid(bytes([1]) * 16))
STEPS = 40


def _voters(*ids: int) -> VoterSet:
    return VoterSet([Voter(ReplicaKey(i, Uuid(bytes([i]) * 16)), Address("test", i)) for i in ids])


FORMATTED = _voters(1, 2, 3)


class MachineGoneError(OSError):
    pass


class FailingDisk(MemoryDisk):
    """Stops at the operation with number ``last``; reads are not counted."""

    def __init__(self) -> None:
        super().__init__(recorded_calls=100)
        self.operations = 0
        self.last = 1 << 60

    def enter(self, operation: str, path: str, target: str = "") -> int | None:
        if operation not in ("read", "list", "usage"):
            self.operations += 1
            if self.operations > self.last:
                raise MachineGoneError(errno.ENODEV, "the machine is gone")
        return super().enter(operation, path, target)


class StoppedClock:
    def monotonic_ms(self) -> int:
        return 1_000_000

    def wall_ms(self) -> int:
        return 1_700_000_000_000


@dataclass(frozen=True)
class Batch:
    """``values`` are empty for control batches."""

    base_offset: int
    end_offset: int
    epoch: int
    values: tuple[bytes, ...] = ()
    voters: VoterSet | None = None


class Model:
    """What the replica holds from offset 0 on, in its log or in a snapshot."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.committed = self.flushed = 0
        self.election = ElectionState()
        self.snapshots: list[SnapshotId] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    @property
    def newest(self) -> int:
        """The end of the newest snapshot."""
        return self.snapshots[-1].end_offset if self.snapshots else 0

    def before(self, end_offset: int) -> list[Batch]:
        return [batch for batch in self.batches if batch.end_offset <= end_offset]


def voters_in(batches: list[Batch]) -> VoterSet:
    return next((batch.voters for batch in reversed(batches) if batch.voters is not None), FORMATTED)


def values_in(batches: list[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.values]


class Machine:
    """One replica's storage; plays a history.

    ``allowed`` holds the logs that a crash at this moment may leave, each with the shortest length to which
    it may be truncated. ``marked`` is what others may count on.
    """

    def __init__(self, seed: int) -> None:
        self.disk = FailingDisk()
        self.rng = random.Random(seed)
        self.model = Model()
        self.elections = {self.model.election}
        self.allowed: list[tuple[list[Batch], int]] = [([], 0)]
        self.marked = 0
        format_log(self.disk, DIRECTORY, now_ms=0)
        self.open()

    def open(self) -> None:
        self.log = Log.open(self.disk, DIRECTORY, LogConfig(segment_bytes=400), now_ms=0)
        self.storage = QuorumStorage(self.log, QuorumStateStore(self.disk, DIRECTORY), StoppedClock())
        self.storage.recover()
        self.storage.compare_with_mark()
        self.storage.write_mark()

    def play(self) -> None:
        for _ in range(STEPS):
            steps = [self.append, self.append, self.append, self.flush, self.commit, self.take_snapshot]
            steps += [self.truncate, self.new_epoch, self.lead, self.install, self.cut, self.change_voters]
            self.rng.choice(steps)()
            self.settle()

    def settle(self) -> None:
        model = self.model
        self.elections = {model.election}
        self.allowed = [(list(model.batches), max(model.newest, model.flushed))]
        self.marked = model.flushed

    def new_epoch(self) -> None:
        state = ElectionState(self.model.election.epoch + 1, self.rng.randrange(1, 4))
        self.elections.add(state)
        self.storage.apply(effects.PersistElectionState(state))
        self.model.election = state

    def lead(self) -> None:
        self.new_epoch()
        base, epoch = self.model.end_offset, self.model.election.epoch
        self._appending(Batch(base, base + 1, epoch))
        self.storage.apply(effects.AppendLeaderChange(base, epoch, 1, (LOCAL,), (LOCAL,)))

    def _appending(self, batch: Batch) -> None:
        self.model.batches.append(batch)
        self.allowed = [(list(self.model.batches), self.allowed[0][1])]

    def _may_append(self) -> bool:
        return self.model.election.epoch > 0

    def append(self) -> None:
        if not self._may_append():
            return
        base, epoch, rng = self.model.end_offset, self.model.election.epoch, self.rng
        batches, data, headers = [], b"", []
        for _ in range(rng.randrange(1, 4)):
            values = tuple(
                b"%d.%d.%d" % (epoch, base + i, rng.randrange(100)) for i in range(rng.randrange(1, 4))
            )
            encoded = encode_proposal(values, base, epoch, 1_700_000_000_000 + base)
            batches.append(Batch(base, base + len(values), epoch, values))
            data, base = data + encoded, base + len(values)
            headers.append(read_header(encoded))
        for batch in batches:
            self._appending(batch)
        spans = tuple(BatchSpan(batch.base_offset, batch.end_offset, batch.epoch) for batch in batches)
        self.storage.apply(effects.AppendFetched(spans, FetchedRecords(data, tuple(headers))))

    def change_voters(self) -> None:
        if not self._may_append():
            return
        base, epoch = self.model.end_offset, self.model.election.epoch
        voters = _voters(1, *sorted(self.rng.sample([2, 3, 4, 5], 2)))
        self._appending(Batch(base, base + 1, epoch, (), voters))
        self.storage.apply(effects.AppendVoters(base, base + 1, epoch, voters))

    def flush(self) -> None:
        job = self.log.prepare_flush()
        self.storage.flush(job)
        self.log.complete_flush(job)
        self.model.flushed = self.model.end_offset

    def commit(self) -> None:
        """A leader's log may be committed before its own flush."""
        ends = [b.end_offset for b in self.model.batches if b.end_offset > self.model.committed]
        if ends:
            self.model.committed = self.rng.choice(ends)

    def take_snapshot(self) -> None:
        model = self.model
        found = [b for b in model.batches if model.newest < b.end_offset <= model.committed]
        if not found:
            return
        last = self.rng.choice(found)
        state = model.before(last.end_offset)
        writer = self.storage.snapshots.writer(SnapshotId(last.end_offset, last.epoch), 5, voters_in(state))
        writer.append(values_in(state))
        writer.finish()
        writer.publish()
        self.storage.snapshots.add(writer.info)
        model.snapshots.append(writer.info.snapshot_id)
        if self.rng.random() < 0.3:
            self.log.roll(0)

    def cut(self) -> None:
        if self.model.snapshots:
            chosen = self.rng.choice(self.model.snapshots)
            if chosen.end_offset > self.log.log_start_offset:
                self.storage.apply(effects.AdvanceLogStart(chosen))

    def truncate(self) -> None:
        model = self.model
        floor = max(model.committed, model.newest)
        ends = [b.base_offset for b in model.batches if b.base_offset >= floor]
        if not ends:
            return
        end_offset = self.rng.choice(ends)
        kept = model.before(end_offset)
        before, shortest = self.allowed[0]
        self.allowed = [(before, min(shortest, end_offset)), (kept, min(shortest, end_offset))]
        self.marked = min(self.marked, end_offset)
        self.storage.apply(effects.TruncateTo(end_offset))
        model.batches = kept
        model.flushed = min(model.flushed, end_offset)  # no replica counts on more before the next flush
        before_it, model.election = model.election, ElectionState(model.election.epoch + 1)
        self.settle()
        self.elections.add(before_it)
        self.storage.apply(effects.PersistElectionState(model.election))

    def install(self) -> None:
        """Others have committed some of these records, or other ones, and more."""
        model, rng = self.model, self.rng
        self.new_epoch()
        if rng.random() < 0.5:
            self.flush()  # a follower fetches once everything is flushed
            self.settle()
        floor = max(model.committed, model.newest)
        kept = model.before(
            rng.choice([floor, *[b.end_offset for b in model.batches if b.end_offset >= floor]])
        )
        base = kept[-1].end_offset if kept else 0
        state, epoch = list(kept), model.election.epoch
        for _ in range(rng.randrange(1, 5)):
            values = tuple(b"other %d" % (base + i) for i in range(rng.randrange(1, 4)))
            state.append(Batch(base, base + len(values), epoch, values))
            base += len(values)
        if rng.random() < 0.5:
            state.append(Batch(base, base + 1, epoch, (), _voters(1, 2, 6)))
        snapshot_id = SnapshotId(state[-1].end_offset, state[-1].epoch)
        pieces = iter(lambda: rng.randrange(50, 200), None)
        fetch_snapshot(self.storage, snapshot_id, values_in(state), voters_in(state), pieces)
        before, shortest = self.allowed[0]  # records that the snapshot does not hold were never committed
        self.allowed = [(before, min(shortest, snapshot_id.end_offset)), (state, snapshot_id.end_offset)]
        self.marked = min(self.marked, snapshot_id.end_offset)
        self.storage.apply(effects.InstallSnapshot(snapshot_id))
        model.batches = state
        model.committed = model.flushed = snapshot_id.end_offset
        model.snapshots = [snapshot_id]


@dataclass(frozen=True)
class Found:
    """The state that a start reads back."""

    latest: SnapshotId | None
    start: SnapshotId
    end_offset: int
    values: tuple[bytes, ...]
    epochs: tuple[tuple[int, int], ...]
    voters: VoterSet
    election: ElectionState


def read_back(machine: Machine) -> Found:
    storage, log = machine.storage, machine.log
    assert storage.recovery is None, "a crash is mistaken for a loss"
    latest = storage.snapshots.latest()
    values: list[bytes] = []
    start = 0
    if latest is not None:
        reader = storage.snapshots.reader(latest)
        values += [value for batch in reader for value in batch]
        reader.close()
        start = latest.end_offset
    for header, data in log.iter_batches(start):
        assert header.base_offset == start
        start = header.next_offset
        if not header.is_control:
            values += decode_values(data, header)
    shape = storage.outline()
    history = storage.read_voters(FORMATTED)
    election = storage.read_election()
    RaftCore(  # its own assertions
        config=QuorumConfig(),
        cluster_id="c",
        local=LOCAL,
        history=history,
        rng=random.Random(0),
        election=election,
        log=shape,
        now_ms=0,
        latest_snapshot=latest,
    )
    assert start == log.log_end_offset == shape.end_offset
    return Found(latest, shape.start, start, tuple(values), shape.epoch_starts, history.current, election)


def is_allowed(found: Found, batches: list[Batch], shortest: int) -> bool:
    prefix = [batch for batch in batches if batch.end_offset <= found.end_offset]
    last = prefix[-1] if prefix else Batch(0, 0, 0)
    if last.end_offset != found.end_offset or found.end_offset < shortest:
        return False
    known = [b for b in prefix if b.end_offset <= (found.latest.end_offset if found.latest else 0)]
    if found.latest and (not known or (known[-1].end_offset, known[-1].epoch) != found.latest):
        return False
    epochs = {batch.epoch for batch in prefix if batch.base_offset >= found.start.end_offset}
    in_shape = {epoch for epoch, start in found.epochs if start < found.end_offset}
    return (
        tuple(values_in(prefix)) == found.values and voters_in(prefix) == found.voters and epochs == in_shape
    )


def crash_at(seed: int, operation: int, *, power_loss: bool) -> None:
    machine = Machine(seed)
    machine.disk.last = operation
    with suppress(MachineGoneError):
        machine.play()
    rng = random.Random(seed * 1_000_003 + operation)
    allowed, elections = machine.allowed, machine.elections
    found = None
    for attempt in range(4):
        if power_loss or attempt == 3:
            machine.disk.crash(rng)
        else:
            machine.disk.incarnation += 1
        # Some starts are interrupted, too; the last one is not.
        machine.disk.last = machine.disk.operations + (rng.randrange(30) if attempt < 2 else 1 << 60)
        mark = FlushedMarkFile(machine.disk, DIRECTORY).read()
        assert mark is not None and mark.end_offset is not None and mark.end_offset >= machine.marked
        try:
            machine.open()
            again = read_back(machine)
        except MachineGoneError:
            continue
        assert any(is_allowed(again, *one) for one in allowed), (found, again, allowed)
        assert again.election in elections
        assert found is None or (found.values, found.voters, found.election) == (
            again.values,
            again.voters,
            again.election,
        ), "what was read back was not durable"
        found = again
    assert found is not None


def count_operations(seed: int) -> int:
    machine = Machine(seed)
    machine.play()
    return machine.disk.operations


@pytest.mark.parametrize("seed", range(6))
def test_state_after_a_crash_at_any_disk_operation_is_the_one_before(seed: int) -> None:
    for operation in range(5, count_operations(seed)):
        crash_at(seed, operation, power_loss=True)


@pytest.mark.parametrize("seed", range(100, 103))
def test_state_of_a_killed_process_is_read_back_and_then_durable(seed: int) -> None:
    for operation in range(5, count_operations(seed)):
        crash_at(seed, operation, power_loss=False)
