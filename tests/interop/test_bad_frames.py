"""Frames and headers that a broken or hostile peer may send to a real node."""

import contextlib
import resource
import socket
import struct

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from pykraft.testing.processes.wire_client import decode_answer
from tests.interop.peer import (
    MAX_FRAME_BYTES,
    MAX_GROWTH_BYTES,
    OtherClient,
    Peer,
    log_of,
    memory_bytes,
    open_files,
)

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("unharmed")]

CONNECTIONS = 2000


@pytest.mark.parametrize("size", [-1, -(2**31), 0, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_impossible_frame_size_closes_the_connection_with_one_line_of_log(single: Cluster, size: int) -> None:
    lines = log_of(single).count("\n")
    with Peer(single) as peer:
        assert peer.call(ApiVersionsRequest(), 0).error_code == 0
        peer.send(struct.pack(">i", size) + b"whatever follows")
        assert peer.receive() is None
    assert log_of(single).count("\n") - lines == 1
    assert str(size) in log_of(single).splitlines()[-1]


def test_http_request_closes_the_connection(single: Cluster) -> None:
    with Peer(single) as peer:
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.receive() is None


def test_frame_that_arrives_byte_by_byte_is_answered(single: Cluster) -> None:
    frame = encode_request(ApiVersionsRequest(), 0, 7, "slow")
    with Peer(single) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in struct.pack(">i", len(frame)) + frame:
            peer.send(bytes([byte]))
        answer = peer.receive()
        assert answer is not None
        assert decode_answer(ApiVersionsResponse, 0, answer).error_code == 0


def test_thousands_of_connections_that_never_finish_a_frame_cost_little(
    single: Cluster, other_client: OtherClient
) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, soft // 2 - 200)
    assert count > 100, f"the limit of {soft} open files leaves no room for this test"
    files, memory = open_files(single), memory_bytes(single)
    with contextlib.ExitStack() as stack:
        for number in range(count):
            peer = stack.enter_context(Peer(single))
            # The size of the largest allowed frame and very few of its bytes; some send only part of the
            # size.
            unfinished = struct.pack(">i", MAX_FRAME_BYTES) + b"x" * (number % 3 * 500)
            peer.send(unfinished if number % 5 else unfinished[:2])
        wait_until("all connections to be taken", lambda: open_files(single) >= files + count, PATIENCE_S)
        other_client.check()
        with Peer(single) as peer:
            assert peer.call(ApiVersionsRequest(), 0).error_code == 0
        grown = memory_bytes(single) - memory
    assert grown < MAX_GROWTH_BYTES, f"{count} connections took {grown / 2**20:.0f} MiB"
    wait_until("all connections to be given up", lambda: open_files(single) <= files + 10, PATIENCE_S)


def test_pipelined_requests_without_a_reader_do_not_accumulate(single: Cluster) -> None:
    request = encode_request(ApiVersionsRequest(), 0, 7, "deaf")
    flood = (struct.pack(">i", len(request)) + request) * 1000
    with Peer(single) as peer:
        peer.socket.settimeout(0.5)
        sent = 0
        # The broker must stop reading at some point: then sending blocks.
        with contextlib.suppress(TimeoutError):
            while sent < 200 * 1024 * 1024:
                sent += peer.socket.send(flood)
        assert sent < 200 * 1024 * 1024


@pytest.mark.parametrize("api_key", [-1, 4, 7, 52, 999, 32767])
def test_unknown_api_closes_the_connection(single: Cluster, api_key: int) -> None:
    with Peer(single) as peer:
        peer.send_frame(struct.pack(">hhih", api_key, 0, 7, -1))
        assert peer.receive() is None


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_of_api_versions_is_answered_in_version_0(single: Cluster, version: int) -> None:
    with Peer(single) as peer:
        peer.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1) + b"\0\x04abc\x04def\0")
        frame = peer.receive()
        assert frame is not None
        assert frame[:4] == struct.pack(">i", 7)
        answer = ApiVersionsResponse.decode(frame[4:], 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        served = {item.api_key: item.max_version for item in answer.api_keys}
        assert served[ApiKey.API_VERSIONS] == 4
        named = ApiVersionsRequest(client_software_name="peer", client_software_version="1")
        assert peer.call(named, 4).error_code == 0
        assert peer.call(ApiVersionsRequest(), 4).error_code == ErrorCode.INVALID_REQUEST
