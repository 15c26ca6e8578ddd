"""Connections that end in the middle of something: what is reported, and that none is left open."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_client.errors import ConnectionFailedError, MaybeWrittenError, NotWrittenError
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataResponse
from pykraft.runtime.address import Address
from tests.kafka_client.producer.test_producer import Leaders
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import SILENCE, VirtualNetwork, network_of, run_virtual

T = TypeVar("T")
AT_MS = 1 << 40


def virtually(scripted: ScriptedCluster, body: Callable[[VirtualNetwork], Awaitable[T]]) -> T:
    async def main() -> T:
        network = network_of(scripted, latency_ms=10)
        network.write_ms = 6
        found = await body(network)
        assert network.connections == 0, "a connection is left open"
        return found

    return run_virtual(main())


def call(connection: Connection) -> Awaitable[MetadataResponse]:
    return connection.call(MetadataRequest(topics=None), AT_MS)


@pytest.mark.parametrize("after_ms", [5, 12, 17, 40])
def test_a_connection_whose_opening_is_cancelled_is_closed(scripted: ScriptedCluster, after_ms: int) -> None:
    """While it connects, writes its first request or waits for the answer; or it is open before that."""

    async def body(network: VirtualNetwork) -> None:
        opening = asyncio.ensure_future(Connection.open(network, Address("broker", 1), "test", AT_MS))
        await asyncio.sleep(after_ms / 1000)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled() == (after_ms < 36)
        if not opening.cancelled():
            opening.result().close()

    virtually(scripted, body)


@pytest.mark.parametrize("after_ms", [3, 12])
@pytest.mark.parametrize("how", ["cancelled", "closed", "cut"])
def test_a_request_that_is_cut_off_ends_its_connection(
    scripted: ScriptedCluster, after_ms: int, how: str
) -> None:
    """While it is written, and while its answer is waited for."""

    async def body(network: VirtualNetwork) -> None:
        connection = await Connection.open(network, Address("broker", 1), "test", AT_MS)
        calling = asyncio.ensure_future(call(connection))
        await asyncio.sleep(after_ms / 1000)
        if how == "cancelled":
            calling.cancel()
        elif how == "closed":
            connection.close()
        else:
            network.cut(arrives=False)
        await asyncio.wait([calling])
        if how == "cancelled":
            assert calling.cancelled()
        else:
            assert isinstance(calling.exception(), ConnectionFailedError)
        assert connection.closed
        with pytest.raises(ConnectionFailedError, match="is closed"):
            await call(connection)
        with pytest.raises(ConnectionFailedError, match="is closed"):
            await connection.receive(MetadataResponse, AT_MS)

    virtually(scripted, body)


def test_a_cluster_that_is_closed_while_it_connects_keeps_no_connection(scripted: ScriptedCluster) -> None:
    async def body(network: VirtualNetwork) -> None:
        cluster = Cluster(network, ClientConfig((Address("broker", 1),)))
        asking = asyncio.ensure_future(cluster.topics(None, AT_MS))
        await asyncio.sleep(0.015)
        cluster.close()
        with pytest.raises(ConnectionFailedError, match="the client is closed"):
            await asking
        opened = len(network.channels)
        with pytest.raises(ConnectionFailedError, match="the client is closed"):
            await cluster.topics(None, AT_MS)
        assert len(network.channels) == opened

    virtually(scripted, body)


def test_a_cluster_that_is_closed_is_not_asked_again_until_the_deadline(scripted: ScriptedCluster) -> None:
    scripted.brokers[1].handlers[ApiKey.METADATA] = lambda *_: SILENCE

    async def body(network: VirtualNetwork) -> float:
        cluster = Cluster(network, ClientConfig((Address("broker", 1),)))
        asking = asyncio.ensure_future(cluster.topics(None, AT_MS))
        await asyncio.sleep(1)
        cluster.close()
        with pytest.raises(ConnectionFailedError):
            await asking
        return asyncio.get_running_loop().time()

    assert virtually(scripted, body) == pytest.approx(1)


@pytest.fixture
def leaders(scripted: ScriptedCluster) -> Leaders:
    scripted.add_topic("t", {0: (1, 0)})
    return Leaders(scripted)


async def cut_at_first_write(network: VirtualNetwork, leaders: Leaders, *, arrives: bool) -> Exception:
    """The outcome of a record whose request is cut off while it is written, and whose broker is gone then."""
    addresses = (Address("broker", 2), Address("broker", 3))
    config = ProducerConfig(linger_ms=0, delivery_timeout_ms=2_000)
    producer = Producer(network, ClientConfig(addresses), config)
    try:
        await producer.send("t", 0, None, b"a")
        sending = asyncio.ensure_future(producer.send("t", 0, None, b"b"))
        await asyncio.sleep(0.003)
        leaders.scripted.brokers[1].up = False
        network.cut(arrives=arrives)
        with pytest.raises((MaybeWrittenError, NotWrittenError)) as caught:
            await sending
        return caught.value
    finally:
        await producer.close()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_record_whose_request_is_cut_off_while_it_is_written_may_be_written(
    scripted: ScriptedCluster, leaders: Leaders, arrives: bool
) -> None:
    error = virtually(scripted, lambda network: cut_at_first_write(network, leaders, arrives=arrives))
    assert isinstance(error, MaybeWrittenError)
    assert leaders.values() == (["a", "b"] if arrives else ["a"])


def test_a_record_that_waits_behind_the_request_that_is_cut_off_is_not_written(
    scripted: ScriptedCluster, leaders: Leaders
) -> None:
    async def body(network: VirtualNetwork) -> list[type]:
        addresses = (Address("broker", 2), Address("broker", 3))
        config = ProducerConfig(linger_ms=0, delivery_timeout_ms=2_000)
        producer = Producer(network, ClientConfig(addresses), config)
        await producer.send("t", 0, None, b"a")
        futures = []
        for value in (b"b", b"c"):
            futures.append(producer.append("t", 0, None, value))
            await producer.flush(0)
            await asyncio.sleep(0.001)
        leaders.scripted.brokers[1].up = False
        network.cut(arrives=True)
        found = await asyncio.gather(*futures, return_exceptions=True)
        await producer.close()
        return [type(one) for one in found]

    assert virtually(scripted, body) == [MaybeWrittenError, NotWrittenError]
    assert leaders.values() == ["a", "b"]
