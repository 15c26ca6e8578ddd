"""Requests of a broker to another one, in virtual time."""

import asyncio
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import cast

import pytest

from pykraft.broker.peers.peers import Peers
from pykraft.broker.replicas.ports import ImageSource
from pykraft.kafka_client.network import Channel
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.kafka_client.scripted import ScriptedBroker

PEER = 2


class Wire:
    """One connection. WriteTxnMarkers is not answered while ``is_stuck``, and holds up what follows it."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._answers: deque[bytes] = deque()
        self._asked: deque[int] = deque()

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        answer = self._network.broker.answer(frame)
        assert isinstance(answer, bytes)
        self._answers.append(answer)
        self._asked.append(int.from_bytes(frame[:2], "big"))

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        api_key = self._asked.popleft()
        async with asyncio.timeout((deadline_ms - self._network.now_ms()) / 1000):
            while self._network.is_stuck and api_key == ApiKey.WRITE_TXN_MARKERS:
                await asyncio.sleep(0.01)
        return memoryview(self._answers.popleft())

    def close(self) -> None: ...


class Network:
    def __init__(self) -> None:
        self.broker = ScriptedBroker(
            PEER,
            {
                ApiKey.WRITE_TXN_MARKERS: lambda request, version: WriteTxnMarkersResponse(),
                ApiKey.ADD_PARTITIONS_TO_TXN: lambda request, version: AddPartitionsToTxnResponse(),
            },
        )
        self.is_stuck = False
        self.connections = 0

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        self.connections += 1
        return cast("Channel", Wire(self))

    async def sleep(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def lock(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()


class KnowsEveryone(Peers):
    def _find_address(self, node_id: int) -> Address:
        return Address("peer", node_id)


@pytest.mark.loop(new=VirtualLoop)
async def test_markers_that_wait_for_replicas_do_not_hold_up_verifications() -> None:
    network = Network()
    peers = KnowsEveryone("broker-1", "PLAINTEXT", cast("ImageSource", None), network)
    network.is_stuck = True
    markers = asyncio.ensure_future(peers.call(PEER, WriteTxnMarkersRequest(), 30_000))
    await asyncio.sleep(0.1)
    began_ms = network.now_ms()
    for _ in range(3):
        await peers.call(PEER, AddPartitionsToTxnRequest(), 30_000)
    assert network.now_ms() - began_ms < 100 and not markers.done()
    with pytest.raises(KafkaError, match="NETWORK_EXCEPTION"):
        await markers
    network.is_stuck = False
    await peers.call(PEER, WriteTxnMarkersRequest(), 30_000)
    assert network.connections == 3, "one for each of the two, and a new one after the failure"
    peers.close()
