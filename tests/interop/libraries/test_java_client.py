"""Kafka's own Java clients: producer, both group protocols, administration.

The jars are downloaded once from Maven Central into the user's cache directory; without a JDK, Maven or the
network the tests are skipped with a message.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.testing import Cluster
from tests.interop.client_program import read_by_confluent, values_of
from tests.interop.java_jars import RUN_TIMEOUT_S, compile_client, run

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]


@pytest.fixture(scope="module")
def classpath() -> str:
    """The jars and the compiled client."""
    return compile_client("JavaClient")


@pytest.mark.shows(
    "kafka-clients", "produce", "gzip", "snappy", "lz4", "zstd", "assign", "{protocol} group", "admin"
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_clients_administer_produce_and_share_a_group(
    trio: Cluster, fresh: Fresh, classpath: str, tmp_path: Path, protocol: str
) -> None:
    arguments = [trio.bootstrap_servers, fresh("java"), fresh("group"), protocol]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "JavaClient", *arguments]
    done = run(command, RUN_TIMEOUT_S, tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "brokers": [1, 2, 3],
        "voters": 3,
        "group_version": 1,
        "elected": True,
        "logs": 4,
        "add": "UnsupportedVersionException",
        "remove": "UnsupportedVersionException",
        "unregister": "BrokerIdNotRegisteredException",
        "cancel": "NoReassignmentInProgressException",
        "feature": "InvalidUpdateVersionException",
        "values": 200,
        "members": 2,
        "latest": 200,
        "committed": 200,
        "assigned": 200,
        "done": True,
    }


@pytest.mark.shows("kafka-clients", "idempotence", "transactions")
def test_the_java_producer_commits_aborts_and_is_fenced(
    trio: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """By the newest protocol (KIP-890): leaders add their partitions, and each end raises the epoch."""
    partitions = 6
    classpath, topic = compile_client("Transactions"), new_topic(partitions)
    arguments = [trio.bootstrap_servers, topic, str(partitions), f"java-{topic}"]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Transactions", *arguments]
    done = run(command, RUN_TIMEOUT_S, tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "open": f"Ongoing {partitions}",
        "listed": True,
        "fenced": True,
    }
    read = read_by_confluent(trio, topic, partitions, 4 * partitions, committed=True)
    assert values_of(read, partitions) == [["0", "2", "4", "last"]] * partitions
    assert len(read_by_confluent(trio, topic, partitions, 8 * partitions)) == 8 * partitions
