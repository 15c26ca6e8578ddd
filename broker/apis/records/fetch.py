"""Fetch, for consumers and followers alike.

Hot path: requests are parsed by hand; answers are header bytes and file ranges. A consumer reads below the
high watermark, or below the last stable offset if it reads committed transactions only; then it also gets the
aborted ones. A follower reads up to the log end, and its request is its acknowledgement. A fetch waits until
``min_bytes`` are there or ``max_wait_ms`` have passed; an error or a diverging epoch is answered at once. The
first batch is returned whole; all others obey the limits of request and partition. In a fetch session
(KIP-227) requests and answers name only what has changed. From version 11 on a follower serves consumers up
to its own high watermark (KIP-392); with ``replica.selector.class`` the leader names the replica in the
consumer's rack instead of sending records. Past its lease a broker still reads what it has, but does not tell
consumers that an offset is out of range or was truncated, since a newer leader may have it:
NOT_LEADER_OR_FOLLOWER. A request for more than a thousand partitions is answered in slices
(:mod:`.large_fetches`): without a session it waits for a second at most, and an incremental one ends its
session. (Kafka does neither.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pykraft.broker.apis.records.fetch_exchange import LOOKED_AT_ONCE, FetchExchange, FetchParts
from pykraft.broker.apis.records.fetch_reader import FetchReader
from pykraft.broker.apis.records.large_fetches import LARGE_BYTES, LARGE_PARTITIONS, LargeFetches
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_sessions.session import FetchSession
from pykraft.broker.serving.large_requests import Asked
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.fetch_requests import (
    TOPIC_IDS_FROM,
    FetchRequestView,
    FetchTopic,
    parse_fetch_request,
)
from pykraft.kafka_protocol.hot.fetch_responses import build_fetch_response
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.turns import Turns


class FetchHandler:
    """Answers Fetch; one per broker."""

    def __init__(self, services: BrokerServices, turns: Turns) -> None:
        self._replicas = services.replicas
        self._clock = services.clock
        self._parts = FetchParts(services, FetchReader(services), turns)
        self._large = LargeFetches(services, self._parts, turns)

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Read the requested partitions; complete ``slot`` now, or when there is enough or time is up.

        A consumer's connection is held while this broker is about to lead a partition that it asks for.
        """
        if len(body) > LARGE_BYTES:
            self._large.begin(connection, header, body, slot)
            return
        request = parse_fetch_request(body, 0, header.api_version)
        if sum(len(topic.partitions) for topic in request.topics) > LARGE_PARTITIONS:
            self._large.begin(connection, header, body, slot)
            return
        is_replica = request.replica_id >= 0
        if is_replica:
            # A follower that sends another fetch while one waits has more partitions to fetch: answer the
            # first.
            waiting = self._parts.parked_followers.pop(connection.connection_id, None)
            if waiting is not None:
                waiting.expire()
        try:
            session = self._parts.sessions.find(request, uses_topic_ids=header.api_version >= TOPIC_IDS_FROM)
            # A follower is not held: it gets an error for such a partition and soon asks again. Its other
            # partitions must not wait.
            if not (is_replica or self._replicas.is_reconciled) and self._is_held(
                connection, request, session
            ):
                return
            now_ms = self._clock.monotonic_ms()
            if session is not None:
                if session.waiting is not None:
                    session.waiting.supersede(connection)
                if not self._parts.sessions.update(session, request, now_ms):
                    session = None
        except KafkaError as error:
            slot.complete_framed(
                build_fetch_response(
                    header.api_version, header.correlation_id, [], error_code=int(error.code)
                )
            )
            return
        exchange = FetchExchange(self._parts, connection, header, request, slot, session, now_ms)
        self._parts.wakeups.begin_request()
        try:
            exchange.start()
        finally:
            self._parts.wakeups.end_request()

    def _is_held(
        self, connection: Connection, request: FetchRequestView, session: FetchSession | None
    ) -> bool:
        topics = request.topics if session is None else [*request.topics, *session.due_topics(LOOKED_AT_ONCE)]
        return self._replicas.hold_until_open(connection, _named(topics))


def _named(topics: Iterable[FetchTopic]) -> Iterator[Asked]:
    for topic in topics:
        for asked in topic.partitions:
            yield topic.name, topic.topic_id, asked.partition
