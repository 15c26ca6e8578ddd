"""The group coordinator's interface to the broker: takes leadership and metadata, answers requests.

Finds the shard of a group and calls the handler of the API: one method each, from request to response. An
error for a request as a whole is raised as :class:`KafkaError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pykraft.coordinator.answers import Waiter
from pykraft.coordinator.descriptions import as_named, each_once
from pykraft.coordinator.lease import Lease
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, partition_for_key
from pykraft.coordinator.writer import PartitionWriter
from pykraft.group_coordinator import describe
from pykraft.group_coordinator.classic.join import handle_join_group
from pykraft.group_coordinator.classic.join_request import check_join
from pykraft.group_coordinator.classic.sync import (
    check_sync,
    handle_heartbeat,
    handle_leave_group,
    handle_sync_group,
)
from pykraft.group_coordinator.consumer.heartbeat import HeartbeatPace, handle_consumer_heartbeat
from pykraft.group_coordinator.consumer.heartbeat_validation import check_request
from pykraft.group_coordinator.error_responses import as_version_has_it
from pykraft.group_coordinator.leave_request import leave_some_at_a_time
from pykraft.group_coordinator.migration.migration import PreparedUpgrade
from pykraft.group_coordinator.offsets import fetch as offset_fetch
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.offsets.delete import handle_offset_delete
from pykraft.group_coordinator.offsets.delete_groups import handle_delete_groups
from pykraft.group_coordinator.offsets.large_commits import LargeCommit
from pykraft.group_coordinator.offsets.large_deletions import (
    LargeGroupDeletion,
    LargeOffsetDelete,
    count_small,
    is_large_request,
)
from pykraft.group_coordinator.offsets.large_fetches import LargeFetch, is_large
from pykraft.group_coordinator.offsets.transactional import TransactionalCommit, refuse_all
from pykraft.group_coordinator.past_lease import Member
from pykraft.group_coordinator.runtime import GroupRuntime
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.member import JOIN_EPOCH
from pykraft.group_coordinator.state.names import check_group_id
from pykraft.group_coordinator.state.result import Call, CommitCodes, CoordinatorResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.codec.schema import EncodedElements, Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.offset_commit import CommitRequestView
from pykraft.kafka_protocol.ids import Uuid, make_uuid, uuid_to_str
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.kafka_protocol.messages import groups as consumer_messages
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.regex.pattern import LONG_PATTERN_CHARS, prepare_regex
from pykraft.runtime.clock import Clock
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import FatalHandler, Workers
from pykraft.runtime.turns import Turns, UnlimitedTurn

if TYPE_CHECKING:
    from random import Random

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

_GROUPS_AT_ONCE = 20
_LISTED_AT_ONCE = 200
_MOST_CACHED_GROUPS = 10_000
_MERGES = 3
"""How often the offsets of a large change are merged over several turns, if they change meanwhile."""

_LARGE_GROUP = 100
"""The members of a group whose upgrade takes some milliseconds."""

_HASHED_AT_ONCE = 500
_MANY_TOPICS = 500
"""The topics of a subscription that take some milliseconds to look at for the first time."""

_REFUSED_AT_ONCE = 500
"""Groups of a shard that is not here: each takes two microseconds."""

_DELETIONS_AT_ONCE = 4
"""The shards in which groups are deleted at a time, each a millisecond of work."""


class GroupCoordinatorService:
    """The coordinator of every group whose ``__consumer_offsets`` partition this broker leads."""

    def __init__(
        self,
        config: GroupConfig,
        writer: PartitionWriter,
        clock: Clock,
        rng: Random,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
        workers: Workers | None = None,
    ) -> None:
        """``workers`` compile long regular expressions, by default in the turn.

        ``on_growth`` is called repeatedly while the state of groups grows by many long-lived objects.
        """
        self.config = config
        self._runtime = GroupRuntime(config, writer, clock, on_fatal, lease, on_growth, turns)
        self._pace = HeartbeatPace(self._runtime.count_timers)
        turns = UnlimitedTurn() if turns is None else turns
        self._fetches = Slices(turns, "large fetches")
        self._changes = Slices(turns, "large changes")
        self._looks = Slices(turns, "looks at many groups")
        self._upgrades = asyncio.Lock()
        self._workers = workers
        self._clock = clock
        self._rng = rng
        self._partition_cache_of = 0
        self._partition_cache: dict[str, int] = {}
        """Hashing an id takes longer than parsing its request. For this number of partitions."""

    async def start(self) -> None:
        self._runtime.start()

    async def stop(self) -> None:
        """Stop; requests that still wait are answered with NOT_COORDINATOR."""
        await self._runtime.stop()

    def partition_for(self, group_id: str) -> int:
        count = self.num_partitions
        if self._partition_cache_of != count or len(self._partition_cache) >= _MOST_CACHED_GROUPS:
            self._partition_cache_of, self._partition_cache = count, {}
        partition = self._partition_cache.get(group_id)
        if partition is None:
            partition = self._partition_cache[group_id] = partition_for_key(group_id, count)
        return partition

    @property
    def num_partitions(self) -> int:
        """The number of partitions of the offsets topic; the configured one until it exists."""
        return self._runtime.topics.partition_count(OFFSETS_TOPIC) or self.config.offsets_topic_num_partitions

    def leads(self, partition: int) -> bool:
        """Whether this broker has been elected for the partition, which it may still have to load."""
        return self._runtime.leads(partition)

    def states(self) -> Iterator[ShardState]:
        """The newest state of every partition that it serves, for counting."""
        return self._runtime.states()

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition: load it. Until then requests get COORDINATOR_LOAD_IN_PROGRESS."""
        self._runtime.elect(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition: all waiting requests fail with NOT_COORDINATOR."""
        self._runtime.resign(partition)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        self._runtime.on_high_watermark(partition, high_watermark)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._runtime.on_metadata(delta, image)

    def tick(self) -> None:
        """Run every timer that is due (the started service does this by itself)."""
        self._runtime.tick()

    def on_config(self, config: GroupConfig) -> None:
        """This broker's settings have changed; heartbeats from now on are answered by the new ones."""
        self.config = self._runtime.config = config

    # The APIs. A :class:`KafkaError` is the error of a request as a whole. As in Kafka, what is wrong with a
    # request by itself is told before it is known whether the group is coordinated here.

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
            for _ in range(_MERGES):
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

    def commit_offsets(
        self, ctx: RequestContext, request: CommitRequestView, version: int, waiter: Waiter
    ) -> bool:
        """Decide on a commit at once, and give ``waiter`` the error codes when it cannot be lost.

        False if it may not be decided now (:mod:`.past_lease`): use :meth:`offset_commit`.
        """
        call = self._call(ctx, request, version)
        return self._runtime.submit(
            self.partition_for(request.group_id),
            lambda state: handle_offset_commit(state, request, call),
            waiter,
        )

    def commit_in_slices(
        self, ctx: RequestContext, request: CommitRequestView, version: int, waiter: Waiter
    ) -> Generator[None, None, Callable[[], Awaitable[CommitCodes]] | None]:
        """As :meth:`commit_offsets`, over several turns: yields after each slice.

        The result is None, or, where :meth:`commit_offsets` returns False, the function to use instead.
        """
        partition = self.partition_for(request.group_id)
        runtime = self._runtime
        runtime.state_of(partition)  # not for a group that is somewhere else
        commit = LargeCommit(request, self._call(ctx, request, version), runtime.max_batch_bytes(partition))
        yield from commit.prepare()
        for _ in range(_MERGES):
            yield from commit.merge(runtime.state_of(partition))

        def decide(state: ShardState) -> CoordinatorResult[list[int | list[int]]]:
            return commit.decide(state, runtime.topics)

        async def write() -> CommitCodes:
            return await runtime.write(partition, decide)

        return None if runtime.submit(partition, decide, waiter) else write

    async def offset_commit(
        self, ctx: RequestContext, request: CommitRequestView, version: int
    ) -> CommitCodes:
        call = self._call(ctx, request, version)
        return await self._write(request.group_id, lambda state: handle_offset_commit(state, request, call))

    async def txn_offset_commit(
        self,
        ctx: RequestContext,
        request: TxnOffsetCommitRequest,
        version: int,
        verify: Callable[[int], Awaitable[Callable[[], None]]],
    ) -> TxnOffsetCommitResponse:
        """``verify`` asks whether a partition of the offsets topic is part of the request's transaction. It
        returns what is called when the offsets are decided on, and raises if the transaction is over by then.
        """
        try:
            commit = TransactionalCommit(request, self._call(ctx, request, version))
        except KafkaError as error:
            return await self._looks.result(refuse_all(request, version, error.code))
        try:
            codes = await self._decide_transactional(commit, verify) if commit.is_left else []
        except KafkaError as error:
            return await self._looks.result(commit.refuse(error.code))
        return await self._looks.result(commit.build(codes))

    async def _decide_transactional(
        self, commit: TransactionalCommit, verify: Callable[[int], Awaitable[Callable[[], None]]]
    ) -> list[int | list[int]]:
        group_id = commit.request.group_id
        check_group_id(group_id)
        partition = self.partition_for(group_id)
        self._runtime.state_of(partition)  # a transaction that goes on elsewhere is not asked about
        still_verified = await verify(partition)

        def decide(state: ShardState) -> CoordinatorResult[list[int | list[int]]]:
            still_verified()
            return commit.decide(state)

        return await self._runtime.write(partition, decide)

    async def end_transaction(self, partition: int, end: EndOfTransaction) -> None:
        """Append a marker; returns once it is committed. :class:`KafkaError` of the log, or of a request."""
        await self._runtime.end_transaction(partition, end)

    async def offset_fetch(
        self, ctx: RequestContext, request: OffsetFetchRequest, version: int
    ) -> OffsetFetchResponse | bytes:
        """The answer, encoded if it is large: it is then built over several turns.

        What is said of one group is true of one moment: its offsets are immutable.
        """
        call = self._call(ctx, request, version)

        async def find(group: OffsetFetchRequestGroup) -> offset_fetch.Found | KafkaError:
            try:
                return await self._runtime.read(
                    self.partition_for(group.group_id),
                    lambda state: offset_fetch.find_offsets(
                        state, group, require_stable=request.require_stable
                    ),
                )
            except KafkaError as error:
                return error

        groups = offset_fetch.groups_of(request, call.version)
        found = await self._gather_in_slices(find, groups)
        if is_large(groups, found):
            fetch = LargeFetch(groups, found, call.topics, call.version)
            await self._fetches.finish(fetch.build())
            return fetch.body
        answers = [
            offset_fetch.build_group_error(group, offsets.code, call.version)
            if isinstance(offsets, KafkaError)
            else offset_fetch.build_group(group, offsets, call.topics, call.version)
            for group, offsets in zip(groups, found, strict=True)
        ]
        return offset_fetch.build_response(answers, call.version)

    async def offset_delete(
        self, ctx: RequestContext, request: OffsetDeleteRequest, version: int
    ) -> OffsetDeleteResponse:
        check_group_id(request.group_id)
        topics = self._runtime.topics
        if is_large_request(request):
            return await self._delete_offsets_in_slices(request, topics)
        return await self._write(
            request.group_id,
            lambda state: handle_offset_delete(state, request, topics),
        )

    async def _delete_offsets_in_slices(
        self, request: OffsetDeleteRequest, topics: TopicsView
    ) -> OffsetDeleteResponse:
        partition = self.partition_for(request.group_id)
        deletion = LargeOffsetDelete(request, topics, self._runtime.max_batch_bytes(partition))
        await self._changes.finish(self._prepare(partition, deletion.prepare))
        answer = await self._runtime.write(partition, deletion.decide)
        if answer is deletion.response:
            await self._changes.finish(deletion.build())
        return answer

    def _prepare(self, partition: int, prepare: Callable[[ShardState], Iterator[None]]) -> Iterator[None]:
        """Have a large change prepared for the newest state, again if the state changes meanwhile."""
        for _ in range(1 + _MERGES):
            yield from prepare(self._runtime.state_of(partition))

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
            async for some in self._delete_groups(*item):
                results.extend(DeleteGroupsResponse.encode_part(one, version) for one in some)

        await self._gather_in_slices(delete, list(by_partition.items()), _DELETIONS_AT_ONCE)
        return DeleteGroupsResponse(results=results)

    async def _delete_groups(
        self, partition: int, group_ids: list[str]
    ) -> AsyncIterator[list[DeletableGroupResult]]:
        """Delete groups of one shard: each large one by itself, the others some at a time."""
        left = group_ids
        while left:
            some = left[:_REFUSED_AT_ONCE]
            try:
                number = count_small(self._runtime.state_of(partition), left)
                some = left[: number or 1]
                delete = self._delete_small if number else self._delete_large
                results = (await delete(partition, some)).results
            except KafkaError as error:
                results = [DeletableGroupResult(group_id=one, error_code=error.code) for one in some]
            yield results
            left = left[len(some) :]
            await asyncio.sleep(0)

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

    def _call(self, ctx: RequestContext, request: Message | CommitRequestView, version: int) -> Call:
        return Call(
            config=self._runtime.config_of(getattr(request, "group_id", "")),
            topics=self._runtime.topics,
            version=version,
            wall_ms=self._clock.wall_ms(),
            client_id=ctx.client_id,
            client_host=f"/{ctx.client_address}",
            new_member_id=self._new_member_id(request),
        )

    def _new_member_id(self, request: Message | CommitRequestView) -> str:
        match request:
            case JoinGroupRequest(member_id=""):
                text = self._random_uuid().hex()
                return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            case ConsumerGroupHeartbeatRequest(member_id=""):
                return uuid_to_str(self._random_uuid())
            case _:
                return ""

    def _random_uuid(self) -> Uuid:
        while (drawn := make_uuid(self._rng.randbytes(16))) is None:
            pass
        return drawn

    def _write(
        self,
        group_id: str,
        decide: Callable[[ShardState], CoordinatorResult[C]],
        member: Member | None = None,
    ) -> Awaitable[C]:
        return self._runtime.write(self.partition_for(group_id), decide, member)

    async def _gather_in_slices(
        self, look_up: Callable[[A], Awaitable[B]], items: Sequence[A], at_once: int = _GROUPS_AT_ONCE
    ) -> list[B]:
        """``look_up`` of each item, in order, a few at a time: one request may name very many groups."""
        found: list[B] = []
        for start in range(0, len(items), at_once):
            found += await asyncio.gather(*(look_up(item) for item in items[start : start + at_once]))
            await self._looks.pause()
        return found
