"""A listener on a real socket whose handler echoes frames."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

import pytest
import uvloop

from pykraft.broker.serving.listener import KafkaListener, ListenerLimits
from pykraft.kafka_protocol.connection import Connection, RequestHandler, ResponseSlot
from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.network.tcp import StreamRuntime
from tests.waits import settle

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class AdvancedLoop(asyncio.SelectorEventLoop):
    """An event loop on real sockets whose clock a test moves ahead.

    What a test waits for takes far longer than a busy machine holds it up, and costs no time.
    """

    advanced_s = 0.0

    def time(self) -> float:
        return super().time() + self.advanced_s

    async def advance(self, seconds: float) -> None:
        """Move the clock ahead, and run the timers that are due then."""
        self.advanced_s += seconds
        await settle(2)  # timers run at the end of the next one


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Echo:
    """Answers each frame with itself; ``hold`` keeps slots whose frame starts with ``w``."""

    def __init__(self) -> None:
        self.held: list[tuple[bytes, ResponseSlot]] = []
        self.most_held = 0
        self.frames = 0
        self.bytes = 0
        self.connections: list[Connection] = []
        self.abandoned: list[bytes] = []

    def handle_frame(self, connection: Connection, data: memoryview, slot: ResponseSlot) -> None:
        self.frames += 1
        self.bytes += len(data)
        if connection not in self.connections:
            self.connections.append(connection)
        head = bytes(data[:1])
        if head == b"w":
            body = bytes(data)
            slot.on_abandon = lambda: self.abandoned.append(body)
            self.held.append((body, slot))
            self.most_held = max(self.most_held, len(self.held))
        elif head == b"n":
            slot.complete_without_response()
        elif head == b"x":
            slot.complete([b"ok"])
        else:
            slot.complete([bytes(data)])


@contextlib.asynccontextmanager
async def serving(
    handler: RequestHandler, limits: ListenerLimits | None = None, files: FileBudget | None = None
) -> AsyncIterator[tuple[KafkaListener, StreamRuntime]]:
    runtime = StreamRuntime(asyncio.get_running_loop(), files=files)
    listener = KafkaListener(runtime, "127.0.0.1", 0, "PLAINTEXT", limits)
    await listener.start(handler)
    try:
        yield listener, runtime
    finally:
        await listener.stop()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)
