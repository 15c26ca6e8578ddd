"""Requests that are handled in slices. Of each API its tests say that it is answered as at once, that no turn
does more than its share, that others are served meanwhile, and what comes of changes that happen meanwhile.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from pykraft.kafka_protocol.connection import Connection, RequestHandler
from pykraft.runtime.network.streams import Chunk
from pykraft.runtime.turns import TURN_US, TurnBudget
from tests.broker.links import RecordedLink

T = TypeVar("T")


class Turns:
    """Counts the turns of the running loop, and what is noted in each.

    Each look at the clock of ``budget`` shows ``look_us`` more.
    """

    def __init__(self, look_us: int = TURN_US // 2) -> None:
        self._loop = asyncio.get_running_loop()
        self._look_us = look_us
        self.number = self.now_us = 0
        self.noted: Counter[int] = Counter()
        self.budget = TurnBudget(self._loop.call_soon, self._look)
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._handle = self._loop.call_soon(self._count)

    def _look(self) -> int:
        self.now_us += self._look_us
        return self.now_us

    def note(self) -> None:
        self.noted[self.number] += 1

    @property
    def most(self) -> int:
        """That was noted in one turn."""
        return max(self.noted.values(), default=0)

    def stop(self) -> None:
        self._handle.cancel()


async def turns_of(
    asked: Awaitable[T], meanwhile: Callable[[int], object] = lambda turn: None
) -> tuple[T, int]:
    """The answer, and in how many turns it was given; ``meanwhile`` happens in each that did not bring it."""
    turns, waiting = 0, asyncio.ensure_future(asked)
    while not waiting.done():
        turns += 1
        await asyncio.sleep(0)
        if not waiting.done():
            meanwhile(turns)
    return waiting.result(), turns


def pauses_of(work: Iterable[object]) -> int:
    """How often it pauses until its end."""
    return sum(1 for _ in work)


class Client(RecordedLink):
    """One connection; what it sends is given to the server as far as it takes it."""

    def __init__(self, handler: RequestHandler, turns: Turns) -> None:
        super().__init__()
        self._turns = turns
        self._unread = bytearray()
        self.answered: list[int] = []
        """The turn of each answer."""
        self.connection = Connection(
            self,
            handler,
            connection_id=1,
            peer_address="127.0.0.1",
            listener_name="PLAINTEXT",
            max_request_bytes=100 << 20,
        )

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self._unread += struct.pack(">i", len(frame)) + frame
        self.receive_more()

    def frames(self) -> list[bytes]:
        """The answers."""
        found, at = [], 0
        while at < len(self.sent):
            end = at + 4 + int(struct.unpack_from(">i", self.sent, at)[0])
            found.append(bytes(self.sent[at + 4 : end]))
            at = end
        return found

    # The transport, as the connection sees it.

    def write(self, chunks: Sequence[Chunk]) -> None:
        super().write(chunks)
        self.answered.append(self._turns.number)

    def close(self) -> None:
        super().close()
        self.connection.connection_lost()

    def receive_more(self) -> None:
        if not self.closed:
            taken = self.connection.receive(memoryview(bytes(self._unread)))
            del self._unread[:taken]
