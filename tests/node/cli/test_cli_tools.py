"""The client commands on a real node, with the flags, labels and columns of Kafka's tools."""

import itertools
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytestmark = pytest.mark.slow

Run = Callable[..., str]
_numbers = itertools.count(1)


@pytest.fixture
def run(pykraft: Callable[..., Any], dev_server: str) -> Run:
    """Run a command on the node; returns its output. Its one line of error must contain ``fails_with``, or
    ``reports`` where Kafka's tool ends with 0 all the same.
    """

    def run_on_node(
        command: str,
        *arguments: str,
        stdin: str = "",
        fails_with: str | None = None,
        reports: str | None = None,
    ) -> str:
        result = pykraft(command, "--bootstrap-server", dev_server, *arguments, stdin=stdin)
        assert result.returncode == (fails_with is not None), result.stdout + result.stderr
        said = fails_with or reports
        if said is not None:
            (line,) = (line for line in result.stderr.splitlines() if "Error" in line or said in line)
            assert said in line and "Exception" not in line and "Error" not in result.stdout
        output: str = result.stdout
        return output

    return run_on_node


@pytest.fixture
def topic(run: Run) -> str:
    name = f"tools-{next(_numbers)}"
    assert run("topics", "--create", "--topic", name, "--partitions", "2") == f"Created topic {name}.\n"
    return name


def fields(line: str) -> dict[str, str]:
    """``Name: value`` pairs of a tab-separated line."""
    return dict(pair for part in line.strip().split("\t") if len(pair := part.split(": ", 1)) == 2)


def table(text: str) -> list[dict[str, str]]:
    """A table whose columns are separated by two spaces or more."""
    header, *rows = [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_topic_is_described_with_kafkas_labels(run: Run, topic: str) -> None:
    first, *partitions = run("topics", "--describe", "--topic", topic).splitlines()
    described = fields(first)
    assert described["Topic"] == topic
    assert described["PartitionCount"] == "2" and described["ReplicationFactor"] == "1"
    assert len(described["TopicId"]) == 22
    assert [fields(line)["Partition"] for line in partitions] == ["0", "1"]
    for line in partitions:
        assert fields(line) | {"Partition": ""} == {
            "Topic": topic,
            "Partition": "",
            "Leader": "1",
            "Replicas": "1",
            "Isr": "1",
            **{key: value for key, value in fields(line).items() if key in ("Elr", "LastKnownElr")},
        }


def test_topics_are_listed_extended_and_deleted(run: Run, topic: str) -> None:
    assert topic in run("topics", "--list").splitlines()
    assert topic in json.loads(run("topics", "--list", "--json"))
    run("topics", "--alter", "--topic", topic, "--partitions", "3")
    assert len(run("topics", "--describe", "--topic", topic).splitlines()) == 4
    run("topics", "--create", "--topic", topic, fails_with="TOPIC_ALREADY_EXISTS")
    run("topics", "--create", "--topic", topic, "--if-not-exists")
    run("topics", "--delete", "--topic", topic)
    assert topic not in run("topics", "--list").splitlines()
    run("topics", "--delete", "--topic", topic, fails_with=topic)
    run("topics", "--delete", "--topic", topic, "--if-exists")


def test_topic_configs_are_set_and_shown(run: Run) -> None:
    name = f"tools-{next(_numbers)}"
    run("topics", "--create", "--topic", name, "--config", "retention.ms=4242")
    (shown,) = json.loads(run("topics", "--describe", "--topic", name, "--json"))
    assert shown["configs"]["retention.ms"] == "4242"
    bad = ("topics", "--create", "--topic", "bad", "--config", "retention.ms=soon")
    run(*bad, fails_with="retention.ms")


def test_lines_are_produced_and_consumed_with_their_keys(run: Run, topic: str) -> None:
    produced = (
        "--property",
        "parse.key=true",
        "--property",
        "key.separator=:",
        "--compression-codec",
        "zstd",
    )
    run("producer", "--topic", topic, *produced, stdin="a:1\nb:2\nc:3\n")
    shown = ("--property=print.key=true", "--property=key.separator=:")
    until = ("--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
    lines = run("consumer", "--topic", topic, *shown, *until).splitlines()
    assert sorted(lines) == ["a:1", "b:2", "c:3"]
    run("producer", "--topic", topic, *produced, stdin="no separator\n", fails_with="no key separator")


def test_group_is_listed_described_and_deleted(run: Run, topic: str) -> None:
    group = f"group-{topic}"
    run("producer", "--topic", topic, stdin="1\n2\n3\n")
    read = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3")
    assert sorted(run("consumer", *read, "--timeout-ms", "20000").split()) == ["1", "2", "3"]
    assert group in run("consumer-groups", "--list").splitlines()
    rows = table(run("consumer-groups", "--describe", "--group", group))
    for column in ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"):
        assert column in rows[0], column
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows if row["CURRENT-OFFSET"] != "-") == 3
    assert {row["LAG"] for row in rows} <= {"0", "-"}
    (state,) = json.loads(run("consumer-groups", "--describe", "--group", group, "--state", "--json"))
    assert (state["group"], state["state"], state["numMembers"]) == (group, "Empty", 0)
    deleted = run("consumer-groups", "--delete", "--group", group)
    assert deleted == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in run("consumer-groups", "--list").splitlines()


def test_quorum_status_has_kafkas_labels(run: Run) -> None:
    text = run("metadata-quorum", "describe", "--status")
    status = dict(re.split(r":\s+", line, maxsplit=1) for line in text.splitlines())
    assert list(status) == [
        *("ClusterId", "LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag", "MaxFollowerLagTimeMs"),
        *("CurrentVoters", "CurrentObservers"),
    ]
    assert status["LeaderId"] == "1" and int(status["HighWatermark"]) > 0
    assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == [1]
    header, row = run("metadata-quorum", "describe", "--replication").splitlines()
    leader = dict(zip(header.split(), row.split(), strict=True))
    assert list(leader) == [
        *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp"),
        "Status",
    ]
    assert (leader["NodeId"], leader["Lag"], leader["Status"]) == ("1", "0", "Leader")


def test_unreachable_servers_are_an_error_of_one_line(pykraft: Callable[..., Any]) -> None:
    result = pykraft("topics", "--bootstrap-server", "127.0.0.1:1", "--list")
    assert result.returncode == 1
    assert result.stderr == "Error: no process listens at 127.0.0.1:1\n"
    assert pykraft("topics", "--bootstrap-server", "nonsense", "--list").returncode == 1
    assert pykraft("topics", "--list").returncode == 1


@pytest.mark.parametrize(
    ("tool", "command", "option", "given"),
    [
        ("features", "upgrade", "--release-version", "--release-version=4.3"),
        ("metadata-quorum", "remove-controller", "--dry-run", "-i1 -dAAAAAAAAAAAAAAAAAAAAAQ"),
        ("metadata-quorum", "describe", "--replication", "--status"),
    ],
)
def test_help_about_a_command_needs_no_server(
    pykraft: Callable[..., Any], tool: str, command: str, option: str, given: str
) -> None:
    result = pykraft(tool, command, "--help")
    assert result.returncode == 0, result.stderr
    assert option in result.stdout
    refused = pykraft(tool, command, *given.split())
    assert refused.returncode == 1
    assert "Missing option '--bootstrap-server'" in refused.stderr


@pytest.mark.parametrize(
    "text", ['{"partitions": [', "[1]", '{"partitions": [7]}', '{"partitions": null}', "{}"]
)
def test_file_that_names_no_partitions_is_a_usage_error_that_shows_the_form(
    pykraft: Callable[..., Any], dev_server: str, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "move.json"
    file.write_text(text)
    result = pykraft(
        "reassign-partitions",
        "--bootstrap-server",
        dev_server,
        "--execute",
        "--reassignment-json-file",
        str(file),
    )
    assert result.returncode == 1
    assert f'{file} does not hold {{"partitions": [{{"topic"' in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_features_are_described_lowered_and_raised(run: Run) -> None:
    def rows() -> list[dict[str, str]]:
        described = run("features", "describe").splitlines()
        return [dict(re.findall(r"(\w+): (\S+)", line)) for line in described]

    def finalized() -> dict[str, str]:
        return {row["Feature"]: row["FinalizedVersionLevel"] for row in rows()}

    (first,) = [row for row in rows() if row["Feature"] == "metadata.version"]
    assert int(first["Epoch"]) > 0
    assert (first["SupportedMinVersion"], first["SupportedMaxVersion"]) == ("3.3-IV3", "4.3-IV0")
    assert finalized()["metadata.version"] == "4.3-IV0" and finalized()["group.version"] == "1"
    dry = run("features", "downgrade", "--metadata", "4.1-IV1", "--dry-run")
    assert dry == "metadata.version can be downgraded to 4.1-IV1: no metadata is lost.\n"
    done = run("features", "downgrade", "--metadata", "4.1-IV1")
    assert done == "metadata.version was downgraded to 4.1-IV1: no metadata is lost.\n"
    assert run("features", "disable", "--feature", "group.version") == "group.version was disabled.\n"
    assert run("features", "disable", "--feature", "group.version") == "group.version is at 0 already.\n"
    run("features", "upgrade", "--feature", "metadata.version=7", fails_with="downgrade must be requested")
    upgraded = run("features", "upgrade", "--release-version", "4.3").splitlines()
    assert {"metadata.version was upgraded to 4.3-IV0.", "group.version was upgraded to 1."} < set(upgraded)
    assert "kraft.version was upgraded to 1." in upgraded and finalized()["kraft.version"] == "1"
    again = run("features", "upgrade", "--release-version", "4.3").splitlines()
    assert len(again) == len(upgraded) and all(line.endswith(" already.") for line in again)
    assert finalized()["metadata.version"] == "4.3-IV0" and finalized()["group.version"] == "1"
    run("features", "downgrade", "--release-version", "3.8")
    assert finalized()["metadata.version"] == "3.8-IV0" and finalized()["group.version"] == "0"
    run("features", "upgrade", "--release-version", "4.3")


def test_leaders_are_elected_with_kafkas_messages(run: Run, topic: str, tmp_path: Path) -> None:
    one = ("leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "1")
    assert run(*one) == f"Valid replica already elected for partitions {topic}-1\n"
    file = tmp_path / "partitions.json"
    partitions = [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 9}]
    file.write_text(json.dumps({"partitions": partitions}))
    run(
        *("leader-election", "--election-type", "UNCLEAN", "--path-to-json-file", str(file)),
        fails_with="1 replica(s) could not be elected",
    )
    assert run("leader-election", "--election-type", "PREFERRED", "--all-topic-partitions") == ""


def test_reassignments_are_executed_verified_and_cancelled_with_kafkas_files(
    run: Run, topic: str, tmp_path: Path
) -> None:
    broker = int(fields(run("topics", "--describe", "--topic", topic).splitlines()[1])["Replicas"])
    file = tmp_path / "move.json"

    def move(*replicas: int) -> tuple[str, str]:
        partition = {
            "topic": topic,
            "partition": 0,
            "replicas": replicas,
            "log_dirs": ["any"] * len(replicas),
        }
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return "--reassignment-json-file", str(file)

    assert run("reassign-partitions", "--list") == "No partition reassignments found.\n"
    printed = run("reassign-partitions", "--execute", *move(broker))
    assert json.loads(printed.splitlines()[2])["partitions"][0]["replicas"] == [broker]
    assert printed.endswith(f"Successfully started partition reassignment for {topic}-0\n")
    verified = run("reassign-partitions", "--verify", *move(broker))
    assert verified.splitlines()[1:] == [
        f"Reassignment of partition {topic}-0 is completed.",
        "",
        f"Clearing broker-level throttles on broker {broker}",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    verified = run("reassign-partitions", "--verify", *move(broker, 77))
    assert f"but replica set is {broker} rather than {broker},77." in verified
    run("reassign-partitions", "--execute", *move(77), fails_with="Unknown broker id 77")
    cancelled = run("reassign-partitions", "--cancel", "--preserve-throttles", *move(broker))
    assert cancelled.splitlines() == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]


def test_moves_are_throttled_until_they_are_verified(run: Run, topic: str, tmp_path: Path) -> None:
    broker = fields(run("topics", "--describe", "--topic", topic).splitlines()[1])["Replicas"]
    file, topics = tmp_path / "move.json", tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", broker)
    current, proposed = run("reassign-partitions", *generate).split("\n\n")
    assert current.startswith("Current partition replica assignment\n{")
    headline, assignment = proposed.splitlines()
    assert headline == "Proposed partition reassignment configuration"
    before, after = (json.loads(text)["partitions"] for text in (current.splitlines()[1], assignment))
    assert all(len(set(it.pop("log_dirs"))) == 1 and "any" not in it for it in before)
    assert all(it.pop("log_dirs") == ["any"] for it in after)
    assert before == after, "there is only one broker"
    file.write_text(assignment)
    move = ("--reassignment-json-file", str(file))
    printed = run("reassign-partitions", "--execute", "--throttle", "5000", *move).splitlines()
    assert printed[-3].startswith("Warning: You must run --verify periodically")
    assert printed[-2] == "The inter-broker throttle limit was set to 5000 B/s"

    def throttles() -> str:
        described = [
            run("configs", "--describe", "--entity-type", kind, "--entity-name", name)
            for kind, name in (("topics", topic), ("brokers", broker))
        ]
        return "\n".join(re.findall(r"\S+\.throttled\.\S+", "".join(described)))

    assert f"leader.replication.throttled.replicas=0:{broker},1:{broker}" in throttles()
    assert "follower.replication.throttled.rate=5000" in throttles()
    run("reassign-partitions", "--verify", "--preserve-throttles", *move)
    assert "leader.replication.throttled.rate=5000" in throttles()
    run("reassign-partitions", "--verify", *move)
    assert not throttles()
    run("reassign-partitions", *generate[:-1], "77", fails_with="no such brokers: 77")


def test_records_are_deleted_and_offsets_listed_as_by_kafkas_tools(
    run: Run, topic: str, dev_server: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": dev_server})
    for number in range(5):
        producer.produce(topic, b"v", partition=0, timestamp=1000 * (number + 1))
    assert producer.flush(30) == 0
    file = tmp_path / "offsets.json"

    def delete(offset: int) -> tuple[str, str]:
        items = [{"topic": topic, "partition": 0, "offset": offset}]
        file.write_text(json.dumps({"version": 1, "partitions": items}))
        return "--offset-json-file", str(file)

    assert run("delete-records", *delete(2)).splitlines() == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {topic}-0\tlow_watermark: 2",
    ]
    run("delete-records", *delete(6), reports=f"Error: {topic}-0: OFFSET_OUT_OF_RANGE")
    assert json.loads(run("delete-records", "--json", *delete(3))) == [
        {"topic": topic, "partition": 0, "lowWatermark": 3}
    ]
    for asked, lines in (
        ((), [f"{topic}:0:5", f"{topic}:1:0"]),
        (("--time", "earliest"), [f"{topic}:0:3", f"{topic}:1:0"]),
        (("--time", "-3"), [f"{topic}:0:4"]),
        (("--time", "4500"), [f"{topic}:0:4"]),
        (("--time", "-5"), []),
        (("--partitions", "1"), [f"{topic}:1:0"]),
    ):
        assert run("get-offsets", "--topic", topic, *asked).splitlines() == lines, asked
    for pattern, lines in (
        (f"{topic}:0", [f"{topic}:0:5"]),
        (f"{topic}:1-", [f"{topic}:1:0"]),
        (f"{topic}:-1", [f"{topic}:0:5"]),
        (f"{topic}:0-1,{topic}:1-2", [f"{topic}:0:5", f"{topic}:1:0"]),
    ):
        assert run("get-offsets", "--topic-partitions", pattern).splitlines() == lines, pattern
    run("get-offsets", "--topic", "none", fails_with="Could not match any topic-partitions")
    run("delete-records", *delete(-1))
    assert run("get-offsets", "--topic", topic, "--time", "-2", "--partitions", "0") == f"{topic}:0:5\n"


def test_configs_are_set_shown_and_deleted_with_kafkas_flags(run: Run, topic: str, tmp_path: Path) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    described = ("configs", "--describe", *entity)
    assert run(*described) == f"Dynamic configs for topic {topic} are:\n"
    done = f"Completed updating config for topic {topic}.\n"
    both = "retention.ms=4242,cleanup.policy=[delete]"
    assert run("configs", "--alter", *entity, "--add-config", both) == done
    _, *lines = run(*described).splitlines()
    assert [line.split()[0] for line in lines] == ["cleanup.policy=delete", "retention.ms=4242"]
    assert "sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=4242}" in lines[1]
    file = tmp_path / "more.properties"
    file.write_text("# as a file\nsegment.bytes=1048576\n")
    more = ("--add-config-file", str(file), "--delete-config", "retention.ms,cleanup.policy")
    assert run("configs", "--alter", "--topic", topic, *more) == done
    (shown,) = json.loads(run("configs", "--describe", "--topic", topic, "--json"))
    assert shown == {"entityType": "topic", "entityName": topic, "configs": {"segment.bytes": "1048576"}}
    assert "  retention.ms=604800000 " in run("configs", "--describe", "--topic", topic, "--all")
    shown = json.loads(run("configs", "--describe", "--entity-type", "topics", "--json"))
    assert topic in {entity["entityName"] for entity in shown}


def test_configs_of_one_broker_and_of_all_are_distinguished(run: Run) -> None:
    output = run("configs", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=5000")
    assert output == "Completed updating default config for brokers in the cluster.\n"
    output = run("configs", "--alter", "--broker", "1", "--add-config", "log.retention.ms=6000")
    assert output == "Completed updating config for broker 1.\n"
    every = ("configs", "--describe", "--entity-type", "brokers")
    first, first_line, second, second_line, min_isr_line = run(*every).splitlines()
    assert (first, second) == (
        "Dynamic configs for broker 1 are:",
        "Default configs for brokers in the cluster are:",
    )
    assert first_line.startswith("  log.retention.ms=6000 ") and "CONFIG:log.retention.ms=5000" in first_line
    assert second_line.startswith("  log.retention.ms=5000 ")
    assert min_isr_line.startswith("  min.insync.replicas=1 "), "which a cluster with eligible replicas sets"
    run("configs", "--alter", "--broker", "1", "--delete-config", "log.retention.ms")
    run("configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms")
    assert json.loads(run(*every, "--json"))[0]["configs"] == {}


def test_invalid_config_changes_nothing_and_is_named(run: Run, topic: str) -> None:
    alter = ("configs", "--alter", "--topic", topic)
    run(*alter, "--add-config", "segment.bytes=1048576,retention.ms=soon", fails_with="retention.ms")
    run(*alter, "--add-config", "retention.mss=1", fails_with="retention.mss")
    run(
        *alter,
        "--delete-config",
        "retention.mss",
        fails_with="Unknown configuration retention.mss",
    )
    assert run("configs", "--describe", "--topic", topic) == f"Dynamic configs for topic {topic} are:\n"
    run("configs", "--describe", "--topic", "no-such", reports="The topic 'no-such' doesn't exist")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--alter", "--topic", "t"),
        ("--alter", "--entity-type", "topics", "--add-config", "a=1"),
        ("--alter", "--topic", "t", "--add-config", "a=1", "--delete-config", "a"),
        ("--alter", "--topic", "t", "--add-config", "a=[1,2"),
        ("--alter", "--topic", "t", "--add-config", "a"),
        ("--alter", "--topic", "t", "--add-config-file", "/no/such/file"),
        ("--describe", "--topic", "t", "--broker", "1"),
        ("--describe", "--entity-type", "topics", "--entity-default"),
        ("--describe", "--broker", "one"),
        ("--describe",),
        ("--topic", "t"),
    ],
)
def test_configs_for_no_entity_or_two_are_a_usage_error(
    pykraft: Callable[..., Any], dev_server: str, arguments: tuple[str, ...]
) -> None:
    result = pykraft("configs", "--bootstrap-server", dev_server, *arguments)
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.fullmatch(r"Error: .+ \(pykraft configs --help\)\n", result.stderr)


def test_cluster_shows_its_id_and_its_brokers(pykraft: Callable[..., Any], dev_server: str) -> None:
    def run(command: str, *arguments: str) -> Any:
        return pykraft("cluster", command, "--bootstrap-server", dev_server, *arguments)

    assert re.fullmatch(r"Cluster ID: \S{22}\n", run("cluster-id").stdout)
    header, line = run("list-endpoints", "--include-fenced-brokers").stdout.splitlines()
    row = dict(zip(header.split(), line.split(), strict=True))
    host, port = dev_server.split(":")
    assert {"ID": "1", "HOST": host, "PORT": port, "STATE": "unfenced"}.items() <= row.items()
    assert (row["RACK"], row["ENDPOINT_TYPE"]) == ("null", "broker")
    refused = run("unregister", "--id", "77")
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "Error: " in refused.stderr


def keys_of(value: object) -> set[str]:
    """All keys of a JSON value, but not those of configurations, which are data."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return set(value).union(*(keys_of(item) for key, item in value.items() if key != "configs"))
    return set()


def test_every_table_is_json_with_keys_in_camel_case(
    run: Run,
    pykraft: Callable[..., Any],
    dev_server: str,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    tmp_path: Path,
) -> None:
    group = f"group-{topic}"
    run("producer", "--topic", topic, stdin="1\n")
    run("consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    tables = {
        ("cluster", "cluster-id"): {"clusterId"},
        ("cluster", "list-endpoints"): {"id", "host", "port", "rack", "state", "endpointType"},
        ("topics", "--describe", "--topic", topic): {"topicId", "leaderEpoch", "isr", "elr"},
        ("configs", "--describe", "--topic", topic): {"entityType", "entityName"},
        ("groups", "--list"): {"group", "type", "protocol", "state"},
        ("consumer-groups", "--list"): {"group", "type", "state"},
        ("groups", "--describe", "--group", group): {"currentOffset", "logEndOffset", "lag", "consumerId"},
        ("consumer-groups", "--describe", "--group", group, "--state"): {"coordinator", "assignmentStrategy"},
        ("consumer-groups", "--describe", "--group", group, "--members"): set(),
        ("broker-api-versions",): {"apiKey", "minVersion", "maxVersion", "usableVersion"},
        ("log-dirs", "--describe"): {"broker", "logDirs", "partition", "offsetLag"},
        ("get-offsets", "--topic", topic): {"topic", "partition", "offset"},
        ("features", "version-mapping"): {"feature", "level"},
        ("features", "describe"): {"feature", "supportedMaxVersion", "finalizedVersionLevel", "epoch"},
        ("metadata-quorum", "describe", "--status"): {"clusterId", "leaderId", "currentVoters"},
        ("metadata-quorum", "describe", "--replication"): {"nodeId", "directoryId", "lastCaughtUpTimestamp"},
        ("reassign-partitions", "--list"): set(),
        ("reassign-partitions", "--verify", "--reassignment-json-file", str(file)): {
            *("topic", "partition", "replicas", "targetReplicas", "inProgress")
        },
    }
    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", dev_server)
    for command, expected in tables.items():
        result = pykraft(*command, "--json")
        assert result.returncode == 0, result.stderr
        shown = json.loads(result.stdout)
        assert keys_of(shown) >= expected, command
        assert all(re.fullmatch(r"[a-z][A-Za-z0-9]*", key) for key in keys_of(shown)), (command, shown)


def test_bootstrap_server_may_be_set_in_the_environment(
    pykraft: Callable[..., Any], dev_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", dev_server)
    assert pykraft("cluster", "cluster-id").stdout.startswith("Cluster ID: ")
    assert pykraft("metadata-quorum", "describe", "--status").returncode == 0
    given = pykraft("cluster", "cluster-id", "--bootstrap-server", "127.0.0.1:1")
    assert given.stderr == "Error: no process listens at 127.0.0.1:1\n"


@pytest.mark.parametrize(
    ("kind", "label"), [("CreateTime", "CreateTime:5"), ("LogAppendTime", "LogAppendTime:1")]
)
def test_timestamp_is_printed_with_the_name_of_its_clock(
    run: Run, dev_server: str, topic: str, kind: str, label: str
) -> None:
    run("configs", "--alter", "--topic", topic, "--add-config", f"message.timestamp.type={kind}")
    producer = Producer({"bootstrap.servers": dev_server})
    producer.produce(topic, b"x", timestamp=5)
    assert producer.flush(20) == 0
    shown = run(
        *("consumer", "--topic", topic, "--from-beginning", "--max-messages", "1"),
        *("--timeout-ms", "20000", "--property", "print.timestamp=true"),
    )
    assert re.fullmatch(rf"{label}\d*\tx\n", shown)


def test_missing_broker_is_not_waited_for(run: Run) -> None:
    said = "The broker '77' doesn't exist and doesn't have dynamic config. Known are 1."
    run("configs", "--broker", "77", "--describe", reports=said)
    run("configs", "--broker", "77", "--alter", "--add-config", "log.retention.ms=5", fails_with=said)


def test_name_of_a_server_property_is_refused_with_that_of_the_topic(run: Run, topic: str) -> None:
    change = ("configs", "--alter", "--topic", topic, "--add-config", "log.retention.ms=5")
    run(*change, fails_with="did you mean retention.ms?")
    change = ("configs", "--alter", "--broker", "1", "--add-config", "retention.ms=5")
    run(*change, fails_with="did you mean log.retention.ms?")


def test_lost_quorum_is_reported_within_seconds(
    start_pykraft: Callable[..., Any], pykraft: Callable[..., Any], tmp_path: Path
) -> None:
    with start_pykraft("dev", "--nodes", "3", "--port", "0", TMPDIR=str(tmp_path)) as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        for node in (2, 3):
            os.kill(int(running.wait_for(f"Node {node}: ").rpartition(" ")[2]), signal.SIGKILL)
        first = bootstrap.split(",")[0]
        refused = pykraft("topics", "--bootstrap-server", first, "--create", "--topic", "t")
        assert refused.returncode == 1
        assert "no active controller" in refused.stderr
        assert "is a majority of the controllers running?" in refused.stderr
        said = running.wait_for("the metadata quorum has had no leader for")
        assert "node-1" in said and "1 at 127.0.0.1:" in said and "3 at 127.0.0.1:" in said
        running.process.send_signal(signal.SIGTERM)  # a second signal does not wait for the hand-over
        assert running.stop() == 1
