"""Faults of the disk and the wall clock under one node process, by the preloaded shim of the fault runs."""

import errno
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.surroundings.shim import DiskState, Shim, build_shim, why_unavailable
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import encode_request
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.node.run import EXIT_FATAL
from pykraft.quorum.state_store import QUORUM_STATE_FILE
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient
from tests.node.lone_node import (
    UP_TIMEOUT_S,
    LoneNode,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    running,
    wait_until_led,
)

_missing = why_unavailable()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_missing is not None, reason=f"the shim cannot be used here: {_missing}"),
]

HUNG_MS = 30_000
"""Longer than anything here takes that does not wait for it."""
FETCH_WAIT_MS = 3_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def shim(library: Path, tmp_path: Path) -> Shim:
    return Shim(library, tmp_path / "shim-control")


@pytest.fixture
def node(shim: Shim, tmp_path: Path) -> Iterator[LoneNode]:
    """With its metadata log apart from the logs of topics."""
    properties = {
        "log.dirs": f"{tmp_path}/logs",
        "metadata.log.dir": f"{tmp_path}/metadata",
        "pykraft.sendfile": "false",
    }
    with running(LoneNode(tmp_path / "node", properties, environment=shim.environment())) as node:
        assert shim.loaded
        yield node


def _answer(call: Callable[[], ErrorCode]) -> ErrorCode | None:
    """None if the node ends instead."""
    try:
        return call()
    except (AssertionError, ConnectionError):
        return None


@pytest.mark.parametrize("fault", ["no flush", "no room", "no write"])
def test_node_ends_at_once_when_its_metadata_log_fails(
    node: LoneNode, shim: Shim, tmp_path: Path, fault: str
) -> None:
    """With the exit code of a fault, before it acknowledges anything; nothing acknowledged is lost."""
    metadata = tmp_path / "metadata"
    with node.client() as client:
        assert create_topic(client, "before") is ErrorCode.NONE
        shim.set_disk(
            {
                "no flush": DiskState(metadata, fsync_errno=errno.EIO),
                "no room": DiskState(metadata, write_errno=errno.ENOSPC),
                "no write": DiskState(metadata, write_errno=errno.EIO),
            }[fault]
        )
        assert _answer(lambda: create_topic(client, "beside")) is not ErrorCode.NONE
    wait_until("the node has ended", lambda: node.has_ended, UP_TIMEOUT_S)
    assert node.process.unordered_exit == EXIT_FATAL
    assert "halting" in node.output
    shim.heal_disk()
    assert node.start(), node.output
    with node.client() as client:
        assert create_topic(client, "before") is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_record_that_cannot_be_written_is_not_acknowledged(
    node: LoneNode, shim: Shim, tmp_path: Path, number: int
) -> None:
    with node.client() as client:
        assert create_topic(client, "t") is ErrorCode.NONE
        wait_until_led(client, "t")
        shim.set_disk(DiskState(tmp_path / "logs", write_errno=number))
        assert _answer(lambda: produce(client, "t")) is not ErrorCode.NONE, "it is written nowhere"


def test_node_that_had_no_room_for_its_vote_starts_when_there_is_room(
    node: LoneNode, shim: Shim, tmp_path: Path
) -> None:
    """Whether that is the file itself, or the one that replaces it."""
    for name in (QUORUM_STATE_FILE, f"{QUORUM_STATE_FILE}.tmp"):
        node.process.kill()
        file = tmp_path / "metadata" / METADATA_LOG_DIRECTORY / name
        shim.set_disk(DiskState(file, write_errno=errno.ENOSPC))
        may_vote = node.start()
        assert may_vote == (not shim.hits)
        node.process.kill()
        shim.heal_disk()
        assert node.start(), node.output
    assert shim.hits


def test_hung_flush_of_one_log_holds_up_nothing_else(node: LoneNode, shim: Shim, tmp_path: Path) -> None:
    with node.client() as waiting, node.client() as other:
        assert create_topic(other, "t", {"flush.messages": "1"}) is ErrorCode.NONE
        wait_until_led(other, "t")
        shim.set_disk(DiskState(tmp_path / "logs" / "t-0", fsync_delay_ms=HUNG_MS))
        waiting.send_frame(encode_request(produce_request("t"), 9, 1, "test"))
        wait_until("the flush hangs", lambda: shim.hits > 0, UP_TIMEOUT_S)
        assert create_topic(other, "u") is ErrorCode.NONE
        assert not _has_answer(waiting)


def test_clock_that_is_set_back_moves_no_deadline(node: LoneNode, shim: Shim) -> None:
    with node.client() as before, node.client() as after:
        assert create_topic(before, "t") is ErrorCode.NONE
        wait_until_led(before, "t")
        before.send_frame(_waiting_fetch())
        assert produce(after, "t", b"") is not ErrorCode.NONE, "by now the fetch waits"
        shim.set_clock(-3600)
        after.send_frame(_waiting_fetch())
        assert after.receive() is not None
        wait_until("the earlier fetch is answered, too", lambda: _has_answer(before), FETCH_WAIT_MS / 200)


def _waiting_fetch() -> bytes:
    """From the end of t, which holds one record."""
    return encode_request(fetch_request("t", 1, FETCH_WAIT_MS), 4, 2, "test")


def _has_answer(client: WireClient) -> bool:
    return bool(select.select([client.socket], [], [], 0)[0])
