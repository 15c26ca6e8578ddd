"""Brokers get no new replicas while all of their log directories are cordoned (KIP-1066)."""

from collections.abc import Callable

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import CreatableTopic
from tests.metadata_log.controller.test_config_commands import BROKER, SET, alter
from tests.metadata_log.harness import ControllerHarness

FIRST, SECOND, OTHER = (Uuid(bytes([number]) * 16) for number in (11, 12, 19))
FEATURES = {"group.version": 1, "metadata.version": 30}


@pytest.fixture
def cluster(make_controller: Callable[..., ControllerHarness]) -> ControllerHarness:
    """Brokers 1 (with two directories) and 2."""
    harness = make_controller(features=FEATURES)
    harness.register(1, log_dirs=(FIRST, SECOND))
    harness.heartbeat(1)
    harness.start_brokers(2)
    return harness


def cordoned(cluster: ControllerHarness) -> tuple[Uuid, ...]:
    return cluster.image.brokers[1].cordoned_log_dirs


def brokers_of_new_topics(cluster: ControllerHarness) -> set[int]:
    count = len(cluster.image.topics_by_id)
    return {cluster.create_topic(f"t{count + it}").partitions[0].replicas[0] for it in range(8)}


def test_a_broker_that_has_cordoned_all_directories_gets_no_new_replicas(cluster: ControllerHarness) -> None:
    assert brokers_of_new_topics(cluster) == {1, 2}
    cluster.heartbeat(1, cordoned_log_dirs=(SECOND,))
    assert cordoned(cluster) == (SECOND,)
    assert brokers_of_new_topics(cluster) == {1, 2}, "one is left"
    cluster.heartbeat(1, cordoned_log_dirs=(SECOND, FIRST, OTHER))
    assert cordoned(cluster) == (FIRST, SECOND)
    assert brokers_of_new_topics(cluster) == {2}
    assert cluster.image.brokers[1].is_active, "it keeps what it has"
    cluster.heartbeat(1, cordoned_log_dirs=())
    assert brokers_of_new_topics(cluster) == {1, 2}


def test_a_failed_directory_does_not_stand_for_one_that_may_get_replicas(cluster: ControllerHarness) -> None:
    cluster.heartbeat(1, cordoned_log_dirs=(FIRST,))
    cluster.heartbeat(1, offline_log_dirs=(SECOND,), cordoned_log_dirs=(FIRST,))
    assert brokers_of_new_topics(cluster) == {2}


def test_only_changes_are_recorded_and_unknown_is_no_change(cluster: ControllerHarness) -> None:
    cluster.heartbeat(1, cordoned_log_dirs=(FIRST,))
    offset = cluster.image.offset
    cluster.heartbeat(1, cordoned_log_dirs=(FIRST,))
    cluster.heartbeat(1, cordoned_log_dirs=None)
    assert cluster.image.offset == offset
    assert cordoned(cluster) == (FIRST,)


def test_topics_are_refused_with_the_reason_if_every_broker_is_cordoned(cluster: ControllerHarness) -> None:
    cluster.heartbeat(1, cordoned_log_dirs=(FIRST, SECOND))
    cluster.stop_heartbeats(2)
    (result,) = cluster.create_topics(CreatableTopic(name="t", num_partitions=1, replication_factor=1))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message is not None and "cordoned" in result.error_message


def test_cordoned_directories_survive_a_snapshot_and_end_with_the_process(cluster: ControllerHarness) -> None:
    cluster.heartbeat(1, cordoned_log_dirs=(FIRST,))
    cluster.commit()
    assert cluster.standby.image.brokers[1].cordoned_log_dirs == (FIRST,)
    cluster.register(1, log_dirs=(FIRST, SECOND), rack="another")
    assert cordoned(cluster) == (FIRST,), "the same process registers again"
    cluster.stop_heartbeats(1)
    cluster.register(1, incarnation=2, log_dirs=(FIRST, SECOND))
    assert cordoned(cluster) == (), "the next one says it again"


def test_earlier_metadata_versions_know_no_cordoned_directories(
    make_controller: Callable[..., ControllerHarness],
) -> None:
    old = make_controller(features=FEATURES | {"metadata.version": 29})
    old.register(1, log_dirs=(FIRST, SECOND))
    old.heartbeat(1)
    offset = old.image.offset
    old.heartbeat(1, cordoned_log_dirs=(FIRST, SECOND))
    assert old.image.offset == offset
    answer = alter(old, ("cordoned.log.dirs", SET, "/d"), resource=(BROKER, "1"))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert answer.error_message == "cordoned.log.dirs needs metadata.version 4.3-IV0"
