"""The client on real sockets, against librdkafka's mock cluster; blocking and on asyncio."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pykraft.kafka_client.admin.client import Admin, AdminClient
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.fetcher import FetchConfig, PartitionFetcher
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.runtime.address import Address
from tests.mock_cluster import MockCluster

VALUES = [b"value-%d" % i for i in range(500)]


async def read_all(cluster: Cluster, topic: str, end: int) -> list[bytes | None]:
    fetcher = PartitionFetcher(cluster, topic, None, 0, 0, FetchConfig(max_partition_fetch_bytes=2000))
    values = []
    while fetcher.position < end:
        fetched = await fetcher.fetch(cluster.deadline(10_000), read_ahead_until=end)
        for position, header in fetched.headers:
            raw = fetched.data[position : position + header.size_bytes]
            values += [record.value for record in decode_batch(raw)]
    return values


def test_blocking_client_reads_what_was_produced(mock_cluster: MockCluster) -> None:
    mock_cluster.produce("blocking", 0, VALUES)
    cluster = Cluster(
        BlockingNetwork(), ClientConfig(parse_bootstrap_servers(mock_cluster.bootstrap_servers))
    )
    try:
        assert run(read_all(cluster, "blocking", len(VALUES))) == VALUES
    finally:
        cluster.close()


def test_asyncio_client_reads_what_was_produced(mock_cluster: MockCluster) -> None:
    mock_cluster.produce("asyncio", 0, VALUES)

    async def main() -> Any:
        cluster = Cluster(
            AsyncioNetwork(), ClientConfig(parse_bootstrap_servers(mock_cluster.bootstrap_servers))
        )
        try:
            return await read_all(cluster, "asyncio", len(VALUES))
        finally:
            cluster.close()

    assert asyncio.run(main()) == VALUES


def test_admin_client_describes_the_mock_cluster(mock_cluster: MockCluster) -> None:
    mock_cluster.produce("described", 1, VALUES[:10])
    with AdminClient(mock_cluster.bootstrap_servers, default_api_timeout_ms=20_000) as client:
        assert len(client.describe_cluster().brokers) == 3
        assert "described" in [topic.name for topic in client.list_topics()]
        (topic,) = client.describe_topics(["described"])
        assert len(topic.partitions) > 1
        where = TopicPartition("described", 1)
        assert client.list_offsets({where: -1})[where].offset == 10
        assert client.find_coordinator("some-group").id in {1, 2, 3}


def test_admin_also_works_on_asyncio(mock_cluster: MockCluster) -> None:
    async def main() -> Any:
        admin = Admin(AsyncioNetwork(), ClientConfig(parse_bootstrap_servers(mock_cluster.bootstrap_servers)))
        try:
            return await admin.describe_cluster()
        finally:
            admin.close()

    assert len(asyncio.run(main()).brokers) == 3


class RawServer:
    """Accepts one connection, reads a frame and sends back fixed bytes."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size, socket.MSG_WAITALL)
            connection.sendall(self._answer)
            if not self._answer:
                connection.recv(1)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(5)


def exchange_blocking(address: Address, timeout_ms: int) -> bytes:
    async def exchange() -> bytes:
        network = BlockingNetwork()
        channel = await network.connect(address, network.now_ms() + 5_000)
        try:
            await channel.send(b"request", network.now_ms() + 5_000)
            return bytes(await channel.receive(100, network.now_ms() + timeout_ms))
        finally:
            channel.close()

    return run(exchange())


def exchange_asyncio(address: Address, timeout_ms: int) -> bytes:
    async def exchange() -> bytes:
        network = AsyncioNetwork()
        channel = await network.connect(address, network.now_ms() + 5_000)
        try:
            await channel.send(b"request", network.now_ms() + 5_000)
            return bytes(await channel.receive(100, network.now_ms() + timeout_ms))
        finally:
            channel.close()

    return asyncio.run(exchange())


Exchange = Callable[[Address, int], bytes]
both = pytest.mark.parametrize("exchange", [exchange_blocking, exchange_asyncio])


@both
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\x00\x00\x00\x05ab", ConnectionResetError),
        (b"\x00\x00\x00\x65", ConnectionError),
        (b"\xff\xff\xff\xff", ConnectionError),
    ],
    ids=["cut short", "too long", "negative length"],
)
def test_bad_frame_is_a_connection_error(exchange: Exchange, answer: bytes, error: type[Exception]) -> None:
    server = RawServer(answer)
    try:
        with pytest.raises(error):
            exchange(server.address, 5_000)
    finally:
        server.close()


@both
def test_silent_peer_is_a_timeout(exchange: Exchange) -> None:
    server = RawServer(b"")
    try:
        with pytest.raises(TimeoutError):
            exchange(server.address, 50)
    finally:
        server.close()


@both
def test_whole_frame_is_returned_without_its_length(exchange: Exchange) -> None:
    server = RawServer(b"\x00\x00\x00\x03abc")
    try:
        assert exchange(server.address, 5_000) == b"abc"
    finally:
        server.close()


async def test_background_work_that_fails_is_reported_at_once() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def fail() -> None:
        raise ValueError("a bug")

    network = AsyncioNetwork()
    network.start(fail())
    cancelled = network.start(network.sleep(60_000))
    await network.sleep(0)
    cancelled.cancel()
    await network.sleep(1)
    assert [str(context["exception"]) for context in reported] == ["a bug"]
