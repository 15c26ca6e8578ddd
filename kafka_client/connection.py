"""One connection to one broker: version negotiation, correlation ids, timeouts, clear errors.

A connection serves one task at a time; if requests are pipelined, one task may send while another receives.
Answers arrive in the order of the requests (the protocol's rule), which is checked by correlation id. After
any failure in the middle of a frame the position in the stream is unknown, so the connection closes itself
and is never used again.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from pykraft.kafka_client.errors import (
    ClientTimeoutError,
    ConnectionFailedError,
    MalformedAnswerError,
    UnsupportedByBrokerError,
)
from pykraft.kafka_client.network import Channel, Network
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address

CLIENT_SOFTWARE_NAME = "pykraft"
CLIENT_SOFTWARE_VERSION = "0.1"
MAX_RESPONSE_BYTES = 512 << 20


R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class _InFlight:
    correlation_id: int
    api_key: int
    version: int


class Connection:
    """Open with :meth:`open`. ``versions`` maps an API key to the broker's (minimum, maximum)."""

    def __init__(self, network: Network, channel: Channel, address: Address, client_id: str) -> None:
        self._network = network
        self._channel = channel
        self._client_id = client_id
        self._in_flight: deque[_InFlight] = deque()
        self._calls = network.lock()
        self._next_correlation_id = 0
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.closed = False

    @classmethod
    async def open(cls, network: Network, address: Address, client_id: str, deadline_ms: int) -> Connection:
        """Connect and negotiate."""
        try:
            channel = await network.connect(address, deadline_ms)
        except OSError as error:
            raise ConnectionFailedError(f"cannot connect to {address}: {_reason(error)}") from error
        connection = cls(network, channel, address, client_id)
        try:
            await connection._negotiate(deadline_ms)
        except BaseException:
            connection.close()
            raise
        return connection

    def serves(self, api_key: int) -> bool:
        return api_key in self.versions

    def version_for(self, request: Message, max_version: int | None = None) -> int:
        """The newest version that both sides support, at most ``max_version``."""
        name = ApiKey(request.API_KEY).name
        offered = self.versions.get(request.API_KEY)
        if offered is None:
            raise UnsupportedByBrokerError(f"the broker at {self.address} does not serve {name}")
        ceiling = request.MAX_VERSION if max_version is None else min(max_version, request.MAX_VERSION)
        version = min(offered[1], ceiling)
        if version < max(offered[0], request.MIN_VERSION):
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} serves {name} in versions {offered[0]} to {offered[1]}, "
                f"this client needs {request.MIN_VERSION} to {ceiling}"
            )
        return version

    async def call(self, request: Request[R], deadline_ms: int, *, max_version: int | None = None) -> R:
        """Send a request and wait for its answer. Calls of several tasks are made one after another."""
        async with self._calls:
            assert not self._in_flight, "call() while a request that send() sent is in flight"
            await self.send(request, deadline_ms, max_version=max_version)
            return await self.receive(request.RESPONSE, deadline_ms)

    async def send(
        self,
        request: Message,
        deadline_ms: int,
        *,
        max_version: int | None = None,
        has_answer: bool = True,
    ) -> int:
        """Send a request and return the version sent.

        :meth:`receive` returns the answer later, unless the request has none (Produce with acks=0).
        """
        version = self.version_for(request, max_version)
        await self._send_version(request, version, deadline_ms, has_answer=has_answer)
        return version

    async def receive(self, response_type: type[R], deadline_ms: int) -> R:
        """The answer to the oldest request in flight."""
        version, body = await self._receive_body(deadline_ms)
        return self._decode(response_type, body, version)

    def close(self) -> None:
        self.closed = True
        self._in_flight.clear()
        self._channel.close()

    async def _negotiate(self, deadline_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        version = request.MAX_VERSION
        while True:
            await self._send_version(request, version, deadline_ms)
            version, body = await self._receive_body(deadline_ms)
            # All encodings begin with the error code.
            error_code = int.from_bytes(body[:2], "big", signed=True)
            if error_code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
                response = self._decode(request.RESPONSE, body, version)
                break
            if version == 0:
                raise UnsupportedByBrokerError(f"{self.address} refuses every version of ApiVersions")
            version = _next_version(body, version) if error_code == ErrorCode.UNSUPPORTED_VERSION else 0
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{self.address} refused ApiVersions")
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        self.finalized_features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }

    async def _send_version(
        self, request: Message, version: int, deadline_ms: int, *, has_answer: bool = True
    ) -> None:
        self._check_open()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(request, version, correlation_id, self._client_id)
        try:
            await self._channel.send(frame, deadline_ms)
        except OSError as error:
            raise self._broken(request.API_KEY, error) from error
        except BaseException:
            self.close()
            raise
        if has_answer:
            self._in_flight.append(_InFlight(correlation_id, request.API_KEY, version))

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionFailedError(f"the connection to {self.address} is closed")

    async def _receive_body(self, deadline_ms: int) -> tuple[int, memoryview]:
        self._check_open()
        expected = self._in_flight.popleft()
        try:
            frame = await self._channel.receive(MAX_RESPONSE_BYTES, deadline_ms)
        except OSError as error:
            raise self._broken(expected.api_key, error) from error
        except BaseException:
            self.close()
            raise
        try:
            correlation_id, body_offset = decode_response_header(expected.api_key, expected.version, frame)
        except KafkaError as bad:
            self.close()
            raise MalformedAnswerError(f"{self.address} sent a malformed response header: {bad}") from bad
        if correlation_id != expected.correlation_id:
            self.close()
            raise MalformedAnswerError(
                f"{self.address} answered request {correlation_id} where {expected.correlation_id} was due"
            )
        return expected.version, frame[body_offset:]

    def _decode(self, response_type: type[R], body: memoryview, version: int) -> R:
        # Bytes after the message are ignored, as in other clients: some servers send such bytes.
        try:
            return response_type.decode_from(body, 0, version)[0]
        except KafkaError as error:
            self.close()
            raise MalformedAnswerError(
                f"{self.address} sent a malformed {response_type.__name__} v{version}: {error.message}"
            ) from error

    def _broken(self, api_key: int, error: OSError) -> KafkaError:
        self.close()
        name = ApiKey(api_key).name
        if isinstance(error, TimeoutError):
            return ClientTimeoutError(f"{self.address} did not answer {name} in time")
        return ConnectionFailedError(
            f"the connection to {self.address} broke during {name}: {_reason(error)}"
        )


def _next_version(body: memoryview, refused: int) -> int:
    """The version of ApiVersions to try after a refusal.

    The answer should be in version 0 and hold the range; some brokers answer in the requested version.
    """
    for version in (0, refused):
        try:
            response = ApiVersionsResponse.decode(body, version)
        except KafkaError:
            continue
        offered = [key.max_version for key in response.api_keys if key.api_key == ApiKey.API_VERSIONS]
        return min(refused - 1, *offered) if offered else 0
    return refused - 1


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
