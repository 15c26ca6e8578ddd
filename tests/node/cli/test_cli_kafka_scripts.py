"""Launchers under the names of Kafka's scripts: what they run, and whose files they leave alone."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pykraft.node.cli.kafka_scripts.kafka_scripts import launchers
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S
from tests.node.cli_runner import answer, output, refusal

SCRIPT = r"""
set -e
B="--bootstrap-server $1"
kafka-topics.sh $B --create --topic orders --partitions 2 --replication-factor 1 --config retention.ms=600000
kafka-topics.sh $B --create --topic orders --if-not-exists
kafka-topics $B --list --exclude-internal
kafka-topics.sh $B --describe --topic orders --topics-with-overrides | cut -f 3-4
printf 'a:1\nb:2\nc:3\n' |
  kafka-console-producer.sh $B --topic orders --property parse.key=true --property key.separator=:
kafka-console-consumer.sh $B --topic orders --group readers --from-beginning --max-messages 3 \
  --timeout-ms 60000 --property print.key=true --property key.separator=: | sort
kafka-consumer-groups.sh $B --list
kafka-consumer-groups.sh $B --describe --group readers 2>/dev/null |
  awk '$2 == "orders" { offset += $4; lag += $6 } END { print "offset", offset, "lag", lag }'
kafka-consumer-groups.sh $B --group readers --topic orders --reset-offsets --to-earliest --execute |
  awk '$2 == "orders" { print $1, $2, $3, $4 }' | sort
kafka-configs.sh $B --alter --entity-type topics --entity-name orders --add-config retention.ms=5000
kafka-configs.sh $B --describe --topic orders | cut -d ' ' -f 1-4
kafka-get-offsets.sh $B --topic orders --time -1 | awk -F : '{ sum += $3 } END { print "records", sum }'
echo '{"partitions": [{"topic": "orders", "partition": 0, "offset": -1},
  {"topic": "orders", "partition": 1, "offset": -1}], "version": 1}' > "$2"
kafka-delete-records.sh $B --offset-json-file "$2" | wc -l
kafka-consumer-groups.sh $B --delete --group readers
kafka-topics.sh $B --delete --topic orders
kafka-topics.sh $B --list --exclude-internal
kafka-cluster.sh cluster-id $B | cut -d : -f 1
if kafka-topics.sh $B --describe --topic none 2>/dev/null; then exit 1; fi
"""


@pytest.mark.slow
def test_script_that_was_written_for_kafka_runs_unchanged(tmp_path: Path) -> None:
    output("kafka-scripts", "install", tmp_path / "bin")
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    with Cluster() as cluster:  # of its own: the script lists all topics and groups
        done = subprocess.run(
            ["sh", "-c", SCRIPT, "sh", cluster.bootstrap_servers, str(tmp_path / "offsets.json")],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "Created topic orders.",
        "orders",
        "PartitionCount: 2\tReplicationFactor: 1",
        *("a:1", "b:2", "c:3"),
        "readers",
        "offset 3 lag 0",
        *("readers orders 0 0", "readers orders 1 0"),
        "Completed updating config for topic orders.",
        "Dynamic configs for topic",
        "  retention.ms=5000 sensitive=false",
        "records 3",
        "4",
        "Deletion of requested consumer groups ('readers') was successful.",
        "Cluster ID",
    ]


def test_launchers_are_written_listed_and_removed(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "bin"
    wanted = launchers()
    assert output("kafka-scripts", "install", directory) == f"Wrote {len(wanted)} launchers to {directory}.\n"
    assert {path.name for path in directory.iterdir()} == set(wanted)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o755 for path in directory.iterdir())
    assert wanted["kafka-topics"] == wanted["kafka-topics.sh"] == "topics"
    assert (wanted["kafka-cluster"], wanted["kafka-server-start"]) == ("cluster", "server start")
    assert "kafka-consumer-groups.sh: pykraft consumer-groups" in output(
        "kafka-scripts", "list", directory
    ).split("\n")
    assert {"script": "kafka-storage", "command": "storage"} in answer("kafka-scripts", "list", directory)
    assert output("kafka-scripts", "install", directory), "they may be written again"
    (directory / "mine").write_text("mine")
    assert sorted(answer("kafka-scripts", "remove", directory)) == sorted(wanted)
    assert [path.name for path in directory.iterdir()] == ["mine"]


@pytest.mark.parametrize("kind", ["file", "link", "directory", "unreadable"])
def test_files_of_others_are_left_alone(tmp_path: Path, kind: str) -> None:
    theirs = tmp_path / "kafka-topics.sh"
    match kind:
        case "file":
            theirs.write_text("#!/bin/sh\necho theirs\n")
        case "link":
            theirs.symlink_to("/bin/true")
        case "directory":
            theirs.mkdir()
        case "unreadable":
            theirs.write_bytes(b"\xff\n" * 5)
    said = refusal("kafka-scripts", "install", tmp_path)
    assert f"nothing was written: {tmp_path} has other files named kafka-topics.sh" in said
    assert [path.name for path in tmp_path.iterdir()] == [theirs.name]
    assert answer("kafka-scripts", "remove", tmp_path) == [] == answer("kafka-scripts", "list", tmp_path)
    assert theirs.is_symlink() or theirs.exists()


def test_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write to" in refusal("kafka-scripts", "install", tmp_path / "file" / "bin")
    assert "does not exist" in refusal("kafka-scripts", "list", tmp_path / "none", status=2)


def test_python_that_finds_pykraft_only_here_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "install pykraft there first" in refusal("kafka-scripts", "install", tmp_path)
    assert list(tmp_path.iterdir()) == []
