"""What a process holds of the system and gives back: descriptors of connections, directories and files."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient
from tests.node.lone_node import (
    NOW_MS,
    LoneNode,
    create_topic,
    delete_topic,
    fetch_request,
    produce,
    running,
    wait_until_led,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads descriptors in /proc"),
]

UNTIL_CLOSED_S = 30.0
ROUNDS = 10
LARGE = encode_batch([RecordInput(None, Random(1).randbytes(600_000), (), NOW_MS)])
SHORT = {"segment.bytes": "1048576", "retention.bytes": "1"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneNode]:
    properties = {
        "log.segment.delete.delay.ms": "100",
        "log.retention.check.interval.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": "100",
        "replica.lag.time.max.ms": "1000",  # a partition is looked at for the last time after half of it
        "pykraft.sendfile": "true",
    }
    with running(LoneNode(tmp_path_factory.mktemp("files") / "node", properties)) as node:
        yield node


def _open_files(node: LoneNode) -> list[str]:
    """What the node's descriptors are of."""
    found = []
    for descriptor in Path(f"/proc/{node.process.pid}/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    return found


def _come_and_go(node: LoneNode, client: WireClient, name: str) -> None:
    """A topic, and a client that writes to it and reads from it; both are gone at the end."""
    with node.client() as visitor:
        assert create_topic(visitor, name) is ErrorCode.NONE
        wait_until_led(visitor, name)
        assert produce(visitor, name, LARGE) is ErrorCode.NONE
        read = visitor.call(fetch_request(name, 0), 4)
        assert len(read.responses[0].partitions[0].records or b"") > len(LARGE)
    assert delete_topic(client, name) is ErrorCode.NONE


def test_clients_and_topics_that_are_gone_leave_no_descriptor(node: LoneNode) -> None:
    with node.client() as client:
        _come_and_go(node, client, "before")
        wait_until("the directory is removed", lambda: not list(node.data.glob("before-*")), 60)
        before = len(_open_files(node))
        for number in range(ROUNDS):
            _come_and_go(node, client, f"t{number}")
        wait_until("the directories are removed", lambda: not list(node.data.glob("t?-*")), 60)
        limit = before + ROUNDS // 2
        wait_until(
            f"at most {limit} descriptors, of {before} before",
            lambda: len(_open_files(node)) <= limit,
            UNTIL_CLOSED_S,
        )


def test_files_that_were_removed_are_closed(node: LoneNode) -> None:
    """Those of a deleted topic, and segments that retention deleted: their room is given back only then."""
    with node.client() as client, node.client() as reader:
        assert create_topic(client, "removed") is ErrorCode.NONE
        wait_until_led(client, "removed")
        read = reader.call(fetch_request("removed", 0), 4)
        assert read.responses[0].partitions[0].records
        assert delete_topic(client, "removed") is ErrorCode.NONE
        assert create_topic(client, "short", SHORT) is ErrorCode.NONE
        wait_until_led(client, "short")
        for _ in range(4):
            assert produce(client, "short", LARGE) is ErrorCode.NONE
        wait_until("the directory is removed", lambda: not list(node.data.glob("removed-*")), 60)
        wait_until("the segments are removed", lambda: len(list(node.data.glob("short-0/*.log*"))) == 1, 60)
        wait_until(
            "no removed file is open, although its reader is there",
            lambda: not any(path.endswith(" (deleted)") for path in _open_files(node)),
            UNTIL_CLOSED_S,
        )
