"""Faults on demand: requests of clients that are refused, late, lost, or whose answers are lost.

A fault is given for an API, and may be limited to a node, a client id or a number of requests. It stands
before the broker's own handler, so that everything behind it is the broker as it is. Of several faults that
fit a request, the oldest takes it.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from pykraft.broker.apis.table import make_apis
from pykraft.broker.serving.api import Api
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, RequestHandler, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader, decode_request_header, start_response
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.network.streams import Chunk


class Effect(Enum):
    REFUSE = "refuse"
    DELAY = "delay"
    DROP = "drop"
    LOSE_ANSWER = "lose answer"


@dataclass(eq=False)
class RequestFault:
    """In force from its making until :meth:`end`, or until it has met ``times`` requests. As a context
    manager it ends with the block. ``met`` is how many it has met."""

    effect: Effect
    api: ApiKey
    node: int | None = None
    client_id: str | None = None
    times: int | None = None
    error: ErrorCode = ErrorCode.NONE
    delay_s: float = 0.0
    met: int = 0
    _is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def end(self) -> None:
        self._is_over = True

    @property
    def in_force(self) -> bool:
        return not self._is_over and (self.times is None or self.met < self.times)

    def meets(self, node_id: int, header: RequestHeader) -> bool:
        """Whether it takes this request, which then counts."""
        if (
            header.api_key != self.api
            or self.node not in (None, node_id)
            or self.client_id not in (None, header.client_id)
        ):
            return False
        with self._lock:  # nodes have threads of their own
            if not self.in_force:
                return False
            self.met += 1
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class RequestFaults:
    """The faults of a cluster. May be changed from any thread."""

    def __init__(self) -> None:
        self._faults: tuple[RequestFault, ...] = ()
        self._handlers: dict[int, FaultyHandler] = {}

    def add(self, fault: RequestFault) -> RequestFault:
        self._faults = (*(one for one in self._faults if one.in_force), fault)
        return fault

    def clear(self) -> None:
        for fault in self._faults:
            fault.end()
        self._faults = ()

    def find(self, node_id: int, header: RequestHeader) -> RequestFault | None:
        return next((fault for fault in self._faults if fault.meets(node_id, header)), None)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def around(self, node_id: int) -> Callable[[RequestHandler], RequestHandler]:
        """Puts the faults before a node's handler. Called on the node's loop."""

        def wrap(handler: RequestHandler) -> RequestHandler:
            self._handlers[node_id] = FaultyHandler(node_id, handler, self)
            return self._handlers[node_id]

        return wrap

    def drop_connections(self, node_id: int) -> None:
        """Close every connection to a node that has sent a request."""
        if node_id in self._handlers:
            self._handlers[node_id].drop_connections()


class FaultyHandler:
    """A :class:`RequestHandler` before another one."""

    def __init__(self, node_id: int, handler: RequestHandler, faults: RequestFaults) -> None:
        self._node_id = node_id
        self._handler = handler
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._connections: set[Connection] = set()
        self._met: dict[Connection, RequestFault] = {}
        """What has met the newest request of a connection. It may come again: after a delay, or when the
        broker has held it."""

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        if connection not in self._connections:
            self._connections = {connection, *(one for one in self._connections if not one.closed)}
            self._met = {one: fault for one, fault in self._met.items() if not one.closed}
        is_new = connection.held_since_ms is None
        if is_new:
            self._met.pop(connection, None)
        if not self._faults and connection not in self._met:
            self._handler.handle_frame(connection, frame, slot)
            return
        header, body_at = decode_request_header(frame)
        fault = self._find(connection, header) if is_new else self._met.get(connection)
        if fault is not None and fault.effect is Effect.DELAY and not is_new:
            fault = None
        if fault is None:
            self._handler.handle_frame(connection, frame, slot)
        elif fault.effect is Effect.DROP:
            connection.close("a test drops it")
        elif fault.effect is Effect.DELAY:
            connection.hold_frame(self._clock.monotonic_ms())
            self._loop.call_later(fault.delay_s, connection.retry_frame)
        elif fault.effect is Effect.LOSE_ANSWER:
            self._handler.handle_frame(connection, frame, _LostAnswer(connection, slot))
        else:
            _refuse(connection, fault.error, header, frame[body_at:], slot)

    def _find(self, connection: Connection, header: RequestHeader) -> RequestFault | None:
        if header.api_key not in _APIS or not _APIS[header.api_key].serves(header.api_version):
            return None
        fault = self._faults.find(self._node_id, header)
        if fault is not None:
            self._met[connection] = fault
        return fault

    def drop_connections(self) -> None:
        def close() -> None:
            for connection in tuple(self._connections):
                connection.close("a test drops it")

        self._loop.call_soon_threadsafe(close)


class _LostAnswer(ResponseSlot):
    """Stands for the slot of a request that is carried out: instead of its answer, the connection ends."""

    def __init__(self, connection: Connection, slot: ResponseSlot) -> None:
        super().__init__(connection)
        slot.on_abandon = self._abandon

    def complete_framed(self, chunks: Sequence[Chunk]) -> None:
        self.done = True
        self.connection.close("a test loses its answer")

    def _abandon(self) -> None:
        if self.on_abandon is not None:
            self.on_abandon()


def _refuse(
    connection: Connection, error: ErrorCode, header: RequestHeader, body: memoryview, slot: ResponseSlot
) -> None:
    api, version = _APIS[header.api_key], header.api_version
    request, _ = api.request.decode_from(bytes(body), 0, version)
    if api.key is ApiKey.PRODUCE and request.acks == 0:
        connection.close("a test refuses what is not answered")
        return
    answer = api.error_response(request, version, KafkaError(error, "a test refuses it"))
    response = start_response(header.api_key, version, header.correlation_id)
    answer.encode_into(version, response)
    slot.complete_started(response)


_APIS: Final[dict[int, Api[Any, Any, Any]]] = {int(api.key): api for api in make_apis()}
