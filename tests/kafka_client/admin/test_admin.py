"""Administration: what is retried, until when, and that one item's error does not affect the others."""

from collections.abc import Iterable, Iterator

import pytest

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.errors import ClientTimeoutError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import ConfigChange, NewTopic
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    encode_assignment,
)
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import cluster, configs, groups, records
from pykraft.kafka_protocol.messages import offsets as offset_messages
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tests.kafka_client.scripted import Answer, ScriptedCluster

ASSIGNED = AssignmentTopicPartition(topic="t", partitions=[3, 1])


@pytest.fixture
def admin(scripted: ScriptedCluster) -> Iterator[Admin]:
    admin = Admin(scripted.network, scripted.client().config)
    yield admin
    admin.close()


def script_create(scripted: ScriptedCluster, codes_by_try: Iterable[int | dict[str, int]]) -> None:
    """CreateTopics answers the n-th request with the n-th code for every topic."""
    tries = iter(codes_by_try)

    def handler(broker_id: int, request: topic_messages.CreateTopicsRequest, version: int) -> Answer:
        code = next(tries)
        codes = code if isinstance(code, dict) else dict.fromkeys((t.name for t in request.topics), code)
        results = [
            topic_messages.CreatableTopicResult(
                name=topic.name, error_code=codes[topic.name], topic_id=Uuid(b"i" * 16)
            )
            for topic in request.topics
        ]
        return topic_messages.CreateTopicsResponse(topics=results)

    scripted.script(ApiKey.CREATE_TOPICS, handler)


def test_create_is_retried_while_there_is_no_controller(scripted: ScriptedCluster, admin: Admin) -> None:
    script_create(scripted, [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE])
    (created,) = run(admin.create_topics([NewTopic("t", 3, 2)]))
    assert created.check().topic_id == b"i" * 16
    assert len({broker for broker, _, _ in scripted.requests(ApiKey.CREATE_TOPICS)}) > 1, (
        "other brokers are asked"
    )


def test_create_gives_up_at_the_deadline_and_names_the_last_error(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_create(scripted, [ErrorCode.NOT_CONTROLLER] * 1000)
    with pytest.raises(ClientTimeoutError, match="CreateTopics: gave up; the last error was NOT_CONTROLLER"):
        run(admin.create_topics([NewTopic("t")], timeout_ms=3_000))
    assert scripted.network.time_ms <= 1_000 + 3_000


def test_one_topics_error_does_not_hide_anothers_success(scripted: ScriptedCluster, admin: Admin) -> None:
    script_create(
        scripted,
        [{"a": ErrorCode.TOPIC_ALREADY_EXISTS, "b": ErrorCode.NOT_CONTROLLER}, {"b": ErrorCode.NONE}],
    )
    first, second = run(admin.create_topics([NewTopic("a"), NewTopic("b")]))
    assert first.error is not None and first.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert second.error is None
    assert [[t.name for t in r.topics] for _, _, r in scripted.requests(ApiKey.CREATE_TOPICS)] == [
        ["a", "b"],
        ["b"],
    ]


def test_new_topic_reaches_the_wire_with_counts_configs_and_assignments(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_create(scripted, [0])
    topics = [
        NewTopic("counts", 6, 3, {"min.insync.replicas": "2"}),
        NewTopic("defaults"),
        NewTopic("assigned", assignments={0: (1, 2), 1: (2, 3)}),
    ]
    run(admin.create_topics(topics, validate_only=True))
    ((_, _, request),) = scripted.requests(ApiKey.CREATE_TOPICS)
    assert request.validate_only and 0 < request.timeout_ms < 30_000
    sent = [(t.num_partitions, t.replication_factor) for t in request.topics]
    assert sent == [(6, 3), (-1, -1), (-1, -1)]
    assert [(c.name, c.value) for c in request.topics[0].configs] == [("min.insync.replicas", "2")]
    assert [(a.partition_index, a.broker_ids) for a in request.topics[2].assignments] == [
        (0, [1, 2]),
        (1, [2, 3]),
    ]


@pytest.mark.parametrize("newest", [5, 6])
def test_deleting_an_unknown_topic_fails_at_once(
    scripted: ScriptedCluster, admin: Admin, newest: int
) -> None:
    def handler(broker_id: int, request: topic_messages.DeleteTopicsRequest, version: int) -> Answer:
        names = [t.name for t in request.topics] or request.topic_names
        results = [topic_messages.DeletableTopicResult(name=name, error_code=3) for name in names]
        return topic_messages.DeleteTopicsResponse(responses=results)

    scripted.script(ApiKey.DELETE_TOPICS, handler)
    for broker in scripted.brokers.values():
        broker.ranges[ApiKey.DELETE_TOPICS] = (1, newest)
    (outcome,) = run(admin.delete_topics(["nope"]))
    assert outcome.error is not None and outcome.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert scripted.network.slept_ms == []


def test_topics_are_described_page_by_page(scripted: ScriptedCluster, admin: Admin) -> None:
    def handler(
        broker_id: int, request: topic_messages.DescribeTopicPartitionsRequest, version: int
    ) -> Answer:
        first = 0 if request.cursor is None else request.cursor.partition_index
        partition = topic_messages.DescribeTopicPartitionsResponsePartition(
            partition_index=first, leader_id=2, leader_epoch=4, replica_nodes=[2, 1], isr_nodes=[2]
        )
        topic = topic_messages.DescribeTopicPartitionsResponseTopic(
            name="t", topic_id=Uuid(b"i" * 16), partitions=[partition]
        )
        cursor = topic_messages.DescribeTopicPartitionsResponseCursor(
            topic_name="t", partition_index=first + 1
        )
        return topic_messages.DescribeTopicPartitionsResponse(
            topics=[topic], next_cursor=cursor if first < 2 else None
        )

    scripted.script(ApiKey.DESCRIBE_TOPIC_PARTITIONS, handler)
    (topic,) = run(admin.describe_topics(["t"]))
    assert [(p.index, p.leader, p.replicas, p.isr) for p in topic.partitions] == [
        (index, 2, (2, 1), (2,)) for index in range(3)
    ]


def test_topics_are_described_through_metadata_where_the_newer_api_is_missing(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    scripted.add_topic("t", {0: (1, 5), 1: (-1, 6)})
    (topic,) = run(admin.describe_topics(["t"]))
    assert [(p.leader, p.leader_epoch) for p in topic.partitions] == [(1, 5), (None, 6)]


def test_describing_an_unknown_topic_fails_soon(scripted: ScriptedCluster, admin: Admin) -> None:
    with pytest.raises(KafkaError, match="topic nope does not exist"):
        run(admin.describe_topics(["nope"], timeout_ms=60_000))
    assert scripted.network.time_ms < 10_000


def test_list_offsets_asks_each_leader_and_again_after_a_move(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    scripted.add_topic("t", {0: (1, 5), 1: (2, 6), 2: (2, 6)})

    def handler(broker_id: int, request: records.ListOffsetsRequest, version: int) -> Answer:
        topic = request.topics[0]
        partitions = []
        for wanted in topic.partitions:
            leads = scripted.leaders["t"][wanted.partition_index][0] == broker_id
            partitions.append(
                records.ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=0 if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    offset=100 + wanted.partition_index if leads else -1,
                )
            )
        answer = records.ListOffsetsTopicResponse(name="t", partitions=partitions)
        return records.ListOffsetsResponse(topics=[answer])

    scripted.script(ApiKey.LIST_OFFSETS, handler)
    run(admin.describe_topics(["t"]))
    scripted.leaders["t"][1] = (3, 7)
    wanted = {TopicPartition("t", index): -1 for index in range(3)}
    found = run(admin.list_offsets(wanted))
    assert [found[TopicPartition("t", index)].offset for index in range(3)] == [100, 101, 102]
    asked = [(b, [p.partition_index for p in r.topics[0].partitions]) for b, _, r in scripted.requests(2)]
    assert asked == [(1, [0]), (2, [1, 2]), (3, [1])], "offsets already answered are not requested again"


@pytest.mark.parametrize(
    ("timeout_ms", "told_ms"), [(60_000, 29_500), (2_000, 1_500), (1_001, 501), (1_000, 500), (600, 300)]
)
def test_broker_answers_about_deleted_records_before_the_client_gives_up(
    scripted: ScriptedCluster, admin: Admin, timeout_ms: int, told_ms: int
) -> None:
    """Half a second, or half of the time, remains for the answer."""
    scripted.add_topic("t", {0: (1, 5)})
    partition = records.DeleteRecordsPartitionResult(partition_index=0, low_watermark=7)
    topic = records.DeleteRecordsTopicResult(name="t", partitions=[partition])
    scripted.script(
        ApiKey.DELETE_RECORDS,
        lambda broker, request, version: records.DeleteRecordsResponse(topics=[topic]),
    )
    place = TopicPartition("t", 0)
    assert run(admin.delete_records({place: 7}, timeout_ms=timeout_ms)) == {place: 7}
    ((_, _, request),) = scripted.requests(ApiKey.DELETE_RECORDS)
    assert request.timeout_ms == told_ms


def script_coordinator(scripted: ScriptedCluster, node_ids: Iterable[int | None]) -> None:
    notified = iter(node_ids)

    def handler(broker_id: int, request: groups.FindCoordinatorRequest, version: int) -> Answer:
        node = next(notified)
        if node is None:
            coordinator = groups.Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            coordinator = groups.Coordinator(key="g", node_id=node, host="broker", port=node)
        return groups.FindCoordinatorResponse(coordinators=[coordinator])

    scripted.script(ApiKey.FIND_COORDINATOR, handler)


def consumer_group(error: int = 0) -> groups.ConsumerGroupDescribeResponse:
    assignment = groups.Assignment(
        topic_partitions=[groups.TopicPartitions(topic_id=Uuid(b"i" * 16), topic_name="t", partitions=[2, 0])]
    )
    member = groups.Member(
        member_id="m", member_epoch=3, client_id="c", assignment=assignment, subscribed_topic_names=["t"]
    )
    group = groups.ConsumerDescribedGroup(
        group_id="g", error_code=error, group_state="Stable", group_epoch=3, members=[member]
    )
    return groups.ConsumerGroupDescribeResponse(groups=[group])


def test_group_is_described_by_the_coordinator_that_takes_over(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_coordinator(scripted, [None, 1, 2])
    scripted.script(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda broker, request, version: consumer_group(ErrorCode.NOT_COORDINATOR if broker == 1 else 0),
    )
    group = run(admin.describe_group("g"))
    assert (group.type, group.state, group.group_epoch, group.coordinator.id) == ("consumer", "Stable", 3, 2)
    assert group.members[0].assignment == {"t": (0, 2)}


def test_classic_group_is_described_by_the_classic_call(scripted: ScriptedCluster, admin: Admin) -> None:
    script_coordinator(scripted, [1] * 9)
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    scripted.script(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda broker, request, version: consumer_group(missing))
    group = DescribedGroup(group_id="g", group_state="Empty", protocol_type="consumer", protocol_data="range")
    scripted.script(
        ApiKey.DESCRIBE_GROUPS, lambda broker, request, version: DescribeGroupsResponse(groups=[group])
    )
    described = run(admin.describe_group("g"))
    assert (described.type, described.state, described.assignor) == ("classic", "Empty", "range")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[ASSIGNED])), {"t": (1, 3)}),
        (b"\0\x09" + encode_assignment(ConsumerProtocolAssignment())[2:] + b"newer", {}),
        (b"\xff\xff", {}),
        (b"\0\0\x7f\xff\xff\xff", {}),
    ],
)
def test_assignment_of_a_classic_member_is_shown_or_left_out_where_it_makes_no_sense(
    scripted: ScriptedCluster, admin: Admin, data: bytes, shown: dict[str, tuple[int, ...]]
) -> None:
    script_coordinator(scripted, [1] * 9)
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    scripted.script(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda broker, request, version: consumer_group(missing))
    members = [DescribedGroupMember(member_id="m", member_assignment=data)]
    group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", members=members)
    scripted.script(
        ApiKey.DESCRIBE_GROUPS, lambda broker, request, version: DescribeGroupsResponse(groups=[group])
    )
    (member,) = run(admin.describe_group("g")).members
    assert member.assignment == shown


def test_group_that_does_not_exist_is_reported(scripted: ScriptedCluster, admin: Admin) -> None:
    script_coordinator(scripted, [1] * 9)
    group = DescribedGroup(group_id="g", group_state="Dead")
    scripted.script(
        ApiKey.DESCRIBE_GROUPS, lambda broker, request, version: DescribeGroupsResponse(groups=[group])
    )
    with pytest.raises(KafkaError) as caught:
        run(admin.describe_group("g"))
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_of_all_brokers_are_listed(scripted: ScriptedCluster, admin: Admin) -> None:
    def handler(broker_id: int, request: groups.ListGroupsRequest, version: int) -> Answer:
        group = groups.ListedGroup(group_id=f"g{broker_id}", group_state="Stable", group_type="consumer")
        return groups.ListGroupsResponse(groups=[group])

    scripted.script(ApiKey.LIST_GROUPS, handler)
    listed = run(admin.list_groups())
    assert [(group.group_id, group.coordinator_id) for group in listed] == [("g1", 1), ("g2", 2), ("g3", 3)]


@pytest.mark.parametrize("newest", [7, 10])
def test_committed_offsets_are_read_in_both_shapes_of_the_request(
    scripted: ScriptedCluster, admin: Admin, newest: int
) -> None:
    script_coordinator(scripted, [2] * 9)

    def handler(broker_id: int, request: offset_messages.OffsetFetchRequest, version: int) -> Answer:
        if version <= 7:
            assert request.group_id == "g" and request.topics is None
            partitions = [
                offset_messages.OffsetFetchResponsePartition(partition_index=0, committed_offset=7),
                offset_messages.OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
            ]
            topic = offset_messages.OffsetFetchResponseTopic(name="t", partitions=partitions)
            return offset_messages.OffsetFetchResponse(topics=[topic])
        assert version <= 9, "the answer must name topics"
        assert [(g.group_id, g.topics) for g in request.groups] == [("g", None)]
        grouped = [
            offset_messages.OffsetFetchResponsePartitions(partition_index=0, committed_offset=7),
            offset_messages.OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
        ]
        topics = [offset_messages.OffsetFetchResponseTopics(name="t", partitions=grouped)]
        group = offset_messages.OffsetFetchResponseGroup(group_id="g", topics=topics)
        return offset_messages.OffsetFetchResponse(groups=[group])

    scripted.script(ApiKey.OFFSET_FETCH, handler)
    for broker in scripted.brokers.values():
        broker.ranges[ApiKey.OFFSET_FETCH] = (1, newest)
    offsets = run(admin.group_offsets("g"))
    assert {str(where): committed.offset for where, committed in offsets.items()} == {"t-0": 7}


def test_quorum_is_described_with_its_endpoints(scripted: ScriptedCluster, admin: Admin) -> None:
    replica = cluster.ReplicaState(replica_id=1, log_end_offset=40, last_fetch_timestamp=-1)
    partition = cluster.DescribeQuorumResponsePartitionData(
        leader_id=1, leader_epoch=9, high_watermark=40, current_voters=[replica], error_message=None
    )
    node = cluster.Node(node_id=1, listeners=[cluster.Listener(name="CONTROLLER", host="h", port=9093)])
    response = cluster.DescribeQuorumResponse(
        error_message=None,
        topics=[cluster.DescribeQuorumResponseTopicData(partitions=[partition])],
        nodes=[node],
    )
    scripted.script(ApiKey.DESCRIBE_QUORUM, lambda broker, request, version: response)
    quorum = run(admin.describe_quorum())
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == (1, 9, 40)
    assert quorum.voters[0].last_fetch_timestamp_ms is None
    assert str(quorum.nodes[1]["CONTROLLER"]) == "h:9093"


def test_configs_are_described_with_their_sources(scripted: ScriptedCluster, admin: Admin) -> None:
    config = configs.DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1)
    unexpected = configs.DescribeConfigsResourceResult(name="x", value=None, config_source=99)
    result = configs.DescribeConfigsResult(resource_type=2, resource_name="t", configs=[config, unexpected])
    scripted.script(
        ApiKey.DESCRIBE_CONFIGS,
        lambda broker, request, version: configs.DescribeConfigsResponse(results=[result]),
    )
    entries = run(admin.describe_configs(ConfigResourceType.TOPIC, "t"))
    assert [(e.name, e.value, e.source) for e in entries] == [
        ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("x", None, ConfigSource.UNKNOWN),
    ]


def test_refused_config_change_is_raised_with_the_brokers_message(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    refused = configs.AlterConfigsResourceResponse(
        error_code=ErrorCode.INVALID_CONFIG, error_message="no such key", resource_type=2, resource_name="t"
    )
    scripted.script(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda broker, request, version: configs.IncrementalAlterConfigsResponse(responses=[refused]),
    )
    with pytest.raises(KafkaError, match="no such key"):
        run(
            admin.alter_configs(
                ConfigResourceType.TOPIC, "t", [ConfigChange("nope", ConfigOperation.SET, "1")]
            )
        )


def test_only_the_broker_of_directories_is_asked_to_cordon_them(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    asked: list[int] = []

    def handler(broker: int, request: configs.IncrementalAlterConfigsRequest, version: int) -> Answer:
        asked.append(broker)
        accepted = configs.AlterConfigsResourceResponse(
            error_message=None, resource_type=4, resource_name=request.resources[0].resource_name
        )
        return configs.IncrementalAlterConfigsResponse(responses=[accepted])

    scripted.script(ApiKey.INCREMENTAL_ALTER_CONFIGS, handler)
    for broker in ("3", "2", "3"):
        cordon = ConfigChange("cordoned.log.dirs", ConfigOperation.SET, "/d")
        run(admin.alter_configs(ConfigResourceType.BROKER, broker, [cordon]))
    assert asked == [3, 2, 3]


def test_no_broker_up_is_reported_with_every_address(scripted: ScriptedCluster, admin: Admin) -> None:
    for broker in scripted.brokers.values():
        broker.up = False
    with pytest.raises(ClientTimeoutError, match="no broker answers") as caught:
        run(admin.describe_cluster(timeout_ms=1_000))
    assert all(f"broker:{broker_id}" in str(caught.value) for broker_id in (1, 2, 3))


def test_cluster_is_described_through_metadata_where_the_newer_api_is_missing(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    described = run(admin.describe_cluster())
    assert described.cluster_id == "scripted"
    assert [broker.id for broker in described.brokers] == [1, 2, 3]
