"""One end of a simulated connection: asyncio's transport of one protocol, and the bytes that it has sent.

Bytes are sent in segments, which are delivered in order even if they overtake each other, and are sent again
until they arrive. Bytes that the peer has not read fill the window; bytes that do not fit into it are the
backlog, which pauses the protocol. A paused process reads nothing, and a dead one sends nothing but the end
of its connections.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pykraft.runtime.simulated.processes import ProcessLoop, SimProcess

MAX_CHUNK_BYTES: Final = 256 * 1024
"""The bytes that one turn of the loop passes to a protocol without a buffer of its own."""

_FIRST_RETRY_S: Final = 0.2
_LAST_RETRY_S: Final = 1.6


class Wires(Protocol):
    """The network between the machines, as an end of a connection sees it. Hosts are numbers of machines."""

    loop: ProcessLoop
    window_bytes: int
    """The limit of bytes in flight or unread in each direction of a connection."""

    def is_down(self, host: int) -> bool: ...

    def is_cut(self, sender: int, receiver: int) -> bool: ...

    def is_reset(self, sender: int, receiver: int) -> bool:
        """Whether the loss of a packet resets the connection."""
        ...

    def delay_s(self, sender: int, receiver: int) -> float | None:
        """The delay of a packet; None if it is lost."""
        ...

    def later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback`` later, outside any process."""
        ...

    def event(self, kind: str, sender: int, receiver: int, size_bytes: int) -> None: ...

    def opened(self, end: StreamEnd) -> None: ...

    def closed(self, end: StreamEnd) -> None: ...


class _Segment:
    """Bytes that were written at one time; ``parts`` is None for the end of the stream."""

    __slots__ = ("arrived", "parts", "written_s")

    def __init__(self, written_s: float, parts: list[bytes] | None) -> None:
        self.written_s = written_s
        self.parts = parts
        self.arrived = False


class StreamEnd(asyncio.Transport):
    """One end of a connection: asyncio's transport of one protocol, and the bytes that it has sent."""

    def __init__(
        self,
        network: Wires,
        process: SimProcess,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        peer_host: int,
    ) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.sockname = sockname
        self.peername = peername
        self._peer_host = peer_host
        self.peer: StreamEnd | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._joined = False
        # Sending: bytes that do not fit into the window, segments in flight, and how many bytes the peer has
        # not read yet.
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._on_the_way: deque[_Segment] = deque()
        self._newest: _Segment | None = None
        self._unread_bytes = 0
        self._high_bytes, self._low_bytes = 64 * 1024, 16 * 1024
        self._writing_paused = False
        self._ending = False
        """No more writes are accepted; earlier ones are still sent."""
        # Receiving: bytes that have arrived and are not read yet.
        self._received: deque[bytes] = deque()
        self._at_end = False
        self._reported_end = False
        self._reading = True
        self._feed_scheduled = False
        self._dead = False
        """The machine has no connection any more, or never will."""
        self._lost_scheduled = False
        self._is_lost = False
        network.opened(self)

    def __repr__(self) -> str:
        return f"<{self.sockname[0]}:{self.sockname[1]} to {self.peername[0]}:{self.peername[1]}>"

    def join(self, protocol: asyncio.BaseProtocol) -> None:
        """Called in the process: connect the protocol."""
        self._protocol = protocol
        self._joined = True
        protocol.connection_made(self)
        if self._dead:
            self._network.loop.call_soon(self._tell_lost, _reset())
        self._schedule_feed()

    # --- asyncio: the calls of a protocol ---------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peername, "sockname": self.sockname}.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._ending or self._dead

    def is_reading(self) -> bool:
        return self._reading and not self.is_closing()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_feed()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = 64 * 1024 if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._dead or self._ending or not data:
            return
        self._backlog.append(bytes(data))
        self._backlog_bytes += len(data)
        self._send_backlog()
        if self._backlog_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def write_eof(self) -> None:
        if not self._ending and not self._dead:
            self._ending = True
            self._send_backlog()

    def close(self) -> None:
        """Close after earlier writes are sent."""
        if not self._lost_scheduled and not self._dead:
            self._reading = False
            if not self._ending:
                self.write_eof()
            if not self._backlog:
                self._lose(None)

    def abort(self) -> None:
        """Drop unsent bytes. The peer gets the end of the stream, or a reset if bytes of it are unread."""
        if self._dead:
            return
        self._release()
        self._lose(None)

    # --- sending ----------------------------------------------------------------------------------------

    def _send_backlog(self) -> None:
        room = self._network.window_bytes - self._unread_bytes
        backlog = self._backlog
        while backlog and room > 0:
            data = backlog.popleft()
            if len(data) > room:
                backlog.appendleft(data[room:])
                data = data[:room]
            room -= len(data)
            self._backlog_bytes -= len(data)
            self._unread_bytes += len(data)
            self._send(data)
        if self._ending and not backlog:
            self._send(None)

    def _send(self, data: bytes | None) -> None:
        now_s = self._network.loop.now_s
        newest = self._newest
        if newest is not None and newest.written_s == now_s and newest.parts is not None and data is not None:
            newest.parts.append(data)
            return
        if newest is not None and newest.parts is None:
            return  # the end has been sent
        segment = self._newest = _Segment(now_s, None if data is None else [data])
        self._on_the_way.append(segment)
        self._dispatch(segment, _FIRST_RETRY_S)

    def _dispatch(self, segment: _Segment, retry_s: float) -> None:
        """Send a segment, for the first time or again. A machine that is down sends nothing."""
        network, sender, receiver = self._network, self.process.host, self._peer_host
        if self.peer is None or network.is_down(sender) or not self._on_the_way:
            return
        delay_s = network.delay_s(sender, receiver)
        if delay_s is not None:
            network.later(delay_s, self._arrive, segment, retry_s)
        elif network.is_reset(sender, receiver):
            self._break()
            self.peer._break()
        else:
            network.later(retry_s, self._dispatch, segment, min(2 * retry_s, _LAST_RETRY_S))

    def _arrive(self, segment: _Segment, retry_s: float) -> None:
        network, peer = self._network, self.peer
        assert peer is not None
        if network.is_down(self._peer_host):
            network.later(retry_s, self._dispatch, segment, min(2 * retry_s, _LAST_RETRY_S))
            return
        if peer._dead:
            delay_s = network.delay_s(self._peer_host, self.process.host)
            if delay_s is None:
                network.later(retry_s, self._dispatch, segment, min(2 * retry_s, _LAST_RETRY_S))
            elif segment.parts is not None or not self._dead:
                network.later(delay_s, self._break)
            return
        segment.arrived = True
        on_the_way = self._on_the_way
        while on_the_way and on_the_way[0].arrived:
            first = on_the_way.popleft()
            if first is self._newest and first.parts is not None:
                self._newest = None
            peer._take(first)

    def _acknowledge(self, count_bytes: int) -> None:
        """The peer has read so many bytes. It can report that only if its packets arrive."""
        network = self._network
        if network.is_cut(self._peer_host, self.process.host):
            network.later(_FIRST_RETRY_S, self._acknowledge, count_bytes)
            return
        self._unread_bytes -= count_bytes
        if self._dead or not self._backlog:
            return
        self._send_backlog()
        if self._writing_paused and self._backlog_bytes <= self._low_bytes:
            self._writing_paused = False
            self._network.loop.call_soon(self._resume_writing, context=self.process.context)
        if self._ending and not self._backlog and not self._reading:
            self._lose(None)

    def _resume_writing(self) -> None:
        if not self._writing_paused and not self._dead:
            self.get_protocol().resume_writing()

    # --- receiving --------------------------------------------------------------------------------------

    def _take(self, segment: _Segment) -> None:
        """A segment has arrived at this machine, in order."""
        if segment.parts is None:
            self._at_end = True
        else:
            self._received.extend(segment.parts)
        size_bytes = 0 if segment.parts is None else sum(map(len, segment.parts))
        self._network.event("stream", self._peer_host, self.process.host, size_bytes)
        self._schedule_feed()

    def _schedule_feed(self) -> None:
        if self._feed_scheduled or not self._joined or not self._reading or self._dead:
            return
        if self._received or (self._at_end and not self._reported_end):
            self._feed_scheduled = True
            self._network.loop.call_soon(self._feed, context=self.process.context)

    def _feed(self) -> None:
        """Deliver what one read of a socket would return."""
        self._feed_scheduled = False
        if self._dead or not self._reading or self._lost_scheduled:
            return
        protocol = self._protocol
        try:
            if not self._received:
                self._reported_end = True
                if not protocol.eof_received():  # type: ignore[union-attr]
                    self.close()
            elif isinstance(protocol, asyncio.BufferedProtocol):
                buffer = memoryview(protocol.get_buffer(-1))
                count = self._read_into(buffer)
                protocol.buffer_updated(count)
            else:
                data = bytearray(min(sum(map(len, self._received)), MAX_CHUNK_BYTES))
                self._read_into(memoryview(data))
                protocol.data_received(bytes(data))  # type: ignore[union-attr]
        except Exception as error:
            self._network.loop.call_exception_handler(
                {
                    "message": "a protocol failed on what it received",
                    "exception": error,
                    "protocol": protocol,
                    "transport": self,
                }
            )
            self._release()
            self._lose(error)
            return
        self._schedule_feed()

    def _read_into(self, buffer: memoryview) -> int:
        received, count = self._received, 0
        while received and count < len(buffer):
            data = received.popleft()
            room = len(buffer) - count
            if len(data) > room:
                received.appendleft(data[room:])
                data = data[:room]
            buffer[count : count + len(data)] = data
            count += len(data)
        assert self.peer is not None
        self.peer._acknowledge(count)
        return count

    # --- the end ----------------------------------------------------------------------------------------

    def _release(self) -> None:
        """The process has closed the connection: bytes that have left its buffer still reach the peer."""
        reset = bool(self._received)
        self._backlog.clear()
        self._backlog_bytes = 0
        self._received.clear()
        if self.peer is not None:
            if reset:
                self._send_reset()
            else:
                self._ending = True
                self._send(None)
        self._dead = True

    def _send_reset(self) -> None:
        self._on_the_way.clear()
        delay_s = self._network.delay_s(self.process.host, self._peer_host)
        if delay_s is not None and self.peer is not None:
            self._network.later(delay_s, self.peer._break)

    def process_ended(self, *, silently: bool) -> None:
        """The process has ended."""
        if self._dead:
            return
        if silently:
            self._on_the_way.clear()
            self._dead = True
        else:
            self._release()

    def _break(self) -> None:
        """A reset has arrived at this machine."""
        if self._dead:
            return
        self._dead = True
        self._backlog.clear()
        self._on_the_way.clear()
        self._received.clear()
        if self.process.alive:
            self._lose(_reset())

    def _lose(self, error: Exception | None) -> None:
        if not self._lost_scheduled:
            self._lost_scheduled = True
            self._network.loop.call_soon(self._notify_lost, error, context=self.process.context)

    def _notify_lost(self, error: Exception | None) -> None:
        self._dead = True
        self._network.closed(self)
        if self._joined:
            self._tell_lost(error)

    def _tell_lost(self, error: Exception | None) -> None:
        """Once: a protocol may have aborted the connection while it was joined."""
        if not self._is_lost:
            self._is_lost = True
            self.get_protocol().connection_lost(error)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
