"""Plans the micro-batches of one streaming query, by asking the cluster.

Runs in a process of the driver that lives as long as the query. What a restart needs is in Spark's
checkpoint, and nothing else: offsets in the form of Spark's Kafka source.

Spark stores where a micro-batch ends before it runs, but not where it begins to read partitions that are new
to it: a query that is restarted asks for that again. By then the ends of the logs have moved, and so may have
their beginnings (retention): the micro-batch would be cut into other tasks, and a sink that knows tasks by
their number would lose rows or write them twice. So partitions that are new are not read yet: the micro-batch
only stores the offsets from which the next ones read them. The first micro-batch, from ``{}``, is empty.

The tasks of a micro-batch follow from its two ends and the options alone, whatever became of the logs since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from pykraft.kafka_client.errors import DataLossError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.spark.discovery import Logs, partitions_of
from pykraft.spark.offsets import OffsetRange, split_ranges
from pykraft.spark.options import StreamReadOptions
from pykraft.spark.planner import ReadTask
from pykraft.spark.positions import EARLIEST, LATEST
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
        self._is_first = True
        """No micro-batch was asked for yet."""
        self._target: dict[TopicPartition, int] | None = None
        """Where it ends, if it reads only what there is now."""
        self._topic_ids: dict[str, Uuid] = {}
        self._triggered_ms: int | None = None
        self.newest: dict[TopicPartition, int] | None = None
        """The ends of all logs when they were last asked for."""

    # -- where partitions begin ------------------------------------------------------------------------

    async def _find_beginnings(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """The beginnings of partitions that are not in ``start``. A new query begins as its options say;
        those that come later are read from their beginning."""
        is_first, self._is_first = self._is_first, False
        if is_first and not start:
            return await self._find_starting(end)
        added = [partition for partition in end if partition not in start]
        begins = await self._logs.starts(added) if added else {}
        for partition, offset in begins.items():
            if offset > 0:
                self._report_loss(f"the new partition {partition} begins at offset {offset}, not at 0")
        return begins

    async def _find_starting(self, end: Offsets) -> dict[TopicPartition, int]:
        positions = await self._logs.positions(self._options.starting, end, "starting")
        first = await self._logs.starts(end)
        known = {EARLIEST: first, LATEST: end}
        begins = {
            partition: known[position][partition] if position in known else position
            for partition, position in positions.items()
        }
        self._check_beginning(begins, first, end)
        return begins

    def _check_beginning(self, begins: dict[TopicPartition, int], first: Offsets, end: Offsets) -> None:
        for partition, offset in begins.items():
            if not first[partition] <= offset <= end[partition]:
                self._report_loss(
                    f"the starting offset {offset} of {partition} is not in the log, which holds"
                    f" {first[partition]} up to {end[partition]}"
                )
                begins[partition] = min(max(offset, first[partition]), end[partition])

    # -- where a micro-batch ends ----------------------------------------------------------------------

    async def read_what_is_there(self) -> None:
        """The query ends where the logs end now (Trigger.AvailableNow)."""
        self._target = await self._find_ends()

    async def latest_offsets(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Where the next micro-batch ends, perhaps at ``start``. ``is_limited``: by the options' limits."""
        end = self._target if self._target is not None else await self._find_ends()
        self.newest = end
        begins = await self._find_beginnings(start, end)
        if not start:
            return begins
        known = {partition: until for partition, until in end.items() if partition in start}
        return {**(self._limit(start, known) if is_limited else known), **begins}

    def _limit(self, start: Offsets, end: Offsets) -> Offsets:
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if least is not None and self._target is None and self._waits(count_between(start, end), least):
            return start
        return end if most is None else limit_offsets(start, end, most)

    def _waits(self, count: int, least: int) -> bool:
        now_ms = self._now_ms()
        last_ms, delay_ms = self._triggered_ms, self._options.max_trigger_delay_ms
        if count < least and last_ms is not None and now_ms - last_ms < delay_ms:
            return True
        self._triggered_ms = now_ms
        return False

    async def _find_ends(self) -> dict[TopicPartition, int]:
        """Without what is deleted meanwhile, if losses are allowed."""
        partitions = await self._find_partitions()
        while True:
            try:
                return await self._logs.ends(partitions)
            except KafkaError as error:
                is_gone = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if self._options.fail_on_data_loss or not is_gone:
                    raise
                left = await self._find_partitions()
                if left == partitions:
                    raise
                partitions = left

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
        """A micro-batch's tasks, always the same: without ``failOnDataLoss`` gone records keep places."""
        self._report_deleted(partition for partition in start if partition not in end)
        ranges = []
        for partition, until in sorted(end.items()):
            first = start.get(partition, until)
            if until < first:
                self._report_loss(f"the end of {partition} went back from offset {first} to {until}")
            elif until > first:
                ranges.append(OffsetRange(partition.topic, partition.partition, first, until))
        await self._find_ids({one.topic for one in ranges})
        options = self._options
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [self._task(one) for one in pieces]

    async def _find_ids(self, topics: set[str]) -> None:
        """A query that was restarted does not know them yet."""
        if topics <= self._topic_ids.keys():
            return
        await self._find_partitions()
        if gone := sorted(topics - self._topic_ids.keys()):
            self._report_loss(f"topics were deleted: {', '.join(gone)}")

    def _task(self, wanted: OffsetRange) -> ReadTask:
        """An empty one if there is nothing to read it from."""
        topic_id = self._topic_ids.get(wanted.topic)
        if topic_id is None:
            wanted, topic_id = replace(wanted, end=wanted.start), ZERO_UUID
        return ReadTask(wanted, topic_id, self._columns, self._options)

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
