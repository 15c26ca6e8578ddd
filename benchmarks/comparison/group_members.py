"""Members of groups, reduced to what a rebalance needs, without sockets: what they say next.

A member is a generator: it yields an :class:`Ask` and gets its answer, or yields None and goes on after its
heartbeat interval. Threads (:mod:`comparison.rows.members`) and fleets (:mod:`coordination.fleet`) play them.
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from comparison.requests import check

from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Asked again by whoever plays the member."""

CLASSIC_HEARTBEAT_S: Final = 3.0
"""The default of consumers; in the other protocol the coordinator says it."""

_REBALANCE_TIMEOUT_MS: Final = 60_000


class Ask(NamedTuple):
    request: Any
    version: int


Steps = Generator[Ask | None, Any, None]


class Topic(NamedTuple):
    name: str
    topic_id: Any
    partitions: int


class Life(ABC):
    """``owned`` is the share that the coordinator knows the member has; ``interval_s`` between heartbeats."""

    def __init__(self, group: str, topic: Topic, session_timeout_ms: int) -> None:
        self.group = group
        self.owned: frozenset[int] = frozenset()
        self.interval_s = CLASSIC_HEARTBEAT_S
        self._topic = topic
        self._session_timeout_ms = session_timeout_ms

    def steps(self) -> Steps:
        """Join and stay, without an end."""
        yield from self._join()
        while True:
            yield None
            yield from self._heartbeat()

    @abstractmethod
    def goodbye(self) -> Ask: ...

    @abstractmethod
    def _join(self) -> Steps: ...

    @abstractmethod
    def _heartbeat(self) -> Steps: ...


class ClassicLife(Life):
    """In the classic protocol, eager: it gives up its share before it joins again."""

    _member_id = ""
    _generation = -1

    def goodbye(self) -> Ask:
        members = [MemberIdentity(member_id=self._member_id)]
        return Ask(LeaveGroupRequest(group_id=self.group, members=members), 3)

    def _join(self) -> Steps:
        self.owned = frozenset()
        while True:
            joined = yield Ask(self._join_request(), 5)
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
            synced = yield Ask(request, 3)
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            check(synced.error_code, "SyncGroup")
            assignment, _ = decode_assignment(synced.assignment)
            self.owned = frozenset(
                index for topic in assignment.assigned_partitions for index in topic.partitions
            )
            return

    def _join_request(self) -> JoinGroupRequest:
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[self._topic.name]))
        return JoinGroupRequest(
            group_id=self.group, member_id=self._member_id, protocol_type="consumer",
            session_timeout_ms=self._session_timeout_ms, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            protocols=[JoinGroupRequestProtocol(name="round-robin", metadata=subscription)],
        )  # fmt: skip

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        ids = [member.member_id for member in joined.members]
        shares = [range(place, self._topic.partitions, len(ids)) for place in range(len(ids))]
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            AssignmentTopicPartition(topic=self._topic.name, partitions=list(share))
                        ]
                    )
                ),
            )
            for member_id, share in zip(ids, shares, strict=True)
        ]

    def _heartbeat(self) -> Steps:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self._generation, member_id=self._member_id
        )
        answer = yield Ask(request, 3)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            yield from self._join()
        else:
            check(answer.error_code, "Heartbeat")


class ConsumerLife(Life):
    """In the protocol of KIP-848. Its session timeout is the group's."""

    def __init__(self, group: str, topic: Topic, session_timeout_ms: int) -> None:
        super().__init__(group, topic, session_timeout_ms)
        self._member_id = str(uuid.uuid4())
        self._epoch = 0

    def goodbye(self) -> Ask:
        return Ask(self._request(-1), 1)

    def beat(self) -> Ask:
        """One that says nothing new."""
        return Ask(self._request(self._epoch), 1)

    def _join(self) -> Steps:
        yield from self._say(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self._member_id,
                member_epoch=0,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=[self._topic.name],
                topic_partitions=[],
            )
        )

    def _heartbeat(self) -> Steps:
        yield from self._say(self._request(self._epoch))

    def _say(self, request: ConsumerGroupHeartbeatRequest) -> Steps:
        """And say at once what it owns now, as long as the answers change that."""
        while True:
            answer = yield Ask(request, 1)
            check(answer.error_code, "ConsumerGroupHeartbeat")
            self._epoch = answer.member_epoch
            self.interval_s = answer.heartbeat_interval_ms / 1000
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
                    topic_id=self._topic.topic_id, partitions=sorted(share)
                )
            ]

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=epoch
        )
