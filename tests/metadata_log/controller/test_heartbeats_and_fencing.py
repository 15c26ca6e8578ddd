"""Heartbeats, sessions and fencing, as decided by the controller."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.calls.requests import BrokerHeartbeatRequest
from pykraft.metadata_log.records import BrokerRegistrationChangeRecord
from tests.metadata_log.harness import ControllerHarness
from tests.narrowing import as_type


def test_broker_is_unfenced_once_it_has_seen_its_own_registration(controller: ControllerHarness) -> None:
    epoch = controller.register(1)
    early = controller.heartbeat(1, offset=epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    caught_up = controller.heartbeat(1, offset=epoch)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert not controller.image.brokers[1].fenced


def test_broker_that_wants_to_stay_fenced_stays_fenced(controller: ControllerHarness) -> None:
    controller.register(1)
    assert controller.heartbeat(1, want_fence=True).is_fenced


@pytest.mark.parametrize("epoch", [-1, 0, 10_000])
def test_heartbeat_with_another_epoch_is_stale(cluster: ControllerHarness, epoch: int) -> None:
    with pytest.raises(KafkaError) as error:
        cluster.heartbeat(1, epoch=epoch)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_late_heartbeat_of_a_replaced_process_does_not_keep_its_successor_alive(
    cluster: ControllerHarness,
) -> None:
    replaced = cluster.image.brokers[1].epoch
    cluster.register(1, incarnation=2, dead=(1,))
    cluster.heartbeat(1)
    assert not cluster.image.brokers[1].fenced
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    with pytest.raises(KafkaError):
        cluster.heartbeat(1, epoch=replaced)
    cluster.now_ms += 1
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert cluster.image.brokers[1].fenced


def test_heartbeat_in_the_steady_state_writes_nothing(cluster: ControllerHarness) -> None:
    before = cluster.image
    cluster.heartbeat(1)
    assert cluster.image is before


def test_silent_broker_is_fenced_and_then_its_leaderships_move(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    batches = len(cluster.log)
    cluster.stop_heartbeats(1)
    assert [len(batch.values) for batch in cluster.log[batches:]] == [1, 3]
    assert cluster.image.brokers[1].fenced
    assert cluster.partition("t", 0).leader == 2
    assert [p.isr for p in cluster.topic("t").partitions] == [(2, 3), (2, 3), (3, 2)]
    assert [p.leader_epoch for p in cluster.topic("t").partitions] == [1, 0, 0]
    assert [p.partition_epoch for p in cluster.topic("t").partitions] == [1, 1, 1]


def test_broker_with_heartbeats_in_time_is_not_fenced(cluster: ControllerHarness) -> None:
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert not cluster.image.brokers[1].fenced


def test_fenced_broker_is_not_fenced_again(cluster: ControllerHarness) -> None:
    cluster.stop_heartbeats(1)
    before = cluster.image
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert cluster.image is before


def test_fencing_touches_only_partitions_of_that_broker(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2], [2, 3])
    untouched = cluster.partition("t", 1)
    cluster.stop_heartbeats(1)
    assert cluster.partition("t", 1) is untouched


def test_last_isr_member_is_kept_and_leads_again_when_it_returns(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(2)
    cluster.stop_heartbeats(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), -1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1, "2 left the ISR and may have missed writes"
    cluster.heartbeat(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), 1)
    assert cluster.partition("t").leader_epoch == 2


def test_when_the_whole_isr_falls_silent_at_once_any_member_may_lead_alone(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.stop_heartbeats(1, 2, 3)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1, 2, 3), -1)
    cluster.heartbeat(2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)
    cluster.heartbeat(1)
    assert cluster.partition("t").isr == (2,)


def test_fenced_broker_keeps_its_epoch_and_must_see_its_fencing_before_it_returns(
    cluster: ControllerHarness,
) -> None:
    epoch = cluster.image.brokers[1].epoch
    seen = cluster.image.offset
    cluster.stop_heartbeats(1)
    assert cluster.heartbeat(1, epoch=epoch, offset=seen).is_fenced
    assert not cluster.heartbeat(1, epoch=epoch).is_fenced


def test_broker_that_asks_to_be_fenced_is_fenced(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    assert cluster.heartbeat(1, want_fence=True).is_fenced
    assert cluster.partition("t").leader == 2


def test_late_request_to_be_fenced_has_no_effect(controller: ControllerHarness) -> None:
    """The broker has been unfenced since it sent it, and holds a lease."""
    epoch = controller.register(1)
    assert controller.heartbeat(1, want_fence=True, offset=epoch).is_fenced
    assert not controller.heartbeat(1).is_fenced
    assert not controller.heartbeat(1, want_fence=True, offset=epoch).is_fenced
    assert not controller.image.brokers[1].fenced
    assert controller.heartbeat(1, want_fence=True).is_fenced, "this one knows that it is unfenced"


def test_new_active_controller_gives_every_unfenced_broker_a_full_session(cluster: ControllerHarness) -> None:
    cluster.now_ms += 100 * cluster.config.session_timeout_ms
    successor = cluster.standby
    successor.claim(cluster.now_ms)
    timeout_ms = cluster.config.session_timeout_ms
    assert successor.handle_fence_check(cluster.now_ms + timeout_ms - 1).records == ()
    overdue = successor.handle_fence_check(cluster.now_ms + timeout_ms)
    assert {as_type(record, BrokerRegistrationChangeRecord).broker_id for record in overdue.records} == {
        1,
        2,
        3,
    }


def test_bootstrap_features_are_written_once_and_only_to_a_new_log(cluster: ControllerHarness) -> None:
    assert dict(cluster.image.features) == {"metadata.version": 30, "group.version": 1}
    assert cluster.standby.claim(cluster.now_ms).records == ()


def test_heartbeat_of_an_unknown_broker_is_stale(cluster: ControllerHarness) -> None:
    request = BrokerHeartbeatRequest(99, 1, 1)
    with pytest.raises(KafkaError) as refusal:
        cluster.core.handle_broker_heartbeat(request, cluster.now_ms)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
