"""Requests that several families send, and what their answers must say."""

from typing import Any

from comparison.frames import connect

from pykraft.kafka_protocol.messages import cluster, groups, records
from pykraft.testing.processes.wire_client import WireClient, decode_answer

LATEST = -1


def check_produced(frame: bytes | memoryview) -> None:
    """The one partition of an answer, as ``frames.produce_frame`` asks for it."""
    answer = decode_answer(records.ProduceResponse, 8, frame)
    check(answer.responses[0].partition_responses[0].error_code, "Produce")


def check_fetched(frame: bytes | memoryview) -> None:
    """The one partition of an answer, as ``frames.fetch_frame`` asks for it."""
    answer = decode_answer(records.FetchResponse, 11, frame)
    check(answer.responses[0].partitions[0].error_code, "Fetch")


def check(error_code: int, what: str) -> None:
    if error_code:
        raise RuntimeError(f"{what} was answered with error {error_code}")


def end_offset(port: int, topic: str, index: int) -> int:
    partition = records.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
    topics = [records.ListOffsetsTopic(name=topic, partitions=[partition])]
    request = records.ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = connect(port).call(request, 5)
    found = answer.topics[0].partitions[0]
    check(found.error_code, "ListOffsets")
    return int(found.offset)


def topic_id(client: WireClient, name: str) -> Any:
    asked = [cluster.MetadataRequestTopic(name=name)]
    answer = client.call(cluster.MetadataRequest(topics=asked), 10)
    return answer.topics[0].topic_id


def has_coordinator(client: WireClient, group: str) -> bool:
    request = groups.FindCoordinatorRequest(coordinator_keys=[group])
    answer = client.call(request, 4)
    return bool(answer.coordinators[0].error_code == 0)
