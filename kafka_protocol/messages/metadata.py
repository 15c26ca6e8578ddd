"""Metadata (3): brokers, topics, partitions and their leaders, as the answering broker knows them.

All topics: null list from version 1 on, an empty list in version 0. From version 1 an empty list means
none. Version 7 adds leader epochs, 8 the authorized operations, 10 topic ids, 12 look-up by id (null name),
13 an error code for the whole answer.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Body,
    Message,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class MetadataRequestTopic:
    topic_id: Uuid = uuid("10+")
    name: str | None = string(nullable="10+")


@message(3, versions="0-13", flexible="9+")
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = array(
        MetadataRequestTopic, nullable="1+", distinct=("topic_id", "name")
    )
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    offline_replicas: list[int] = array("int32", "5+")


@struct
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: Uuid = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(2**31))


@message(3, versions="0-13", flexible="9+")
class MetadataResponse(Message):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+")

    def encode(self, version: int) -> bytes:
        """As in :class:`Message`; a long list of topics that are already encoded is copied only once."""
        out = Body()
        self.encode_into(version, out)
        return out.to_bytes()
