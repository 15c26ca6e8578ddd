"""Records of groups as Kafka's own coordinator reads them and writes them again: not a byte differs."""

import subprocess
from collections.abc import Iterator

import pytest

from pykraft.group_coordinator.state.codec import decode_record
from tests.group_coordinator import tools
from tests.group_coordinator.state.test_group_codec import GOLDEN
from tests.interop.java_jars import RUN_TIMEOUT_S, KafkaTools, compiled, need

pytestmark = pytest.mark.interop

WHAT = "KAFKA'S GROUP RECORDS"
PAIR = tuple[bytes, bytes | None]


@pytest.fixture(scope="module")
def classpath(kafka_tools: KafkaTools) -> str:
    need(WHAT, "java", "javac")
    return f"{compiled('GroupRecords', kafka_tools.jars)}:{kafka_tools.jars}/*"


def kafka_writes(classpath: str, records: list[PAIR]) -> Iterator[tuple[PAIR, str]]:
    """Each record as Kafka writes it, and the text of its value."""
    lines = [key.hex() + ("" if value is None else f" {value.hex()}") for key, value in records]
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "GroupRecords"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        written, _, text = line.partition("\t")
        key, _, value = written.partition(" ")
        yield (bytes.fromhex(key), bytes.fromhex(value) if value else None), text


def records_of_a_busy_group() -> list[PAIR]:
    """Static and dynamic members that move partitions, with names and expressions, leave and return."""
    lab = tools.ShardLab({"t": 5, "u": 3})
    lab.heartbeat("a", 0, rack_id="r", instance_id="i", server_assignor="range")
    lab.heartbeat("b", 0, subscribed_topic_names=[], subscribed_topic_regex="[tu]")
    lab.resolve()
    for _ in range(3):
        for member_id in ("a", "b"):
            member = lab.group.members[member_id]
            lab.heartbeat(member_id, member.epoch, member.assigned)
    lab.heartbeat("a", -2, instance_id="i")
    lab.heartbeat("c", 0, instance_id="i")
    lab.heartbeat("b", lab.group.members["b"].epoch, subscribed_topic_regex="")
    lab.heartbeat("b", -1)
    return lab.writer.logs[0]


def test_kafka_reads_our_records_and_writes_the_same_bytes(classpath: str) -> None:
    golden = [(bytes.fromhex(key), bytes.fromhex(value)) for _, key, value in GOLDEN]
    ours = [*golden, *records_of_a_busy_group()]
    theirs = list(kafka_writes(classpath, ours))
    assert [record for record, _ in theirs] == ours
    types = {int.from_bytes(key[:2], "big") for key, _ in ours}
    assert types >= {1, 2, 3, 5, 6, 7, 8, 16}
    texts = "\n".join(text for _, text in theirs)
    for said in ("assignmentEpochs=[", "assignmentTimestamp=", "metadataHash=", "supportedProtocols=["):
        assert said in texts
    for key, value in ours:
        assert decode_record(key, value) is not None
