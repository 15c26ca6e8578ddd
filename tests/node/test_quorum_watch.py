"""When a node logs that the metadata quorum has no leader. Time is virtual."""

import logging
from collections.abc import Callable

import pytest

from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.node.quorum_watch import QuorumWatch
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.listener import LeaderAndEpoch
from pykraft.runtime.address import Address


class Timers:
    """A clock that a test advances, and that runs the timers that are due."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._due: dict[int, tuple[int, Callable[[], None]]] = {}
        self._numbers = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> "Handle":
        self._numbers += 1
        self._due[self._numbers] = (self.now_ms + int(delay_s * 1000), callback)
        return Handle(self, self._numbers)

    def cancel(self, number: int) -> None:
        self._due.pop(number, None)

    def sleep(self, seconds: int) -> None:
        until_ms = self.now_ms + seconds * 1000
        while self._due and min(self._due.values(), key=lambda due: due[0])[0] <= until_ms:
            number = min(self._due, key=lambda it: self._due[it][0])
            self.now_ms, callback = self._due.pop(number)
            callback()
        self.now_ms = until_ms


class Handle:
    def __init__(self, timers: Timers, number: int) -> None:
        self._timers = timers
        self._number = number

    def cancel(self) -> None:
        self._timers.cancel(self._number)


VOTERS = VoterSet([Voter(ReplicaKey(n, ZERO_UUID), Address(f"host{n}", 9093)) for n in (1, 2, 3)])


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def watch(timers: Timers, caplog: pytest.LogCaptureFixture) -> QuorumWatch:
    caplog.set_level(logging.WARNING)
    watch = QuorumWatch(timers, timers.call_later, lambda: VOTERS)
    watch.start()
    return watch


def test_node_that_finds_no_leader_logs_it_ever_more_rarely(
    watch: QuorumWatch, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    timers.sleep(4)
    assert caplog.messages == []
    timers.sleep(76)
    assert [message.split(": ")[0] for message in caplog.messages] == [
        f"the metadata quorum has had no leader for {seconds} s" for seconds in (5, 10, 20, 40, 80)
    ]
    assert caplog.messages[0].endswith("1 at host1:9093, 2 at host2:9093, 3 at host3:9093")


def test_election_in_time_is_not_logged(
    watch: QuorumWatch, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    watch.handle_leader_change(LeaderAndEpoch(2, 1))
    for epoch in range(2, 30):
        watch.handle_leader_change(LeaderAndEpoch(None, epoch))
        timers.sleep(4)
        watch.handle_leader_change(LeaderAndEpoch(3, epoch))
    timers.sleep(3600)
    assert caplog.messages == []


def test_epochs_without_a_leader_are_one_outage_and_its_end_is_logged(
    watch: QuorumWatch, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    watch.handle_leader_change(LeaderAndEpoch(2, 1))
    for epoch in range(2, 8):
        watch.handle_leader_change(LeaderAndEpoch(None, epoch))
        timers.sleep(1)
    watch.handle_leader_change(LeaderAndEpoch(3, 8))
    timers.sleep(3600)
    first, second = caplog.messages
    assert "no leader for 5 s" in first
    assert second == "the metadata quorum has a leader again, 3, after 6 s"


def test_stopped_watch_logs_nothing(
    watch: QuorumWatch, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    watch.stop()
    timers.sleep(3600)
    assert caplog.messages == []
