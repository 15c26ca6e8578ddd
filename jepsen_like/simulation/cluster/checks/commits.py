"""The invariants of whole nodes, by name; checked after every commit, response and client operation.

The metadata log as it is first delivered to any node is the reference: every other delivery, image, response
and lease is compared with it. :mod:`.model` is the state that results from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykraft.broker.membership.lifecycle import BrokerState
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.jepsen_like.simulation.cluster.checks.data_watch import DataWatch
from pykraft.jepsen_like.simulation.cluster.checks.follower_reads import FollowerReads
from pykraft.jepsen_like.simulation.cluster.checks.group_watch import GroupWatch
from pykraft.jepsen_like.simulation.cluster.checks.image_invariants import (
    check_final,
    check_image,
    check_step,
)
from pykraft.jepsen_like.simulation.cluster.checks.leadership import (
    FormerLeaders,
    find_abandoned,
    find_early_completion,
    find_ignored_loss,
    find_kept_eligible,
    find_unclean_leader,
)
from pykraft.jepsen_like.simulation.cluster.describe import describe_record
from pykraft.jepsen_like.simulation.cluster.model import Model, check_blocks_disjoint
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log import records as r
from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.view import Cluster, Machine
    from pykraft.metadata_log.controller.calls.requests import PartitionIsrChange, PartitionIsrResult
    from pykraft.quorum.core.log_shape import SnapshotId
    from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch

ONE_LOG = "commits are delivered once, in order, and the same everywhere"
ONE_ACTIVE = "at most one active controller in an epoch"
SNAPSHOT_OF_COMMITTED = "a snapshot holds what is committed"
IMAGE_EQUALITY = "image equality at equal offsets"
FOLD = "an image is the result of its records"
NO_TRACE = "uncommitted records leave no trace on a standby"
NO_ANSWER_BEFORE_COMMIT = "no answer before commit"
NEVER_LOST = "acknowledged metadata is never lost"
REGISTRATION_OFFSET = "a broker epoch is the offset of its registration"
BLOCKS_DISJOINT = "producer id blocks are disjoint"
STALE_REFUSED = "a broker epoch that is not the newest is refused"
FENCED_SERVES_NO_CLIENT = "no client is served by a broker that knows it is fenced"
LEASE = "no unreplicated write is taken while another leader may exist"
OVERDUE_WRITE = "a former leader accepts writes for less than a session"
LOSSES = "no partition counts on records that a broker may have lost"
KNOWN_STATE = "an ISR is changed only by a leader that knows the partition's current state"
CLEAN_LEADER = "a leader holds every committed record when it is elected"
HOLDER_STAYS = "a replica that holds every committed record is removed only if another one does"
MOVE_ENDS = "a reassignment ends when all added replicas are in sync"
CAUGHT_UP = "a broker is unfenced only after it has applied its own registration"
NEWEST_PROCESS = "a replica enters the ISR as the incarnation that its leader named"
DELTAS = "a delta leads from one image to the next"

_LEAVING = (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN)
_NO_WORD = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class _Committed(NamedTuple):
    last_offset: int
    epoch: int
    values: tuple[bytes, ...]


class ClusterChecker:
    """Raises :class:`InvariantViolation`; the process in which that happens halts, and the schedule ends."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        self.model = Model()
        self.data = DataWatch(self.model, self.fail, keeps_logs=world.options.keeps_tails)
        self.follower_reads = FollowerReads(self.fail, self.data.deletions.committed_to)
        self.groups = GroupWatch(self.fail, lambda: self._newest, lambda: world.loop.now_s)
        self.committed: dict[int, _Committed] = {}
        self.epoch_at: list[int] = []
        self.is_given_up = False
        """An operator lets any replica lead a partition for which no intact replica is left."""
        self.acknowledged = 0
        self.refused = 0
        self.served = 0
        self.taken_writes = 0
        self.fences = 0
        self.snapshots_loaded = 0
        self.active: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._images: dict[int, MetadataImage] = {}
        self._newest = EMPTY_IMAGE
        self._blocks: list[tuple[int, int]] = []
        self._lost_logs: dict[int, int] = {}
        self._former_leaders = FormerLeaders()

    def fail(self, name: str, detail: str) -> None:
        violation = InvariantViolation(name, detail)
        self._world.failed(violation)
        raise violation

    @property
    def end_offset(self) -> int:
        """Exclusive; of the records that are known to be committed."""
        return len(self.epoch_at)

    # --- commits ----------------------------------------------------------------------------------------

    def started(self, node: Machine) -> None:
        self._next[node.id] = 0

    def delivered(self, node: Machine, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            if batch.base_offset != self._next[node.id]:
                self.fail(ONE_LOG, f"{node.id} receives {batch.base_offset}, not {self._next[node.id]}")
            self._next[node.id] = batch.last_offset + 1
            held = _Committed(batch.last_offset, batch.epoch, batch.values)
            known = self.committed.get(batch.base_offset)
            if known is None:
                if batch.base_offset != self.end_offset:
                    self.fail(
                        ONE_LOG,
                        f"{node.id} receives a batch at {batch.base_offset}, which is inside another",
                    )
                self._commit(batch.base_offset, held)
            elif known != held:
                self.fail(
                    ONE_LOG, f"{node.id} receives {held} at {batch.base_offset}, elsewhere it is {known}"
                )
        self._world.mark(f"commit {node.id} {self._next[node.id]}")

    def snapshot_delivered(self, node: Machine, snapshot_id: SnapshotId) -> None:
        end_offset = snapshot_id.end_offset
        if not 0 < end_offset <= self.end_offset or self.epoch_at[end_offset - 1] != snapshot_id.epoch:
            self.fail(SNAPSHOT_OF_COMMITTED, f"{node.id} receives {snapshot_id}")
        if end_offset <= self._next[node.id]:
            self.fail(ONE_LOG, f"{node.id} receives {snapshot_id}, and has had {self._next[node.id]} already")
        self.snapshots_loaded += 1
        self._next[node.id] = end_offset
        self._world.log_event(node.id, f"loads a snapshot of the metadata log up to {end_offset}")

    def _commit(self, base_offset: int, batch: _Committed) -> None:
        self.committed[base_offset] = batch
        self.epoch_at += [batch.epoch] * (batch.last_offset + 1 - base_offset)
        self.model.offset = batch.last_offset
        for index, value in enumerate(batch.values):
            record = decode_record(value)
            self._check_leases(record)
            self._check_partition(record)
            self._check_caught_up(record)
            self._former_leaders.note(self.model, record, self._world.loop.now_s)
            words = describe_record(self.model, record)
            if words is not None:
                self._world.log_event("metadata", words)
            self.data.before(record)
            self.model.apply(record, base_offset + index)
            self.data.after(record)
            self._note_leader(record)
            self._check_unfenced(record)

    def _note_leader(self, record: r.Record) -> None:
        if isinstance(record, r.PartitionRecord | r.PartitionChangeRecord) and record.leader is not None:
            topic = self.model.topics[record.topic_id]
            self._world.lead(f"{topic.name}-{record.partition_id}", record.leader)

    def _check_partition(self, record: r.Record) -> None:
        everywhere = self._world.options.unclean or self.is_given_up
        for invariant, found in (
            (CLEAN_LEADER, find_unclean_leader(self.model, record, unclean_everywhere=everywhere)),
            (CLEAN_LEADER, find_kept_eligible(self.model, record)),
            (HOLDER_STAYS, find_abandoned(self.model, record)),
            (MOVE_ENDS, find_early_completion(self.model, record)),
        ):
            if found is not None:
                self.fail(invariant, found)

    def _check_caught_up(self, record: r.Record) -> None:
        match record:
            case r.BrokerRegistrationChangeRecord(broker_id, epoch, False):
                node, changed_at = (
                    self._world.nodes[broker_id],
                    self.model.brokers[broker_id].last_change_offset,
                )
                lifecycle = node.parts.lifecycle
                present = node.alive and lifecycle is not None and lifecycle.epoch == epoch
                if present and node.image.offset < changed_at:
                    detail = f"broker {broker_id} is unfenced at {node.image.offset}, changed at {changed_at}"
                    self.fail(CAUGHT_UP, detail)
                if present:
                    self._check_takes_itself_for_leader(node, node.image)

    def _check_takes_itself_for_leader(self, node: Machine, image: MetadataImage) -> None:
        """Otherwise it would lead, in an epoch from before a loss, followers that do not know of it."""
        for topic_id, topic in image.topics_by_id.items():
            known = self.model.topics.get(topic_id)
            for index, partition in enumerate(topic.partitions if known is not None else ()):
                if partition.leader == node.id != known.partitions[index].leader:  # type: ignore[union-attr]
                    detail = f"broker {node.id} is unfenced, and believes that it leads"
                    self.fail(CAUGHT_UP, f"{detail} {topic.name}-{index} at {image.offset}")

    def _check_unfenced(self, record: r.Record) -> None:
        match record:
            case r.BrokerRegistrationChangeRecord(broker_id, _, False) if self._lost_logs[broker_id]:
                counted = find_ignored_loss(self.model, broker_id, self._lost_logs[broker_id])
                if counted is not None:
                    self.fail(LOSSES, f"broker {broker_id} is unfenced, and still counted in {counted}")

    def _check_leases(self, record: r.Record) -> None:
        """No controller fences a broker that holds a lease, unless the broker requested it."""
        match record:
            case r.BrokerRegistrationChangeRecord(broker_id, epoch, True):
                self.fences += 1
                self._check_lease(broker_id, f"its epoch {epoch} is fenced")
            case r.RegisterBrokerRecord(broker_id, incarnation_id) if record.broker_epoch == r.OWN_OFFSET:
                self._lost_logs[broker_id] = record.logs_lost
                node = self._world.nodes[broker_id]
                if node.incarnation.id != incarnation_id:
                    self._check_lease(broker_id, "another process has registered")
                elif node.disk_is_new and node.directory_id in record.log_dirs:
                    node.disk_is_new = False
                    if record.logs_lost != r.LogsLost.ALL:
                        self.fail(LOSSES, f"broker {broker_id} has a new disk, and registers as {record}")

    def _check_lease(self, broker_id: int, what: str) -> None:
        node = self._world.nodes[broker_id]
        lifecycle = node.parts.lifecycle
        if not node.alive or lifecycle is None:
            return
        if lifecycle.state not in _LEAVING and lifecycle.lease_valid(node.clock.monotonic_ms()):
            self.fail(LEASE, f"broker {broker_id} holds a lease of epoch {lifecycle.epoch}, and {what}")

    def leader_announced(self, node: Machine, leader: LeaderAndEpoch) -> None:
        self._world.mark(f"leader {node.id} {leader.leader_id} {leader.epoch}")
        if leader.leader_id == node.id:
            self._world.log_event(
                node.id, f"is elected, and becomes the active controller in epoch {leader.epoch}"
            )
            self._world.lead(None, node.id)
            other = self.active.setdefault(leader.epoch, node.id)
            if other != node.id:
                self.fail(ONE_ACTIVE, f"{node.id} and {other} are active in epoch {leader.epoch}")

    # --- images -----------------------------------------------------------------------------------------

    def folded(self, node: Machine) -> None:
        """The product has applied the delivered records, or a change of leader."""
        delivered = self._next[node.id] - 1
        images = node.parts.images
        for image in images:
            self._image(node, image, delivered)
        controller = node.parts.controller
        if controller is not None and not controller.active and controller.image is not images[0]:
            self.fail(NO_TRACE, f"{node.id} holds an image of {controller.image.offset}, not {delivered}")
        if controller is not None and node.parts.has_stable_controller:
            check_final(controller.committed_image)
        self._check_deltas(node, images[0])

    def _check_deltas(self, node: Machine, image: MetadataImage) -> None:
        if node.parts.mirror is not None and not node.parts.mirror.agrees_with(image):
            self.fail(DELTAS, f"{node.id} at {image.offset}")

    def _image(self, node: Machine, image: MetadataImage, delivered: int) -> None:
        if image.offset != delivered:
            self.fail(FOLD, f"{node.id} holds an image of {image.offset}, has received up to {delivered}")
        known = self._images.get(delivered)
        if known is None:
            self._images[delivered] = image
            if delivered > self._newest.offset:
                check_image(image)
                check_step(self._newest, image)
                self._newest = image
            if delivered == self.model.offset:
                difference = self.model.differs_from(image)
                if difference is not None:
                    self.fail(FOLD, f"{node.id} at {delivered}: {difference}")
        elif known is not image and known != image:
            self.fail(IMAGE_EQUALITY, f"{node.id} at {delivered} holds {image}, elsewhere it is {known}")

    # --- answers ----------------------------------------------------------------------------------------

    def answered(self, node: Machine, rests_on: int, epoch: int | None, error: ErrorCode | None) -> None:
        """A controller sends a response based on offset ``rests_on``, its own records included."""
        if error in _NO_WORD or epoch is None:
            return
        if error is None:
            self.acknowledged += 1
        else:
            self.refused += 1
        if rests_on >= self.end_offset:
            detail = f"{node.id} answers with the state at {rests_on}, committed is {self.end_offset - 1}"
            self.fail(NO_ANSWER_BEFORE_COMMIT, detail)
        if rests_on >= 0 and self.epoch_at[rests_on] > epoch:
            detail = (
                f"{node.id} decided on {rests_on} in epoch {epoch}; epoch {self.epoch_at[rests_on]} wrote it"
            )
            self.fail(NO_ANSWER_BEFORE_COMMIT, detail)

    def topic_created(self, topic_id: Uuid, name: str) -> None:
        if self.model.ever_topics.get(topic_id) != name:
            self.fail(NEVER_LOST, f"topic {name} {topic_id.hex()} was created, but is not in the log")

    def topic_deleted(self, topic_id: Uuid, name: str | None) -> None:
        if topic_id not in self.model.ever_deleted:
            self.fail(NEVER_LOST, f"topic {name} {topic_id.hex()} was deleted, but not in the log")

    def partitions_created(self, name: str, count: int) -> None:
        if self.model.ever_counts.get(name, 0) < count:
            self.fail(NEVER_LOST, f"topic {name} was given {count} partitions, but not in the log")

    def config_altered(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        if (resource_type, name, key, value) not in self.model.ever_configs:
            self.fail(NEVER_LOST, f"{key} of {name} was set to {value}, but not in the log")

    def target_accepted(self, name: str, index: int, target: tuple[int, ...]) -> None:
        if (name, index, target) not in self.model.ever_targets:
            self.fail(NEVER_LOST, f"{name}-{index} was to move to {target}, but not in the log")

    def feature_updated(self, name: str, level: int) -> None:
        if (name, level) not in self.model.ever_features and level:
            self.fail(NEVER_LOST, f"{name} was set to {level}, but not in the log")

    def isr_answered(self, change: PartitionIsrChange, answer: PartitionIsrResult) -> None:
        """``change``: the ISR that the leader proposed, with the partition epoch that it knew."""
        name = f"{change.topic_id.hex()}-{change.index}"
        key = (change.topic_id, change.index, answer.partition_epoch)
        isr = self.model.ever_isrs.get(key)
        if isr != answer.isr:
            self.fail(NEVER_LOST, f"{name}: the response is {answer}, the log has {isr}")
        if not 0 <= answer.partition_epoch - change.partition_epoch <= 1:
            self.fail(KNOWN_STATE, f"{name}: the response to {change} is {answer}")
        joined = self.model.ever_joined[key]
        members = self.model.ever_isrs.get((*key[:2], change.partition_epoch), ())
        for member in change.new_isr:
            # The leader knows no epoch of an earlier member that has not fetched yet.
            known = member.broker_epoch >= 0 or member.broker_id not in members
            if known and joined.get(member.broker_id, member.broker_epoch) != member.broker_epoch:
                self.fail(NEWEST_PROCESS, f"{name}: {change} was proposed, {joined} joined")

    def dead_admitted(self, broker_id: int, epoch: int) -> None:
        self.fail(NEWEST_PROCESS, f"broker {broker_id} entered the ISR as the incarnation with epoch {epoch}")

    def block_allocated(self, start: int, length: int) -> None:
        if start + length > self.model.next_producer_id:
            self.fail(
                NEVER_LOST, f"producer ids {start} to {start + length - 1} were allocated without a record"
            )
        if not check_blocks_disjoint(self._blocks, start, length):
            self.fail(BLOCKS_DISJOINT, f"producer ids {start} to {start + length - 1} were allocated twice")
        self._blocks.append((start, length))

    def stale_accepted(self, broker_id: int, epoch: int, what: str) -> None:
        self.fail(STALE_REFUSED, f"{what} of broker {broker_id} with epoch {epoch} was accepted")

    # --- groups -----------------------------------------------------------------------------------------

    def exempt_groups(self, index: int) -> None:
        """The records committed so far to a partition of the offsets topic are no longer guaranteed."""
        for topic in self.model.topics.values():
            if topic.name == OFFSETS_TOPIC:
                self.groups.exempt(index, topic.partitions[index].leader_epoch)

    # --- clients of brokers -----------------------------------------------------------------------------

    def client_met(self, node: Machine) -> None:
        """A client connects to a broker and writes without waiting for the replicas."""
        lifecycle = node.parts.lifecycle
        if lifecycle is None:
            return
        if lifecycle.is_registered:
            registered = self.model.registrations.get(lifecycle.epoch)
            if registered != (node.id, node.incarnation.id):
                detail = f"broker {node.id} has epoch {lifecycle.epoch}, registered there is {registered}"
                self.fail(REGISTRATION_OFFSET, detail)
        if not node.serves:
            return
        if not lifecycle.is_registered:
            detail = f"broker {node.id} serves, although its epoch {lifecycle.epoch} was refused as stale"
            self.fail(FENCED_SERVES_NO_CLIENT, detail)
        self.served += 1
        image = node.image
        known = image.brokers.get(node.id)
        if known is None or known.fenced or known.epoch != lifecycle.epoch:
            self.fail(FENCED_SERVES_NO_CLIENT, f"broker {node.id}, epoch {lifecycle.epoch}, knows of {known}")
        if not node.takes_unreplicated_writes:
            return
        self.taken_writes += 1
        current = self.model.brokers.get(node.id)
        replaced = current is None or current.fenced or current.epoch != lifecycle.epoch
        if replaced and lifecycle.state not in _LEAVING:
            self.fail(
                LEASE, f"broker {node.id}, epoch {lifecycle.epoch}, takes a write; the log says {current}"
            )

        session_s = self._world.options.session_ms / 1000
        overdue = self._former_leaders.find_overdue(node.id, image, self._world.loop.now_s - session_s)
        if overdue is not None:
            self.fail(OVERDUE_WRITE, f"broker {node.id} takes a write for {overdue} than a session")

    # --- the end ----------------------------------------------------------------------------------------

    def everything_agrees(self) -> None:
        """All nodes are alive and have applied the whole log."""
        for node in self._world.nodes.values():
            images = node.parts.images
            self._check_deltas(node, images[0])
            for image in images:
                difference = self.model.differs_from(image)
                if image.offset == self.model.offset and difference is not None:
                    self.fail(FOLD, f"{node.id} at {image.offset}: {difference}")
        self.groups.everything_agrees(self._world.nodes.values())
