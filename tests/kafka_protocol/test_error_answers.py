"""An error of a whole request is placed where the message tables have a field for it."""

from typing import TypeVar

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.error_answers import error_answer_in_slices
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import cluster, configs, topics
from pykraft.kafka_protocol.messages import offsets as committed
from pykraft.kafka_protocol.messages import records as offsets
from pykraft.kafka_protocol.messages.groups import DeleteGroupsRequest

R = TypeVar("R", bound=Message)

CODE = ErrorCode.REQUEST_TIMED_OUT
ERROR = KafkaError(CODE, "why")
ID = Uuid(b"0123456789abcdef")


def error_answer(request: Request[R], version: int, error: KafkaError) -> R:
    return at_once(error_answer_in_slices(request, version, error))


def test_an_answer_with_an_error_field_of_its_own_has_the_error_only_there() -> None:
    asked = topics.ElectLeadersRequest(topic_partitions=[topics.TopicPartitions(topic="t", partitions=[0])])
    answer = error_answer(asked, 1, ERROR)
    assert answer == topics.ElectLeadersResponse(error_code=CODE)


def test_a_version_without_such_a_field_has_the_error_for_each_partition() -> None:
    asked = topics.ElectLeadersRequest(
        topic_partitions=[topics.TopicPartitions(topic="t", partitions=[0, 3])]
    )
    (topic,) = error_answer(asked, 0, ERROR).replica_election_results
    assert topic.topic == "t"
    assert topic.partition_result == [
        topics.PartitionResult(partition_id=index, error_code=CODE, error_message="why") for index in (0, 3)
    ]


def test_only_names_are_repeated() -> None:
    asked_topic = topics.CreatableTopic(name="t", num_partitions=7, replication_factor=3)
    (made,) = error_answer(topics.CreateTopicsRequest(topics=[asked_topic]), 7, ERROR).topics
    assert made == topics.CreatableTopicResult(name="t", error_code=CODE, error_message="why")

    partition = offsets.ListOffsetsPartition(partition_index=4, current_leader_epoch=9, timestamp=-2)
    asked = offsets.ListOffsetsRequest(topics=[offsets.ListOffsetsTopic(name="t", partitions=[partition])])
    (topic,) = error_answer(asked, 11, ERROR).topics
    assert topic.name == "t"
    assert topic.partitions == [offsets.ListOffsetsPartitionResponse(partition_index=4, error_code=CODE)]


def test_names_are_those_of_the_version() -> None:
    by_name = topics.DeleteTopicsRequest(topic_names=["t"])
    (result,) = error_answer(by_name, 4, ERROR).responses
    assert result == topics.DeletableTopicResult(name="t", error_code=CODE)
    by_id = topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=None, topic_id=ID)])
    (result,) = error_answer(by_id, 6, ERROR).responses
    assert (result.name, result.topic_id, result.error_message) == (None, ID, "why")
    partition = committed.OffsetCommitRequestPartition(partition_index=1, committed_offset=5)
    topic = committed.OffsetCommitRequestTopic(name="t", topic_id=ID, partitions=[partition])
    for version, name in ((9, "t"), (10, "")):
        request = committed.OffsetCommitRequest(topics=[topic])
        (answered,) = error_answer(request, version, ERROR).topics
        assert (answered.name, answered.topic_id == ID) == (name, version == 10)
        assert [(it.partition_index, it.error_code) for it in answered.partitions] == [(1, CODE)]


def test_groups_and_resources_are_named_as_in_the_request() -> None:
    groups = DeleteGroupsRequest(groups_names=["g", "h"])
    answer = error_answer(groups, 2, ERROR)
    assert [(it.group_id, it.error_code) for it in answer.results] == [("g", CODE), ("h", CODE)]
    resource = configs.DescribeConfigsResource(resource_type=4, resource_name="7", configuration_keys=["a"])
    request = configs.DescribeConfigsRequest(resources=[resource])
    (result,) = error_answer(request, 4, ERROR).results
    assert (result.resource_type, result.resource_name, result.configs) == (4, "7", [])


def test_a_null_that_the_answer_cannot_carry_becomes_empty() -> None:
    request = cluster.MetadataRequest(topics=[cluster.MetadataRequestTopic(name=None, topic_id=ID)])
    for version, name in ((10, ""), (12, None)):
        answer = error_answer(request, version, ERROR)
        (topic,) = cluster.MetadataResponse.decode(answer.encode(version), version).topics
        assert (topic.name, topic.topic_id, topic.error_code) == (name, ID, CODE)


def test_null_and_errors_without_a_field_have_an_empty_answer() -> None:
    everything = cluster.MetadataRequest(topics=None)
    assert error_answer(everything, 9, ERROR) == cluster.MetadataResponse()
    topic = cluster.DescribableLogDirTopic(topic="t", partitions=[0])
    request = cluster.DescribeLogDirsRequest(topics=[topic])
    answer = error_answer(request, 2, ERROR)
    assert answer == cluster.DescribeLogDirsResponse()
