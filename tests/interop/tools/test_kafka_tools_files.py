"""Kafka's own tools read the files that a node writes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykraft.jepsen_like.faults.clusters.process_cluster import HOST, run_cli
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.systems import cli
from pykraft.testing.processes.waits import wait_until
from tests.interop.java_jars import KafkaTools
from tests.node.cli_runner import output

pytestmark = pytest.mark.interop

DUMP = "org.apache.kafka.tools.DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"
VALUE_BYTES = 5000
CLUSTER_ID = "JEXY6aqzQY-32P5TStzaFg"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a node that had voters in the log, a topic, and wrote snapshots."""
    directory = tmp_path_factory.mktemp("node")
    client, controller = free_ports(2)
    file = directory / "server.properties"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "metadata.log.max.snapshot.interval.ms": "500",
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    run_cli("storage", "format", "-t", CLUSTER_ID, "-c", str(file), "--standalone")
    node = NodeProcess(1, cli("server", "start", str(file)), directory / "node.log")
    node.start()
    try:
        run_cli("topics", "--bootstrap-server", f"{HOST}:{client}", "--create", "--topic", "t")
        use(f"{HOST}:{client}")
        metadata = directory / "data" / "__cluster_metadata-0"
        wait_until("a snapshot behind the topic", lambda: any(snapshots(metadata)), 30)
        assert node.stop()
        yield directory / "data"
    finally:
        node.kill()


def use(bootstrap_servers: str) -> None:
    """Three batches, long enough for index entries, and an offset committed."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for number in range(3):
        producer.produce("t", f"{number}".zfill(VALUE_BYTES), f"key-{number}")
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g"})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    finally:
        consumer.close()


def snapshots(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("*.checkpoint") if int(p.name[:20]) > 0)


def control_records(dumped: str) -> dict[str, object]:
    """Name → fields of the control records that DumpLogSegments printed."""
    return {name: json.loads(fields) for name, fields in re.findall(r"\] (\w+):? (\{.*\})$", dumped, re.M)}


def test_dump_log_segments_walks_the_metadata_log(stopped: Path, kafka_tools: KafkaTools) -> None:
    (log,) = (stopped / "__cluster_metadata-0").glob("*.log")
    dumped = kafka_tools.check(DUMP, "--cluster-metadata-decoder", "--files", log)
    found = control_records(dumped)
    voter = {"voterId": 1}
    assert found["LeaderChange"] == {
        "version": 0,
        "leaderId": 1,
        "voters": [voter],
        "grantingVoters": [voter],
    }
    assert found["KRaftVersion"] == {"version": 0, "kRaftVersion": 1}
    assert set(found) == {"LeaderChange", "KRaftVersion", "KRaftVoters"}
    ends = [int(end) for end in re.findall(r"^baseOffset: \d+ lastOffset: (\d+)", dumped, re.M)]
    shown = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", dumped, re.M)]
    assert shown == list(range(ends[-1] + 1)), "every record to the end is reached"
    assert "isvalid: false" not in dumped
    assert len(re.findall("Error at", dumped)) == len(shown) - len(re.findall("keySize: 4", dumped)), (
        "only the payloads of metadata records cannot be read"
    )


def test_dump_log_segments_walks_snapshots(stopped: Path, kafka_tools: KafkaTools) -> None:
    newest = snapshots(stopped / "__cluster_metadata-0")[-1]
    first = stopped / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    for snapshot in (newest, first):
        found = control_records(kafka_tools.check(DUMP, "--cluster-metadata-decoder", "--files", snapshot))
        assert list(found) == ["SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"]
        voters = found["KRaftVoters"]
        assert isinstance(voters, dict) and [voter["voterId"] for voter in voters["voters"]] == [1]
        assert voters["voters"][0]["endpoints"][0]["host"] == HOST


def test_dump_log_segments_reads_a_partition_and_committed_offsets(
    stopped: Path, kafka_tools: KafkaTools
) -> None:
    files = sorted((stopped / "t-0").glob("0*"))
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".snapshot"}
    dumped = kafka_tools.check(DUMP, "--print-data-log", "--files", ",".join(map(str, files)))
    found = re.findall(r"key: (\S+) payload: 0*(\d)$", dumped, re.M)
    assert found == [(f"key-{number}", f"{number}") for number in range(3)]
    assert re.search(r"^offset: 1 position: \d+$", dumped, re.M) and "ismatch" not in dumped
    (offsets,) = [log for log in stopped.glob("__consumer_offsets-*/*.log") if log.stat().st_size]
    dumped = kafka_tools.check(DUMP, "--offsets-decoder", "--files", offsets)
    assert '"group":"g","topic":"t","partition":0' in dumped and '"offset":3' in dumped


def test_storage_info_reads_a_formatted_directory(
    stopped: Path, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    done = kafka_tools.run(STORAGE, "info", "-c", stopped.parent / "server.properties")
    assert done.returncode == 0, done.stdout + done.stderr
    assert CLUSTER_ID in done.stdout and str(stopped) in done.stdout


def test_kafkas_tool_and_ours_dump_producer_snapshots_alike(stopped: Path, kafka_tools: KafkaTools) -> None:
    path = stopped / "t-0" / f"{3:020d}.snapshot"
    theirs = kafka_tools.check(DUMP, "--files", path)
    assert re.search(
        r"producerId: \d+ .* firstSequence: 2 lastSequence: 2 lastOffset: 2 offsetDelta: 0", theirs
    )
    assert run_cli("dump-log", "--files", str(path)).splitlines() == theirs.splitlines()


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("t-0/0*.log", ("--print-data-log",)),
        ("t-0/0*.log", ("--print-data-log", "--skip-record-metadata")),
        ("t-0/0*.log", ("--deep-iteration", "--max-bytes", "6000")),
        ("t-0/0*.*index", ()),
        ("__consumer_offsets-0/0*.log", ("--deep-iteration",)),
        ("__cluster_metadata-0/0*.log", ("--deep-iteration",)),
        ("__cluster_metadata-0/*-0*.checkpoint", ("--deep-iteration",)),
    ],
)
def test_kafkas_tool_and_ours_dump_logs_alike(
    stopped: Path, kafka_tools: KafkaTools, pattern: str, options: tuple[str, ...]
) -> None:
    files = ",".join(map(str, sorted(stopped.glob(pattern))))
    theirs = kafka_tools.check(DUMP, *options, "--files", files)
    ours = output("dump-log", *options, "--files", files)
    # The names of the voters' listeners are shown by Kafka's tool only.
    shown = [re.sub(r"(?<=KRaftVoters ).*", "", text).splitlines() for text in (ours, theirs)]
    assert shown[0] == shown[1]
