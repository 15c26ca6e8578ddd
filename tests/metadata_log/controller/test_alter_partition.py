from typing import TypedDict, Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import (
    AlterPartitionRequest,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from tests.metadata_log.harness import ControllerHarness


class ProposalChanges(TypedDict, total=False):
    """How a proposal differs from one that the controller accepts."""

    sender: int
    broker_epoch: int
    topic_id: Uuid
    index: int
    leader_epoch_by: int
    partition_epoch_by: int


class Leader:
    """Broker 1, which leads t-0 on [1, 2, 3], and its proposals."""

    def __init__(self, cluster: ControllerHarness) -> None:
        self.cluster = cluster
        cluster.create_assigned("t", [1, 2, 3])

    def propose(self, *isr: int | IsrMember, **changes: Unpack[ProposalChanges]) -> PartitionIsrResult:
        partition = self.cluster.partition("t")
        sender = changes.get("sender", 1)
        change = PartitionIsrChange(
            topic_id=changes.get("topic_id", self.cluster.topic("t").id),
            index=changes.get("index", 0),
            leader_epoch=partition.leader_epoch + changes.get("leader_epoch_by", 0),
            partition_epoch=partition.partition_epoch + changes.get("partition_epoch_by", 0),
            new_isr=tuple(m if isinstance(m, IsrMember) else IsrMember(m) for m in isr),
        )
        epoch = changes.get("broker_epoch", self.cluster.image.brokers[sender].epoch)
        request = AlterPartitionRequest(sender, epoch, (change,))
        result: PartitionIsrResult
        (result,) = self.cluster.run(self.cluster.core.handle_alter_partition(request)).partitions
        return result


@pytest.fixture
def leader(cluster: ControllerHarness) -> Leader:
    return Leader(cluster)


def test_isr_change_raises_the_partition_epoch_and_not_the_leader_epoch(leader: Leader) -> None:
    result = leader.propose(1, 2)
    assert (result.error, result.isr, result.leader, result.leader_epoch, result.partition_epoch) == (
        ErrorCode.NONE,
        (1, 2),
        1,
        0,
        1,
    )
    partition = leader.cluster.partition("t")
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 0, 1)


def test_isr_can_grow_back(leader: Leader) -> None:
    leader.propose(1)
    epoch = leader.cluster.image.brokers[3].epoch
    assert leader.propose(1, IsrMember(3, epoch)).isr == (1, 3)


def test_proposing_the_present_isr_writes_nothing(leader: Leader) -> None:
    before = leader.cluster.image
    assert leader.propose(1, 2, 3).partition_epoch == 0
    assert leader.cluster.image is before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"leader_epoch_by": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch_by": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch_by": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch_by": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"sender": 2}, ErrorCode.INVALID_REQUEST),
        ({"topic_id": Uuid(b"?" * 16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_request_about_another_state_changes_nothing(
    leader: Leader, changes: ProposalChanges, expected: ErrorCode
) -> None:
    before = leader.cluster.image
    assert leader.propose(1, 2, **changes).error is expected
    assert leader.cluster.image is before


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 4), (1, 1)])
def test_isr_must_contain_the_leader_and_only_replicas(leader: Leader, isr: tuple[int, ...]) -> None:
    assert leader.propose(*isr).error is ErrorCode.INVALID_REQUEST


def test_fenced_replica_is_not_eligible(leader: Leader) -> None:
    leader.cluster.stop_heartbeats(3)
    assert leader.propose(1, 2, 3).error is ErrorCode.INELIGIBLE_REPLICA


def test_replica_in_controlled_shutdown_is_not_eligible(leader: Leader) -> None:
    leader.cluster.create_assigned("u", [3, 1])
    leader.cluster.heartbeat(3, want_shut_down=True)
    assert leader.propose(1, 2, 3).error is ErrorCode.INELIGIBLE_REPLICA


def test_replica_restarted_since_the_leader_counted_it_is_not_eligible(leader: Leader) -> None:
    epoch = leader.cluster.image.brokers[3].epoch
    leader.cluster.stop_heartbeats(3)
    leader.cluster.register(3, incarnation=2)
    leader.cluster.heartbeat(3)
    assert leader.propose(1, 2, IsrMember(3, epoch)).error is ErrorCode.INELIGIBLE_REPLICA
    current = leader.cluster.image.brokers[3].epoch
    assert leader.propose(1, 2, IsrMember(3, current)).error is ErrorCode.NONE


def test_leader_of_an_older_incarnation_is_stale(leader: Leader) -> None:
    with pytest.raises(KafkaError) as error:
        leader.propose(1, 2, broker_epoch=leader.cluster.image.brokers[1].epoch - 1)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_partition_named_twice_in_one_request_is_changed_once(leader: Leader) -> None:
    change = PartitionIsrChange(leader.cluster.topic("t").id, 0, 0, 0, (IsrMember(1),))
    epoch = leader.cluster.image.brokers[1].epoch
    request = AlterPartitionRequest(1, epoch, (change, change))
    results = leader.cluster.run(leader.cluster.core.handle_alter_partition(request)).partitions
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
