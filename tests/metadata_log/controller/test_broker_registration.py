from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.cluster import UnregisterBrokerRequest
from pykraft.metadata_log.controller import cluster_control
from pykraft.metadata_log.controller.calls.requests import RegisterControllerRequest
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.incarnations import MOST_SECRETS, incarnation_id_of
from pykraft.metadata_log.records import Endpoint, FeatureRange
from tests.broker.answers import refused
from tests.metadata_log.harness import ControllerHarness, RegistrationFields

CLUSTER_ID = "test-cluster"


def test_new_broker_is_fenced_and_its_epoch_is_the_offset_of_its_record(
    controller: ControllerHarness,
) -> None:
    offset = controller.image.offset + 1
    assert controller.register(1) == offset
    broker = controller.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.last_change_offset) == (offset, True, offset)


def test_broker_of_another_cluster_is_refused(controller: ControllerHarness) -> None:
    with refused(ErrorCode.INCONSISTENT_CLUSTER_ID):
        controller.register(1, cluster_id="elsewhere")


def test_second_process_under_a_live_id_is_refused_until_the_session_lapses(
    cluster: ControllerHarness,
) -> None:
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        cluster.register(1, incarnation=2)
    cluster.stop_heartbeats(1)
    old_epoch = cluster.image.brokers[1].epoch
    assert cluster.register(1, incarnation=2) > old_epoch


def test_process_that_just_registered_holds_the_id_before_its_first_heartbeat(
    controller: ControllerHarness,
) -> None:
    controller.register(1)
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        controller.register(1, incarnation=2)


def test_process_that_knows_its_predecessor_to_be_dead_need_not_wait(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    old_epoch = cluster.image.brokers[1].epoch
    new_epoch = cluster.register(1, incarnation=3, dead=(1, 2))
    assert new_epoch > old_epoch and cluster.image.brokers[1].fenced
    assert cluster.partition("t").isr == (2, 3)
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        cluster.heartbeat(1, epoch=old_epoch)
    assert not cluster.heartbeat(1).is_fenced


def test_failure_of_other_processes_does_not_replace_a_live_broker(cluster: ControllerHarness) -> None:
    """A copy of the live broker's directory, made at any time, proves nothing."""
    cluster.stop_heartbeats(2)
    cluster.register(2, incarnation=5)
    cluster.heartbeat(2)
    for dead in ((), (1,), (1, 2, 3, 4), (6,)):
        with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
            cluster.register(2, incarnation=7, dead=dead)
    with refused(ErrorCode.INCONSISTENT_CLUSTER_ID):
        cluster.register(2, incarnation=7, dead=(5,), cluster_id="elsewhere")
    assert not cluster.heartbeat(2).is_fenced


def test_claim_that_a_broker_is_dead_needs_the_secret_in_its_directories(cluster: ControllerHarness) -> None:
    """Its incarnation id is in the metadata log, where every node can read it."""
    known = cluster.image.brokers[1].incarnation_id
    for claimed in (known, known[:15], b"", known + b"\0", incarnation_id_of(known)):
        with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
            cluster.register(1, incarnation=7, dead_incarnation_secrets=(claimed,))
    assert not cluster.heartbeat(1).is_fenced


def test_registration_with_too_many_secrets_is_refused(cluster: ControllerHarness) -> None:
    with refused(ErrorCode.INVALID_REGISTRATION):
        cluster.register(1, incarnation=7, dead_incarnation_secrets=(b"x",) * (MOST_SECRETS + 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"port": 0},
        {"port": -1},
        {"port": 65_536},
        {"port": 2**31 - 1},
        {"rack": "r" * 40_000},
        {"endpoints": (Endpoint("P", "h", 1),) * 1001},
        {"endpoints": (Endpoint("P", "h" * 256, 1),)},
        {"features": (*SUPPORTED_RANGES, *(FeatureRange(f"f{n}", 0, 1) for n in range(1000)))},
        {"log_dirs": tuple(Uuid(n.to_bytes(16, "big")) for n in range(1000, 2001))},
    ],
)
def test_registration_with_oversized_or_invalid_fields_is_refused(
    controller: ControllerHarness, fields: RegistrationFields
) -> None:
    before = controller.image
    with refused(ErrorCode.INVALID_REGISTRATION):
        controller.register(1, **fields)
    assert controller.image is before


def test_negative_broker_id_is_refused(controller: ControllerHarness) -> None:
    with refused(ErrorCode.INVALID_REGISTRATION):
        controller.register(-1)


def test_unbounded_registrations_are_refused(
    controller: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_control, "MOST_BROKERS", 3)
    monkeypatch.setattr(cluster_control, "MOST_CONTROLLERS", 3)
    for node_id in range(3):
        controller.register(node_id)
        request = RegisterControllerRequest(CLUSTER_ID, node_id, SUPPORTED_RANGES)
        controller.run(controller.core.handle_register_controller(request))
    with refused(ErrorCode.INVALID_REGISTRATION):
        controller.register(3)
    for controller_id in (3, -1):
        request = RegisterControllerRequest(CLUSTER_ID, controller_id, SUPPORTED_RANGES)
        with refused(ErrorCode.INVALID_REGISTRATION):
            controller.core.handle_register_controller(request)
    controller.now_ms += controller.config.session_timeout_ms
    controller.register(2, incarnation=2)


def test_same_process_registering_again_keeps_its_epoch_and_writes_nothing(
    cluster: ControllerHarness,
) -> None:
    before = cluster.image
    assert cluster.register(1) == before.brokers[1].epoch
    assert cluster.image is before


def test_same_process_may_change_its_endpoints_without_being_fenced(cluster: ControllerHarness) -> None:
    epoch = cluster.image.brokers[1].epoch
    assert cluster.register(1, port=9999) == epoch
    broker = cluster.image.brokers[1]
    assert (broker.endpoints[0].port, broker.fenced, broker.epoch) == (9999, False, epoch)


@pytest.mark.parametrize(
    "log_dirs",
    [
        (),
        (ZERO_UUID,),
        (Uuid(bytes(15) + b"\x63"),),
        (Uuid(b"a" * 16), Uuid(b"a" * 16)),
        (Uuid(bytes([101]) * 16),),  # broker 1's
    ],
    ids=["none", "unassigned", "reserved", "twice", "another broker's"],
)
def test_unusable_log_directories_are_refused(cluster: ControllerHarness, log_dirs: tuple[Uuid, ...]) -> None:
    with refused(ErrorCode.INVALID_REGISTRATION):
        cluster.register(9, log_dirs=log_dirs)


@pytest.mark.parametrize(
    "features",
    [
        (FeatureRange("metadata.version", 7, 29), FeatureRange("group.version", 0, 1)),
        (FeatureRange("metadata.version", 31, 40), FeatureRange("group.version", 0, 1)),
        (FeatureRange("metadata.version", 7, 30), FeatureRange("group.version", 0, 0)),
        (FeatureRange("metadata.version", 7, 30),),
        (),
    ],
)
def test_broker_that_cannot_run_a_finalized_feature_is_refused(
    controller: ControllerHarness, features: tuple[FeatureRange, ...]
) -> None:
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        controller.register(1, features=features)
    assert 1 not in controller.image.brokers


def test_new_incarnation_leaves_every_isr_it_shares(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.now_ms += cluster.config.session_timeout_ms
    cluster.register(1, incarnation=2)
    partition = cluster.partition("t")
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((2, 3), 2, 1)


def test_new_incarnation_of_the_only_isr_member_stays_but_leads_only_once_unfenced(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1])
    cluster.now_ms += cluster.config.session_timeout_ms
    cluster.register(1, incarnation=2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), -1)
    cluster.heartbeat(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), 1)


def test_whole_cluster_restarted_uncleanly_leads_from_the_last_that_registers(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(1, 2)
    assert cluster.partition("t").isr == (1, 2)
    cluster.register(1, incarnation=2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), -1)
    cluster.register(2, incarnation=2)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == -1
    cluster.heartbeat(2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)


def unregister(cluster: ControllerHarness, broker_id: int) -> Any:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    return cluster.run(cluster.core.handle_forwarded(cluster.context, request))


def test_fenced_broker_can_be_unregistered_and_register_again(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.create_assigned("only", [3])
    cluster.stop_heartbeats(3)
    old_epoch = cluster.image.brokers[3].epoch
    assert unregister(cluster, 3).error_code == 0
    assert 3 not in cluster.image.brokers
    assert cluster.partition("t").replicas == (1, 2, 3) and cluster.partition("t").isr == (1, 2)
    assert cluster.partition("only").leader == -1
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        cluster.heartbeat(3, epoch=old_epoch, offset=0)
    assert cluster.register(3, incarnation=2) > old_epoch


def test_live_broker_that_is_unregistered_loses_its_leaderships_and_returns_as_a_new_one(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.create_assigned("only", [1])
    old_epoch = cluster.image.brokers[1].epoch
    assert unregister(cluster, 1).error_code == 0
    assert 1 not in cluster.image.brokers
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (2, 3), 2)
    assert cluster.partition("only").leader == -1
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        cluster.heartbeat(1, epoch=old_epoch, offset=cluster.image.offset)
    # The process notices and registers again. It names the epoch whose logs it has: nothing is lost.
    assert cluster.register(1, previous_broker_epoch=old_epoch) > old_epoch
    assert cluster.image.brokers[1].fenced
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.partition("only").leader == 1


def test_broker_that_is_not_registered_cannot_be_unregistered(cluster: ControllerHarness) -> None:
    before = cluster.image
    answer = unregister(cluster, 9)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED and "9" in answer.error_message
    assert cluster.image is before
