"""The periodic work of a broker on its logs: checkpoints, retention, compaction, lagging followers.

Each job runs separately, at its own interval and in small steps, so that the event loop is never held for
long. What goes wrong with one log costs the others nothing (:mod:`pykraft.broker.logs.log_work`). Decides
when a job runs; the log and the partition decide what is deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pykraft.broker.config import BrokerConfig
from pykraft.broker.logs.log_cleaner import LogCleaner
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.log_scrubber import LogScrubber
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.leading.isr_proposals import IsrProposals
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.ports import ImageSource
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.metadata_log.broker_configs import effective_dynamic_values
from pykraft.runtime.clock import Clock
from pykraft.runtime.paced import paced
from pykraft.runtime.tasks import TaskSupervisor

LAG_CHECKS_PER_STEP = 200


class LogMaintenance:
    """The periodic work of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ImageSource,
        table: ReplicaTable,
        logs: LogManager,
        isr_proposals: IsrProposals,
        scrubber: LogScrubber,
        cleaner: LogCleaner,
        clock: Clock,
        tasks: TaskSupervisor,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._table = table
        self._logs = logs
        self._isr_proposals = isr_proposals
        self._scrubber = scrubber
        self._cleaner = cleaner
        self._clock = clock
        self._tasks = tasks

    def start(self) -> None:
        config = self._config
        for interval_ms, job in (
            (config.high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks),
            (config.flush_offset_checkpoint_interval_ms, self._checkpoint),
            (config.retention_check_interval_ms, self.delete_old_segments),
            (max(1, config.replica_lag_time_max_ms // 2), self._check_lag),
        ):
            self._tasks.start(self._repeat(interval_ms, job), "log-maintenance")
        if config.log_scrub_bytes_per_second > 0:
            self._tasks.start(self._scrubber.run(), "log-scrubber")
        if config.cleaner.enable:
            self._tasks.start(self._cleaner.run(), "log-cleaner")

    async def _repeat(self, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._tasks.sleep(interval_ms)
            await job()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every replica of this broker."""
        return {(p.topic, p.index): p.high_watermark for p in self._table}

    async def _checkpoint_high_watermarks(self) -> None:
        with self._logs.work.guarding_all("checkpoint", "high watermarks"):
            await self._logs.checkpoints.write_high_watermarks(self.high_watermarks())

    async def _checkpoint(self) -> None:
        """Flush finished segments, so that a start after a crash need not check them again."""
        async for partition in paced(iter(list(self._table))):
            with self._logs.work.guarding("flush", partition.log):
                if partition.log.recovery_point < partition.log.segment_base_offsets[-1]:
                    await self._logs.flush((partition.topic, partition.index))
        with self._logs.work.guarding_all("checkpoint", "offsets"):
            await self._logs.checkpoints.write(self.high_watermarks())

    async def delete_old_segments(self) -> None:
        """Apply retention by time and size, up to the high watermark at most, and expire idle producers."""
        clock, logs = self._clock, self._logs
        retired: list[Partition] = []
        for partition in list(self._table):
            key = (partition.topic, partition.index)
            if self._table.find(*key) is not partition:
                continue  # removed since; another log may be in its directory now
            with logs.work.guarding("retention", partition.log):
                if partition.retire_old_segments(clock.wall_ms()):
                    retired.append(partition)
                logs.producers.expire(key, clock.monotonic_ms(), self._producer_id_expiration_ms())
            await self._tasks.sleep(0)
        with logs.work.guarding_all("checkpoint", "log starts"):
            await logs.checkpoints.store_log_starts((one.topic, one.index) for one in retired)
        for partition in retired:
            with logs.work.guarding("retention", partition.log):
                await logs.producers.stand_in((partition.topic, partition.index))
                logs.checkpoints.delete_retired_segments((partition.topic, partition.index))
            await self._tasks.sleep(0)

    def _producer_id_expiration_ms(self) -> int:
        values = effective_dynamic_values(self._metadata.image, self._config.node_id)
        text = values.get("producer.id.expiration.ms")
        return self._config.producer_id_expiration_ms if text is None else int(text)

    async def _check_lag(self) -> None:
        """Look for followers that lag, only where one is behind, in steps: a whole broker may be."""
        behind = self._isr_proposals.behind
        for start in range(0, len(behind), LAG_CHECKS_PER_STEP):
            self._isr_proposals.check_lag(behind[start : start + LAG_CHECKS_PER_STEP])
            await self._tasks.sleep(0)
