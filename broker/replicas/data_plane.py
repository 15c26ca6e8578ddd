"""The replicas of one broker and all parts that work on them: built and joined here, and stopped in order.

Each part is given the parts it needs, so they are built in the order of their dependencies: coordinators know
only the table; roles know the fetchers; logs report damage to the roles; the parts that apply the metadata
image and open logs know all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from pykraft.broker.config import BrokerConfig, CleanerConfig
from pykraft.broker.logs.log_cleaner import LogCleaner
from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.log_scrubber import LogScrubber
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.following.replica_fetcher import ReplicaFetchers
from pykraft.broker.replicas.leading.flush_schedule import FlushSchedule
from pykraft.broker.replicas.leading.isr_proposals import IsrProposals
from pykraft.broker.replicas.leading.log_starts import LogStarts
from pykraft.broker.replicas.maintenance import LogMaintenance
from pykraft.broker.replicas.openings import Openings
from pykraft.broker.replicas.partition.observer import UNOBSERVED, PartitionObserver
from pykraft.broker.replicas.partition_events import BrokerPartitionEvents
from pykraft.broker.replicas.placement.directory_assignments import DirectoryAssignments
from pykraft.broker.replicas.placement.log_moves import LogMoves
from pykraft.broker.replicas.placement.log_reconciler import LogReconciler
from pykraft.broker.replicas.placement.lost_replicas import LostReplicas
from pykraft.broker.replicas.placement.replica_publisher import ReplicaPublisher
from pykraft.broker.replicas.placement.replica_roles import ReplicaRoles
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.broker.replicas.ports import (
    AlterPartitionPort,
    BrokerLease,
    DirectoriesPort,
    ImageSource,
    LostReplicasPort,
    TopicCoordinator,
)
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.replica_selector import RACK_AWARE_SELECTOR
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.broker.replicas.replication_quota import ReplicationQuotas
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.broker_configs import effective_dynamic_values
from pykraft.runtime.backoff import RandomSource
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor, Workers


class DataPlane:
    """``coordinators``: the coordinators that keep their state in replicas of ``table``, by topic name.

    ``log_dirs``: with what the start found out about them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        table: ReplicaTable,
        coordinators: Mapping[str, TopicCoordinator],
        metadata: ImageSource,
        lease: BrokerLease,
        alter_partition: AlterPartitionPort,
        lost_replicas: LostReplicasPort,
        directories: DirectoriesPort,
        *,
        disk: Disk,
        clock: Clock,
        rng: RandomSource,
        streams: StreamRuntime,
        workers: Workers,
        on_fatal: FatalHandler,
        log_dirs: LogDirs | None = None,
        on_log_dir_failure: Callable[[], None] = lambda: None,
        on_growth: Callable[[], None] = lambda: None,
        observer: PartitionObserver = UNOBSERVED,
    ) -> None:
        node_id = config.node_id
        self.table = table
        self.workers = workers
        tasks = self.tasks = TaskSupervisor(on_fatal)
        worklist = self.worklist = Worklist()
        wakeups = self.wakeups = Wakeups(streams.loop, streams.budget, clock, coordinators)
        openings = self.openings = Openings(clock, wakeups)
        quotas = ReplicationQuotas()
        fetchers = self.fetchers = ReplicaFetchers(config, metadata, lease, quotas, streams, clock, tasks)
        roles = ReplicaRoles(table, worklist, fetchers, openings, coordinators, clock)
        logs = self.logs = LogManager(
            disk,
            log_dirs or LogDirs(config.log_dirs),
            build_log_config({}, config.topic_defaults),
            clock,
            workers,
            on_fatal,
            roles.handle_damage,
            on_log_dir_failure,
        )
        assignments = DirectoryAssignments(node_id, logs, metadata, directories, tasks)
        publisher = self.publisher = ReplicaPublisher(
            config, metadata, table, roles, logs, worklist, fetchers, quotas, assignments
        )
        isr_proposals = self.isr_proposals = IsrProposals(
            node_id,
            config.replica_lag_time_max_ms,
            metadata,
            lease,
            alter_partition,
            clock,
            rng,
            tasks,
        )
        events = BrokerPartitionEvents(
            logs,
            LogStarts(logs, fetchers, tasks),
            wakeups,
            isr_proposals,
            fetchers,
            tasks,
            urgent_high_watermarks=config.replica_selector_class == RACK_AWARE_SELECTOR,
        )

        def wake_readers(key: TopicPartition) -> None:
            partition = table.find(*key)
            if partition is not None:
                events.readable_again(partition)

        def producers_rebuilt(key: TopicPartition) -> None:
            partition = table.find(*key)
            if partition is not None:
                partition.producers_rebuilt()

        logs.index_rebuilds.on_rebuilt = wake_readers
        logs.producers.on_rebuilt = producers_rebuilt
        moves = self.moves = LogMoves(config, logs, table, metadata, assignments, workers, clock, rng, tasks)
        self.reconciler = LogReconciler(
            node_id,
            logs,
            metadata,
            table,
            worklist,
            publisher,
            LostReplicas(node_id, logs, metadata, lost_replicas, worklist, tasks),
            openings,
            assignments,
            moves,
            events,
            observer,
            on_growth,
        )
        FlushSchedule(logs, table, fetchers, wakeups, clock, tasks)
        scrubber = self.scrubber = LogScrubber(logs, clock, workers, tasks, config.log_scrub_bytes_per_second)
        cleaner = self.cleaner = LogCleaner(
            logs, table.last_stable_offset, partial(_cleaner_config, config, metadata), clock, workers, tasks
        )
        self.maintenance = LogMaintenance(
            config, metadata, table, logs, isr_proposals, scrubber, cleaner, clock, tasks
        )
        self.replicas = ReplicaManager(
            config, table, metadata, lease, logs, worklist, openings, scrubber, quotas, clock, tasks
        )

    async def stop(self) -> None:
        """Refuse all waiting requests and stop all work. The logs stay open.

        Whatever fails, no task is left: it would open and write logs while others are being closed.
        """
        async with AsyncExitStack() as last_to_first:
            last_to_first.push_async_callback(self.tasks.close)
            last_to_first.callback(self._refuse_waiters)
            await self.fetchers.stop()

    def _refuse_waiters(self) -> None:
        self.wakeups.close()
        for partition in (*self.table, *self.publisher.iter_deleted()):
            partition.refuse_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wakeups.run()

    async def stop_logs(self, broker_epoch: int) -> None:
        """Flush and close the logs, and record the orderly stop at ``broker_epoch``.

        -1: this process has never registered, so the logs are still as the previous process left them.
        """
        # A start that was interrupted has not opened every replica: keep the values of their checkpoint.
        high_watermarks = {key: opened.high_watermark for key, opened in self.logs.logs.items()}
        high_watermarks |= self.maintenance.high_watermarks()
        if broker_epoch < 0 and self.logs.previous_broker_epoch is not None:
            broker_epoch = self.logs.previous_broker_epoch
        await self.logs.stop(broker_epoch, high_watermarks)


def _cleaner_config(config: BrokerConfig, metadata: ImageSource) -> CleanerConfig:
    """The settings of the cleaner, with those that were changed while brokers run."""
    return config.cleaner.with_texts(effective_dynamic_values(metadata.image, config.node_id))
