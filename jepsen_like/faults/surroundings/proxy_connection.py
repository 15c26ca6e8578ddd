"""One connection through the proxy: the client's, and the proxy's own to the target.

Decides when a connection is made, reset and given up; how data travels over it is decided in ``proxy_flow``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from pykraft.jepsen_like.faults.surroundings.proxy_flow import PIECE_BYTES, Direction, Flow
from pykraft.runtime.address import Address

_RECEIVE_BUFFER_BYTES: Final = 1 << 17
"""For each socket: what the kernel holds in front of a throttle must not hide it from the sender."""
_WRITE_BUFFER_BYTES: Final = 1 << 19
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)
_READ: Final = memoryview(bytearray(PIECE_BYTES))
"""One for all sockets: what is read is copied out before anything else is read."""


class Connection:
    """A client's connection that goes ``there`` to ``target``, and ``back``.

    The proxy connects to the target as soon as neither direction is cut, since a handshake needs both; the
    kernel has accepted the client's connection anyway. A client that leaves before has sent nothing.
    """

    def __init__(self, there: Direction, back: Direction, target: Address) -> None:
        self._directions = (there, back)
        self._target = target
        self.client, self._server = _Socket(self), _Socket(self)
        self._there = Flow(there, self.client, self._server)
        self._back = Flow(back, self._server, self.client)
        self.client.join(self._there, self._back)
        self._server.join(self._back, self._there)
        self._reaching: asyncio.Task[None] | None = None
        self._ends = 0
        """How many are open or being opened."""

    def opened(self, end: _Socket) -> None:
        if end is self.client:
            self._ends += 1
            for direction in self._directions:
                direction.connections[self] = None
            self.link_changed()

    def link_changed(self) -> None:
        """The state of one of the directions is another one."""
        states = [direction.state for direction in self._directions]
        if any(state.resets for state in states):
            self.client.reset()
            self._server.reset()
            return
        if self._reaching is None and self.client.is_open and not any(state.cut for state in states):
            self._ends += 1
            self._reaching = asyncio.create_task(self._reach())
        self._there.release()
        self._back.release()

    def finished(self, end: _Socket) -> None:
        """This end has nothing more to send."""
        if self._reaching is None:
            end.reset()
        else:
            end.sends.take(b"")

    def passed_end(self) -> None:
        if self._there.ended and self._back.ended:
            self.client.close()
            self._server.close()

    def lost(self, end: _Socket, error: Exception | None) -> None:
        """This end is closed, with an error if its peer has reset it."""
        end.receives.drop()
        if error is not None:
            end.sends.take_reset()
        self._leave()

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self._server, self._target.host, self._target.port)
        except OSError:
            self.client.reset()
            self._leave()

    def _leave(self) -> None:
        self._ends -= 1
        if not self._ends:
            for direction in self._directions:
                direction.connections.pop(self, None)
            self._there.drop()
            self._back.drop()


class _Socket(asyncio.BufferedProtocol):
    """One end of a connection."""

    sends: Flow
    receives: Flow

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self.is_open = False
        self._is_reset = False

    def join(self, sends: Flow, receives: Flow) -> None:
        self.sends, self.receives = sends, receives

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True
        transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        self._set_option(socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        self._connection.opened(self)
        self.receives.clog(False)
        if self._is_reset:
            self.reset()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _READ[: self.sends.direction.piece_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        self.sends.take(bytes(_READ[:nbytes]))

    def eof_received(self) -> bool:
        self._connection.finished(self)
        return True

    def pause_writing(self) -> None:
        self.receives.clog(True)

    def resume_writing(self) -> None:
        self.receives.clog(False)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._connection.lost(self, error)

    def read_on(self, wanted: bool) -> None:
        if self._transport is not None and wanted:
            self._transport.resume_reading()
        elif self._transport is not None:
            self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def write_end(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the peer has reset it a moment ago
                self._transport.write_eof()
        self._connection.passed_end()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """At once, or as soon as it is connected."""
        self._is_reset = True
        if self._transport is not None and self.is_open:
            self.is_open = False
            self._set_option(socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()

    def _set_option(self, option: int, value: int | bytes) -> None:
        assert self._transport is not None
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, value)
