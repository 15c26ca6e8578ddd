"""Removing members from a group: they are told at their next request, and their partitions are given away."""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_client.admin.describe_groups import GroupDescriptions
from pykraft.kafka_client.admin.topics import error_of
from pykraft.kafka_client.coordinators import ask_coordinator, ask_for_coordinator, connection_to
from pykraft.kafka_client.errors import UnsupportedByBrokerError, check
from pykraft.kafka_client.results import MemberToRemove, Outcome
from pykraft.kafka_protocol.messages.groups import LeaveGroupRequest, MemberIdentity

_SEVERAL_MEMBERS_VERSION = 3
_REASON = "member was removed by an admin"
_MAX_REASON_CHARS = 255


class MemberOperations(GroupDescriptions):
    async def remove_group_members(
        self,
        group_id: str,
        members: Sequence[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[Outcome]:
        """Remove these members (None: all that the group has now). An outcome is named by the member's
        instance id, or else its member id; UNKNOWN_MEMBER_ID for a member that is not there.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        if members is None:
            group = await self.describe_group(group_id, timeout_ms=timeout_ms)
            members = [
                MemberToRemove(instance_id=it.instance_id) if it.instance_id else MemberToRemove(it.member_id)
                for it in group.members
            ]
        if not members:
            return []
        text = (_REASON if reason is None else f"{_REASON}: {reason}")[:_MAX_REASON_CHARS]
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(member_id=it.member_id, group_instance_id=it.instance_id, reason=text)
                for it in members
            ],
        )

        async def attempt() -> list[Outcome]:
            coordinator = await ask_for_coordinator(cluster, group_id, deadline_ms)
            connection = await connection_to(cluster, coordinator, deadline_ms)
            if connection.version_for(request) < _SEVERAL_MEMBERS_VERSION:
                raise UnsupportedByBrokerError("the broker removes members only at their own request")
            response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
            check(response.error_code, None, f"LeaveGroup of {group_id}")
            named = ((it.group_instance_id or it.member_id, it.error_code) for it in response.members)
            return [Outcome(name, error_of(code, None, name)) for name, code in named]

        return await cluster.retrying(f"LeaveGroup of {group_id}", attempt, deadline_ms)
