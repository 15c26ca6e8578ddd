"""The sockets that a server accepts have the buffers that it is told to give them."""

import asyncio
import socket
import sys

import pytest

from pykraft.runtime.network.connection_quota import ConnectionQuota
from pykraft.runtime.network.tcp import StreamConnection, StreamRuntime, StreamSession
from pykraft.runtime.network.tcp_server import StreamServer


class Silent:
    need_bytes = 1
    stalled = False
    lane: object = None

    def receive(self, data: memoryview) -> int:
        return len(data)

    def connection_lost(self) -> None:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="this system may count a buffer in another way")
@pytest.mark.parametrize(
    ("send_bytes", "receive_bytes"), [(40_000, 50_000), (-1, 50_000), (40_000, -1), (-1, -1)]
)
async def test_sizes_of_accepted_sockets(send_bytes: int, receive_bytes: int) -> None:
    runtime = StreamRuntime(
        asyncio.get_running_loop(), send_buffer_bytes=send_bytes, receive_buffer_bytes=receive_bytes
    )
    server = StreamServer(runtime, "127.0.0.1", 0, quota=ConnectionQuota(10, 10), idle_timeout_ms=10_000)
    accepted = asyncio.get_running_loop().create_future()

    def serve(connection: StreamConnection) -> StreamSession:
        assert connection.sock is not None
        accepted.set_result(connection.sock)
        return Silent()

    port = await server.start(serve)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        sock = await accepted
        for option, asked in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            size_bytes = sock.getsockopt(socket.SOL_SOCKET, option)
            # Linux doubles what it is asked for.
            assert (size_bytes == 2 * asked) if asked >= 0 else size_bytes not in (80_000, 100_000)
    finally:
        writer.close()
        await server.stop()
