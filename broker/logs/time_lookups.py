"""Finds offsets by timestamp (ListOffsets) in worker threads, whatever happens to the log meanwhile."""

from __future__ import annotations

import asyncio

from pykraft.broker.logs.index_rebuilds import IndexRebuilds
from pykraft.broker.logs.log_table import LogTable
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.interface import DAMAGE_ERRORS, TimestampOffset
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.reading import BadIndexError, ReadableSegment
from pykraft.runtime.tasks import Workers


class TimeLookups:
    """One look-up at a time: a batch may unfold to a hundred times its size."""

    def __init__(self, table: LogTable, rebuilds: IndexRebuilds, workers: Workers) -> None:
        self._table = table
        self._rebuilds = rebuilds
        self._workers = workers
        self._looking_up = asyncio.Lock()

    async def look_up(self, log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
        """See :meth:`Log.prepare_lookup`. Errors of the disk are those of the log as it is now."""
        built: set[ReadableSegment] = set()
        async with self._looking_up:
            while True:
                try:
                    job = log.prepare_lookup(timestamp_ms)
                except BadIndexError as error:
                    self._refuse_unused(log)  # or nobody builds it again
                    if error.segment in built:
                        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
                    built.add(error.segment)
                    await self._rebuilds.until_rebuilt(error.segment)
                    continue
                try:
                    found = await self._workers.run(job.run)
                    if log.rewrite_count == job.truncations:
                        return found
                except DAMAGE_ERRORS as damage:
                    self._refuse_unused(log)  # its files may be deleted, and it is not the replica's any more
                    if log.is_damage(damage, job.truncations):  # otherwise the log was cut meanwhile
                        raise

    def _refuse_unused(self, log: Log) -> None:
        """KAFKA_STORAGE_ERROR for a log that was deleted, moved or taken offline meanwhile."""
        if self._table.find(log) is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.directory} is no longer in use")
