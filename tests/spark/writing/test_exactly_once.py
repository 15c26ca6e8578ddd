"""Rows are written exactly once, whatever becomes of tasks and drivers: their parts, without Spark."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from pykraft.kafka_client.cluster import Cluster as Client
from pykraft.kafka_client.errors import ClientTimeoutError, FencedError, ProduceError
from pykraft.kafka_client.producer.batch import RecordMetadata
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.spark.writing.markers import OtherRowsError, Tally
from pykraft.spark.writing.task_messages import Task, Written
from pykraft.spark.writing.write_options import WriteOptions, parse_write_options
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import wait_until

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pykraft[spark]")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pykraft[spark]")

from pykraft.spark.writing import encoded_rows, markers, sink, task_writes  # noqa: E402
from pykraft.spark.writing.sink import PykraftStreamWriter, PykraftWriter, abort, commit  # noqa: E402
from pykraft.spark.writing.task_writes import write_at_least_once, write_exactly_once  # noqa: E402

SHOWN_TIMEOUT_S = 60


@pytest.fixture
def topic(kraft: Cluster, request: pytest.FixtureRequest) -> str:
    """Of one partition: rows keep their order."""
    return kraft.create_topic(re.sub(r"\W+", "-", request.node.name))


def options(kraft: Cluster, topic: str | None, **changes: str) -> WriteOptions:
    base = {"kafka.bootstrap.servers": kraft.bootstrap_servers, "deliveryGuarantee": "exactly_once"}
    named = {} if topic is None else {"topic": topic}
    return parse_write_options(base | named | {name.replace("__", "."): to for name, to in changes.items()})


def rows(*values: str) -> Iterator[Any]:
    return (pa.record_batch({"value": pa.array([value])}) for value in values)


def shown(kraft: Cluster, topic: str) -> list[str]:
    """When what is decided can be read."""
    with kraft.admin() as admin:
        wait_until(
            "decided transactions have ended",
            lambda: not admin.list_transactions(states=["PrepareCommit", "PrepareAbort"]),
            SHOWN_TIMEOUT_S,
        )
    return sorted((one.value or b"").decode() for one in kraft.read(topic, committed=True))


def write(asked: WriteOptions, query: str, epoch: int, *values: str) -> Written:
    """The only task of a micro-batch, of which Spark says that it has succeeded."""
    done = write_exactly_once(rows(*values), asked, Task(query, 0, epoch))
    commit([done], asked)
    return done


def open_transactions(kraft: Cluster, query: str) -> list[str]:
    with kraft.admin() as admin:
        found = (one.transactional_id for one in admin.list_transactions(states=["Ongoing"]))
        return [one for one in found if one.startswith(f"{query}/")]


def test_zombie_task_is_fenced(kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a task takes over in the middle of its rows; the next micro-batch is not hindered."""
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)  # each row is sent when it comes
    asked = options(kraft, topic)

    def overtaken() -> Iterator[Any]:
        yield from rows("a")
        assert write(asked, topic, 4, "a", "b").rows == 2
        yield from rows("b")

    with pytest.raises(KafkaError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        write_exactly_once(overtaken(), asked, Task(topic, 0, 4))
    assert write(asked, topic, 4, "a", "b").is_repeated
    assert write(asked, topic, 5, "c").rows == 1
    assert shown(kraft, topic) == ["a", "b", "c"]


def test_task_whose_rows_end_early_leaves_nothing(kraft: Cluster, topic: str) -> None:
    """An earlier step has failed: the task sees the end of its rows, and Spark runs it again."""
    asked = options(kraft, topic)
    assert write_exactly_once(rows("a"), asked, Task(topic, 0, 0)).rows == 1
    assert shown(kraft, topic) == []
    assert write(asked, topic, 0, "a", "b").rows == 2
    assert shown(kraft, topic) == ["a", "b"]


def test_commit_of_a_task_that_was_overtaken_is_an_error(kraft: Cluster, topic: str) -> None:
    """The others are committed all the same; the micro-batch is run again."""
    asked = options(kraft, topic)
    first, second = Task(topic, 0, 0), Task(topic, 1, 0)
    early = write_exactly_once(rows("a"), asked, first)
    late = write_exactly_once(rows("a"), asked, first)
    other = write_exactly_once(rows("b"), asked, second)
    with pytest.raises(FencedError):
        commit([early, other], asked)
    abort([late, other], asked)  # readers do not pass an open transaction of their partition
    assert shown(kraft, topic) == ["b"]
    again = [write_exactly_once(rows("a"), asked, first), write_exactly_once(rows("b"), asked, second)]
    assert [one.is_repeated for one in again] == [False, True]
    commit(again, asked)
    assert shown(kraft, topic) == ["a", "b"]


def test_task_that_fails_leaves_nothing(kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)

    def failing() -> Iterator[Any]:
        yield from rows("a")
        raise RuntimeError("the task fails")

    asked = options(kraft, topic)
    with pytest.raises(RuntimeError, match="the task fails"):
        write_exactly_once(failing(), asked, Task(topic, 0, 0))
    assert open_transactions(kraft, topic) == []  # readers would wait for 15 minutes
    assert shown(kraft, topic) == []
    assert write(asked, topic, 0, "b").rows == 1
    assert shown(kraft, topic) == ["b"]


def test_task_that_begins_late_does_not_hinder_the_next_micro_batch(kraft: Cluster, topic: str) -> None:
    """Stalled attempts of micro-batches 0 and 1 get their first row when the task of 2 has prepared."""
    asked = options(kraft, topic)
    write(asked, topic, 0, "a")
    write(asked, topic, 1, "b")
    prepared = write_exactly_once(rows("c"), asked, Task(topic, 0, 2))

    def stalled() -> Iterator[Any]:
        yield from rows("a")
        raise AssertionError("the rows of a micro-batch that is long over are not read")

    assert write_exactly_once(stalled(), asked, Task(topic, 0, 0)).is_repeated
    assert write_exactly_once(rows("b"), asked, Task(topic, 0, 1)).is_repeated
    commit([prepared], asked)
    assert shown(kraft, topic) == ["a", "b", "c"]


def test_other_rows_than_were_written_are_refused(kraft: Cluster, topic: str) -> None:
    """None, fewer, more, and longer ones."""
    asked = options(kraft, topic)
    write(asked, topic, 3, "aa", "b")
    for again in ((), ("aa",), ("aa", "b", "c"), ("aa", "bb")):
        with pytest.raises(OtherRowsError, match=r"micro-batch 3 of .* not 2 rows of 3 bytes; run it with"):
            write(asked, topic, 3, *again)
    assert open_transactions(kraft, topic) == []
    assert shown(kraft, topic) == ["aa", "b"]


def test_other_number_of_tasks_than_before_is_refused(kraft: Cluster, topic: str) -> None:
    """The driver has died when it had committed the first task of two."""
    asked = options(kraft, topic)
    one, two = (write_exactly_once(rows(value), asked, Task(topic, i, 0)) for i, value in enumerate("ab"))
    commit([one, None], asked)
    again = [write_exactly_once(rows(value), asked, Task(topic, i, 0)) for i, value in enumerate("abc")]
    assert [done.is_repeated for done in again] == [True, False, False]
    with pytest.raises(OtherRowsError, match=r"micro-batch 0 of .* has 3 tasks, and had 2 tasks when"):
        commit(again, asked)
    assert open_transactions(kraft, topic) == []
    assert shown(kraft, topic) == ["a"]
    assert two.prepared is not None
    commit([again[0], write_exactly_once(rows("b"), asked, Task(topic, 1, 0))], asked)
    assert write(asked, topic, 1, "c").rows == 1
    assert shown(kraft, topic) == ["a", "b", "c"]


def test_late_driver_leaves_the_number_of_tasks_of_the_next_micro_batch(kraft: Cluster, topic: str) -> None:
    asked = options(kraft, topic)
    early = write(asked, topic, 0, "a")
    late = [write_exactly_once(rows(value), asked, Task(topic, i, 1)) for i, value in enumerate("ab")]
    commit(late, asked)
    with pytest.raises(FencedError):
        commit([early], asked)
    with pytest.raises(OtherRowsError, match="has 1 tasks, and had 2 tasks"):
        write(asked, topic, 1, "a")


def test_task_without_rows_has_no_transaction(kraft: Cluster, topic: str) -> None:
    asked = options(kraft, topic)
    assert write(asked, topic, 0) == Written(0, Task(topic, 0, 0))
    with kraft.admin() as admin:
        assert f"{topic}/0" not in {one.transactional_id for one in admin.list_transactions()}


def test_rows_that_name_topics_are_written_once_in_any_order(kraft: Cluster, topic: str) -> None:
    """The marker is one of the topic of the first row."""
    kraft.create_topic(f"{topic}-2")
    asked = options(kraft, None)
    task = Task(topic, 0, 0)
    for names in ([topic, f"{topic}-2"], [f"{topic}-2", topic]):
        columns = {"value": pa.array(["v", "v"]), "topic": pa.array(names)}
        done = write_exactly_once(iter([pa.record_batch(columns)]), asked, task)
        commit([done], asked)
    assert done.is_repeated
    assert shown(kraft, topic) == shown(kraft, f"{topic}-2") == ["v"]


def test_keys_and_values_count() -> None:
    tally = Tally()
    for keys in (["k", None], [None, None]):
        tally.add(pa.record_batch({"key": pa.array(keys, pa.string()), "value": pa.array([b"12", None])}))
    tally.add(pa.record_batch({"value": pa.array(["\u00e9"])}))
    assert tally == Tally(5, 7)


def before(monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], object]) -> None:
    """Let something happen just before the next producer of a task does something."""

    class Overtaken(BlockingProducer):
        pass

    def first(self: BlockingProducer, *given: Any) -> Any:
        monkeypatch.setattr(task_writes, "BlockingProducer", BlockingProducer)
        happens()
        return getattr(super(Overtaken, self), name)(*given)

    setattr(Overtaken, name, first)
    monkeypatch.setattr(task_writes, "BlockingProducer", Overtaken)


def test_rows_of_an_attempt_that_commits_until_its_id_is_taken_over_are_not_written_again(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker comes after the first look for it."""
    asked = options(kraft, topic)
    before(monkeypatch, "init_transactions", lambda: write(asked, topic, 2, "a", "b"))
    again = write_exactly_once(rows("a", "b"), asked, Task(topic, 0, 2))
    assert again == Written(0, Task(topic, 0, 2), topic, is_repeated=True)
    commit([again], asked)
    assert open_transactions(kraft, topic) == []
    assert shown(kraft, topic) == ["a", "b"]


def test_rows_are_compared_with_an_attempt_that_commits_until_its_id_is_taken_over(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(kraft, topic)
    before(monkeypatch, "init_transactions", lambda: write(asked, topic, 2, "a", "b"))
    with pytest.raises(OtherRowsError, match="has other rows than when"):
        write_exactly_once(rows("a", "c", "d"), asked, Task(topic, 0, 2))
    assert shown(kraft, topic) == ["a", "b"]


def test_late_attempt_that_took_over_from_the_next_micro_batch_writes_nothing(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(kraft, topic)

    def others() -> None:
        write(asked, topic, 2, "a")
        write(asked, topic, 3, "b")

    before(monkeypatch, "init_transactions", others)
    assert write_exactly_once(rows("a"), asked, Task(topic, 0, 2)).is_repeated
    assert shown(kraft, topic) == ["a", "b"]


def test_attempt_whose_transaction_is_taken_over_before_its_marker_writes_nothing(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(kraft, topic)
    for at in ("send_offsets_to_transaction", "prepare_transaction"):
        before(monkeypatch, at, lambda: write(asked, f"{topic}-{at}", 0, "a"))  # noqa: B023
        late: list[Written] = []
        with pytest.raises(KafkaError):
            late.append(write_exactly_once(rows("a"), asked, Task(f"{topic}-{at}", 0, 0)))
            commit(late, asked)
    assert shown(kraft, topic) == ["a", "a"]


def test_attempt_without_rows_waits_until_an_earlier_one_is_decided(kraft: Cluster, topic: str) -> None:
    """It cannot know whether rows were written."""
    asked = options(kraft, topic)
    write(asked, topic, 0, "a")
    prepared = write_exactly_once(rows("b"), asked, Task(topic, 0, 1))
    hasty = options(kraft, topic, kafka__default__api__timeout__ms="300")
    with pytest.raises(ClientTimeoutError):
        write_exactly_once(rows(), hasty, Task(topic, 0, 1))
    commit([prepared], asked)
    with pytest.raises(OtherRowsError):
        write_exactly_once(rows(), asked, Task(topic, 0, 1))


def test_batches_without_rows_are_as_if_they_were_not_there(kraft: Cluster, topic: str) -> None:
    asked = options(kraft, topic)
    nothing = pa.record_batch({"value": pa.array([], pa.string())})
    done = write_exactly_once(iter([nothing, *rows("a"), nothing, *rows("b")]), asked, Task(topic, 0, 0))
    assert (done.rows, done.topic, done.is_repeated) == (2, topic, False)
    commit([done], asked)
    assert shown(kraft, topic) == ["a", "b"]
    assert write_exactly_once(iter([nothing]), asked, Task(topic, 1, 0)) == Written(0, Task(topic, 1, 0))


def test_error_of_a_task_is_told_though_its_transaction_cannot_be_aborted(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(BlockingProducer):
        def abort_transaction(self, timeout_ms: int | None = None) -> None:
            assert timeout_ms is not None and timeout_ms <= 5_000, "Spark waits"
            raise ClientTimeoutError("no answer")

    monkeypatch.setattr(task_writes, "BlockingProducer", Stuck)

    def failing() -> Iterator[Any]:
        yield from rows("a")
        raise LookupError("of the task")

    with pytest.raises(LookupError, match="of the task"):
        write_exactly_once(failing(), options(kraft, topic), Task(topic, 0, 0))
    assert "a transaction is left to its timeout" in caplog.text


@pytest.mark.parametrize("write_rows", ["once", "again"])
def test_row_that_is_refused_fails_its_task(kraft: Cluster, topic: str, write_rows: str) -> None:
    """By the broker, whose answer comes when all is sent."""
    small = kraft.create_topic(f"{topic}-{write_rows}", configs={"max.message.bytes": "200"})
    asked = options(kraft, small)
    with pytest.raises(ProduceError) as refused:
        if write_rows == "once":
            write_exactly_once(rows("a", "b" * 300), asked, Task(small, 0, 0))
        else:
            write_at_least_once(rows("a" * 300), asked)
    assert refused.value.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
    assert open_transactions(kraft, small) == []
    assert shown(kraft, small) == []
    if write_rows == "once":
        write(asked, small, 0, "c")
        assert shown(kraft, small) == ["c"]


@pytest.mark.parametrize("headers", [None, [{"key": "h", "value": b"1"}]])
def test_rows_behind_one_that_is_refused_are_not_read(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, headers: list[Any] | None
) -> None:
    """Two rows to a block, of which the second is written no more."""
    sent: list[object] = []

    class Refusing(BlockingProducer):
        def send(self, *row: Any) -> Future[RecordMetadata]:
            return self._refused(row)

        def send_encoded(self, *batch: Any) -> Future[RecordMetadata]:
            return self._refused(batch)

        def _refused(self, what: object) -> Future[RecordMetadata]:
            sent.append(what)
            refused: Future[RecordMetadata] = Future()
            refused.set_exception(ProduceError(ErrorCode.MESSAGE_TOO_LARGE, "no"))
            return refused

    monkeypatch.setattr(task_writes, "BlockingProducer", Refusing)
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)
    kinds = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {"value": pa.array(["a", "b"]), "headers": pa.array([headers] * 2, kinds)}
    read: list[int] = []

    def counted() -> Iterator[Any]:
        for number in range(3):
            read.append(number)
            yield pa.record_batch(columns)

    with pytest.raises(ProduceError, match="no"):
        write_at_least_once(counted(), options(kraft, topic, kafka__batch__size="70"))
    assert len(sent) == 1 and read == [0]


def test_batches_are_within_the_sizes_of_the_producer(kraft: Cluster, topic: str) -> None:
    for sizes in ({"kafka.batch.size": "2000"}, {"kafka.max.request.size": "2000"}):
        asked = options(kraft, topic, **sizes)
        assert write_at_least_once(rows(*("v" * 100 for _ in range(100))), asked).rows == 100
    assert len(kraft.read(topic)) == 200


def test_row_keeps_its_key_and_headers_and_has_the_time_of_writing(kraft: Cluster, topic: str) -> None:
    asked = options(kraft, topic)
    kinds = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for headers in (None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]):
        columns = {"key": pa.array(["k"]), "value": pa.array(["v"]), "headers": pa.array([headers], kinds)}
        before_ms = time.time_ns() // 1_000_000
        assert write_at_least_once(iter([pa.record_batch(columns)]), asked) == Written(1)
        (*_, one) = kraft.read(topic)
        assert before_ms <= one.timestamp_ms <= time.time_ns() // 1_000_000
        assert (one.key, one.value) == (b"k", b"v")
        assert one.headers == (() if headers is None else (("h", b"1"), ("h", None)))


# -- what the driver does ------------------------------------------------------------------------------


def test_number_of_tasks_is_known_before_the_first_is_committed(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that dies in between must not leave rows whose number of tasks nobody knows."""
    asked = options(kraft, topic)
    done = write_exactly_once(rows("a"), asked, Task(topic, 0, 0))

    async def refused(cluster: Any, group: str, offsets: dict[Any, Any], deadline_ms: int) -> Any:
        return dict.fromkeys(offsets, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "later"))

    with monkeypatch.context() as within:
        within.setattr(markers, "alter_group_offsets", refused)
        with pytest.raises(KafkaError, match="later"):
            commit([done], asked)
    assert open_transactions(kraft, topic) == [f"{topic}/0"]
    commit([done], asked)
    assert shown(kraft, topic) == ["a"]


def test_commit_that_is_repeated_changes_nothing(kraft: Cluster, topic: str) -> None:
    """The driver did not hear that it has committed."""
    asked = options(kraft, topic)
    done = write(asked, topic, 0, "a")
    commit([done], asked)
    assert shown(kraft, topic) == ["a"]


def test_tasks_without_rows_count(kraft: Cluster, topic: str) -> None:
    asked = options(kraft, topic)
    empty = write_exactly_once(rows(), asked, Task(topic, 0, 0))
    commit([empty, write_exactly_once(rows("a"), asked, Task(topic, 1, 0))], asked)
    with pytest.raises(OtherRowsError, match="has 1 tasks, and had 2 tasks"):
        commit([write_exactly_once(rows("a"), asked, Task(topic, 1, 0))], asked)
    commit([], asked)
    assert shown(kraft, topic) == ["a"]


def test_abort_leaves_nothing_open_and_names_what_it_could_not_abort(
    kraft: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = options(kraft, topic)
    early, late, other = (
        write_exactly_once(rows("a"), asked, Task(topic, number, 0)) for number in (0, 0, 1)
    )
    abort([early, None, other], asked)
    assert "a transaction is left to its timeout" in caplog.text
    assert open_transactions(kraft, topic) == [f"{topic}/0"]
    abort([late], asked)
    assert shown(kraft, topic) == []


def test_driver_keeps_no_connection(kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    close = Client.close

    def counted(self: Client) -> None:
        ended.append(self)
        close(self)

    monkeypatch.setattr(Client, "close", counted)
    commit([], options(kraft, topic))
    abort([], options(kraft, topic))
    assert len(ended) == 2


class _Context:
    """What a task knows of itself."""

    def __init__(self, number: int, **properties: str) -> None:
        self._number = number
        self._properties = properties

    def partitionId(self) -> int:
        return self._number

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name.rpartition(".")[2])


def test_task_is_known_by_its_query_its_number_and_its_micro_batch(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(kraft, topic, transactionalIdPrefix="us", jobId="job")
    monkeypatch.setattr(sink, "_context", lambda: _Context(7, queryId=topic, batchId="3"))
    for writer, task in (
        (PykraftStreamWriter(asked), Task(f"us/{topic}", 7, 3)),
        (PykraftWriter(asked), Task("us/job", 7, 0)),
    ):
        done = writer.write(rows("a"))
        assert done.task == task and done.rows == 1
        assert done.prepared is not None and done.prepared.transactional_id == f"{task.query}/7"
        if isinstance(writer, PykraftStreamWriter):
            writer.commit([done], 3)
        else:
            writer.commit([done])
    assert shown(kraft, topic) == ["a", "a"]


def test_writers_abort_what_was_prepared(kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = options(kraft, topic, jobId=topic)
    monkeypatch.setattr(sink, "_context", lambda: _Context(0, queryId=topic, batchId="0"))
    stream, batch = PykraftStreamWriter(asked), PykraftWriter(asked)
    stream.abort([stream.write(rows("a"))], 0)
    batch.abort([batch.write(rows("a"))])
    assert open_transactions(kraft, "pykraft-spark") == []
    assert shown(kraft, topic) == []


def test_task_that_spark_tells_too_little_is_an_error(
    kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_context", lambda: _Context(0, queryId=topic))
    with pytest.raises(RuntimeError, match=r"has not given this task its streaming\.sql\.batchId"):
        PykraftStreamWriter(options(kraft, topic)).write(rows("a"))


def test_at_least_once_needs_nothing_of_spark(kraft: Cluster, topic: str) -> None:
    asked = options(kraft, topic, deliveryGuarantee="at_least_once")
    for writer in (PykraftStreamWriter(asked), PykraftWriter(asked)):
        done = writer.write(rows("a", "b"))
        assert done == Written(2)
        if isinstance(writer, PykraftStreamWriter):
            writer.commit([done, None], 0)
    assert shown(kraft, topic) == ["a", "a", "b", "b"]
