"""The rate of replication: against a plain model, and when a throttled replica may go on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.broker.replicas.replication_quota import (
    FOLLOWER_RATE,
    LEADER_RATE,
    RateMeter,
    ReplicationQuotas,
    is_throttled,
)

WINDOW_MS, WINDOWS = 1000, 11
RECORDED = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), max_size=40)


def model_rate(events: list[tuple[int, int]], now_ms: int) -> float:
    """As Kafka's SimpleRate: windows begin with what is recorded first in them."""
    windows: list[tuple[int, int]] = []
    for at_ms, size_bytes in events:
        if windows and at_ms < windows[-1][0] + WINDOW_MS:
            windows[-1] = (windows[-1][0], windows[-1][1] + size_bytes)
        else:
            windows.append((at_ms, size_bytes))
    kept = [(start, size) for start, size in windows if now_ms - start < WINDOWS * WINDOW_MS]
    return sum(size for _, size in kept) * 1000 / max(now_ms - kept[0][0], WINDOW_MS) if kept else 0.0


@settings(deadline=None, max_examples=60)
@given(RECORDED, st.integers(0, 15_000), st.integers(0, 3000))
def test_rate_is_that_of_the_last_eleven_windows_and_falls_when_it_is_said_to(
    steps: list[tuple[int, int]], wait_ms: int, limit: int
) -> None:
    meter, events, now_ms = RateMeter(), [], 0
    for pause_ms, size_bytes in steps:
        now_ms += pause_ms
        events.append((now_ms, size_bytes))
        meter.record(size_bytes, now_ms)
        assert meter.rate(now_ms) == model_rate(events, now_ms)
    now_ms += wait_ms
    free_ms = meter.falls_to(limit, now_ms)
    assert free_ms == next(
        at for at in range(now_ms, now_ms + WINDOWS * WINDOW_MS + 1) if model_rate(events, at) <= limit
    )
    assert meter.rate(free_ms) <= limit


def test_window_ends_before_the_next_second() -> None:
    meter = RateMeter()
    meter.record(5, 0)
    meter.record(7, WINDOW_MS)
    assert meter.rate(WINDOWS * WINDOW_MS) == 7 * 1000 / ((WINDOWS - 1) * WINDOW_MS), "the first has gone"


def test_quota_without_a_limit_is_never_exceeded() -> None:
    quotas = ReplicationQuotas()
    quotas.leader.record(1 << 40, 0)
    assert not quotas.leader.is_exceeded(1) and quotas.leader.free_at_ms(1) == 1
    quotas.set_limits({LEADER_RATE: "1000", FOLLOWER_RATE: "0"})
    assert quotas.leader.is_exceeded(1) and quotas.leader.free_at_ms(1) == WINDOWS * WINDOW_MS
    assert not quotas.follower.is_exceeded(1)
    quotas.set_limits({})
    assert not quotas.leader.is_exceeded(1)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [("", False), ("*", True), ("0:1", False), ("1:2", True), ("0:2,1:2", True), ("1:22,11:2", False)],
)
def test_list_names_single_replicas_or_all(replicas: str, expected: bool) -> None:
    assert is_throttled(replicas, 1, 2) is expected
