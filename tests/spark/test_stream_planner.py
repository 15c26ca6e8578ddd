"""Micro-batches: where a query begins, how far each goes, and what is never lost in silence."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.metadata import Partition, Topic, TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.spark.offsets import OffsetRange
from pykraft.spark.options import StreamReadOptions, parse_stream_options
from pykraft.spark.positions import ByTimestamp, OffsetSpec
from pykraft.spark.stream_offsets import Offsets, count_between, from_json, limit_offsets, to_json
from pykraft.spark.stream_planner import StreamDataLossError, StreamPlanner
from tests.spark.test_offsets import P0, P1


class Logs:
    """Of topic ``t``, unless ``topic_id`` is None; ``held``: start and end of each partition's log."""

    def __init__(self, *held: tuple[int, int]) -> None:
        self.held = list(held)
        self.topic_id: Uuid | None = Uuid(b"1" * 16)

    async def find_topics(self, *, skips_missing: bool = False) -> list[Topic]:
        if self.topic_id is None:
            if skips_missing:
                return []
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t does not exist")
        parts = {n: Partition("t", self.topic_id, n, 1, 0) for n in range(len(self.held))}
        return [Topic("t", self.topic_id, False, parts)]

    async def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.held[one.partition][0] for one in partitions}

    async def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.held[one.partition][1] for one in partitions}

    async def positions(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        assert not isinstance(spec, ByTimestamp) and which == "starting"
        found: dict[TopicPartition, int] = getattr(spec, "positions", None) or dict.fromkeys(
            partitions, getattr(spec, "position", 0)
        )
        return dict(found)


class Query:
    """One planner after the other, as a query that is restarted from its checkpoint."""

    def __init__(self, logs: Logs, **options: str) -> None:
        base = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t"}
        self.options: StreamReadOptions = parse_stream_options(base | options)
        self.logs = logs
        self.now_ms = 0
        self.committed: Any = {}
        self.planned: Any = None
        self.restart()

    def restart(self) -> None:
        self.planner = StreamPlanner(self.logs, self.options, ("value",), lambda: self.now_ms)

    def trigger(self, *, is_limited: bool = True) -> list[OffsetRange] | None:
        """The ranges of the next micro-batch; None if there is none."""
        start = self.committed
        end = self.planned
        if end is None:
            end = to_json(run(self.planner.latest_offsets(from_json(start), is_limited=is_limited)))
        if end == start:
            return None
        self.planned = end
        return [task.offsets for task in run(self.planner.plan(from_json(start), from_json(end)))]

    def commit(self) -> None:
        self.committed, self.planned = self.planned, None

    def read(self, **how: bool) -> list[OffsetRange] | None:
        ranges = self.trigger(**how)
        if ranges is not None:
            self.commit()
        return ranges


def begun(logs: Logs, **options: str) -> Query:
    """A query that has stored where it begins."""
    query = Query(logs, **options)
    assert query.read() == []
    return query


def t(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


def test_offsets_are_written_in_order_as_sparks_kafka_source_writes_them() -> None:
    offsets = {TopicPartition("b", 10): 4, TopicPartition("b", 9): 3, TopicPartition("a", 0): 1}
    assert str(to_json(offsets)) == "{'a': {'0': 1}, 'b': {'9': 3, '10': 4}}"
    assert from_json(to_json(offsets)) == offsets


def test_query_reads_each_offset_once() -> None:
    logs = Logs((5, 10), (0, 3))
    query = begun(logs, startingOffsets="earliest")
    assert query.read() == [t(0, 5, 10), t(1, 0, 3)]
    assert query.read() is None
    logs.held[1] = (0, 8)
    query.restart()
    assert query.read() == [t(1, 3, 8)]


@pytest.mark.parametrize("starting", ["latest", '{"t":{"0":-1,"1":-1}}'])
def test_query_that_begins_at_the_end_loses_nothing_when_it_fails_at_once(starting: str) -> None:
    logs = Logs((0, 10), (0, 3))
    query = Query(logs, startingOffsets=starting)
    assert query.trigger() == []
    logs.held = [(0, 12), (0, 3)]
    query.restart()
    assert query.trigger() == []
    query.commit()
    assert query.read() == [t(0, 10, 12)]


def test_query_that_begins_at_the_end_reads_all_of_what_comes_later() -> None:
    logs = Logs()
    query = Query(logs)
    assert query.read() is None
    logs.held = [(0, 4)]
    assert query.read() == []
    assert query.read() == [t(0, 0, 4)]


def test_partition_that_is_added_is_read_from_its_beginning() -> None:
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.read()
    logs.held = [(0, 6), (0, 7)]
    assert query.read() == [t(0, 4, 6)], "where the new one begins is stored"
    assert query.read() == [t(1, 0, 7)]


def test_beginning_of_a_partition_is_stored_though_the_others_wait() -> None:
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="earliest", minOffsetsPerTrigger="3")
    query.read()
    logs.held = [(0, 6), (0, 1)]
    assert query.read() == []
    assert query.read() == [t(0, 4, 6), t(1, 0, 1)]


def test_micro_batch_takes_of_each_partition_its_share() -> None:
    query = begun(Logs((0, 90), (0, 10), (0, 0)), startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert query.read() == [t(0, 0, 18), t(1, 0, 2)]
    assert query.read() == [t(0, 18, 36), t(1, 2, 4)]
    assert query.read(is_limited=False) == [t(0, 36, 90), t(1, 4, 10)]


def test_no_partition_waits_for_the_others() -> None:
    end: Offsets = {P0: 1_000_000, P1: 1}
    assert limit_offsets({P0: 0, P1: 0}, end, 10) == {P0: 9, P1: 1}
    assert limit_offsets({P0: 0, P1: 0}, end, 1_000_001) == end


def test_small_micro_batch_waits_until_the_delay_is_over() -> None:
    logs = Logs((0, 1))
    query = begun(
        logs,
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="1m",
        maxOffsetsPerTrigger="6",
    )
    assert query.read() == [t(0, 0, 1)], "the first one does not wait"
    logs.held = [(0, 5)]
    assert query.read() is None
    logs.held = [(0, 20)]
    assert query.read() == [t(0, 1, 7)]
    logs.held = [(0, 8)]
    assert query.read() is None
    query.now_ms = 60_000
    assert query.read() == [t(0, 7, 8)]


def test_query_of_what_is_there_ends_with_it() -> None:
    logs = Logs((0, 9))
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    run(query.planner.read_what_is_there())
    logs.held = [(0, 50), (0, 50)]
    assert [query.read() for _ in range(4)] == [[], [t(0, 0, 5)], [t(0, 5, 9)], None]


def test_query_of_what_is_there_may_begin_at_its_end() -> None:
    logs = Logs((0, 9))
    query = Query(logs)
    run(query.planner.read_what_is_there())
    logs.held = [(0, 50), (0, 50)]
    assert [query.read(), query.read()] == [[], None]


def _loses(logs: Logs, what: str) -> None:
    match what:
        case "the end of t-0 went back":
            logs.held = [(0, 2), (0, 4)]
        case "deleted: t-1":
            logs.held = [(0, 4)]
        case "the new partition t-2 begins at offset 3":
            logs.held.append((3, 5))
        case "deleted and created again":
            logs.topic_id = Uuid(b"2" * 16)
            logs.held = [(0, 9), (0, 9)]


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ("the end of t-0 went back", []),
        ("deleted: t-1", []),
        ("the new partition t-2 begins at offset 3", [t(2, 3, 5)]),
        ("deleted and created again", [t(0, 4, 9), t(1, 4, 9)]),
    ],
)
def test_loss_is_an_error_or_logged(
    what: str, left: list[OffsetRange], caplog: pytest.LogCaptureFixture
) -> None:
    for fails in ("true", "false"):
        logs = Logs((0, 4), (0, 4))
        query = begun(logs, startingOffsets="earliest", failOnDataLoss=fails)
        query.read()
        _loses(logs, what)
        if fails == "true":
            with pytest.raises(StreamDataLossError, match=what):
                query.read()
        else:
            read = [query.read() or [], query.read() or []]
            assert [one for some in read for one in some] == left
            assert what in caplog.text


def test_topic_that_is_gone_is_an_error_or_read_no_more() -> None:
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="earliest")
    query.read()
    logs.topic_id = None
    with pytest.raises(KafkaError, match="topic t does not exist"):
        query.read()
    query.options = replace(query.options, fail_on_data_loss=False)
    query.restart()
    assert query.read() == []


class _GoingLogs(Logs):
    """The topic is deleted, unless ``stays``, after it was listed and before its ends are known."""

    stays = False

    async def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        if not self.stays:
            self.topic_id = None
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t does not exist")


def test_topic_that_goes_while_it_is_asked_for_is_an_error_or_read_no_more() -> None:
    logs = _GoingLogs((0, 4))
    lax = Query(logs, startingOffsets="earliest", failOnDataLoss="false")
    lax.committed = {"t": {"0": 4}}
    assert lax.read() == []
    logs.topic_id = Uuid(b"1" * 16)
    strict = Query(logs, startingOffsets="earliest")
    strict.committed = {"t": {"0": 4}}
    with pytest.raises(KafkaError, match="topic t does not exist"):
        strict.read()
    logs.topic_id, logs.stays = Uuid(b"1" * 16), True
    with pytest.raises(KafkaError, match="topic t does not exist"):
        lax.restart()
        lax.committed = {"t": {"0": 4}}
        lax.read()


@pytest.mark.parametrize("offset", [4, 11])
def test_beginning_outside_the_log_is_an_error_or_the_nearest(offset: int) -> None:
    for fails in ("true", "false"):
        query = Query(Logs((5, 10)), startingOffsets=f'{{"t":{{"0":{offset}}}}}', failOnDataLoss=fails)
        if fails == "true":
            with pytest.raises(StreamDataLossError, match=f"starting offset {offset} of t-0"):
                query.read()
        else:
            assert query.read() == []
            assert query.read() == ([t(0, 5, 10)] if offset < 5 else None)


def test_large_ranges_are_split() -> None:
    query = begun(Logs((0, 10)), startingOffsets="earliest", maxRecordsPerPartition="4")
    assert query.read() == [t(0, 0, 3), t(0, 3, 6), t(0, 6, 10)]


@pytest.mark.parametrize("behind", [1, 2])
def test_log_that_fell_back_by_one_offset_is_a_loss(behind: int, caplog: pytest.LogCaptureFixture) -> None:
    for fails in ("true", "false"):
        logs = Logs((0, 4), (0, 4))
        query = begun(logs, startingOffsets="earliest", failOnDataLoss=fails)
        query.read()
        logs.held = [(0, 4 - behind), (0, 5)]
        if fails == "true":
            with pytest.raises(
                StreamDataLossError, match=f"end of t-0 went back from offset 4 to {4 - behind}"
            ):
                query.read()
        else:
            assert query.read() == [t(1, 4, 5)]
            assert f"the end of t-0 went back from offset 4 to {4 - behind}" in caplog.text


@pytest.mark.parametrize("first", [0, 1])
def test_new_partition_whose_first_record_is_gone_is_a_loss(first: int) -> None:
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="earliest")
    logs.held.append((first, 5))
    if first:
        with pytest.raises(StreamDataLossError, match="new partition t-1 begins at offset 1, not at 0"):
            query.read()
    else:
        assert query.read() == [t(0, 0, 4)] and query.read() == [t(1, 0, 5)]


@pytest.mark.parametrize("offset", [5, 10])
def test_query_may_begin_at_either_end_of_the_log(offset: int) -> None:
    query = begun(Logs((5, 10)), startingOffsets=f'{{"t":{{"0":{offset}}}}}')
    assert query.read() == ([t(0, 5, 10)] if offset == 5 else None)


def test_query_that_was_restarted_reads_new_partitions_from_their_beginning() -> None:
    """Not from where the options say: that is of the partitions there were when it was new."""
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="latest")
    logs.held.append((0, 3))
    query.restart()
    assert query.read() == []
    assert query.read() == [t(1, 0, 3)]


def test_micro_batch_of_the_least_size_does_not_wait() -> None:
    logs = Logs((0, 1))
    query = begun(logs, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="10")
    query.read()
    logs.held = [(0, 4)]
    assert query.read() == [t(0, 1, 4)]
    query.now_ms = 9
    logs.held = [(0, 6)]
    assert query.read() is None
    query.now_ms = 10
    assert query.read() == [t(0, 4, 6)]
    query.now_ms = 19
    logs.held = [(0, 7)]
    assert query.read() is None, "the delay is that since the last micro-batch"


def test_ends_that_spark_shows_are_those_of_the_logs_whatever_the_limit() -> None:
    query = begun(Logs((0, 9)), startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert query.read() == [t(0, 0, 2)]
    assert query.planner.newest == {P0: 9}


def test_limit_is_shared_by_what_partitions_have() -> None:
    start = {P0: 5, P1: 10}
    assert limit_offsets(start, {P0: 15, P1: 40}, 20) == {P0: 10, P1: 25}
    assert limit_offsets(start, {P0: 15, P1: 40}, 40) == {P0: 15, P1: 40}
    assert limit_offsets(start, {P0: 15, P1: 40}, 39) == {P0: 14, P1: 39}
    assert limit_offsets(start, {P0: 3, P1: 40}, 10) == {P0: 3, P1: 20}, "one that fell back keeps its end"
    assert count_between(start, {P0: 3, P1: 40}) == 30


def test_task_has_the_topic_as_it_was_planned() -> None:
    logs = Logs((0, 4))
    query = begun(logs, startingOffsets="earliest")
    end = run(query.planner.latest_offsets(from_json(query.committed), is_limited=True))
    (task,) = run(query.planner.plan(from_json(query.committed), end))
    assert (task.topic_id, task.columns, task.options) == (logs.topic_id, ("value",), query.options)
