"""Three brokers and one partition: every kind of restart, idempotent producers, retention, recreation.

Covers what :mod:`test_partition_simulation` does not: the checkpoint files (these are real log managers),
orderly stops, kills, power losses and wiped disks, retention, a topic deleted and created again under its
name, retries of idempotent batches at the current leader, answers read from a leader's files only after it
was deposed.

It stands beside the simulation of whole nodes (ring 2) for what that leaves out or seldom does:

* a power loss may leave zeros where the written bytes were;
* a topic is created again under its name while producers retry and brokers still hold the log of the old one
  (of topics that come and go, and of records that retention deletes, ring 2 keeps no history);
* an answer is read from a deposed leader's files after they were truncated or deleted;
* the three brokers end about twenty times in 1,500 steps, in four ways, so that restarts meet each other.

Planted bugs that need it: what is known of producers after a truncation
(``producers-outlive-a-cut-by-one``), a retry that waits for its original
(``waiting-duplicate-is-never-refused``), and the high watermark of a log that starts over
(``restart-keeps-the-high-watermark``). It is long because the world, its faults and its invariants read the
same few fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.partition.isr import IsrProposal
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import LogConfig, LogSlice
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.at_once import AtOnce, Logs, now
from tests.broker.crash import abandon
from tests.broker.isr_controller import IsrWorld, between, log_values, values_of
from tests.clocks import ManualClock
from tests.unexpected import unexpected

NODES = (1, 2, 3)
KEY = ("t", 0)
LAG_MS = 300
CONFIG = LogConfig(segment_bytes=700, min_insync_replicas=2, retention_bytes=1600, retention_ms=-1)


class Events:
    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...
    def state_changed(self, partition: Partition) -> None: ...

    def log_start_moved(self, partition: Partition) -> None:
        now(self._logs.checkpoints.store_log_starts([KEY]))
        partition.log_start_stored()

    def producers_lost(self, partition: Partition) -> None:
        now(self._logs.producers.rebuild(KEY, partition.high_watermark))

    def storage_failed(self, partition: Partition, error: Exception) -> None:
        raise AssertionError(f"{partition}: {error}")

    def replication_failed(self, partition: Partition, error: Exception) -> None:
        raise error


@dataclass(eq=False)
class Batch:
    """One batch of an idempotent producer, sent until it is acknowledged."""

    producer: int
    sequence: int
    is_open: bool = False
    offset: int = -1
    acknowledged: bool = False

    @property
    def value(self) -> bytes:
        return b"%d-%d" % (self.producer, self.sequence)

    def offset_committed(self) -> None:
        self.is_open, self.acknowledged = False, True

    def offset_refused(self, error_code: int) -> None:
        self.is_open = False


@dataclass(eq=False)
class LateAnswer:
    """A leader's answer still in its output queue: the bytes are read when they are sent."""

    follower: Partition
    epoch: int
    piece: LogSlice
    high_watermark: int
    log_start: int


@dataclass
class Node:
    node_id: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    logs: Logs | None = None
    partition: Partition | None = None
    topic_id: Uuid = ZERO_UUID
    epoch: int = 0
    #: After a power loss a truncated tail may be back: nothing is known until the replica has fetched.
    is_synced: bool = True
    lost_power: bool = False
    inbox: list[tuple[Uuid, PartitionRegistration]] = field(default_factory=list)

    @property
    def replica(self) -> Partition:
        assert self.partition is not None
        return self.partition


class World(IsrWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, NODES)
        self.generation = 0
        self.nodes = {n: Node(n) for n in NODES}
        self.next_producer = 0
        self.start_topic()
        for node in self.nodes.values():
            self.start(node)

    # -- the controller --------------------------------------------------------------------------------

    def start_topic(self) -> None:
        """Create the topic, or delete it and create it again."""
        self.generation += 1
        self.topic_id = Uuid(b"%016d" % self.generation)
        active = [n for n in NODES if n not in self.fenced]
        self.state = PartitionRegistration(NODES, tuple(active), active[0], 0, 0)
        self.proposals: list[tuple[int, int, Partition, IsrProposal]] = []
        self.late_fetches: list[tuple[Uuid, int, int, int, int, int, int]] = []
        self.late_answers: list[LateAnswer] = []
        self.batches: list[Batch] = []
        self.producers = [self.next_producer, self.next_producer + 1]
        self.next_producer += 2
        self.next_sequence = dict.fromkeys(self.producers, 0)
        self.consumed: dict[int, bytes] = {}
        self.notify()

    def notify(self) -> None:
        for node in self.nodes.values():
            node.inbox.append((self.topic_id, self.state))

    def take_isr(self, isr: tuple[int, ...]) -> None:
        if isr != self.state.isr:
            self.counts["isr"] += 1
            self.change(isr=isr)

    # -- nodes -----------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        """A new incarnation: it registers (and leaves the ISR unless alone there), then opens its log."""
        self.fence(node.node_id)
        node.epoch = self.epochs[node.node_id] = self.next_epoch
        self.next_epoch += 1

        def damage(key: tuple[str, int]) -> None:
            raise AssertionError(f"{key} is damaged")

        node.logs = Logs(node.disk, ("/d",), CONFIG, ManualClock(1), AtOnce(), unexpected, damage)
        now(node.logs.start())
        if node.logs.offline:
            # A power loss may zero so little of a rolled segment that it looks like damage: start it empty.
            assert node.lost_power, node.logs.offline[KEY].reason
            self.counts["refused"] += 1
            node.disk = MemoryDisk()
            node.logs = Logs(node.disk, ("/d",), CONFIG, ManualClock(1), AtOnce(), unexpected, damage)
            now(node.logs.start())
        node.inbox.clear()
        self.open(node, self.topic_id)
        node.inbox.append((self.topic_id, self.state))
        self.unfence(node.node_id)

    def open(self, node: Node, topic_id: Uuid) -> None:
        assert node.logs is not None
        (opened,) = now(node.logs.open_or_create([(*KEY, topic_id, CONFIG)]))
        node.topic_id = topic_id
        node.partition = Partition(
            "t",
            topic_id,
            0,
            node.node_id,
            opened.log,
            self.events(node, node.logs),
            producers=opened.producers,
            high_watermark=opened.high_watermark,
        )

    def events(self, node: Node, logs: LogManager) -> Events:
        return Events(logs)

    def end(self, node: Node, how: str) -> None:
        """Orderly stop, kill, loss of power or of the whole disk; the last two only next to a full copy."""
        others = [n for n in self.state.isr if n != node.node_id and self.nodes[n].partition is not None]
        others = [n for n in others if self.nodes[n].topic_id == self.topic_id and self.nodes[n].is_synced]
        if how in ("power", "wipe") and not others:
            how = "kill"
        self.counts[how] += 1
        assert node.logs is not None
        partition = node.replica
        for waiter in partition.committed_waiters.pop_all():
            waiter.offset_refused(ErrorCode.NETWORK_EXCEPTION)
        if how == "stop":
            now(node.logs.stop(node.epoch, {KEY: partition.high_watermark}))
        elif how == "power":
            node.disk.crash(self.rng, zero_tails=True)
        elif how == "wipe":
            node.disk = MemoryDisk()
        else:
            abandon(node.logs)
        node.partition = node.logs = None
        node.lost_power = how == "power"
        node.is_synced = how in ("stop", "kill") and node.is_synced
        self.fence(node.node_id)

    def apply_metadata(self, node: Node) -> None:
        if node.partition is None or not node.inbox:
            return
        topic_id, registration = node.inbox.pop(0)
        if topic_id != node.topic_id:
            node.replica.leader_id = None
            node.replica.refuse_waiters(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if self.rng.random() < 0.5:
                assert node.logs is not None
                now(node.logs.delete([KEY]))
            self.open(node, topic_id)
            node.is_synced = True
        node.replica.apply(registration, self.now_ms)

    # -- clients and maintenance
    # ----------------------------------------------------------------------------------

    def produce(self, node: Node) -> None:
        """Each producer sends its unacknowledged batches, oldest first, three at most; then a new one."""
        if node.topic_id != self.topic_id:
            return
        for producer in self.producers:
            waiting = [b for b in self.batches if b.producer == producer and not b.acknowledged]
            if len(waiting) < 3:
                waiting.append(Batch(producer, self.next_sequence[producer]))
                self.next_sequence[producer] += 1
                self.batches.append(waiting[-1])
            for position, batch in enumerate(waiting):
                if not batch.is_open and not self.send(node.replica, batch, is_oldest=position == 0):
                    break

    def send(self, partition: Partition, batch: Batch, *, is_oldest: bool) -> bool:
        data = bytearray(
            encode_batch(
                [RecordInput(None, batch.value, (), 1)],
                producer_id=batch.producer,
                producer_epoch=0,
                base_sequence=batch.sequence,
            )
        )
        try:
            partition.require_leader()
            end_offset = partition.log.log_end_offset
            info = partition.append_as_leader(memoryview(data), read_header(data), 1, all_acks=True)
        except KafkaError as error:
            if error.code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH):
                assert not is_oldest or self.is_stale(partition), f"OldestIsInSequence: {error}"
            return False
        if info.base_offset < end_offset:
            self.counts["duplicate"] += 1
        batch.is_open, batch.offset = True, info.base_offset
        if partition.high_watermark >= info.next_offset:
            batch.offset_committed()
        else:
            partition.committed_waiters.add(info.next_offset, batch)
        return True

    def is_stale(self, partition: Partition) -> bool:
        return partition.topic_id != self.topic_id or partition.leader_epoch < self.state.leader_epoch

    def fetch(self, node: Node) -> None:
        partition = node.replica
        leader_id = partition.leader_id
        if leader_id is None or partition.is_leader:
            return
        log = partition.log
        request = (
            node.topic_id,
            node.node_id,
            node.epoch,
            partition.leader_epoch,
            log.log_end_offset,
            log.latest_epoch,
            log.stored_log_start_offset,
        )
        draw = self.rng.random()
        if draw < 0.08:
            self.late_fetches.append(request)
            return
        answer = self.serve(self.nodes[leader_id], request)
        if draw < 0.16 or answer is None:
            return
        restart, diverging, piece, high_watermark, log_start = answer
        assert node.logs is not None
        if restart or diverging is not None:
            if restart:
                partition.restart_at(log_start)
                self.counts["restart_at"] += 1
            else:
                partition.truncate_to_divergence(*diverging)
                self.counts["truncate"] += 1
            return
        if piece is not None and draw < 0.3:
            self.late_answers.append(
                LateAnswer(partition, partition.leader_epoch, piece, high_watermark, log_start)
            )
            return
        if piece is not None:
            partition.append_as_follower(memoryview(piece.file.pread(piece.position, piece.size_bytes)), 1)
        partition.follow(high_watermark, log_start)
        node.is_synced = True

    def deliver_answer(self) -> None:
        if not self.late_answers:
            return
        late = self.late_answers.pop(self.rng.randrange(len(self.late_answers)))
        partition = late.follower
        is_here = any(node.partition is partition for node in self.nodes.values())
        if not is_here or partition.leader_epoch != late.epoch or partition.is_leader:
            return
        try:
            data = late.piece.file.pread(late.piece.position, late.piece.size_bytes)
        except OSError:
            return  # the leader is gone
        if len(data) < late.piece.size_bytes:
            return  # it had to close the connection
        try:
            partition.append_as_follower(memoryview(data), 1)
        except KafkaError:
            self.counts["late answer refused"] += 1
            return
        partition.follow(late.high_watermark, late.log_start)

    def serve(self, leader: Node, request: tuple[Uuid, int, int, int, int, int, int]) -> Any:
        topic_id, replica, incarnation, epoch, offset, last_epoch, log_start = request
        if leader.partition is None or leader.topic_id != topic_id:
            return None
        partition = leader.replica
        try:
            partition.require_leader(epoch)
            end = partition.check_follower(replica, offset, last_epoch)
            if end is not None:
                return False, (end.epoch, end.end_offset), None, 0, 0
            partition.handle_follower_fetch(replica, offset, incarnation, self.now_ms, log_start)
            piece = partition.read_replica(offset, self.rng.choice((80, 300, 5000)), at_least_one=True)
        except KafkaError as error:
            start = partition.log.log_start_offset
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and offset < start:
                return True, None, None, 0, start
            return None
        return False, None, piece, partition.high_watermark, partition.log.log_start_offset

    def consume(self, node: Node) -> None:
        partition = node.replica
        if not partition.is_leader or node.topic_id != self.topic_id:
            return
        log = partition.log
        offset = self.rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        piece = partition.read_committed(offset, 400, at_least_one=True)
        if piece is not None:
            for offset, value in values_of(piece.file.pread(piece.position, piece.size_bytes)):
                assert self.consumed.setdefault(offset, value) == value, "ConsistentRead"

    def maintain(self, node: Node) -> None:
        """One of the jobs of log maintenance."""
        logs, partition = node.logs, node.replica
        assert logs is not None
        job = self.rng.randrange(4)
        if job == 0:
            now(logs.flush(KEY))
        elif job == 1:
            now(logs.checkpoints.write({KEY: partition.high_watermark}))
        elif job == 2:
            now(logs.checkpoints.write_high_watermarks({KEY: partition.high_watermark}))
        else:
            # No broker remembers the batches that a producer may still retry once they are deleted and it is
            # restarted.
            limit = min([partition.high_watermark, *(b.offset for b in self.batches if not b.acknowledged)])
            if node.topic_id == self.topic_id and partition.log.retire_old_segments(1, limit_offset=limit):
                now(logs.checkpoints.store_log_starts([KEY]))
                now(logs.producers.stand_in(KEY))
                logs.checkpoints.delete_retired_segments(KEY)
                self.counts["retention"] += 1
            logs.producers.expire(KEY, 0, 1)

    def isr_work(self, node: Node) -> None:
        proposal = node.replica.next_proposal(self.now_ms, LAG_MS, self.eligible)
        if proposal is not None and node.topic_id == self.topic_id:
            self.proposals.append((node.node_id, node.epoch, node.replica, proposal))

    def deliver_proposal(self) -> None:
        if not self.proposals:
            return
        at = self.rng.randrange(len(self.proposals))
        leader, incarnation, partition, proposal = self.proposals[at]
        draw = self.rng.random()
        if draw < 0.15:  # no answer, and the request still in flight
            partition.handle_isr_refused(proposal, self.now_ms, outcome_known=False)
            return
        self.proposals.pop(at)
        error, state = self.decide(leader, incarnation, proposal)
        if draw < 0.3:
            partition.handle_isr_refused(proposal, self.now_ms, outcome_known=False)
        elif state is not None:
            partition.handle_isr_accepted(proposal, state.isr, state.partition_epoch)
        else:
            known = error is ErrorCode.INELIGIBLE_REPLICA
            partition.handle_isr_refused(proposal, self.now_ms, outcome_known=known)

    # -- steps and invariants --------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.now_ms += rng.randrange(30)
        node = self.nodes[rng.choice(NODES)]
        if node.partition is None:
            if rng.random() < 0.3:
                self.start(node)
            return
        action = rng.random()
        if action < 0.40:
            self.fetch(node)
        elif action < 0.52:
            self.produce(node)
        elif action < 0.70:
            self.apply_metadata(node)
        elif action < 0.75:
            self.consume(node)
        elif action < 0.80:
            self.isr_work(node)
        elif action < 0.87:
            self.deliver_proposal()
        elif action < 0.90:
            self.deliver_answer()
        elif action < 0.91 and self.late_fetches:
            self.serve(node, self.late_fetches.pop(rng.randrange(len(self.late_fetches))))
        elif action < 0.955:
            self.maintain(node)
        elif action < 0.965:
            self.elect()
        elif action < 0.978:
            self.end(node, rng.choice(("stop", "kill", "kill", "power", "power", "wipe")))
        elif action < 0.979 and len(self.fenced) < 2:
            self.counts["recreate"] += 1
            self.start_topic()
        else:
            while node.inbox:
                self.apply_metadata(node)

    def check(self) -> None:
        for node in self.nodes.values():
            if node.partition is not None:
                partition = node.replica
                log = partition.log
                assert log.log_start_offset <= partition.high_watermark <= log.log_end_offset, "Bounds"

    def check_logs(self) -> None:
        here = {
            n: node.replica
            for n, node in self.nodes.items()
            if node.partition is not None and node.topic_id == self.topic_id and node.is_synced
        }
        logs = {n: log_values(partition.log) for n, partition in here.items()}
        highest = max((p.high_watermark for p in here.values()), default=0)
        for a, first in here.items():
            for b, second in here.items():
                begin = max(first.log.log_start_offset, second.log.log_start_offset)
                end = min(first.high_watermark, second.high_watermark)
                assert between(logs[a], begin, end) == between(logs[b], begin, end), "LogMatching"
        for member in self.state.isr:
            if member in here and member not in self.fenced:
                log = here[member].log
                assert log.log_end_offset >= highest, f"StrongIsr: {member} ends below {highest}"
                for batch in self.batches:
                    if batch.acknowledged and batch.offset >= log.log_start_offset:
                        found = logs[member].get(batch.offset)
                        assert found == batch.value, f"AckedValueNotLost: {batch.value!r}, {found!r}"
        for n, partition in here.items():
            committed = between(logs[n], 0, partition.high_watermark)
            in_order([committed[offset] for offset in sorted(committed)], self.producers)

    def heal(self) -> None:
        for node in self.nodes.values():
            if node.partition is None:
                self.start(node)
        self.late_fetches.clear()
        self.late_answers.clear()
        target = len(self.batches) + 5
        for _ in range(4000):
            self.now_ms += 10
            for node in self.nodes.values():
                while node.inbox:
                    self.apply_metadata(node)
                self.fetch(node)
                self.deliver_answer()
                self.isr_work(node)
                self.deliver_proposal()
                if len(self.batches) < target or any(not b.acknowledged for b in self.batches):
                    self.produce(node)
            replicas = [node.replica for node in self.nodes.values()]
            if (
                len(self.batches) >= target
                and all(batch.acknowledged for batch in self.batches)
                and set(self.state.isr) == set(NODES)
                and len({(p.log.log_end_offset, p.high_watermark) for p in replicas}) == 1
                and replicas[0].high_watermark == replicas[0].log.log_end_offset
            ):
                return
        raise AssertionError("no progress after healing")


def in_order(values: Sequence[bytes], producers: Sequence[int]) -> None:
    for producer in producers:
        sequences = [int(v.split(b"-")[1]) for v in values if v.startswith(b"%d-" % producer)]
        expected = list(range(sequences[0], sequences[0] + len(sequences))) if sequences else []
        assert sequences == expected, f"ExactlyOnceInOrder: {producer} wrote {sequences}"
