"""What the active controller logs for its operator about the records it appends."""

from collections.abc import Callable

import pytest

from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.topics import CreatableTopic, ElectLeadersRequest, TopicPartitions
from pykraft.metadata_log.controller.announcements import MOST_LINES, announce
from pykraft.metadata_log.records import Record
from tests.metadata_log.harness import ControllerHarness


@pytest.fixture
def logged(cluster: ControllerHarness, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log lines about everything that the cluster of three brokers appends from now on."""
    lines: list[str] = []
    append = cluster.append

    def append_and_log(records: tuple[Record, ...]) -> None:
        lines.extend(
            ("WARNING " if line.is_warning else "") + line.text for line in announce(cluster.image, records)
        )
        append(records)

    monkeypatch.setattr(cluster, "append", append_and_log)
    return lines


def test_requested_changes_are_logged_in_the_words_of_the_request(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_topics(CreatableTopic(name="t", num_partitions=3, replication_factor=1))
    for value, operation in (("60000", 0), (None, 1)):
        change = AlterableConfig(name="retention.ms", config_operation=operation, value=value)
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="t", configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    assert logged == [
        "topic t is created",
        "configuration of topic t: retention.ms=60000",
        "configuration of topic t: retention.ms is reset to its default",
    ]


def test_reassignment_is_logged_when_it_begins_and_when_it_ends(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_assigned("t", [1, 2])
    logged.clear()
    assert cluster.reassign("t", [1, 3]) == ErrorCode.NONE
    assert logged == ["t-0 is being reassigned: adding [3], removing [2], of [1, 3, 2]"]
    logged.clear()
    assert cluster.set_isr("t", 1, 2, 3).error == ErrorCode.NONE
    assert logged == ["reassignment of t-0 has ended: replicas [1, 3]"]
    logged.clear()
    assert cluster.reassign("t", [3]) == ErrorCode.NONE
    assert logged == ["reassignment of t-0 has ended: replicas [3]"]


def test_reassignment_that_only_adds_is_logged_when_it_begins_and_when_it_ends(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_assigned("t", [1, 2])
    logged.clear()
    assert cluster.reassign("t", [1, 2, 3]) == ErrorCode.NONE
    assert logged == ["t-0 is being reassigned: adding [3], removing [], of [1, 2, 3]"]
    logged.clear()
    assert cluster.set_isr("t", 1, 2, 3).error == ErrorCode.NONE
    assert logged == ["reassignment of t-0 has ended: replicas [1, 2, 3]"]


def test_partition_without_a_leader_is_a_warning_that_names_the_replicas_it_waits_for(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_assigned("lonely", [2], [1])
    logged.clear()
    cluster.stop_heartbeats(2)
    assert logged == ["WARNING lonely-0 has no leader: it waits for broker 2"]
    logged.clear()
    cluster.heartbeat(2)
    assert logged == ["broker 2 is unfenced"]


def test_last_known_leader_that_returns_after_a_crash_is_no_unclean_election(
    make_controller: Callable[..., ControllerHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = make_controller(features={"group.version": 1, "eligible.leader.replicas.version": 1})
    controller.start_brokers(1, 2)
    controller.create_assigned("lonely", [2])
    controller.stop_heartbeats(2)
    controller.register(2, incarnation=2, previous_broker_epoch=-1)
    logged: list[str] = []
    append = controller.append

    def announce_and_append(records: tuple[Record, ...]) -> None:
        logged.extend(it.text for it in announce(controller.image, records))
        append(records)

    monkeypatch.setattr(controller, "append", announce_and_append)
    controller.heartbeat(2)
    assert logged == ["broker 2 is unfenced", "lonely-0 is led again by 2, its last eligible leader"]


def test_unclean_election_is_a_warning(cluster: ControllerHarness, logged: list[str]) -> None:
    cluster.create_assigned("t", [1, 2])
    assert cluster.set_isr("t", 1).error == ErrorCode.NONE
    cluster.stop_heartbeats(1)
    logged.clear()
    asked = ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
    )
    cluster.run(cluster.core.handle_forwarded(cluster.context, asked))
    assert logged == ["WARNING t-0: unclean election of 2, records may be lost"]


def test_leader_that_joins_at_the_end_of_a_reassignment_is_no_unclean_election(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.create_assigned("single", [1])
    cluster.reassign("t", [3, 2])
    cluster.reassign("single", [3])
    logged.clear()
    assert cluster.set_isr("t", 1, 2, 3).error == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.set_isr("single", 1, 3).error == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.partition("t").leader == cluster.partition("single").leader == 3
    assert logged == [
        "reassignment of t-0 has ended: replicas [3, 2]",
        "reassignment of single-0 has ended: replicas [3]",
    ]


def test_unclean_election_among_replicas_that_a_reassignment_adds_is_a_warning(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_assigned("t", [1])
    cluster.reassign("t", [2])
    cluster.stop_heartbeats(1)
    logged.clear()
    asked = ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
    )
    cluster.run(cluster.core.handle_forwarded(cluster.context, asked))
    assert logged[0] == "WARNING t-0: unclean election of 2, records may be lost"


def test_many_changes_of_one_batch_are_counted_warnings_first(
    cluster: ControllerHarness, logged: list[str]
) -> None:
    cluster.create_assigned("t", *([2] for _ in range(30)))
    logged.clear()
    cluster.stop_heartbeats(2)
    assert len(logged) == MOST_LINES + 1
    assert logged[-1] == f"WARNING and {30 - MOST_LINES} more changes"
    assert all("has no leader" in line for line in logged[:-1])
