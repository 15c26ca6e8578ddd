"""Administering groups: coordinators are looked for again, and one group's error hides no other's result."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.errors import ClientTimeoutError, UnsupportedByBrokerError
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import MemberToRemove
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import groups as group_messages
from pykraft.kafka_protocol.messages import offsets as offset_messages
from tests.kafka_client.scripted import Answer, ScriptedCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MOVED = ErrorCode.NOT_COORDINATOR


@pytest.fixture
def admin(scripted: ScriptedCluster) -> Iterator[Admin]:
    admin = Admin(scripted.network, scripted.client().config)
    yield admin
    admin.close()


@pytest.fixture
def coordinators(scripted: ScriptedCluster) -> dict[str, int]:
    """The coordinator of each group, broker 1 unless a test says otherwise; 0: none is available."""
    nodes: dict[str, int] = {}

    def find(key: str) -> group_messages.Coordinator:
        node = nodes.get(key, 1)
        if not node:
            return group_messages.Coordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return group_messages.Coordinator(key=key, node_id=node, host="broker", port=node)

    def answer(
        broker: int, request: group_messages.FindCoordinatorRequest, version: int
    ) -> group_messages.FindCoordinatorResponse:
        if version >= 4:
            return group_messages.FindCoordinatorResponse(
                coordinators=list(map(find, request.coordinator_keys))
            )
        one = find(request.key)
        return group_messages.FindCoordinatorResponse(
            error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port
        )

    scripted.script(ApiKey.FIND_COORDINATOR, answer)
    return nodes


def script_delete_offsets(
    scripted: ScriptedCluster, code_of: Callable[[int], int], whole: bool = True
) -> None:
    """OffsetDelete is answered with the code for the broker, for the group or for each partition."""

    def answer(broker: int, request: offset_messages.OffsetDeleteRequest, version: int) -> Answer:
        code = code_of(broker)
        if code and whole:
            return offset_messages.OffsetDeleteResponse(error_code=code)
        topics = [
            offset_messages.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    offset_messages.OffsetDeleteResponsePartition(
                        partition_index=it.partition_index, error_code=code if topic.name == "t" else 0
                    )
                    for it in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return offset_messages.OffsetDeleteResponse(topics=topics)

    scripted.script(ApiKey.OFFSET_DELETE, answer)


def test_offsets_are_deleted_at_the_coordinator_that_takes_over(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators["g"] = 1
    script_delete_offsets(scripted, lambda broker: MOVED if broker == 1 else 0)
    scripted.network.on_sleep = lambda: coordinators.update(g=2)
    assert run(admin.delete_group_offsets("g", [U0, T0])) == {T0: None, U0: None}
    assert [broker for broker, _, _ in scripted.requests(ApiKey.OFFSET_DELETE)] == [1, 2]


def test_error_of_a_partition_whose_offset_stays_is_its_own(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    script_delete_offsets(scripted, lambda broker: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, whole=False)
    outcomes = run(admin.delete_group_offsets("g", [T0, T1, U0]))
    assert {key: error and error.code for key, error in outcomes.items()} == {
        T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        T1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        U0: None,
    }


def test_error_of_the_whole_group_is_raised(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    script_delete_offsets(scripted, lambda broker: ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(KafkaError) as caught:
        run(admin.delete_group_offsets("g", [T0]))
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(scripted.requests(ApiKey.OFFSET_DELETE)) == 1


def test_unknown_topic_is_reported_at_once(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    script_delete_offsets(scripted, lambda broker: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, whole=False)
    (error,) = run(admin.delete_group_offsets("g", [T0])).values()
    assert error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert scripted.network.slept_ms == []


def test_offsets_are_set_by_one_commit_of_nobody(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MOVED, ErrorCode.NONE])

    def answer(broker: int, request: offset_messages.OffsetCommitRequest, version: int) -> Answer:
        code = next(codes)
        topics = [
            offset_messages.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    offset_messages.OffsetCommitResponsePartition(
                        partition_index=it.partition_index, error_code=code
                    )
                    for it in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return offset_messages.OffsetCommitResponse(topics=topics)

    scripted.script(ApiKey.OFFSET_COMMIT, answer)
    offsets = {T0: OffsetAndMetadata(7, 3, "why"), U0: OffsetAndMetadata(0)}
    assert run(admin.alter_group_offsets("g", offsets)) == {T0: None, U0: None}
    *_, (_, _, last) = scripted.requests(ApiKey.OFFSET_COMMIT)
    assert (last.generation_id_or_member_epoch, last.member_id, last.group_instance_id) == (-1, "", None)
    sent = [
        (
            topic.name,
            it.partition_index,
            it.committed_offset,
            it.committed_leader_epoch,
            it.committed_metadata,
        )
        for topic in last.topics
        for it in topic.partitions
    ]
    assert sent == [("t", 0, 7, 3, "why"), ("u", 0, 0, -1, "")]


def test_nothing_is_sent_where_no_offset_is_to_be_set(admin: Admin) -> None:
    assert run(admin.alter_group_offsets("g", {})) == {}


def consumer_group(group_id: str, state: str = "Stable") -> group_messages.ConsumerDescribedGroup:
    return group_messages.ConsumerDescribedGroup(group_id=group_id, group_state=state)


def script_describe(
    scripted: ScriptedCluster, of: Callable[[int, str], group_messages.ConsumerDescribedGroup]
) -> None:
    """``of``: the answer of a broker about a group, where it is asked for a consumer group."""
    missing = group_messages.DescribedGroup(
        group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="the second answer"
    )

    def classic(broker: int, request: group_messages.DescribeGroupsRequest, version: int) -> Answer:
        found = [
            group_messages.DescribedGroup(group_id=it, group_state="Empty")
            if it.startswith("classic")
            else group_messages.DescribedGroup(
                group_id=it,
                group_state=missing.group_state,
                error_code=missing.error_code,
                error_message=missing.error_message,
            )
            for it in request.groups
        ]
        return group_messages.DescribeGroupsResponse(groups=found)

    scripted.script(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda broker, request, version: group_messages.ConsumerGroupDescribeResponse(
            groups=[of(broker, it) for it in request.group_ids]
        ),
    )
    scripted.script(ApiKey.DESCRIBE_GROUPS, classic)


def absent(group_id: str) -> group_messages.ConsumerDescribedGroup:
    return group_messages.ConsumerDescribedGroup(
        group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="the first answer"
    )


def test_groups_of_both_kinds_are_described_with_one_request_of_each_kind_to_a_coordinator(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators.update({"b": 2, "classic-b": 2})
    script_describe(scripted, lambda broker, it: consumer_group(it) if it in ("a", "b") else absent(it))
    asked = ["b", "classic-a", "nobody", "a", "classic-b"]
    found = run(admin.describe_groups(asked))
    assert list(found) == asked
    kinds = {name: it.code if isinstance(it, KafkaError) else it.type for name, it in found.items()}
    assert kinds == {
        "a": "consumer",
        "b": "consumer",
        "classic-a": "classic",
        "classic-b": "classic",
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    nobody = found["nobody"]
    assert isinstance(nobody, KafkaError) and nobody.message == "the first answer"
    for api, requests in ((ApiKey.FIND_COORDINATOR, 1), (ApiKey.CONSUMER_GROUP_DESCRIBE, 2)):
        assert len(scripted.requests(api)) == requests


def test_group_that_moves_is_described_by_its_next_coordinator_and_the_others_once(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators["a"] = 0
    script_describe(scripted, lambda broker, it: consumer_group(it))
    scripted.network.on_sleep = lambda: coordinators.update(a=3)
    found = run(admin.describe_groups(["a", "b"]))
    assert not any(isinstance(it, KafkaError) for it in found.values())
    asked = {
        broker: request.group_ids for broker, _, request in scripted.requests(ApiKey.CONSUMER_GROUP_DESCRIBE)
    }
    assert asked == {1: ["b"], 3: ["a"]}


def test_group_without_coordinator_until_the_deadline_fails_alone(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators["a"] = 0
    script_describe(scripted, lambda broker, it: consumer_group(it))
    found = run(admin.describe_groups(["a", "b"], timeout_ms=2_000))
    assert isinstance(found["a"], ClientTimeoutError)
    assert not isinstance(found["b"], KafkaError)


def test_old_broker_is_asked_for_one_coordinator_at_a_time(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    for broker in scripted.brokers.values():
        broker.ranges = {ApiKey.FIND_COORDINATOR: (0, 3)}
    coordinators["b"] = 2
    script_describe(scripted, lambda broker, it: consumer_group(it))
    found = run(admin.describe_groups(["a", "b"]))
    assert [not isinstance(it, KafkaError) and it.coordinator.id for it in found.values()] == [1, 2]


def script_delete_groups(scripted: ScriptedCluster, code_of: Callable[[int, str], int]) -> None:
    scripted.script(
        ApiKey.DELETE_GROUPS,
        lambda broker, request, version: group_messages.DeleteGroupsResponse(
            results=[
                group_messages.DeletableGroupResult(group_id=it, error_code=code_of(broker, it))
                for it in request.groups_names
            ]
        ),
    )


def test_groups_are_deleted_each_with_its_own_outcome(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators.update({"b": 2, "c": 2})
    codes = {"b": ErrorCode.NON_EMPTY_GROUP}
    script_delete_groups(scripted, lambda broker, it: MOVED if (broker, it) == (2, "c") else codes.get(it, 0))
    scripted.network.on_sleep = lambda: coordinators.update(c=3)
    outcomes = run(admin.delete_groups(["c", "b", "a"]))
    assert [(it.name, it.error and it.error.code) for it in outcomes] == [
        ("c", None),
        ("b", ErrorCode.NON_EMPTY_GROUP),
        ("a", None),
    ]
    deleted = [it for _, _, request in scripted.requests(ApiKey.DELETE_GROUPS) for it in request.groups_names]
    assert sorted(deleted) == ["a", "b", "c", "c"], "only the group that moved is asked for twice"


def script_list(scripted: ScriptedCluster, groups: Sequence[tuple[int, str, str]]) -> None:
    """``groups``: coordinator, id and protocol type of each."""
    scripted.script(
        ApiKey.LIST_GROUPS,
        lambda broker, request, version: group_messages.ListGroupsResponse(
            groups=[
                group_messages.ListedGroup(group_id=name, protocol_type=protocol_type)
                for node, name, protocol_type in groups
                if node == broker
            ]
        ),
    )


def test_groups_of_some_protocol_types_are_listed_by_name(scripted: ScriptedCluster, admin: Admin) -> None:
    script_list(scripted, [(2, "a", "consumer"), (1, "c", ""), (1, "b", "connect")])
    assert [it.group_id for it in run(admin.list_groups())] == ["a", "b", "c"]
    some = run(admin.list_groups(["Stable"], ["Classic"], ["consumer", ""]))
    assert [(it.group_id, it.coordinator_id) for it in some] == [("a", 2), ("c", 1)]
    *_, (_, _, last) = scripted.requests(ApiKey.LIST_GROUPS)
    assert (last.states_filter, last.types_filter) == (["Stable"], ["Classic"])


@pytest.mark.parametrize(("newest", "states", "types"), [(3, ["Stable"], []), (4, [], ["Classic"])])
def test_broker_that_cannot_filter_lists_nothing(
    scripted: ScriptedCluster, admin: Admin, newest: int, states: list[str], types: list[str]
) -> None:
    script_list(scripted, [(1, "g", "consumer")])
    for broker in scripted.brokers.values():
        broker.ranges = {ApiKey.LIST_GROUPS: (0, newest)}
    assert len(run(admin.list_groups())) == 1
    with pytest.raises(UnsupportedByBrokerError):
        run(admin.list_groups(states, types))


def script_leave(scripted: ScriptedCluster, code_of: Callable[[str], int]) -> None:
    scripted.script(
        ApiKey.LEAVE_GROUP,
        lambda broker, request, version: group_messages.LeaveGroupResponse(
            members=[
                group_messages.MemberResponse(
                    member_id=it.member_id,
                    group_instance_id=it.group_instance_id,
                    error_code=code_of(it.member_id),
                )
                for it in request.members
            ]
        ),
    )


def test_members_are_removed_by_either_name(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    script_leave(scripted, lambda member_id: ErrorCode.UNKNOWN_MEMBER_ID if member_id == "gone" else 0)
    members = [MemberToRemove("m"), MemberToRemove(instance_id="i"), MemberToRemove("gone")]
    outcomes = run(admin.remove_group_members("g", members, reason="too slow"))
    assert [(it.name, it.error and it.error.code) for it in outcomes] == [
        ("m", None),
        ("i", None),
        ("gone", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    ((_, _, request),) = scripted.requests(ApiKey.LEAVE_GROUP)
    assert {it.reason for it in request.members} == {"member was removed by an admin: too slow"}


def test_all_members_are_removed_static_ones_by_their_instance(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    group = consumer_group("g")
    group.members = [
        group_messages.Member(member_id="m"),
        group_messages.Member(member_id="n", instance_id="i"),
    ]
    script_describe(scripted, lambda broker, it: group)
    script_leave(scripted, lambda member_id: 0)
    assert [it.name for it in run(admin.remove_group_members("g"))] == ["m", "i"]
    ((_, _, request),) = scripted.requests(ApiKey.LEAVE_GROUP)
    assert [(it.member_id, it.group_instance_id) for it in request.members] == [("m", None), ("", "i")]
    group.members = []
    assert run(admin.remove_group_members("g")) == []
    assert len(scripted.requests(ApiKey.LEAVE_GROUP)) == 1
