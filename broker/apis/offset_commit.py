"""OffsetCommit.

Hot path: requests are parsed by hand and decided at once, without a task; the coordinator answers them
together with all others whose records are in the same batch. Only past the broker's lease a commit may have
to wait before it is decided, in a task of its own.
"""

from __future__ import annotations

import logging

from pykraft.broker.apis.services import BrokerServices
from pykraft.group_coordinator.result import CommitCodes
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.offset_commit_fast import (
    CommitRequestView,
    CommitTopic,
    build_offset_commit_response,
    parse_offset_commit,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

MAX_COMMIT_BYTES = 2 << 20
"""The largest request that is read: its records would not fit into one batch with the default limits."""


class OffsetCommitHandler:
    """Answers OffsetCommit; one per broker."""

    def __init__(self, services: BrokerServices, turns: Turns) -> None:
        self._services = services
        self._turns = turns

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
        version = header.api_version
        request = parse_offset_commit(body, 0, version)
        commit = _Commit(connection, header, request.topics, slot)
        services = self._services
        try:
            if services.replicas.lease.is_fenced:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is fenced")
            if not services.groups.commit_offsets(context, request, version, commit):
                services.tasks.start(self._commit_later(context, request, version, commit), "commit")
                self._turns.spend(steps=1)
        except Exception as error:
            commit.set_exception(error)

    async def _commit_later(
        self, context: RequestContext, request: CommitRequestView, version: int, commit: _Commit
    ) -> None:
        try:
            commit.set_result(await self._services.groups.offset_commit(context, request, version))
        except Exception as error:
            commit.set_exception(error)


class _Commit:
    """A request that waits for its answer (:class:`~pykraft.group_coordinator.answers.Waiter`)."""

    __slots__ = ("_connection", "_correlation_id", "_slot", "_topics", "_version")

    def __init__(
        self, connection: Connection, header: RequestHeader, topics: list[CommitTopic], slot: ResponseSlot
    ) -> None:
        self._connection = connection
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._topics = topics
        self._slot = slot

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
        try:
            response = build_offset_commit_response(self._version, self._correlation_id, self._topics, codes)
        except Exception:
            # A bug costs only this connection: others wait for the same batch.
            logger.exception("no answer to OffsetCommit version %d", self._version)
            self._connection.close("internal error")
        else:
            self._slot.complete_framed([response])


def make_handler(services: BrokerServices, turns: Turns) -> OffsetCommitHandler:
    """The handler of one broker."""
    return OffsetCommitHandler(services, turns)
