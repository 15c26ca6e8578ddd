"""Uncommitted decisions of a controller are reverted; what its successor must not assume."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.calls.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    IsrMember,
    PartitionIsrChange,
)
from tests.metadata_log.harness import ControllerHarness


def test_producer_ids_reverted_with_a_lost_leadership_were_never_returned_to_a_broker(
    cluster: ControllerHarness,
) -> None:
    def allocate() -> int:
        request = AllocateProducerIdsRequest(1, cluster.epoch_of(1))
        return int(cluster.run(cluster.core.handle_allocate_producer_ids(request)).start)

    committed = allocate()
    cluster.commit()
    lost = allocate()
    cluster.lose_leadership()
    again = allocate()
    cluster.commit()
    assert committed < lost == again
    assert allocate() > again
    assert cluster.standby.image.next_producer_id == again + 1000


def test_uncommitted_controlled_shutdown_is_reverted_with_the_leadership(cluster: ControllerHarness) -> None:
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.commit()
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.heartbeat_active_brokers()
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.lose_leadership()
    assert not cluster.image.brokers[3].fenced
    with pytest.raises(KafkaError) as refusal:
        cluster.register(3, incarnation=2)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_new_controller_gives_a_full_session_from_its_election(cluster: ControllerHarness) -> None:
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    cluster.lose_leadership()
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    cluster.now_ms += 1
    cluster.run(cluster.core.handle_fence_check(cluster.now_ms))
    assert all(broker.fenced for broker in cluster.image.brokers.values())


def test_fenced_broker_is_not_unfenced_before_it_knows_that_it_was_fenced(cluster: ControllerHarness) -> None:
    known = cluster.image.offset
    cluster.stop_heartbeats(2)
    answer = cluster.heartbeat(2, offset=known)
    assert answer.is_fenced and not answer.is_caught_up
    assert not cluster.heartbeat(2).is_fenced


def test_proposal_of_a_former_leader_is_refused_by_its_epoch(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    topic, old = cluster.topic("t"), cluster.partition("t")
    epoch = cluster.epoch_of(1)
    cluster.stop_heartbeats(1)
    change = PartitionIsrChange(topic.id, 0, old.leader_epoch, old.partition_epoch, (IsrMember(1, epoch),))
    (result,) = cluster.run(
        cluster.core.handle_alter_partition(AlterPartitionRequest(1, epoch, (change,)))
    ).partitions
    assert result.error is ErrorCode.FENCED_LEADER_EPOCH
