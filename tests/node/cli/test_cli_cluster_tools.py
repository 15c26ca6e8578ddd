"""Tools on a cluster of one node: entities of configurations, subscriptions, APIs, controllers; and the
options that all tools share.
"""

import json
import re
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.cluster import broker_api_versions
from pykraft.testing import Cluster
from tests.node.cli_runner import answer, invoke, output, refusal


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def addressed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tools find the cluster by the environment."""
    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    yield
    cluster.clear_faults()


@pytest.mark.parametrize(
    ("named", "kind", "set_", "shown"),
    [
        (("--broker-logger", "1"), "broker-logger 1", "pykraft.quorum.driver=DEBUG", "DEBUG"),
        (("--group", "g"), "group g", "consumer.session.timeout.ms=50000", "50000"),
        (("--client-metrics", "m"), "client-metric m", "interval.ms=1000", "1000"),
        (("--broker", "1"), "broker 1", "log.retention.ms=7", "7"),
    ],
)
def test_every_kind_of_entity_is_configured_and_described(
    named: tuple[str, str], kind: str, set_: str, shown: str
) -> None:
    key = set_.partition("=")[0]
    by_type = ("--entity-type", f"{named[0][2:]}s".replace("metricss", "metrics"), "--entity-name", named[1])
    assert (
        output("configs", "--alter", *named, "--add-config", set_)
        == f"Completed updating config for {kind}.\n"
    )
    headline, *lines = output("configs", "--describe", *by_type).splitlines()
    assert headline == f"Dynamic configs for {kind} are:"
    assert [line for line in lines if line.startswith(f"  {key}={shown} sensitive=false synonyms=")]
    (described,) = answer("configs", "--describe", *named)
    assert described["configs"][key] == shown and described["entityName"] == named[1]
    output("configs", "--alter", *named, "--delete-config", key)
    if "logger" not in kind:
        again = invoke("configs", "--describe", *named)
        assert key not in again.stdout


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (("--topic", "none"), "The topic 'none' doesn't exist and doesn't have dynamic config."),
        (("--group", "none"), "The group 'none' doesn't exist and doesn't have dynamic config."),
        (("--client-metrics", "none"), "The client-metric 'none' doesn't exist and doesn't have dynamic"),
        (("--broker-logger", "7"), "The broker '7' doesn't exist and doesn't have dynamic config. Known"),
    ],
)  # fmt: skip
def test_entity_that_does_not_exist_is_named(named: tuple[str, str], said: str) -> None:
    result = invoke("configs", "--describe", *named)
    assert (result.exit_code, result.stdout) == (0, ""), "as with Kafka's tool"
    assert said in result.stderr and len(result.stderr.splitlines()) == 1
    assert said in refusal("configs", "--describe", *named, "--json")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--entity-type", "users"), "there are neither quotas nor SCRAM credentials yet"),
        (("--entity-type", "ips"), "there are no quotas yet"),
        (("--user", "u"), "--user is not supported"),
        (("--client-defaults",), "--client-defaults is not supported"),
        (("--ip", "1.2.3.4"), "--ip is not supported"),
        (("--entity-type", "broker-loggers"), "give its id"),
        (("--group", ""), "groups have no defaults of their own"),
        (("--topic", "t", "--add-config", "a=1"), "--add-config is an option of --alter"),
    ],
)
def test_entities_that_there_are_not_are_refused(options: tuple[str, ...], said: str) -> None:
    assert said in refusal("configs", "--describe", *options)


def test_unknown_logger_is_refused() -> None:
    change = ("configs", "--alter", "--broker-logger", "1", "--add-config", "none=INFO")
    assert "Invalid broker logger(s): none" in refusal(*change)


def test_subscription_is_made_changed_and_deleted() -> None:
    made = answer(
        "client-metrics", "--alter", "--generate-name", "--metrics", "a.b,c", "--match", "client_id=x"
    )
    name = made["name"]
    assert re.fullmatch(r"[\w-]{22}", name) and name in output("client-metrics", "--list").split()
    assert output("client-metrics", "--describe", "--name", name).splitlines() == [
        f"Client metrics configs for {name} are:",
        "  interval.ms=300000",
        "  match=client_id=x",
        "  metrics=a.b,c",
    ]
    change = ("client-metrics", "--alter", "--name", name, "--interval", "1000", "--match", "")
    assert output(*change) == f"Altered client metrics config for {name}.\n"
    (described,) = answer("client-metrics", "--describe")
    assert described == {"name": name, "configs": {"interval.ms": "1000", "match": "", "metrics": "a.b,c"}}
    assert answer("client-metrics", "--delete", "--name", name) == {"name": name, "deleted": True}
    assert answer("client-metrics", "--list") == []
    assert answer("client-metrics", "--delete", "--name", name) == {"name": name, "deleted": True}, "again"
    missing = invoke("client-metrics", "--describe", "--name", name)
    assert (missing.exit_code, missing.stdout) == (
        0,
        "",
    ) and f"resource {name} doesn't exist" in missing.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--alter", "--interval", "1000"), "One of --name or --generate-name"),
        (("--alter", "--interval", "1", "--name", "n", "--generate-name"), "One of --name or"),
        (("--alter", "--name", "n"), "needs --interval"),
        (("--delete",), "name must be specified with --delete"),
        (("--list", "--name", "n"), "--name is an option of"),
        (("--describe", "--metrics", "m"), "--metrics is an option of --alter"),
    ],
)  # fmt: skip
def test_subscription_needs_a_name_and_something_to_say(options: tuple[str, ...], said: str) -> None:
    assert said in refusal("client-metrics", *options)


def test_apis_of_a_broker_are_listed(cluster: Cluster) -> None:
    first, produce, *_ = output("broker-api-versions").splitlines()
    assert first == f"{cluster.bootstrap_servers} (id: 1 rack: null isFenced: false) -> ("
    assert produce == "\tProduce(0): 0 to 13 [usable: 13],"
    (shown,) = answer("broker-api-versions")
    by_key = {api["apiKey"]: api for api in shown["apis"]}
    assert by_key[3] == {
        "apiKey": 3,
        "name": "Metadata",
        "minVersion": 0,
        "maxVersion": 13,
        "usableVersion": 13,
    }
    assert "\tDescribeAcls(29): UNSUPPORTED," in output("broker-api-versions").splitlines()
    assert ApiKey.DESCRIBE_ACLS not in by_key


def test_controllers_are_asked_without_a_broker(cluster: Cluster) -> None:
    controllers = ("--bootstrap-controller", cluster.bootstrap_controllers)
    (listed,) = answer("cluster", "list-endpoints", *controllers)
    assert f"{listed['host']}:{listed['port']}" == cluster.bootstrap_controllers
    assert (listed["id"], listed["endpointType"]) == (1, "controller")
    assert answer("cluster", "cluster-id", *controllers) == answer("cluster", "cluster-id")
    quorum = answer("metadata-quorum", *controllers, "describe", "--status")
    assert quorum["leaderId"] == 1 and quorum["clusterId"] == answer("cluster", "cluster-id")["clusterId"]
    levels = {
        it["feature"]: it["finalizedVersionLevel"] for it in answer("features", *controllers, "describe")
    }
    assert levels["metadata.version"] == 30
    assert answer("reassign-partitions", *controllers, "--list") == []
    output("configs", *controllers, "--alter", "--broker", "1", "--add-config", "log.retention.ms=9")
    (described,) = answer("configs", *controllers, "--describe", "--broker", "1")
    assert described["configs"] == {"log.retention.ms": "9"}
    output("configs", *controllers, "--alter", "--broker", "1", "--delete-config", "log.retention.ms")
    assert "BROKER_ID_NOT_REGISTERED" in refusal("cluster", "unregister", *controllers, "--id", "7")


def test_features_of_one_node_are_described() -> None:
    assert answer("features", "describe", "--node-id", 1) == answer("features", "describe")
    assert "there is no node 7; known are 1" in refusal("features", "describe", "--node-id", 7)


@pytest.mark.parametrize("tool", ["features", "storage"])
def test_levels_of_a_version_and_what_they_need_are_known_without_a_cluster(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYKRAFT_BOOTSTRAP_SERVER")
    lines = output(tool, "version-mapping", "--release-version", "4.1").splitlines()
    assert lines[0] == "metadata.version=27 (4.1)"
    assert {"kraft.version=1", "group.version=1", "share.version=0"} < set(lines)
    assert answer(tool, "version-mapping")[0] == {"feature": "metadata.version", "level": 30}
    needed = ("feature-dependencies", "--feature", "eligible.leader.replicas.version=1", "--feature")
    assert output(tool, *needed, "metadata.version=30").splitlines() == [
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
        "metadata.version=30 (4.3-IV0) has no dependencies.",
    ]
    assert "Unknown feature: nothing" in refusal(tool, *needed, "nothing=1")
    assert "has levels 0 to 1, not 9" in refusal(tool, *needed, "group.version=9")
    assert "9.9 is not a supported" in refusal(tool, "version-mapping", "--release-version", "9.9")


def test_groups_of_every_type_are_listed(cluster: Cluster) -> None:
    topic = cluster.create_topic("of-groups")
    with cluster.admin() as admin:
        admin.alter_group_offsets("simple", {TopicPartition(topic, 0): OffsetAndMetadata(0)})
    header, row = output("groups", "--list").splitlines()
    assert (header.split(), row.split()) == (["GROUP", "TYPE", "PROTOCOL"], ["simple", "Classic"])
    assert answer("groups", "--list", "--consumer") == [
        {"group": "simple", "type": "classic", "protocol": "", "state": "Empty"}
    ]
    for none in ("--share", "--streams", "--group-type=consumer", "--protocol=connect"):
        assert answer("groups", "--list", none) == [], none
    assert output("groups", "--list", "--state").split()[:2] == ["GROUP", "STATE"]
    assert output("consumer-groups", "--list") == "simple\n"
    assert "GROUP" in output("groups", "--describe", "--group", "simple")
    said = refusal("groups", "--describe", "--group", "simple", "--share")
    assert "--share is an option of --list alone" in said


def test_option_takes_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert output("topics", "--bootstrap-server", cluster.bootstrap_servers, "--list") is not None
    assert output("cluster", "cluster-id", "-C", cluster.bootstrap_controllers).startswith("Cluster ID: ")
    both = ("-b", cluster.bootstrap_servers, "-C", cluster.bootstrap_controllers)
    assert "give only one of" in refusal("cluster", "cluster-id", *both)
    monkeypatch.delenv("PYKRAFT_BOOTSTRAP_SERVER")
    assert "Missing option '--bootstrap-server'" in refusal("topics", "--list")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "admin.properties"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("security.protocol=SASL_SSL", "security.protocol=SASL_SSL is not supported, only PLAINTEXT"),
        ("sasl.mechanism=PLAIN", "sasl.mechanism is not supported: there is neither TLS nor SASL"),
        ("ssl.truststore.location=/t", "ssl.truststore.location is not supported"),
        ("security.providers=x", "security.providers is not supported"),
        ("request.timeout.ms=soon", "request.timeout.ms"),
    ],
)
def test_security_in_a_properties_file_is_refused(config: Path, line: str, said: str) -> None:
    config.write_text(f"client.id=me\n{line}\n", "utf-8")
    for tool in (("topics", "--list"), ("cluster", "cluster-id"), ("consumer-groups", "--list")):
        assert said in refusal(*tool, "--command-config", config)


def test_other_properties_are_used_or_named_in_a_warning(config: Path, cluster: Cluster) -> None:
    config.write_text(
        "bootstrap.servers=nowhere:1\nsecurity.protocol=PLAINTEXT\nclient.id=me\nreconnect.backoff.ms=7\n",
        "utf-8",
    )
    with cluster.refuse("DescribeCluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, client_id="me"):
        assert "CLUSTER_AUTHORIZATION_FAILED" in refusal("cluster", "cluster-id", "--config", config)
        assert output("cluster", "cluster-id"), "another client is not refused"
    used = invoke(
        "leader-election", "--election-type=preferred", "--all-topic-partitions", "--admin.config", config
    )
    assert used.exit_code == 0
    assert used.stderr == f"warning: {config}: reconnect.backoff.ms has no effect here\n"
    assert "cannot read" in refusal("topics", "--list", "--command-config", f"{config}.none")


def test_broker_that_cannot_be_asked_is_listed_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connecting: Coroutine[Any, Any, None]) -> None:
        connecting.close()
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "cannot connect")

    monkeypatch.setattr(broker_api_versions, "run", refuse)
    assert output("broker-api-versions").endswith(" -> ERROR: cannot connect\n")
    assert answer("broker-api-versions")[0]["error"] == "NETWORK_EXCEPTION: cannot connect"


def test_leaders_are_elected_in_json(cluster: Cluster) -> None:
    topic = cluster.create_topic("elected")
    elect = ("leader-election", "--election-type", "preferred", "--topic")
    assert answer(*elect, topic, "--partition", 0) == [
        {"topic": topic, "partition": 0, "error": "ELECTION_NOT_NEEDED"}
    ]
    failed = invoke(*elect, "none", "--partition", 0)
    assert (failed.exit_code, failed.stdout) == (1, "")
    reason = "none-0: UNKNOWN_TOPIC_OR_PARTITION: there is no topic none"
    assert failed.stderr == f"Error: 1 replica(s) could not be elected: {reason}\n"


def test_moves_are_proposed_and_begun_in_json(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic("moved")
    topics, move = tmp_path / "topics.json", tmp_path / "move.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ("reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", 1)
    found = answer(*generate)
    assert found["proposed"]["partitions"][0]["replicas"] == [1]
    move.write_text(json.dumps(found["proposed"]))
    file = ("--reassignment-json-file", move)
    begun = answer("reassign-partitions", "--execute", *file, "--throttle", 5000)
    assert begun["started"] == [{"topic": topic, "partition": 0}]
    assert begun["current"]["partitions"][0]["replicas"] == [1]
    (verified,) = answer("reassign-partitions", "--verify", *file)
    assert not verified["inProgress"]
    assert answer("reassign-partitions", "--cancel", *file) == {"cancelled": []}
    for options, said in (
        (("--list", *file), "--reassignment-json-file is an option of"),
        (("--verify", "--throttle", "5", *file), "--throttle is an option of --execute"),
        (("--execute",), "--execute needs --reassignment-json-file"),
        (("--generate", "--broker-list", "1"), "--generate needs"),
    ):
        assert said in refusal("reassign-partitions", *options)
    by_controllers = ("reassign-partitions", "--bootstrap-controller", cluster.bootstrap_controllers)
    assert "is an option of --cancel, --list" in refusal(*by_controllers, "--verify", *file)
    assert answer(*by_controllers, "--cancel", *file) == {"cancelled": []}
