"""A member in the classic protocol: JoinGroup, SyncGroup, heartbeats, and the assignment if it is the leader.

With ``range`` (eager) a member revokes everything before it joins again. With ``cooperative-sticky``
(KIP-429) it keeps its partitions, revokes those that the new assignment leaves out, and then joins once more,
so that others can get them. A static member (KIP-345) keeps its place if it stops without leaving.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pykraft.kafka_client.cluster import is_passing
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.group.assignors import MemberSubscription, assign
from pykraft.kafka_client.group.config import COOPERATIVE_STICKY, RANGE, GroupConfig
from pykraft.kafka_client.group.ownership import Ownership
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pykraft.kafka_protocol.primitives import ProtocolError

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
_MORE_TIME_TO_JOIN_MS = 5_000
"""A JoinGroup is answered when the rebalance is over; this is added for the network."""

_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class ClassicMembership:
    """``member_epoch`` is the generation."""

    def __init__(
        self, network: ConcurrentNetwork, link: CoordinatorLink, config: GroupConfig, ownership: Ownership
    ) -> None:
        self.member_id = ""
        self.member_epoch = NO_GENERATION
        self._network = network
        self._link = link
        self._config = config
        self._ownership = ownership
        self._topics = config.topics
        self._assignor = config.assignor or RANGE
        self._must_join = True
        self._assigned: Sequence[TopicPartition] = ()
        self._claimed: frozenset[TopicPartition] = frozenset()
        self._led_over: Mapping[str, int] | None = None
        self._looked_ms = 0
        self._sent_ms = 0
        self._retry_at_ms = 0
        self._failures = 0
        self.wake = network.event()

    def subscribe(self, topics: Sequence[str]) -> None:
        self._topics = tuple(topics)
        self._must_join = True
        self.wake.set()

    async def step(self) -> None:
        """Wait until something is due, and do it: a heartbeat, or a whole rebalance.

        :class:`KafkaError` if the group refuses this member for good.
        """
        while (due_ms := self._due_ms()) > self._network.now_ms():
            self.wake.clear()
            await self._network.wait(self.wake, due_ms)
        try:
            if self._must_join:
                await self._rejoin()
            else:
                await self._heartbeat()
                await self._maybe_look_at_topics()
            self._failures = 0
        except KafkaError as error:
            self._failed(error)

    async def leave(self, link: CoordinatorLink, deadline_ms: int) -> None:
        """Leave the group, in one attempt. A static member sends nothing and keeps its place."""
        if not self.member_id or self._config.group_instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self._config.group_id,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id)],
        )
        await link.call(request, deadline_ms)

    def stop(self) -> None:
        """Nothing runs beside :meth:`step`."""

    def _due_ms(self) -> int:
        if self._must_join:
            return self._retry_at_ms
        return max(self._retry_at_ms, self._sent_ms + self._config.heartbeat_interval_ms)

    def _deadline_ms(self) -> int:
        timeout_ms = min(self._link.cluster.config.request_timeout_ms, self._config.session_timeout_ms // 3)
        return self._network.now_ms() + timeout_ms

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._config.group_id,
            generation_id=self.member_epoch,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        self._sent_ms = sent_ms = self._network.now_ms()
        response = await self._link.call(request, self._deadline_ms())
        self._link.check(response.error_code, "Heartbeat")
        self._renew(sent_ms)
        self._take_missing()  # taken by a lapse, but still assigned

    async def _rejoin(self) -> None:
        if self._assignor != COOPERATIVE_STICKY:
            await self._ownership.revoke(list(self._ownership.held()))
        topics = self._topics
        joined = await self._join(topics)
        self.member_id, self.member_epoch = joined.member_id, joined.generation_id
        self._ownership.renew(self._sent_ms, self.member_id, self.member_epoch)
        assignments: list[SyncGroupRequestAssignment] = []
        self._led_over = None
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._lead(joined)
        partitions = await self._sync(joined, assignments)
        self._must_join = self._topics is not topics
        await self._adopt(partitions)

    async def _join(self, topics: Sequence[str]) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self._config.group_id,
                session_timeout_ms=self._config.session_timeout_ms,
                rebalance_timeout_ms=self._config.max_poll_interval_ms,
                member_id=self.member_id,
                group_instance_id=self._config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(name=self._assignor, metadata=self._subscription(topics))
                ],
            )
            self._sent_ms = self._network.now_ms()
            deadline_ms = self._sent_ms + self._config.max_poll_interval_ms + _MORE_TIME_TO_JOIN_MS
            response = await self._link.call(request, deadline_ms)
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                self._link.check(response.error_code, "JoinGroup")
                return response
            self.member_id = response.member_id

    def _subscription(self, topics: Sequence[str]) -> bytes:
        owned: dict[str, list[int]] = defaultdict(list)
        self._claimed = frozenset(self._ownership.held())
        for topic, partition in sorted(self._claimed):
            owned[topic].append(partition)
        subscription = ConsumerProtocolSubscription(
            topics=sorted(set(topics)),
            owned_partitions=[
                SubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in owned.items()
            ],
            generation_id=self.member_epoch,
        )
        return encode_subscription(subscription)

    async def _lead(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = {}
        for member in joined.members:
            members[member.member_id] = _read_subscription(member)
        topics = {topic for member in members.values() for topic in member.topics}
        counts = await self._partition_counts(topics)
        assignment = assign(joined.protocol_name or self._assignor, counts, members)
        self._led_over = counts
        self._looked_ms = self._network.now_ms()
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_encode(partitions))
            for member_id, partitions in assignment.items()
        ]

    async def _sync(
        self, joined: JoinGroupResponse, assignments: list[SyncGroupRequestAssignment]
    ) -> list[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._config.group_id,
            generation_id=self.member_epoch,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        self._sent_ms = sent_ms = self._network.now_ms()
        deadline_ms = sent_ms + self._config.max_poll_interval_ms + _MORE_TIME_TO_JOIN_MS
        response = await self._link.call(request, deadline_ms)
        self._link.check(response.error_code, "SyncGroup")
        self._renew(sent_ms)
        if not response.assignment:
            return []
        decoded, _ = decode_assignment(response.assignment)
        return _flatten(decoded.assigned_partitions)

    async def _adopt(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned = partitions
        surplus = self._claimed - set(partitions)
        if surplus:
            # No other member gets them before this one has joined without them, even if it has lost them
            # meanwhile.
            self._must_join = True
            await self._ownership.revoke(surplus)
        self._take_missing()

    def _take_missing(self) -> None:
        held = self._ownership.held()
        missing = [partition for partition in self._assigned if partition not in held]
        if missing:
            self._ownership.take(dict.fromkeys(missing, ZERO_UUID))

    async def _partition_counts(self, topics: set[str]) -> dict[str, int]:
        """Topics that do not exist are left out: they may be created later."""
        await self._link.cluster.refresh(sorted(topics), self._deadline_ms())
        metadata = self._link.cluster.metadata
        return {name: len(known.partitions) for name in topics if (known := metadata.topic(name)) is not None}

    async def _maybe_look_at_topics(self) -> None:
        """The leader asks for a new assignment when there are more partitions than it has assigned."""
        counts = self._led_over
        due_ms = self._looked_ms + self._config.metadata_max_age_ms
        if counts is None or self._network.now_ms() < due_ms:
            return
        self._looked_ms = self._network.now_ms()
        if await self._partition_counts({*counts, *self._topics}) != counts:
            self._must_join = True

    def _renew(self, sent_ms: int) -> None:
        if not self._ownership.renew(sent_ms, self.member_id, self.member_epoch):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the answer came after the session")

    def _failed(self, error: KafkaError) -> None:
        code = error.code
        if code in _FENCED:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._fenced()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            if not self._must_join:
                self._must_join = True
                return  # told by a heartbeat: join at once
        elif not is_passing(error):
            self._fenced()
            raise error
        self._failures += 1
        client = self._link.cluster.config
        pause_ms = client.retry_backoff_ms * 2 ** min(self._failures - 1, 16)
        self._retry_at_ms = self._network.now_ms() + min(pause_ms, client.retry_backoff_max_ms)

    def _fenced(self) -> None:
        self.member_epoch = NO_GENERATION
        self._must_join = True
        self._assigned = ()
        self._ownership.lose()


def _read_subscription(member: JoinGroupResponseMember) -> MemberSubscription:
    """A member whose subscription cannot be decoded gets nothing; the others are not affected."""
    try:
        decoded, _ = decode_subscription(member.metadata)
    except ProtocolError:
        return MemberSubscription(frozenset())
    owned = tuple(_flatten(decoded.owned_partitions))
    return MemberSubscription(
        frozenset(decoded.topics), owned, decoded.generation_id, member.group_instance_id
    )


def _flatten(
    topics: Sequence[AssignmentTopicPartition] | Sequence[SubscriptionTopicPartition],
) -> list[TopicPartition]:
    return [TopicPartition(one.topic, index) for one in topics for index in one.partitions]


def _encode(partitions: Sequence[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    assigned = [AssignmentTopicPartition(topic=topic, partitions=p) for topic, p in by_topic.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned))
