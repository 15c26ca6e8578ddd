"""The rows that describe an API: its messages, its handler, and how it is served.

The rows are in :mod:`pykraft.broker.apis.table`, the one list of all served APIs. Key and versions of a row
are those of its request's message table; ApiVersions, the refusal of other versions and the list in
docs/protocol.md are derived from them. :mod:`pykraft.broker.serving.request_server` passes requests to the
rows and answers errors that a handler raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.pace import MAX_ITEMS, TooManyItemsError, at_once
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.error_answers import error_answer_in_slices, has_own_error
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.turns import Turns

S = TypeVar("S", contravariant=True)
"""The parts that a handler may use: those of a broker, of a controller, or those that both have."""

Q = TypeVar("Q", bound=Request[Any])
R = TypeVar("R", bound=Message)

Handler: TypeAlias = Callable[[S, RequestContext, Q, int], Awaitable[R | bytes]]
"""``(services, context, request, version) → response``, or its body if it was encoded over several turns.

Raises :class:`KafkaError` for the whole request.
"""

SlicedHandler: TypeAlias = Callable[[S, RequestContext, Q, int], Generator[None, None, R]]
"""As :data:`Handler`, for one that never waits: it yields after each item that it has looked at."""

LARGE_BYTES: Final = 8 << 10
"""The size from which on the decoding of a request may take longer than its share of a turn."""


class MalformedRequestError(ProtocolError):
    """The body of a request does not match its API and version; no response can say so."""


class ReceivedRequest(Generic[Q]):
    """A request's body, decoded once, when fields are first needed; a large one before, in slices."""

    __slots__ = ("_max_items", "_request", "_request_class", "body", "version")

    def __init__(self, request_class: type[Q], version: int, body: bytes, max_items: int = MAX_ITEMS) -> None:
        self._request_class = request_class
        self._request: Q | None = None
        self._max_items = max_items
        self.version = version
        self.body = body

    @property
    def api_key(self) -> int:
        return self._request_class.API_KEY

    @property
    def request(self) -> Q:
        """The decoded request. :class:`MalformedRequestError` if it cannot be decoded,
        :class:`~pykraft.kafka_protocol.codec.pace.TooManyItemsError` if it has more elements than its API
        allows.

        Bytes after the request are ignored, as in Kafka: librdkafka sends some after Metadata v13.
        """
        if self._request is None:
            if len(self.body) > self._max_items:  # otherwise it has no room for so many
                for _ in self.decode_in_slices():
                    pass
                return self.request
            try:
                self._request, _ = self._request_class.decode_from(self.body, 0, self.version)
            except ProtocolError as error:
                raise MalformedRequestError(error.message) from None
        return self._request

    def decode_in_slices(self) -> Generator[None, None, None]:
        """Decode it for :attr:`request`; yields after each slice."""
        try:
            self._request = yield from self._request_class.decode_in_slices(
                self.body, self.version, self._max_items
            )
        except TooManyItemsError:
            raise
        except ProtocolError as error:
            raise MalformedRequestError(error.message) from None


class HotHandler(Protocol):
    """Parses and answers one API without the general codec."""

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Complete ``slot`` now or later. ``body`` is valid only during the call.

        A :class:`ProtocolError` closes the connection.
        """
        ...


@dataclass(frozen=True, slots=True)
class Api(Generic[S, Q, R]):
    """The fields that the rows of all APIs have in common.

    ``refused_when_fenced`` is the error that a broker which knows it is fenced answers; None: a fenced broker
    serves the API as well. ``build_error`` builds the response to a request that failed as a whole, for the
    few APIs whose message tables do not determine it (:mod:`pykraft.kafka_protocol.error_answers`), in slices
    if the request has many items.
    ``advertised_min`` differs from the lowest version of the request only for Produce: librdkafka concludes
    from a missing version 0 that compression codecs are missing (KAFKA-18659), although no client sends
    version 0. ``max_items`` is how many elements the arrays of a request may have together: they are counted
    before objects are made of them, and a request with more is refused as a whole. ``partitions`` of a
    request are those that this broker must lead to answer it, by topic name and index; while it is about to
    lead one of them, the request waits.
    """

    request: type[Q]
    response: type[R]
    refused_when_fenced: ErrorCode | None = field(default=None, kw_only=True)
    build_error: Callable[[Q, int, KafkaError], R | Generator[None, None, R]] | None = field(
        default=None, kw_only=True
    )
    advertised_min: int | None = field(default=None, kw_only=True)
    max_items: int = field(default=MAX_ITEMS, kw_only=True)
    partitions: Callable[[Q], Iterable[tuple[str, int]]] | None = field(default=None, kw_only=True)

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
        """The response with ``error`` for everything in the request."""
        return at_once(self.error_in_slices(request, version, error))

    def error_in_slices(self, request: Q, version: int, error: KafkaError) -> Generator[None, None, R]:
        """As :meth:`error_response`; yields after each item."""
        if self.build_error is None:
            answer: R = yield from error_answer_in_slices(request, version, error)
            return answer
        built = self.build_error(request, version, error)
        return (yield from built) if isinstance(built, Generator) else built

    def refusal(self, version: int, error: KafkaError) -> R | None:
        """The response with ``error`` to a request that was not decoded; None if it has no place for it."""
        if not has_own_error(self.response, version):
            return None
        return self.error_response(self.request(), version, error)


@dataclass(frozen=True, slots=True)
class HandledApi(Api[S, Q, R]):
    """An API whose requests are decoded and answered here.

    ``ends_with_client``: the handler is cancelled
    when the client has closed its connection, because it may wait for long and holds nothing else up.
    """

    handle: Handler[S, Q, R]
    ends_with_client: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class SlicedApi(Api[S, Q, R]):
    """As :class:`HandledApi`, with a handler that never waits: its work is done in slices."""

    handle: SlicedHandler[S, Q, R]


@dataclass(frozen=True, slots=True)
class ForwardedApi(Api[S, Q, R]):
    """An API of the active controller. Bytes pass through unchanged, unless this node has a part in it."""

    forward: Callable[[S, RequestContext, ReceivedRequest[Q]], Awaitable[Message | bytes]]


@dataclass(frozen=True, slots=True)
class HotApi(Api[S, Q, R]):
    """An API that is parsed and answered by hand; ``make_handler`` is called once for each broker."""

    make_handler: Callable[[S, Turns], HotHandler]
