"""The player's own questions to a system: versions, topics, whether it has seen all that was sent before."""

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeVar

from pykraft.jepsen_like.conformance.lane import ANSWER_TIMEOUT_S, Lane
from pykraft.jepsen_like.conformance.script import TOPICS
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from pykraft.kafka_protocol.messages.records import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from pykraft.kafka_protocol.messages.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
)
from pykraft.runtime.address import Address

M = TypeVar("M", bound=Message)

_SETTLING_ROUND_TRIPS: Final = 2
_METADATA_VERSION: Final = 12
_CREATE_TOPICS_VERSION: Final = 7
_DELETE_TOPICS_VERSION: Final = 5
_LIST_OFFSETS_VERSION: Final = 5
_INIT_PRODUCER_ID_VERSION: Final = 4
_TRANSACTION_TIMEOUT_MS: Final = 600_000
_PAUSE_S: Final = 0.01
_EARLIEST: Final = -2
_TIMEOUT_MS: Final = 30_000
_TOPIC_CONFIGS: Final = {"retention.ms": "-1", "segment.ms": "9000000000000"}
"""Records of scripts are old; a segment that ended because of that would end a Fetch, too."""


class Probe:
    """A system at an address, asked over a connection of the player's own."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.address = address
        self._probe = Lane(address)
        self.versions = self._ask_versions()

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="script", client_software_version="1")
        answer = self._call(request, 3)
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    @cached_property
    def topic_ids(self) -> dict[str, Uuid]:
        """The ids of :data:`TOPICS`."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
        answer = self._call(request, _METADATA_VERSION)
        found = {
            topic.name: Uuid(topic.topic_id) for topic in answer.topics if topic.name and not topic.error_code
        }
        assert found.keys() == TOPICS.keys(), f"{self.name} has {sorted(found)}"
        return found

    def make_topics(self, partitions: Mapping[str, int]) -> dict[str, Uuid]:
        """Topics with so many partitions, ready for use; their ids."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in _TOPIC_CONFIGS.items()]
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=configs)
            for name, count in partitions.items()
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
        answer = self._call(request, _CREATE_TOPICS_VERSION)
        failed = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
        assert not failed, f"{self.name} does not create {failed}"
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not self._are_ready(partitions):
            assert time.monotonic() < deadline, f"{self.name} has no leader for {sorted(partitions)}"
            time.sleep(_PAUSE_S)
        return {topic.name: Uuid(topic.topic_id) for topic in answer.topics}

    def _are_ready(self, partitions: Mapping[str, int]) -> bool:
        asked = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=_EARLIEST) for index in range(count)
                ],
            )
            for name, count in partitions.items()
        ]
        answer = self._call(ListOffsetsRequest(replica_id=-1, topics=asked), _LIST_OFFSETS_VERSION)
        return all(part.error_code == ErrorCode.NONE for topic in answer.topics for part in topic.partitions)

    def drop_topics(self, names: list[str]) -> None:
        self._call(DeleteTopicsRequest(topic_names=names, timeout_ms=_TIMEOUT_MS), _DELETE_TOPICS_VERSION)

    def use_up_epochs(self, transactional_id: str, epoch: int) -> None:
        """Let producers begin until one of them has this epoch."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )
        for _ in range(2 * epoch):
            answer = self._call(request, _INIT_PRODUCER_ID_VERSION)
            if answer.error_code == ErrorCode.NONE and answer.producer_epoch >= epoch:
                return
        raise AssertionError(f"{self.name} does not reach epoch {epoch} of {transactional_id}")

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction:
        answer = self._call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        return answer.transaction_states[0]

    def settle(self) -> None:
        """Return once the system has seen all that was sent before."""
        for _ in range(_SETTLING_ROUND_TRIPS):
            self._ask_versions()

    def close(self) -> None:
        self._probe.close()

    def _call(self, request: Request[M], version: int) -> M:
        self._probe.send(encode_request(request, version, 1, "probe"))
        frame = self._probe.receive(ANSWER_TIMEOUT_S)
        assert frame is not None, f"{self.name} does not answer"
        return decode(request, version, frame)


def decode(request: Request[M], version: int, frame: bytes) -> M:
    _, body_at = decode_response_header(request.API_KEY, version, frame)
    return request.RESPONSE.decode(frame[body_at:], version)
