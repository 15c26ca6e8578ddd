"""OffsetCommit.

Hot path: requests are parsed by hand and decided at once, without a task; the coordinator answers them
together with all others whose records are in the same batch. A client that commits the same partition again
and again is recognized, and its request not parsed. A large request is parsed, looked up and
answered over several turns, while its connection is held, so that no later request of the client overtakes
it; few at a time, since they take memory. Only past the broker's lease a commit may have to wait before it is
decided, in a task of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator

from pykraft.broker.apis.services import BrokerServices
from pykraft.group_coordinator.state.result import CommitCodes
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.offset_commit import (
    CommitTopic,
    UsualCommit,
    build_in_slices,
    parse_in_slices,
    parse_offset_commit,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

MAX_COMMIT_BYTES = 2 << 20
"""The largest request that is read: its records would not fit into one batch with the default limits."""


LARGE_BYTES = 8 << 10
"""The size from which on a request may take longer than its share of a turn: some 250 topics."""

MOST_LARGE = 4
"""How many large requests are worked on at a time. The parts of one may take 10 MB."""

_COPIED_BYTES = 256 << 10
"""A request up to this size is copied rather than kept in the buffer that it was received in."""

_LANE = "large commits"


class OffsetCommitHandler:
    """Answers OffsetCommit; one per broker."""

    def __init__(self, services: BrokerServices, turns: Turns) -> None:
        self._services = services
        self._turns = turns
        self._slices = Slices(turns, _LANE)
        self._large = 0
        """Large requests that are being worked on."""
        self._waiting: deque[tuple[Connection, Iterator[None]]] = deque()

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        if len(body) > MAX_COMMIT_BYTES:
            raise ProtocolError(f"an OffsetCommit request of {len(body)} bytes")
        if len(body) > LARGE_BYTES:
            self._begin_large(connection, context, header, body, slot)
            return
        version = header.api_version
        usual = connection.usual_commit
        request = None if usual is None else usual.recognize(body, version)
        if request is None:
            request = parse_offset_commit(body, 0, version)
            usual = UsualCommit(body, version, request) if request.fields_at >= 0 else None
            connection.usual_commit = usual
        commit = _Commit(connection, header, request.topics, slot, usual=usual)
        services = self._services
        try:
            self._require_unfenced()
            if not services.groups.commit_offsets(context, request, version, commit):
                self._start(commit, lambda: services.groups.offset_commit(context, request, version))
        except Exception as error:
            commit.set_exception(error)

    def _require_unfenced(self) -> None:
        if self._services.replicas.lease.is_fenced:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is fenced")

    def _start(self, commit: _Commit, decide: Callable[[], Awaitable[CommitCodes]]) -> None:
        self._services.tasks.start(self._commit_later(commit, decide), "commit")
        self._turns.spend(steps=1)

    async def _commit_later(self, commit: _Commit, decide: Callable[[], Awaitable[CommitCodes]]) -> None:
        try:
            commit.set_result(await decide())
        except Exception as error:
            commit.set_exception(error)

    def _begin_large(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        connection.hold()
        is_kept = len(body) > _COPIED_BYTES and connection.keep_frame()
        frame = body if is_kept else memoryview(bytes(body))
        work = self._commit_large(connection, context, header, frame, slot)
        if self._large < MOST_LARGE:
            self._large += 1
            self._run_large(connection, work)
        else:
            self._waiting.append((connection, work))

    def _run_large(self, connection: Connection, work: Iterator[None]) -> None:
        def on_error(error: Exception) -> None:
            if isinstance(error, ProtocolError):
                connection.close(f"malformed request: {error}")
            else:
                logger.error("OffsetCommit failed", exc_info=error)
                connection.close("internal error")

        self._slices.run(self._with_next(connection, work), on_error)

    def _with_next(self, connection: Connection, work: Iterator[None]) -> Iterator[None]:
        """``work``, after which the connection goes on, and the next that waits is begun."""
        try:
            yield from work
        finally:
            connection.release()
            while self._waiting and self._waiting[0][0].closed:
                self._waiting.popleft()
            if self._waiting:
                self._run_large(*self._waiting.popleft())
            else:
                self._large -= 1

    def _commit_large(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        frame: memoryview,
        slot: ResponseSlot,
    ) -> Iterator[None]:
        version = header.api_version
        request = yield from parse_in_slices(frame, 0, version)
        commit = _Commit(connection, header, request.topics, slot, self._slices)
        try:
            self._require_unfenced()
            later = yield from self._services.groups.commit_in_slices(context, request, version, commit)
            if later is not None:
                self._start(commit, later)
        except Exception as error:
            commit.set_exception(error)


class _Commit:
    """A request that waits for its answer (:class:`~pykraft.coordinator.answers.Waiter`)."""

    __slots__ = ("_connection", "_correlation_id", "_slices", "_slot", "_topics", "_usual", "_version")

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        topics: list[CommitTopic],
        slot: ResponseSlot,
        slices: Slices | None = None,
        usual: UsualCommit | None = None,
    ) -> None:
        """``slices``: the answer is large, and built in slices. ``usual``: its client repeats this commit."""
        self._connection = connection
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._topics = topics
        self._slot = slot
        self._slices = slices
        self._usual = usual

    def done(self) -> bool:
        return self._slot.done or self._slot.abandoned

    def set_result(self, codes: object, /) -> None:
        assert isinstance(codes, list)
        self._answer(codes)

    def set_exception(self, exception: BaseException, /) -> None:
        """The answer to an error of the client, or to a bug, which costs only this request."""
        if isinstance(exception, KafkaError):
            self._answer(int(exception.code))
        else:
            logger.error("OffsetCommit failed", exc_info=exception)
            self._answer(int(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _answer(self, codes: CommitCodes) -> None:
        if self.done():
            return
        work = self._answer_in_slices(codes)
        if self._slices is not None:
            self._slices.run(work, self._fail)
            return
        try:
            at_once(work)
        except Exception as error:
            self._fail(error)

    def _answer_in_slices(self, codes: CommitCodes) -> Generator[None, None, None]:
        if self._usual is not None and codes == [0]:
            response = self._usual.accept(self._correlation_id)
        else:
            response = yield from build_in_slices(self._version, self._correlation_id, self._topics, codes)
        if not self.done():
            self._slot.complete_framed((response,))

    def _fail(self, error: Exception) -> None:
        """A bug costs only this connection: others wait for the same batch."""
        logger.error("no answer to OffsetCommit version %d", self._version, exc_info=error)
        self._connection.close("internal error")
