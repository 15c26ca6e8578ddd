"""ConsumerGroupHeartbeat: what is refused, and what joining, leaving and reconciling lead to."""

from collections.abc import Set
from typing import Any, Unpack

import pytest

from pykraft.group_coordinator.shard import TIMER_RETRY_MS
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.member import MemberState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from tests.group_coordinator import tools
from tests.group_coordinator.requests import HeartbeatFields

ASSIGNMENT_OF_NOTHING: frozenset[object] = frozenset()


@pytest.fixture
def lab() -> tools.ShardLab:
    return tools.ShardLab({"t": 4, "u": 2})


def refused(
    lab: tools.ShardLab,
    code: ErrorCode,
    member_id: str,
    epoch: int,
    owned: Set[tuple[Uuid, int]] | None = None,
    **fields: Unpack[HeartbeatFields],
) -> None:
    before, log = lab.shard.state, len(lab.writer.logs.get(0, []))
    with pytest.raises(KafkaError) as caught:
        lab.heartbeat(member_id, epoch, owned, **fields)
    assert caught.value.code is code
    assert lab.shard.state is before
    assert len(lab.writer.logs.get(0, [])) == log


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": -5},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
)
def test_malformed_join_is_refused(lab: tools.ShardLab, fields: dict[str, object]) -> None:
    from pykraft.group_coordinator.consumer.heartbeat import handle_consumer_heartbeat
    from pykraft.kafka_protocol.messages.groups import ConsumerGroupHeartbeatRequest

    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    request = ConsumerGroupHeartbeatRequest(**(values | fields))
    with pytest.raises(KafkaError) as caught:
        lab.apply(lambda state: handle_consumer_heartbeat(state, request, lab.call()))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert not lab.writer.logs


def test_join_claiming_partitions_is_refused(lab: tools.ShardLab) -> None:
    refused(lab, ErrorCode.INVALID_REQUEST, "a", 0, {(tools.topic_id("t"), 0)})


def test_first_version_lets_the_server_choose_the_member_id(lab: tools.ShardLab) -> None:
    response = lab.heartbeat("", 0, version=0)
    assert response.member_id == "new-id"
    assert "new-id" in lab.group.members


def test_unsupported_assignor_is_refused(lab: tools.ShardLab) -> None:
    refused(lab, ErrorCode.UNSUPPORTED_ASSIGNOR, "a", 0, server_assignor="sticky")


def test_bad_regex_is_refused(lab: tools.ShardLab) -> None:
    refused(lab, ErrorCode.INVALID_REGULAR_EXPRESSION, "a", 0, subscribed_topic_regex="(t")


def test_group_exists_only_once_a_member_joins(lab: tools.ShardLab) -> None:
    refused(lab, ErrorCode.GROUP_ID_NOT_FOUND, "a", 1)
    refused(lab, ErrorCode.GROUP_ID_NOT_FOUND, "a", -1)


def test_disabled_protocol_is_refused() -> None:
    lab = tools.ShardLab({"t": 1}, GroupConfig(rebalance_protocols=("classic",)))
    refused(lab, ErrorCode.UNSUPPORTED_VERSION, "a", 0)


def test_first_member_gets_everything_at_epoch_two(lab: tools.ShardLab) -> None:
    response = lab.heartbeat("a", 0)
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 2, 5_000)
    assert tools.assigned(response) == {(tools.topic_id("t"), i) for i in range(4)}
    assert lab.group.state_name == "Stable"


def test_steady_heartbeat_writes_nothing_and_returns_nothing_new(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0))
    log = len(lab.writer.logs[0])
    response = lab.heartbeat("a", 2, owned)
    assert response.assignment is None
    assert lab.heartbeat("a", 2).assignment is None
    assert len(lab.writer.logs[0]) == log


def test_full_heartbeat_gets_the_whole_assignment_again(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0))
    response = lab.heartbeat("a", 2, owned, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"])
    assert tools.assigned(response) == owned


def test_second_member_gets_its_share_only_after_the_first_revoked(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    joined = lab.heartbeat("b", 0)
    assert (joined.member_epoch, tools.assigned(joined)) == (3, ASSIGNMENT_OF_NOTHING)
    assert lab.group.state_name == "Reconciling"

    response = lab.heartbeat("a", 2, everything)
    kept = tools.assigned(response)
    assert response.member_epoch == 2, "the epoch must wait for the revocation"
    assert len(kept) == 2
    assert lab.heartbeat("b", 3, set()).assignment is None, "not released yet"

    confirmed = lab.heartbeat("a", 2, kept)
    assert confirmed.member_epoch == 3
    given = lab.heartbeat("b", 3, set())
    assert tools.assigned(given) == everything - kept
    assert lab.group.state_name == "Stable"


def test_leaving_frees_the_partitions_for_the_others(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    lab.heartbeat("b", 0)
    left = lab.heartbeat("a", -1)
    assert (left.member_id, left.member_epoch) == ("a", -1)
    response = lab.heartbeat("b", 3, set())
    assert (response.member_epoch, tools.assigned(response)) == (4, everything)
    refused(lab, ErrorCode.UNKNOWN_MEMBER_ID, "a", 1)


def test_group_is_empty_after_its_last_member_leaves(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    lab.heartbeat("a", -1)
    assert lab.group.state_name == "Empty"
    assert (lab.group.epoch, len(lab.group.targets)) == (3, 0)


def test_wrong_epochs_are_fenced(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    lab.heartbeat("b", 0)
    kept = tools.assigned(lab.heartbeat("a", 2, everything))
    lab.heartbeat("a", 2, kept)
    refused(lab, ErrorCode.FENCED_MEMBER_EPOCH, "a", 4, kept)
    refused(lab, ErrorCode.FENCED_MEMBER_EPOCH, "a", 2, everything)
    refused(lab, ErrorCode.FENCED_MEMBER_EPOCH, "a", 2)


def test_member_two_epochs_behind_is_fenced_whatever_it_owns(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0))
    for size in (5, 6):
        lab.set_topics({"t": size})
        lab.heartbeat("a", lab.group.members["a"].epoch, owned)
    assert lab.group.members["a"].epoch == 4
    refused(lab, ErrorCode.FENCED_MEMBER_EPOCH, "a", 2, owned)
    assert lab.heartbeat("a", 3, owned).member_epoch == 4


def test_member_whose_answer_got_lost_may_repeat_itself_at_the_previous_epoch(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    lab.heartbeat("b", 0)
    kept = tools.assigned(lab.heartbeat("a", 2, everything))
    lab.heartbeat("a", 2, kept)
    assert lab.heartbeat("a", 2, kept).member_epoch == 3


def test_changed_subscription_increases_the_group_epoch(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0))
    response = lab.heartbeat("a", 2, owned, subscribed_topic_names=["t", "u"])
    assert (lab.group.epoch, response.member_epoch) == (3, 3)
    assert len(tools.assigned(response)) == 6


def test_growing_topic_increases_the_group_epoch_at_the_next_heartbeat(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0))
    lab.set_topics({"t": 6, "u": 2})
    response = lab.heartbeat("a", 2, owned)
    assert (lab.group.epoch, len(tools.assigned(response))) == (3, 6)


def test_topic_without_subscribers_changes_nothing(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0))
    lab.set_topics({"t": 4, "u": 20, "v": 1})
    assert lab.heartbeat("a", 2, owned).assignment is None
    assert lab.group.epoch == 2


def test_deleted_topic_is_revoked(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0, subscribed_topic_names=["t", "u"]))
    lab.set_topics({"t": 4})
    response = lab.heartbeat("a", 2, owned)
    assert {topic for topic, _ in tools.assigned(response)} == {tools.topic_id("t")}


def test_topic_created_later_is_assigned(lab: tools.ShardLab) -> None:
    assert tools.assigned(lab.heartbeat("a", 0, subscribed_topic_names=["later"])) == ASSIGNMENT_OF_NOTHING
    lab.set_topics({"later": 3})
    assert len(tools.assigned(lab.heartbeat("a", 2, set()))) == 3


def test_regex_subscription_follows_matching_topics(lab: tools.ShardLab) -> None:
    fields: HeartbeatFields = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|x.*"}
    assert tools.assigned(lab.heartbeat("a", 0, **fields)) == ASSIGNMENT_OF_NOTHING, "not resolved yet"
    assert lab.resolve()
    owned = tools.assigned(lab.heartbeat("a", 1))
    assert {topic for topic, _ in owned} == {tools.topic_id("t")}
    lab.set_topics({"t": 4, "u": 2, "x1": 1, "yx": 1})
    lab.pass_time(10_001)
    assert lab.heartbeat("a", 2, owned).assignment is None
    assert lab.resolve()
    owned = tools.assigned(lab.heartbeat("a", 2, owned))
    assert {topic for topic, _ in owned} == {tools.topic_id("t"), tools.topic_id("x1")}


def test_empty_regex_ends_the_regex_subscription(lab: tools.ShardLab) -> None:
    owned = tools.assigned(lab.heartbeat("a", 0, subscribed_topic_regex="u"))
    lab.resolve()
    owned = tools.assigned(lab.heartbeat("a", 2, owned))
    assert len(owned) == 6
    response = lab.heartbeat("a", 3, owned, subscribed_topic_regex="")
    assert len(tools.assigned(response)) == 4
    assert not lab.group.resolved, "nobody needs it any longer"


def test_most_wanted_assignor_is_used(lab: tools.ShardLab) -> None:
    from pykraft.group_coordinator.consumer.target_assignment import preferred_assignor

    for name, assignor in (("a", "range"), ("b", "range"), ("c", "uniform")):
        lab.heartbeat(name, 0, server_assignor=assignor)
    assert preferred_assignor(lab.group, ("uniform", "range")) == "range"
    lab.heartbeat("a", -1)
    assert preferred_assignor(lab.group, ("uniform", "range")) == "uniform"


def test_full_group_accepts_no_new_member_but_a_known_one_may_rejoin() -> None:
    lab = tools.ShardLab({"t": 4}, GroupConfig(consumer_max_size=1))
    lab.heartbeat("a", 0)
    refused(lab, ErrorCode.GROUP_MAX_SIZE_REACHED, "b", 0)
    assert lab.heartbeat("a", 0).error_code == 0


def test_silent_member_is_fenced_when_its_session_ends(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    lab.heartbeat("b", 0)
    lab.pass_time(30_000)
    lab.heartbeat("b", 3, set())
    lab.pass_time(15_000)
    assert set(lab.group.members) == {"b"}
    assert tools.assigned(lab.heartbeat("b", 3, set())) == everything


def test_member_that_does_not_revoke_in_time_is_fenced(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, rebalance_timeout_ms=20_000))
    lab.heartbeat("b", 0)
    lab.heartbeat("a", 2, everything)
    for _ in range(4):
        lab.pass_time(4_000)
        lab.heartbeat("a", 2, everything)
        lab.heartbeat("b", 3, set())
    lab.pass_time(4_000)
    assert set(lab.group.members) == {"b"}
    refused(lab, ErrorCode.UNKNOWN_MEMBER_ID, "a", 1, everything)


def test_each_revocation_has_the_whole_rebalance_timeout(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, rebalance_timeout_ms=20_000))
    lab.heartbeat("b", 0)
    kept = tools.assigned(lab.heartbeat("a", 2, everything))
    lab.pass_time(15_000)
    for member_id in ("c", "d"):
        lab.heartbeat(member_id, 0)
    less = tools.assigned(lab.heartbeat("a", 2, kept))
    assert less < kept, "it has to revoke again"
    epoch = lab.group.members["a"].epoch
    lab.pass_time(15_000)
    lab.heartbeat("a", epoch, kept)
    assert "a" in lab.group.members
    lab.pass_time(5_000)
    assert "a" not in lab.group.members


def test_static_member_that_leaves_temporarily_releases_what_it_had_to_revoke(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, instance_id="i"))
    lab.heartbeat("b", 0)
    kept = tools.assigned(lab.heartbeat("a", 2, everything))
    lab.heartbeat("a", -2, instance_id="i")
    assert tools.assigned(lab.heartbeat("b", 3, set())) == everything - kept


def test_recreated_topic_is_assigned_again(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    assert {topic for topic, _ in everything} == {tools.topic_id("t")}
    lab.topics = TopicsView(tools.make_image({"t": 4}, 2, {"t": 2}))
    response = lab.heartbeat("a", 2)
    response = lab.heartbeat("a", response.member_epoch, set())
    assigned = tools.assigned(response) or lab.group.members["a"].assigned
    assert {topic for topic, _ in assigned} == {tools.topic_id("t", 2)}


def test_end_of_a_session_that_could_not_be_written_is_tried_again(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    lab.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.pass_time(lab.config.consumer_session_timeout_ms)
    assert set(lab.group.members) == {"a"}
    lab.writer.refuse = None
    lab.pass_time(TIMER_RETRY_MS)
    assert lab.group.is_empty


def test_member_that_revokes_in_time_is_not_fenced(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, rebalance_timeout_ms=20_000))
    lab.heartbeat("b", 0)
    kept = tools.assigned(lab.heartbeat("a", 2, everything))
    lab.pass_time(19_000)
    lab.heartbeat("a", 2, kept)
    lab.heartbeat("b", 3, set())
    lab.pass_time(30_000)
    assert set(lab.group.members) == {"a", "b"}


def test_rebalance_timeout_survives_a_failover(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, rebalance_timeout_ms=20_000))
    lab.heartbeat("b", 0)
    lab.heartbeat("a", 2, everything)
    lab.fail_over()
    lab.pass_time(20_000)
    assert set(lab.group.members) == {"b"}


def test_sessions_start_again_after_a_failover(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    lab.clock.now_ms += 1_000_000
    lab.fail_over()
    lab.pass_time(44_999)
    assert set(lab.group.members) == {"a"}
    lab.pass_time(1)
    assert set(lab.group.members) == set()


# --- static members --------------------------------------------------------------------------------------


def test_static_member_finds_its_partitions_waiting_under_a_new_id(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, instance_id="i"))
    left = lab.heartbeat("a", -2, instance_id="i")
    assert left.member_epoch == -2
    epoch = lab.group.epoch
    response = lab.heartbeat("a2", 0, instance_id="i")
    assert tools.assigned(response) == everything
    assert set(lab.group.members) == {"a2"}
    assert lab.group.epoch == epoch, "no rebalance for a restart"
    refused(lab, ErrorCode.FENCED_INSTANCE_ID, "a", 1, everything, instance_id="i")


def test_static_member_may_return_under_its_old_id(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, instance_id="i"))
    lab.heartbeat("a", -2, instance_id="i")
    response = lab.heartbeat("a", 0, instance_id="i")
    assert (response.member_epoch, tools.assigned(response)) == (2, everything)


def test_instance_id_in_use_is_not_released(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0, instance_id="i")
    refused(lab, ErrorCode.UNRELEASED_INSTANCE_ID, "b", 0, instance_id="i")


def test_unknown_instance_id_is_an_unknown_member(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    refused(lab, ErrorCode.UNKNOWN_MEMBER_ID, "a", 1, instance_id="i")


def test_partitions_of_an_absent_static_member_wait_until_its_session_ends(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0, instance_id="i"))
    lab.heartbeat("a", -2, instance_id="i")
    assert tools.assigned(lab.heartbeat("b", 0)) == ASSIGNMENT_OF_NOTHING
    assert lab.heartbeat("b", 3, set()).assignment is None
    lab.pass_time(30_000)
    lab.heartbeat("b", 3, set())
    lab.pass_time(15_000)
    assert tools.assigned(lab.heartbeat("b", 3, set())) == everything


def test_static_member_that_leaves_permanently_is_removed(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0, instance_id="i")
    refused(lab, ErrorCode.FENCED_INSTANCE_ID, "x", -1, instance_id="i")
    lab.heartbeat("a", -1, instance_id="i")
    assert not lab.group.members
    assert not lab.group.static_members


# --- the skeleton ----------------------------------------------------------------------------------------


def test_failed_append_changes_nothing(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    lab.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    refused(lab, ErrorCode.COORDINATOR_NOT_AVAILABLE, "b", 0)
    lab.writer.refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused(lab, ErrorCode.NOT_COORDINATOR, "b", 0)
    lab.writer.refuse = None
    assert lab.heartbeat("b", 0).member_epoch == 3


def test_fencing_that_could_not_be_written_is_tried_again(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    lab.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.pass_time(45_000)
    assert set(lab.group.members) == {"a"}
    lab.writer.refuse = None
    lab.pass_time(1_000)
    assert not lab.group.members


def test_one_heartbeat_is_one_batch(lab: tools.ShardLab) -> None:
    lab.heartbeat("a", 0)
    assert len(lab.writer.batches) == 1
    assert len(lab.writer.batches[0][2]) == 5


def test_unrevoked_state_is_written(lab: tools.ShardLab) -> None:
    everything = tools.assigned(lab.heartbeat("a", 0))
    lab.heartbeat("b", 0)
    lab.heartbeat("a", 2, everything)
    live = lab.shard.state
    lab.fail_over()
    assert lab.shard.state == live
    assert lab.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
