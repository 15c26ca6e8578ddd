"""The network of a performance tool: asyncio's, with sizes of the system's buffers, and counters; its topic."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import Final

from pykraft.kafka_client.aio import AsyncioChannel, AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.network import Channel, Network
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from pykraft.node.cli.perf.metrics import RequestMetrics
from pykraft.runtime.address import Address

_REQUEST: Final = struct.Struct(">hhi")
"""API, version and correlation id, at the start of a request."""
_RESPONSE: Final = struct.Struct(">i")
_MAX_IN_FLIGHT: Final = 1000


class MeasuredNetwork(AsyncioNetwork):
    """``send_buffer_bytes``, ``receive_buffer_bytes``: below 1, the system chooses."""

    def __init__(self, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        self.metrics = RequestMetrics()
        self._buffers = {socket.SO_SNDBUF: send_buffer_bytes, socket.SO_RCVBUF: receive_buffer_bytes}

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        async with asyncio.timeout_at(deadline_ms / 1000):
            reader, writer = await asyncio.open_connection(address.host, address.port, limit=1 << 20)
        opened: socket.socket = writer.get_extra_info("socket")
        for option, size_bytes in self._buffers.items():
            if size_bytes > 0:
                opened.setsockopt(socket.SOL_SOCKET, option, size_bytes)
        self.metrics.handle_connected()
        return _MeasuredChannel(AsyncioChannel(reader, writer), self)


class _MeasuredChannel:
    def __init__(self, channel: Channel, network: MeasuredNetwork) -> None:
        self._channel = channel
        self._network = network
        # Answers come in order. A bound, because with acks=0 there are none.
        self._asked: deque[tuple[int, int, int]] = deque(maxlen=_MAX_IN_FLIGHT)

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        api_key, _, correlation_id = _REQUEST.unpack_from(frame)
        self._asked.append((correlation_id, api_key, self._network.now_ms()))
        self._network.metrics.handle_request(api_key, len(frame))
        await self._channel.send(frame, deadline_ms)

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        frame = await self._channel.receive(max_bytes, deadline_ms)
        answered = _RESPONSE.unpack_from(frame)[0] if len(frame) >= _RESPONSE.size else None
        while self._asked:
            correlation_id, api_key, sent_ms = self._asked.popleft()
            if correlation_id == answered:
                self._network.metrics.handle_response(api_key, len(frame), self._network.now_ms() - sent_ms)
                break
        return frame

    def close(self) -> None:
        self._channel.close()


async def open_topic(network: Network, client: ClientConfig, topic: str) -> list[int]:
    """The partitions of a topic that have a leader (all if none has). A broker that creates topics on demand
    creates it. :class:`KafkaError` if there is none.
    """
    cluster = Cluster(network, client)
    try:
        deadline_ms = cluster.deadline()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)

        async def create() -> None:
            # The answer does not name the topic yet if it is only being created.
            await cluster.ask_any(asked, deadline_ms)

        await cluster.retrying("metadata", create, deadline_ms)
        (found,) = await cluster.topics([topic], deadline_ms)
    finally:
        cluster.close()
    led = [index for index, one in sorted(found.partitions.items()) if one.leader_id is not None]
    return led or sorted(found.partitions)
