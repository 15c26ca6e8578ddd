"""Takes the frames of client connections and makes sure that each is answered.

Produce, Fetch and OffsetCommit take the fast path (:class:`HotApi`: parsed by hand, handled at once). A
request for the active controller is forwarded unchanged, in a task of its own. Every other request is decoded
by the table-driven codec and handled at once, too; only one whose handler has to wait goes on in a task. The
connection keeps the answers in order. A frame that cannot be parsed closes the connection with one log line:
the protocol has no answer for it. A bug in a handler costs only its request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic

from pykraft.broker.serving.api import (
    Api,
    ForwardedApi,
    HandledApi,
    HotApi,
    MalformedRequestError,
    ReceivedRequest,
    S,
)
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    start_response,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

MAX_DECODED_BYTES = 2 << 20
"""The largest request that is decoded into objects: the smallest structs grow about sixty-fold then. Only
Produce requests may be larger, and they are never decoded into objects.
"""


HoldUntilOpen = Callable[[Connection, Iterable[tuple[str | None, Uuid | None, int]]], bool]
"""Holds a connection with its current frame if it has to wait for one of these logs, given by topic name or
id and index; returns whether it does
(:meth:`~pykraft.broker.replicas.replica_manager.ReplicaManager.hold_until_open`).
"""


class RequestServer(Generic[S]):
    """The :class:`~pykraft.kafka_protocol.connection.RequestHandler` of a node's listeners for clients.

    ``hold_until_open`` is called before a request whose :attr:`HandledApi.partitions` the node must lead, and
    ``is_fenced`` before one that a fenced broker refuses; both are None on a node that is not a broker.
    """

    def __init__(
        self,
        services: S,
        apis: Iterable[Api[S, Any, Any]],
        turns: Turns,
        on_fatal: FatalHandler,
        hold_until_open: HoldUntilOpen | None = None,
        is_fenced: Callable[[], bool] | None = None,
    ) -> None:
        self._services = services
        self._apis = {int(api.key): api for api in apis}
        self._names = {key: api.key.name for key, api in self._apis.items()}
        self._hot = {
            key: api.make_handler(services, turns)
            for key, api in self._apis.items()
            if isinstance(api, HotApi)
        }
        self._turns = turns
        self._hold_until_open = hold_until_open
        self._is_fenced = is_fenced or (lambda: False)
        self._tasks = TaskSupervisor(on_fatal)

    @property
    def names(self) -> dict[int, str]:
        """Kafka's names of the served APIs by their keys."""
        return {key: api.request.__name__.removesuffix("Request") for key, api in self._apis.items()}

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
            received = ReceivedRequest(api.request, header.api_version, bytes(frame[body_at:]))
            if isinstance(api, HandledApi) and self._is_held(api, connection, received.request):
                return
        except ProtocolError as error:
            _close_for(connection, error)
            return
        answering = self._answer(api, connection, context, header, received, slot)
        start = self._tasks.start if isinstance(api, ForwardedApi) else self._tasks.begin
        task = start(answering, self._names[header.api_key])
        self._turns.spend(steps=1)  # done or not: turns stay short while one client sends thousands
        if task is None:
            return
        if isinstance(api, ForwardedApi) or (isinstance(api, HandledApi) and api.ends_with_client):
            slot.on_abandon = task.cancel  # its client has gone: nobody need execute it

    def _is_held(self, api: HandledApi[S, Any, Any], connection: Connection, request: Message) -> bool:
        """Whether the request and its connection wait for a log that this broker is about to lead."""
        if api.partitions is None or self._hold_until_open is None:
            return False
        return self._hold_until_open(
            connection, ((name, None, index) for name, index in api.partitions(request))
        )

    def _context(self, connection: Connection, header: RequestHeader) -> RequestContext:
        """The caller of this request; kept with the connection, since a client rarely changes its id."""
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
        self, api: Api[S, Any, Any], connection: Connection, header: RequestHeader, slot: ResponseSlot
    ) -> None:
        if api.key is not ApiKey.API_VERSIONS:
            connection.close(f"{api.key.name} version {header.api_version} is not served")
            return
        # ApiVersions is answered whatever its version, in the oldest encoding, so that a client newer than
        # the broker can find a version both know (KIP-511).
        error = KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"ApiVersions version {header.api_version} is not served"
        )
        response = api.error_response(api.request(), 0, error)
        slot.complete([encode_response_header(api.key, 0, header.correlation_id), response.encode(0)])

    async def _answer(
        self,
        api: Api[S, Any, Any],
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        received: ReceivedRequest[Any],
        slot: ResponseSlot,
    ) -> None:
        version = header.api_version
        try:
            answer = await self._respond(api, context, received)
            response = start_response(header.api_key, version, header.correlation_id)
            if not isinstance(answer, bytes):
                answer.encode_into(version, response)
        except MalformedRequestError as error:
            _close_for(connection, error)
            return
        except Exception:
            # Not even an error can be answered: a closed connection is better than an answer that never
            # comes.
            logger.exception("no answer to %s version %d", api.key.name, version)
            connection.close("internal error")
            return
        if not slot.abandoned:
            slot.complete_started(response, answer if isinstance(answer, bytes) else b"")

    async def _respond(
        self, api: Api[S, Any, Any], context: RequestContext, received: ReceivedRequest[Any]
    ) -> Message | bytes:
        try:
            return await self._serve(api, context, received)
        except KafkaError as error:
            refusal = error
        except Exception:
            logger.exception("%s failed", api.key.name)
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "internal error")
        answer: Message = api.error_response(received.request, received.version, refusal)
        return answer

    async def _serve(
        self, api: Api[S, Any, Any], context: RequestContext, received: ReceivedRequest[Any]
    ) -> Message | bytes:
        if api.refused_when_fenced is not None and self._is_fenced():
            raise KafkaError(api.refused_when_fenced, "this broker is fenced")
        if isinstance(api, ForwardedApi):
            return await api.forward(self._services, context, received)
        assert isinstance(api, HandledApi), f"{api.key.name} is answered by its hot handler"
        answer: Message | bytes = await api.handle(
            self._services, context, received.request, received.version
        )
        return answer

    async def close(self) -> None:
        """Drop the requests that are still being handled."""
        await self._tasks.close()


def _close_for(connection: Connection, error: ProtocolError) -> None:
    connection.close(f"malformed request: {error.message}")
