"""Fetch requests that name very many partitions: parsed, read and answered over several turns.

The connection is held meanwhile. Each partition is looked at at one moment, as in smaller requests, and some
hundred of them in one turn. A full request is answered as soon as all have been looked at, with the session
that it asks for, whose later requests name what has changed. Only one without a session that finds nothing
waits, as long as it says but at most :data:`LONGEST_WAIT_MS`, and looks again. An incremental request has no
reason to name so many: its session ends, and its client begins another.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence

from pykraft.broker.apis.records.fetch_exchange import LOOKED_AT_ONCE, FetchParts
from pykraft.broker.apis.records.fetch_reader import Found
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_sessions.session import INITIAL_EPOCH, NO_SESSION_ID, FetchSession, Results
from pykraft.broker.serving.large_requests import Asked, LargeRequests
from pykraft.kafka_protocol.codec.pace import TooManyItemsError, let_go
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.fetch_requests import (
    TOPIC_IDS_FROM,
    FetchRequestView,
    FetchTopic,
    parse_in_slices,
)
from pykraft.kafka_protocol.hot.fetch_responses import (
    OWN_ERROR_FROM,
    build_fetch_response,
    build_in_slices,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.runtime.network.streams import Chunk
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

LARGE_BYTES = 32 << 10
LARGE_PARTITIONS = 1_000
"""What one turn has time for, with ten microseconds for each. Up to version 11 they take so few bytes that
the size of a request alone does not tell.
"""

LONGEST_WAIT_MS = 1000
"""A request that waits takes memory, and the end of its held connection would not be noticed."""

_COPIED_BYTES = 256 << 10
"""A request up to this size is copied rather than kept in the buffer that it was received in."""


class LargeFetches:
    """Those of one broker."""

    def __init__(self, services: BrokerServices, parts: FetchParts, turns: Turns) -> None:
        self._services = services
        self._parts = parts
        self._turns = turns
        self._slices = Slices(turns, "large fetch requests")
        self._large = LargeRequests(self._slices, services.replicas.hold_until_open)

    def begin(
        self, connection: Connection, header: RequestHeader, body: memoryview, slot: ResponseSlot
    ) -> None:
        """Answer a request in a task of its own."""
        connection.hold()
        is_kept = len(body) > _COPIED_BYTES and connection.keep_frame()
        frame = body if is_kept else memoryview(bytes(body))
        task = self._services.tasks.start(self._answer(connection, header, frame, slot), "large-fetch")
        slot.on_abandon = task.cancel
        self._turns.spend(steps=1)

    async def _answer(
        self, connection: Connection, header: RequestHeader, frame: memoryview, slot: ResponseSlot
    ) -> None:
        young_only = self._large.collect_young_only()
        try:
            chunks = await self._fetch(connection, header, frame)
        except ProtocolError as error:
            is_too_large = isinstance(error, TooManyItemsError)
            if not is_too_large or header.api_version < OWN_ERROR_FROM:
                what = "Fetch request refused" if is_too_large else "malformed request"
                connection.close(f"{what}: {error.message}")
                return
            chunks = _refusal(header, error)
        except KafkaError as refused:
            chunks = _refusal(header, refused)
        except AssertionError:
            raise
        except Exception:
            logger.exception("Fetch failed")
            connection.close("internal error")
            return
        finally:
            young_only.end()
            connection.release()
        if not slot.abandoned:
            slot.complete_framed(chunks)

    async def _fetch(self, connection: Connection, header: RequestHeader, frame: memoryview) -> list[Chunk]:
        parts, version = self._parts, header.api_version
        async with self._large.few:
            request = await self._slices.result(parse_in_slices(frame, 0, version))
            if request.replica_id >= 0:
                waiting = parts.parked_followers.pop(connection.connection_id, None)
                if waiting is not None:
                    waiting.expire()
            else:
                await self._large.until_open(lambda: _named(request))
            session = parts.sessions.find(request, uses_topic_ids=version >= TOPIC_IDS_FROM)
            if session is not None:
                parts.sessions.end(session)
                raise KafkaError(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"fetch session {session.id} names too many partitions at once",
                )
            fetch = _FullFetch(parts, request, version)
            try:
                found = await self._slices.result(fetch.look())
                if fetch.has_session or fetch.suffices(found):
                    return await self._slices.result(fetch.build(connection, header, found))
            finally:
                fetch.drop_draft()
        del found
        await self._services.tasks.sleep(min(request.max_wait_ms, LONGEST_WAIT_MS))
        async with self._large.few:
            found = await self._slices.result(fetch.look())
            return await self._slices.result(fetch.build(connection, header, found))


class _FullFetch:
    """One request that names all of its partitions."""

    def __init__(self, parts: FetchParts, request: FetchRequestView, version: int) -> None:
        self._parts = parts
        self._request = request
        self._now_ms = parts.clock.monotonic_ms()
        self._acknowledges = request.replica_id >= 0
        self._draft: FetchSession | None = None
        """The session that it asks for, as long as it is not kept."""
        self.has_session = request.session_epoch == INITIAL_EPOCH and parts.may_have_session(request)
        if self.has_session:
            self._draft = parts.sessions.draft(
                request, uses_topic_ids=version >= TOPIC_IDS_FROM, now_ms=self._now_ms
            )

    def look(self) -> Generator[None, None, Found]:
        """At every partition; acknowledges the first time."""
        parts, request = self._parts, self._request
        all_found: Results = []
        size_bytes, is_final = 0, False
        for some in _in_pieces(request.topics):
            parts.wakeups.begin_request()
            try:
                if self._acknowledges:
                    parts.acknowledge(request, some, self._now_ms)
                found = parts.reader.read(request, some, size_bytes)
                if self._draft is not None:
                    self._draft.begin(some, found.results, parts.watch)
            finally:
                parts.wakeups.end_request()
            _extend(all_found, found.results)
            size_bytes, is_final = found.size_bytes, is_final or found.is_final
            yield
        self._acknowledges = False
        return Found(all_found, size_bytes, is_final)

    def suffices(self, found: Found) -> bool:
        request = self._request
        is_waiting = bool(request.topics) and request.max_wait_ms > 0
        return not is_waiting or found.is_final or found.size_bytes >= request.min_bytes

    def build(
        self, connection: Connection, header: RequestHeader, found: Found
    ) -> Generator[None, None, list[Chunk]]:
        """The answer; the client counts as told."""
        parts, session_id = self._parts, NO_SESSION_ID
        draft, self._draft = self._draft, None
        if draft is not None and parts.sessions.keep(draft, self._now_ms):
            session_id = draft.id
        for topic, of_topic in found.results:
            parts.reader.count_sent([(topic, of_topic)], is_replica=self._request.replica_id >= 0)
            yield
        chunks = yield from build_in_slices(
            header.api_version,
            header.correlation_id,
            found.results,
            session_id=session_id,
            endpoints=parts.hinted(connection, found.results),
        )
        for _, of_topic in found.results:
            yield from let_go(of_topic)
        for asked in self._request.topics:
            yield from let_go(asked.partitions)
        return chunks

    def drop_draft(self) -> None:
        """The client has gone, or the broker has a bug: nobody will use a session that is not kept."""
        if self._draft is not None:
            self._parts.sessions.close(self._draft)


def _named(request: FetchRequestView) -> Iterable[Asked]:
    for topic in request.topics:
        for asked in topic.partitions:
            yield topic.name, topic.topic_id, asked.partition


def _in_pieces(topics: Sequence[FetchTopic]) -> Iterable[list[FetchTopic]]:
    """The topics in order, with some partitions at a time; a topic without partitions counts as one."""
    piece: list[FetchTopic] = []
    room = LOOKED_AT_ONCE
    for topic in topics:
        start = 0
        while True:
            some = topic.partitions[start : start + room]
            piece.append(FetchTopic(topic.name, topic.topic_id, some))
            start += len(some)
            room -= max(1, len(some))
            if room <= 0:
                yield piece
                piece, room = [], LOOKED_AT_ONCE
            if start >= len(topic.partitions):
                break
    if piece:
        yield piece


def _extend(found: Results, more: Results) -> None:
    """Put the results of a topic together that was looked at in several pieces."""
    if found and more and found[-1][0] == more[0][0]:
        found[-1][1].extend(more[0][1])
        more = more[1:]
    found += more


def _refusal(header: RequestHeader, error: KafkaError) -> list[Chunk]:
    return build_fetch_response(header.api_version, header.correlation_id, [], error_code=int(error.code))
