"""Deletes what a shard no longer needs: offsets of deleted topics, expired offsets, empty groups.

A :class:`Sweep` walks over the state of a shard at one moment, in slices that are short enough for the event
loop. Offsets are taken in runs of up to 256 partitions. Each slice decides on the newest state: an offset
that was committed again meanwhile, for another topic of the name or at another time, is another value and
stays. A sweep itself is not in the log. A new coordinator finds out what is left to do, since an offset names
its topic by id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from pykraft.group_coordinator.offsets.expiry import Expiry, find_expiry, has_no_members
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.commits import TopicRemoval
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_offsets import GroupOffsets
from pykraft.group_coordinator.state.group_records import group_tombstones
from pykraft.group_coordinator.state.offset_table import Run
from pykraft.group_coordinator.state.pending_offsets import PendingOffsets, Place
from pykraft.group_coordinator.state.records import (
    GroupMetadataKey,
    GroupRecord,
)
from pykraft.group_coordinator.state.result import Call, CoordinatorResult, Record
from pykraft.group_coordinator.state.shard_state import Group, ShardState, TopicKey
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import Map, drain

_NO_TOPICS: Map[TopicKey, Map[str, int]] = Map()

SLICE_STEPS = 100
"""How many steps one turn of the event loop takes. If all of them delete something: some milliseconds."""

_STEP_PARTITIONS = 16
"""So many partitions of a run take as long as a run itself."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Committed offsets of one topic (``run``), pending ones (``partitions`` alone), or a group (neither),
    that may have to be deleted. ``partitions`` are some of those of the run.
    """

    group_id: str
    topic: str = ""
    run: Run | None = None
    partitions: Sequence[int] = ()

    @property
    def steps(self) -> int:
        return 1 + len(self.partitions) // _STEP_PARTITIONS

    def halves(self) -> list[Candidate]:
        """As two candidates; none if there is nothing to divide."""
        middle = len(self.partitions) // 2
        parts = (self.partitions[:middle], self.partitions[middle:]) if middle else ()
        return [replace(self, partitions=part) for part in parts]


Steps: TypeAlias = Iterator[Candidate | None]
"""None is a step of the walk without a candidate: it counts as work, too."""

Decide: TypeAlias = Callable[[ShardState, Candidate, Call], Iterable[Record]]


class Sweep:
    """One walk. :meth:`build_slice` returns the same slice until :meth:`slice_is_written` is called."""

    def __init__(self, steps: Steps, decide: Decide) -> None:
        self._steps = steps
        self._decide = decide
        self._candidates: list[Candidate] = []
        self._slice_length = SLICE_STEPS
        self._is_walked = False

    @property
    def is_finished(self) -> bool:
        return self._is_walked and not self._candidates

    def build_slice(self, state: ShardState, call: Call) -> CoordinatorResult[None]:
        if not self._candidates:
            # Maps are walked in hash order; sorting gives the records of a slice a definite order.
            self._candidates = sorted(self._walk(), key=lambda c: (c.group_id, c.topic, c.partitions[:1]))
        now = self._candidates[: self._slice_length]
        return CoordinatorResult(
            None, tuple(r for candidate in now for r in self._decide(state, candidate, call))
        )

    def _walk(self) -> list[Candidate]:
        """The candidates of the next steps."""
        found = []
        steps = 0
        for candidate in self._steps:
            steps += 1
            if candidate is not None:
                found.append(candidate)
                steps += candidate.steps - 1
            if steps >= SLICE_STEPS:
                return found
        self._is_walked = True
        return found

    def slice_is_written(self) -> None:
        del self._candidates[: self._slice_length]

    def slice_is_too_large(self) -> None:
        """The slice exceeds the size of a batch, since group ids may have 32 KiB: halve the next slices.

        A single offset or group that is too large is skipped, as otherwise nothing after it would ever be
        deleted.
        """
        if self._slice_length == 1:
            self._candidates[:1] = self._candidates[0].halves()
        else:
            self._slice_length = max(1, min(self._slice_length, len(self._candidates)) // 2)


def sweep_deleted_topics(state: ShardState, deleted: Collection[TopicKey]) -> Sweep:
    """Deletes the offsets of topics that were deleted just now."""
    gone = {key for name, topic_id in deleted for key in ((name, topic_id), (name, ZERO_UUID))}
    by_topic = Map((key, state.groups_by_topic[key]) for key in gone if key in state.groups_by_topic)
    return _sweep_topics(state, by_topic, gone.__contains__)


def sweep_after_load(state: ShardState, topics: TopicsView, deleted_names: Collection[str]) -> Sweep:
    """Deletes the offsets of topics that do not exist, which earlier coordinators have left.

    All of ``state`` is older than ``topics``: it was written before this broker was elected. So a topic that
    is missing from ``topics`` is deleted, not new. ``deleted_names``: topics that were deleted during the
    load; topics of the same names may exist again.
    """

    def is_gone(key: TopicKey) -> bool:
        name, topic_id = key
        current = topics.topic_id(name)
        return current is None or (name in deleted_names if topic_id == ZERO_UUID else topic_id != current)

    # Before the first image no topic is known to be deleted.
    by_topic = state.groups_by_topic if topics.image.offset >= 0 else _NO_TOPICS
    return _sweep_topics(state, by_topic, is_gone)


def _sweep_topics(
    state: ShardState, by_topic: Map[TopicKey, Map[str, int]], is_gone: Callable[[TopicKey], bool]
) -> Sweep:
    def delete(now: ShardState, seen: Candidate, call: Call) -> Iterable[Record]:
        if seen.run is not None:
            return _delete_if_unchanged(now, seen, call)
        return _delete_pending(now, seen, is_gone)

    committed = _offsets_of_topics(by_topic, state.offsets, is_gone)
    return Sweep(chain(committed, _pending_offsets(state.pending, is_gone)), delete)


def sweep_expired_offsets(state: ShardState) -> Sweep:
    """Deletes offsets that nobody needs and that were not committed for the retention time."""
    return Sweep(_offsets_that_may_expire(state.groups, state.offsets), _delete_if_expired)


def sweep_expired_groups(state: ShardState) -> Sweep:
    """Deletes groups with neither members nor offsets; runs after :func:`sweep_expired_offsets`."""
    steps = (
        Candidate(group_id) if has_no_members(group) else None for group_id, group in drain(state.groups)
    )
    return Sweep(steps, _delete_group_if_idle)


# The walks keep no reference to what they have passed: see drain().


def _offsets_of_topics(
    by_topic: Map[TopicKey, Map[str, int]],
    offsets: Map[str, GroupOffsets],
    is_gone: Callable[[TopicKey], bool],
) -> Steps:
    for key, groups in drain(by_topic):
        yield None
        if not is_gone(key):
            continue
        name, _ = key
        for group_id, _ in drain(groups):
            group_offsets = offsets[group_id]
            if name not in group_offsets:
                continue  # the group had offsets of two topics of this name, both deleted
            offsets = offsets.set(group_id, group_offsets.delete(name))
            for run in group_offsets[name].runs():
                gone = _partitions_of(run, lambda topic_id: is_gone((name, topic_id)))  # noqa: B023
                yield Candidate(group_id, name, run, gone) if gone else None


def _pending_offsets(pending: PendingOffsets, is_gone: Callable[[TopicKey], bool]) -> Steps:
    """Those of open transactions, of topics that may be gone."""
    for group_id, topics in drain(pending.open):
        yield None
        for topic, lines in drain(topics):
            place = group_id, topic
            gone = [one for one in sorted(lines) if _is_pending_of(pending, place, one, is_gone)]
            yield Candidate(group_id, topic, None, gone) if gone else None


def _is_pending_of(
    pending: PendingOffsets, place: Place, partition: int, is_gone: Callable[[TopicKey], bool]
) -> bool:
    return any(is_gone((place[1], topic_id)) for topic_id in pending.live_values_of(place, partition))


def _delete_pending(
    state: ShardState, seen: Candidate, is_gone: Callable[[TopicKey], bool]
) -> Iterator[Record]:
    place, pending = (seen.group_id, seen.topic), state.pending
    gone = [one for one in seen.partitions if _is_pending_of(pending, place, one, is_gone)]
    if gone:
        yield TopicRemoval(seen.group_id, seen.topic, gone)


def _offsets_that_may_expire(groups: Map[str, Group], offsets: Map[str, GroupOffsets]) -> Steps:
    for group_id, group in drain(groups):
        yield None
        group_offsets = offsets.get(group_id)
        if group_offsets is None:
            continue
        offsets = offsets.delete(group_id)
        expiry = find_expiry(group)
        if expiry is not None:
            yield from _offsets_of(group_id, group_offsets, expiry.subscribed)
    for group_id, group_offsets in drain(offsets):  # of groups that have nothing else
        yield None
        yield from _offsets_of(group_id, group_offsets)


def _offsets_of(group_id: str, offsets: GroupOffsets, subscribed: Collection[str] = ()) -> Steps:
    for topic, partitions in drain(offsets.mutate().finish()):
        if topic in subscribed:
            yield None
            continue
        for run in partitions.runs():
            yield Candidate(group_id, topic, run, run.partitions)


def _partitions_of(run: Run, is_meant: Callable[[Uuid], bool]) -> list[int]:
    """The partitions of a run whose offsets are of a topic that is meant."""
    if run.has_extras:
        return [partition for partition, value in run.items() if is_meant(value.topic_id)]
    return run.partitions if is_meant(run.topic_id) else []


def _delete_if_unchanged(state: ShardState, seen: Candidate, call: Call) -> Iterator[Record]:
    offsets = state.group_offsets(seen.group_id).get(seen.topic)
    if offsets is not None and seen.run is not None:
        partitions = offsets.unchanged(seen.run, seen.partitions)
        if partitions:
            yield TopicRemoval(seen.group_id, seen.topic, partitions)


def _delete_if_expired(state: ShardState, seen: Candidate, call: Call) -> Iterator[Record]:
    group = state.group(seen.group_id)
    expiry = None if group is None else find_expiry(group)
    if expiry is None or seen.run is None or seen.topic in expiry.subscribed:
        return
    expired = _expired(seen.run, expiry, call)
    pending = state.pending.of_topic(seen.group_id, seen.topic)  # a transaction may be about to renew them
    partitions = [one for one in seen.partitions if one in expired and one not in pending]
    if partitions:
        yield from _delete_if_unchanged(state, replace(seen, partitions=partitions), call)


def _expired(run: Run, expiry: Expiry, call: Call) -> set[int]:
    """The partitions of a run whose offsets have expired."""
    retention_ms = call.config.offsets_retention_ms
    if run.has_extras:
        values = run.items()
        return {number for number, one in values if expiry.expires_ms(one, retention_ms) <= call.wall_ms}
    times_ms = run.commit_times_ms()
    return {number for number, time_ms in times_ms if expiry.after_ms(time_ms, retention_ms) <= call.wall_ms}


def _delete_group_if_idle(state: ShardState, seen: Candidate, call: Call) -> Iterator[Record]:
    group = state.groups.get(seen.group_id)
    if group is None or not has_no_members(group) or seen.group_id in state.offsets:
        return
    if seen.group_id in state.pending.open:
        return
    if _emptied_ms(group) + call.config.offsets_retention_ms > call.wall_ms:
        return
    if isinstance(group, ConsumerGroup):
        yield from group_tombstones(group)
    elif group.generation:
        yield GroupRecord(GroupMetadataKey(seen.group_id), None)


def _emptied_ms(group: Group) -> int:
    return group.state_timestamp_ms if isinstance(group, ClassicGroup) else -1
