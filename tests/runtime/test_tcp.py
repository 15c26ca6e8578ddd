"""When a connection reads: a peer whose request waits for its turn is paused once it sends more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pykraft.runtime.tcp import StreamConnection, StreamRuntime

FRAME_BYTES = 4


class Transport:
    """What a connection asks of its transport."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_extra_info(self, name: str) -> object:
        return None

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")


class Session:
    """Takes frames of :data:`FRAME_BYTES` while it ``may_take``."""

    def __init__(self) -> None:
        self.need_bytes = FRAME_BYTES
        self.stalled = False
        self.lane: object = "lane"
        self.may_take = True
        self.frames: list[bytes] = []

    def receive(self, data: memoryview) -> int:
        position = 0
        self.need_bytes = FRAME_BYTES
        while len(data) - position >= FRAME_BYTES:
            if not self.may_take:
                self.need_bytes = 0
                break
            self.frames.append(bytes(data[position : position + FRAME_BYTES]))
            position += FRAME_BYTES
        return position

    def connection_lost(self) -> None:
        return


class Loop:
    """The callbacks of the next turn."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def time(self) -> float:
        return 0.0

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.session = Session()
        self.transport = Transport()
        runtime = StreamRuntime(cast(asyncio.AbstractEventLoop, self.loop), now_us=lambda: 0)
        self.connection = StreamConnection(runtime, lambda _: self.session)
        self.connection.connection_made(cast(Any, self.transport))

    def arrives(self, data: bytes) -> None:
        """As a transport does it: into the offered buffer, as long as the connection reads."""
        while data and not (self.transport.asked and self.transport.asked[-1] == "pause"):
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]
        self.unread = data


def test_peer_that_waits_for_its_answer_is_never_paused() -> None:
    world = World()
    for number in range(3):
        world.session.may_take = False
        world.arrives(b"%4d" % number)
        assert len(world.session.frames) == number
        world.session.may_take = True
        world.loop.turn()
        assert len(world.session.frames) == number + 1
    assert world.transport.asked == []


def test_peer_that_sends_on_is_paused_and_its_frames_stay_in_order() -> None:
    world = World()
    world.session.may_take = False
    world.arrives(b"0000")
    world.session.may_take = True  # its turn has not come yet, although there is room
    world.arrives(b"11112222")
    assert world.session.frames == []
    assert world.transport.asked == ["pause"]
    world.loop.turn()
    assert world.transport.asked == ["pause", "resume"]
    world.arrives(world.unread)
    assert world.session.frames == [b"0000", b"1111", b"2222"]
