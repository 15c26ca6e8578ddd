"""Kafka's scripts and their flags, and what ``pykraft`` has in their place: data for the table of tools, for
launchers under Kafka's names, and for tests. A script with commands of its own has one entry for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.node.cli.kafka_scripts.flags_consoles import CONSOLE_TOOLS
from pykraft.node.cli.kafka_scripts.tool import KafkaTool


def _same(*flags: str) -> dict[str, str]:
    """Flags that are ours, too, under the same names."""
    return dict.fromkeys(flags, "")


_CLUSTER: Final = _same("--bootstrap-server", "--command-config")
_TOOL: Final = _CLUSTER | _same("--version")
_CONTROLLERS: Final = _same("--bootstrap-controller")

_TOPICS: Final = KafkaTool(
    "kafka-topics",
    "topics",
    _TOOL
    | _same("--create", "--delete", "--describe", "--alter", "--list", "--topic", "--topic-id")
    | _same("--partitions", "--replication-factor", "--replica-assignment", "--config")
    | _same("--if-exists", "--if-not-exists", "--exclude-internal", "--topics-with-overrides")
    | _same("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions")
    | _same("--at-min-isr-partitions", "--partition-size-limit-per-response")
    | {"--delete-config": "has no effect in Kafka since 4.0; `configs` has it"},
)
_NO_QUOTAS: Final = "there are neither quotas nor SCRAM credentials yet"
_CONFIGS: Final = KafkaTool(
    "kafka-configs",
    "configs",
    _TOOL
    | _CONTROLLERS
    | _same("--describe", "--alter", "--all", "--add-config", "--add-config-file", "--delete-config")
    | _same("--entity-type", "--entity-name", "--entity-default", "--topic", "--broker")
    | _same("--broker-defaults", "--broker-logger", "--group", "--client-metrics")
    | dict.fromkeys(("--user", "--user-defaults", "--client", "--client-defaults"), _NO_QUOTAS)
    | dict.fromkeys(("--ip", "--ip-defaults"), "there are no quotas yet"),
)
_CLIENT_METRICS: Final = KafkaTool(
    "kafka-client-metrics",
    "client-metrics",
    _TOOL
    | _same("--alter", "--delete", "--describe", "--list", "--name", "--generate-name")
    | _same("--interval", "--match", "--metrics"),
)
_BROKER_API_VERSIONS: Final = KafkaTool("kafka-broker-api-versions", "broker-api-versions", _TOOL)
_GET_OFFSETS: Final = KafkaTool(
    "kafka-get-offsets",
    "get-offsets",
    _TOOL | _same("--topic", "--partitions", "--topic-partitions", "--time", "--exclude-internal-topics"),
)
_DELETE_RECORDS: Final = KafkaTool(
    "kafka-delete-records", "delete-records", _TOOL | _same("--offset-json-file")
)
_LOG_DIRS: Final = KafkaTool(
    "kafka-log-dirs", "log-dirs", _TOOL | _same("--describe", "--broker-list", "--topic-list")
)
_LEADER_ELECTION: Final = KafkaTool(
    "kafka-leader-election",
    "leader-election",
    _TOOL
    | _same("--admin.config", "--election-type", "--topic", "--partition", "--all-topic-partitions")
    | _same("--path-to-json-file"),
)
_REASSIGN_PARTITIONS: Final = KafkaTool(
    "kafka-reassign-partitions",
    "reassign-partitions",
    _TOOL
    | _CONTROLLERS
    | _same("--generate", "--execute", "--verify", "--cancel", "--list", "--reassignment-json-file")
    | _same("--topics-to-move-json-file", "--broker-list", "--disable-rack-aware", "--additional")
    | _same("--throttle", "--replica-alter-log-dirs-throttle", "--timeout", "--preserve-throttles")
    | _same("--disallow-replication-factor-change"),
)

_GROUP_TOOLS: Final = (
    KafkaTool(
        "kafka-consumer-groups",
        "consumer-groups",
        _TOOL
        | _same("--list", "--describe", "--delete", "--reset-offsets", "--delete-offsets")
        | _same("--validate-regex", "--group", "--all-groups", "--topic", "--all-topics", "--members")
        | _same("--offsets", "--state", "--type", "--verbose", "--timeout", "--dry-run", "--execute")
        | _same("--export", "--from-file", "--to-earliest", "--to-latest", "--to-current", "--to-offset")
        | _same("--to-datetime", "--by-duration", "--shift-by"),
    ),
    KafkaTool(
        "kafka-groups",
        "groups",
        _TOOL | _same("--list", "--group-type", "--protocol", "--consumer", "--share", "--streams"),
    ),
)

_TRANSACTION_TOOLS: Final = (
    KafkaTool("kafka-transactions", "transactions", _TOOL | _same("-v")),
    KafkaTool(
        "kafka-transactions list",
        "transactions list",
        _same("--duration-filter", "--transactional-id-pattern"),
    ),
    KafkaTool("kafka-transactions describe", "transactions describe", _same("--transactional-id")),
    KafkaTool(
        "kafka-transactions describe-producers",
        "transactions describe-producers",
        _same("--broker-id", "--topic", "--partition"),
    ),
    KafkaTool(
        "kafka-transactions abort",
        "transactions abort",
        _same("--topic", "--partition", "--start-offset", "--producer-id", "--producer-epoch")
        | _same("--coordinator-epoch"),
    ),
    KafkaTool(
        "kafka-transactions find-hanging",
        "transactions find-hanging",
        _same("--broker-id", "--max-transaction-timeout", "--topic", "--partition"),
    ),
    KafkaTool(
        "kafka-transactions forceTerminateTransaction",
        "transactions forceTerminateTransaction",
        _same("--transactionalId"),
    ),
)

_OF_A_CLUSTER: Final = _CLUSTER | _CONTROLLERS | _same("--config", "-b", "-C", "-c")
_CLUSTER_TOOLS: Final = (
    KafkaTool("kafka-cluster cluster-id", "cluster cluster-id", _OF_A_CLUSTER),
    KafkaTool(
        "kafka-cluster list-endpoints",
        "cluster list-endpoints",
        _OF_A_CLUSTER | _same("--include-fenced-brokers"),
    ),
    KafkaTool("kafka-cluster unregister", "cluster unregister", _OF_A_CLUSTER | _same("--id", "-i")),
)

_QUORUM_TOOLS: Final = (
    KafkaTool("kafka-metadata-quorum", "metadata-quorum", _CLUSTER | _CONTROLLERS),
    KafkaTool(
        "kafka-metadata-quorum describe",
        "metadata-quorum describe",
        _same("--status", "--replication", "--human-readable"),
    ),
    KafkaTool("kafka-metadata-quorum add-controller", "metadata-quorum add-controller", _same("--dry-run")),
    KafkaTool(
        "kafka-metadata-quorum remove-controller",
        "metadata-quorum remove-controller",
        _same("--controller-id", "-i", "--controller-directory-id", "-d", "--dry-run"),
    ),
)

_LEVELS: Final = _same("--metadata", "--release-version", "--feature", "--dry-run")
_FEATURE_TOOLS: Final = (
    KafkaTool("kafka-features", "features", _CLUSTER | _CONTROLLERS),
    KafkaTool("kafka-features describe", "features describe", _same("--node-id")),
    KafkaTool("kafka-features upgrade", "features upgrade", _LEVELS),
    KafkaTool("kafka-features downgrade", "features downgrade", _LEVELS | _same("--unsafe")),
    KafkaTool("kafka-features disable", "features disable", _same("--feature", "--unsafe", "--dry-run")),
    KafkaTool("kafka-features version-mapping", "features version-mapping", _same("--release-version")),
    KafkaTool("kafka-features feature-dependencies", "features feature-dependencies", _same("--feature")),
)

_STORAGE_TOOLS: Final = (
    KafkaTool("kafka-storage info", "storage info", _same("--config", "-c")),
    KafkaTool(
        "kafka-storage format",
        "storage format",
        _same("--config", "-c", "--cluster-id", "-t", "--ignore-formatted", "-g", "--release-version", "-r")
        | _same("--feature", "-f", "--standalone", "-s", "--no-initial-controllers", "-N")
        | _same("--initial-controllers", "-I")
        | dict.fromkeys(("--add-scram", "-S"), "there is no SASL yet"),
    ),
    KafkaTool("kafka-storage version-mapping", "storage version-mapping", _same("--release-version", "-r")),
    KafkaTool("kafka-storage feature-dependencies", "storage feature-dependencies", _same("--feature", "-f")),
    KafkaTool("kafka-storage random-uuid", "storage random-uuid", {}),
)

_NO_CLASSES: Final = "it would be a class of Java"
_FILE_TOOLS: Final = (
    KafkaTool(
        "kafka-dump-log",
        "dump-log",
        _same("--version", "--files", "--print-data-log", "--deep-iteration", "--max-bytes")
        | _same("--cluster-metadata-decoder", "--offsets-decoder", "--transaction-log-decoder")
        | _same("--index-sanity-check", "--verify-index-only", "--skip-record-metadata")
        | _same("--max-message-size")
        | dict.fromkeys(("--key-decoder-class", "--value-decoder-class"), _NO_CLASSES)
        | {
            "--remote-log-metadata-decoder": "there is no tiered storage",
            "--share-group-state-decoder": "there are no share groups",
        },
    ),
    KafkaTool("kafka-metadata-shell", "metadata-shell", _same("--snapshot", "-s")),
)

_SERVER_START: Final = KafkaTool(
    "kafka-server-start",
    "server start",
    _same("--override") | {"-daemon": "leave it to a service manager, or to `nohup … &`"},
)

TOOLS: Final = (
    *(_TOPICS, _CONFIGS, *_GROUP_TOOLS, *CONSOLE_TOOLS.values()),
    *(_GET_OFFSETS, _DELETE_RECORDS, *_TRANSACTION_TOOLS, _CLIENT_METRICS),
    *(*_CLUSTER_TOOLS, _BROKER_API_VERSIONS, _LOG_DIRS, _LEADER_ELECTION, _REASSIGN_PARTITIONS),
    *(*_FEATURE_TOOLS, *_QUORUM_TOOLS, *_STORAGE_TOOLS, *_FILE_TOOLS, _SERVER_START),
)
"""Every script that has a command of ours."""

_NO_SHARE_GROUPS: Final = "there are no share groups yet"
_CONNECT: Final = "Kafka Connect is a client: Kafka's own works with this broker"
_STREAMS: Final = "Kafka Streams is a client: Kafka's own works with this broker, but not its group protocol"

NOT_PROVIDED: Final[Mapping[str, str]] = {
    "kafka-acls": "there are no ACLs yet",
    "kafka-delegation-tokens": "there are no delegation tokens",
    **dict.fromkeys(
        (
            *("kafka-console-share-consumer", "kafka-share-consumer-perf-test", "kafka-share-groups"),
            "kafka-verifiable-share-consumer",
        ),
        _NO_SHARE_GROUPS,
    ),
    **dict.fromkeys(("kafka-streams-application-reset", "kafka-streams-groups"), _STREAMS),
    **dict.fromkeys(("connect-distributed", "connect-standalone", "connect-plugin-path"), _CONNECT),
    "connect-mirror-maker": "MirrorMaker is a client: Kafka's own works with this broker",
    "kafka-e2e-latency": "not made yet; `producer-perf-test` measures the time until a record is acknowledged",
    "kafka-jmx": "there is no JMX: metrics are served over HTTP",
    "kafka-replica-verification": "`spark audit-segments` compares replicas by their files",
    "kafka-run-class": "there are no classes of Java",
    "kafka-server-stop": "a node ends in order at SIGTERM",
    "trogdor": "fault runs are made by `jepsen`",
}
"""The other scripts, and why there is nothing in their place."""
