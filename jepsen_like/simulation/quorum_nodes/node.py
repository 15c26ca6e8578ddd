"""One whole quorum node in the simulation: the product's driver, log and state file on a simulated disk.

While :mod:`.quorum.replica` drives the core alone, here :class:`~pykraft.quorum.driver.QuorumNode` carries
out the effects: flushes in an executor, group commit, delivery to a listener. The world watches each effect
as it is carried out, and may kill the process there. What is durable is read from the disk's own records,
never from the node's state.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pykraft.jepsen_like.simulation.quorum.invariants.history import StoredBatch
from pykraft.jepsen_like.simulation.quorum.world import NodeWorld
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.records import BatchHeader, iter_headers
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.effects import Effect
from pykraft.quorum.core.events import Event, RequestReceived
from pykraft.quorum.core.messages import VoteRequest
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import ReplicaKey, VoterSet
from pykraft.quorum.driver import CommittedBatch, LeaderAndEpoch, QuorumNode, SnapshotId
from pykraft.quorum.state_store import QUORUM_STATE_FILE, QuorumStateStore, decode_quorum_state
from pykraft.quorum.storage import QuorumStorage
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.processes import ProcessKilledError
from pykraft.runtime.simulated.virtual_loop import SimExecutor, VirtualClock

DIRECTORY = "/data/__cluster_metadata-0"


class WatchedNode(QuorumNode):
    """The product's node; the simulation sees its events and effects."""

    process: NodeProcess

    def _step(self, event: Event) -> None:
        if isinstance(event, RequestReceived) and isinstance(event.request, VoteRequest):
            self.process.candidates[event.token] = event.request.candidate
        super()._step(event)
        self.process.cluster.stepped(self.process, event)

    def _log_losses(self, state: CoreState) -> None:
        super()._log_losses(state)
        self.process.has_read_its_disk(self._storage)

    def _run(self, effect: Effect) -> None:
        super()._run(effect)
        self.process.effect_done(effect)

    def _pump(self) -> None:
        was_pumping = self._pumping
        super()._pump()
        if not was_pumping and self._running and not self._effects:
            self.process.cluster.checker.step_done(self.process)


class Listener:
    """Behaves like a controller: proposes in the epoch that it leads, and answers at the commit."""

    def __init__(self, process: NodeProcess) -> None:
        self.process = process
        self.leader = LeaderAndEpoch(None, 0)
        self.next_offset = 0
        self.last_epoch = 0
        self.pending: dict[int, bytes] = {}

    @property
    def leads(self) -> bool:
        return self.leader.leader_id == self.process.id

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        committed = self.process.cluster.checker.history.committed
        for batch in batches:
            if not batch.is_last_piece:
                continue
            if batch.base_offset != self.next_offset:
                self._fail(f"received {batch.base_offset} after {self.next_offset - 1}")
            self.next_offset, self.last_epoch = batch.last_offset + 1, batch.epoch
            self.process.cluster.note(self.process, f"commit {self.next_offset} {batch.epoch}")
            if self.leads and batch.epoch > self.leader.epoch:
                self._fail(f"leads epoch {self.leader.epoch} and receives a commit of epoch {batch.epoch}")
            index = self.process.batch_index(batch.base_offset)
            if committed[index].base_offset != batch.base_offset or committed[index].epoch != batch.epoch:
                self._fail(f"received {batch.base_offset} of epoch {batch.epoch}, not {committed[index]}")
            value = self.pending.pop(batch.last_offset, None)
            if value is not None:
                if batch.values[-1] != value:
                    self._fail(f"answers {value!r} with {batch.values[-1]!r} at {batch.last_offset}")
                self.process.cluster.acknowledged[value] = batch.last_offset

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.epoch < self.leader.epoch:
            self._fail(f"is notified of epoch {leader.epoch} after {self.leader.epoch}")
        if leader.leader_id == self.process.id and self.last_epoch != leader.epoch:
            self._fail(f"leads epoch {leader.epoch}, but received records up to epoch {self.last_epoch} only")
        self.leader = leader
        self.process.cluster.note(self.process, leader)
        self.pending.clear()

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None:
        if snapshot_id.end_offset <= self.next_offset:
            self._fail(f"received snapshot {snapshot_id} after {self.next_offset - 1}")
        self.next_offset, self.last_epoch = snapshot_id.end_offset, snapshot_id.epoch

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None:
        """The state is the sequence of commits itself, so nothing is kept here."""

    def finish_snapshot(self) -> None:
        self.pending.clear()

    def propose(self, value: bytes, records: int) -> None:
        node = self.process.node
        assert node is not None and self.leads
        offset = node.propose(self.leader.epoch, [value] * records)
        self.pending[offset] = value

    def _fail(self, detail: str) -> None:
        raise InvariantViolation("commits are delivered once and in order", f"{self.process.id} {detail}")


class NodeProcess:
    """A node that can be started, stopped and killed; also its view for invariants."""

    def __init__(self, cluster: NodeWorld[NodeProcess], key: ReplicaKey) -> None:
        self.cluster = cluster
        self.key = key
        self.id = key.id
        self.rng = random.Random(cluster.seed * 1013 + key.id)
        self.disk = MemoryDisk(recorded_calls=0)
        format_log(self.disk, DIRECTORY, now_ms=0, may_vote=cluster.voters.is_voter(key))
        self.incarnation = 0
        self.node: WatchedNode | None = None
        self.log: Log | None = None
        self.executor: SimExecutor | None = None
        self.listener = Listener(self)
        self.candidates: dict[int, ReplicaKey] = {}
        self.batches: list[StoredBatch] = []
        self._index_of: dict[int, int] = {}
        self._durable_ends: dict[
            str, tuple[int, int]
        ] = {}  # of each file: the position read so far, and the end offset there

    # --- what the invariants look at ------------------------------------------------------------------

    @property
    def core_state(self) -> CoreState:
        assert self.node is not None and self.node._core is not None
        return self.node._core.state

    def batch_index(self, offset: int) -> int:
        return self._index_of.get(offset, len(self.batches))

    @property
    def voters_in_log(self) -> VoterSet:
        """The voter set that the node uses: it is not checked against the log here."""
        return self.core_state.voters

    def candidate_of(self, token: int) -> ReplicaKey:
        return self.candidates[token]

    @property
    def durable_election(self) -> ElectionState:
        content = self._durable_files().get(QUORUM_STATE_FILE)
        return ElectionState() if content is None else decode_quorum_state(content)

    @property
    def durable_end_offset(self) -> int:
        """The end offset of the contiguous whole batches on the medium."""
        end_offset = 0
        files = self._durable_files()
        for name in sorted(name for name in files if name.endswith(".log")):
            if int(name[:20]) != end_offset:
                break
            content = files[name]
            position, end_offset = self._durable_ends.get(name, (0, end_offset))
            if position < len(content):
                size_bytes = 0
                for at, header in _whole_batches(content[position:]):
                    size_bytes, end_offset = at + header.size_bytes, header.next_offset
                self._durable_ends[name] = position + size_bytes, end_offset
        return end_offset

    def _durable_files(self) -> dict[str, bytes]:
        directory = self.disk._find(DIRECTORY)
        if directory is None:
            return {}
        return {
            name: bytes(inode.data[: inode.durable_bytes])  # type: ignore[union-attr]
            for name, inode in directory.durable.items()  # type: ignore[union-attr]
            if name == QUORUM_STATE_FILE or name.endswith(".log")
        }

    # --- life and death ---------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.node is not None and self.node._running

    async def start(self) -> None:
        assert self.node is None
        cluster = self.cluster
        clock = VirtualClock(cluster.loop)
        self.incarnation += 1
        self._durable_ends.clear()
        self.candidates.clear()
        self.executor = SimExecutor(self.rng, cluster.options.max_flush_ms)
        self.listener = Listener(self)
        self.log = Log.open(
            self.disk, DIRECTORY, LogConfig(segment_bytes=cluster.segment_bytes), now_ms=clock.wall_ms()
        )
        self.node = node = WatchedNode(
            config=cluster.config,
            cluster_id="sim",
            local=self.key,
            voters=cluster.voters,
            log=self.log,
            state_store=QuorumStateStore(self.disk, DIRECTORY),
            transport=cluster.transport(self),
            clock=clock,
            rng=self.rng,
            on_fatal=cluster.failed,
            flush_executor=self.executor,  # type: ignore[arg-type]
        )
        node.process = self
        node.register(cluster.server(self))
        await node.start([self.listener])

    def has_read_its_disk(self, storage: QuorumStorage) -> None:
        """Read back the log after a start, and check that the node has noticed lost records."""
        checker = self.cluster.checker
        self._durable_ends.clear()
        self._read_back()
        if storage.recovery is None:
            checker.recovered(self)
        elif self.id not in checker.history.lost_batches:
            raise InvariantViolation("a power loss is not taken for a loss", f"{self.id}: {storage.recovery}")
        else:
            checker.history.losses[self.id] = storage.losses

    async def stop(self) -> None:
        """Stop gracefully."""
        node, log = self.node, self.log
        assert node is not None and log is not None
        await node.stop()
        if self.node is node:
            log.close()
            self.node = None

    def lose_power_and_a_bit(self) -> bool:
        """Lose power, and flip one bit of the last batch; False if there is no batch to damage."""
        assert self.node is not None
        history, held, mark = self.cluster.checker.history, list(self.batches), self.node._storage.mark.mark
        flushed_offset = self.core_state.log.flushed_offset
        if mark is not None and mark.end_offset is not None:
            flushed_offset = max(flushed_offset, mark.end_offset)  # it may soon count on that
        self.kill(power_loss=True)
        segments = {name: data for name, data in self._durable_files().items() if name.endswith(".log")}
        newest = max(segments, default="")
        whole = list(_whole_batches(segments.get(newest, b"")))
        if not whole:
            return False
        position, header = whole[-1]
        at = position + self.rng.randrange(header.size_bytes)
        self.disk.flip_bit(f"{DIRECTORY}/{newest}", at, self.rng.randrange(8))
        lost = [b for b in held if header.base_offset <= b.base_offset and b.end_offset <= flushed_offset]
        if lost:
            history.damage(self.id, flushed_offset, lost)
        self._durable_ends.clear()
        self._drop_from_offset(header.base_offset)
        self.cluster.checker.storage_shrank()
        return True

    def kill(self, *, power_loss: bool) -> None:
        """Kill the process. A power loss drops or tears unflushed writes; kill -9 keeps them."""
        node, executor = self.node, self.executor
        if node is None or executor is None:
            return
        executor.alive = False
        self.incarnation += 1
        node._halt()
        self.node = None
        if not power_loss:
            return
        self.disk.crash(self.rng)
        self._durable_ends.clear()
        self._drop_from_offset(self.durable_end_offset)
        self.cluster.checker.storage_shrank()

    def effect_done(self, effect: Effect) -> None:
        assert self.log is not None
        end_offset = self.batches[-1].end_offset if self.batches else 0
        if self.log.log_end_offset < end_offset:
            self._durable_ends.clear()
            self._drop_from_offset(self.log.log_end_offset)
            self.cluster.checker.storage_shrank()
        elif self.log.log_end_offset > end_offset:
            self._read_on(end_offset)
        state = self.core_state
        self.cluster.note(
            self, f"{type(effect).__name__} {state.epoch} {state.log.end_offset} {state.high_watermark}"
        )
        self.cluster.checker.effect_done(self, effect)
        if self.rng.random() < self.cluster.kill_chance.get(type(effect), 0.0):
            self.cluster.kill_between_effects(self, effect)
            raise ProcessKilledError

    # --- the log as batches -----------------------------------------------------------------------------

    def _read_back(self) -> None:
        self.batches.clear()
        self._index_of.clear()
        self._read_on(0)

    def _read_on(self, start_offset: int) -> None:
        assert self.log is not None
        for header, data in self.log.iter_batches(start_offset):
            self._index_of[header.base_offset] = len(self.batches)
            self.batches.append(
                StoredBatch(header.base_offset, header.next_offset, header.partition_leader_epoch, data)
            )

    def _drop_from_offset(self, offset: int) -> None:
        while self.batches and self.batches[-1].base_offset >= offset:
            del self._index_of[self.batches.pop().base_offset]


def _whole_batches(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch, up to the first with a damaged length."""
    with suppress(ProtocolError):
        yield from iter_headers(content)
