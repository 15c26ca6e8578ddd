"""kafka-consumer-groups and ``pykraft consumer-groups`` on the same groups: the same lines, the same status.

Kafka's tool lists groups and partitions in no particular order; the lines are compared sorted. It reports
errors among its results, with the names of exceptions; ours are lines of their own on standard error.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from pykraft.node.cli.root import cli
from pykraft.runtime.address import parse_address
from tests.interop.clusters import own_cluster
from tests.interop.group_script import GroupScript
from tests.interop.java_jars import KafkaTools

pytestmark = pytest.mark.interop

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LONG_SESSIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
RECORDS = {0: 5, 1: 3}
FIRST_MS = 1_700_000_000_000
LONG_NAME = "a-group-with-a-name-that-no-column-is-made-for"


_EXCEPTION = re.compile(r"(?:[a-z]+\.)+[A-Z]\w*Exception: ")


@dataclass
class Printed:
    status: int
    out: list[str]
    err: str

    @property
    def reasons(self) -> list[str]:
        """Of what our tool reports as errors."""
        errors = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        return [re.split("due to:? |Error: ", line)[-1] for line in errors]


def check_alike(by_kafka: Printed, by_pykraft: Printed) -> None:
    """The same results and status; for the same reasons not all of them."""
    assert by_pykraft.status == by_kafka.status
    if not by_pykraft.reasons:
        assert sorted(by_pykraft.out) == sorted(by_kafka.out)
        return
    told = _EXCEPTION.sub("", "\n".join(by_kafka.out))
    assert not [it for it in by_pykraft.reasons if it not in told]
    assert set(by_pykraft.out) <= set(by_kafka.out)
    assert not [line for line in by_pykraft.out if "Error" in line or "Exception" in line]


Tool = Callable[..., Printed]


@pytest.fixture(scope="module")
def script() -> Iterator[GroupScript]:
    """A broker with groups of every kind, and records in topic ``t``."""
    with own_cluster(1, LONG_SESSIONS) as cluster:
        script = GroupScript(parse_address(cluster.bootstrap_servers))
        try:
            script.prepare()
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            for partition, count in RECORDS.items():
                for at in range(count):
                    producer.produce("t", b"v", partition=partition, timestamp=FIRST_MS + 1000 * at)
            assert producer.flush(30) == 0
            yield script
        finally:
            script.close()


@pytest.fixture
def kafka_tool(kafka_tools: KafkaTools, script: GroupScript) -> Tool:
    def run(*arguments: object) -> Printed:
        done = kafka_tools.run(TOOL, "--bootstrap-server", script.bootstrap_servers, *arguments)
        return Printed(done.returncode, done.stdout.splitlines(), done.stderr)

    return run


@pytest.fixture
def own_tool(script: GroupScript) -> Tool:
    def run(*arguments: object) -> Printed:
        given = ["--bootstrap-server", script.bootstrap_servers, *map(str, arguments)]
        done = CliRunner().invoke(cli, ["consumer-groups", *given])
        return Printed(done.exit_code, done.stdout.splitlines(), done.stderr)

    return run


@pytest.fixture
def both(kafka_tool: Tool, own_tool: Tool) -> Tool:
    """Both tools, which must print the same; for commands that change nothing."""

    def run(*arguments: object) -> Printed:
        by_kafka, by_pykraft = kafka_tool(*arguments), own_tool(*arguments)
        check_alike(by_kafka, by_pykraft)
        return by_pykraft

    return run


@pytest.mark.parametrize(
    "filters",
    [
        (),
        ("--state",),
        ("--type",),
        ("--state", "--type"),
        ("--state", "stable,Empty", "--type", "CONSUMER"),
        ("--state", "Assigning"),
    ],
)
def test_groups_are_listed_alike(both: Tool, filters: tuple[str, ...]) -> None:
    printed = both("--list", *filters)
    assert printed.status == 0
    assert not any("connect" in line for line in printed.out), "it is no group of consumers"


def test_properties_and_timeout_are_taken_by_both(both: Tool, tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    file.write_text("client.id=me\nrequest.timeout.ms=20000\n", encoding="utf-8")
    assert both("--list", "--timeout", 20_000, "--command-config", file).status == 0


def test_groups_of_every_kind_are_listed_by_kafkas_other_tool(
    kafka_tools: KafkaTools, script: GroupScript
) -> None:
    tool = "org.apache.kafka.tools.GroupsCommand"
    printed = kafka_tools.check(tool, "--bootstrap-server", script.bootstrap_servers, "--list")
    rows = {tuple(line.split()) for line in printed.splitlines()}
    assert rows >= {
        ("classic", "Classic", "consumer"),
        ("connect", "Classic", "connect"),
        ("consumer", "Consumer", "consumer"),
    }


@pytest.mark.parametrize("shown", [(), ("--offsets",), ("--members",), ("--state",)])
@pytest.mark.parametrize("verbose", [(), ("--verbose",)])
def test_groups_are_described_alike(both: Tool, shown: tuple[str, ...], verbose: tuple[str, ...]) -> None:
    printed = both("--describe", "--all-groups", *shown, *verbose)
    assert printed.status == 0
    assert printed.out, "something is described"
    assert "Consumer group 'simple' has no active members." in printed.err


@pytest.mark.parametrize("group_id", ["nobody", "connect"])
@pytest.mark.parametrize("shown", ["--offsets", "--members", "--state"])
def test_group_that_cannot_be_described_is_reported_alike(both: Tool, group_id: str, shown: str) -> None:
    printed = both("--describe", "--group", group_id, shown)
    assert (printed.status, printed.out, len(printed.err.splitlines())) == (0, [], 1)
    assert group_id in printed.reasons[0]


TOPIC = ("--topic", "t")


@pytest.mark.parametrize(
    "options",
    [
        ("--to-earliest", "--all-topics"),
        ("--to-latest", *TOPIC),
        ("--to-latest", "--topic", "t:1", "--topic", "u"),
        ("--to-current", *TOPIC, "--topic", "u:0,1"),
        ("--to-offset", "2", "--all-topics"),
        ("--to-offset", "0", *TOPIC),
        ("--to-offset", "99", *TOPIC),
        ("--to-offset", "-5", *TOPIC),
        ("--shift-by", "1", "--all-topics"),
        ("--shift-by", "-9", "--all-topics"),
        ("--to-datetime", "2023-11-14T22:13:22.000", *TOPIC),
        ("--to-datetime", "2023-11-15T00:13:22.001+02:00", "--all-topics"),
        ("--to-datetime", "2030-01-01T00:00:00.000Z", *TOPIC),
        ("--by-duration", "P10000D", *TOPIC),
        ("--by-duration", "PT0S", *TOPIC),
        ("--to-earliest", "--topic", "t:0,7"),
        ("--to-earliest", "--topic", "none:0"),
        ("--to-earliest", "--topic", "none"),
        ("--to-latest", "--all-topics", "--export"),
    ],
)
def test_new_offsets_are_planned_alike(both: Tool, script: GroupScript, options: tuple[str, ...]) -> None:
    before = script.offsets("simple")
    both("--reset-offsets", "--group", "simple", "--dry-run", *options)
    assert script.offsets("simple") == before, "a dry run changes nothing"


def test_only_groups_without_members_are_reset(both: Tool) -> None:
    printed = both("--reset-offsets", "--all-groups", "--to-earliest", "--all-topics", "--dry-run")
    assert printed.reasons
    both("--reset-offsets", "--all-groups", "--to-earliest", "--all-topics", "--dry-run", "--export")
    missing = ("--group", "nobody", "--group", "classic")
    both("--reset-offsets", *missing, "--to-earliest", *TOPIC, "--dry-run")
    both("--reset-offsets", "--group", "connect", "--to-earliest", *TOPIC, "--dry-run")


@pytest.mark.parametrize("group_id", ["first", "with space", 'quo"ted', LONG_NAME, "a" * 24, "a" * 25, "ä,+"])
def test_exported_offsets_are_read_by_both(
    both: Tool, script: GroupScript, tmp_path: Path, group_id: str
) -> None:
    script.commit(group_id, [("t", (0, 1)), ("u", (1,))])
    script.commit("second", [("t", (1,))])
    names = ("--group", group_id, "--group", "second")
    for given in (names[:2], names):
        printed = both("--reset-offsets", *given, "--to-current", "--all-topics", "--dry-run", "--export")
        file = tmp_path / "plan.csv"
        file.write_text("\n".join(printed.out) + "\n", encoding="utf-8")
        planned = both("--reset-offsets", *given, "--from-file", file, "--dry-run")
        assert planned.status == 0
        assert len(planned.out) == 1 + len(printed.out)
    only = ("--group", group_id)
    both("--reset-offsets", *only, "--from-file", file, "--dry-run")
    file.write_text("other,t,0,1\n", encoding="utf-8")
    assert both("--reset-offsets", *only, "--from-file", file, "--dry-run").reasons


def test_offsets_are_reset_alike(kafka_tool: Tool, own_tool: Tool, script: GroupScript) -> None:
    topics = ("--topic", "t", "--topic", "u:1")
    found = []
    for tool, group_id in ((kafka_tool, "reset-1"), (own_tool, "reset-2")):
        script.commit(group_id, [("t", (0,)), ("u", (0,))])
        group = ("--reset-offsets", "--execute", "--group", group_id)
        printed = [
            tool(*group, "--shift-by", "2", "--topic", "t:0"),
            tool(*group, "--to-latest", *topics),
            tool("--reset-offsets", "--group", group_id, "--to-earliest", *topics),
        ]
        assert [it.status for it in printed] == [0, 0, 0]
        assert "WARN: No action will be performed as the --execute option is missing." in printed[-1].err
        lines = [[line.replace(group_id, "GROUP") for line in it.out] for it in printed]
        found.append(([sorted(it) for it in lines], script.offsets(group_id)))
    assert found[0] == found[1]
    assert found[0][1] == {("t", 0): 5, ("t", 1): 3, ("u", 0): 1, ("u", 1): 0}


def test_offsets_are_deleted_alike(kafka_tool: Tool, own_tool: Tool, script: GroupScript) -> None:
    printed = []
    for tool, group_id in ((kafka_tool, "delete-1"), (own_tool, "delete-2")):
        script.commit(group_id, [("t", (0, 1)), ("u", (0,))])
        done = [
            tool("--delete-offsets", "--group", group_id, "--topic", "t:1", "--topic", "u"),
            tool("--delete-offsets", "--group", group_id, "--topic", "t:9", "--topic", "none"),
        ]
        printed.append([in_general(it, group_id) for it in done])
        assert script.offsets(group_id) == {("t", 0): 1}
    for by_kafka, by_pykraft in zip(*printed, strict=True):
        check_alike(by_kafka, by_pykraft)
    assert len(printed[1][1].reasons) == 2


def in_general(printed: Printed, group_id: str) -> Printed:
    """What is printed of whatever group."""
    return replace(printed, out=[line.replace(group_id, "GROUP") for line in printed.out])


@pytest.mark.parametrize("group_id", ["nobody", "classic", "consumer", "connect"])
def test_offsets_that_may_not_be_deleted_are_reported_alike(
    both: Tool, script: GroupScript, group_id: str
) -> None:
    before = script.offsets(group_id)
    assert both("--delete-offsets", "--group", group_id, "--topic", "t").reasons
    assert script.offsets(group_id) == before


def test_groups_are_deleted_alike(kafka_tool: Tool, own_tool: Tool, script: GroupScript) -> None:
    printed = []
    for tool, group_id in ((kafka_tool, "gone-1"), (own_tool, "gone-2")):
        script.commit(group_id, [("t", (0,))])
        done = [tool("--delete", "--group", group_id)]
        script.commit(group_id, [("t", (0,))])
        done.append(tool("--delete", *("--group", group_id), *("--group", "classic"), *("--group", "nobody")))
        printed.append([in_general(it, group_id) for it in done])
        assert script.offsets(group_id) == {}
    for by_kafka, by_pykraft in zip(*printed, strict=True):
        check_alike(by_kafka, by_pykraft)
    assert len(printed[1][1].reasons) == 2


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--list", "--describe"),
        ("--describe",),
        ("--describe", "--group", "g", "--all-groups"),
        ("--describe", "--group", "g", "--members", "--offsets"),
        ("--describe", "--group", "g", "--state", "stable"),
        ("--describe", "--group", "g", "--topic", "t"),
        ("--describe", "--group", "g", "--type"),
        ("--list", "--group", "g"),
        ("--list", "--members"),
        ("--list", "--verbose"),
        ("--list", "--state", "nonsense"),
        ("--list", "--type", "share"),
        ("--delete",),
        ("--delete", "--group", "g", "--topic", "t"),
        ("--delete-offsets", "--group", "g"),
        ("--delete-offsets", "--topic", "t"),
        ("--delete-offsets", "--group", "g", "--group", "h", "--topic", "t"),
        ("--delete-offsets", "--group", "simple", "--topic", "t:"),
        ("--delete-offsets", "--group", "simple", "--topic", "t:x"),
        ("--reset-offsets", "--to-latest", "--all-topics"),
        ("--reset-offsets", "--group", "simple", "--all-topics", "--dry-run"),
        ("--reset-offsets", "--group", "simple", "--to-latest", "--dry-run"),
        ("--reset-offsets", "--group", "g", "--to-latest", "--to-earliest", "--all-topics"),
        ("--reset-offsets", "--group", "g", "--to-latest", "--all-topics", "--dry-run", "--execute"),
        ("--reset-offsets", "--group", "simple", "--to-offset", "x", "--all-topics"),
        ("--reset-offsets", "--group", "simple", "--shift-by", "1", "--topic", "u:1"),
    ],
)
def test_what_kafkas_tool_refuses_is_refused(
    kafka_tool: Tool, own_tool: Tool, options: tuple[str, ...]
) -> None:
    by_kafka, by_pykraft = kafka_tool(*options), own_tool(*options)
    # Kafka's tool meets some values that it cannot read only when it uses them: its status is then 0.
    assert by_kafka.status == 1 or by_kafka.out[1].startswith(
        "Error: Executing consumer group command failed"
    )
    assert (by_pykraft.status, by_pykraft.out) == (1, [])
    assert by_pykraft.err.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("regex", ["t.*", "(", "[a", "a{1001}", "(?=a)", r"\1", "", "*a", r"\pN+", "a**"])
def test_regular_expressions_are_judged_alike(own_tool: Tool, kafka_tool: Tool, regex: str) -> None:
    by_kafka, by_pykraft = kafka_tool("--validate-regex", regex), own_tool("--validate-regex", regex)
    assert by_kafka.out[0].split(":")[0].rstrip(".") == by_pykraft.out[0].split(":")[0].rstrip(".")
