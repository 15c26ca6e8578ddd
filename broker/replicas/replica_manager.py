"""All replicas on this broker: which there are, what role each has, and who waits for them.

The metadata image says what should be here; a worker opens and deletes logs until it is so, and only then do
partitions take part. Decides who may be served (lease and fencing); all that concerns one replica is decided
in :mod:`pykraft.broker.replicas.partition`. It is long because clients, followers and the image come in here
by one table of replicas and one lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from pykraft.broker.config import BrokerConfig
from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.log_scrubber import LogScrubber
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.isr_proposals import IsrProposals
from pykraft.broker.replicas.lost_replicas import LostReplicas
from pykraft.broker.replicas.openings import Openings
from pykraft.broker.replicas.partition import Partition
from pykraft.broker.replicas.ports import (
    AlterPartitionPort,
    BrokerLease,
    HighWatermarkListener,
    ImageSource,
    LeadershipListener,
    LostReplicasPort,
)
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.connection import Connection
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import DAMAGE_ERRORS, STORAGE_ERRORS, CorruptLogError, LogConfig
from pykraft.log_store.reader import read_checked
from pykraft.metadata_log.broker_configs import broker_wide_topic_configs, concerns_broker
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.runtime.backoff import Chance
from pykraft.runtime.clock import Clock
from pykraft.runtime.streams import FileSlice
from pykraft.runtime.tasks import FaultHandler

logger = logging.getLogger(__name__)

OPENED_PER_STEP = 16

_TURN_COST = 8_000
_LOCAL_COST = 16
"""A turn of the event loop applies changed partitions until they have cost so much: 1 for one elsewhere, this
for one that is here."""
RECONFIGURED_PER_STEP = 32
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class FollowerFetchers(Protocol):
    """Copies from leaders what this broker follows (:mod:`pykraft.broker.replicas.replica_fetcher`)."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's present leader, in its present epoch."""
        ...

    def unfollow(self, partition: Partition) -> None: ...
    def brokers_changed(self, image: MetadataImage) -> None: ...


class ReplicaManager:
    """See the module. A metadata publisher; comes behind the metadata cache."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        metadata: ImageSource,
        lease: BrokerLease,
        controller: AlterPartitionPort,
        clock: Clock,
        chance: Chance,
        on_fault: FaultHandler,
        *,
        lost_replicas: LostReplicasPort,
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.clock = clock
        self.logs = logs
        self.metadata = metadata
        self.lease = lease
        self._isr_proposals = IsrProposals(
            config.node_id,
            config.replica_lag_time_max_ms,
            metadata,
            lease,
            controller,
            clock,
            chance,
            self,
        )
        self._lost = LostReplicas(
            config.node_id, logs, metadata, lost_replicas, self.spawn, self.sleep, self._mark_key_dirty
        )
        logs.on_damage = self._log_damaged
        self.scrubber = LogScrubber(logs, clock, self.sleep, config.log_scrub_bytes_per_second)
        self._on_fault = on_fault
        self._topic_defaults = config.topic_defaults
        self._fetchers: FollowerFetchers | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[Uuid, dict[int, Partition]] = {}
        self._changed: deque[tuple[int, Iterator[tuple[Uuid, int]]]] = deque()
        self._applied_offset = -1
        self._dirty: dict[TopicPartition, None] = {}
        self._work = asyncio.Event()
        self._is_working = False
        self._worker: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.wakeups = Wakeups(clock)
        self._openings = Openings(clock, self.wakeups)
        self._urgent: dict[TopicPartition, None] = {}
        self._leadership_listeners: list[LeadershipListener] = []

    # -- life ------------------------------------------------------------------------------------------

    def set_fetchers(self, fetchers: FollowerFetchers) -> None:
        """Who copies from leaders; set once, before :meth:`start`."""
        self._fetchers = fetchers

    async def start(self) -> None:
        """Begin to open what the image assigns to this broker. The log manager is started before.

        Only once the image holds at least this incarnation's registration: by an older one the worker would
        delete logs of topics that it does not know yet.
        """
        self._loop = asyncio.get_running_loop()
        self.wakeups.attach(self._loop)
        self._worker = self._loop.create_task(self._reconcile())
        self._worker.add_done_callback(self.task_done)

    async def stop(self) -> None:
        """Refuse whoever waits and stop working. Logs stay open; the log manager is stopped after."""
        self._is_stopped = True
        if self._worker is not None:
            self._worker.cancel()
        for task in list(self._tasks):
            task.cancel()
        self.wakeups.close()
        for partition in self.partitions():
            partition.refuse_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wakeups.run()
        await asyncio.gather(*self._tasks, *([self._worker] if self._worker else []), return_exceptions=True)

    def add_high_watermark_listener(self, callback: HighWatermarkListener, topic: str) -> None:
        """Call ``callback`` whenever a high watermark of ``topic`` has moved."""
        self.wakeups.add_listener(callback, topic)

    def add_leadership_listener(self, callback: LeadershipListener) -> None:
        """Call ``callback`` when this broker begins to lead (its log open) or leads no more."""
        self._leadership_listeners.append(callback)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run a task that ends with this object; none is begun once it has ended."""
        assert self._loop is not None
        if self._is_stopped:
            work.close()
            return
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self.task_done)

    async def sleep(self, duration_ms: int) -> None:
        """For tasks run by :meth:`spawn`."""
        await asyncio.sleep(duration_ms / 1000)

    def task_done(self, task: asyncio.Task[None]) -> None:
        """A background task has ended; if it failed, that is a bug and the node has to stop."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._on_fault("replica manager", error)

    def storage_failed(self, partition: Partition, error: OSError | CorruptLogError) -> None:
        """A log can no longer be used.

        What its files show costs this replica only; any other error of the disk costs the node, since nothing
        on it can be trusted then.
        """
        if isinstance(error, DAMAGE_ERRORS):
            self._take_offline(partition, error)
        else:
            self._on_fault(partition.log.directory, error)

    def _log_damaged(self, key: TopicPartition, error: Exception) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            self._take_offline(partition, error)

    def _take_offline(self, partition: Partition, error: Exception) -> None:
        """Serve and copy it no more; the worker sets its directory aside and has the controller told."""
        key = (partition.topic, partition.index)
        if self._partitions.get(key) is not partition:
            return
        logger.error("%s is taken offline: %s", partition, error)
        self.logs.take_offline(key, error)
        self._drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)

    # -- looking up ------------------------------------------------------------------------------------

    def partitions(self) -> Iterator[Partition]:
        """Every replica here, by topic and index."""
        for key in sorted(self._partitions):
            yield self._partitions[key]

    def find(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def by_name(self, topic: str, index: int) -> Partition:
        """The local replica, or the :class:`KafkaError` that says why there is none."""
        partitions = self._by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is not None:
            return partition
        image = self.metadata.image.topic(topic)
        self._refuse_if_offline(topic, index)
        if image is None or not 0 <= index < len(image.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not here")

    def by_id(self, topic_id: Uuid, index: int) -> Partition:
        """The local replica, or the :class:`KafkaError` that says why there is none."""
        partitions = self._by_id.get(topic_id)
        partition = partitions.get(index) if partitions is not None else None
        if partition is not None:
            return partition
        image = self.metadata.image.topic_by_id(topic_id)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        self._refuse_if_offline(image.name, index)
        if not 0 <= index < len(image.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{image.name}-{index} does not exist")
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{image.name}-{index} is not here")

    def hold_until_open(
        self, connection: Connection, asked: Iterable[tuple[str | None, Uuid | None, int]]
    ) -> bool:
        """Hold a client's connection with its present frame if this broker is about to lead one of ``asked``.

        ``asked``: (topic name, topic id, index), name or id. True if it is held: its frame is handed over
        again when the log is open and the replica leads.
        """
        if self.is_settled:
            return False
        for name, topic_id, index in asked:
            key = self._find_opening(name, topic_id, index)
            if key is not None and self._openings.hold(connection, key):
                if key in self._dirty:
                    self._urgent[key] = None
                return True
        return False

    def _find_opening(self, name: str | None, topic_id: Uuid | None, index: int) -> TopicPartition | None:
        image = self.metadata.image
        topic = image.topic(name or "") if topic_id is None else image.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        registration = topic.partitions[index]
        if registration.leader != self.node_id or (topic.name, index) in self.logs.offline:
            return None
        partition = self._by_id.get(topic.id, {}).get(index)
        is_there = partition is not None and partition.leader_epoch >= registration.leader_epoch
        return None if is_there else (topic.name, index)

    def _refuse_if_offline(self, topic: str, index: int) -> None:
        if (topic, index) in self.logs.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} is damaged here")

    def refuse_if_fenced(self) -> None:
        """A broker that knows it is fenced serves no client."""
        if self.lease.is_fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is fenced")

    def refuse_past_lease(self) -> None:
        """Past its lease a broker may have been replaced: only a commit by the whole ISR can be believed."""
        if not self.lease.lease_valid(self.clock.monotonic_ms()):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with the controller"
            )

    # -- for coordinators that keep their state in a topic -----------------------------------------------

    def append_records(self, topic: str, index: int, leader_epoch: int, batch: bytes) -> int:
        """Append one batch (any offset) with the guarantees of acks=all; returns its exclusive end offset.

        It is committed once the high watermark has reached that offset. :class:`KafkaError` if this broker is
        not the leader in ``leader_epoch`` or too few replicas are in sync.
        """
        self.refuse_if_fenced()
        partition = self.by_name(topic, index)
        partition.require_leader(leader_epoch)
        data = memoryview(bytearray(batch))
        limit = partition.log.config.max_message_bytes
        if len(data) > limit:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(data)} bytes; allowed are {limit}")
        try:
            info = partition.append_as_leader(data, read_header(data), self.clock.wall_ms(), all_acks=True)
        except STORAGE_ERRORS as error:
            self.storage_failed(partition, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return info.next_offset

    def high_watermark(self, topic: str, index: int) -> int:
        return self.by_name(topic, index).high_watermark

    async def read(self, topic: str, index: int, offset: int, max_bytes: int = 1 << 20) -> tuple[bytes, int]:
        """Whole batches from ``offset`` on up to the log end, uncommitted ones too; and the log end.

        Below the log start it reads from there. Empty at the end. KAFKA_STORAGE_ERROR if what is there is
        damaged.
        """
        partition = self.by_name(topic, index)
        log = partition.log
        start, cuts = max(offset, log.log_start_offset), log.truncation_count
        try:
            piece = partition.read_replica(start, max_bytes, at_least_one=True)
            end = log.log_end_offset
            return b"" if piece is None else await self.logs.run(partial(read_checked, piece)), end
        except STORAGE_ERRORS as error:
            if log.truncation_count != cuts:  # while it was being read: it belongs to another leader now
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} was cut") from error
            self.storage_failed(partition, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def check_sent(self, partition: Partition, offset: int) -> None:
        """A follower asks again for what it was sent: find out whether it is damaged."""
        try:
            piece = partition.read_replica(offset, self.config.replica_fetch_max_bytes, at_least_one=True)
        except STORAGE_ERRORS as error:
            self.storage_failed(partition, error)
            return
        if piece is not None:
            self.spawn(self.scrubber.check_slice((partition.topic, partition.index), piece))

    def check_unsent(self, piece: FileSlice) -> None:
        """What was read for a client could not be sent: find out whether its log is damaged."""
        self.spawn(self.scrubber.check_unsent(piece))

    # -- events of partitions ----------------------------------------------------------------------------

    def log_grew(self, partition: Partition) -> None:
        for waiter in partition.replica_waiters:
            waiter.wake()

    def high_watermark_moved(self, partition: Partition) -> None:
        for waiter in partition.consumer_waiters:
            waiter.wake()
        self.wakeups.high_watermark_moved(partition)

    def producers_lost(self, partition: Partition) -> None:
        self.spawn(self.logs.rebuild_producers((partition.topic, partition.index)))

    # -- metadata --------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Bring the replicas here in line with a newer image."""
        for topic in delta.iter_deleted_topics():
            for index in sorted(self._by_id.get(topic.id, {})):
                self._drop(self._by_id[topic.id][index])
            self._mark_dirty(topic, range(len(topic.partitions)))
        # Before the partitions: what their new ISR allows depends on how many must be in sync.
        for kind, name in sorted(delta.changed_configs):
            if kind == ConfigResourceType.TOPIC:
                self._reconfigure(name, image)
        self._reconfigure_broker_wide(delta, image)
        self._changed.append((image.offset, _changed_partitions(delta)))
        self._apply_some()
        if delta.changed_brokers and self._fetchers is not None:
            self._fetchers.brokers_changed(image)

    def _apply_some(self) -> None:
        """Bring changed partitions in line with the newest image, as many as one turn of the loop may take.

        What is left the worker goes on with. Nothing is missed by that, and nothing done twice matters: a
        partition knows by its epochs what is news.
        """
        image, cost = self.metadata.image, 0
        while self._changed and cost < _TURN_COST:
            offset, changed = self._changed[0]
            topic_id, index = next(changed, (None, -1))
            topic = None if topic_id is None else image.topic_by_id(topic_id)
            cost += 1
            if topic_id is None:
                self._changed.popleft()
                self._applied_offset = offset
            elif topic is not None:  # else deleted meanwhile: a later delta says so
                registration = topic.partitions[index]
                self._apply(topic, index, registration)
                cost += _LOCAL_COST * (self.node_id in registration.replicas)
        if self._changed:
            self._work.set()

    def _apply(self, topic: TopicImage, index: int, registration: PartitionRegistration) -> None:
        partition = self._partitions.get((topic.name, index))
        if partition is not None and (
            partition.topic_id != topic.id or self.node_id not in registration.replicas
        ):
            self._drop(partition)
            partition = None
        if partition is None:
            key = (topic.name, index)
            if self.node_id in registration.replicas or key in self.logs.logs or key in self.logs.offline:
                self._mark_dirty(topic, [index])
            return
        self._change_role(partition, registration)

    def _change_role(self, partition: Partition, registration: PartitionRegistration) -> None:
        was_leader = partition.is_leader
        if not partition.apply(registration, self.clock.monotonic_ms()):
            return
        self._openings.opened((partition.topic, partition.index))
        if partition.is_leader:
            self._unfollow(partition)
            self._tell_leadership(partition, partition.leader_epoch)
            return
        if was_leader:
            self._tell_leadership(partition, None)
        if partition.leader_id is None:
            self._unfollow(partition)
        elif self._fetchers is not None:
            self._fetchers.follow(partition)

    def _unfollow(self, partition: Partition) -> None:
        if self._fetchers is not None:
            self._fetchers.unfollow(partition)

    def _tell_leadership(self, partition: Partition, leader_epoch: int | None) -> None:
        for listener in self._leadership_listeners:
            listener(partition.topic, partition.index, leader_epoch)

    def _drop(self, partition: Partition, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        """Serve it no more; its log goes when the worker comes to it. ``code`` is told to whoever waits."""
        del self._partitions[(partition.topic, partition.index)]
        del self._by_name[partition.topic][partition.index]
        del self._by_id[partition.topic_id][partition.index]
        if not self._by_id[partition.topic_id]:
            del self._by_id[partition.topic_id]
        self._unfollow(partition)
        was_leader = partition.is_leader
        partition.leader_id = None
        partition.refuse_waiters(code)
        if was_leader:
            self._tell_leadership(partition, None)
        self._mark_key_dirty((partition.topic, partition.index))

    def _mark_key_dirty(self, key: TopicPartition) -> None:
        self._dirty[key] = None
        self._work.set()

    def _mark_dirty(self, topic: TopicImage, indexes: Sequence[int] | range) -> None:
        for index in indexes:
            self._dirty[(topic.name, index)] = None
        self._work.set()

    def _reconfigure(self, topic: str, image: MetadataImage) -> None:
        config = build_log_config(image.topic_config(topic), self._topic_defaults)
        for partition in self._by_name.get(topic, {}).values():
            _configure(partition, config, image)

    def _reconfigure_broker_wide(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over what holds for every topic, if that has changed."""
        changed: set[str] = {ELIGIBLE_LEADER_REPLICAS_VERSION} & delta.changed_features
        if any(concerns_broker(resource, self.node_id) for resource in delta.changed_configs):
            old = self._topic_defaults
            self._topic_defaults = broker_wide_topic_configs(image, self.config.topic_defaults, self.node_id)
            changed |= {
                name
                for name in old.keys() | self._topic_defaults.keys()
                if old.get(name) != self._topic_defaults.get(name)
            }
        if changed & {ELIGIBLE_LEADER_REPLICAS_VERSION, MIN_INSYNC_REPLICAS}:
            # The controller went by it in all that follows in the log: it must hold before that is applied.
            for name in sorted(self._by_name):
                self._reconfigure(name, image)
        elif changed and self._by_name:
            self.spawn(self._reconfigure_all())

    async def _reconfigure_all(self) -> None:
        """In steps: there may be many topics, and there is no hurry."""
        for done, topic in enumerate(list(self._by_name), start=1):
            self._reconfigure(topic, self.metadata.image)
            if done % RECONFIGURED_PER_STEP == 0:
                await asyncio.sleep(0)

    async def _reconcile(self) -> None:
        """Open and delete logs until what is here is what the image says."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                self._is_working = True
                while self._changed or self._dirty:
                    if self._changed:
                        self._apply_some()
                    else:
                        await self._reconcile_some()
                    await asyncio.sleep(0)  # logs that are open already were not waited for
                self._is_working = False
            except OSError as error:
                self._on_fault("log directories", error)
                return

    async def _reconcile_some(self) -> None:
        keys = self._take_dirty()
        image = self.metadata.image
        wanted, unwanted = [], []
        for topic_name, index in keys:
            topic = self._assigned(image, topic_name, index)
            if (topic_name, index) in self.logs.offline and not await self._may_open(
                topic, topic_name, index
            ):
                continue
            if topic is None:
                self._openings.opened((topic_name, index))  # it never will be
                if (topic_name, index) not in self._partitions:
                    unwanted.append((topic_name, index))
            elif (topic_name, index) not in self._partitions:
                config = build_log_config(image.topic_config(topic_name), self._topic_defaults)
                wanted.append((topic_name, index, topic.id, config))
        await self.logs.delete(unwanted)
        for opened in await self.logs.open_or_create(wanted):
            topic_name, index = opened.topic_partition
            topic = self._assigned(self.metadata.image, topic_name, index)
            if topic is None or topic.id != opened.topic_id:
                self._dirty[(topic_name, index)] = None  # changed while it was being opened
                continue
            partition = Partition(
                topic_name,
                topic.id,
                index,
                self.node_id,
                opened.log,
                self,
                producers=opened.producers,
                high_watermark=opened.high_watermark,
            )
            self._partitions[(topic_name, index)] = partition
            self._by_name.setdefault(topic_name, {})[index] = partition
            self._by_id.setdefault(topic.id, {})[index] = partition
            image = self.metadata.image  # it may have changed while the log was being opened
            _configure(
                partition, build_log_config(image.topic_config(topic_name), self._topic_defaults), image
            )
            self._change_role(partition, topic.partitions[index])

    def _take_dirty(self) -> list[TopicPartition]:
        """What to look at in one step; first what somebody waits for."""
        keys = [key for key in self._urgent if key in self._dirty][:OPENED_PER_STEP]
        for key in keys:
            del self._dirty[key]
        self._urgent = {key: None for key in self._urgent if key in self._dirty}
        keys += islice(self._dirty, OPENED_PER_STEP - len(keys))
        for key in keys:
            self._dirty.pop(key, None)
        return keys

    async def _may_open(self, topic: TopicImage | None, name: str, index: int) -> bool:
        """Whether a log that is offline is done with: another may take its place, or none is wanted."""
        await self.logs.set_aside_damaged((name, index))
        offline = self.logs.offline[name, index]
        if topic is None:
            del self.logs.offline[name, index]
            return False
        if self._lost.may_begin_anew(offline, topic, index):
            return True
        self._lost.report()
        return False

    def _assigned(self, image: MetadataImage, topic_name: str, index: int) -> TopicImage | None:
        topic = image.topic(topic_name)
        if topic is None or index >= len(topic.partitions):
            return None
        return topic if self.node_id in topic.partitions[index].replicas else None

    @property
    def is_settled(self) -> bool:
        """Whether every log that the image assigns to this broker is open, or lost to the controller's
        knowledge.
        """
        return not (self._changed or self._dirty or self._is_working) and self._lost.is_settled

    @property
    def unapplied_since(self) -> int | None:
        """Up to where all replicas have their roles, while some may lack what the image says; else None."""
        return self._applied_offset if self._changed else None

    async def set_aside_strays(self) -> None:
        """Rename the logs that the image does not know. For a broker whose image is caught up."""
        image = self.metadata.image
        strays = [
            key
            for key, opened in sorted(self.logs.logs.items())
            if key not in self._partitions
            and ((topic := self._assigned(image, *key)) is None or topic.id != opened.topic_id)
        ]
        await self.logs.set_aside(strays)
        for key in [key for key in self.logs.offline if self._assigned(image, *key) is None]:
            del self.logs.offline[key]  # nobody misses it

    # -- ISR -------------------------------------------------------------------------------------------

    def maybe_change_isr(self, partition: Partition) -> None:
        """Propose a new ISR if a follower has caught up or fallen behind."""
        self._isr_proposals.maybe_propose(partition)

    def check_lag(self) -> None:
        """Look for followers that have fallen behind; called from time to time."""
        for partition in self.partitions():
            if partition.is_leader:
                self._isr_proposals.maybe_propose(partition)


def _configure(partition: Partition, config: LogConfig, image: MetadataImage) -> None:
    partition.log.config = config
    partition.set_min_isr(config.min_insync_replicas, strict=image.elr_enabled)


def _changed_partitions(delta: MetadataDelta) -> Iterator[tuple[Uuid, int]]:
    """The changed partitions, by topic name and index; found one by one, for there may be a million."""
    for topic in delta.iter_changed_topics():
        for index in sorted(delta.changed_partitions.get(topic.id, ())):
            yield topic.id, index
