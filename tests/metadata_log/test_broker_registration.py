from __future__ import annotations

from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.metadata_log.controller.requests import RegisterBrokerRequest
from pykraft.metadata_log.records import Endpoint, FeatureRange


def refused(code: ErrorCode) -> Any:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_new_broker_is_fenced_and_its_epoch_is_the_offset_of_its_record(controller: Any) -> None:
    offset = controller.image.offset + 1
    assert controller.register(1) == offset
    broker = controller.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.last_change_offset) == (offset, True, offset)


def test_broker_of_another_cluster_is_refused(controller: Any) -> None:
    with refused(ErrorCode.INCONSISTENT_CLUSTER_ID):
        controller.register(1, cluster_id="elsewhere")


def test_second_process_under_a_live_id_is_refused_until_the_session_lapses(cluster: Any) -> None:
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        cluster.register(1, incarnation=2)
    cluster.silence(1)
    old_epoch = cluster.image.brokers[1].epoch
    assert cluster.register(1, incarnation=2) > old_epoch


def test_process_that_just_registered_holds_the_id_before_its_first_heartbeat(controller: Any) -> None:
    controller.register(1)
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        controller.register(1, incarnation=2)


def test_same_process_registering_again_keeps_its_epoch_and_writes_nothing(cluster: Any) -> None:
    before = cluster.image
    assert cluster.register(1) == before.brokers[1].epoch
    assert cluster.image is before


def test_same_process_may_amend_its_endpoints_without_being_fenced(cluster: Any) -> None:
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
def test_unusable_log_directories_are_refused(cluster: Any, log_dirs: tuple[Uuid, ...]) -> None:
    with refused(ErrorCode.INVALID_REGISTRATION):
        cluster.register(9, log_dirs=log_dirs)


def test_broker_that_cannot_run_a_finalized_feature_is_refused(controller: Any) -> None:
    request = RegisterBrokerRequest(
        "test-cluster",
        1,
        Uuid(b"i" * 16),
        (Endpoint("P", "h", 1),),
        (Uuid(b"d" * 16),),
        features=(FeatureRange("metadata.version", 7, 29),),
    )
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        controller.core.handle_register_broker(request, controller.now_ms)


def test_new_incarnation_leaves_every_isr_it_shares(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.now_ms += cluster.config.session_timeout_ms
    cluster.register(1, incarnation=2)
    partition = cluster.partition("t")
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((2, 3), 2, 1)


def test_new_incarnation_stays_the_isr_where_it_is_all_there_is_but_leads_only_once_unfenced(
    cluster: Any,
) -> None:
    cluster.create_assigned("t", [1])
    cluster.now_ms += cluster.config.session_timeout_ms
    cluster.register(1, incarnation=2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), -1)
    cluster.heartbeat(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), 1)


def test_whole_cluster_restarted_uncleanly_leads_from_the_last_that_registers(cluster: Any) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.silence(1, 2)
    assert cluster.partition("t").isr == (1, 2)
    cluster.register(1, incarnation=2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), -1)
    cluster.register(2, incarnation=2)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == -1
    cluster.heartbeat(2)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)
