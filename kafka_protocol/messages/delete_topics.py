"""DeleteTopics (20): delete topics by name or, from version 6, by id.

Versions up to 5 carry plain names in ``topic_names``; 6 has ``topics`` with a name or an id each.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, int32, message, string, struct, uuid
from pykraft.kafka_protocol.ids import Uuid


@struct
class DeleteTopicState:
    name: str | None = string(nullable="0+", default=None)
    topic_id: Uuid = uuid()


@message(20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    topic_names: list[str] = array("string", "1-5")
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


@message(20, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
