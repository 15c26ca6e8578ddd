"""A micro-batch that is planned again has the same tasks, whatever became of the logs: sinks know tasks by
their number."""

from collections.abc import Callable, Collection

import pytest

from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.metadata import Partition, Topic, TopicPartition
from pykraft.kafka_protocol.ids import Uuid
from pykraft.spark.positions import ByTimestamp, OffsetSpec
from pykraft.spark.reader import read_task
from pykraft.spark.stream_offsets import from_json
from pykraft.spark.stream_planner import StreamDataLossError
from tests.spark.test_stream_planner import Logs, Query, begun, t

Change = Callable[[Logs], None]


class DatedLogs(Logs):
    """Looked up by timestamp, the first record of each log is new enough."""

    async def positions(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        if isinstance(spec, ByTimestamp):
            return await self.starts(partitions)
        return await super().positions(spec, partitions, which)


def all_of_a_partition_expires(logs: Logs) -> None:
    logs.held[0] = (10, 10)


def part_of_a_partition_expires(logs: Logs) -> None:
    logs.held[0] = (4, 12)


def an_end_goes_back(logs: Logs) -> None:
    logs.held[0] = (0, 2)


def records_and_a_partition_come(logs: Logs) -> None:
    logs.held = [(0, 20), (0, 3), (0, 5)]


CHANGES = [
    all_of_a_partition_expires,
    part_of_a_partition_expires,
    an_end_goes_back,
    records_and_a_partition_come,
]
BEGINNINGS = [
    {"startingOffsets": "earliest"},
    {"startingOffsets": '{"t":{"0":-2,"1":-2}}'},
    {"startingTimestamp": "1"},
]
CUTS = [
    {},
    {"minPartitions": "4"},
    {"maxRecordsPerPartition": "2"},
    {"minPartitions": "7", "maxRecordsPerPartition": "4"},
    {"maxOffsetsPerTrigger": "6"},
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("begins", BEGINNINGS)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("fails", ["true", "false"])
def test_micro_batch_has_the_same_tasks_when_it_is_planned_again(
    begins: dict[str, str], cuts: dict[str, str], change: Change, fails: str
) -> None:
    logs = DatedLogs((0, 10), (0, 3))
    query = begun(logs, **begins, **cuts, failOnDataLoss=fails)
    planned = query.trigger()
    assert planned is not None and {one.partition for one in planned} == {0, 1}
    change(logs)
    query.restart()
    assert query.trigger() == planned


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_query_begins_where_it_began_though_its_first_micro_batch_fails(
    starting: str, change: Change
) -> None:
    logs = Logs((0, 10), (0, 3))
    query = Query(logs, startingOffsets=starting)
    assert query.trigger() == []
    began = query.planned
    change(logs)
    query.restart()
    assert query.trigger() == []
    query.commit()
    assert query.committed == began


@pytest.mark.parametrize("fails", ["true", "false"])
def test_partition_that_was_added_has_the_same_task_though_records_expire(fails: str) -> None:
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="earliest", failOnDataLoss=fails)
    query.read()
    logs.held = [(0, 6), (0, 7)]
    query.read()
    assert query.trigger() == [t(1, 0, 7)]
    logs.held[1] = (3, 7)
    query.restart()
    assert query.trigger() == [t(1, 0, 7)]


class TwoTopics(Logs):
    """``a`` and ``b``, unless they are deleted, of one partition each; found by a pattern."""

    names: tuple[str, ...] = ("a", "b")

    async def find_topics(self, *, skips_missing: bool = False) -> list[Topic]:
        ids = {name: Uuid(name.encode() * 16) for name in self.names}
        return [Topic(name, uuid, False, {0: Partition(name, uuid, 0, 1, 0)}) for name, uuid in ids.items()]


def test_topic_that_is_gone_when_a_micro_batch_is_planned_again_is_an_error() -> None:
    logs = TwoTopics((0, 10))
    query = begun(logs, startingOffsets="earliest")
    assert [one.topic for one in query.trigger() or []] == ["a", "b"]
    logs.names = ("b",)
    query.restart()
    with pytest.raises(StreamDataLossError, match="some records may be missed: topics were deleted: a"):
        query.trigger()


def test_topic_that_is_gone_keeps_its_tasks_which_read_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logs = TwoTopics((0, 10))
    query = begun(logs, startingOffsets="earliest", failOnDataLoss="false", minPartitions="4")
    planned = query.trigger()
    assert planned is not None and [one.topic for one in planned] == ["a", "a", "b", "b"]
    logs.names = ("b",)
    query.restart()
    tasks = run(query.planner.plan(from_json(query.committed), from_json(query.planned)))
    assert "topics were deleted: a" in caplog.text
    assert [(one.offsets.topic, one.offsets.size) for one in tasks[:2]] == [("a", 0), ("a", 0)]
    assert [one.offsets for one in tasks[2:]] == planned[2:]
    assert [list(read_task(one)) for one in tasks[:2]] == [[], []], "nothing listens at the address"


def test_topic_of_which_nothing_is_read_may_be_gone() -> None:
    """That it is gone is reported when the next micro-batch is planned."""
    logs = TwoTopics((0, 10))
    query = begun(logs, startingOffsets="earliest")
    query.committed = {"a": {"0": 10}, "b": {"0": 0}}
    planned = query.trigger()
    logs.names = ("b",)
    query.restart()
    assert query.read() == planned
    with pytest.raises(StreamDataLossError, match="partitions were deleted: a-0"):
        query.read()
