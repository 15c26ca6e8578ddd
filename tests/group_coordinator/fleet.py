"""Members of both protocols in one group, over a coordinator in memory."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

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
    ListGroupsRequest,
)
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import CONFIG, Coordinator, running
from tests.group_coordinator.requests import JoinFields

SESSION_MS = 20_000
"""Of classic members."""
CONSUMER_SESSION_MS = 45_000
REBALANCE_MS = 60_000
PARTITIONS = 4


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


class Fleet(Coordinator):
    """A coordinator of group ``g``, which reads topic ``t`` of four partitions."""

    join_version = 5
    joins: ClassVar[JoinFields] = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
    protocols: Mapping[str, bytes] = MappingProxyType({"range": subscription()})
    shares = (assignment(0, 1), assignment(2, 3))
    everything = assignment(*range(PARTITIONS))

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


def running_fleet(**config: object) -> AbstractAsyncContextManager[Fleet]:
    """With these settings of the coordinator."""
    return running(Fleet(replace(CONFIG, **config)))  # type: ignore[arg-type]
