"""TCP for the event loop: connections, their receive buffers and their output (listening: ``tcp_server``).

Decides in which buffer bytes are received and when a connection may read; a :class:`StreamSession` interprets
the bytes. Receiving: all idle connections share one buffer; a connection owns one only while a frame is
incomplete, and it grows with the bytes that have arrived, never because of an announced size
(:mod:`~pykraft.runtime.network.receive_buffer`). Received bytes are copied at most once, out of the shared
buffer; a session that keeps a large frame is given the buffer that holds it. Sending: our own queue over a
duplicated socket (the transport's own buffer would copy), or over the transport if there is no socket to
duplicate (TLS, simulation): :mod:`~pykraft.runtime.network.sinks`. It is long because receiving, sending and
closing one connection share the state that says when it may read.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from pykraft.runtime.clock import monotonic_us
from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.network.file_slices import FileSlice, UnreadableSliceError
from pykraft.runtime.network.receive_buffer import ReceiveBuffer
from pykraft.runtime.network.sinks import SocketSink, TransportSink
from pykraft.runtime.network.streams import CALLBACK_BYTES, SCRATCH_BYTES, ByteSink, Chunk, OutputQueue
from pykraft.runtime.turns import BULK, OUTPUT, RESUMED, TurnBudget

logger = logging.getLogger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
MIN_OWN_BUFFER_BYTES = 1024
RETAINED_BYTES_MAX = 64 * 1024 * 1024  # of buffers that connections keep which have sent large frames
OUTPUT_CHUNKS_MAX = 512
OUTPUT_MEMORY_BYTES_MAX = 4 * 1024 * 1024

_DEFERRED = 1  # its share of the turn is used up
_STALLED = 2  # too many open requests
_CONGESTED = 4  # the peer does not read its responses
_WAITING = 8  # for its place among the connections


class StreamSession(Protocol):
    """Interprets the bytes of one connection.

    ``need_bytes``: the bytes needed for the next call to make progress, 0 after stopping early; ``stalled``:
    it stopped until it calls ``receive_more`` (otherwise it continues in a later turn, queued in ``lane``).
    """

    need_bytes: int
    stalled: bool
    lane: object

    def receive(self, data: memoryview) -> int: ...
    def connection_lost(self) -> None: ...


SessionFactory = Callable[["StreamConnection"], StreamSession]

OnUnreadable = Callable[[FileSlice], None]
"""Called with a file range that could not be sent because the medium cannot read it."""


class StreamRuntime:
    """The shared state of all connections of one event loop: receive buffer, scratch buffer and budgets.

    Connections count against ``files``, if it is given; a server refuses them when it is full. ``now_us``
    measures how long a turn takes. Buffers: of sockets that a server accepts, -1: as the system decides;
    through one as small as Kafka's a large file range is sent twice as fast, from the processor's cache.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        sendfile: bool = False,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        files: FileBudget | None = None,
        now_us: Callable[[], int] = monotonic_us,
    ) -> None:
        self.loop = loop
        self.shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.budget = TurnBudget(loop.call_soon, now_us)
        self.sendfile = sendfile
        self.buffer_sizes = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        self.files = files
        self.retained_bytes = 0
        self.tick = loop.time()  # the last sweep of a server; a connection notes it when it receives
        self.received = 0  # how often any connection has received; notes who did last


class StreamConnection(asyncio.BufferedProtocol):
    """One connection: its receive buffer, its output, and whether it may read."""

    __slots__ = (
        "_blocked",
        "_buffer",
        "_corked",
        "_end",
        "_factory",
        "_is_kept",
        "_is_urgent",
        "_on_lost",
        "_on_unreadable",
        "_output",
        "_paused",
        "_pump_scheduled",
        "_reading",
        "_runtime",
        "_sink",
        "_start",
        "_transport",
        "_trusted",
        "closed",
        "has_turn",
        "last_received",
        "last_tick",
        "session",
    )

    def __init__(
        self,
        runtime: StreamRuntime,
        factory: SessionFactory,
        on_lost: Callable[[StreamConnection], None] | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> None:
        self._runtime = runtime
        self._factory = factory
        self._on_lost = on_lost
        self._on_unreadable = on_unreadable
        self._transport: asyncio.Transport | None = None
        self._buffer: ReceiveBuffer | None = None
        self._is_kept = False  # the session keeps views of the buffer
        self._start = 0
        self._end = 0
        self._trusted = 0  # bytes that this peer has sent at once before
        self._paused = 0
        self._corked = False
        self._is_urgent = False
        self._output: OutputQueue | None = None
        self._sink: ByteSink | None = None
        self._blocked = False  # the sink calls back when there is room
        self._pump_scheduled = False
        self._reading = True
        self.closed = False
        self.has_turn = runtime.budget.has_room  # whether the session may handle one more frame in this turn
        self.last_tick = runtime.tick
        self.last_received = runtime.received
        self.session: StreamSession | None = None

    # -- asyncio -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._runtime.files is not None:
            self._runtime.files.connection_made()
        sock = self.sock
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session = self._factory(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._runtime.files is not None:
            self._runtime.files.connection_lost()
        if self._output is not None:
            self._output.clear()
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._drop_buffer()
        session, self.session = self.session, None
        if session is not None:
            session.connection_lost()
        if self._on_lost is not None:
            self._on_lost(self)
        # Leave no cycles: objects that are exempt from garbage collection would never be freed.
        self._transport = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if isinstance(self._sink, TransportSink):
            self._sink.paused = True

    def resume_writing(self) -> None:
        if isinstance(self._sink, TransportSink):
            self._sink.paused = False
            self._writable()

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer
        if buffer is None:
            return self._runtime.shared
        if self._end == len(buffer):
            self._grow(buffer)
        return buffer.view[self._end : self._end + CALLBACK_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        runtime = self._runtime
        self.last_tick = runtime.tick
        runtime.received += 1
        self.last_received = runtime.received
        if nbytes > self._trusted:
            self._trusted = nbytes
        self._end += nbytes
        within_budget = runtime.budget.spend(nbytes)
        if self._paused:  # it waits for its turn, and its peer sends on
            if self._buffer is None:
                self._keep(self._end - self._start, 0)
            self._sync_reading()
            return
        self._process()
        if not within_budget and not self.closed:
            self._defer()

    # -- for the session ---------------------------------------------------------------------------------

    @property
    def peer(self) -> tuple[str, int]:
        """Numeric address and port of the other side."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return (str(name[0]), int(name[1])) if isinstance(name, tuple) else (str(name or ""), 0)

    def write(self, chunks: Sequence[Chunk], *, urgent: bool = False) -> None:
        """Queue output; it is sent at once, or at the end of the receiving callback.

        If the turn's budget is used up it is sent in a later turn, unless ``urgent`` (replication).
        """
        if self.closed:
            return
        self._is_urgent = urgent
        output = self._output
        if output is None:
            output = self._output = OutputQueue(self._runtime.scratch)
        output.add(chunks)
        if output.pending_chunks > OUTPUT_CHUNKS_MAX or output.memory_bytes > OUTPUT_MEMORY_BYTES_MAX:
            self._paused |= _CONGESTED
            self._sync_reading()
        if self._corked or self._blocked or self._pump_scheduled:
            return
        if urgent or self._runtime.budget.has_time():
            self._pump()
        else:  # one of many responses that were completed at once
            self._pump_scheduled = True
            self._runtime.budget.defer(self._pump_again, OUTPUT)

    def receive_more(self) -> None:
        """The stalled session can continue."""
        self._unpause(_STALLED)

    def keep_received(self) -> bool:
        """Called while the session receives: whether views of the received bytes will stay unchanged.

        False if the bytes are in the shared buffer, and therefore at most ``SHARED_BUFFER_BYTES``.
        """
        self._is_kept = self._buffer is not None
        return self._is_kept

    @property
    def sock(self) -> socket.socket | None:
        """The transport's; None in simulation."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    def wait_for_place(self) -> None:
        """Called while the connection is made: read nothing until :meth:`take_place`."""
        self._paused |= _WAITING
        self._runtime.loop.call_soon(self._sync_reading)  # some loops begin to read after this callback

    def take_place(self, session: StreamSession) -> None:
        """The connection is served from now on, by ``session``."""
        self.session = session
        self._unpause(_WAITING)

    def close(self) -> None:
        """End the connection now; unsent output is dropped."""
        if not self.closed:
            self.closed = True
            assert self._transport is not None
            self._transport.abort()

    def release_memory(self) -> None:
        """Between frames and idle for a while: return to the shared buffer."""
        if self._start == self._end:
            self._drop_buffer()
            self._trusted = 0

    # -- receiving ---------------------------------------------------------------------------------------

    def _process(self, *, is_crowded: bool = False) -> None:
        """Pass the received bytes to the session; keep those that it does not consume.

        ``is_crowded``: others wait for their turn, too.
        """
        session = self.session
        assert session is not None
        left = self._end - self._start
        if left < session.need_bytes:
            self._keep(left, session.need_bytes)
            return
        buffer = self._runtime.shared if self._buffer is None else self._buffer.view
        self._corked = True
        try:
            consumed = session.receive(buffer[self._start : self._end])
        finally:
            self._corked = False
        if self.closed:
            return
        self._start += consumed
        left -= consumed
        if consumed > self._trusted:
            self._trusted = consumed
        if self._is_kept:
            self._give_away(left, session.need_bytes)
        elif left:
            self._keep(left, session.need_bytes)
        else:
            self._rewind()
        if session.need_bytes == 0:
            if session.stalled:
                self._paused |= _STALLED
                self._sync_reading()
            else:
                self._wait_in(session.lane)
        if self._output is None or self._blocked or self._pump_scheduled:
            return
        if is_crowded and not self._is_urgent and self._output.is_one_response():
            # Sent one after the other, the responses of a turn wake a client that waits for many only once.
            self._pump_scheduled = True
            self._runtime.budget.defer(self._pump_again, OUTPUT)
        else:
            self._pump()

    def _rewind(self) -> None:
        self._start = self._end = 0
        if self._buffer is not None and (
            len(self._buffer) < SHARED_BUFFER_BYTES or self._runtime.retained_bytes > RETAINED_BYTES_MAX
        ):
            self._drop_buffer()

    def _keep(self, left: int, need: int) -> None:
        """Make room after an incomplete frame (or frames that wait for their turn).

        The moved bytes were received in one callback: the frame before them was handled as soon as it was
        complete.
        """
        buffer = self._buffer
        if buffer is None:
            self._move(self._runtime.shared, left, need)
        elif self._start and need and (self._end == len(buffer) or self._start + need > len(buffer)):
            if max(need, left + 1) > len(buffer):
                self._move(buffer.view, left, need)
            else:
                buffer.view[:left] = buffer.view[self._start : self._end]
                self._start, self._end = 0, left

    def _give_away(self, left: int, need: int) -> None:
        """Leave the buffer to the session's views of it."""
        self._is_kept = False
        assert self._buffer is not None
        if left:
            self._move(self._buffer.view, left, need)
        else:
            self._drop_buffer()
            self._start = self._end = 0

    def _move(self, source: memoryview, left: int, need: int) -> None:
        """Move the bytes into a new buffer."""
        replacement = ReceiveBuffer(self._wanted(left, need))
        replacement.view[:left] = source[self._start : self._end]
        self._drop_buffer()
        self._buffer = replacement
        self._runtime.retained_bytes += len(replacement)
        self._start, self._end = 0, left

    def _grow(self, buffer: ReceiveBuffer) -> None:
        """Called in the loop's next read, and not before: until then the loop has a view of the buffer."""
        assert self.session is not None
        old = len(buffer)
        buffer.grow(self._start + self._wanted(self._end - self._start, self.session.need_bytes))
        self._runtime.retained_bytes += len(buffer) - old

    def _wanted(self, left: int, need: int) -> int:
        """The size of a buffer for a frame of ``need`` bytes of which ``left`` have arrived."""
        usual = SHARED_BUFFER_BYTES if self._trusted >= SHARED_BUFFER_BYTES else 0
        capacity = min(max(need, usual), max(MIN_OWN_BUFFER_BYTES, 2 * left, self._trusted))
        return max(capacity, left + 1)

    def _drop_buffer(self) -> None:
        if self._buffer is not None:
            self._runtime.retained_bytes -= len(self._buffer)
            self._buffer = None

    # -- when to read ------------------------------------------------------------------------------------

    def _sync_reading(self) -> None:
        """Make the transport read unless there is a reason to pause."""
        wanted = not self._paused
        if wanted != self._reading and not self.closed:
            assert self._transport is not None
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _defer(self, lane: object = BULK) -> None:
        """Continue in a later turn, and read nothing until then."""
        self._wait_in(lane)
        self._sync_reading()

    def _wait_in(self, lane: object) -> None:
        """Continue in a later turn. It goes on reading until something arrives.

        Most peers wait for an answer to the request that waits here, and pausing costs two system calls.
        """
        if not self._paused & _DEFERRED:
            self._paused |= _DEFERRED
            self._runtime.budget.defer(self._continue, lane)

    def _unpause(self, why: int) -> None:
        """A reason to pause ends. After the last one, go on in a later turn: the caller is in other work."""
        if self._paused & why and not self.closed:
            self._paused &= ~why
            if not self._paused:
                self._defer(RESUMED)

    def _continue(self) -> None:
        """Continue in a later turn: first with received frames, then with the socket."""
        self._paused &= ~_DEFERRED
        if self._paused or self.closed:
            return
        if self._end > self._start:
            self._runtime.budget.spend(min(self._end - self._start, CALLBACK_BYTES))
            try:
                self._process(is_crowded=True)
            except BaseException:
                # As the event loop does with errors of callbacks: a failed session cannot continue.
                self.close()
                raise
        self._sync_reading()

    # -- sending -----------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send until the queue is empty, the peer is slow or the turn's budget is used up."""
        output = self._output
        if self.closed or output is None:
            return
        try:
            sink = self._sink
            if sink is None:
                sink = self._sink = self._make_sink()
            sent, self._blocked = output.pump(sink)
        except OSError as error:
            logger.info("closing connection from %s: %s", self.peer[0], error)
            self.close()
            if isinstance(error, UnreadableSliceError) and self._on_unreadable is not None:
                self._on_unreadable(error.chunk)
            return
        within_budget = self._runtime.budget.spend(sent)
        if not output.pending_chunks:
            if self._paused & _CONGESTED:
                self._unpause(_CONGESTED)
            return
        if not self._blocked:
            self._pump_scheduled = True
            if within_budget:
                self._runtime.loop.call_soon(self._pump_again)
            else:
                self._runtime.budget.defer(self._pump_again)

    def _pump_again(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _writable(self) -> None:
        self._blocked = False
        if not self._pump_scheduled:
            self._pump()

    def _make_sink(self) -> ByteSink:
        sock, transport = self.sock, self._transport
        assert transport is not None
        if sock is None or transport.get_extra_info("sslcontext") is not None:
            return TransportSink(transport)
        return SocketSink(self._runtime.loop, self._runtime.sendfile, sock.fileno(), self._writable)


async def connect(
    runtime: StreamRuntime, host: str, port: int, factory: SessionFactory
) -> tuple[StreamConnection, StreamSession]:
    """Open a client connection. :class:`OSError` if the peer does not accept it."""
    _, protocol = await runtime.loop.create_connection(lambda: StreamConnection(runtime, factory), host, port)
    assert protocol.session is not None
    return protocol, protocol.session
