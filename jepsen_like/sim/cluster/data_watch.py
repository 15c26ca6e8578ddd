"""What must hold of the records of partitions: looked at whenever a high watermark moves, a replica truncates
its log, or begins to lead.

What a leader was the first to commit is the truth about its partition: every other replica must hold the
same below its own high watermark, and every later leader all of it. That is demanded as long as one of those
who count, in the ISR or eligible, has lost nothing of its log since it was taken in; a schedule may take more
than that away (all machines without power, an unclean election that was asked for), and then the next leader
tells a new truth. The judgement rests on the metadata log alone (:mod:`.model`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykraft.jepsen_like.sim.cluster.options import is_promised
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.metadata_log import records as r

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition import Partition
    from pykraft.jepsen_like.sim.cluster.model import Model, ModelPartition
    from pykraft.jepsen_like.sim.cluster.view import Machine
    from pykraft.kafka_protocol.records import BatchHeader

COMPLETE_LEADER = "a leader holds every committed record"
SAME_BELOW = "logs match below the high watermark"
ALL_HOLD = "what is committed is held by the whole ISR"
MONOTONE = "the high watermark never falls in a leader epoch"
NO_TRUNCATION = "what is committed is not truncated"
SEQUENCES = "per producer, batches stand in the order of their sequences, each once"
LOG_START = "the log starts at or below the high watermark"

_SEQUENCE_MASK = 0x7FFFFFFF
MIN_INSYNC_REPLICAS = 2
"""Of the topics whose records are promised."""

Key = tuple[Uuid, int]
Written = dict[tuple[int, int], bytes]
"""Batches of a topic that a workload counts on, by their base offsets and checksums."""


class Batch(NamedTuple):
    """One committed batch; its bytes stand behind the checksum."""

    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class Truth:
    """What was committed of one partition, from ``start`` to ``end_offset`` (exclusive).

    ``leader_epoch``: of the first leader that committed it. A process in an older epoch holds what was
    committed before, and nothing of that is demanded any more. ``checked``: for each machine the process and
    the offset up to which its log is known to be the same.
    """

    start: int
    end_offset: int
    leader_epoch: int
    batches: dict[int, Batch] = field(default_factory=dict)
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    checked: dict[int, tuple[int, int]] = field(default_factory=dict)
    written: Written = field(default_factory=dict)


class DataWatch:
    """``fail`` is told which invariant is broken, and how; ``on_forgiven`` of which topic and partition it is
    that nothing is demanded of any more that was committed so far. ``forgiven``: how often that was so."""

    def __init__(self, model: Model, fail: Callable[[str, str], None]) -> None:
        self._model = model
        self._fail = fail
        self._truths: dict[Key, Truth] = {}
        self._high_watermarks: dict[tuple[Uuid, int, int], int] = {}
        self._lost_at: dict[int, int] = {}
        self._copies_lost: set[tuple[int, Uuid, int]] = set()
        self._copies_damaged: set[tuple[int, Uuid, int]] = set()
        self._late: dict[Key, Written] = {}
        """What was committed by leaders that had been replaced: part of no truth yet."""
        self._late_end: dict[tuple[Uuid, int, int], int] = {}
        """Where they end, for each leader epoch."""
        self._unpromised: dict[Key, Written] = {}
        """What was committed before a moment in which it was not promised any more; it may still be there."""
        self._unpromised_epoch: dict[Key, int] = {}
        self._missed_from: dict[Key, int] = {}
        """The lowest offset at which a leader lacked some of it, even if a later leader has it again."""
        self.forgiven = 0
        self.on_forgiven: Callable[[str, int], None] | None = None
        self.committed = 0

    # --- what may be lost -------------------------------------------------------------------------------

    def tail_lost(self, broker_id: int) -> None:
        """A machine has lost what was not flushed of all logs, or all of them."""
        broker = self._model.brokers.get(broker_id)
        self._lost_at[broker_id] = -1 if broker is None else broker.epoch
        for topic_id, topic in self._model.topics.items():
            for index, partition in enumerate(topic.partitions):
                if broker_id in partition.replicas:
                    self._forgive_if_nobody_holds((topic_id, index))

    def copy_lost(self, broker_id: int, topic_id: Uuid, index: int) -> None:
        """One replica's log is not what was written any more; until it is back in sync it holds nothing.

        The damage may stay where nothing reads it, as below the recovery point of a log.
        """
        self._copies_lost.add((broker_id, topic_id, index))
        self._copies_damaged.add((broker_id, topic_id, index))
        self._forgive_if_nobody_holds((topic_id, index))

    def may_lose_tail(self, broker_id: int) -> bool:
        """Whether nothing that is promised is lost with what the machine has not flushed."""
        return all(
            self.may_lose_copy(broker_id, topic_id, index)
            for topic_id, topic in self._model.topics.items()
            for index in range(len(topic.partitions))
        )

    def may_lose_copy(self, broker_id: int, topic_id: Uuid, index: int) -> bool:
        """The same of one replica. Of topics that clients make and delete at will nothing is promised."""
        partition = self._find((topic_id, index))
        if partition is None or len(partition.replicas) < 2:
            return True
        if not is_promised(self._model.topics[topic_id].name):
            return True
        counted = {*partition.isr, *partition.elr}
        if broker_id not in counted:
            return True
        left = {*self._holders((topic_id, index), partition)} - {broker_id}
        return bool(left) and len(counted - left) < MIN_INSYNC_REPLICAS

    def before(self, record: r.Record) -> None:
        """``record`` is about to be applied to the model: a leader may be chosen who holds not everything."""
        match record:
            case r.PartitionChangeRecord(index, topic_id):
                old = self._model.topics[topic_id].partitions[index]
                proposed = self._model.ever_proposed.get((topic_id, index, old.partition_epoch), ())
                no_leader = record.leader is None or record.leader == r.NO_LEADER
                if not no_leader and record.leader not in (*old.isr, *old.elr, *proposed):
                    self._forgive((topic_id, index))
                for broker_id in record.isr or ():
                    if broker_id not in (*old.isr, *old.elr):
                        self._copies_lost.discard((broker_id, topic_id, index))

    def after(self, record: r.Record) -> None:
        """``record`` has been applied to the model."""
        if isinstance(record, r.PartitionChangeRecord) and record.isr is not None:
            self._forgive_if_nobody_holds((record.topic_id, record.partition_id))

    def _forgive_if_nobody_holds(self, key: Key) -> None:
        partition = self._find(key)
        if partition is not None and not self._holders(key, partition):
            self._forgive(key)

    def _holders(self, key: Key, partition: ModelPartition) -> list[int]:
        return [
            id
            for id in (*partition.isr, *partition.elr)
            if partition.joined[id] > self._lost_at.get(id, -2) and (id, *key) not in self._copies_lost
        ]

    def _forgive(self, key: Key) -> None:
        truth, partition = self._truths.pop(key, None), self._find(key)
        unpromised = self._unpromised.setdefault(key, {})
        unpromised.update(self._late.pop(key, {}))
        if truth is not None:
            unpromised.update(truth.written)
        if partition is not None:
            self._unpromised_epoch[key] = partition.leader_epoch
        topic = self._model.ever_topics[key[0]]
        self.forgiven += 1
        if self.on_forgiven is not None:
            self.on_forgiven(topic, key[1])

    def _find(self, key: Key) -> ModelPartition | None:
        topic = self._model.topics.get(key[0])
        return None if topic is None or key[1] >= len(topic.partitions) else topic.partitions[key[1]]

    # --- what a process does ----------------------------------------------------------------------------

    def moved(self, machine: Machine, partition: Partition) -> None:
        """The high watermark of a replica has moved."""
        key = (partition.topic_id, partition.index)
        self.retired(machine, partition)
        if partition.is_leader:
            self._check_monotone(machine, partition)
            self._check_held(partition)
        if (machine.id, *key) in self._copies_lost:
            return
        with suppress(OSError):  # what cannot be read is the product's to find out
            if partition.is_leader:
                self._commit(key, partition)
            self._compare(machine, key, partition)

    def retired(self, machine: Machine, partition: Partition) -> None:
        """Retention may have moved the log start."""
        if partition.log.log_start_offset > partition.high_watermark:
            self._fail(LOG_START, f"{machine.id}: {partition} starts at {partition.log.log_start_offset}")

    def leads(self, machine: Machine, partition: Partition) -> None:
        """A replica begins to lead."""
        truth = self._truths.get((partition.topic_id, partition.index))
        known = self._find((partition.topic_id, partition.index))
        if truth is None:
            self._note_missed((partition.topic_id, partition.index), partition.log.log_end_offset)
        if truth is None or known is None or known.leader_epoch != partition.leader_epoch:
            return
        if partition.log.log_end_offset < truth.end_offset:
            detail = (
                f"{machine.id} leads {partition} with {partition.log.log_end_offset} of {truth.end_offset}"
            )
            self._fail(COMPLETE_LEADER, detail)

    def _note_missed(self, key: Key, end_offset: int) -> None:
        if any(base_offset >= end_offset for base_offset, _ in self._unpromised.get(key, ())):
            self._missed_from[key] = min(end_offset, self._missed_from.get(key, end_offset))

    def find_missed(self, topic: str) -> dict[str, int]:
        """For each partition that missed something that was not promised: the first offset of that."""
        topics = self._model.ever_topics
        return {
            f"{topic}-{index}": offset
            for (topic_id, index), offset in self._missed_from.items()
            if topics[topic_id] == topic
        }

    def truncated(self, machine: Machine, partition: Partition) -> None:
        """A replica has cut its log."""
        truth = self._truths.get((partition.topic_id, partition.index))
        known = self._find((partition.topic_id, partition.index))
        if truth is None or known is None:
            return
        end_offset = partition.log.log_end_offset
        process, checked = truth.checked.get(machine.id, (0, truth.start))
        truth.checked[machine.id] = process, min(checked, end_offset)
        counts = machine.id in self._holders((partition.topic_id, partition.index), known)
        if counts and known.leader_epoch == partition.leader_epoch and end_offset < truth.end_offset:
            self._fail(NO_TRUNCATION, f"{machine.id}: {partition} to {end_offset} of {truth.end_offset}")

    def _check_monotone(self, machine: Machine, partition: Partition) -> None:
        if not machine.serves:
            return  # a process that lags behind takes itself for the leader that its predecessor was
        epoch = (partition.topic_id, partition.index, partition.leader_epoch)
        before = self._high_watermarks.get(epoch, 0)
        if partition.high_watermark < before:
            self._fail(MONOTONE, f"{machine.id}: {partition} from {before} to {partition.high_watermark}")
        self._high_watermarks[epoch] = partition.high_watermark

    def _check_held(self, partition: Partition) -> None:
        """As far as the leader knows: what its followers have asked for is all that it can go by."""
        for broker_id in partition.isr.committed:
            follower = partition.followers.get(broker_id)
            if follower is not None and follower.log_end_offset < partition.high_watermark:
                detail = (
                    f"{partition} at {partition.high_watermark}, {broker_id} at {follower.log_end_offset}"
                )
                self._fail(ALL_HOLD, detail)

    def _commit(self, key: Key, partition: Partition) -> None:
        known, truth = self._find(key), self._truths.get(key)
        if known is None or known.leader_epoch != partition.leader_epoch:
            self._commit_late(key, partition)
            return  # its successor is chosen: that one tells the truth
        if truth is None:
            start = partition.log.log_start_offset
            truth = self._truths[key] = Truth(start, start, partition.leader_epoch)
        if partition.high_watermark <= truth.end_offset:
            return
        if partition.log.log_start_offset > truth.end_offset:  # some records were deleted before this look
            truth.start = truth.end_offset = partition.log.log_start_offset
        counts = is_promised(partition.topic)
        for header, data in partition.log.iter_batches(truth.end_offset, partition.high_watermark):
            if header.base_offset < truth.end_offset:
                continue
            if counts:
                truth.written[header.base_offset, header.crc] = data
            truth.batches[header.base_offset] = _batch(header)
            truth.end_offset = header.next_offset
            self.committed += header.next_offset - header.base_offset
            self._check_sequence(truth, partition, header)

    def _commit_late(self, key: Key, partition: Partition) -> None:
        if not is_promised(partition.topic):
            return
        truth = self._truths.get(key)
        is_unpromised = partition.leader_epoch <= self._unpromised_epoch.get(key, -1)
        late = (self._unpromised if is_unpromised else self._late).setdefault(key, {})
        log_start = partition.log.log_start_offset
        if truth is None or truth.leader_epoch > partition.leader_epoch:  # offsets of another truth
            first = max(log_start, self._late_end.get((*key, partition.leader_epoch), 0))
        else:
            first = max(log_start, truth.end_offset)
        for header, data in partition.log.iter_batches(first, partition.high_watermark):
            late[header.base_offset, header.crc] = data
        self._late_end[*key, partition.leader_epoch] = partition.high_watermark

    def find_lost(self, topic: str) -> dict[str, set[tuple[int, str]]]:
        """For each partition of the topic, if it lost something that was not promised: offset and value of
        each record that was committed and is not committed any more."""
        found = {}
        for key, unpromised in self._unpromised.items():
            if self._model.ever_topics[key[0]] != topic:
                continue
            truth = self._truths.get(key)
            kept = truth.written if truth is not None else {}
            lost = {
                (record.offset, (record.value or b"").decode())
                for place, data in unpromised.items()
                if place not in kept
                for record in decode_batch(data, read_header(data))
            }
            if lost:
                found[f"{topic}-{key[1]}"] = lost
        return found

    def _check_sequence(self, truth: Truth, partition: Partition, header: BatchHeader) -> None:
        if header.producer_id < 0:
            return
        epoch, last, end_offset = truth.sequences.get(header.producer_id, (-1, -1, 0))
        expected = (last + 1) & _SEQUENCE_MASK if header.producer_epoch == epoch else 0
        # A producer whose records have all been deleted is unknown, and may go on with any sequence.
        start_offset = max(truth.start, partition.log.log_start_offset)
        if header.base_sequence != expected and (end_offset > start_offset or start_offset == 0):
            self._fail(SEQUENCES, f"{partition}: {header} after epoch {epoch}, sequence {last}")
        truth.sequences[header.producer_id] = header.producer_epoch, header.last_sequence, header.next_offset

    def _compare(self, machine: Machine, key: Key, partition: Partition) -> None:
        truth = self._truths.get(key)
        if truth is None or partition.leader_epoch < truth.leader_epoch:
            return
        process, checked = truth.checked.get(machine.id, (0, 0))
        if process != machine.starts:
            checked = 0
        first = max(checked, truth.start, partition.log.log_start_offset)
        end_offset = min(partition.high_watermark, truth.end_offset)
        if first < end_offset:
            for header in partition.log.iter_headers(first, end_offset):
                if truth.batches.get(header.base_offset) != _batch(header):
                    if (machine.id, *key) in self._copies_damaged:
                        break
                    known = truth.batches.get(header.base_offset)
                    detail = f"{machine.id}: {partition} holds {header}, committed is {known}"
                    self._fail(SAME_BELOW, detail)
        truth.checked[machine.id] = machine.starts, max(first, end_offset)


def _batch(header: BatchHeader) -> Batch:
    return Batch(header.next_offset, header.partition_leader_epoch, header.crc)
