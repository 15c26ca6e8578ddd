"""A broker with few members asks them to return sooner; with many, after the interval that is configured."""

import pytest

from pykraft.group_coordinator.consumer.heartbeat import HeartbeatPace
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.metadata_log.persistent import Map


@pytest.mark.parametrize(
    ("members", "interval_ms"),
    [(0, 1_000), (1, 1_000), (50, 1_000), (51, 1_020), (100, 2_000), (250, 5_000), (10_000, 5_000)],
)
def test_the_members_of_a_broker_share_fifty_heartbeats_a_second(members: int, interval_ms: int) -> None:
    assert HeartbeatPace(lambda: members).interval_ms(GroupConfig()) == interval_ms


def test_an_interval_that_is_shorter_is_kept() -> None:
    config = GroupConfig(consumer_heartbeat_interval_ms=300)
    assert HeartbeatPace(lambda: 1).interval_ms(config) == 300


def test_a_rate_of_zero_leaves_the_interval_alone() -> None:
    config = GroupConfig(consumer_heartbeats_per_second=0)
    assert HeartbeatPace(lambda: 1).interval_ms(config) == 5_000


def test_a_group_with_an_interval_of_its_own_keeps_it() -> None:
    config = GroupConfig()
    own = config.with_group_overrides(Map({"consumer.heartbeat.interval.ms": "5000"}))
    other = config.with_group_overrides(Map({"consumer.session.timeout.ms": "50000"}))
    pace = HeartbeatPace(lambda: 1)
    assert (pace.interval_ms(own), pace.interval_ms(other)) == (5_000, 1_000)


def test_a_thousand_members_that_join_at_once_are_slowed_down_while_they_join() -> None:
    joined = counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return joined

    pace = HeartbeatPace(count)
    told_ms = []
    for joined in range(1_000):  # noqa: B007 - the number that have joined before
        told_ms.append(pace.interval_ms(GroupConfig()))
    assert told_ms == sorted(told_ms)
    assert sum(1_000 / interval_ms for interval_ms in told_ms) < 400, "heartbeats a second, of 1,000"
    assert (told_ms[-1], counted < 100) == (5_000, True)


@pytest.mark.parametrize(("wanted_ms", "used_ms"), [(500, 500), (100, 200), (9_000, 800)])
def test_interval_of_a_group_keeps_between_what_the_broker_allows(wanted_ms: int, used_ms: int) -> None:
    config = GroupConfig(
        consumer_heartbeat_interval_ms=600,
        consumer_min_heartbeat_interval_ms=200,
        consumer_max_heartbeat_interval_ms=800,
    )
    own = config.with_group_overrides(Map({"consumer.heartbeat.interval.ms": str(wanted_ms)}))
    assert own.consumer_heartbeat_interval_ms == used_ms
