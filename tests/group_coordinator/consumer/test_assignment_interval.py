"""Assignments of a group keep their distance (KIP-1263); settings of a group, and whose they are."""

from dataclasses import replace

import pytest

from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from tests.group_coordinator import tools

SECOND = GroupConfig(consumer_assignment_interval_ms=1_000)


def test_members_that_join_at_once_are_assigned_together_when_the_interval_is_over() -> None:
    lab = tools.ShardLab({"t": 6}, SECOND)
    everything = tools.assigned(lab.heartbeat("a", 0))
    for member_id in ("b", "c"):
        assert lab.heartbeat(member_id, 0).member_epoch == 2, "the last assignment still holds"
    assert (lab.group.epoch, lab.group.assignment_epoch) == (4, 2)
    assert lab.group.state_name == "Assigning"
    lab.pass_time(999)
    assert lab.heartbeat("a", 2, everything).assignment is None
    lab.pass_time(1)
    assert len(tools.assigned(lab.heartbeat("a", 2, everything))) == 2
    assert (lab.group.epoch, lab.group.assignment_epoch) == (4, 4)


def test_first_assignment_waits_for_nothing_and_neither_does_an_interval_of_zero() -> None:
    for config in (SECOND, replace(SECOND, consumer_assignment_interval_ms=0)):
        lab = tools.ShardLab({"t": 6}, config)
        assert len(tools.assigned(lab.heartbeat("a", 0))) == 6
    lab.heartbeat("b", 0)
    assert lab.group.assignment_epoch == lab.group.epoch


def test_new_coordinator_knows_when_the_last_assignment_was() -> None:
    lab = tools.ShardLab({"t": 6}, SECOND)
    lab.heartbeat("a", 0)
    lab.pass_time(500)
    lab.fail_over()
    lab.heartbeat("b", 0)
    assert lab.group.assignment_epoch == 2
    lab.pass_time(500)
    lab.heartbeat("b", 2, set())
    assert lab.group.assignment_epoch == 3


def test_clock_that_was_set_back_holds_up_no_assignment() -> None:
    lab = tools.ShardLab({"t": 6}, SECOND)
    lab.heartbeat("a", 0)
    lab.clock.now_ms -= 3_600_000
    lab.heartbeat("b", 0)
    assert lab.group.assignment_epoch == lab.group.epoch


def test_subscription_is_cut_at_once_although_the_assignment_must_wait() -> None:
    lab = tools.ShardLab({"t": 2, "u": 2}, SECOND)
    owned = tools.assigned(lab.heartbeat("a", 0, subscribed_topic_names=["t", "u"]))
    response = lab.heartbeat("a", 2, owned, subscribed_topic_names=["u"])
    assert {topic for topic, _ in tools.assigned(response)} == {tools.topic_id("u")}
    assert (response.member_epoch, lab.group.assignment_epoch, lab.group.epoch) == (2, 2, 3)
    held = lab.group.members["a"].held
    assert held == owned, "what it has to revoke is nobody else's yet"


def test_settings_of_a_group_stay_within_the_limits_of_this_broker() -> None:
    config = GroupConfig(consumer_max_session_timeout_ms=50_000, consumer_max_assignment_interval_ms=9)
    own = config.with_group_overrides(
        {
            "consumer.session.timeout.ms": "60000",
            "consumer.heartbeat.interval.ms": "1",
            "consumer.assignment.interval.ms": "10",
            "share.isolation.level": "read_committed",
        }
    )
    assert own.consumer_session_timeout_ms == 50_000
    assert own.consumer_heartbeat_interval_ms == 5_000
    assert own.consumer_assignment_interval_ms == 9
    assert config.with_group_overrides({}) is config


def test_heartbeats_of_a_group_fit_into_its_session_on_every_broker() -> None:
    config = GroupConfig(consumer_min_session_timeout_ms=1)
    assert config.with_group_overrides(
        {"consumer.session.timeout.ms": "4000"}
    ).consumer_heartbeat_interval_ms == (1_333)


def test_full_group_refuses_strangers_before_it_looks_at_what_they_say() -> None:
    lab = tools.ShardLab({"t": 4}, GroupConfig(consumer_max_size=1))
    lab.heartbeat("a", 0)
    for epoch in (0, 5):
        with pytest.raises(KafkaError) as refused:
            lab.heartbeat("b", epoch, set())
        assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
