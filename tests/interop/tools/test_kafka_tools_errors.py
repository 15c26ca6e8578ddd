"""What goes wrong with Kafka's tools and with ours: the same status, and one line on standard error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing import Cluster
from tests.interop.java_jars import KafkaTools
from tests.interop.tools.test_kafka_tools_alike import CLASSES
from tests.node.cli_runner import invoke

pytestmark = pytest.mark.interop

FILES: Final = {
    "%bad": "{not json",
    "%beyond": '{"version":1,"partitions":[{"topic":"t","partition":0,"offset":1000}]}',
    "%elsewhere": '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[99]}]}',
    "%topics": '{"version":1,"topics":[{"topic":"t"}]}',
}
LINES: Final = """
consumer-groups @ --describe --group missing
consumer-groups @ --describe --group missing --members
consumer-groups @ --describe --group missing --state
consumer-groups @ --delete --group missing
consumer-groups @ --delete-offsets --group missing --topic t
consumer-groups @ --delete-offsets --group g --topic none
consumer-groups @ --delete-offsets --group g --topic t:9
consumer-groups @ --reset-offsets --group g --topic t:9 --to-earliest --dry-run
consumer-groups @ --reset-offsets --group g --topic t:x --to-earliest --dry-run
consumer-groups @ --list --state nonsense
topics @ --describe --topic missing
topics @ --delete --topic missing
topics @ --create --topic t
topics @ --create --topic a/b
topics @ --create --topic x --partitions 0
topics @ --create --topic x --replication-factor 9
topics @ --create --topic x --config nonsense=1
topics @ --create --topic x --config retention.ms=abc
topics @ --alter --topic missing --partitions 3
topics @ --alter --topic t --partitions 1
topics @ --describe --topic-id nonsense
topics @ --list --command-config %none
topics @ --nonsense
configs @ --describe --entity-type topics --entity-name missing
configs @ --describe --entity-type brokers --entity-name 99
configs @ --describe --entity-type brokers --entity-name abc
configs @ --describe --entity-type groups --entity-name missing
configs @ --describe --entity-type client-metrics --entity-name missing
configs @ --alter --entity-type topics --entity-name missing --add-config retention.ms=1
configs @ --alter --entity-type topics --entity-name t --add-config retention.ms=abc
configs @ --alter --entity-type topics --entity-name t --add-config nonsense=1
configs @ --alter --entity-type topics --entity-name t --delete-config nonsense
configs @ --alter --entity-type topics --entity-name t --add-config-file %none
delete-records @ --offset-json-file %none
delete-records @ --offset-json-file %bad
delete-records @ --offset-json-file %beyond
get-offsets @ --topic missing
get-offsets @ --topic t --time abc
get-offsets @ --topic-partitions x:y:z
leader-election @ --election-type preferred --topic missing --partition 0
leader-election @ --election-type preferred --topic t --partition 99
leader-election @ --election-type preferred --path-to-json-file %none
leader-election @ --election-type nonsense --all-topic-partitions
log-dirs @ --describe --broker-list 99
log-dirs @ --describe --broker-list abc
metadata-quorum @ describe --status --replication
metadata-quorum @ add-controller
features @ upgrade --feature nonsense=1
features @ upgrade --feature metadata.version=99
features @ upgrade --release-version 9.9
features @ disable --feature metadata.version
reassign-partitions @ --execute --reassignment-json-file %none
reassign-partitions @ --execute --reassignment-json-file %bad
reassign-partitions @ --execute --reassignment-json-file %elsewhere
reassign-partitions @ --generate --topics-to-move-json-file %topics --broker-list 99
transactions @ describe --transactional-id missing
transactions @ abort --topic t --partition 0 --start-offset 0
transactions @ list --duration-filter abc
client-metrics @ --describe --name missing
client-metrics @ --alter --name m --interval abc
cluster unregister @ --id 99
dump-log --files %none
dump-log --files %bad
storage info -c %none
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("t", 2)
        cluster.produce("t", *[b"v"] * 5)
        with cluster.admin() as admin:
            admin.alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(2)})
        yield cluster


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_error_is_one_line_and_the_status_is_kafkas(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, line: str
) -> None:
    meant = {"@": ["--bootstrap-server", cluster.bootstrap_servers]}
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    name, *words = (part for word in line.split() for part in meant.get(word, [word]))
    words = [str(tmp_path / word) if word.startswith("%") else word for word in words]
    ours = invoke(name, *words)
    assert ours.exit_code == kafka_tools.run(CLASSES[name], *words).returncode
    (said,) = ours.stderr.splitlines()
    assert "Exception" not in ours.output and "Error" not in ours.stdout, ours.output
    assert name == "transactions" or said.startswith("Error: ")
