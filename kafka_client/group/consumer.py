"""A member in the consumer protocol (KIP-848), where one request, the heartbeat, carries everything.

The coordinator tells what the member may own. The member first revokes the partitions that are left out, by
calling the application, and then acknowledges at once what it owns. A request carries the full identity and
ownership when the member joins and whenever an answer did not arrive; otherwise only the changes. A request
that was given up may be carried out later, and take an assignment with it of which the coordinator tells only
once. So the full ownership is also sent every ``metadata.max.age.ms``. A member that is fenced loses
everything and joins again under the same id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pykraft.kafka_client.cluster import is_passing
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.group.config import GroupConfig
from pykraft.kafka_client.group.ownership import Ownership, Partitions
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork, Task
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ConsumerMembership:
    """``member_id`` is chosen by the client and never changes (KIP-1082)."""

    def __init__(
        self,
        network: ConcurrentNetwork,
        link: CoordinatorLink,
        config: GroupConfig,
        ownership: Ownership,
        member_id: str,
    ) -> None:
        self.member_id = member_id
        self.member_epoch = JOIN_EPOCH
        self._network = network
        self._link = link
        self._config = config
        self._ownership = ownership
        self._topics = config.topics
        self._interval_ms = config.heartbeat_interval_ms
        self._in_full = True
        self._in_full_ms = 0
        self._topics_changed = False
        self._reported: dict[Uuid, list[int]] = {}
        self._assigned_ids: dict[Uuid, list[int]] | None = None
        self._target: Partitions | None = None
        self._assigned_after_ms: int | None = None
        self._reconciliation: Task | None = None
        self._sent_ms: int | None = None
        self._retry_at_ms = 0
        self._failures = 0
        self.wake = network.event()

    def subscribe(self, topics: Sequence[str]) -> None:
        self._topics = tuple(topics)
        self._topics_changed = True
        self.wake.set()

    async def step(self) -> None:
        """Wait until a heartbeat is due, send it and act on the answer.

        :class:`KafkaError` if the group refuses this member for good.
        """
        while (due_ms := self._due_ms()) > self._network.now_ms():
            self.wake.clear()
            await self._network.wait(self.wake, due_ms)
        if self._network.now_ms() >= self._in_full_ms + self._config.metadata_max_age_ms:
            self._in_full = True
        request = self._request()
        self._topics_changed = False
        self._sent_ms = sent_ms = self._network.now_ms()
        timeout_ms = min(self._link.cluster.config.request_timeout_ms, self._config.session_timeout_ms // 3)
        try:
            response = await self._link.call(request, sent_ms + timeout_ms)
            self._link.check(response.error_code, response.error_message or "ConsumerGroupHeartbeat")
            await self._answered(request, response, sent_ms)
        except KafkaError as error:
            self._failed(error)

    async def leave(self, link: CoordinatorLink, deadline_ms: int) -> None:
        """Leave the group, in one attempt. A static member keeps its place for a session."""
        self.stop()
        if self._sent_ms is None:
            return
        epoch = LEAVE_EPOCH if self._config.group_instance_id is None else STATIC_LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )
        await link.call(request, deadline_ms)

    def stop(self) -> None:
        if self._reconciliation is not None:
            self._reconciliation.cancel()

    def _due_ms(self) -> int:
        if self._in_full or self._topics_changed or self._reported != self._owned_by_id():
            return self._retry_at_ms
        return max(self._retry_at_ms, (self._sent_ms or 0) + self._interval_ms)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self._config.group_instance_id,
        )
        owned = self._owned_by_id()
        if self._in_full or owned != self._reported:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in owned.items()
            ]
        if self._in_full or self._topics_changed:
            request.subscribed_topic_names = sorted(set(self._topics))
        if self._in_full:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.server_assignor = self._config.assignor
        return request

    async def _answered(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        sent_ms: int,
    ) -> None:
        before_ms = self._ownership.renewed_ms
        if not self._ownership.renew(sent_ms, self.member_id, response.member_epoch):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the answer came after the session")
        self._failures = 0
        if self._in_full:
            self._in_full, self._in_full_ms = False, sent_ms
        self.member_epoch = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms
        if request.topic_partitions is not None:
            self._reported = {one.topic_id: one.partitions for one in request.topic_partitions}
        if response.assignment is not None:
            self._assigned_ids = {
                topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions
            }
        if self._assigned_ids is not None:
            self._target = await self._named(self._assigned_ids)
            self._maybe_reconcile(before_ms)

    async def _named(self, assigned_ids: dict[Uuid, list[int]]) -> Partitions:
        """The assignment by names. Topics that the metadata does not know yet wait for the next heartbeat."""
        metadata = self._link.cluster.metadata
        if not assigned_ids.keys() <= {topic.topic_id for topic in metadata.topics()}:
            deadline_ms = self._network.now_ms() + self._interval_ms
            try:
                await self._link.cluster.refresh(sorted(set(self._topics)), deadline_ms)
            except KafkaError as error:
                if not is_passing(error):
                    raise
        names = {topic.topic_id: topic.name for topic in metadata.topics()}
        return {
            TopicPartition(names[topic_id], index): topic_id
            for topic_id, partitions in assigned_ids.items()
            if topic_id in names
            for index in partitions
        }

    def _maybe_reconcile(self, before_ms: int | None) -> None:
        """Start to move from what is owned to what the coordinator assigned.

        ``before_ms`` is when the last request was sent whose answer did not yet revoke anything; the time for
        revoking partitions starts at some moment after it.
        """
        if self._reconciliation is not None or self._target == self._ownership.held():
            return
        self._assigned_after_ms = before_ms
        self._reconciliation = self._network.start(self._reconcile())

    async def _reconcile(self) -> None:
        try:
            while self._target is not None:
                target, held = self._target, dict(self._ownership.held())
                surplus = [where for where, topic_id in held.items() if target.get(where) != topic_id]
                if surplus:
                    after_ms = self._assigned_after_ms
                    by_ms = None if after_ms is None else after_ms + self._config.revocation_ms
                    await self._ownership.revoke(surplus, by_ms)
                    continue
                missing = {where: target[where] for where in target if where not in held}
                if missing:
                    self._ownership.take(missing)
                return
        finally:
            self._reconciliation = None
            self.wake.set()

    def _owned_by_id(self) -> dict[Uuid, list[int]]:
        owned: dict[Uuid, list[int]] = defaultdict(list)
        for where, topic_id in sorted(self._ownership.held().items()):
            owned[topic_id].append(where.partition)
        return dict(owned)

    def _failed(self, error: KafkaError) -> None:
        """It is unknown whether the coordinator got the last request: send everything again."""
        self._in_full = True
        self._failures += 1
        code = error.code
        was_member = self.member_epoch > JOIN_EPOCH
        if code in _FENCED or (code is ErrorCode.GROUP_ID_NOT_FOUND and was_member):
            self._fenced()
        elif not is_passing(error) and code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            self._fenced()
            raise error
        client = self._link.cluster.config
        pause_ms = client.retry_backoff_ms * 2 ** min(self._failures - 1, 16)
        self._retry_at_ms = self._network.now_ms() + min(pause_ms, client.retry_backoff_max_ms)

    def _fenced(self) -> None:
        self._assigned_ids = self._target = None
        self._reported = {}
        self.member_epoch = JOIN_EPOCH
        self._ownership.lose()
