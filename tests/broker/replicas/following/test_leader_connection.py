"""Answers of a leader that nobody can trust: each belongs to the oldest request, or ends the connection."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.replicas.following.leader_connection import Asked, LeaderConnection
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.runtime.network.tcp import StreamConnection, StreamRuntime


class Transport(asyncio.Transport):
    """Its other end is the test."""

    def abort(self) -> None: ...


class Followed:
    """What is fetched over one connection; the first ``requests`` requests have been sent."""

    def __init__(self, requests: int) -> None:
        loop: Any = SimpleNamespace(call_soon=None, time=lambda: 0.0)
        self.link = StreamConnection(StreamRuntime(loop), lambda link: self.connection)
        self.link._corked = True
        self.answered: list[tuple[Asked, bytes]] = []
        self.rounds = 0
        self.connection = LeaderConnection(self.link, 1, self._handle, self._fetch)
        self.link.connection_made(Transport())
        self.asked = [Asked(number == 0, {}) for number in range(requests)]
        for asked in self.asked:
            self.connection.send(bytearray(b"fetch"), asked)

    def _handle(self, asked: Asked, frame: memoryview) -> None:
        self.answered.append((asked, bytes(frame)))

    def _fetch(self) -> None:
        self.rounds += 1

    def receive(self, *correlation_ids: int) -> None:
        frames = [number.to_bytes(4, "big") + b"answer %d" % number for number in correlation_ids]
        data = b"".join(len(frame).to_bytes(SIZE_BYTES, "big") + frame for frame in frames)
        assert self.connection.receive(memoryview(data)) == len(data)


def test_next_round_begins_when_all_requests_are_answered() -> None:
    followed = Followed(requests=3)
    followed.receive(1, 2)
    assert (followed.rounds, followed.connection.in_flight) == (0, 1)
    followed.receive(3)
    assert (followed.rounds, followed.connection.in_flight) == (1, 0)
    assert [asked for asked, _ in followed.answered] == followed.asked
    assert [frame[4:] for _, frame in followed.answered] == [b"answer 1", b"answer 2", b"answer 3"]
    assert not followed.link.closed


@pytest.mark.parametrize(
    ("requests", "received", "taken"),
    [(0, [0], 0), (0, [1], 0), (1, [1, 1], 1), (1, [1, 2], 1), (2, [2], 0), (2, [1, 3], 1), (2, [0], 0)],
)
def test_answer_that_nobody_waits_for_ends_the_connection_and_is_not_taken_for_another(
    requests: int, received: list[int], taken: int
) -> None:
    followed = Followed(requests)
    followed.receive(*received)
    assert followed.link.closed
    assert len(followed.answered) == followed.connection.answers == taken
