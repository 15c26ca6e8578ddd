"""Measured requests: their phases by a clock that the test sets, and those that never get an answer."""

import logging
import struct
from collections.abc import Callable

import pytest

from pykraft.broker.serving.request_metrics import MeasuredRequests
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from tests.broker.links import ConnectedLink

FETCH, VERSION = 1, 16
SERVED = {FETCH: ("Fetch", range(4, 18))}


class World:
    """A connection whose requests are measured; ``take`` decides what happens to each."""

    def __init__(self, slow_ms: int = 0) -> None:
        self.now_us = 0
        self.slots: list[ResponseSlot] = []
        self.take: Callable[[ResponseSlot], None] = self.slots.append
        self.requests = MeasuredRequests(self, SERVED, lambda: self.now_us, slow_ms)
        self.link = ConnectedLink(self.requests, "10.0.0.7", 1000)
        self.connection = self.link.connection
        self.fetch = self.requests.times[FETCH]

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        self.take(slot)

    def receive(self, api: int = FETCH, version: int = VERSION) -> None:
        self.link.send(struct.pack(">hhi", api, version, 7))


def test_phases_of_a_request_that_waits_and_is_answered_in_its_order() -> None:
    world = World()

    def take(slot: ResponseSlot) -> None:
        world.slots.append(slot)
        world.now_us += 100

    world.take = take
    world.receive()  # at 0, handled at 100
    world.receive()  # at 100, handled at 200
    world.now_us = 1000
    world.slots[1].complete([b"second"])
    assert world.fetch.total.count == 0 and world.fetch.waiting == 2
    world.now_us = 5000
    world.slots[0].complete([b"first"])
    fetch = world.fetch
    assert fetch.requests == {VERSION: 2} and fetch.waiting == 0
    assert fetch.local.sum_us == 100 + 100
    assert fetch.remote.sum_us == (5000 - 100) + (1000 - 200)
    assert fetch.response_queue.sum_us == 0 + (5000 - 1000)
    assert fetch.total.sum_us == 5000 + (5000 - 100)


def test_answer_within_the_handler_is_all_local() -> None:
    world = World()

    def take(slot: ResponseSlot) -> None:
        world.now_us += 70
        slot.complete([b"answer"])

    world.take = take
    world.receive()
    fetch = world.fetch
    assert (fetch.local.sum_us, fetch.remote.sum_us, fetch.total.sum_us) == (70, 0, 70)
    assert fetch.total.counts[(70).bit_length()] == 1


def test_request_whose_connection_ends_waits_no_longer() -> None:
    world = World()
    world.receive()
    world.receive()
    world.slots[1].complete([b"never sent"])
    world.connection.connection_lost()
    world.slots[0].complete([b"too late"])
    assert (world.fetch.waiting, world.fetch.abandoned, world.fetch.total.count) == (0, 2, 0)


def test_held_request_is_received_once() -> None:
    world = World()
    world.take = lambda slot: world.connection.hold_frame(5)
    world.receive()
    world.take = lambda slot: slot.complete([b"answer"])
    world.connection.retry_frame()
    assert world.fetch.requests == {VERSION: 1} and world.fetch.waiting == 0


def test_requests_of_versions_that_are_not_served_leave_nothing_behind() -> None:
    world = World()
    world.take = lambda slot: slot.complete([b"answer"])
    for version in (3, 4, 17, 18, -1, 30_000):
        world.receive(version=version)
    assert world.fetch.requests == {4: 1, 17: 1}
    assert world.fetch.total.count == 2 and world.fetch.waiting == 0


def test_requests_of_other_apis_are_passed_on() -> None:
    world = World()
    world.receive(api=999)
    assert len(world.slots) == 1 and world.slots[0].observer is None
    world.link.send(b"\0")
    assert len(world.slots) == 2


@pytest.mark.parametrize(("took_us", "is_slow"), [(49_999, False), (50_000, True)])
def test_slow_requests_are_logged(caplog: pytest.LogCaptureFixture, took_us: int, is_slow: bool) -> None:
    world = World(slow_ms=50)
    world.receive()
    world.now_us = took_us
    with caplog.at_level(logging.INFO, "pykraft.request"):
        world.slots[0].complete([b"answer"])
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == is_slow
    if is_slow:
        assert "Fetch version 16 from 10.0.0.7" in lines[0] and "50.0 ms" in lines[0]


def test_request_log_has_a_line_for_each(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    with caplog.at_level(logging.DEBUG, "pykraft.request"):
        world.receive()
        world.slots[0].complete([b"answer"])
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
