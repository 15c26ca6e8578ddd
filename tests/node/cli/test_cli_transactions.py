"""``pykraft transactions`` without a cluster: tables, refusals, and which transactions hang."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    AbortTransactionSpec,
    PartitionDescription,
    ProducerState,
    TopicDescription,
    TopicListing,
    TransactionDescription,
    TransactionListing,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.node.cli.root import cli
from pykraft.node.cli.shared import cluster_client
from pykraft.node.cli.shared.tool_errors import ToolError
from pykraft.node.cli.transactions import transactions
from pykraft.node.cli.transactions.transactions import OpenTransaction, Search

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MINUTE_MS = 60_000
NOW_MS = 100 * MINUTE_MS
REPLICAS = {T0: (1, 2), T1: (2, 3), U0: (3,)}

Producers = tuple[ProducerState, ...]


def open_since(minutes: int, producer_id: int, start: int | None = 0) -> ProducerState:
    """A producer whose newest record is so old, in a transaction unless ``start`` is None."""
    return ProducerState(producer_id, 3, 4, NOW_MS - minutes * MINUTE_MS, None, start)


def transaction(id: str, *partitions: TopicPartition, state: str = "Ongoing") -> TransactionDescription:
    return TransactionDescription(id, 1, state, 7, 3, MINUTE_MS, 9, partitions)


class Cluster:
    """An admin client of a cluster that has no broker."""

    def __init__(self) -> None:
        self.producers: dict[TopicPartition, Producers | KafkaError] = {T0: (), T1: (), U0: ()}
        self.ids: dict[int, str] = {}
        self.described: dict[str, TransactionDescription | KafkaError] = {}
        self.refusal: KafkaError | None = None
        self.asked: list[object] = []

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def list_topics(self, *, include_internal: bool) -> list[TopicListing]:
        assert include_internal, "a transaction may hang in __consumer_offsets"
        return [TopicListing(name, ZERO_UUID, False) for name in ("t", "u")]

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        self._refuse()
        return [
            TopicDescription(
                name,
                ZERO_UUID,
                False,
                tuple(
                    PartitionDescription(it.partition, 1, 0, replicas, replicas, ())
                    for it, replicas in REPLICAS.items()
                    if it.topic == name
                ),
            )
            for name in names
        ]

    def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> Mapping[TopicPartition, Producers | KafkaError]:
        self.asked.append((sorted(partitions), broker_id))
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        return {it: self.producers.get(it, missing) for it in partitions}

    def list_transactions(
        self,
        *,
        producer_ids: Sequence[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        self._refuse()
        self.asked.append((longer_than_ms, pattern))
        return [
            TransactionListing(name, id, "Ongoing", 1)
            for id, name in self.ids.items()
            if not producer_ids or id in producer_ids
        ]

    def describe_transactions(
        self, ids: Collection[str]
    ) -> Mapping[str, TransactionDescription | KafkaError]:
        missing = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "not found")
        return {id: self.described.get(id, missing) for id in ids}

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        self._refuse()
        self.asked.append(spec)

    def force_terminate_transaction(self, id: str) -> None:
        self._refuse()
        self.asked.append(id)


Run = Callable[..., Result]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def client(*_: object) -> Iterator[Any]:
        yield cluster

    monkeypatch.setattr(cluster_client, "admin_client", client)

    def invoke(*arguments: object) -> Result:
        given = ["--bootstrap-server", "b:1", *map(str, arguments)]
        result = CliRunner().invoke(cli, ["transactions", *given])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


# Tables.


def test_transactions_are_listed_with_tabs_after_padded_cells(run: Run, cluster: Cluster) -> None:
    cluster.ids = {7: "an-id-that-is-longer-than-its-header", 8: "b"}
    result = run("list", "--duration-filter", "5", "--transactional-id-pattern", "x.*")
    assert result.stdout.splitlines() == [
        "TransactionalId                     \tCoordinator\tProducerId\tTransactionState\t",
        "an-id-that-is-longer-than-its-header\t1          \t7         \tOngoing         \t",
        "b                                   \t1          \t8         \tOngoing         \t",
    ]
    assert cluster.asked == [(5, "x.*")]


def test_transaction_is_described_with_its_partitions(run: Run, cluster: Cluster) -> None:
    cluster.described = {
        "a": transaction("a", T0, U0),
        "idle": replace(transaction("idle"), start_time_ms=None),
    }
    _, row = run("describe", "--transactional-id", "a").stdout.splitlines()
    cells = [cell.strip() for cell in row.split("\t")]
    assert cells[:7] == ["1", "a", "7", "3", "Ongoing", "60000", "9"]
    assert int(cells[7]) > 0
    assert cells[8:] == ["t-0,u-0", ""]
    _, row = run("describe", "--transactional-id", "idle").stdout.splitlines()
    assert [cell.strip() for cell in row.split("\t")][6:] == ["None", "None", "", ""]


def test_json_has_numbers_lists_and_nulls(run: Run, cluster: Cluster) -> None:
    cluster.described = {"a": replace(transaction("a", T0), start_time_ms=None)}
    (found,) = json.loads(run("describe", "--transactional-id", "a", "--json").stdout)
    assert found["topicPartitions"] == [{"topic": "t", "partition": 0}]
    assert (found["producerId"], found["currentTransactionStartTimeMs"]) == (7, None)
    cluster.producers[T0] = (open_since(1, 7, start=None),)
    asked = ("describe-producers", "--topic", "t", "--partition", "0", "--json")
    assert json.loads(run(*asked).stdout) == [
        {
            "producerId": 7,
            "producerEpoch": 3,
            "latestCoordinatorEpoch": -1,
            "lastSequence": 4,
            "lastTimestamp": NOW_MS - MINUTE_MS,
            "currentTransactionStartOffset": None,
        }
    ]


def test_producers_of_a_replica_are_asked_for_at_its_broker(run: Run, cluster: Cluster) -> None:
    cluster.producers[T0] = (open_since(1, 7), open_since(1, 8, start=None))
    result = run("describe-producers", "--topic", "t", "--partition", "0", "--broker-id", "2")
    rows = [[cell.strip() for cell in line.split("\t")] for line in result.stdout.splitlines()]
    assert [row[5] for row in rows] == ["CurrentTransactionStartOffset", "0", "None"]
    assert cluster.asked == [([T0], 2)]


# Refusals.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list",), "Failed to list transactions: why. Enable debug"),
        (
            ("describe", "--transactional-id", "x"),
            "Failed to describe transaction state of transactional-id `x`: ",
        ),
        (
            ("describe-producers", "--topic", "x", "--partition", "1"),
            "Failed to describe producers for partition x-1 on leader: ",
        ),
        (
            ("describe-producers", "--topic", "x", "--partition", "1", "--broker-id", "5"),
            "Failed to describe producers for partition x-1 on broker 5: ",
        ),
        (
            ("abort", "--topic", "x", "--partition", "1", "--start-offset", "0"),
            "Failed to validate producer state for partition x-1: ",
        ),
        (("find-hanging", "--topic", "x"), "Failed to describe 1 topics: "),
        (
            ("find-hanging", "--topic", "x", "--partition", "0", "--broker-id", "5"),
            "Failed to describe producers for 1 partitions on broker Optional[5]: ",
        ),
        (
            ("forceTerminateTransaction", "--transactionalId", "x"),
            "Failed to force terminate transactionalId `x`: why. ",
        ),
    ],
)
def test_failure_is_one_line_and_status_1(
    run: Run, cluster: Cluster, arguments: tuple[str, ...], said: str
) -> None:
    cluster.refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "why")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(said)
    assert result.stderr.endswith(". Enable debug logging for additional detail.\n")


def test_properties_of_the_client_come_from_a_file_that_exists(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    file.write_text("client.id=me\n", encoding="utf-8")
    assert run("--command-config", file, "list").exit_code == 0
    missing = run("--command-config", tmp_path / "none", "list")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "cannot read" in missing.stderr


def test_log_at_debug_tells_where_a_failure_comes_from(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    levels: list[object] = []
    monkeypatch.setattr(transactions, "set_up_logging", lambda: levels.append("set"))
    monkeypatch.delenv("PYKRAFT_LOG_LEVEL", raising=False)
    cluster.refusal = KafkaError(ErrorCode.INVALID_REQUEST, "why")
    run("list")
    assert levels == []
    monkeypatch.setenv("PYKRAFT_LOG_LEVEL", "DEBUG")
    with caplog.at_level("DEBUG", "pykraft.node.cli.shared.tool_errors"):
        run("list")
    assert levels == ["set"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


ABORT = ("abort", "--topic", "t", "--partition", "0")


def test_abort_by_offset_takes_the_producer_whose_transaction_begins_there(
    run: Run, cluster: Cluster
) -> None:
    cluster.producers[T0] = (
        open_since(1, 7, start=4),
        replace(open_since(1, 8, start=5), coordinator_epoch=2),
        open_since(1, 9, start=None),
    )
    for start, spec in ((4, AbortTransactionSpec(T0, 7, 3, 0)), (5, AbortTransactionSpec(T0, 8, 3, 2))):
        result = run(*ABORT, "--start-offset", start, "--producer-id", "99")
        assert (result.exit_code, result.output, cluster.asked[-1]) == (0, "", spec)
    result = run(*ABORT, "--start-offset", "6")
    assert result.exit_code == 1
    assert result.stderr == "Could not find any open transactions starting at offset 6 on partition t-0\n"


def test_abort_by_producer_needs_all_of_it(run: Run, cluster: Cluster) -> None:
    named = ("--producer-id", 7, "--producer-epoch", 0, "--coordinator-epoch", -1)
    for count, said in ((0, "must be identified"), (2, "--producer-epoch"), (4, "--coordinator-epoch")):
        result = run(*ABORT, *named[:count])
        assert (result.exit_code, cluster.asked) == (1, [])
        assert said in result.stderr
    assert run(*ABORT, *named).exit_code == 0
    assert cluster.asked == [AbortTransactionSpec(T0, 7, 0, 0)], "no coordinator has epoch -1"
    cluster.refusal = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "why")
    result = run(*ABORT, *named)
    assert result.exit_code == 1
    assert result.stderr.startswith("Failed to abort transaction AbortTransactionSpec(topicPartition=t-0, ")


def test_transaction_is_terminated_by_force(run: Run, cluster: Cluster) -> None:
    result = run("forceTerminateTransaction", "--transactionalId", "a")
    assert (result.exit_code, result.output, cluster.asked) == (0, "", ["a"])


# Which transactions hang.


def search(cluster: Cluster, broker_id: int | None = None, minutes: int = 15) -> Search:
    client: Any = cluster
    return Search(client, broker_id, minutes * MINUTE_MS, lambda: NOW_MS)


def found(cluster: Cluster, topic: str | None = None, **settings: Any) -> list[tuple[TopicPartition, int]]:
    return [(it.partition, it.producer.producer_id) for it in search(cluster, **settings).find(topic, None)]


def test_transaction_hangs_unless_its_coordinator_has_the_partition_in_it(cluster: Cluster) -> None:
    """Producers 1: known here; 2: known elsewhere; 3: id unknown; 4: id gone meanwhile; 5: all ended."""
    cluster.producers[T0] = tuple(open_since(20, id) for id in (5, 4, 3, 2, 1))
    cluster.producers[T1] = (open_since(20, 1),)
    cluster.ids = {1: "one", 2: "two", 4: "four", 5: "five"}
    cluster.described = {
        "one": transaction("one", T0, U0),
        "two": transaction("two", T1),
        "five": transaction("five", state="CompleteAbort"),
    }
    assert found(cluster) == [(T0, 2), (T0, 3), (T0, 4), (T0, 5), (T1, 1)]


@pytest.mark.parametrize(
    ("age", "minutes", "hangs"), [(15, 15, False), (16, 15, True), (1, 0, True), (0, 0, False)]
)
def test_only_transactions_older_than_any_may_be_are_candidates(
    cluster: Cluster, age: int, minutes: int, hangs: bool
) -> None:
    cluster.producers[U0] = (open_since(age, 1), open_since(age, 2, start=None))
    assert found(cluster, minutes=minutes) == ([(U0, 1)] if hangs else [])


def test_search_is_limited_to_a_broker_a_topic_and_a_partition(cluster: Cluster) -> None:
    for scope, asked in (
        ((None, None, 3), [T1, U0]),
        ((None, "t", 2), [T0, T1]),
        ((None, "t", None), [T0, T1]),
        ((1, "t", 9), [T1]),
    ):
        partition, topic, broker_id = scope
        search(cluster, broker_id).find(topic, partition)
        assert cluster.asked[-1] == (asked, broker_id)


def test_partitions_are_asked_for_500_at_a_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {TopicPartition("t", index): () for index in range(1_001)}
    described = cluster.describe_topics(["t"])[0]
    one = described.partitions[0]
    wide = replace(described, partitions=tuple(replace(one, index=it.partition) for it in many))
    monkeypatch.setattr(cluster, "describe_topics", lambda names: [wide])
    cluster.producers = dict(many)
    last = TopicPartition("t", 1_000)
    cluster.producers[last] = (open_since(20, 1),)
    assert search(cluster).find("t", None) == [OpenTransaction(last, open_since(20, 1))]
    sizes = [len(it[0]) for it in cluster.asked if isinstance(it, tuple) and isinstance(it[0], list)]
    assert sizes == [500, 500, 1]


def test_transaction_that_cannot_be_described_is_not_reported_as_hanging(cluster: Cluster) -> None:
    cluster.producers[T0] = (open_since(20, 1),)
    cluster.ids = {1: "one"}
    cluster.described = {"one": KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late")}
    with pytest.raises(ToolError, match=r"Failed to describe 1 transactions: too late\. "):
        found(cluster)
    cluster.refusal = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late")
    with pytest.raises(ToolError, match=r"Failed to list transactions for 1 producers: too late\. "):
        search(cluster).find("t", 0)


def test_hanging_transactions_are_printed_with_their_age(run: Run, cluster: Cluster) -> None:
    assert [line.split() for line in run("find-hanging", "--topic", "t").stdout.splitlines()] == [
        [
            *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"),
            *("LastTimestamp", "Duration(min)"),
        ]
    ]
    cluster.producers[T1] = (open_since(20, 8, start=6),)
    _, row = run("find-hanging", "--broker-id", "2").stdout.splitlines()
    *cells, minutes = row.split()
    assert cells == ["t", "1", "8", "3", "-1", "6", str(80 * MINUTE_MS)]
    assert int(minutes) > 20
