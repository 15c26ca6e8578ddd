"""The partitions that a request of a broker names, or a part of one: each succeeds or fails alone, and counts
once.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import MetadataImage


class RequestedPartitions:
    """Those of one request, in its order."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._seen: set[tuple[Uuid, int]] = set()

    def check(self, topic_id: Uuid, index: int) -> ErrorCode:
        """INVALID_REQUEST for a partition that was named before; otherwise whether it exists."""
        if (topic_id, index) in self._seen:
            return ErrorCode.INVALID_REQUEST
        self._seen.add((topic_id, index))
        if self._image.topic_by_id(topic_id) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._image.partition(topic_id, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def check_replica(self, broker_id: int, topic_id: Uuid, index: int) -> ErrorCode:
        """As :meth:`check`; NOT_LEADER_OR_FOLLOWER if the broker has no replica of the partition."""
        error = self.check(topic_id, index)
        if (
            error is ErrorCode.NONE
            and broker_id not in self._image.topics_by_id[topic_id].partitions[index].replicas
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error
