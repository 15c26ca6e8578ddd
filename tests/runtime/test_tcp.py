"""When a connection reads: a peer whose request waits for its turn is paused once it sends more."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pykraft.runtime.network.tcp import StreamConnection, StreamRuntime

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


class Answering(Session):
    """Sends every frame back."""

    def __init__(self, name: str, seen: list[str], is_urgent: bool) -> None:
        super().__init__()
        self.name, self.seen, self.is_urgent = name, seen, is_urgent
        self.may_take = False
        self.link: StreamConnection

    def receive(self, data: memoryview) -> int:
        taken = len(self.frames)
        consumed = super().receive(data)
        for frame in self.frames[taken:]:
            self.seen.append(f"{self.name} takes")
            self.link.write([frame], urgent=self.is_urgent)
        return consumed


class Sending(Transport):
    def __init__(self, name: str, seen: list[str]) -> None:
        super().__init__()
        self.name, self.seen = name, seen

    def write(self, data: bytes) -> None:
        self.seen.append(f"{self.name} sends")

    def abort(self) -> None:
        self.seen.append(f"{self.name} ends")


def answered_after_a_wait(*, is_urgent: bool = False, closed: str = "") -> list[str]:
    """What happens in the turn that two connections have waited for; ``closed`` is closed by the other."""
    seen: list[str] = []
    loop = Loop()
    runtime = StreamRuntime(cast(asyncio.AbstractEventLoop, loop), now_us=lambda: 0)
    sessions = [Answering(name, seen, is_urgent) for name in "ab"]
    for session in sessions:

        def accept(link: StreamConnection, session: Answering = session) -> Answering:
            session.link = link
            return session

        connection = StreamConnection(runtime, accept)
        connection.connection_made(cast(Any, Sending(session.name, seen)))
        connection.get_buffer(-1)[:FRAME_BYTES] = b"1234"
        connection.buffer_updated(FRAME_BYTES)
    assert not seen
    for session in sessions:
        session.may_take = True
    if closed:
        runtime.budget.defer(sessions["ab".index(closed)].link.close, "lane")
    loop.turn()
    assert not runtime.budget.waiting
    return seen


def test_answers_to_those_that_have_waited_are_sent_together() -> None:
    assert answered_after_a_wait() == ["a takes", "b takes", "a sends", "b sends"]


def test_urgent_output_waits_for_nobody() -> None:
    assert answered_after_a_wait(is_urgent=True) == ["a takes", "a sends", "b takes", "b sends"]


def test_connection_that_is_closed_before_its_answer_is_sent_keeps_no_other_from_it() -> None:
    assert answered_after_a_wait(closed="a") == ["a takes", "b takes", "a ends", "b sends"]
