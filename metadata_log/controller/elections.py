"""The leader of a partition, its ISR, its eligible replicas: the one place where leaders are chosen.

:class:`PartitionChangeBuilder` takes the current state of a partition and, if there is one, a requested
change, and builds the record that brings the partition to the state that the rules require, or None. Without
a requested change it repairs: a partition that it does not change matches the rules. Repair depends on image
and configuration only, so it may be done in slices, twice, or by the next controller. The rules:

- a leader is an active member of the ISR, the first in replica order; the current leader stays while it may;
- a broker that is not active is in an ISR only while the partition has no leader;
- without eligible leader replicas an ISR never becomes empty because brokers leave: if every member leaves,
  they stay members and the partition has no leader, since each of them holds every committed record;
- with them (KIP-966) the ISR may be empty. While it is smaller than ``min.insync.replicas`` its leader
  commits nothing, so a replica that leaves it still holds every committed record and stays eligible (ELR): it
  leads if the ISR is empty. A broker that stopped without flushing its logs is no longer eligible. If no
  replica is eligible, the last known leader may lead once it is active again: it probably lost least;
- a replica in a log directory that has failed, or that its broker did not register, is treated like one on a
  broker that is not active (KIP-858);
- a broker that registered without a log directory is removed from every ISR and ELR of the partitions whose
  directory on it is not known: a partition that only it held stays without a leader until an operator allows
  an unclean election;
- a replica whose log is lost does not count before it is in sync again: it leaves ISR and ELR, another member
  leads, and the leader epoch is raised, which invalidates everything it fetched before. Its directory is not
  known any more: it may start over in any;
- an unclean election chooses any active replica and removes all others from ISR and ELR; it must be
  configured or requested. It chooses a replica with a lost log only if the election was requested, and there
  is no other;
- a reassignment is complete when every replica that it adds is in the ISR (KIP-455). With eligible leader
  replicas, it does not remove a replica that holds the committed records while fewer than
  ``min.insync.replicas`` of the remaining replicas are in sync.

``min.insync.replicas`` never asks for more than a partition has replicas.

There is no recovery state after an unclean election: followers truncate their logs by leader epoch, and
nothing else needs to be recovered.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator
from dataclasses import replace
from enum import Enum, auto
from itertools import islice
from typing import Final, NamedTuple

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import (
    ELECTION_CONFIGS,
    BrokerView,
    ElectionRules,
    find_rules,
    view_brokers,
)
from pykraft.metadata_log.image import (
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    required_in_sync,
)
from pykraft.metadata_log.records import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
    PartitionRecord,
)

_NEW_AT_ONCE: Final = 2_000
"""So many replicas of new partitions are placed in one slice, where a partition counts as four more: up to
some five milliseconds of work, with a hundred brokers.
"""


class Election(Enum):
    """Which leader is requested."""

    ONLINE = auto()
    """The current leader while it may lead, otherwise another."""
    PREFERRED = auto()
    """The first replica, if it may lead."""
    UNCLEAN = auto()
    """As ONLINE; if no replica may lead, any active one."""


class Assignment(NamedTuple):
    """The replicas of a partition, with those that are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class PartitionChangeBuilder:
    """Builds changes of partitions with the same rules and the same brokers."""

    __slots__ = ("_brokers", "_rules")

    def __init__(self, brokers: BrokerView, rules: ElectionRules) -> None:
        self._brokers = brokers
        self._rules = rules

    def build(
        self,
        topic_id: Uuid,
        index: int,
        partition: PartitionRegistration,
        *,
        isr: tuple[int, ...] | None = None,
        assignment: Assignment | None = None,
        election: Election = Election.ONLINE,
        lost: int | None = None,
        directories: tuple[Uuid, ...] | None = None,
    ) -> PartitionChangeRecord | None:
        """The change that the request and the rules require; None for no change.

        ``isr``: the ISR that its leader proposes, members checked; default: the active members of the current
        ISR. ``lost``: a replica that has just lost its log. ``directories``: the new directories of the
        replicas, which may not change at the same time.
        """
        is_requested = (isr, assignment, lost, directories) != (None, None, None, None)
        if directories is None and lost is not None:
            directories = _without_directory(partition, lost)
        # What a broker lost depends on the directory that was known before.
        placed = partition if directories is None else replace(partition, directories=directories)
        active = self._brokers.active_of(placed)
        if not is_requested and election is Election.ONLINE and self._needs_no_change(partition, active):
            return None
        before = partition
        if lost is not None:
            partition = _without(partition, lost)
        replicas, adding, removing = assignment or Assignment(
            partition.replicas, partition.adding, partition.removing
        )
        members = _keep(partition.isr if isr is None else isr, replicas)
        in_sync = _keep(members, active) if isr is None else members
        if adding or removing:
            remaining = _drop(replicas, removing)
            if self._may_complete(partition, in_sync, adding, removing, remaining):
                in_sync, replicas, adding, removing = _drop(in_sync, removing), remaining, (), ()

        holders = self._holders(partition, replicas)
        leader, unclean = self._elect(partition, replicas, adding, in_sync, holders, election, active)
        if leader == NO_LEADER:
            if not in_sync and not self._rules.elr_enabled:
                # A replica that stopped without flushing leaves only if one that flushed stays.
                in_sync = _drop(holders, self._brokers.tail_lost) or holders
        elif unclean or leader not in in_sync:
            in_sync = (leader,)
            # This may complete a reassignment. An unclean election has removed the other holders.
            held = replace(partition, isr=in_sync, elr=()) if unclean else partition
            remaining = _drop(replicas, removing)
            if (adding or removing) and self._may_complete(held, in_sync, adding, removing, remaining):
                replicas, adding, removing = remaining, (), ()
                holders = _keep(holders, replicas)
        elr, last_known = self._eligible(partition, replicas, in_sync, holders, leader, unclean)
        still_lost = _drop(_keep(partition.lost, replicas), in_sync)
        # The epoch is raised, so that a fetch of a replica that is removed, or lost its log, no longer
        # counts.
        removed = not frozenset(replicas).issuperset(before.replicas)
        named = leader != before.leader or removed or lost is not None
        new = (in_sync, replicas, adding, removing, elr, last_known, still_lost)
        if not named and new == _state(before) and placed.directories == before.directories:
            return None
        return PartitionChangeRecord(
            partition_id=index,
            topic_id=topic_id,
            isr=_changed(in_sync, before.isr),
            leader=leader if named else None,
            replicas=_changed(replicas, before.replicas),
            adding_replicas=_changed(adding, before.adding),
            removing_replicas=_changed(removing, before.removing),
            eligible_leader_replicas=_changed(elr, before.elr),
            last_known_elr=_changed(last_known, before.last_known_elr),
            lost_replicas=_changed(still_lost, before.lost),
            directories=None if placed.directories == before.directories else placed.directories,
        )

    def find_holders(self, partition: PartitionRegistration) -> tuple[int, ...]:
        """The replicas with the best copies, active or not; empty only if ISR and ELR of the partition are
        empty.

        Brokers may have lost some of them since, and the sweep may not have updated the partition yet.
        """
        holders = self._holders(partition, partition.replicas)
        return _drop(holders, self._brokers.tail_lost) or holders or (*partition.isr, *partition.elr)

    def _needs_no_change(self, partition: PartitionRegistration, active: frozenset[int]) -> bool:
        """Whether it is in the state of almost all partitions, and therefore needs no change."""
        return (
            partition.leader in active
            and active.issuperset(partition.isr)
            and not (partition.elr or partition.last_known_elr or partition.adding or partition.removing)
            and (
                not self._rules.elr_enabled
                or len(partition.isr) >= required_in_sync(self._rules.min_isr, partition.replicas)
            )
        )

    def _may_complete(
        self,
        partition: PartitionRegistration,
        in_sync: tuple[int, ...],
        adding: tuple[int, ...],
        removing: tuple[int, ...],
        remaining: tuple[int, ...],
    ) -> bool:
        """Whether a reassignment is complete and ``removing`` can be removed."""
        staying = _drop(in_sync, removing)
        if not staying or not frozenset(staying).issuperset(adding):
            return False
        if not self._rules.elr_enabled or len(staying) >= required_in_sync(self._rules.min_isr, remaining):
            return True
        return len(staying) == len(in_sync) and not self._holders(partition, removing)

    def _holders(self, partition: PartitionRegistration, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """The replicas that are known to hold every committed record, active or not."""
        all_lost = self._brokers.all_lost_of(partition)
        kept = _drop(_keep(partition.isr, replicas), all_lost)
        if partition.elr and (self._rules.elr_enabled or not kept):
            kept += _drop(_keep(partition.elr, replicas), {*kept, *all_lost})
        return _drop(kept, self._brokers.tail_lost) if self._rules.elr_enabled else kept

    def _elect(
        self,
        partition: PartitionRegistration,
        replicas: tuple[int, ...],
        adding: tuple[int, ...],
        in_sync: tuple[int, ...],
        holders: tuple[int, ...],
        election: Election,
        active: frozenset[int],
    ) -> tuple[int, bool]:
        """The leader, and whether committed records may be lost with it."""
        eligible = in_sync or holders
        first = replicas[0] if election is Election.PREFERRED else partition.leader
        for candidate in (first, partition.leader, *replicas):
            if candidate in eligible and candidate in active and candidate in replicas:
                return candidate, False
        if self._rules.elr_enabled and not eligible and len(partition.last_known_elr) == 1:
            (last_leader,) = partition.last_known_elr
            if last_leader in active and last_leader in replicas:
                return last_leader, True
        if self._rules.unclean_allowed or election is Election.UNCLEAN:
            # Replicas that a reassignment adds come last: they may still be empty. One that is known to be
            # empty leads only if the election was requested.
            not_lost = _drop(replicas, partition.lost)
            empty = _keep(replicas, partition.lost) if election is Election.UNCLEAN else ()
            for candidate in (*_drop(not_lost, adding), *_keep(adding, not_lost), *empty):
                if candidate in active:
                    return candidate, True
        return NO_LEADER, False

    def _eligible(
        self,
        partition: PartitionRegistration,
        replicas: tuple[int, ...],
        in_sync: tuple[int, ...],
        holders: tuple[int, ...],
        leader: int,
        unclean: bool,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The eligible leader replicas, and the last known leader while there is no leader."""
        required = required_in_sync(self._rules.min_isr, replicas)
        if not self._rules.elr_enabled or unclean or len(in_sync) >= required:
            return (), ()
        elr = tuple(id for id in replicas if id in holders and id not in in_sync)
        if leader != NO_LEADER:
            return elr, ()
        if partition.leader != NO_LEADER:
            last_known: tuple[int, ...] = (partition.leader,)
        else:
            last_known = partition.last_known_elr or (partition.isr if len(partition.isr) == 1 else ())
        gone = {*self._brokers.all_lost_of(partition), *partition.lost}
        return elr, _drop(_keep(last_known, replicas), gone)


class Elections:
    """Builders for all topics of one image."""

    def __init__(self, image: MetadataImage, config: ControllerConfig) -> None:
        self._image = image
        self._config = config
        self._brokers = view_brokers(image)
        self._builders: dict[tuple[str | None, ...], PartitionChangeBuilder] = {}

    def builder(self, topic: str) -> PartitionChangeBuilder:
        """The builder for a topic; call it once per topic, not per partition."""
        given = self._image.topic_config(topic)
        key = tuple(given.get(name) for name in ELECTION_CONFIGS)
        builder = self._builders.get(key)
        if builder is None:
            rules = find_rules(self._image, self._config, topic)
            builder = self._builders[key] = PartitionChangeBuilder(self._brokers, rules)
        return builder

    def repair_some(
        self, topic: TopicImage, start: int, most_seen: int, most_changes: int
    ) -> tuple[list[PartitionChangeRecord], int]:
        """Changes for partitions of one topic that do not match the rules, and how many were looked at.

        Starts at index ``start`` and ends when the limit of visited or of changed partitions is reached.
        """
        build = self.builder(topic.name).build
        changes: list[PartitionChangeRecord] = []
        seen = 0
        for partition in islice(topic.partitions, start, start + most_seen):
            change = build(topic.id, start + seen, partition)
            seen += 1
            if change is not None:
                changes.append(change)
                if len(changes) >= most_changes:
                    break
        return changes, seen


def build_new_partitions(
    image: MetadataImage, topic_id: Uuid, first_index: int, placements: Iterable[tuple[int, ...]]
) -> Generator[None, None, list[PartitionRecord]]:
    """New partitions with these replicas; yields after each slice of them.

    They are empty: every active replica (at least one) is in sync; the first of them leads.
    """
    active = {broker_id for broker_id in image.brokers if image.is_active(broker_id)}
    records: list[PartitionRecord] = []
    slice_ends = _NEW_AT_ONCE
    for index, replicas in enumerate(placements, first_index):
        isr = replicas if active.issuperset(replicas) else _keep(replicas, active)
        records.append(PartitionRecord(index, topic_id, replicas, isr, leader=isr[0]))
        slice_ends -= 4 + len(replicas)
        if slice_ends <= 0:
            yield
            slice_ends = _NEW_AT_ONCE
    return records


def iter_partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Every partition, by topic id and index: the order is the same in all processes."""
    topics = image.topics_by_id
    for topic_id in sorted(topics):
        topic = topics[topic_id]
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition


def _keep(ids: Iterable[int], wanted: Container[int]) -> tuple[int, ...]:
    return tuple(id for id in ids if id in wanted)


def _drop(ids: Iterable[int], unwanted: Container[int]) -> tuple[int, ...]:
    return tuple(id for id in ids if id not in unwanted)


def _without(partition: PartitionRegistration, lost: int) -> PartitionRegistration:
    """The partition without this replica, which has lost its log, in its ISR and ELR."""
    return replace(
        partition,
        isr=_drop(partition.isr, (lost,)),
        leader=NO_LEADER if partition.leader == lost else partition.leader,
        elr=_drop(partition.elr, (lost,)),
        last_known_elr=_drop(partition.last_known_elr, (lost,)),
        lost=(*_drop(partition.lost, (lost,)), lost),
    )


def _without_directory(partition: PartitionRegistration, lost: int) -> tuple[Uuid, ...]:
    """The directories, without the one of this replica."""
    if not partition.directories:
        return ()
    return tuple(UNASSIGNED_DIRECTORY if id == lost else partition.directory(id) for id in partition.replicas)


def _changed(new: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if new == old else new


def _state(partition: PartitionRegistration) -> tuple[tuple[int, ...], ...]:
    return (
        partition.isr,
        partition.replicas,
        partition.adding,
        partition.removing,
        partition.elr,
        partition.last_known_elr,
        partition.lost,
    )
