"""The replicas of this broker as requests find them: look-ups, and checks whether a request may be served.

Refusals name the reason: no such topic, no replica here, a damaged log, a broker that is fenced or past its
lease. :mod:`~pykraft.broker.replicas.placement.replica_publisher` and
:mod:`~pykraft.broker.replicas.placement.log_reconciler` decide which replicas there are, and
:mod:`~pykraft.broker.replicas.partition.partition` what one of them answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.broker.config import BrokerConfig
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.log_scrubber import LogScrubber
from pykraft.broker.replicas.openings import Openings
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.broker.replicas.ports import BrokerLease, ImageSource
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.replicas.replication_quota import ReplicationQuotas
from pykraft.kafka_protocol.connection import Holdable
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.log_store.segment.reading import BadIndexError
from pykraft.runtime.clock import Clock
from pykraft.runtime.network.file_slices import FileSlice
from pykraft.runtime.tasks import TaskSupervisor


class ReplicaManager:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        table: ReplicaTable,
        metadata: ImageSource,
        lease: BrokerLease,
        logs: LogManager,
        worklist: Worklist,
        openings: Openings,
        scrubber: LogScrubber,
        quotas: ReplicationQuotas,
        clock: Clock,
        tasks: TaskSupervisor,
    ) -> None:
        self.node_id = config.node_id
        self.table = table
        self.metadata = metadata
        self.lease = lease
        self.clock = clock
        self.quotas = quotas
        self._logs = logs
        self._worklist = worklist
        self._openings = openings
        self._scrubber = scrubber
        self._largest_sent_bytes = config.replica_fetch_max_bytes
        self._tasks = tasks

    def by_name(self, topic: str, index: int) -> Partition:
        """The local replica, or the :class:`KafkaError` that says why there is none."""
        partitions = self.table.by_name.get(topic)
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
        partitions = self.table.by_id.get(topic_id)
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

    def _refuse_if_offline(self, topic: str, index: int) -> None:
        if (topic, index) in self._logs.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} on this broker is damaged"
            )
        if (topic, index) in self._logs.unavailable:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{index} on this broker failed"
            )

    @property
    def is_reconciled(self) -> bool:
        """Whether every log that the image assigns to this broker is open, or reported as lost."""
        return self._worklist.idle.is_set()

    def hold_until_open(
        self, connection: Holdable, asked: Iterable[tuple[str | None, Uuid | None, int]]
    ) -> bool:
        """Hold a client's connection with its current frame if this broker is about to lead one of ``asked``.

        ``asked``: (topic name, topic id, index), with a name or an id. Returns whether it is held: its frame
        is then handled again when the log is open and the replica leads.
        """
        if self.is_reconciled:
            return False
        for name, topic_id, index in asked:
            key = self._find_opening(name, topic_id, index)
            if key is not None and self._openings.hold(connection, key):
                self._worklist.prioritize(key)
                return True
        return False

    def _find_opening(self, name: str | None, topic_id: Uuid | None, index: int) -> tuple[str, int] | None:
        image = self.metadata.image
        topic = image.topic(name or "") if topic_id is None else image.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        registration = topic.partitions[index]
        key = (topic.name, index)
        if registration.leader != self.node_id or key in self._logs.offline or key in self._logs.unavailable:
            return None
        partition = self.table.by_id.get(topic.id, {}).get(index)
        is_there = partition is not None and partition.leader_epoch >= registration.leader_epoch
        return None if is_there else key

    def refuse_if_fenced(self) -> None:
        """Raise :class:`KafkaError` if this broker knows that it is fenced: it then serves no client."""
        if self.lease.is_fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is fenced")

    def refuse_past_lease(self) -> None:
        """Raise :class:`KafkaError` if the lease has expired: other leaders may have been elected, and only a
        commit by the whole ISR still proves that this one leads.
        """
        if not self.lease.lease_valid(self.clock.monotonic_ms()):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost contact with the controller"
            )

    def check_sent(self, partition: Partition, offset: int) -> None:
        """A follower asks again for records that were sent to it: check whether they are damaged."""
        self._check_stored(partition, offset, self._largest_sent_bytes)

    def check_epoch(self, partition: Partition, offset: int) -> None:
        """A reader has read ``offset`` in another leader epoch than this log has there: check that batch."""
        if partition.log.log_start_offset <= offset < partition.log.log_end_offset:
            self._check_stored(partition, offset, 0)

    def _check_stored(self, partition: Partition, offset: int, max_bytes: int) -> None:
        try:
            piece = partition.read_replica(offset, max_bytes, at_least_one=True)
        except BadIndexError:
            return  # it will be asked again
        except STORAGE_ERRORS as error:
            partition.storage_failed(error)
            return
        if piece is not None:
            look = self._scrubber.check_slice((partition.topic, partition.index), piece)
            self._tasks.start(look, "check-what-was-sent")

    def check_unsent(self, piece: FileSlice) -> None:
        """A file range could not be read while it was sent to a client: check whether its log is damaged."""
        self._tasks.start(self._scrubber.check_unsent(piece), "check-what-was-not-sent")
