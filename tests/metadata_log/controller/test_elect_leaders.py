"""Elections that a client asks for."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest, TopicPartitions
from tests.metadata_log.harness import ControllerHarness

PREFERRED, UNCLEAN = 0, 1


def elect(
    harness: ControllerHarness, election_type: int, *partitions: tuple[str, int], everything: bool = False
) -> dict[tuple[str, int], ErrorCode]:
    """The answers by partition."""
    asked = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=None if everything else asked)
    response = harness.forward(request)
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def back_after_silence(harness: ControllerHarness, broker_id: int) -> None:
    harness.stop_heartbeats(broker_id)
    harness.heartbeat(broker_id)


def test_preferred_election_brings_the_first_replica_back(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    assert elect(cluster, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    back_after_silence(cluster, 1)
    assert cluster.partition("t").leader == 2
    assert elect(cluster, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    cluster.set_isr("t", 2, 3, 1)
    epoch = cluster.partition("t").leader_epoch
    assert elect(cluster, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (1, epoch + 1)


def test_unclean_election_takes_any_live_replica_of_a_leaderless_partition(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(2)
    cluster.heartbeat(2)
    assert elect(cluster, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster.stop_heartbeats(1)
    assert cluster.partition("t").leader == -1
    assert elect(cluster, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


def test_no_live_replica_no_election(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(1, 2)
    assert elect(cluster, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert elect(cluster, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_unknown_partitions_and_election_types(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for asked in (("t", 5), ("t", -1), ("nope", 0)):
        assert elect(cluster, PREFERRED, asked) == {asked: unknown}
    with pytest.raises(KafkaError) as refused:
        elect(cluster, 7, ("t", 0))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_election_for_all_answers_only_partitions_that_need_one(cluster: ControllerHarness) -> None:
    cluster.create_assigned("a", [1, 2], [2, 1])
    cluster.create_assigned("b", [3, 1])
    cluster.stop_heartbeats(1)
    assert elect(cluster, PREFERRED, everything=True) == {("a", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(cluster, UNCLEAN, everything=True) == {}


def test_a_partition_named_twice_is_elected_once(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.stop_heartbeats(2)
    cluster.heartbeat(2)
    cluster.stop_heartbeats(1)
    request = ElectLeadersRequest(
        election_type=UNCLEAN, topic_partitions=[TopicPartitions(topic="t", partitions=[0, 0])]
    )
    response = cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    codes = [result.error_code for result in response.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
