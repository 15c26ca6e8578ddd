"""RemoveRaftVoter (81): remove a controller, named by id and directory, from the voters (KIP-853)."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, int16, int32, message, string, uuid
from pykraft.kafka_protocol.ids import Uuid


@message(81, versions="0", flexible="0+")
class RemoveRaftVoterRequest(Message):
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


@message(81, versions="0", flexible="0+")
class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
