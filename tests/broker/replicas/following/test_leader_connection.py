"""Answers of a leader that nobody can trust: each belongs to the oldest request, or ends the connection."""

from typing import Any

import pytest

from pykraft.broker.replicas.following.leader_connection import Asked, LeaderConnection
from pykraft.kafka_protocol.framing import SIZE_BYTES


class Link:
    """A connection whose other end is the test."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, chunks: list[bytearray], *, urgent: bool) -> None:
        self.sent += map(bytes, chunks)

    def close(self) -> None:
        self.is_closed = True


class Followed:
    """What is fetched over one connection; the first ``requests`` requests have been sent."""

    def __init__(self, requests: int) -> None:
        self.link = Link()
        self.answered: list[tuple[Asked, bytes]] = []
        self.rounds = 0
        link: Any = self.link
        self.connection = LeaderConnection(link, 1, self._handle, self._fetch)
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
    assert not followed.link.is_closed


@pytest.mark.parametrize(
    ("requests", "received", "taken"),
    [(0, [0], 0), (0, [1], 0), (1, [1, 1], 1), (1, [1, 2], 1), (2, [2], 0), (2, [1, 3], 1), (2, [0], 0)],
)
def test_answer_that_nobody_waits_for_ends_the_connection_and_is_not_taken_for_another(
    requests: int, received: list[int], taken: int
) -> None:
    followed = Followed(requests)
    followed.receive(*received)
    assert followed.link.is_closed
    assert len(followed.answered) == followed.connection.answers == taken
