"""A client of the whole cluster: finds brokers, keeps one connection to each, refreshes metadata, retries.

The layers above (fetching, administration) use this one and decide only *which* broker to ask and whether an
error is final. Tasks of one event loop may share it: what each does is whole, and what they learn serves all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pykraft.kafka_client.connection import Connection, R
from pykraft.kafka_client.errors import ClientTimeoutError, ConnectionFailedError
from pykraft.kafka_client.metadata import MetadataCache, Partition, Topic
from pykraft.kafka_client.network import Network
from pykraft.kafka_protocol.codec.schema import Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address

T = TypeVar("T")

# Retriable, because brokers learn of a new topic at different times. But a name that stays unknown is a
# mistake, which the caller should be told soon, not after the whole timeout. The same holds for a topic that
# seems to have been recreated.
_UNKNOWN_TOPIC = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)

# Version 13 adds only an error that asks the client to start again from its bootstrap servers, which this
# client does anyway when none of the brokers it knows answers.
_METADATA_VERSION_WITH_TOPIC_IDS = 12


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The client's settings; names and defaults are those of Kafka's clients where Kafka has the setting."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "pykraft"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 5_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    unknown_topic_grace_ms: int = 1_500

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """An object of a compiled class cannot be pickled without."""
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


class Cluster:
    """Connections and metadata. ``repeats``: how many requests were sent again after a passing error, so that
    they may be carried out twice, the second time at any later moment. ``trouble``: why the attempts have
    failed so far that are being repeated; None while there are none. ``asks_controllers``: whether it is they
    that ``metadata`` holds, and no broker.
    """

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self.network = network
        self.config = config
        self.metadata = MetadataCache()
        self.asks_controllers = False
        self._connections: dict[Address, Connection] = {}
        self._turn = 0
        self._is_closed = False
        self.repeats = 0
        self.trouble: KafkaError | None = None

    def close(self) -> None:
        """For good: what another task still does here ends with an error at its next attempt."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def deadline(self, timeout_ms: int | None = None) -> int:
        """The reading of the clock at which ``timeout_ms`` (default: ``default.api.timeout.ms``) is over."""
        return self.network.now_ms() + (
            self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        )

    def request_deadline(self, deadline_ms: int) -> int:
        """The deadline of one attempt: never later than the caller's."""
        return min(deadline_ms, self.network.now_ms() + self.config.request_timeout_ms)

    async def connection(self, address: Address, deadline_ms: int) -> Connection:
        """The connection to an address, opened if necessary."""
        known = self._known_connection(address)
        if known is not None:
            return known
        connect_by = min(deadline_ms, self.network.now_ms() + self.config.connect_timeout_ms)
        self._check_open()
        opened = await Connection.open(self.network, address, self.config.client_id, connect_by)
        known = self._known_connection(address)  # another task may have been faster
        if self._is_closed or known is not None:
            opened.close()
        self._check_open()
        if known is None:
            known = self._connections[address] = opened
        return known

    def _known_connection(self, address: Address) -> Connection | None:
        known = self._connections.get(address)
        return None if known is None or known.closed else known

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    async def broker(self, broker_id: int, deadline_ms: int) -> Connection:
        """The connection to a broker by id."""
        known = self.metadata.brokers.get(broker_id)
        if known is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not in the cluster's metadata"
            )
        return await self.connection(known.address, deadline_ms)

    async def any_broker(self, deadline_ms: int) -> Connection:
        """A connection to any broker that answers; after each failure it starts with another broker."""
        known = [broker.address for _, broker in sorted(self.metadata.brokers.items())]
        addresses = list(dict.fromkeys([*known, *self.config.bootstrap_servers]))
        failures = []
        for step in range(len(addresses)):
            address = addresses[(self._turn + step) % len(addresses)]
            try:
                connection = await self.connection(address, deadline_ms)
            except KafkaError as error:
                failures.append(error.message)
                continue
            self._turn = (self._turn + step) % len(addresses)
            return connection
        self._turn = 0
        raise ConnectionFailedError("no broker answers: " + "; ".join(failures))

    async def ask_any(self, request: Request[R], deadline_ms: int, *, max_version: int | None = None) -> R:
        """One attempt at any broker. After a failure the next attempt is made at another one."""
        connection = await self.any_broker(deadline_ms)
        try:
            return await connection.call(request, self.request_deadline(deadline_ms), max_version=max_version)
        except KafkaError:
            self._turn += 1
            raise

    async def ask_broker(
        self,
        broker_id: int,
        request: Request[R],
        deadline_ms: int,
        *,
        max_version: int | None = None,
    ) -> R:
        """One attempt at a broker by id."""
        connection = await self.broker(broker_id, deadline_ms)
        return await connection.call(request, self.request_deadline(deadline_ms), max_version=max_version)

    async def retrying(self, what: str, attempt: Callable[[], Awaitable[T]], deadline_ms: int) -> T:
        """Repeat ``attempt``, with growing pauses, while its error is retriable and until the deadline."""
        backoff_ms = self.config.retry_backoff_ms
        trouble: KafkaError | None = None
        unknown_until_ms = self.network.now_ms() + self.config.unknown_topic_grace_ms
        try:
            while True:
                try:
                    return await attempt()
                except KafkaError as error:
                    if not is_passing(error):
                        raise
                    if self._is_closed:
                        raise _closed() from error
                    # The deadline often cuts the last attempt short; an earlier error of a broker is more
                    # informative.
                    if trouble is None or not isinstance(error, ClientTimeoutError):
                        trouble = self.trouble = error
                    next_try_ms = self.network.now_ms() + backoff_ms
                    if is_unknown(error) and next_try_ms >= unknown_until_ms:
                        raise
                    if next_try_ms >= deadline_ms:
                        message = f"{what}: gave up; the last error was {trouble}"
                        raise ClientTimeoutError(message) from trouble
                self._turn += 1
                self.repeats += 1
                await self.network.sleep(backoff_ms)
                backoff_ms = min(backoff_ms * 2, self.config.retry_backoff_max_ms)
        finally:
            self.trouble = None

    async def refresh(self, topics: Sequence[str] | None, deadline_ms: int) -> None:
        """Fetch the metadata of the named topics (None: all) in one attempt.

        The errors of topics are kept in ``metadata.errors``.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = await self.ask_any(request, deadline_ms, max_version=_METADATA_VERSION_WITH_TOPIC_IDS)
        self.metadata.replay(response, complete=topics is None)

    async def topics(self, names: Sequence[str] | None, deadline_ms: int) -> list[Topic]:
        """The named topics (None: all that exist). Raises if one is unknown or not ready by the deadline."""

        async def attempt() -> list[Topic]:
            await self.refresh(names, deadline_ms)
            if names is None:
                return sorted(self.metadata.topics(), key=lambda topic: topic.name)
            return [self._known_topic(name) for name in names]

        return await self.retrying("metadata", attempt, deadline_ms)

    async def leader(self, topic: str, index: int, deadline_ms: int) -> Partition:
        """A partition that has a leader; refreshes once if the cache knows none. The caller retries."""
        known = self.metadata.partition(topic, index)
        if known is None or known.leader_id is None or known.leader_id not in self.metadata.brokers:
            await self.refresh([topic], deadline_ms)
        return self.known_leader(topic, index)

    def known_leader(self, topic: str, index: int) -> Partition:
        """The same, as far as is known."""
        self._known_topic(topic)
        known = self.metadata.partition(topic, index)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        if known.leader_id is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        return known

    def _known_topic(self, name: str) -> Topic:
        topic = self.metadata.topic(name)
        if topic is None:
            code = self.metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            reason = (
                "does not exist" if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else f"has error {code.name}"
            )
            raise KafkaError(code, f"topic {name} {reason}")
        return topic


def _closed() -> ConnectionFailedError:
    return ConnectionFailedError("the client is closed")


def is_unknown(error: KafkaError) -> bool:
    """Whether it passes soon or never: brokers learn of a new topic at different times."""
    return error.code in _UNKNOWN_TOPIC


def is_passing(error: KafkaError) -> bool:
    """Whether the same request may succeed later."""
    return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE
