"""The requests about committed offsets, large ones over several turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator

from pykraft.coordinator.answers import Waiter
from pykraft.group_coordinator.offsets import fetch as offset_fetch
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.offsets.delete import handle_offset_delete
from pykraft.group_coordinator.offsets.large_commits import LargeCommit
from pykraft.group_coordinator.offsets.large_deletions import (
    LargeOffsetDelete,
    is_large_request,
)
from pykraft.group_coordinator.offsets.large_fetches import LargeFetch, is_large
from pykraft.group_coordinator.offsets.transactional import TransactionalCommit, refuse_all
from pykraft.group_coordinator.service_base import MERGES
from pykraft.group_coordinator.service_members import MemberApis
from pykraft.group_coordinator.state.names import check_group_id
from pykraft.group_coordinator.state.result import CommitCodes, CoordinatorResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.hot.offset_commit import CommitRequestView
from pykraft.kafka_protocol.markers import EndOfTransaction
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


class OffsetApis(MemberApis):
    """Offsets are committed, by members and in transactions, fetched and deleted."""

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
        for _ in range(MERGES):
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
