"""A real node with few descriptors and more connections than it can hold continues, and rolls segments."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

pytestmark = pytest.mark.slow

FILES = 1024
CONNECTIONS = 1100
BATCH = encode_batch([RecordInput(None, Random(1).randbytes(600_000), (), 1_700_000_000_000)])


@pytest.fixture
def many_sockets() -> Iterator[None]:
    """Raise the limit of this process; the node has its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3 * CONNECTIONS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def produce(client: WireClient, topic: str) -> ErrorCode:
    partitions = [PartitionProduceData(index=0, records=BATCH)]
    topics = [TopicProduceData(name=topic, partition_data=partitions)]
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def start(
    directory: Path,
    pykraft: Callable[..., Any],
    server_file: Callable[..., Path],
    controller: int,
    files: int = FILES,
) -> tuple[NodeProcess, int]:
    """A node with this limit of open files; it raises its soft limit itself."""
    (port,) = free_ports(1)
    file = server_file(
        controller_quorum_voters=f"1@127.0.0.1:{controller}",
        listeners=f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
    )
    formatted = pykraft("storage", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(file))
    assert formatted.returncode == 0
    limits = f'ulimit -Sn 256 && ulimit -Hn {files} && exec "$0" "$@"'
    command = ["sh", "-c", limits, sys.executable, "-m", "pykraft.node", "server", "start", str(file)]
    return NodeProcess(1, command, directory / "output"), port


def is_refused(connection: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        try:
            return connection.recv(1) == b""
        except ConnectionError:
            return True
    return False


@pytest.mark.usefixtures("many_sockets")
def test_idle_connections_take_neither_segments_nor_the_node(
    tmp_path: Path, pykraft: Callable[..., Any], server_file: Callable[..., Path]
) -> None:
    node, port = start(tmp_path, pykraft, server_file, *free_ports(1))
    node.start()
    idle: list[socket.socket] = []
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(node.kill)
        wait_until("the node", lambda: "is up" in (tmp_path / "output").read_text(), 60)
        client = cleanup.enter_context(WireClient(Address("127.0.0.1", port)))
        segments = [CreatableTopicConfig(name="segment.bytes", value="1048576")]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=segments)
        made = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert made.topics[0].error_code == 0
        wait_until("the topic", lambda: produce(client, "t") is ErrorCode.NONE, 30)
        for _ in range(CONNECTIONS):
            idle.append(cleanup.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)))
            idle[-1].setblocking(False)
        wait_until("refusals", lambda: sum(map(is_refused, idle)) > CONNECTIONS // 2, 30)
        kept = CONNECTIONS - sum(map(is_refused, idle))
        assert 200 < kept < FILES // 2
        for _ in range(40):
            assert produce(client, "t") is ErrorCode.NONE
        assert len(list(tmp_path.rglob("t-0/*.log"))) > 20
        assert node.running
        said = (tmp_path / "output").read_text()
        assert f"soft limit raised from 256 to {FILES}" in said
        assert "refusing connections" in said and "Traceback" not in said
        for connection in idle:
            connection.close()
        wait_until("room", lambda: can_produce(port), 30)


HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("said_first", [b"", HTTP2_PREFACE], ids=["silent", "HTTP/2"])
@pytest.mark.usefixtures("many_sockets")
def test_connections_to_the_controllers_listener_leave_the_node_its_files(
    tmp_path: Path, pykraft: Callable[..., Any], server_file: Callable[..., Path], said_first: bytes
) -> None:
    """gRPC accepts as many connections as there are descriptors: the next checkpoint ended the node."""
    (controller,) = free_ports(1)
    node, port = start(tmp_path, pykraft, server_file, controller, files=256)
    node.start()
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(node.kill)
        wait_until("the node", lambda: "is up" in (tmp_path / "output").read_text(), 60)
        for _ in range(CONNECTIONS):
            peer = cleanup.enter_context(socket.create_connection(("127.0.0.1", controller), timeout=30))
            with contextlib.suppress(OSError):
                peer.sendall(said_first)
        assert len(os.listdir(f"/proc/{node.pid}/fd")) < 128
        client = cleanup.enter_context(WireClient(Address("127.0.0.1", port)))
        segments = [CreatableTopicConfig(name="segment.bytes", value="1048576")]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=segments)
        made = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert made.topics[0].error_code == 0
        wait_until("the topic", lambda: produce(client, "t") is ErrorCode.NONE, 30)
        for _ in range(10):
            assert produce(client, "t") is ErrorCode.NONE
        wait_until("a checkpoint", lambda: any(tmp_path.rglob("replication-offset-checkpoint")), 30)
        assert node.running and "Traceback" not in (tmp_path / "output").read_text()


def can_produce(port: int) -> bool:
    with WireClient(Address("127.0.0.1", port)) as client:
        try:
            return produce(client, "t") is ErrorCode.NONE
        except (AssertionError, ConnectionError):
            return False


EXHAUSTED = """
import asyncio, os, resource, socket, sys, uvloop
from pykraft.broker.serving.listener import KafkaListener
from pykraft.runtime.network.tcp import StreamRuntime

class Echo:
    def handle_frame(self, connection, data, slot):
        slot.complete([bytes(data)])

async def echoed(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\\0\\0\\0\\1x")
    try:
        return await asyncio.wait_for(reader.readexactly(5), 5) == b"\\0\\0\\0\\1x"
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    finally:
        writer.close()

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    listener = KafkaListener(StreamRuntime(loop), "127.0.0.1", 0, "PLAINTEXT")
    port = await listener.start(Echo())
    assert await echoed(port)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    waiting = [socket.socket() for _ in range(5)]
    hogs = []
    try:
        while True:
            hogs.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for peer in waiting:
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", port))
    for _ in range(100):
        await asyncio.sleep(0.001)
    for hog in hogs:
        os.close(hog)
    while not await echoed(port):
        await asyncio.sleep(0.01)
    for peer in waiting:
        peer.close()
    await listener.stop()
    print("served again")

loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
with asyncio.Runner(loop_factory=loops[sys.argv[1]]) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_listener_that_could_not_accept_for_lack_of_files_accepts_again(loop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, loop], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "served again\n", done.stderr
