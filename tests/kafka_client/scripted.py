"""A scripted cluster in memory, on virtual time."""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypedDict, Unpack

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.network import Channel
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.headers import RequestHeader, decode_request_header, encode_response_header
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykraft.runtime.address import Address
from tests.narrowing import present

Answer = Message | Exception | bytes
Outcome = Answer | None
"""None: no answer is sent, and the connection stays open."""

Handler = Callable[[Any, int], Answer]
"""Called with a request and its version; a script knows the class of the requests that it answers."""


HOST = "broker"


@dataclass(frozen=True)
class Later(Exception):
    """For ``virtual_cluster`` only: an answer after a delay.

    It may be awaitable.
    """

    answer: Outcome | Awaitable[Outcome]
    delay_ms: int = 0


@dataclass
class ScriptedBroker:
    """Answers each API by a handler, called with request and version; an exception breaks the connection."""

    node_id: int
    handlers: dict[int, Handler] = field(default_factory=dict)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    seen: list[tuple[int, int, Message]] = field(default_factory=list)
    up: bool = True

    @property
    def address(self) -> Address:
        return Address(HOST, self.node_id)

    def answer(self, frame: bytes) -> bytes | Exception:
        header, offset = decode_request_header(frame)
        cls = request_class(header.api_key)
        request = cls.decode(memoryview(frame)[offset:], header.api_version)
        self.seen.append((header.api_key, header.api_version, request))
        handler = self.handlers.get(header.api_key)
        if handler is None and header.api_key == ApiKey.API_VERSIONS:
            handler = self._api_versions
        assert handler is not None, f"broker {self.node_id} has no script for {ApiKey(header.api_key).name}"
        response = handler(request, header.api_version)
        if isinstance(response, Later):
            outcome = response.answer
            if isinstance(outcome, Awaitable):
                return replace(response, answer=_encode_later(header, outcome))
            return replace(response, answer=_encode_outcome(header, outcome))
        return _encode(header, response)

    def _api_versions(self, request: Message, version: int) -> Answer:
        keys = (
            {key: (0, request_class(key).MAX_VERSION) for key in self.handlers} | {18: (0, 4)} | self.ranges
        )
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in sorted(keys.items())
            ]
        )


def _encode(header: RequestHeader, response: Answer) -> bytes | Exception:
    if isinstance(response, Exception):
        return response
    body = response if isinstance(response, bytes) else response.encode(header.api_version)
    return encode_response_header(header.api_key, header.api_version, header.correlation_id) + body


def _encode_outcome(header: RequestHeader, response: Outcome) -> bytes | Exception | None:
    return None if response is None else _encode(header, response)


async def _encode_later(header: RequestHeader, response: Awaitable[Outcome]) -> bytes | Exception | None:
    return _encode_outcome(header, await response)


class ScriptedNetwork:
    """The client's network port over scripted brokers; time advances only in :meth:`sleep` and timeouts."""

    def __init__(self) -> None:
        self.brokers: dict[Address, ScriptedBroker] = {}
        self.time_ms = 1_000
        self.slept_ms: list[int] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return self.time_ms

    async def sleep(self, duration_ms: int) -> None:
        self.time_ms += duration_ms
        self.slept_ms.append(duration_ms)
        self.on_sleep()

    def lock(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    async def connect(self, address: Address, deadline_ms: int) -> Channel:
        broker = self.brokers.get(address)
        if broker is None or not broker.up:
            raise ConnectionRefusedError("connection refused")
        return ScriptedChannel(self, broker)


class ScriptedChannel:
    def __init__(self, network: ScriptedNetwork, broker: ScriptedBroker) -> None:
        self._network = network
        self._broker = broker
        self._answers: deque[bytes | Exception] = deque()
        self.closed = False

    async def send(self, frame: bytes, deadline_ms: int) -> None:
        assert not self.closed
        if not self._broker.up:
            raise ConnectionResetError("the peer is gone")
        self._answers.append(self._broker.answer(frame))

    async def receive(self, max_bytes: int, deadline_ms: int) -> memoryview:
        response = self._answers.popleft()
        if isinstance(response, TimeoutError):
            self._network.time_ms = deadline_ms
        if isinstance(response, Exception):
            raise response
        return memoryview(response)

    def close(self) -> None:
        self.closed = True


class ClientSettings(TypedDict, total=False):
    """What tests set of :class:`ClientConfig`."""

    request_timeout_ms: int


class ScriptedCluster:
    """Brokers and the metadata that they all return; tests move leaders by assigning to ``leaders``."""

    def __init__(self, broker_ids: tuple[int, ...] = (1, 2, 3)) -> None:
        self.network = ScriptedNetwork()
        self.brokers = {broker_id: ScriptedBroker(broker_id) for broker_id in broker_ids}
        self.topic_ids: dict[str, Uuid] = {}
        self.leaders: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        for broker in self.brokers.values():
            self.network.brokers[broker.address] = broker
            broker.handlers[ApiKey.METADATA] = self._metadata

    def script(self, api_key: int, handler: Callable[[int, Any, int], Answer]) -> None:
        """The same script for every broker; its first argument is the broker's id."""
        for broker_id, broker in self.brokers.items():
            broker.handlers[api_key] = partial(handler, broker_id)

    def add_topic(self, name: str, leaders: dict[int, tuple[int, int]], topic_id: Uuid | None = None) -> None:
        """``leaders``: partition to (leader id, leader epoch)."""
        self.topic_ids[name] = topic_id or Uuid(name.encode().ljust(16, b"\1"))
        self.leaders[name] = dict(leaders)

    def client(self, **settings: Unpack[ClientSettings]) -> Cluster:
        addresses = tuple(broker.address for broker in self.brokers.values())
        return Cluster(self.network, ClientConfig(addresses, **settings))

    def requests(self, api_key: int) -> list[tuple[int, int, Any]]:
        """(broker id, version, request) of every request of an API, broker by broker.

        A test knows the class of the requests that it asks for.
        """
        return [
            (broker_id, version, request)
            for broker_id, broker in self.brokers.items()
            for key, version, request in broker.seen
            if key == api_key
        ]

    def _metadata(self, request: MetadataRequest, version: int) -> Answer:
        wanted = request.topics
        names = sorted(self.topic_ids) if wanted is None else [present(topic.name) for topic in wanted]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.node_id, host=HOST, port=broker.node_id)
                for broker in self.brokers.values()
                if broker.up
            ],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topic_ids:
            return MetadataResponseTopic(name=name, error_code=3)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids[name],
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                for index, (leader, epoch) in sorted(self.leaders[name].items())
            ],
        )


def when_asked(scripted: ScriptedCluster, api_key: int, what: Callable[[Any], object], nth: int = 1) -> None:
    """Something happens when the brokers get the next request of an API, or the ``nth`` from now."""
    asked = 0

    def watched(handler: Handler) -> Handler:
        def answer(request: Any, version: int) -> Answer:
            nonlocal asked
            asked += 1
            if asked == nth:
                what(request)
            return handler(request, version)

        return answer

    for broker in scripted.brokers.values():
        broker.handlers[api_key] = watched(broker.handlers[api_key])
