"""One client connection without its socket: frames in, answers out in the order of the requests.

Every complete frame gets a :class:`ResponseSlot`. The slots form a queue: an answer is sent after all before
it, whenever each is completed. Decides the order, back pressure (a bounded number of open slots) and when a
connection must be closed. A frame that cannot be handled yet is passed to the handler again later, before any
frame that follows it. Never blocks, never reads a clock, and reads no more of a frame than the number of its
API.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pykraft.kafka_protocol.framing import (
    SIZE_BYTES,
    FramingError,
    pack_size,
    pack_size_into,
    read_frame_size,
)
from pykraft.runtime.network.streams import Chunk, size_of

if TYPE_CHECKING:
    from pykraft.kafka_protocol.hot.offset_commit import UsualCommit

logger = logging.getLogger(__name__)

MAX_PENDING_RESPONSES = 128
#: Frames handled in one callback before other connections are served.
FRAMES_PER_CALLBACK = 64
#: A request begins with the number of its API.
_API_KEY_BYTES = 2


class Link(Protocol):
    """A connection's transport (``runtime.tcp.StreamConnection``)."""

    def write(self, chunks: Sequence[Chunk]) -> None: ...
    def close(self) -> None: ...
    def has_turn(self) -> bool:
        """Whether one more frame may be handled in this turn of the event loop."""
        ...

    def receive_more(self) -> None:
        """The session accepts frames again: pass it what is buffered, then continue reading."""
        ...

    def keep_received(self) -> bool:
        """Called while the session receives: whether views of the received data stay valid from now on.

        False if only little data was received.
        """
        ...


class RequestHandler(Protocol):
    """The server's side of a connection. Called on the event loop."""

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        """Answer one request through ``slot``, now or later.

        ``frame`` is the frame without its size prefix. It is writable, and valid only during this call: a
        handler that keeps data copies it, or calls :meth:`Connection.keep_frame` if it is large. A
        :class:`FramingError` closes the connection with one log line.
        """
        ...


class Holdable(Protocol):
    """The current frame of a :class:`Connection`: it can be held before it is handled, and tried again.

    ``held_since_ms``: since when it has been held, by its handler's clock, or None.
    """

    held_since_ms: int | None

    def hold_frame(self, now_ms: int) -> None: ...

    def retry_frame(self) -> None: ...


class AnswerObserver(Protocol):
    """Told what becomes of answers. It must not fail, and must not complete other answers."""

    def answer_completed(self, slot: ResponseSlot) -> None: ...
    def answer_sent(self, slot: ResponseSlot, *, has_waited: bool) -> None:
        """It was handed to the transport; ``has_waited``: later than it was completed."""
        ...

    def answer_abandoned(self, slot: ResponseSlot) -> None:
        """The connection has ended before it could be sent."""
        ...


class ResponseSlot:
    """The place of one answer in the order of answers. Completed exactly once.

    ``on_abandon`` is called if the connection ends first, so that parked work can be dropped. The times are
    the ``observer``'s.
    """

    __slots__ = (
        "_chunks",
        "completed_us",
        "connection",
        "done",
        "handled_us",
        "observer",
        "on_abandon",
        "received_us",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._chunks: Sequence[Chunk] = ()
        self.received_us = self.handled_us = self.completed_us = 0
        self.done = False
        self.observer: AnswerObserver | None = None
        self.on_abandon: Callable[[], object] | None = None

    @property
    def abandoned(self) -> bool:
        """Whether the connection has ended, so that the answer cannot be sent."""
        return self.connection.closed

    def complete(self, chunks: Sequence[Chunk]) -> None:
        """Answer with a response header and body; the size prefix is added here."""
        self.complete_framed([pack_size(sum(map(size_of, chunks))), *chunks])

    def complete_started(self, frame: bytearray) -> None:
        """Answer with a frame that has room for the size prefix, which is set here."""
        pack_size_into(frame, 0, len(frame) - SIZE_BYTES)
        self.complete_framed((frame,))

    def complete_framed(self, chunks: Sequence[Chunk]) -> None:
        """Answer with chunks that already start with the size prefix."""
        assert not self.done, "a response slot is completed once"
        self.done = True
        self._chunks = chunks
        self.on_abandon = None
        if self.observer is not None:
            self.observer.answer_completed(self)
        self.connection._slot_done(self)

    def complete_without_response(self) -> None:
        """Complete the slot without sending anything (Produce with acks=0)."""
        self.complete_framed(())


class Connection:
    """The session of one client. ``need_bytes`` tells the transport how many bytes the next frame needs.

    ``need_bytes == 0`` after :meth:`receive` means that it stopped early. If ``stalled`` is False, its share
    of the turn is used: call it again in a later turn, among the connections that wait in ``lane``, whose
    next frames all ask for the same API. If ``stalled`` is True, too many answers are open or a handler holds
    the connection, which then calls ``link.receive_more()`` itself. After ``closed`` no frame is handled and
    no answer is sent.

    ``held_since_ms``: since when the current frame has been held, by the handler's clock, or None.
    """

    __slots__ = (
        "_handler",
        "_is_frame_held",
        "_is_held",
        "_limit",
        "_link",
        "_max_pending",
        "_receiving",
        "_slots",
        "closed",
        "connection_id",
        "held_since_ms",
        "lane",
        "listener_name",
        "need_bytes",
        "peer_address",
        "stalled",
        "state",
        "usual_commit",
    )

    def __init__(
        self,
        link: Link,
        handler: RequestHandler,
        *,
        connection_id: int,
        peer_address: str,
        listener_name: str,
        max_request_bytes: int,
        max_pending_responses: int = MAX_PENDING_RESPONSES,
    ) -> None:
        self._link = link
        self._handler = handler
        self._limit = max_request_bytes
        self._max_pending = max_pending_responses
        self._slots: deque[ResponseSlot] = deque()
        self._receiving = False
        self._is_held = False
        self._is_frame_held = False
        self.held_since_ms: int | None = None
        self.connection_id = connection_id
        self.peer_address = peer_address
        self.listener_name = listener_name
        self.need_bytes = SIZE_BYTES
        self.stalled = False
        self.lane: object = None
        self.closed = False
        #: For the handler: what it remembers about this client between requests.
        self.state: object = None
        #: For the handler of OffsetCommit: what this client usually commits.
        self.usual_commit: UsualCommit | None = None

    def close(self, reason: str) -> None:
        """End the connection and log the reason in one line."""
        if not self.closed:
            self.closed = True
            logger.info("closing connection %d from %s: %s", self.connection_id, self.peer_address, reason)
            self._link.close()

    def hold_frame(self, now_ms: int) -> None:
        """Called by the handler instead of answering: it gets this frame again after :meth:`retry_frame`."""
        assert self._receiving, "only the frame that is being handled can be held"
        self._is_frame_held = True
        if self.held_since_ms is None:
            self.held_since_ms = now_ms

    def retry_frame(self) -> None:
        """The frame that was held can be tried again."""
        if self._is_frame_held:
            self._is_frame_held = False
            self.stalled = False
            if not self.closed:
                self._link.receive_more()

    def keep_frame(self) -> bool:
        """Called by the handler: whether views of the current frame stay valid from now on without a copy.

        False for frames that the transport has not received into a buffer of their own; those are small.
        """
        assert self._receiving, "only the frame that is being handled can be kept"
        return self._link.keep_received()

    def hold(self) -> None:
        """Handle no further frame before :meth:`release`, so that the work just begun ends first."""
        assert not self._is_held
        self._is_held = True

    def release(self) -> None:
        """Continue with the next frame."""
        self._is_held = False
        self._maybe_receive_more()

    # -- called by the transport -------------------------------------------------------------------------

    def receive(self, data: memoryview) -> int:
        """Handle the complete frames in ``data``; returns the bytes consumed."""
        position = 0
        end = len(data)
        frames = 0
        self._receiving = True
        try:
            while not self.closed:
                if len(self._slots) >= self._max_pending or self._is_held:
                    self.stalled = True
                    self.need_bytes = 0
                    break
                if end - position < SIZE_BYTES:
                    self.need_bytes = SIZE_BYTES
                    break
                size = read_frame_size(data, position, self._limit)
                following = position + SIZE_BYTES + size
                if following > end:
                    self.need_bytes = SIZE_BYTES + size
                    break
                if frames == FRAMES_PER_CALLBACK or not self._link.has_turn():
                    self.need_bytes = 0
                    at = position + SIZE_BYTES
                    self.lane = self.listener_name, bytes(data[at : at + _API_KEY_BYTES])
                    break
                slot = ResponseSlot(self)
                self._slots.append(slot)
                self._handler.handle_frame(self, data[position + SIZE_BYTES : following], slot)
                if self._is_frame_held:
                    self._slots.pop()
                    self.stalled = True
                    self.need_bytes = 0
                    break
                self.held_since_ms = None
                position = following
                frames += 1
        except FramingError as error:
            self.close(str(error))
            return end
        finally:
            self._receiving = False
        return position

    def connection_lost(self) -> None:
        """The transport is gone: abandon the open answers."""
        self.closed = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.observer is not None:
                slot.observer.answer_abandoned(slot)
            if slot.on_abandon is not None:
                abandon, slot.on_abandon = slot.on_abandon, None
                abandon()

    # -- called by slots ---------------------------------------------------------------------------------

    def _slot_done(self, slot: ResponseSlot) -> None:
        slots = self._slots
        if self.closed or not slots or slots[0] is not slot:
            return
        while slots and slots[0].done:
            sent = slots.popleft()
            if sent._chunks:
                self._link.write(sent._chunks)
            if sent.observer is not None:
                sent.observer.answer_sent(sent, has_waited=sent is not slot)
        if self.stalled:
            self._maybe_receive_more()

    def _maybe_receive_more(self) -> None:
        if not self.stalled or self._receiving or self._is_held or self._is_frame_held or self.closed:
            return
        if len(self._slots) <= self._max_pending // 2:
            self.stalled = False
            self._link.receive_more()
