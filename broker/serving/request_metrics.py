"""How long requests take, by API: measured around the handler of a listener, and kept as plain counters.

A request's time has the phases that Kafka names (``RequestMetrics``), as far as there are such here:

- *local*: the handler's own work until it returns; the event loop does nothing else meanwhile.
- *remote*: until the answer is complete: it waits for followers, for a flush, for the controller, for more
  bytes, or for further turns of the event loop.
- *response queue*: a complete answer waits for those of earlier requests of its connection.

There is no request queue (what has not been read waits in its socket) and no throttle time. Sending is left
to the transport.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from struct import Struct

from pykraft.kafka_protocol.connection import Connection, RequestHandler, ResponseSlot
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.durations import Durations

logger = logging.getLogger("pykraft.request")
"""At DEBUG one line a request, as Kafka's ``kafka.request.logger``; slow requests at WARNING."""
_API_AND_VERSION = Struct(">I")


class ApiTimes:
    """The requests of one API: ``requests`` received by version, the phases of those that were answered, and
    how many were ``abandoned`` because their connection ended before.
    """

    __slots__ = ("abandoned", "local", "name", "remote", "requests", "response_queue", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: dict[int, int] = {}
        self.abandoned = 0
        self.local = Durations()
        self.remote = Durations()
        self.response_queue = Durations()
        self.total = Durations()

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return sum(self.requests.values()) - self.total.count - self.abandoned


class MeasuredRequests:
    """Passes requests on to ``handler`` and measures those of ``served``: name and versions by API key.

    ``now_us`` is monotonic. A request that took ``slow_ms`` or longer is logged; 0: none is.
    """

    def __init__(
        self,
        handler: RequestHandler,
        served: Mapping[int, tuple[str, range]],
        now_us: Callable[[], int],
        slow_ms: int = 0,
    ) -> None:
        self._handler = handler
        self.now_us = now_us
        self.slow_us = slow_ms * 1000 if slow_ms > 0 else 1 << 62
        self.times = {key: ApiTimes(name) for key, (name, _) in served.items()}
        self._observers = {
            key << 16 | version: _Observer(self, self.times[key], version)
            for key, (_, versions) in served.items()
            for version in versions
        }
        """By the four bytes that a frame begins with: API and version. A client may name any others."""

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        observer = self._observers.get(_API_AND_VERSION.unpack_from(frame)[0]) if len(frame) >= 4 else None
        if observer is None:  # the handler's to refuse
            self._handler.handle_frame(connection, frame, slot)
            return
        if connection.held_since_ms is None:  # not one that was received before, and held
            requests = observer.times.requests
            requests[observer.version] = requests.get(observer.version, 0) + 1
        slot.observer = observer
        slot.received_us = self.now_us()
        self._handler.handle_frame(connection, frame, slot)
        if not slot.done:
            slot.handled_us = self.now_us()


class _Observer:
    """Measures the requests of one API and version. It holds none of them."""

    __slots__ = ("_requests", "times", "version")

    def __init__(self, requests: MeasuredRequests, times: ApiTimes, version: int) -> None:
        self._requests = requests
        self.times = times
        self.version = version

    def answer_completed(self, slot: ResponseSlot) -> None:
        slot.completed_us = self._requests.now_us()

    def answer_sent(self, slot: ResponseSlot, *, has_waited: bool) -> None:
        times, received_us, completed_us = self.times, slot.received_us, slot.completed_us
        sent_us = self._requests.now_us() if has_waited else completed_us
        handled_us = slot.handled_us or completed_us  # it was complete when its handler returned
        total_us = sent_us - received_us
        times.local.add(handled_us - received_us)
        times.remote.add(completed_us - handled_us)
        times.response_queue.add(sent_us - completed_us)
        times.total.add(total_us)
        if total_us >= self._requests.slow_us:
            logger.warning("slow request: %s", _describe(self, slot, sent_us))
        elif logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", _describe(self, slot, sent_us))

    def answer_abandoned(self, slot: ResponseSlot) -> None:
        self.times.abandoned += 1


def _describe(observer: _Observer, slot: ResponseSlot, sent_us: int) -> str:
    connection, completed_us = slot.connection, slot.completed_us
    handled_us = slot.handled_us or completed_us
    caller = connection.state
    client_id = caller.client_id if isinstance(caller, RequestContext) else ""
    return (
        f"{observer.times.name} version {observer.version} from {connection.peer_address}"
        f" (client.id {client_id!r}, listener {connection.listener_name}, connection"
        f" {connection.connection_id}) took {(sent_us - slot.received_us) / 1000:.1f} ms: local"
        f" {(handled_us - slot.received_us) / 1000:.1f}, remote"
        f" {(completed_us - handled_us) / 1000:.1f}, response queue"
        f" {(sent_us - completed_us) / 1000:.1f}"
    )
