"""The group coordinator's interface to the broker: takes leadership and metadata, answers requests.

Finds the shard of a group and calls the handler of the API: one method each, from request to response. An
error for a request as a whole is raised as :class:`KafkaError`. Here are those about whole groups; those of
members and about offsets are in modules of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykraft.coordinator.descriptions import as_named, each_once
from pykraft.group_coordinator import describe
from pykraft.group_coordinator.offsets.delete_groups import handle_delete_groups
from pykraft.group_coordinator.offsets.large_deletions import (
    LargeGroupDeletion,
    count_small,
)
from pykraft.group_coordinator.service_offsets import OffsetApis
from pykraft.kafka_protocol.codec.schema import EncodedElements, Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import groups as consumer_messages
from pykraft.kafka_protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext

_LISTED_AT_ONCE = 200
_HASHED_AT_ONCE = 500
_REFUSED_AT_ONCE = 500
"""Groups of a shard that is not here: each takes two microseconds."""
_DELETIONS_AT_ONCE = 4
"""The shards in which groups are deleted at a time, each a millisecond of work."""


class GroupCoordinatorService(OffsetApis):
    """The coordinator of every group whose ``__consumer_offsets`` partition this broker leads."""

    async def list_groups(
        self, ctx: RequestContext, request: ListGroupsRequest, version: int
    ) -> ListGroupsResponse:
        wanted = describe.GroupFilter(request)
        response = ListGroupsResponse()
        for partition in self._runtime.hosted_partitions():
            try:
                state = await self._runtime.read(partition, lambda state: state)
            except KafkaError as error:
                # The groups of a partition that moved away meanwhile are listed by their new coordinator.
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    return ListGroupsResponse(error_code=error.code)  # some are missing: none, as in Kafka
                continue
            for number, listed in enumerate(describe.iter_listed(state, wanted), 1):
                if listed is not None:
                    response.groups.append(listed)
                if number % _LISTED_AT_ONCE == 0:
                    await self._looks.pause()
            await self._looks.pause()
        return response

    async def describe_groups(
        self, ctx: RequestContext, request: DescribeGroupsRequest, version: int, operations: int | None = None
    ) -> DescribeGroupsResponse:
        """``operations``: what the client may do with each, if it asks."""

        async def look_up(group_id: str) -> DescribedGroup:
            try:
                describing = await self._runtime.read(
                    self.partition_for(group_id),
                    lambda state: describe.describe_classic_group(state, group_id, version),
                )
            except KafkaError as error:
                return DescribedGroup(group_id=group_id, error_code=error.code)
            return await self._looks.result(describing)

        described = await self._describe(DescribeGroupsResponse, look_up, request.groups, version, operations)
        return DescribeGroupsResponse(groups=described)

    async def consumer_group_describe(
        self,
        ctx: RequestContext,
        request: consumer_messages.ConsumerGroupDescribeRequest,
        version: int,
        operations: int | None = None,
    ) -> consumer_messages.ConsumerGroupDescribeResponse:
        """``operations``: as in :meth:`describe_groups`."""
        response = consumer_messages.ConsumerGroupDescribeResponse

        async def look_up(group_id: str) -> consumer_messages.ConsumerDescribedGroup:
            try:
                describing = await self._runtime.read(
                    self.partition_for(group_id),
                    lambda state: describe.describe_consumer_group(
                        state, group_id, self._runtime.topics, self.config.consumer_assignors, version
                    ),
                )
            except KafkaError as error:
                return consumer_messages.ConsumerDescribedGroup(group_id=group_id, error_code=error.code)
            return await self._looks.result(describing)

        return response(
            groups=await self._describe(response, look_up, request.group_ids, version, operations)
        )

    async def _describe(
        self,
        response: type[Message],
        look_up: Callable[[str], Awaitable[DescribedGroup | consumer_messages.ConsumerDescribedGroup]],
        group_ids: list[str],
        version: int,
        operations: int | None,
    ) -> EncodedElements:
        """The groups of an answer; one that is named twice is described twice, as in Kafka."""
        described: dict[str, bytes] = {}

        async def describe_one(group_id: str) -> None:
            group = await look_up(group_id)
            if operations is not None and group.error_code == ErrorCode.NONE:
                group.authorized_operations = operations
            described[group_id] = response.encode_part(group, version)

        await self._gather_in_slices(describe_one, await self._looks.result(each_once(group_ids)))
        return await self._looks.result(as_named(group_ids, described))

    async def delete_groups(
        self, ctx: RequestContext, request: DeleteGroupsRequest, version: int
    ) -> DeleteGroupsResponse:
        by_partition: dict[int, list[str]] = {}
        names = await self._looks.result(each_once(request.groups_names))
        for number, group_id in enumerate(names, 1):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
            if number % _HASHED_AT_ONCE == 0:
                await asyncio.sleep(0)

        results = EncodedElements()

        async def delete(item: tuple[int, list[str]]) -> None:
            partition, left = item
            while left:
                some = await self._delete_some(partition, left)
                results.extend(DeleteGroupsResponse.encode_part(one, version) for one in some)
                left = left[len(some) :]
                await asyncio.sleep(0)

        await self._gather_in_slices(delete, list(by_partition.items()), _DELETIONS_AT_ONCE)
        return DeleteGroupsResponse(results=results)

    async def _delete_some(self, partition: int, group_ids: list[str]) -> list[DeletableGroupResult]:
        """Delete the first of these groups of one shard: a large one by itself, or some at a time."""
        some = group_ids[:_REFUSED_AT_ONCE]
        try:
            number = count_small(self._runtime.state_of(partition), group_ids)
            some = group_ids[: number or 1]
            delete = self._delete_small if number else self._delete_large
            return (await delete(partition, some)).results
        except KafkaError as error:
            return [DeletableGroupResult(group_id=one, error_code=error.code) for one in some]

    async def _delete_small(self, partition: int, group_ids: list[str]) -> DeleteGroupsResponse:
        max_bytes = self._runtime.max_batch_bytes(partition)
        return await self._runtime.write(
            partition, lambda state: handle_delete_groups(state, group_ids, max_bytes)
        )

    async def _delete_large(self, partition: int, group_ids: list[str]) -> DeleteGroupsResponse:
        (group_id,) = group_ids
        deletion = LargeGroupDeletion(group_id, self._runtime.max_batch_bytes(partition))
        await self._changes.finish(self._prepare(partition, deletion.prepare))
        return await self._runtime.write(partition, deletion.decide)
