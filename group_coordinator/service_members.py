"""The requests of members: heartbeats of the consumer protocol, and the four of the classic one."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from pykraft.group_coordinator.classic.join import handle_join_group
from pykraft.group_coordinator.classic.join_request import check_join
from pykraft.group_coordinator.classic.sync import (
    check_sync,
    handle_heartbeat,
    handle_leave_group,
    handle_sync_group,
)
from pykraft.group_coordinator.consumer.heartbeat import handle_consumer_heartbeat
from pykraft.group_coordinator.consumer.heartbeat_validation import check_request
from pykraft.group_coordinator.error_responses import as_version_has_it
from pykraft.group_coordinator.leave_request import leave_some_at_a_time
from pykraft.group_coordinator.migration.migration import PreparedUpgrade
from pykraft.group_coordinator.service_base import MERGES, ServiceBase
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.member import JOIN_EPOCH
from pykraft.group_coordinator.state.names import check_group_id
from pykraft.group_coordinator.state.result import Call
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.regex.pattern import LONG_PATTERN_CHARS, prepare_regex

_LARGE_GROUP = 100
"""The members of a group whose upgrade takes some milliseconds."""
_MANY_TOPICS = 500
"""The topics of a subscription that take some milliseconds to look at for the first time."""


class MemberApis(ServiceBase):
    """As in Kafka, what is wrong with a request by itself is told before it is known who coordinates."""

    async def consumer_group_heartbeat(
        self, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> ConsumerGroupHeartbeatResponse:
        check_request(request, self._call(ctx, request, version))
        regex = request.subscribed_topic_regex
        if regex and len(regex) > LONG_PATTERN_CHARS and self._workers is not None:
            await self._workers.run(partial(prepare_regex, regex))
        names = request.subscribed_topic_names
        if names is not None and len(names) > _MANY_TOPICS:
            await self._looks.finish(self._runtime.topics.hash_in_slices(names))
        if request.member_epoch == JOIN_EPOCH and self._is_large_upgrade(request.group_id):
            return await self._upgrade(ctx, request, version)
        return await self._consumer_heartbeat(self._call(ctx, request, version), request)

    def _consumer_heartbeat(
        self, call: Call, request: ConsumerGroupHeartbeatRequest, prepared: PreparedUpgrade | None = None
    ) -> Awaitable[ConsumerGroupHeartbeatResponse]:
        call.heartbeat_interval_ms = self._pace.interval_ms(call.config)
        return self._write(
            request.group_id,
            lambda state: handle_consumer_heartbeat(state, request, call, prepared),
            (request.group_id, request.member_id, call.config),
        )

    def _is_large_upgrade(self, group_id: str) -> bool:
        """Whether a member that joins would change the protocol of very many others."""
        group = self._runtime.state_of(self.partition_for(group_id)).groups.get(group_id)
        return isinstance(group, ClassicGroup) and len(group.members) > _LARGE_GROUP

    async def _upgrade(
        self, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> ConsumerGroupHeartbeatResponse:
        """Prepare the upgrade of a group over several turns, then decide on it as on any other."""
        group_id, partition = request.group_id, self.partition_for(request.group_id)
        prepared = None
        async with self._upgrades:  # many may join at once: for the others there is nothing left to prepare
            for _ in range(MERGES):
                call = self._call(ctx, request, version)
                group = self._runtime.state_of(partition).groups.get(group_id)
                if not isinstance(group, ClassicGroup) or (prepared and prepared.of(group, call)):
                    break
                prepared = PreparedUpgrade(group, call)
                try:
                    await self._changes.finish(prepared.prepare())
                except KafkaError:
                    break  # as it will be when it is decided
        return await self._consumer_heartbeat(self._call(ctx, request, version), request, prepared)

    async def join_group(
        self, ctx: RequestContext, request: JoinGroupRequest, version: int
    ) -> JoinGroupResponse:
        call = self._call(ctx, request, version)
        check_join(request, call)
        response = await self._write(request.group_id, lambda state: handle_join_group(state, request, call))
        return as_version_has_it(response, version)

    async def sync_group(
        self, ctx: RequestContext, request: SyncGroupRequest, version: int
    ) -> SyncGroupResponse:
        check_sync(request, version)
        call = self._call(ctx, request, version)
        return await self._write(request.group_id, lambda state: handle_sync_group(state, request, call))

    async def heartbeat(
        self, ctx: RequestContext, request: HeartbeatRequest, version: int
    ) -> HeartbeatResponse:
        check_group_id(request.group_id)
        call = self._call(ctx, request, version)
        return await self._write(
            request.group_id,
            lambda state: handle_heartbeat(state, request, call),
            (request.group_id, request.member_id, call.config),
        )

    async def leave_group(
        self, ctx: RequestContext, request: LeaveGroupRequest, version: int
    ) -> LeaveGroupResponse:
        """Each member by itself, some at a time: a request may name all of a large group."""
        check_group_id(request.group_id)
        response = None
        for some in leave_some_at_a_time(request):
            call = self._call(ctx, some, version)
            answer = await self._write(
                request.group_id,
                lambda state: handle_leave_group(state, some, call),  # noqa: B023 (it is called at once)
            )
            if response is None:
                response = answer
            else:
                response.members += answer.members
                await self._looks.pause()
        assert response is not None, "also of no members"
        return response
