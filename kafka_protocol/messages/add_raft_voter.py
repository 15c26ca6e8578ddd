"""AddRaftVoter (80): add a controller to the voters of the quorum (KIP-853).

Version 1 can ask for an answer before the change is committed.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uint16,
    uuid,
)
from pykraft.kafka_protocol.ids import Uuid


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@message(80, versions="0-1", flexible="0+")
class AddRaftVoterRequest(Message):
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


@message(80, versions="0-1", flexible="0+")
class AddRaftVoterResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
