"""Plans the micro-batches of one streaming query, by asking the cluster.

Runs in a process of the driver that lives as long as the query. What a restart needs is in Spark's
checkpoint, and nothing else: offsets in the form of Spark's Kafka source.

Spark stores where a micro-batch ends before it runs, but not where the first one begins: a query that fails
in its first micro-batch asks for the beginning again. A beginning that moves (the end of the logs) would have
moved by then, and records would be lost. So such a query begins with an empty micro-batch, from ``{}`` to the
offsets from which it reads; both are the same whenever they are asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pykraft.kafka_client.errors import DataLossError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.spark.discovery import Logs, partitions_of
from pykraft.spark.offsets import OffsetRange, split_ranges
from pykraft.spark.options import StreamReadOptions
from pykraft.spark.planner import ReadTask
from pykraft.spark.positions import EARLIEST, LATEST, ByTimestamp, Everywhere, OffsetSpec, PerPartition
from pykraft.spark.stream_offsets import Offsets, count_between, limit_offsets

log = logging.getLogger(__name__)


class StreamPlanner:
    """``now_ms``: a clock that only moves forward."""

    def __init__(
        self,
        logs: Logs,
        options: StreamReadOptions,
        columns: tuple[str, ...],
        now_ms: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._options = options
        self._columns = columns
        self._now_ms = now_ms
        self._begins_at: dict[TopicPartition, int] | None = None
        """Where the query reads first, if it is a new one."""
        self._target: dict[TopicPartition, int] | None = None
        """Where it ends, if it reads only what there is now."""
        self._topic_ids: dict[str, Uuid] = {}
        self._triggered_ms: int | None = None
        self.newest: dict[TopicPartition, int] | None = None
        """The ends of all logs when they were last asked for."""

    # -- where it begins -------------------------------------------------------------------------------

    async def initial_offsets(self) -> Offsets:
        """Where a new query begins; nothing if that would not be the same again."""
        begins_at = await self._find_beginning()
        return {} if _moves(self._options.starting) else begins_at

    async def _find_beginning(self) -> dict[TopicPartition, int]:
        if self._begins_at is None:
            end = self._target if self._target is not None else await self._find_ends()
            positions = await self._logs.positions(self._options.starting, end, "starting")
            first = await self._logs.starts(end)
            known = {EARLIEST: first, LATEST: end}
            self._begins_at = {
                partition: known[position][partition] if position in known else position
                for partition, position in positions.items()
            }
            self._check_beginning(self._begins_at, first, end)
        return self._begins_at

    def _check_beginning(self, begins_at: dict[TopicPartition, int], first: Offsets, end: Offsets) -> None:
        for partition, offset in begins_at.items():
            if not first[partition] <= offset <= end[partition]:
                self._report_loss(
                    f"the starting offset {offset} of {partition} is not in the log, which holds"
                    f" {first[partition]} up to {end[partition]}"
                )
                begins_at[partition] = min(max(offset, first[partition]), end[partition])

    # -- where a micro-batch ends ----------------------------------------------------------------------

    async def read_what_is_there(self) -> None:
        """The query ends where the logs end now (Trigger.AvailableNow)."""
        self._target = await self._find_ends()

    async def latest_offsets(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Where the next micro-batch ends; ``start`` if there is none yet. ``is_limited``: the limits of the
        options apply."""
        if not start and _moves(self._options.starting):
            return await self._pin_beginning()
        end = self._target if self._target is not None else await self._find_ends()
        self.newest = end
        if not is_limited:
            return end
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if least is not None and self._target is None and self._waits(count_between(start, end), least):
            return start
        if most is None:
            return end
        return limit_offsets(await self._with_new_partitions(start, end), end, most)

    async def _pin_beginning(self) -> Offsets:
        begins_at = await self._find_beginning()
        if self._target is not None:
            return begins_at
        later = {one for one in await self._find_partitions() if one not in begins_at}
        return begins_at | await self._logs.starts(later)

    def _waits(self, count: int, least: int) -> bool:
        now_ms = self._now_ms()
        last_ms, delay_ms = self._triggered_ms, self._options.max_trigger_delay_ms
        if count < least and last_ms is not None and now_ms - last_ms < delay_ms:
            return True
        self._triggered_ms = now_ms
        return False

    async def _find_ends(self) -> dict[TopicPartition, int]:
        return await self._logs.ends(await self._find_partitions())

    async def _find_partitions(self) -> list[TopicPartition]:
        is_lax = not self._options.fail_on_data_loss
        topics = await self._logs.find_topics(skips_missing=is_lax)
        for topic in topics:
            known = self._topic_ids.get(topic.name, topic.topic_id)
            self._topic_ids[topic.name] = topic.topic_id
            if known != topic.topic_id:
                self._report_loss(f"topic {topic.name} was deleted and created again")
        return partitions_of(topics, self._options, skips_missing=is_lax)

    # -- what a micro-batch reads ----------------------------------------------------------------------

    async def plan(self, start: Offsets, end: Offsets) -> list[ReadTask]:
        """The tasks of one micro-batch, the same whenever it is planned again."""
        if not start and _moves(self._options.starting):
            return []
        if missing := sorted(topic for topic, _ in end if topic not in self._topic_ids):
            log.debug("looking up the ids of %s", missing)
            await self._find_partitions()
        known = await self._with_new_partitions(start, end)
        self._report_deleted(partition for partition in start if partition not in end)
        ranges = []
        for partition, until in sorted(end.items()):
            first = known[partition]
            if until < first:
                self._report_loss(f"the end of {partition} went back from offset {first} to {until}")
            elif until > first:
                ranges.append(OffsetRange(partition.topic, partition.partition, first, until))
        options = self._options
        return [
            ReadTask(one, self._topic_ids[one.topic], self._columns, options)
            for one in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
            if one.topic in self._topic_ids
        ]

    async def _with_new_partitions(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """``start`` with the partitions that have come since: they are read from their beginning."""
        added = [partition for partition in end if partition not in start]
        begins = await self._logs.starts(added) if added else {}
        for partition, offset in begins.items():
            if offset > 0:
                self._report_loss(f"the new partition {partition} begins at offset {offset}, not at 0")
        return {**start, **begins}

    def _report_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        if deleted := sorted(partitions):
            self._report_loss(f"partitions were deleted: {', '.join(map(str, deleted))}")

    def _report_loss(self, message: str) -> None:
        if self._options.fail_on_data_loss:
            raise StreamDataLossError(message)
        log.warning("some records may be missed: %s", message)


class StreamDataLossError(DataLossError):
    """Records that the query was to read are gone, and ``failOnDataLoss`` is on."""

    def __init__(self, message: str) -> None:
        advice = "set 'failOnDataLoss' to 'false' to go on with what is there"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"some records may be missed: {message}; {advice}")


def _moves(starting: OffsetSpec) -> bool:
    """Whether a read that begins a second time begins elsewhere."""
    match starting:
        case Everywhere(position):
            return position == LATEST
        case PerPartition(positions):
            return LATEST in positions.values()
        case ByTimestamp():
            return starting.latest_if_none
