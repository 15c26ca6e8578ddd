"""The two ways in which the output of a connection leaves: its socket, and its transport."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from pykraft.runtime.disk import DiskFile

_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)


class SocketSink:
    """Writes to a duplicate of the transport's socket: nothing is ever copied into a transport buffer."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sendfile: bool, fileno: int, on_ready: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._sendfile = sendfile and hasattr(os, "sendfile")
        self._socket = socket.socket(fileno=os.dup(fileno))
        self._socket.setblocking(False)
        self._on_ready = on_ready
        self._waiting = False

    def send(self, view: memoryview, more: bool) -> int:
        try:
            count = self._socket.send(view, _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            count = 0
        if count < len(view):
            self._wait()
        return count

    def send_file(self, file: DiskFile, position: int, length_bytes: int) -> int | None:
        fileno = file.fileno()
        if not self._sendfile or fileno < 0:
            return None
        try:
            count = os.sendfile(self._socket.fileno(), fileno, position, length_bytes)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as error:
            if error.errno == errno.EIO:
                return None  # the file could not be read: reading it will raise the error
            raise
        else:
            if count == 0:
                raise OSError(f"{file.path} ended inside a range that is being sent")
        if count < length_bytes:
            self._wait()
        return count

    def close(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._socket.fileno(), self._ready)

    def _ready(self) -> None:
        self._waiting = False
        self._loop.remove_writer(self._socket.fileno())
        self._on_ready()


class TransportSink:
    """Writes through the transport, which buffers at most its high-water mark (TLS, simulation)."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self.paused = False

    def send(self, view: memoryview, more: bool) -> int:
        if self.paused:
            return 0
        self._transport.write(bytes(view))
        return len(view)

    def send_file(self, file: DiskFile, position: int, length_bytes: int) -> int | None:
        return None

    def close(self) -> None:
        return
