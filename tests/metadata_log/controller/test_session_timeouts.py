"""Controllers whose ``broker.session.timeout.ms`` differ: no lease of one outlasts a fence of another."""

from collections.abc import Callable
from random import Random

import pytest

from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.leadership import LeadershipProof
from pykraft.metadata_log.records import NoOpRecord
from tests.metadata_log.harness import ControllerHarness

LONG, SHORT = ControllerConfig(session_timeout_ms=60_000), ControllerConfig(session_timeout_ms=9000)
STEP_MS = 500


def test_expired_sessions_are_looked_for_eight_times_a_session() -> None:
    assert (LONG.fence_check_interval_ms, SHORT.fence_check_interval_ms) == (7500, 1125)
    assert (SHORT.late_reading_ms, SHORT.lease_proof_max_age_ms) == (140, 3000)
    shortest = ControllerConfig(session_timeout_ms=4)
    assert (shortest.fence_check_interval_ms, shortest.late_reading_ms) == (1, 1)


def fenced_after_ms(cluster: ControllerHarness, most_ms: int = 200_000) -> int:
    """The time from now until broker 1, which is silent, is fenced; the others send heartbeats."""
    began_ms = cluster.now_ms
    while not cluster.image.brokers[1].fenced:
        assert cluster.now_ms - began_ms <= most_ms
        cluster.now_ms += STEP_MS
        cluster.heartbeat(2)
        cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
        cluster.commit()
    return int(cluster.now_ms - began_ms)


@pytest.fixture
def led_by_the_longer(make_controller: Callable[..., ControllerHarness]) -> ControllerHarness:
    """Brokers 1 and 2 are active under a controller with a session of 60 s."""
    harness = make_controller(0, LONG)
    harness.start_brokers(1, 2)
    harness.commit()
    return harness


def test_log_has_the_longest_lease_before_any_is_granted(
    make_controller: Callable[..., ControllerHarness],
) -> None:
    assert make_controller(0, LONG).image.longest_session_ms == 60_000


def test_successor_with_a_shorter_session_first_waits_out_the_longer_one(
    led_by_the_longer: ControllerHarness,
) -> None:
    led_by_the_longer.succeed(SHORT)
    assert fenced_after_ms(led_by_the_longer) == 60_000


def test_heartbeat_does_not_shorten_an_earlier_lease(led_by_the_longer: ControllerHarness) -> None:
    """The answer may be lost: the broker then only knows its older, longer lease."""
    led_by_the_longer.succeed(SHORT)
    led_by_the_longer.now_ms += 1000
    led_by_the_longer.heartbeat(1)
    assert fenced_after_ms(led_by_the_longer) == 59_000
    led_by_the_longer.now_ms += 1000
    led_by_the_longer.heartbeat(1)
    led_by_the_longer.commit()
    assert not led_by_the_longer.image.brokers[1].fenced
    assert fenced_after_ms(led_by_the_longer) == 9000


def test_stalled_broker_keeps_its_earlier_lease(led_by_the_longer: ControllerHarness) -> None:
    stuck_at = led_by_the_longer.image.offset
    led_by_the_longer.succeed(SHORT)
    began_ms = led_by_the_longer.now_ms
    while not led_by_the_longer.image.brokers[1].fenced:
        led_by_the_longer.now_ms += STEP_MS
        led_by_the_longer.append((NoOpRecord(),))
        led_by_the_longer.heartbeat(1, offset=stuck_at)
        led_by_the_longer.heartbeat(2)
        led_by_the_longer.run(led_by_the_longer.core.handle_fence_check(led_by_the_longer.now_ms))
        led_by_the_longer.commit()
    assert led_by_the_longer.now_ms - began_ms == 60_000


def test_successors_that_fail_one_after_the_other_all_wait_out_the_longer_session(
    led_by_the_longer: ControllerHarness,
) -> None:
    led_by_the_longer.succeed(SHORT)
    led_by_the_longer.commit()
    led_by_the_longer.now_ms += 20_000
    led_by_the_longer.run(led_by_the_longer.core.handle_fence_check(led_by_the_longer.now_ms))
    led_by_the_longer.commit()
    led_by_the_longer.succeed(SHORT)
    assert fenced_after_ms(led_by_the_longer) == 60_000


def test_shorter_session_applies_once_no_longer_lease_can_remain(
    led_by_the_longer: ControllerHarness,
) -> None:
    led_by_the_longer.succeed(SHORT)
    for passed_ms in range(0, 60_000, STEP_MS):
        assert led_by_the_longer.image.longest_session_ms == 60_000, passed_ms
        led_by_the_longer.now_ms += STEP_MS
        led_by_the_longer.heartbeat_active_brokers()
        led_by_the_longer.run(led_by_the_longer.core.handle_fence_check(led_by_the_longer.now_ms))
        led_by_the_longer.commit()
    assert led_by_the_longer.image.longest_session_ms == 9000
    led_by_the_longer.succeed(SHORT)
    assert fenced_after_ms(led_by_the_longer) == 9000


def test_same_session_everywhere_adds_nothing_to_the_log(led_by_the_longer: ControllerHarness) -> None:
    before = led_by_the_longer.image.offset
    led_by_the_longer.succeed(LONG)
    led_by_the_longer.now_ms += 61_000
    led_by_the_longer.heartbeat_active_brokers()
    led_by_the_longer.run(led_by_the_longer.core.handle_fence_check(led_by_the_longer.now_ms))
    assert led_by_the_longer.image.offset == before


def test_no_lease_outlasts_a_fence_whatever_the_controllers_are_configured_with(
    make_controller: Callable[..., ControllerHarness],
) -> None:
    assert sum(fences_of_random_reigns(make_controller, seed) for seed in range(12)) > 20


def fences_of_random_reigns(make_controller: Callable[..., ControllerHarness], seed: int) -> int:
    """Leaders with random sessions for random times; brokers that fall silent, and answers without delay."""
    rng = Random(seed)
    configs = [ControllerConfig(session_timeout_ms=rng.choice((4000, 9000, 30_000))) for _ in range(3)]
    cluster = make_controller(seed, configs[0])
    cluster.start_brokers(1, 2, 3)
    cluster.commit()
    leases_end_ms = dict.fromkeys((1, 2, 3), 0)
    silent_until_ms = dict.fromkeys((1, 2, 3), 0)
    fences = 0
    for _ in range(300):
        cluster.now_ms += rng.randrange(1, 2000)
        if rng.random() < 0.06:
            cluster.succeed(rng.choice(configs))
            cluster.commit()
        for broker_id in (1, 2, 3):
            if cluster.now_ms < silent_until_ms[broker_id]:
                continue
            if rng.random() < 0.05:
                silent_until_ms[broker_id] = cluster.now_ms + rng.randrange(60_000)
            answer = cluster.heartbeat(broker_id)
            cluster.commit()
            proof = LeadershipProof()
            proof.handle_append(1, cluster.now_ms)
            proof.handle_commit(1)
            epoch = cluster.image.brokers[broker_id].epoch
            current_ms = cluster.core.current_ms(broker_id, epoch)
            if not answer.is_fenced:
                lease_ms = proof.lease_ms(cluster.config.session_timeout_ms, cluster.now_ms, current_ms)
                leases_end_ms[broker_id] = max(leases_end_ms[broker_id], cluster.now_ms + lease_ms)
        active = [broker_id for broker_id in (1, 2, 3) if cluster.image.is_active(broker_id)]
        cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
        cluster.commit()
        for broker_id in active:
            if cluster.image.brokers[broker_id].fenced:
                fences += 1
                assert cluster.now_ms >= leases_end_ms[broker_id], f"broker {broker_id} held a lease"
    return fences
