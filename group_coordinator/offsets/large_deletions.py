"""DeleteGroups and OffsetDelete of very many offsets: their tombstones are encoded over several turns.

Nothing is visible before a deletion is decided, on the newest state, in one turn: one record holds the whole
batch and the maps of offsets as they will be (:mod:`~pykraft.group_coordinator.state.prepared_change`).
Offsets that others have committed since are found by comparing the table of each topic with the one that was
prepared, and get their tombstones then. So a deletion is in the log, and in the state, as a whole or not at
all.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from pykraft.group_coordinator.offsets.commit import build_pending_tombstones
from pykraft.group_coordinator.offsets.delete import (
    DeletionAnswer,
    existing_group,
    handle_offset_delete,
    reads_topic,
    split_partitions,
)
from pykraft.group_coordinator.offsets.delete_groups import check_deletion
from pykraft.group_coordinator.state.commits import TopicRemoval, too_large, write_removal
from pykraft.group_coordinator.state.group_offsets import NO_OFFSETS, GroupOffsets
from pykraft.group_coordinator.state.names import sorted_runs
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS, TopicOffsets
from pykraft.group_coordinator.state.prepared_change import PreparedChange
from pykraft.group_coordinator.state.result import CoordinatorResult, Record
from pykraft.group_coordinator.state.shard_state import Group, ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import DeletableGroupResult, DeleteGroupsResponse
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

LARGE_STEPS = 1_000
"""Deletions of more steps, each about a microsecond, are large."""

SLICE_STEPS = 2_000
_TOPIC_STEPS = 8
_STEP_PARTITIONS = 4
"""The tombstones of so many partitions are one step."""

_GROUP_STEPS = 20
_LOOKED_AT_ONCE = 2_000
"""Partitions of one topic of a request."""

_ENCODED_AT_ONCE = 1_000
"""Topics of an answer: a millisecond."""


def count_small(state: ShardState, group_ids: Sequence[str]) -> int:
    """How many of these groups, from the first on, can be deleted together; 0 if the first is large."""
    steps = 0
    for number, group_id in enumerate(group_ids):
        steps += _deletion_steps(state.group_offsets(group_id))
        if steps > LARGE_STEPS:
            return number
    return len(group_ids)


def _deletion_steps(offsets: GroupOffsets) -> int:
    """How much work it is to delete a group with these offsets; counted no further than it matters."""
    steps = _GROUP_STEPS + len(offsets) * _TOPIC_STEPS
    if steps > LARGE_STEPS:
        return steps
    return steps + sum(len(partitions) for partitions in offsets.values()) // _STEP_PARTITIONS


def is_large_request(request: OffsetDeleteRequest) -> bool:
    sizes = (_TOPIC_STEPS + len(topic.partitions) for topic in request.topics)
    return sum(islice(sizes, LARGE_STEPS)) > LARGE_STEPS


class _Removal:
    """The tombstones of one group's offsets: of all, or of those that are ``wanted``."""

    def __init__(
        self, group_id: str, max_batch_bytes: int, wanted: Mapping[str, set[int]] | None = None
    ) -> None:
        self.change = PreparedChange(group_id)
        self._max_bytes = max_batch_bytes
        self._wanted = wanted
        self._seen: GroupOffsets = NO_OFFSETS
        self._is_too_large = False

    def follow(self, offsets: GroupOffsets) -> Iterator[None]:
        """Encode the tombstones that are still missing for these offsets; yields after each slice."""
        seen = self._seen
        if offsets is seen or self._is_too_large:
            return
        names: Iterable[str] = offsets if self._wanted is None else self._wanted
        runs = []
        for run in sorted_runs(names, lambda name: offsets.get(name) is not seen.get(name)):
            runs.append(run)
            yield
        steps = 0
        for name in heapq.merge(*runs):
            for partitions in self._missing(name, offsets.get(name, NO_PARTITIONS)):
                write_removal(self.change.builder, TopicRemoval(self.change.group_id, name, partitions))
                self.change.remove(name, partitions)
                if self.change.builder.size_bytes > self._max_bytes:
                    self._is_too_large = True
                    self.change = PreparedChange(self.change.group_id)
                    return
                steps += _TOPIC_STEPS + len(partitions) // _STEP_PARTITIONS
                if steps >= SLICE_STEPS:
                    yield
                    steps = 0
        self._seen = offsets

    def _missing(self, topic: str, committed: TopicOffsets) -> Iterator[Sequence[int]]:
        """The partitions that have an offset and no tombstone yet, some at a time."""
        removed = self.change.removed_of(topic)
        wanted = None if self._wanted is None else self._wanted[topic]
        for run in committed.runs():
            partitions: Sequence[int] = run.partitions
            if removed or wanted is not None:
                partitions = [n for n in partitions if n not in removed and (wanted is None or n in wanted)]
            if partitions:
                yield partitions

    def records(self, state: ShardState) -> tuple[Record, ...]:
        """:class:`KafkaError` if they do not fit into one batch."""
        group_id = self.change.group_id
        for _ in self.follow(state.group_offsets(group_id)):
            pass
        if self._is_too_large:
            raise too_large()
        pending = build_pending_tombstones(state, group_id, self._wanted)
        return (self.change, *pending) if self.change.changes else tuple(pending)


class LargeGroupDeletion:
    """The deletion of one group: :meth:`prepare`, again while the state changes, then :meth:`decide`."""

    def __init__(self, group_id: str, max_batch_bytes: int) -> None:
        self._group_id = group_id
        self._removal = _Removal(group_id, max_batch_bytes)

    def prepare(self, state: ShardState) -> Iterator[None]:
        """Encode and merge what :meth:`decide` would write now; yields after each slice."""
        yield from self._removal.follow(state.group_offsets(self._group_id))
        yield from self._removal.change.merge(state)

    def decide(self, state: ShardState) -> CoordinatorResult[DeleteGroupsResponse]:
        """As :func:`~pykraft.group_coordinator.offsets.delete_groups.handle_delete_groups` of this group."""
        code, tombstones = check_deletion(state, self._group_id)
        records: tuple[Record, ...] = ()
        if code is ErrorCode.NONE:
            records = (*self._removal.records(state), *tombstones)
        result = DeletableGroupResult(group_id=self._group_id, error_code=code)
        return CoordinatorResult(DeleteGroupsResponse(results=[result]), records)


class LargeOffsetDelete:
    """One OffsetDelete: :meth:`prepare` as above, :meth:`decide`, :meth:`build` to its end, :attr:`response`.

    What the group reads is looked up when it is prepared. If it reads other topics of the request when it is
    decided, all of it is decided in one turn; the answer is then complete.
    """

    def __init__(self, request: OffsetDeleteRequest, topics: TopicsView, max_batch_bytes: int) -> None:
        self._request = request
        self._topics = topics
        self._max_bytes = max_batch_bytes
        self._group: Group | None = None
        self._refused: frozenset[str] = frozenset()
        self._removal: _Removal | None = None
        self._answer = DeletionAnswer()
        self.response = OffsetDeleteResponse()

    def prepare(self, state: ShardState) -> Iterator[None]:
        group_id = self._request.group_id
        if self._removal is None:
            group = state.group(group_id)
            if group is None:
                return
            wanted = yield from self._look_up(group)
            self._removal = _Removal(group_id, self._max_bytes, wanted)
        yield from self._removal.follow(state.group_offsets(group_id))
        yield from self._removal.change.merge(state)

    def _look_up(self, group: Group) -> Generator[None, None, dict[str, set[int]]]:
        """The partitions to delete, by topic; the answer is that of each partition."""
        self._group, self._refused = group, self._read_by(group)
        wanted: dict[str, set[int]] = {}
        steps = 0
        for topic in self._request.topics:
            is_refused = topic.name in self._refused
            for start in range(0, len(topic.partitions), _LOOKED_AT_ONCE):
                some = topic.partitions[start : start + _LOOKED_AT_ONCE]
                piece = OffsetDeleteRequestTopic(name=topic.name, partitions=some)
                known, unknown = split_partitions(piece, self._topics)
                self._answer.add(topic.name, known, unknown, is_refused, goes_on=start > 0)
                if known and not is_refused:
                    wanted.setdefault(topic.name, set()).update(known)
                steps += _TOPIC_STEPS + len(some)
                if steps >= SLICE_STEPS:
                    yield
                    steps = 0
        return wanted

    def _read_by(self, group: Group) -> frozenset[str]:
        is_read = reads_topic(group)
        return frozenset(topic.name for topic in self._request.topics if is_read(topic.name))

    def decide(self, state: ShardState) -> CoordinatorResult[OffsetDeleteResponse]:
        """As :func:`~pykraft.group_coordinator.offsets.delete.handle_offset_delete`."""
        group = existing_group(state, self._request.group_id)
        is_prepared = group is self._group or (
            self._group is not None and self._read_by(group) == self._refused
        )
        if self._removal is None or not is_prepared:
            return handle_offset_delete(state, self._request, self._topics)
        return CoordinatorResult(self.response, self._removal.records(state))

    def build(self) -> Iterator[None]:
        """The answer to what :meth:`decide` has decided; yields after each slice."""
        topics = yield from self._answer.build_in_slices()
        if any(len(topic.partitions) > _ENCODED_AT_ONCE for topic in topics):
            self.response.topics = topics
            return
        encoded = EncodedElements()
        for number, topic in enumerate(topics, 1):
            encoded.append(OffsetDeleteResponse.encode_part(topic, OffsetDeleteResponse.MAX_VERSION))
            if not number % _ENCODED_AT_ONCE:
                yield
        self.response.topics = encoded
