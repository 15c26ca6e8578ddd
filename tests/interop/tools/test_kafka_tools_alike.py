"""Kafka's tools and ours on the same node: the same lines, the same status; and the same flags."""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from pykraft.node.cli.kafka_scripts.flags import TOOLS, KafkaTool
from pykraft.testing import Cluster
from tests.interop.java_jars import KafkaTools
from tests.node.cli_runner import answer, invoke

pytestmark = pytest.mark.interop

_TOOLS: Final = "org.apache.kafka.tools."
CLASSES: Final = {
    "broker-api-versions": f"{_TOOLS}BrokerApiVersionsCommand",
    "client-metrics": f"{_TOOLS}ClientMetricsCommand",
    "cluster": f"{_TOOLS}ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": f"{_TOOLS}consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_TOOLS}DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}DumpLogSegments",
    "features": f"{_TOOLS}FeatureCommand",
    "get-offsets": f"{_TOOLS}GetOffsetShell",
    "groups": f"{_TOOLS}GroupsCommand",
    "leader-election": f"{_TOOLS}LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}MetadataQuorumCommand",
    "reassign-partitions": f"{_TOOLS}reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": f"{_TOOLS}TopicCommand",
    "transactions": f"{_TOOLS}TransactionsCommand",
}
_FLAG: Final = re.compile(r"^(?:  |\* )?(--?[a-zA-Z][\w.-]*)(?: [A-Z_]+)?(?:, (--?\w[\w-]*))?", re.M)
_ENDS_THE_JVM: Final = "cluster"
"""Its help would end the JVM that all tools share."""


@pytest.mark.parametrize(
    "tool",
    [it for it in TOOLS if it.command.split()[0] in CLASSES.keys() - {_ENDS_THE_JVM}],
    ids=lambda tool: tool.script,
)
def test_the_table_has_exactly_the_flags_of_kafkas_tool(kafka_tools: KafkaTools, tool: KafkaTool) -> None:
    name, *words = tool.command.split()
    done = kafka_tools.run(CLASSES[name], *words, "--help")
    found = {flag for match in _FLAG.findall(done.stdout + done.stderr) for flag in match if flag}
    assert found - {"--help", "-h"} == set(tool.flags)


class Printed(NamedTuple):
    status: int
    out: str


Both = Callable[..., Printed]


@pytest.fixture
def both(single: Cluster, kafka_tools: KafkaTools) -> Both:
    """Run a command line with both tools, which must print the same. ``@`` stands for the broker's address,
    ``@@`` for the controller's.
    """
    addresses = {
        "@": ("--bootstrap-server", single.bootstrap_servers),
        "@@": ("--bootstrap-controller", single.bootstrap_controllers),
    }

    def run(line: str) -> Printed:
        name, *words = (part for word in line.split() for part in addresses.get(word, (word,)))
        theirs = kafka_tools.run(CLASSES[name], *words)
        ours = invoke(name, *words)
        assert _lines(ours.stdout) == _lines(theirs.stdout), line
        assert ours.exit_code == theirs.returncode, line
        return Printed(ours.exit_code, ours.stdout)

    return run


def _lines(text: str) -> list[str]:
    """In no order, nor the configurations of a topic: Kafka's tool has them in that of a Java hash map."""
    parts = (line.partition("Configs: ") for line in text.splitlines())
    return sorted(f"{before}{word}{sorted(configs.split(','))}" for before, word, configs in parts)


def prepare(*words: object) -> None:
    assert invoke(*words).exit_code == 0


def test_topics_are_listed_and_described_alike(
    single: Cluster, both: Both, fresh: Callable[..., str]
) -> None:
    plain, set_ = (f"{fresh('alike')}.t" for _ in range(2))
    single.create_topic(plain, 3)
    single.create_topic(set_, 1, 1, {"retention.ms": "5", "cleanup.policy": "compact,delete"})
    for line in (
        "--list",
        f"--list --topic alike.*,{plain}",
        f"--describe --topic {plain}",
        f"--describe --topic {plain} --partition-size-limit-per-response 1",
        f"--describe --topic {plain}|{set_} --topics-with-overrides",
        "--describe --topic alike.* --at-min-isr-partitions",
        "--describe --topic alike.* --under-replicated-partitions --unavailable-partitions",
        "--describe --topic none --if-exists",
        f"--create --topic {plain} --if-not-exists",
        f"--delete --topic {fresh()} --if-exists",
    ):
        both(f"topics @ {line}")
    described = both(f"topics @ --describe --topic {plain}|{set_} --topics-with-overrides")
    # The properties of the server set one for all topics.
    assert re.findall(r"Topic: (\S+)", described.out) == [plain, set_]


def test_configurations_are_described_and_changed_alike(
    single: Cluster, both: Both, fresh: Callable[..., str]
) -> None:
    topic = fresh("alike")
    single.create_topic(topic, 1, 1, {"retention.ms": "5"})
    for entity in (
        f"--topic {topic}",
        f"--topic {topic} --all",
        "--broker 1 --all",
        "--broker-defaults",
        "--entity-type brokers",
        "--broker-logger 1",
        "--entity-type groups",
        "--entity-type client-metrics",
    ):
        both(f"configs @ --describe {entity}")
    both("configs @@ --describe --broker 1 --all")
    both(f"configs @ --alter --topic {topic} --add-config cleanup.policy=[compact,delete],retention.ms=7")
    assert "retention.ms=7 " in both(f"configs @ --describe --entity-type topics --entity-name {topic}").out
    for entity, change in (
        ("--group g", "consumer.session.timeout.ms=50000"),
        ("--client-metrics m", "interval.ms=1000"),
        ("--broker-logger 1", "pykraft.quorum.driver=INFO"),
        ("--broker 1", "log.retention.ms=9"),
        ("--broker-defaults", "log.retention.ms=9"),
    ):
        both(f"configs @ --alter {entity} --add-config {change}")
        both(f"configs @ --describe {entity}")
        prepare(
            *("configs", "--bootstrap-server", single.bootstrap_servers, "--alter", *entity.split()),
            *("--delete-config", change.partition("=")[0]),
        )


def test_log_levels_are_those_of_the_broker_that_is_named(trio: Cluster) -> None:
    levels = ("configs", "--bootstrap-server", trio.bootstrap_servers, "--broker-logger")
    prepare(*levels, 3, "--alter", "--add-config", "pykraft.quorum.driver=DEBUG")
    found = [answer(*levels, node, "--describe")[0]["configs"]["pykraft.quorum.driver"] for node in (1, 3)]
    prepare(*levels, 3, "--alter", "--delete-config", "pykraft.quorum.driver")
    assert found == ["INFO", "DEBUG"]


def test_subscriptions_are_shown_alike(single: Cluster, both: Both) -> None:
    both("client-metrics @ --alter --name alike --metrics a.b,c --interval 1000")
    for line in ("--list", "--describe", "--describe --name alike"):
        both(f"client-metrics @ {line}")
    prepare("client-metrics", "--bootstrap-server", single.bootstrap_servers, "--delete", "--name", "alike")


@pytest.mark.parametrize(
    "line",
    [
        "broker-api-versions @",
        "cluster cluster-id @",
        "cluster cluster-id @@",
        "cluster list-endpoints @ --include-fenced-brokers",
        "cluster list-endpoints @@",
        "features @ describe",
        "features @ describe --node-id 1",
        "features @@ describe",
        "features @ downgrade --feature transaction.version=1 --dry-run",
        "features @ disable --feature group.version --dry-run",
        "features feature-dependencies --feature eligible.leader.replicas.version=1",
        "storage feature-dependencies --feature metadata.version=30",
        "groups @ --list",
        "groups @ --list --consumer",
        "consumer-groups @ --list",
        "leader-election @ --election-type preferred --all-topic-partitions",
        "reassign-partitions @@ --list",
    ],
)
def test_the_rest_prints_the_same(both: Both, line: str) -> None:
    both(line)


def test_status_of_the_quorum_has_the_same_lines(single: Cluster, kafka_tools: KafkaTools) -> None:
    for address in (
        ("--bootstrap-server", single.bootstrap_servers),
        ("--bootstrap-controller", single.bootstrap_controllers),
    ):
        for shown in ("--status", "--replication"):
            words = (*address, "describe", shown)
            theirs = kafka_tools.check(CLASSES["metadata-quorum"], *words)
            ours = invoke("metadata-quorum", *words).stdout
            # The log grows while the tools run, and the clock goes on.
            texts = [
                re.sub(r"(HighWatermark: +)\d+|\b\d{13} *|^(\d+ *\t\S+\t)\d+", r"\1\2", it, flags=re.M)
                for it in (ours, theirs)
            ]
            assert texts[0].split("\n") == texts[1].split("\n")


def test_log_directories_have_the_same_content(single: Cluster, kafka_tools: KafkaTools) -> None:
    words = ("--bootstrap-server", single.bootstrap_servers, "--describe", "--broker-list", "1")
    *theirs, their_json = kafka_tools.check(CLASSES["log-dirs"], *words).splitlines()
    *ours, our_json = invoke("log-dirs", *words).stdout.splitlines()
    assert ours == theirs
    found = [json.loads(text) for text in (our_json, their_json)]
    for one in found:
        for log_dir in one["brokers"][0]["logDirs"]:
            log_dir["partitions"].sort(key=lambda it: str(it["partition"]))
    assert found[0] == found[1]
