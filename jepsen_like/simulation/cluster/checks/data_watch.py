"""The invariants of partitions' records, checked at every advance, truncation and change of leader.

The records that a leader commits first are the reference of its partition: every other replica must hold the
same below its own high watermark, and every later leader must hold all of them. This is required as long as
one replica of the ISR or the eligible replicas has lost no part of its log since it became a member. A
schedule may destroy more than that (a power loss of all machines, a requested unclean election); then the log
of the next leader is the new reference. The decision is based on the metadata log alone (:mod:`.model`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykraft.jepsen_like.simulation.cluster.checks.deletion_watch import DeletionWatch
from pykraft.jepsen_like.simulation.cluster.options import is_guaranteed
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, read_header
from pykraft.metadata_log import records as r
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.runtime.simulated.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.jepsen_like.simulation.cluster.model import Model, ModelPartition
    from pykraft.jepsen_like.simulation.cluster.view import Machine
    from pykraft.log_store.log.log import Log

COMPLETE_LEADER = "a leader holds every committed record"
SAME_BELOW = "logs match below the high watermark"
ALL_HOLD = "what is committed is held by the whole ISR"
MONOTONE = "the high watermark never falls in a leader epoch"
NO_TRUNCATION = "what is committed is not truncated"
SEQUENCES = "per producer, batches are in the order of their sequences, each once"

_SEQUENCE_MASK = 0x7FFFFFFF
MIN_INSYNC_REPLICAS = 2
"""``min.insync.replicas`` of the topics whose records are guaranteed."""

Key = tuple[Uuid, int]
Written = dict[tuple[int, int], bytes]
KeyAndValue = tuple[bytes | None, bytes | None]
"""Batches of a topic that a workload counts on, by their base offsets and checksums."""


class Batch(NamedTuple):
    """One committed batch; the checksum stands for its bytes."""

    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class Reference:
    """The committed records of one partition, from ``start`` to ``end_offset`` (exclusive).

    ``leader_epoch``: of the first leader that committed it. A process in an older epoch holds records that
    were committed before, and these are no longer required. ``checked``: for each machine the process and
    the offset up to which its log is known to be the same. ``is_doubtful``: some of it was read from a copy
    that had been damaged: no other copy is held against it. ``records``: of a log that is compacted.
    """

    start: int
    end_offset: int
    leader_epoch: int
    is_doubtful: bool = False
    batches: dict[int, Batch] = field(default_factory=dict)
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    checked: dict[int, tuple[int, int]] = field(default_factory=dict)
    written: Written = field(default_factory=dict)
    records: dict[int, KeyAndValue] = field(default_factory=dict)


class DataWatch:
    """``fail`` is called with the invariant that is broken, and how. ``keeps_logs``: no machine loses a part
    of its logs, so the last leader holds what was committed even if its process ended without notice.
    ``on_exempted`` is called with the topic and the partition whose records committed so far are no longer
    required. ``exempted``: how often that happened."""

    def __init__(self, model: Model, fail: Callable[[str, str], None], *, keeps_logs: bool = False) -> None:
        self._model = model
        self._fail = fail
        self._keeps_logs = keeps_logs
        self._references: dict[Key, Reference] = {}
        self._high_watermarks: dict[tuple[Uuid, int, int], int] = {}
        self._lost_at: dict[int, int] = {}
        self._copies_lost: set[tuple[int, Uuid, int]] = set()
        self._copies_damaged: set[tuple[int, Uuid, int]] = set()
        self.deletions = DeletionWatch(model, fail, self._copies_damaged)
        self._late: dict[Key, Written] = {}
        """Records committed by leaders that had been replaced: not yet part of any reference."""
        self._late_end: dict[tuple[Uuid, int, int], int] = {}
        """The end offset of each leader epoch."""
        self._unguaranteed: dict[Key, Written] = {}
        """Records committed before they were no longer guaranteed; they may still exist."""
        self._unguaranteed_epoch: dict[Key, int] = {}
        self._missed_from: dict[Key, int] = {}
        """The lowest offset at which a leader lacked some of these, even if a later leader has them again."""
        self._began_at: dict[tuple[int, Uuid, int], int] = {}
        """Where replicas last began an empty log: they know no producers of what is below."""
        self._knows_from: dict[tuple[Uuid, int, int], int] = {}
        """The same of the leader of each leader epoch."""
        self._repeats: dict[Key, set[tuple[int, str]]] = {}
        self._is_forgetting = False  # the record that is being applied makes replicas ineligible
        self.exempted = 0
        self.on_exempted: Callable[[str, int], None] | None = None
        self.committed = 0

    # --- what may be lost -------------------------------------------------------------------------------

    def tail_lost(self, broker_id: int) -> None:
        """A machine has lost the unflushed part of all its logs, or all its logs."""
        broker = self._model.brokers.get(broker_id)
        self._lost_at[broker_id] = -1 if broker is None else broker.epoch
        for topic_id, topic in self._model.topics.items():
            for index, partition in enumerate(topic.partitions):
                if broker_id in partition.replicas:
                    self._exempt_if_no_replica_holds((topic_id, index))

    def copy_lost(self, broker_id: int, topic_id: Uuid, index: int) -> None:
        """One replica's log was damaged; until it is in sync again it counts as empty.

        Damage that is not read may remain, for example below the recovery point of a log.
        """
        self._copies_lost.add((broker_id, topic_id, index))
        self._copies_damaged.add((broker_id, topic_id, index))
        self._exempt_if_no_replica_holds((topic_id, index))

    def may_lose_tail(self, broker_id: int) -> bool:
        """Whether no guaranteed record is lost with the unflushed part of the machine's logs."""
        return all(
            self.may_lose_copy(broker_id, topic_id, index)
            for topic_id, topic in self._model.topics.items()
            for index in range(len(topic.partitions))
        )

    def may_lose_copy(self, broker_id: int, topic_id: Uuid, index: int) -> bool:
        """The same for one replica; true for topics that clients create and delete at will."""
        partition = self._find((topic_id, index))
        if partition is None or len(partition.replicas) < 2:
            return True
        if not is_guaranteed(self._model.topics[topic_id].name):
            return True
        counted = {*partition.isr, *partition.elr}
        if broker_id not in counted:
            return True
        left = {*self._holders((topic_id, index), partition)} - {broker_id}
        return bool(left) and len(counted - left) < MIN_INSYNC_REPLICAS

    def before(self, record: r.Record) -> None:
        """``record`` is about to be applied: it may elect a leader that lacks committed records."""
        match record:
            case r.PartitionChangeRecord(index, topic_id):
                old = self._model.topics[topic_id].partitions[index]
                proposed = self._model.ever_proposed.get((topic_id, index, old.partition_epoch), ())
                no_leader = record.leader is None or record.leader == r.NO_LEADER
                if not no_leader and record.leader not in (*old.isr, *old.elr, *proposed, *self._last(old)):
                    self._exempt((topic_id, index))
                for broker_id in record.isr or ():
                    if broker_id not in (*old.isr, *old.elr):
                        self._copies_lost.discard((broker_id, topic_id, index))
                self._is_forgetting = self._may_forget(old, record)

    def _may_forget(self, old: ModelPartition, record: r.PartitionChangeRecord) -> bool:
        """Whether replicas that are eligible are forgotten with a reason: the feature is taken back, as in
        Kafka, or their brokers may have lost a part of their logs."""
        if record.eligible_leader_replicas is None:
            return False
        forgotten = {*old.elr} - {*record.eligible_leader_replicas} - {*(record.isr or ())}
        brokers = (self._model.brokers.get(id) for id in forgotten)
        return ELIGIBLE_LEADER_REPLICAS_VERSION not in self._model.features or all(
            broker is None or broker.logs_lost != r.LogsLost.NOTHING for broker in brokers
        )

    def after(self, record: r.Record) -> None:
        """``record`` has been applied to the model."""
        if isinstance(record, r.PartitionChangeRecord) and (record.isr is not None or self._is_forgetting):
            self._exempt_if_no_replica_holds((record.topic_id, record.partition_id))

    def _exempt_if_no_replica_holds(self, key: Key) -> None:
        partition = self._find(key)
        if partition is not None and not self._holders(key, partition):
            self._exempt(key)

    def _holders(self, key: Key, partition: ModelPartition) -> list[int]:
        known = [
            id
            for id in (*partition.isr, *partition.elr)
            if partition.joined[id] > self._lost_at.get(id, -2) and (id, *key) not in self._copies_lost
        ]
        return known or [*self._last(partition)]

    def _last(self, partition: ModelPartition) -> tuple[int, ...]:
        """The leader that was left when no replica was known to be complete."""
        return partition.last_known_elr if self._keeps_logs and not partition.isr else ()

    def _exempt(self, key: Key) -> None:
        reference, partition = self._references.pop(key, None), self._find(key)
        unguaranteed = self._unguaranteed.setdefault(key, {})
        unguaranteed.update(self._late.pop(key, {}))
        if reference is not None:
            unguaranteed.update(reference.written)
        if partition is not None:
            self._unguaranteed_epoch[key] = partition.leader_epoch
        self.deletions.exempt(key)
        topic = self._model.ever_topics[key[0]]
        self.exempted += 1
        if self.on_exempted is not None:
            self.on_exempted(topic, key[1])

    def _find(self, key: Key) -> ModelPartition | None:
        topic = self._model.topics.get(key[0])
        return None if topic is None or key[1] >= len(topic.partitions) else topic.partitions[key[1]]

    # --- what a process does ----------------------------------------------------------------------------

    def moved(self, machine: Machine, partition: Partition) -> None:
        """The high watermark of a replica has moved."""
        key = (partition.topic_id, partition.index)
        self.deletions.moved(machine, partition)
        if partition.is_leader:
            self.deletions.committed(partition)
            self._check_monotone(machine, partition)
            self._check_held(partition)
        if (machine.id, *key) in self._copies_lost:
            return
        with suppress(OSError), _without_faults(partition.log):  # the product has to find bad sectors
            if partition.is_leader:
                self._commit(key, partition, is_damaged=(machine.id, *key) in self._copies_damaged)
            self._compare(machine, key, partition)

    def leads(self, machine: Machine, partition: Partition) -> None:
        """A replica becomes leader."""
        self.deletions.leads(machine, partition)
        place = (partition.topic_id, partition.index)
        self._knows_from[*place, partition.leader_epoch] = self._began_at.get((machine.id, *place), 0)
        reference = self._references.get((partition.topic_id, partition.index))
        known = self._find((partition.topic_id, partition.index))
        if reference is None:
            self._note_missed((partition.topic_id, partition.index), partition.log.log_end_offset)
        if reference is None or known is None or known.leader_epoch != partition.leader_epoch:
            return
        if partition.log.log_end_offset < reference.end_offset:
            end = reference.end_offset
            detail = f"{machine.id} leads {partition} with {partition.log.log_end_offset} of {end}"
            self._fail(COMPLETE_LEADER, detail)

    def _note_missed(self, key: Key, end_offset: int) -> None:
        if any(base_offset >= end_offset for base_offset, _ in self._unguaranteed.get(key, ())):
            self._missed_from[key] = min(end_offset, self._missed_from.get(key, end_offset))

    def find_missed(self, topic: str) -> dict[str, int]:
        """For each partition with a leader that lacked records without guarantee: their first offset."""
        topics = self._model.ever_topics
        return {
            f"{topic}-{index}": offset
            for (topic_id, index), offset in self._missed_from.items()
            if topics[topic_id] == topic
        }

    def began_anew(self, machine: Machine, partition: Partition) -> None:
        """A replica has dropped its log, and begins at the log start of its leader."""
        place = (machine.id, partition.topic_id, partition.index)
        self._began_at[place] = partition.log.log_start_offset
        self.truncated(machine, partition)

    def truncated(self, machine: Machine, partition: Partition) -> None:
        """A replica has truncated its log."""
        reference = self._references.get((partition.topic_id, partition.index))
        known = self._find((partition.topic_id, partition.index))
        if reference is None or known is None:
            return
        end_offset = partition.log.log_end_offset
        process, checked = reference.checked.get(machine.id, (0, reference.start))
        reference.checked[machine.id] = process, min(checked, end_offset)
        counts = machine.id in self._holders((partition.topic_id, partition.index), known)
        if counts and known.leader_epoch == partition.leader_epoch and end_offset < reference.end_offset:
            self._fail(NO_TRUNCATION, f"{machine.id}: {partition} to {end_offset} of {reference.end_offset}")

    def _check_monotone(self, machine: Machine, partition: Partition) -> None:
        if not machine.serves:
            return  # a process that lags behind takes itself for the leader that its predecessor was
        epoch = (partition.topic_id, partition.index, partition.leader_epoch)
        before = self._high_watermarks.get(epoch, 0)
        if partition.high_watermark < before:
            self._fail(MONOTONE, f"{machine.id}: {partition} from {before} to {partition.high_watermark}")
        self._high_watermarks[epoch] = partition.high_watermark

    def _check_held(self, partition: Partition) -> None:
        """As far as the leader knows: it knows only the fetch offsets of its followers."""
        for broker_id in partition.isr.committed:
            follower = partition.followers.get(broker_id)
            if follower is not None and follower.log_end_offset < partition.high_watermark:
                detail = (
                    f"{partition} at {partition.high_watermark}, {broker_id} at {follower.log_end_offset}"
                )
                self._fail(ALL_HOLD, detail)

    def _commit(self, key: Key, partition: Partition, *, is_damaged: bool) -> None:
        known, reference = self._find(key), self._references.get(key)
        if known is None or known.leader_epoch != partition.leader_epoch:
            self._commit_late(key, partition)
            return  # its successor is elected: its log is the reference
        if reference is None:
            start = partition.log.log_start_offset
            reference = self._references[key] = Reference(start, start, partition.leader_epoch)
        if partition.high_watermark <= reference.end_offset:
            return
        if partition.log.log_start_offset > reference.end_offset:  # records were deleted before this look
            reference.start = reference.end_offset = partition.log.log_start_offset
        counts = is_guaranteed(partition.topic)
        for header, data in partition.log.iter_batches(reference.end_offset, partition.high_watermark):
            if header.base_offset < reference.end_offset:
                continue
            if counts:
                _note(reference.written, header, data)
            reference.batches[header.base_offset] = _batch(header)
            if partition.log.config.is_compacted:
                reference.records.update(_records(header, data))
            reference.is_doubtful |= is_damaged
            reference.end_offset = header.next_offset
            self.committed += header.next_offset - header.base_offset
            if self._check_sequence(reference, partition, header, is_damaged=is_damaged) and counts:
                records = ((one.offset, (one.value or b"").decode()) for one in decode_batch(data, header))
                self._repeats.setdefault(key, set()).update(records)

    def _commit_late(self, key: Key, partition: Partition) -> None:
        if not is_guaranteed(partition.topic):
            return
        reference = self._references.get(key)
        is_unguaranteed = partition.leader_epoch <= self._unguaranteed_epoch.get(key, -1)
        late = (self._unguaranteed if is_unguaranteed else self._late).setdefault(key, {})
        log_start = partition.log.log_start_offset
        if (
            reference is None or reference.leader_epoch > partition.leader_epoch
        ):  # offsets of another reference
            first = max(log_start, self._late_end.get((*key, partition.leader_epoch), 0))
        else:
            first = max(log_start, reference.end_offset)
        for header, data in partition.log.iter_batches(first, partition.high_watermark):
            _note(late, header, data)
        self._late_end[*key, partition.leader_epoch] = partition.high_watermark

    def find_lost(self, topic: str) -> dict[str, set[tuple[int, str]]]:
        """For each partition of the topic that lost records which were not guaranteed: offset and value of
        each record that was committed and no longer is."""
        found = {}
        for key, unguaranteed in self._unguaranteed.items():
            if self._model.ever_topics[key[0]] != topic:
                continue
            reference = self._references.get(key)
            kept = reference.written if reference is not None else {}
            lost = {
                (record.offset, (record.value or b"").decode())
                for place, data in unguaranteed.items()
                if place not in kept
                for record in decode_batch(data, read_header(data))
            }
            if lost:
                found[f"{topic}-{key[1]}"] = lost
        return found

    def _check_sequence(
        self, reference: Reference, partition: Partition, header: BatchHeader, *, is_damaged: bool
    ) -> bool:
        """Whether the batch may repeat one that was deleted: a leader that began an empty log behind all
        batches of a producer does not know it, as in Kafka. ``is_damaged``: a producer id or a sequence may
        have rotted.
        """
        if header.producer_id < 0:
            return False
        epoch, last, end_offset = reference.sequences.get(header.producer_id, (-1, -1, 0))
        if header.producer_epoch < epoch and not is_damaged:
            self._fail(SEQUENCES, f"{partition}: {header} after epoch {epoch}")
        # Written by a coordinator: the end of a transaction, or its offsets.
        if header.base_sequence < 0:
            if header.producer_epoch > epoch:
                reference.sequences[header.producer_id] = header.producer_epoch, -1, header.next_offset
            return False
        expected = (last + 1) & _SEQUENCE_MASK if header.producer_epoch == epoch else 0
        # A producer whose records have all been deleted is unknown, and may continue with any sequence.
        start_offset = max(reference.start, partition.log.log_start_offset)
        is_known = end_offset > start_offset or start_offset == 0
        if header.base_sequence != expected and is_known and not is_damaged:
            self._fail(SEQUENCES, f"{partition}: {header} after epoch {epoch}, sequence {last}")
        reference.sequences[header.producer_id] = (
            header.producer_epoch,
            header.last_sequence,
            header.next_offset,
        )
        epoch_of_leader = (partition.topic_id, partition.index, header.partition_leader_epoch)
        may_repeat = 0 < end_offset <= self._knows_from.get(epoch_of_leader, 0)
        return may_repeat and not is_known and header.base_sequence != expected

    def find_repeated(self, topic: str) -> dict[str, set[tuple[int, str]]]:
        """For each partition of the topic offset and value of records that may repeat deleted ones."""
        return {
            f"{topic}-{index}": set(repeats)
            for (topic_id, index), repeats in self._repeats.items()
            if self._model.ever_topics[topic_id] == topic
        }

    def _compare(self, machine: Machine, key: Key, partition: Partition) -> None:
        reference = self._references.get(key)
        if reference is None or partition.leader_epoch < reference.leader_epoch:
            return
        process, checked = reference.checked.get(machine.id, (0, 0))
        if process != machine.starts:
            checked = 0
        first = max(checked, reference.start, partition.log.log_start_offset)
        end_offset = min(partition.high_watermark, reference.end_offset)
        is_doubtful = reference.is_doubtful or (machine.id, *key) in self._copies_damaged
        if first < end_offset and not is_doubtful:
            find = _find_other_record if partition.log.config.is_compacted else _find_other_batch
            if found := find(partition.log, reference, first, end_offset):
                self._fail(SAME_BELOW, f"{machine.id}: {partition} holds {found}")
        reference.checked[machine.id] = machine.starts, max(first, end_offset)


def _without_faults(log: Log) -> AbstractContextManager[None]:
    """Read without the disk's faults: what a leader commits meanwhile is answered, so it must be known."""
    return log.disk.without_faults() if isinstance(log.disk, MemoryDisk) else nullcontext()


def _note(written: Written, header: BatchHeader, data: bytes) -> None:
    """Note a committed batch. One that has rotted since it was appended was noted then, or never answered."""
    if crc_is_valid(data, 0, header):
        written[header.base_offset, header.crc] = data


def _find_other_batch(log: Log, reference: Reference, first: int, end_offset: int) -> str | None:
    for header in log.iter_headers(first, end_offset):
        known = reference.batches.get(header.base_offset)
        if header.base_offset >= first and known != _batch(header):  # else the log starts within it
            return f"{header}, committed is {known}"
    return None


def _find_other_record(log: Log, reference: Reference, first: int, end_offset: int) -> str | None:
    """Each replica compacts its own log: batches differ, but no record becomes another."""
    for header, data in log.iter_batches(first, end_offset):
        for offset, record in _records(header, data).items():
            if (known := reference.records.get(offset, record)) != record:
                return f"{record} at {offset}, committed is {known}"
    return None


def _records(header: BatchHeader, data: bytes) -> dict[int, KeyAndValue]:
    if not crc_is_valid(data, 0, header):
        return {}
    return {record.offset: (record.key, record.value) for record in decode_batch(data, header)}


def _batch(header: BatchHeader) -> Batch:
    return Batch(header.next_offset, header.partition_leader_epoch, header.crc)
