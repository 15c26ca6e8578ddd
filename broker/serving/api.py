"""What an API is: the versions it answers, its handler, and how it says that a whole request failed.

The table in :mod:`pykraft.broker.apis` is the one list of what is served: ApiVersions is computed from it, so
a version is advertised exactly when it is answered. Requests are handed to it, and errors that escape a
handler are answered, in :mod:`pykraft.broker.serving.request_server`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.request_context import RequestContext

S = TypeVar("S", contravariant=True)
"""What a handler may reach: the parts of a broker, of a controller, or what both have."""

Message = Any
"""A request or response of :mod:`pykraft.kafka_protocol.messages`."""

Handler = Callable[[S, RequestContext, Message, int], Awaitable[Message]]
"""``(services, context, request, version) → response``; raises :class:`KafkaError` for the whole request."""

ErrorResponse = Callable[[Message, int, KafkaError], Message]
"""``(request, version, error) → response`` saying ``error`` for all that was asked."""


@dataclass(frozen=True, slots=True)
class Api(Generic[S]):
    """One served API: the versions it answers and how.

    ``partitions`` of a request are those that this broker has to lead to answer it, by topic name and index:
    while it is about to, the request waits.

    ``advertised_min`` differs from ``min_version`` only for Produce: librdkafka takes the absence of version
    0 as the absence of compression codecs (KAFKA-18659), though nobody sends it.
    """

    key: ApiKey
    min_version: int
    max_version: int
    handle: Handler[S]
    error_response: ErrorResponse
    advertised_min: int | None = None
    partitions: Callable[[Message], Iterable[tuple[str, int]]] | None = None

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version
