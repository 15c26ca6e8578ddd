"""Brokers that send heartbeats but do not follow the metadata log: fenced after a session."""

import pytest

from pykraft.metadata_log.controller.calls.requests import BrokerHeartbeatRequest
from pykraft.metadata_log.controller.leadership import LeadershipProof
from pykraft.metadata_log.records import BrokerRegistrationChangeRecord, NoOpRecord
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import as_type

HEARTBEAT_MS = 2000
SESSION_MS = 9000


def grow(cluster: ControllerHarness) -> None:
    """Commit one more record."""
    cluster.append((NoOpRecord(),))
    cluster.commit()


def pass_time(cluster: ControllerHarness, duration_ms: int, offsets: dict[int, int | None]) -> int | None:
    """Heartbeats of brokers that have applied up to these offsets, or everything (None), and fence checks.

    Returns when broker 1 was fenced, in milliseconds from now; None if it was not.
    """
    started_ms = cluster.now_ms
    next_ms = cluster.now_ms
    while cluster.now_ms < started_ms + duration_ms:
        if cluster.now_ms >= next_ms:
            next_ms += HEARTBEAT_MS
            for broker_id, offset in offsets.items():
                cluster.heartbeat(broker_id, offset=offset)
        cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
        cluster.commit()
        if cluster.image.brokers[1].fenced:
            return int(cluster.now_ms - started_ms)
        cluster.now_ms += 100
    return None


def test_broker_that_heartbeats_but_is_stalled_is_fenced_after_a_session(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.commit()
    stuck_at = cluster.image.offset
    grow(cluster)
    fenced_after_ms = pass_time(cluster, 20_000, {1: stuck_at, 2: None, 3: None})
    assert fenced_after_ms == SESSION_MS
    assert cluster.partition("t").leader == 2
    assert not cluster.image.brokers[2].fenced and not cluster.image.brokers[3].fenced


def test_fence_check_distinguishes_stale_from_silent_brokers(cluster: ControllerHarness) -> None:
    cluster.commit()
    stuck_at = cluster.image.offset
    grow(cluster)
    for _ in range(2):
        cluster.heartbeat(1, offset=stuck_at)
        cluster.heartbeat(2, offset=stuck_at)
        cluster.heartbeat(3)
        cluster.now_ms += SESSION_MS - 1
    cluster.heartbeat(1, offset=stuck_at)
    cluster.heartbeat(3)
    cluster.now_ms += 1
    result = cluster.core.handle_fence_check(cluster.now_ms)
    assert [as_type(record, BrokerRegistrationChangeRecord).broker_id for record in result.records] == [1, 2]
    assert result.response == {1}


def test_broker_that_makes_any_progress_is_not_fenced(cluster: ControllerHarness) -> None:
    cluster.commit()
    offset = cluster.image.offset
    for _ in range(10):
        for _ in range(5):
            grow(cluster)
        assert pass_time(cluster, SESSION_MS - 100, {1: offset, 2: None, 3: None}) is None
        offset += 1


def test_broker_with_nothing_to_apply_for_hours_has_a_session_from_the_next_record(
    cluster: ControllerHarness,
) -> None:
    cluster.commit()
    seen = cluster.image.offset
    assert pass_time(cluster, 60_000, dict.fromkeys((1, 2, 3))) is None
    cluster.now_ms += SESSION_MS - 2000  # its heartbeats are lost for some time
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    grow(cluster)
    assert pass_time(cluster, SESSION_MS, {1: seen, 2: None, 3: None}) is None
    assert pass_time(cluster, 100, {1: seen, 2: None, 3: None}) == 0


def test_fenced_stale_broker_stays_fenced_until_it_has_caught_up(cluster: ControllerHarness) -> None:
    stuck_at = cluster.image.offset
    grow(cluster)
    assert pass_time(cluster, 20_000, {1: stuck_at, 2: None, 3: None}) is not None
    fenced_at = cluster.image.brokers[1].last_change_offset
    for offset in (stuck_at, stuck_at, stuck_at + 1, fenced_at - 1):
        for _ in range(100):
            cluster.now_ms += 100
            assert cluster.heartbeat(1, offset=offset).is_fenced
            cluster.heartbeat(2)
            cluster.heartbeat(3)
            cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
            cluster.commit()
    assert cluster.image.brokers[1].last_change_offset == fenced_at
    assert not cluster.heartbeat(1).is_fenced
    cluster.commit()
    assert pass_time(cluster, 30_000, dict.fromkeys((1, 2, 3))) is None


def test_broker_that_is_stalled_while_it_recovers_its_logs_is_not_unfenced(
    controller: ControllerHarness,
) -> None:
    """It would be fenced again at once, and get no lease."""
    epoch = controller.register(1)
    seen = controller.image.offset
    controller.commit()
    controller.heartbeat(1, want_fence=True, offset=seen)
    grow(controller)
    for _ in range(SESSION_MS // 20):
        controller.now_ms += 20
        controller.heartbeat(1, want_fence=True, offset=seen)
    answer = controller.heartbeat(1, offset=seen)
    assert answer.is_caught_up and answer.is_fenced
    controller.heartbeat(1)
    assert not controller.heartbeat(1).is_fenced
    assert controller.core.current_ms(1, epoch) == controller.now_ms


def test_new_active_controller_gives_a_full_session_before_it_judges(cluster: ControllerHarness) -> None:
    stuck_at = cluster.image.offset
    grow(cluster)
    pass_time(cluster, SESSION_MS - 1000, {1: stuck_at, 2: None, 3: None})
    cluster.lose_leadership()
    assert pass_time(cluster, 20_000, {1: stuck_at, 2: None, 3: None}) == SESSION_MS


def test_time_in_which_the_controller_was_stalled_expires_no_session(
    cluster: ControllerHarness,
) -> None:
    """Heartbeats in its sockets name what was applied before the stall; the next are two seconds away."""
    cluster.commit()
    seen = cluster.image.offset
    grow(cluster)
    cluster.heartbeat(1, offset=seen)
    cluster.now_ms += SESSION_MS + 1
    cluster.core.extend_for_stall(SESSION_MS, cluster.now_ms)
    cluster.heartbeat(1, offset=seen)
    assert pass_time(cluster, HEARTBEAT_MS - 100, {2: None}) is None
    cluster.heartbeat(1)
    assert pass_time(cluster, 20_000, {2: None, 3: None}) == SESSION_MS
    assert cluster.image.brokers[1].fenced


def test_stall_of_the_controller_does_not_extend_a_lease(cluster: ControllerHarness) -> None:
    cluster.heartbeat(1)
    epoch, current_ms = cluster.image.brokers[1].epoch, cluster.now_ms
    cluster.now_ms += SESSION_MS
    cluster.core.extend_for_stall(SESSION_MS, cluster.now_ms)
    assert cluster.core.current_ms(1, epoch) == current_ms
    cluster.now_ms += 1
    cluster.core.extend_for_stall(SESSION_MS, cluster.now_ms)
    fenced_ms = pass_time(cluster, 20_000, {2: None, 3: None})
    assert fenced_ms is not None and SESSION_MS - 100 <= fenced_ms <= SESSION_MS, (
        "it ends as if there had been no stall"
    )


def test_stalled_broker_is_fenced_although_the_controller_stalls_repeatedly(
    cluster: ControllerHarness,
) -> None:
    """Its heartbeats are read after each stall; they report the same offset for two sessions and a stall."""
    cluster.commit()
    seen, began_ms, stall_ms, run_ms = cluster.image.offset, cluster.now_ms, 1600, 400
    grow(cluster)
    while not cluster.image.brokers[1].fenced:
        cluster.now_ms += stall_ms
        cluster.core.extend_for_stall(stall_ms, cluster.now_ms)
        cluster.heartbeat(1, offset=seen)
        cluster.heartbeat(2)
        cluster.heartbeat(3)
        cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
        cluster.commit()
        cluster.now_ms += run_ms
        assert cluster.now_ms - began_ms <= 2 * SESSION_MS + 3 * (stall_ms + run_ms)
    assert not cluster.image.brokers[2].fenced


# --- how far back a lease reaches ------------------------------------------------------------------------


def lease_ms(cluster: ControllerHarness, broker_id: int) -> int:
    """The lease in an answer that is sent now, by a controller that has just proven its leadership."""
    proof = LeadershipProof()
    proof.handle_append(1, cluster.now_ms)
    proof.handle_commit(1)
    epoch = cluster.image.brokers[broker_id].epoch
    return proof.lease_ms(SESSION_MS, cluster.now_ms, cluster.core.current_ms(broker_id, epoch))


def test_leases_of_a_stalled_broker_end_within_a_session_of_what_it_misses(
    cluster: ControllerHarness,
) -> None:
    cluster.heartbeat(1)
    stuck_at = cluster.image.offset
    cluster.now_ms += 1
    missed_ms = cluster.now_ms
    grow(cluster)
    ends_ms = []
    for _ in range(200):
        cluster.now_ms += 100
        cluster.heartbeat(1, offset=stuck_at)
        granted_ms = lease_ms(cluster, 1)
        ends_ms.append(cluster.now_ms + granted_ms if granted_ms else 0)
    assert 0 < max(ends_ms) < missed_ms + SESSION_MS * 0.9
    assert ends_ms[-1] == 0


def test_broker_that_is_behind_is_current_as_of_the_previous_answer(cluster: ControllerHarness) -> None:
    """And not as of the heartbeat that reports it: more has been committed since."""
    epoch, seen = cluster.image.brokers[1].epoch, cluster.image.offset
    grow(cluster)
    asked_ms, asked = cluster.now_ms, cluster.image.offset
    cluster.heartbeat(1, offset=seen)
    cluster.now_ms += HEARTBEAT_MS
    grow(cluster)
    cluster.heartbeat(1, offset=asked)
    assert cluster.core.current_ms(1, epoch) == asked_ms
    cluster.now_ms += HEARTBEAT_MS
    cluster.heartbeat(1)
    assert cluster.core.current_ms(1, epoch) == cluster.now_ms


@pytest.mark.parametrize("delay_ms", [0, 100, 1000])
def test_leases_last_from_heartbeat_to_heartbeat_although_the_log_always_grows(
    cluster: ControllerHarness, delay_ms: int
) -> None:
    """A record is committed every 50 ms, and broker 1 applies it with this delay: it is always behind."""
    committed: list[tuple[int, int]] = []
    ends_ms = cluster.now_ms + SESSION_MS
    for step in range(1200):
        cluster.now_ms += 50
        grow(cluster)
        if step % (HEARTBEAT_MS // 50) == 0:
            applied = [offset for at_ms, offset in committed if at_ms <= cluster.now_ms - delay_ms]
            cluster.heartbeat(1, offset=applied[-1] if applied else cluster.image.offset)
            assert ends_ms - cluster.now_ms > SESSION_MS // 4, "the lease ends before the next answer"
            ends_ms = cluster.now_ms + lease_ms(cluster, 1)
            assert ends_ms - cluster.now_ms > SESSION_MS // 2
        cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
        cluster.heartbeat(2)
        cluster.heartbeat(3)
        committed.append((cluster.now_ms, cluster.image.offset))
        assert not cluster.image.brokers[1].fenced


def test_broker_that_is_unfenced_under_load_has_a_lease_at_once(controller: ControllerHarness) -> None:
    """Whatever offset it reports, more is committed by then."""
    controller.register(1)
    controller.commit()
    for _ in range(3):
        applied = controller.image.offset
        grow(controller)
        controller.now_ms += 20
        if not controller.heartbeat(1, offset=applied).is_fenced:
            break
    assert not controller.image.brokers[1].fenced
    assert lease_ms(controller, 1) > SESSION_MS // 2


def test_new_controller_grants_leases_with_the_first_heartbeat_although_the_log_always_grows(
    cluster: ControllerHarness,
) -> None:
    cluster.commit()
    cluster.lose_leadership()
    cluster.commit()
    epoch = cluster.image.brokers[1].epoch
    assert cluster.core.current_ms(1, epoch) is None
    claimed_ms, seen = cluster.now_ms, cluster.image.offset
    cluster.now_ms += 500
    grow(cluster)
    cluster.heartbeat(1, offset=seen)
    assert cluster.core.current_ms(1, epoch) == claimed_ms
    assert lease_ms(cluster, 1) > SESSION_MS // 2


def test_progress_of_one_process_does_not_count_for_the_next(cluster: ControllerHarness) -> None:
    replaced = cluster.image.brokers[1].epoch
    cluster.heartbeat(1)
    assert cluster.core.current_ms(1, replaced) == cluster.now_ms
    epoch = cluster.register(1, incarnation=2, dead=(1,))
    assert cluster.core.current_ms(1, epoch) is None
    assert cluster.core.current_ms(1, replaced) is None


def test_late_old_heartbeat_reverts_nothing(cluster: ControllerHarness) -> None:
    grow(cluster)
    cluster.heartbeat(1)
    request = BrokerHeartbeatRequest(1, cluster.image.brokers[1].epoch, 0)
    cluster.now_ms += 10
    cluster.run(cluster.core.handle_broker_heartbeat(request, cluster.now_ms))
    assert cluster.core.current_ms(1, request.broker_epoch) == cluster.now_ms
