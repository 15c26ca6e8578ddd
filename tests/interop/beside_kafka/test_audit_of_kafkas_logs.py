"""Log directories of Apache Kafka are audited: before and after its compaction, and after pykraft's."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pykraft.log_store.checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offset_checkpoint
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.processes.waits import wait_until
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import PATIENCE_S, Writer, kafka, log_files
from tests.interop.opened_logs import TOPIC, compact, with_logs
from tests.spark_here import skip_without_spark

pytestmark = [pytest.mark.interop, pytest.mark.spark]

AUDIT_LIMIT_S: Final = 120


@pytest.fixture(scope="module")
def copies(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The log directory of one broker as it was written, compacted by Kafka, and compacted by pykraft."""
    skip_without_spark()
    directory = tmp_path_factory.mktemp("kafka")
    with kafka(kafka_tools, directory) as broker:
        broker.start()
        broker.create_topic(TOPIC)
        Writer(broker.address, TOPIC, random.Random(5)).write(rounds=30)
        broker.stop()
        written = shutil.copytree(broker.data, directory / "written")
        ours = shutil.copytree(broker.data, directory / "ours")
        broker.start(log_cleaner_min_cleanable_ratio="0.01")
        checkpoint = f"{broker.data}/{CLEANER_OFFSET_CHECKPOINT}"
        wait_until(
            "a round of the cleaner",
            lambda: read_offset_checkpoint(OsDisk(), checkpoint).get((TOPIC, 0), 0) > 0,
            PATIENCE_S,
        )
        broker.stop()
        with_logs(ours, compact)
        yield {"written": written, "kafka": broker.data, "ours": ours}


def audit(copies: dict[str, Path], *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status of the command, and what it prints."""
    directories = [f"{name}={path}" for name, path in copies.items()]
    command = [sys.executable, "-m", "pykraft", "spark", "audit-segments", "--json", "--master", "local[2]"]
    done = subprocess.run(
        [*command, *options, *directories],
        capture_output=True,
        text=True,
        timeout=AUDIT_LIMIT_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_compaction_by_kafka_and_by_pykraft_is_no_difference(copies: dict[str, Path]) -> None:
    status, found = audit(copies)
    assert (status, found["anomalies"], found["unreadable"]) == (0, [], [])
    totals = {one["replica"]: one for one in found["replicas"]}
    partitions = [path for path in copies["written"].iterdir() if path.is_dir() and log_files(path)]
    assert totals["written"]["partitions"] == len(partitions) > 2  # with transactions and the metadata
    assert totals["written"]["records"] > max(totals[name]["records"] for name in ("kafka", "ours"))


def test_changed_byte_and_changed_record_are_found_in_kafkas_files(
    copies: dict[str, Path], tmp_path: Path
) -> None:
    damaged = shutil.copytree(copies["written"], tmp_path / "damaged")
    path = log_files(damaged / f"{TOPIC}-0")[1]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    status, found = audit({"written": copies["written"], "damaged": damaged}, "--topic", TOPIC)
    (anomaly,) = found["anomalies"]
    assert (status, anomaly["kind"], anomaly["replica"]) == (1, "crc-mismatch", "damaged")
    example = anomaly["examples"][0]
    assert (example["offset"], example["position"], example["file"]) == (int(path.stem), 0, str(path))
