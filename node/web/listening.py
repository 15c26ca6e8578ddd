"""Accepts connections for aiohttp: a bounded number, each for a bounded time.

What listens here must not use up the files of the broker, and who says nothing must not keep others out for
long.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pykraft.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.web_protocol import RequestHandler

MAX_CONNECTIONS: Final = 128
CONNECTION_S: Final = 300
"""Prometheus and browsers connect again."""
LAST_ANSWER_S: Final = 10
"""So much longer for one who is being answered then."""


async def listen(runner: web.AppRunner, bound: socket.socket, backlog: int) -> asyncio.Server:
    """Serve what ``runner`` has set up on a socket that is bound."""
    make = runner.server
    assert make is not None, "the runner is not set up"
    opened = _Opened(make)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(opened), sock=bound, backlog=backlog)


@dataclass(slots=True)
class _Opened:
    """``count`` of connections that are served; ``serve`` makes what serves one."""

    serve: Callable[[], RequestHandler]
    count: int = 0


class _Connection(asyncio.Protocol):
    """One that is served, for its time, or closed at once."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        self._served: RequestHandler | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._opened.count >= MAX_CONNECTIONS:
            transport.close()
            return
        self._opened.count += 1
        self._served = self._opened.serve()
        self._timer = asyncio.get_running_loop().call_later(CONNECTION_S, self._end, self._served)
        self._served.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        if self._served is not None:
            self._opened.count -= 1
            self._timer.cancel()
            self._served.connection_lost(error)

    def _end(self, served: RequestHandler) -> None:
        """After the answer to what is asked at the moment. Without that aiohttp would only fall silent."""
        is_idle = served._current_request is None
        served.close()
        if is_idle:
            served.force_close()
        else:
            self._timer = asyncio.get_running_loop().call_later(LAST_ANSWER_S, served.force_close)

    def data_received(self, data: bytes) -> None:
        if self._served is not None:
            self._served.data_received(data)

    def eof_received(self) -> None:
        if self._served is not None:
            self._served.eof_received()

    def pause_writing(self) -> None:
        if self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._served is not None:
            self._served.resume_writing()
