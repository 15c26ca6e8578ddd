"""Takes the frames of client connections and makes sure that each is answered.

Produce, Fetch and OffsetCommit take the fast path (:class:`HotApi`: parsed by hand, handled at once). A
request for the active controller is forwarded unchanged, in a task of its own. Every other request is decoded
by the table-driven codec and handled at once, too; only one whose handler has to wait goes on in a task. The
connection keeps the answers in order. A frame that cannot be parsed closes the connection with one log line:
the protocol has no answer for it. A bug in a handler costs only its request.

Nothing that a client sends holds the event loop up or takes memory without a bound. A large request is
decoded in slices, few of them at a time, and the next one of its connection waits until it is answered, as
in Kafka. It is refused before objects are made of it if it has more items than the row of its API allows:
with INVALID_REQUEST where the response has a place for it, otherwise the connection is closed. Handlers of
lists yield after each item (:class:`SlicedApi`), and every response is encoded in slices.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic

from pykraft.broker.serving.api import (
    LARGE_BYTES,
    Api,
    ForwardedApi,
    HandledApi,
    HotApi,
    MalformedRequestError,
    ReceivedRequest,
    S,
    SlicedApi,
)
from pykraft.broker.serving.large_requests import HoldUntilOpen, LargeRequests, partitions_of
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.pace import TooManyItemsError
from pykraft.kafka_protocol.codec.schema import CHUNK_BYTES, Body, Message
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.framing import SIZE_BYTES, pack_size_into
from pykraft.kafka_protocol.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    start_response,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

MAX_DECODED_BYTES = 4 << 20
"""The largest request that is decoded into objects. Only Produce and Fetch requests may be larger."""


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
        self._slices = Slices(turns, "large requests")
        self._large = LargeRequests(self._slices, hold_until_open)
        self._hold_until_open = hold_until_open
        self._is_fenced = is_fenced or (lambda: False)
        self._tasks = TaskSupervisor(on_fatal)

    @property
    def served(self) -> dict[int, tuple[str, range]]:
        """Kafka's names of the served APIs, and their versions, by their keys."""
        return {
            key: (api.request.__name__.removesuffix("Request"), range(api.min_version, api.max_version + 1))
            for key, api in self._apis.items()
        }

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
            received = ReceivedRequest(api.request, header.api_version, bytes(frame[body_at:]), api.max_items)
            is_large, is_forwarded = len(frame) > LARGE_BYTES, isinstance(api, ForwardedApi)
            if not (is_large or is_forwarded) and self._is_held(api, connection, received.request):
                return
        except TooManyItemsError as too_many:
            assert api is not None, "the rows tell how many"
            self._refuse(api, connection, header, too_many, slot)
            return
        except ProtocolError as error:
            _close_for(connection, error)
            return
        answer, start = self._answer, self._tasks.begin
        if is_large:
            connection.hold()
            answer = self._answer_large
        if is_forwarded:  # what it waits for has a limit of time, which needs a task
            start = self._tasks.start
        task = start(answer(api, connection, context, header, received, slot), self._names[header.api_key])
        self._turns.spend(steps=1)  # done or not: turns stay short while one client sends thousands
        if task is None:
            return
        if is_forwarded or (isinstance(api, HandledApi) and api.ends_with_client):
            slot.on_abandon = task.cancel  # its client has gone: nobody need execute it

    def _is_held(self, api: Api[S, Any, Any], connection: Connection, request: Message) -> bool:
        """Whether the request and its connection wait for a log that this broker is about to lead."""
        if self._hold_until_open is None or api.partitions is None:
            return False
        return self._hold_until_open(connection, partitions_of(api, request))

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

    def _refuse(
        self,
        api: Api[S, Any, Any],
        connection: Connection,
        header: RequestHeader,
        error: TooManyItemsError,
        slot: ResponseSlot,
    ) -> None:
        """Refuse a request with too many items: an answer to each would be as large."""
        if slot.abandoned:
            return
        version = header.api_version
        response = api.refusal(version, error)
        if response is None:
            connection.close(f"{api.key.name} request refused: {error.message}")
            return
        start = start_response(header.api_key, version, header.correlation_id)
        response.encode_into(version, start)
        slot.complete_started(start)

    async def _answer_large(
        self,
        api: Api[S, Any, Any],
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        received: ReceivedRequest[Any],
        slot: ResponseSlot,
    ) -> None:
        """As :meth:`_answer`, for a large request; its connection is held.

        Few are decoded at a time, and answered at a time if their handlers never wait.
        """
        young_only = self._large.collect_young_only()
        try:
            async with self._large.few:
                if slot.abandoned:
                    return
                await self._slices.finish(received.decode_in_slices())
                if isinstance(api, SlicedApi):
                    await self._large.until_open(lambda: partitions_of(api, received.request))
                    await self._answer(api, connection, context, header, received, slot)
                    await self._slices.finish(received.request.release())
                    return
            await self._large.until_open(lambda: partitions_of(api, received.request))
            await self._answer(api, connection, context, header, received, slot)
            await self._slices.finish(received.request.release())
        except TooManyItemsError as too_many:
            self._refuse(api, connection, header, too_many, slot)
        except ProtocolError as error:
            _close_for(connection, error)
        finally:
            young_only.end()
            connection.release()

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
            frame = Body(start_response(header.api_key, version, header.correlation_id))
            if isinstance(answer, bytes):
                frame.add_encoded(answer)
            else:
                encoding = answer.encode_in_slices(version, frame)
                for _ in encoding:
                    await self._slices.finish(encoding)  # it is long
                    await self._slices.finish(answer.release())
        except TooManyItemsError as too_many:
            self._refuse(api, connection, header, too_many, slot)
            return
        except MalformedRequestError as error:
            _close_for(connection, error)
            return
        except Exception:
            # Not even an error can be answered: a closed connection is better than an answer that never
            # comes.
            logger.exception("no answer to %s version %d", api.key.name, version)
            connection.close("internal error")
            return
        if slot.abandoned:
            return
        if not frame.insertions:
            slot.complete_started(frame)
            return
        size_bytes = frame.size_bytes
        pack_size_into(frame, 0, size_bytes - SIZE_BYTES)
        if size_bytes <= CHUNK_BYTES:
            slot.complete_framed((frame.to_bytes(),))
        else:
            slot.complete_framed(await self._slices.result(frame.in_chunks()))

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
        answer: Message = await self._slices.result(
            api.error_in_slices(received.request, received.version, refusal)
        )
        return answer

    def _serve(
        self, api: Api[S, Any, Any], context: RequestContext, received: ReceivedRequest[Any]
    ) -> Awaitable[Message | bytes]:
        if api.refused_when_fenced is not None and self._is_fenced():
            raise KafkaError(api.refused_when_fenced, "this broker is fenced")
        if isinstance(api, ForwardedApi):
            return api.forward(self._services, context, received)
        if isinstance(api, SlicedApi):
            return self._slices.result(
                api.handle(self._services, context, received.request, received.version)
            )
        assert isinstance(api, HandledApi), f"{api.key.name} is answered by its hot handler"
        answer: Awaitable[Message | bytes] = api.handle(
            self._services, context, received.request, received.version
        )
        return answer

    async def close(self) -> None:
        """Drop the requests that are still being handled."""
        await self._tasks.close()


def _close_for(connection: Connection, error: ProtocolError) -> None:
    connection.close(f"malformed request: {error.message}")
