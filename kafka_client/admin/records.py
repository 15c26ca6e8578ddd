"""Records of partitions: offsets by time, and deleting what is before an offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.leader_requests import ask_leaders
from pykraft.kafka_client.list_offsets import ListedOffset, list_each_offset, list_offsets
from pykraft.kafka_client.metadata import Partition, TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

_ANSWER_TIME_MS: Final = 500
"""How long before the client gives up the broker is to answer."""


class RecordOperations(Operations):
    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by timestamp in ms, or -1 latest, -2 earliest, -3 largest timestamp."""
        by = self.cluster.deadline(timeout_ms)
        return await list_offsets(self.cluster, timestamps, by, isolation_level)

    async def list_each_offset(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """As :meth:`list_offsets`, with an error in place of the offset for the partitions that fail."""
        return await list_each_offset(self.cluster, timestamps, self.cluster.deadline(timeout_ms))

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete what is before these offsets, -1: before the high watermark.

        Returns the low watermark of each partition, the smallest log start over its replicas, or its error.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def ask(leader_id: int, partitions: list[Partition]) -> dict[TopicPartition, int | KafkaError]:
            by_topic: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
            for partition in partitions:
                offset = offsets[TopicPartition(partition.topic, partition.index)]
                by_topic[partition.topic].append(
                    DeleteRecordsPartition(partition_index=partition.index, offset=offset)
                )
            left_ms = cluster.request_deadline(deadline_ms) - cluster.network.now_ms()
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
                timeout_ms=max(left_ms // 2, left_ms - _ANSWER_TIME_MS),
            )
            response = await cluster.ask_broker(leader_id, request, deadline_ms)
            return {
                TopicPartition(topic.name, it.partition_index): it.low_watermark
                if it.error_code == ErrorCode.NONE
                else KafkaError(
                    ErrorCode(it.error_code), f"DeleteRecords for {topic.name}-{it.partition_index}"
                )
                for topic in response.topics
                for it in topic.partitions
            }

        return await ask_leaders(cluster, "DeleteRecords", offsets, ask, deadline_ms)
