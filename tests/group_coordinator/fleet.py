"""Members of both protocols in one group, over a coordinator in memory."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Unpack

from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ListGroupsRequest,
)
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import Classic, JoinSettings
from tests.group_coordinator.tools import HeartbeatFields
from tests.waits import settle

SESSION_MS = 20_000
"""Of classic members."""
CONSUMER_SESSION_MS = 45_000
REBALANCE_MS = 60_000
PARTITIONS = 4
MIGRATION_CONFIG = GroupConfig(
    offsets_topic_num_partitions=1,
    initial_rebalance_delay_ms=0,
    consumer_session_timeout_ms=CONSUMER_SESSION_MS,
    consumer_assignment_interval_ms=0,
)


def subscription(
    *topics: str, owned: Iterable[int] = (), version: int = 1, user_data: bytes | None = None
) -> bytes:
    """What a member says of itself; it owns partitions of topic ``t``."""
    partitions = [SubscriptionTopicPartition(topic="t", partitions=sorted(owned))] if owned else []
    told = ConsumerProtocolSubscription(
        topics=list(topics or ("t",)), owned_partitions=partitions, user_data=user_data
    )
    return encode_subscription(told, version)


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    """Partitions of topic ``t``, as a classic leader hands them in."""
    named = [AssignmentTopicPartition(topic="t", partitions=list(partitions))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=named, user_data=user_data), 1)


def partitions_of(assigned: bytes) -> set[int]:
    """Those of topic ``t``."""
    decoded, _ = decode_assignment(assigned)
    return {index for one in decoded.assigned_partitions if one.topic == "t" for index in one.partitions}


class Fleet(Classic):
    """A coordinator of group ``g``, which reads topic ``t`` of four partitions."""

    def __init__(self, config: GroupConfig = MIGRATION_CONFIG) -> None:
        super().__init__(config, {"t": PARTITIONS, "u": 1})

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 5,
        protocols: Mapping[str, bytes] = MappingProxyType({"range": subscription()}),
        **fields: Unpack[JoinSettings],
    ) -> asyncio.Task[Any]:
        values: JoinSettings = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
        return super().join(member_id, version=version, protocols=protocols, **(values | fields))

    async def beat(
        self, member_id: str, epoch: int = 0, owned: Set[int] | None = None, **fields: Unpack[HeartbeatFields]
    ) -> Any:
        """ConsumerGroupHeartbeat of a member that owns partitions of ``t``; None if it does not say."""
        values: HeartbeatFields = {}
        if epoch == 0:
            values = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["t"]}
            owned = set()
        reported = None if owned is None else {(tools.topic_id("t"), index) for index in owned}
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=tools.to_request(reported),
            **(values | fields),
        )
        return await self.send(request, 1)

    async def pair(self, *, protocol: str = "range", instance_ids: Sequence[str] = ()) -> tuple[str, str]:
        """Two classic members at generation 2: the leader with partitions 0 and 1, the other with 2 and 3."""
        joined: list[tuple[str, JoinSettings]] = []
        for number in range(2):
            fields: JoinSettings = {"group_instance_id": instance_ids[number]} if instance_ids else {}
            join = self.join(version=5 if instance_ids else 3, protocols={protocol: subscription()}, **fields)
            await settle()
            await self.pass_time(1)
            again = [
                self.join(name, protocols={protocol: subscription()}, **earlier) for name, earlier in joined
            ]
            joined.append(((await join).member_id, fields))
            answers = [await one for one in again]
        leader, other = joined[0][0], joined[1][0]
        assert {answer.leader for answer in answers} == {leader}
        waiting = self.sync(other, 2)
        await settle()
        await self.sync(leader, 2, {leader: assignment(0, 1), other: assignment(2, 3)})
        assert partitions_of((await waiting).assignment) == {2, 3}
        return leader, other

    async def first(
        self,
        *,
        protocol: str = "range",
        protocol_type: str = "consumer",
        metadata: bytes = subscription(),
    ) -> str:
        """One classic member that has joined, at generation 1, and has yet to assign partitions."""
        join = self.join(version=3, protocol_type=protocol_type, protocols={protocol: metadata})
        await settle()
        await self.pass_time(1)
        return str((await join).member_id)

    async def single(self) -> str:
        """One classic member at generation 1 that has all partitions."""
        member = await self.first()
        await self.sync(member, 1, {member: assignment(*range(PARTITIONS))})
        return member

    async def rejoin(self, member_id: str, owned: Iterable[int] = (), protocol: str = "range") -> Any:
        """JoinGroup of a classic member of a consumer group, which need not wait for others."""
        return await self.join(member_id, protocols={protocol: subscription(owned=owned)})

    async def assigned(self, member_id: str, generation: int) -> set[int]:
        """What SyncGroup assigns."""
        answer = await self.sync(member_id, generation)
        assert answer.error_code == 0, answer
        return partitions_of(answer.assignment)

    async def group_type(self) -> str:
        listed = (await self.send(ListGroupsRequest(), 5)).groups
        return str(listed[0].group_type) if listed else "none"

    async def described(self) -> dict[str, tuple[int, int, set[int]]]:
        """Of each member of a consumer group its epoch, its type (0 is classic), and what it holds."""
        (group,) = (await self.send(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
        assert group.error_code == 0, group
        return {
            member.member_id: (
                member.member_epoch,
                member.member_type,
                {index for one in member.assignment.topic_partitions for index in one.partitions},
            )
            for member in group.members
        }


def owned_by(answer: Any) -> set[int] | None:
    """The partitions of a heartbeat's answer; None if it has no new assignment."""
    if answer.assignment is None:
        return None
    return {index for _, index in tools.assigned(answer)}


@asynccontextmanager
async def running_fleet(**config: object) -> AsyncIterator[Fleet]:
    """With these settings of the coordinator."""
    fleet = Fleet(replace(MIGRATION_CONFIG, **config))  # type: ignore[arg-type]
    await settle()
    try:
        async with asyncio.timeout(20):
            yield fleet
    finally:
        await fleet.service.stop()
