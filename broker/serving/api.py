"""What an API is: a row that names its messages, its handler, and how it is served.

The rows stand in :mod:`pykraft.broker.apis.table`, the one list of what is served. Key and versions of a row
are those of its request's message table; ApiVersions, the refusal of other versions and the list in
docs/protocol.md follow from it. Requests are handed to the rows, and errors that escape a handler are
answered, in :mod:`pykraft.broker.serving.request_server`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.error_answers import error_answer
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.runtime.turns import Turns

S = TypeVar("S", contravariant=True)
"""What a handler may reach: the parts of a broker, of a controller, or what both have."""

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

Handler: TypeAlias = Callable[[S, RequestContext, Q, int], Awaitable[R]]
"""``(services, context, request, version) → response``; raises :class:`KafkaError` for the whole request."""


class MalformedRequestError(ProtocolError):
    """The body of a request is not what its API and version say; the protocol has no answer for it."""


class ReceivedRequest(Generic[Q]):
    """The body of a request as it came. It is decoded when somebody asks what it says, and once."""

    __slots__ = ("_request", "_request_class", "body", "version")

    def __init__(self, request_class: type[Q], version: int, body: bytes) -> None:
        self._request_class = request_class
        self._request: Q | None = None
        self.version = version
        self.body = body

    @property
    def api_key(self) -> int:
        return self._request_class.API_KEY

    @property
    def request(self) -> Q:
        """What was sent. :class:`MalformedRequestError` if that cannot be read.

        Bytes behind the request are ignored, as Kafka does: librdkafka leaves some after Metadata v13.
        """
        if self._request is None:
            try:
                self._request, _ = self._request_class.decode_from(self.body, 0, self.version)
            except ProtocolError as error:
                raise MalformedRequestError(error.message) from None
        return self._request


class HotHandler(Protocol):
    """Answers one API without the general codec."""

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Complete ``slot`` now or later. ``body`` lives only as long as the call; ProtocolError closes."""
        ...


@dataclass(frozen=True, slots=True)
class Api(Generic[S, Q, R]):
    """What the rows of all served APIs have in common.

    ``refused_when_fenced`` is what a broker that knows it is fenced answers instead; None: it is served all
    the same. ``build_error`` makes the answer to a request that failed as a whole, for the few APIs in which
    that does not follow from the message tables (:mod:`pykraft.kafka_protocol.error_answers`).
    ``advertised_min`` differs from the request's lowest version only for Produce: librdkafka takes the
    absence of version 0 as the absence of compression codecs (KAFKA-18659), though nobody sends it.
    """

    request: type[Q]
    response: type[R]
    refused_when_fenced: ErrorCode | None = field(default=None, kw_only=True)
    build_error: Callable[[Q, int, KafkaError], R] | None = field(default=None, kw_only=True)
    advertised_min: int | None = field(default=None, kw_only=True)

    @property
    def key(self) -> ApiKey:
        return ApiKey(self.request.API_KEY)

    @property
    def min_version(self) -> int:
        return self.request.MIN_VERSION

    @property
    def max_version(self) -> int:
        return self.request.MAX_VERSION

    def serves(self, version: int) -> bool:
        return self.request.MIN_VERSION <= version <= self.request.MAX_VERSION

    def error_response(self, request: Q, version: int, error: KafkaError) -> R:
        """The response saying ``error`` for all that was asked."""
        if self.build_error is not None:
            return self.build_error(request, version, error)
        return error_answer(self.response, request, version, error)


@dataclass(frozen=True, slots=True)
class HandledApi(Api[S, Q, R]):
    """Decoded and answered here.

    ``partitions`` of a request are those that this broker has to lead to answer it, by topic name and index:
    while it is about to, the request waits.
    """

    handle: Handler[S, Q, R]
    partitions: Callable[[Q], Iterable[tuple[str, int]]] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ForwardedApi(Api[S, Q, R]):
    """Passed on to the active controller; request and answer travel as the bytes that came."""

    forward: Callable[[S, RequestContext, ReceivedRequest[Q]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class HotApi(Api[S, Q, R]):
    """Parsed and answered by hand; ``make_handler`` is called once for each broker."""

    make_handler: Callable[[S, Turns], HotHandler]
