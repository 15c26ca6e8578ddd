"""Takes the frames of client connections and sees to it that each is answered.

Produce and Fetch take the short way (:class:`HotHandler`: parsed and answered by hand, on the spot). Every
other request is decoded by the table-driven codec and handled in a task of its own; the connection keeps the
answers in order. What cannot be understood at all closes the connection with one log line: the protocol has
no answer for it. A handler that fails by a bug costs its own request only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol

from pykraft.broker.serving.api import Api, Message, S
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader, decode_request_header, encode_response_header
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

MAX_DECODED_BYTES = 2 << 20
"""The largest request that is turned into objects: the smallest structs grow some sixty-fold when they are.
Only Produce carries more, and it is never turned into objects."""


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


HoldUntilOpen = Callable[[Connection, Iterable[tuple[str | None, Uuid | None, int]]], bool]
"""Whether a connection, with its present frame, waits for one of these logs, by topic name or id and index
(:meth:`~pykraft.broker.replicas.replica_manager.ReplicaManager.hold_until_open`)."""


class RequestServer(Generic[S]):
    """The :class:`~pykraft.kafka_protocol.connection.RequestHandler` of a node's listeners for clients.

    ``hold_until_open`` is asked before a request whose :attr:`Api.partitions` the node has to lead; None
    where it leads none.
    """

    def __init__(
        self,
        services: S,
        apis: Iterable[Api[S]],
        hot: Mapping[ApiKey, HotHandler],
        turns: Turns,
        hold_until_open: HoldUntilOpen | None = None,
    ) -> None:
        self._services = services
        self._apis = {int(api.key): api for api in apis}
        self._hot = {int(key): handler for key, handler in hot.items()}
        self._turns = turns
        self._hold_until_open = hold_until_open
        self._tasks: set[asyncio.Task[None]] = set()

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        try:
            header, body_at = decode_request_header(frame)
            api = self._apis.get(header.api_key)
            if api is None:
                connection.close(f"request for unknown API {header.api_key}")
                return
            if not api.serves(header.api_version):
                self._refuse_version(api, connection, header, slot)
                return
            context = self._context(connection, header)
            hot = self._hot.get(header.api_key)
            if hot is not None:
                hot.handle(connection, context, header, frame[body_at:], slot)
                return
            if len(frame) > MAX_DECODED_BYTES:
                connection.close(f"{api.key.name} request of {len(frame)} bytes")
                return
            # Bytes behind the request are let be, as Kafka does: librdkafka leaves some after Metadata v13.
            body = bytes(frame[body_at:])
            request, _ = request_class(api.key).decode_from(body, 0, header.api_version)
        except ProtocolError as error:
            connection.close(f"malformed request: {error.message}")
            return
        if self._is_held(api, connection, request):
            return
        task = asyncio.get_running_loop().create_task(
            self._answer(api, connection, context, header, request, slot)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._turns.spend(steps=1)

    def _is_held(self, api: Api[S], connection: Connection, request: Message) -> bool:
        """Whether the request waits, with its connection, for a log that this broker is about to lead."""
        if api.partitions is None or self._hold_until_open is None:
            return False
        return self._hold_until_open(
            connection, ((name, None, index) for name, index in api.partitions(request))
        )

    def _context(self, connection: Connection, header: RequestHeader) -> RequestContext:
        """The caller of this request; remembered, since a client rarely changes its id."""
        known = connection.state
        client_id = header.client_id or ""
        if isinstance(known, RequestContext) and known.client_id == client_id:
            return known
        context = RequestContext(
            listener=connection.listener_name,
            client_id=client_id,
            client_address=connection.peer_address,
            connection_id=connection.connection_id,
        )
        connection.state = context
        return context

    def _refuse_version(
        self, api: Api[S], connection: Connection, header: RequestHeader, slot: ResponseSlot
    ) -> None:
        if api.key is not ApiKey.API_VERSIONS:
            connection.close(f"{api.key.name} version {header.api_version} is not served")
            return
        # The one request that is answered whatever its version, in the oldest encoding, so that a client
        # newer than the broker can find a version both know (KIP-511).
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"ApiVersions version {header.api_version}")
        response = api.error_response(None, 0, error)
        slot.complete([encode_response_header(api.key, 0, header.correlation_id), response.encode(0)])

    async def _answer(
        self,
        api: Api[S],
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        request: Message,
        slot: ResponseSlot,
    ) -> None:
        version = header.api_version
        try:
            body = (await self._respond(api, context, request, version)).encode(version)
        except Exception:
            # Not even an error can be said: a closed connection is better than an answer that never comes.
            logger.exception("no answer to %s version %d", api.key.name, version)
            connection.close("internal error")
            return
        if not slot.abandoned:
            slot.complete([encode_response_header(api.key, version, header.correlation_id), body])

    async def _respond(self, api: Api[S], context: RequestContext, request: Message, version: int) -> Message:
        try:
            return await api.handle(self._services, context, request, version)
        except KafkaError as error:
            return api.error_response(request, version, error)
        except Exception:
            logger.exception("%s failed", api.key.name)
            bug = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "internal error")
            return api.error_response(request, version, bug)

    async def close(self) -> None:
        """Drop the requests that are still being handled."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
