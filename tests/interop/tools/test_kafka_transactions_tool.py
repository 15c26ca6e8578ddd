"""kafka-transactions and ``pykraft transactions`` on the same transactions, of both brokers: the same lines.

What a hash table orders in Kafka's tool is compared sorted, and what counts from now on is left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.cli.root import cli
from pykraft.runtime.address import parse_address
from pykraft.runtime.clock import SystemClock
from tests.interop.clusters import own_cluster
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import kafka
from tests.interop.transaction_script import FIRST_MS, NOT_VERIFIED, T0, T1, U0, Producer, TransactionScript

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
COUNTED_FROM_NOW = ("TransactionDurationMs", "Duration(min)")
OF_SETS = ("TopicPartitions",)


@dataclass
class Printed:
    status: int
    out: list[str]
    err: list[str]

    @property
    def rows(self) -> list[dict[str, str]]:
        """The cells of a table by the names of their columns."""
        columns, *rows = (line.split("\t") for line in self.out)
        return [{name.strip(): cell.strip() for name, cell in zip(columns, row, strict=True)} for row in rows]

    @property
    def settled(self) -> tuple[int, list[list[str]], list[str]]:
        """All that two tools must agree about, the widths of columns included."""
        lines = [line.split("\t") for line in self.out]
        for row in lines[1:]:
            for at, name in enumerate(lines[0]):
                if name.strip() in COUNTED_FROM_NOW:
                    row[at] = ""
                elif name.strip() in OF_SETS:
                    row[at] = "".join(sorted(row[at]))
        return self.status, [*lines[:1], *sorted(lines[1:])], self.err


Tool = Callable[..., Printed]


@pytest.fixture(scope="module", params=["pykraft", "kafka"])
def script(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TransactionScript]:
    """A broker that does not verify, with transactions of every kind."""
    directory = tmp_path_factory.mktemp("tools")

    def prepared(address: str) -> TransactionScript:
        script = TransactionScript(parse_address(address))
        script.prepare()
        return script

    if request.param == "kafka":
        with kafka(kafka_tools, directory) as broker:
            broker.start(**{name.replace(".", "_"): value for name, value in NOT_VERIFIED.items()})
            script = prepared(broker.address)
            yield script
            script.close()
        return
    with own_cluster(1, NOT_VERIFIED) as cluster:
        script = prepared(cluster.bootstrap_servers)
        yield script
        script.close()


@pytest.fixture
def kafka_tool(kafka_tools: KafkaTools, script: TransactionScript) -> Tool:
    def run(*arguments: object) -> Printed:
        done = kafka_tools.run(TOOL, "--bootstrap-server", script.bootstrap_servers, *arguments)
        return Printed(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())

    return run


@pytest.fixture
def own_tool(script: TransactionScript) -> Tool:
    def run(*arguments: object) -> Printed:
        given = ["--bootstrap-server", script.bootstrap_servers, *map(str, arguments)]
        done = CliRunner().invoke(cli, ["transactions", *given])
        return Printed(done.exit_code, done.stdout.splitlines(), done.stderr.splitlines())

    return run


@pytest.fixture
def both(kafka_tool: Tool, own_tool: Tool) -> Tool:
    """Both tools, which must print the same; for commands that change nothing."""

    def run(*arguments: object) -> Printed:
        by_kafka, by_pykraft = kafka_tool(*arguments), own_tool(*arguments)
        assert by_pykraft.settled == by_kafka.settled
        return by_pykraft

    return run


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ((), {"fresh", "done", "undone", "open"}),
        (("--transactional-id-pattern", "(un)?done"), {"done", "undone"}),
        (("--transactional-id-pattern", "don"), set()),
        (("--duration-filter", "0"), {"fresh", "done", "undone", "open"}),
        (("--duration-filter", "-1", "--transactional-id-pattern", "o.*"), {"open"}),
    ],
)
def test_transactions_are_listed_alike(both: Tool, filters: tuple[str, ...], expected: set[str]) -> None:
    listed = {row["TransactionalId"] for row in both("list", *filters).rows}
    assert listed & {"fresh", "done", "undone", "open"} == expected


@pytest.mark.parametrize(
    ("transactional_id", "state", "partitions"),
    [
        ("open", "Ongoing", "t-0,u-0"),
        ("fresh", "Empty", ""),
        ("done", "CompleteCommit", ""),
        ("undone", "CompleteAbort", ""),
    ],
)
def test_transactions_are_described_alike(
    both: Tool, transactional_id: str, state: str, partitions: str
) -> None:
    (row,) = both("describe", "--transactional-id", transactional_id).rows
    assert (row["TransactionState"], row["TopicPartitions"]) == (state, partitions)


@pytest.mark.parametrize("where", [(), ("--broker-id", "1")])
@pytest.mark.parametrize("partition", [T0, T1, U0])
def test_producers_are_described_alike(both: Tool, partition: TopicPartition, where: tuple[str, ...]) -> None:
    printed = both(
        "describe-producers", "--topic", partition.topic, "--partition", partition.partition, *where
    )
    assert printed.status == 0
    assert printed.rows


ABORT_T0 = ("abort", "--topic", "t", "--partition", "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe", "--transactional-id", "nobody"), "could not be found"),
        (("describe", "--transactional-id", ""), "unexpected error"),
        (("list", "--transactional-id-pattern", "("), "Failed to list transactions"),
        (("find-hanging",), "requires either --topic or --broker-id"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "requires --topic"),
        (("find-hanging", "--topic", "none"), "does not host this topic-partition"),
        (ABORT_T0, "must be identified either"),
        ((*ABORT_T0, "--producer-id", "1"), "--producer-epoch"),
        ((*ABORT_T0, "--producer-id", "1", "--producer-epoch", "0"), "--coordinator-epoch"),
        ((*ABORT_T0, "--start-offset", "77"), "starting at offset 77 on partition t-0"),
        ((*ABORT_T0, "--start-offset", "77", "--producer-id", "1"), "starting at offset 77"),
    ],
)
def test_what_cannot_be_done_is_refused_in_the_same_words(
    both: Tool, script: TransactionScript, arguments: tuple[str, ...], said: str
) -> None:
    before = script.last_stable_offsets([T0, T1, U0])
    printed = both(*arguments)
    assert (printed.status, printed.out, len(printed.err)) == (1, [], 1)
    assert said in printed.err[0]
    assert script.last_stable_offsets([T0, T1, U0]) == before


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("describe",),
        ("forceTerminateTransaction",),
        ("describe-producers", "--topic", "t"),
        ("describe-producers", "--topic", "t", "--partition", "x"),
        ("describe-producers", "--topic", "t", "--partition", 1 << 31),
        ("abort", "--partition", "0", "--start-offset", "0"),
        (*ABORT_T0, "--start-offset", 1 << 63),
        (*ABORT_T0, "--producer-id", "1", "--producer-epoch", 1 << 15, "--coordinator-epoch", "0"),
        ("list", "--duration-filter", "soon"),
        ("list", "--nonsense"),
    ],
)
def test_options_that_are_missing_or_wrong_end_both_with_the_same_status(
    kafka_tools: KafkaTools, arguments: tuple[object, ...]
) -> None:
    """Before any broker is asked."""
    given = ["--bootstrap-server", "b:1", *map(str, arguments)]
    by_kafka, by_pykraft = kafka_tools.run(TOOL, *given), CliRunner().invoke(cli, ["transactions", *given])
    assert (by_pykraft.exit_code, by_kafka.returncode) == (1, 1)
    assert (by_pykraft.stdout, by_kafka.stdout) == ("", "")
    assert by_pykraft.stderr and by_kafka.stderr


def hanging(printed: Printed, producer: Producer) -> list[dict[str, str]]:
    return [row for row in printed.rows if row["ProducerId"] == str(producer.id)]


@pytest.mark.parametrize("named_by", ["offset", "producer"])
@pytest.mark.parametrize("by", ["kafka", "pykraft"])
def test_hanging_transaction_is_found_and_aborted_and_the_last_stable_offset_moves(
    both: Tool, kafka_tool: Tool, own_tool: Tool, script: TransactionScript, by: str, named_by: str
) -> None:
    producer = script.hang(f"hanging-{by}-{named_by}", T1)
    before = script.last_stable_offsets([T1])[T1]
    for scope in (("--topic", "t"), ("--broker-id", "1"), ("--topic", "t", "--partition", "1")):
        (row,) = hanging(both("find-hanging", *scope), producer)
        assert (row["Topic"], row["Partition"], row["StartOffset"]) == ("t", "1", str(before))
        assert int(row["Duration(min)"]) == pytest.approx(
            (SystemClock().wall_ms() - FIRST_MS) / 60_000, abs=2
        )
    assert not hanging(both("find-hanging", "--topic", "u"), producer)
    names = {
        "offset": ("--start-offset", before),
        "producer": (
            *("--producer-id", producer.id),
            *("--producer-epoch", producer.epoch),
            *("--coordinator-epoch", -1),
        ),
    }
    tool = {"kafka": kafka_tool, "pykraft": own_tool}[by]
    printed = tool("abort", "--topic", "t", "--partition", "1", *names[named_by])
    assert (printed.status, printed.out, printed.err) == (0, [], [])
    assert script.last_stable_offsets([T1])[T1] == before + 2, "the record and the marker"
    assert not hanging(both("find-hanging", "--broker-id", "1"), producer)
    rows = both("describe-producers", "--topic", "t", "--partition", "1").rows
    (row,) = (row for row in rows if row["ProducerId"] == str(producer.id))
    assert row["CurrentTransactionStartOffset"] == "None"


def test_transactions_that_may_still_end_do_not_hang(both: Tool, script: TransactionScript) -> None:
    """One is known to its coordinator, the other is not old enough: unless no time is too short."""
    young = script.hang("young", U0, SystemClock().wall_ms())
    assert both("find-hanging", "--topic", "u").rows == []
    (row,) = both("find-hanging", "--topic", "u", "--max-transaction-timeout", "0").rows
    assert row["ProducerId"] == str(young.id)


def test_open_transaction_is_aborted_by_force_and_its_producer_shut_out(
    both: Tool, kafka_tool: Tool, own_tool: Tool, script: TransactionScript
) -> None:
    for tool, name in ((kafka_tool, "forced-1"), (own_tool, "forced-2"), (own_tool, "never-seen")):
        if name != "never-seen":
            producer = script.producer(name)
            script.add(producer, [T0])
            script.write(producer, T0)
        printed = tool("forceTerminateTransaction", "--transactionalId", name)
        assert (printed.status, printed.out, printed.err) == (0, [], [])
        (row,) = both("describe", "--transactional-id", name).rows
        assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Empty", "30000")
        epoch = 0 if name == "never-seen" else producer.epoch + 2
        assert int(row["ProducerEpoch"]) == epoch, "one for the abort, one for the next producer"
