"""Kafka's own tools with ``--bootstrap-controller``: three nodes, without a broker in between."""

import json
import re
from collections.abc import Callable

import pytest

from pykraft.testing import Cluster
from tests.interop.java_jars import KafkaTools

pytestmark = pytest.mark.interop

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

Ask = Callable[..., str]


@pytest.fixture
def ask(trio: Cluster, kafka_tools: KafkaTools) -> Ask:
    """Run a tool that must succeed: its class, its command words, its options."""
    address = ("--bootstrap-controller", trio.bootstrap_controllers)

    def run(tool: str, *arguments: str) -> str:
        ahead = tool in (QUORUM, FEATURES)  # these two expect the address before the command word
        return kafka_tools.check(tool, *(address + arguments if ahead else arguments + address))

    return run


def test_quorum_is_described(trio: Cluster, ask: Ask) -> None:
    status = ask(QUORUM, "describe", "--status")
    leader = int(re.findall(r"LeaderId:\s+(\d+)", status)[0])
    voters = json.loads(re.findall(r"CurrentVoters:\s+(\[.*\])", status)[0])
    assert leader in trio.nodes and {voter["id"] for voter in voters} == set(trio.nodes)
    replication = ask(QUORUM, "describe", "--replication")
    roles = re.findall(r"^(\d+)\s.*\t(Leader|Follower)", replication, re.M)
    assert sorted(int(node) for node, _ in roles) == [1, 2, 3]
    assert [int(node) for node, role in roles if role == "Leader"] == [leader]


def test_controllers_are_listed_and_features_shown(trio: Cluster, ask: Ask) -> None:
    listed = ask(CLUSTER, "list-endpoints")
    found = re.findall(r"^(\d+)\s+(\S+)\s+(\d+)\s+\S+\s+controller", listed, re.M)
    assert {int(node): f"{host}:{port}" for node, host, port in found} == trio.controller_addresses
    assert "Cluster ID: " in ask(CLUSTER, "cluster-id")
    assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", ask(FEATURES, "describe"))


def test_features_are_set_to_their_present_levels(ask: Ask) -> None:
    for feature in ("metadata.version=30", "group.version=1", "transaction.version=2"):
        assert "was upgraded to" in ask(FEATURES, "upgrade", "--feature", feature)
    # The tool takes level 0 for a downgrade only.
    for feature in ("kraft.version=0", "share.version=0", "streams.version=0"):
        assert "was downgraded to" in ask(FEATURES, "downgrade", "--feature", feature)


def test_configurations_are_changed_and_described(ask: Ask) -> None:
    entity = ("--entity-type", "brokers", "--entity-default")
    ask(CONFIGS, "--alter", *entity, "--add-config", "log.retention.ms=86400000")
    try:
        assert "log.retention.ms=86400000" in ask(CONFIGS, "--describe", *entity)
    finally:
        ask(CONFIGS, "--alter", *entity, "--delete-config", "log.retention.ms")
    every = ask(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "2")
    assert re.search(r"^\s+node\.id=2 ", every, re.M)


def test_reassignments_are_listed(ask: Ask) -> None:
    assert "No partition reassignments found" in ask(REASSIGN, "--list")


def test_unknown_broker_cannot_be_unregistered(trio: Cluster, kafka_tools: KafkaTools) -> None:
    address = ("--bootstrap-controller", trio.bootstrap_controllers)
    done = kafka_tools.run(CLUSTER, "unregister", *address, "--id", "77")
    assert "BrokerIdNotRegisteredException" in done.stdout + done.stderr
