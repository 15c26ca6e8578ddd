"""Members of groups, reduced to what a rebalance needs: they join, send heartbeats, and know their share."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from typing import Any

from comparison.requests import check, topic_id
from data_path import Client

from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from pykraft.kafka_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykraft.kafka_protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pykraft.kafka_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pykraft.kafka_protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

HEARTBEAT_S = 0.05

_SESSION_TIMEOUT_MS = 30_000
_REBALANCE_TIMEOUT_MS = 60_000
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Member(ABC, threading.Thread):
    """``owned`` is the share that the coordinator knows the member has."""

    def __init__(self, port: int, group: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.owned: frozenset[int] = frozenset()
        self._client = Client(port)
        self._topic = topic
        self._partitions = partitions
        self._stopped = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._join()
            while not self._stopped.wait(HEARTBEAT_S):
                self._heartbeat()
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise what ended the thread."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopped.set()

    def leave(self) -> None:
        """Once it is stopped."""
        if self.ident is not None:
            self.join()
        if self._error is None:
            self._leave()
        self._client.socket.close()

    @abstractmethod
    def _join(self) -> None: ...

    @abstractmethod
    def _heartbeat(self) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...

    def _ask(self, request: Any, version: int, response_class: Any) -> Any:
        """Again while the coordinator loads the group."""
        while True:
            answer = self._client.call(request, version, response_class)
            if answer.error_code not in _NOT_YET or self._stopped.wait(HEARTBEAT_S):
                return answer


class ClassicMember(Member):
    """In the classic protocol; it gives up its share before it joins again."""

    _member_id = ""
    _generation = -1

    def _join(self) -> None:
        self.owned = frozenset()
        while not self._stopped.is_set():
            joined = self._ask(self._join_request(), 5, JoinGroupResponse)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            check(joined.error_code, "JoinGroup")
            self._member_id, self._generation = joined.member_id, joined.generation_id
            assignments = self._assign(joined) if joined.leader == joined.member_id else []
            request = SyncGroupRequest(
                group_id=self.group, generation_id=self._generation, member_id=self._member_id,
                assignments=assignments,
            )  # fmt: skip
            synced = self._ask(request, 3, SyncGroupResponse)
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            check(synced.error_code, "SyncGroup")
            assignment, _ = decode_assignment(synced.assignment)
            self.owned = frozenset(
                index for topic in assignment.assigned_partitions for index in topic.partitions
            )
            return

    def _join_request(self) -> JoinGroupRequest:
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[self._topic]))
        return JoinGroupRequest(
            group_id=self.group, member_id=self._member_id, protocol_type="consumer",
            session_timeout_ms=_SESSION_TIMEOUT_MS, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            protocols=[JoinGroupRequestProtocol(name="round-robin", metadata=subscription)],
        )  # fmt: skip

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        ids = [member.member_id for member in joined.members]
        shares = [range(place, self._partitions, len(ids)) for place in range(len(ids))]
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            AssignmentTopicPartition(topic=self._topic, partitions=list(share))
                        ]
                    )
                ),
            )
            for member_id, share in zip(ids, shares, strict=True)
        ]

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self._generation, member_id=self._member_id
        )
        answer = self._ask(request, 3, HeartbeatResponse)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        else:
            check(answer.error_code, "Heartbeat")

    def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self._member_id)])
        self._ask(request, 3, LeaveGroupResponse)


class ConsumerMember(Member):
    """In the protocol of KIP-848."""

    def __init__(self, port: int, group: str, topic: str, partitions: int) -> None:
        super().__init__(port, group, topic, partitions)
        self._member_id = str(uuid.uuid4())
        self._epoch = 0
        self._topic_id = topic_id(self._client, topic)

    def _join(self) -> None:
        self._send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self._member_id,
                member_epoch=0,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        )

    def _heartbeat(self) -> None:
        self._send(self._request(self._epoch))

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """And say at once what it owns now, as long as the answers change that."""
        while True:
            answer = self._ask(request, 1, ConsumerGroupHeartbeatResponse)
            check(answer.error_code, "ConsumerGroupHeartbeat")
            self._epoch = answer.member_epoch
            if request.topic_partitions:
                self.owned = frozenset(request.topic_partitions[0].partitions)
            if answer.assignment is None:
                return
            topics = answer.assignment.topic_partitions
            share = frozenset(index for topic in topics for index in topic.partitions)
            if share == self.owned:
                return
            request = self._request(self._epoch)
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=self._topic_id, partitions=sorted(share)
                )
            ]

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=epoch
        )

    def _leave(self) -> None:
        self._ask(self._request(-1), 1, ConsumerGroupHeartbeatResponse)
