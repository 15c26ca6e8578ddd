"""``pykraft consumer-groups --describe``: the tables of kafka-consumer-groups, to the last space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.list_offsets import LATEST_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import CommittedOffset, GroupDescription, MemberDescription
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.groups.reset import ResetError
from pykraft.node.cli.shared.common import print_json, wants_json
from pykraft.node.cli.shared.kafka_errors import text_of

_NONE: Final = "-"
_COLUMN: Final = 15


@dataclass(frozen=True, slots=True)
class _OffsetRow:
    """A group's offset in one partition. None: not known."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None
    end_offset: int | None
    owner: MemberDescription | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed.offset


def describe_offsets(client: AdminClient, groups: Sequence[GroupDescription], verbose: bool) -> None:
    rows = _offset_rows(client, groups)
    if wants_json():
        print_json([_offset_object(row) for group in groups for row in rows[group.group_id]])
        return
    for group in groups:
        if _has_rows(group, len(rows[group.group_id])):
            _print_offsets(rows[group.group_id], verbose)


def _offset_rows(client: AdminClient, groups: Sequence[GroupDescription]) -> dict[str, list[_OffsetRow]]:
    """For each group: the partitions of its members, those with most partitions first, then all others."""
    committed = {group.group_id: client.group_offsets(group.group_id) for group in groups}
    owned = {group.group_id: _owned(group) for group in groups}
    ends = _end_offsets(
        client,
        {it for offsets in committed.values() for it in offsets}
        | {it for owners in owned.values() for _, its_own in owners for it in its_own},
    )
    rows: dict[str, list[_OffsetRow]] = {}
    for group in groups:
        offsets, owners = committed[group.group_id], owned[group.group_id]
        taken = {it for _, its_own in owners for it in its_own}
        others: list[tuple[MemberDescription | None, list[TopicPartition]]] = [
            *owners,
            (None, sorted(offsets.keys() - taken)),
        ]
        rows[group.group_id] = [
            _OffsetRow(group.group_id, it, offsets.get(it), ends.get(it), owner)
            for owner, its_own in others
            for it in its_own
        ]
    return rows


def _owned(group: GroupDescription) -> list[tuple[MemberDescription, list[TopicPartition]]]:
    owned = [(member, _partitions(member.assignment)) for member in group.members]
    return sorted((it for it in owned if it[1]), key=lambda it: -len(it[1]))


def _partitions(assignment: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, it) for topic, indexes in assignment.items() for it in indexes)


def _end_offsets(client: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where each partition ends; one without a leader is left out. :class:`ResetError` if one is unknown."""
    wanted = set(partitions)
    if not wanted:
        return {}
    try:
        topics = client.describe_topics(sorted({it.topic for it in wanted}))
        led = {
            TopicPartition(topic.name, it.index)
            for topic in topics
            for it in topic.partitions
            if it.leader is not None
        }
        there = {TopicPartition(topic.name, it.index) for topic in topics for it in topic.partitions}
        asked = wanted & led | wanted - there
        found = client.list_offsets(dict.fromkeys(asked, LATEST_TIMESTAMP)) if asked else {}
    except KafkaError as error:
        raise ResetError(text_of(error)) from error
    return {it: listed.offset for it, listed in found.items() if listed.offset is not None}


def _has_rows(group: GroupDescription, rows: int) -> bool:
    """Whether there is a table to print. What the state means for a reader is told on the way."""
    if group.state == "Empty":
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state != "Stable":
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)
    return rows > 0


def _print_offsets(rows: Sequence[_OffsetRow], verbose: bool) -> None:
    table = [_offset_cells(row, verbose) for row in rows]
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    header += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    if verbose:
        header.insert(3, "LEADER-EPOCH")
    numbers = [10] + [_COLUMN] * (4 if verbose else 3)
    widths = [_width(table, 0), _width(table, 1), *numbers, _width(table, -3), _width(table, -2), 0]
    for cells in [header, *table]:
        click.echo("\n" + _line(cells, widths), nl=False)
    click.echo()


def _offset_cells(row: _OffsetRow, verbose: bool) -> list[str]:
    committed, owner = row.committed, row.owner
    values: list[object] = [row.group_id, row.partition.topic, row.partition.partition]
    if verbose:
        values.append(committed and committed.leader_epoch)
    values += [committed and committed.offset, row.end_offset, row.lag]
    values += [owner and owner.member_id, owner and owner.client_host, owner and owner.client_id]
    return [_NONE if value is None else str(value) for value in values]


def _offset_object(row: _OffsetRow) -> dict[str, object]:
    committed, owner = row.committed, row.owner
    return {
        "group": row.group_id,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "leaderEpoch": committed and committed.leader_epoch,
        "currentOffset": committed and committed.offset,
        "logEndOffset": row.end_offset,
        "lag": row.lag,
        "consumerId": owner and owner.member_id,
        "host": owner and owner.client_host,
        "clientId": owner and owner.client_id,
    }


def describe_members(groups: Sequence[GroupDescription], verbose: bool) -> None:
    if wants_json():
        print_json([_member_object(group, it) for group in groups for it in group.members])
        return
    for group in groups:
        _has_rows(group, len(group.members))
        _print_members(group, verbose)


def _print_members(group: GroupDescription, verbose: bool) -> None:
    """The header is printed for a group without members, too, as by Kafka's tool."""
    kinds = {member.upgraded for member in group.members}
    with_instances = any(member.instance_id for member in group.members)
    table = [_member_cells(group, member) for member in group.members]
    header = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"]
    least = [_COLUMN, _COLUMN, 17, _COLUMN, _COLUMN, _COLUMN, _COLUMN, 20, _COLUMN, 20, 0]
    fixed = (5, 6, 8, 10)
    widths = [size if at in fixed else _width(table, at, size) for at, size in enumerate(least)]
    shown = [at for at in range(6) if at != 2 or with_instances]
    if verbose:
        shown += range(6, 11 if kinds >= {True, False} else 10)
    click.echo()
    for cells in [header, *table]:
        line = _line([cells[at] for at in shown], [widths[at] for at in shown])
        click.echo(line if verbose else line + " ")


def _member_cells(group: GroupDescription, member: MemberDescription) -> list[str]:
    values = [
        *(group.group_id, member.member_id, member.instance_id or "", member.client_host, member.client_id),
        sum(map(len, member.assignment.values())),
        member.member_epoch,
        _assignment_text(member.assignment),
        group.assignment_epoch,
        _assignment_text(member.target_assignment or {}),
        None if member.upgraded is None else str(member.upgraded).lower(),
    ]
    return [_NONE if value is None else str(value) for value in values]


def _assignment_text(assignment: Mapping[str, Sequence[int]]) -> str | None:
    parts = (f"{topic}:{','.join(map(str, sorted(it)))}" for topic, it in assignment.items() if it)
    return ";".join(sorted(parts)) or None


def _member_object(group: GroupDescription, member: MemberDescription) -> dict[str, object]:
    def topics(assignment: Mapping[str, Sequence[int]] | None) -> object:
        if assignment is None:
            return None
        return [{"topic": topic, "partitions": sorted(it)} for topic, it in sorted(assignment.items())]

    return {
        "group": group.group_id,
        "consumerId": member.member_id,
        "groupInstanceId": member.instance_id,
        "host": member.client_host,
        "clientId": member.client_id,
        "numPartitions": sum(map(len, member.assignment.values())),
        "currentEpoch": member.member_epoch,
        "assignment": topics(member.assignment),
        "targetEpoch": group.assignment_epoch,
        "targetAssignment": topics(member.target_assignment),
        "upgraded": member.upgraded,
    }


def describe_states(groups: Sequence[GroupDescription], verbose: bool) -> None:
    if wants_json():
        print_json([_state_object(group) for group in groups])
        return
    for group in groups:
        _has_rows(group, 1)
        _print_state(group, verbose)


def _print_state(group: GroupDescription, verbose: bool) -> None:
    broker = group.coordinator
    coordinator = f"{broker.host}:{broker.port}  ({broker.id})"
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    values: list[object] = [group.group_id, coordinator, group.assignor or None, group.state]
    widths = [max(_COLUMN, len(group.group_id)), max(25, len(coordinator)), 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        values += [group.group_epoch, group.assignment_epoch]
        widths += [_COLUMN, 25]
    cells = [_NONE if value is None else str(value) for value in [*values, len(group.members)]]
    for line in ([*header, "#MEMBERS"], cells):
        click.echo("\n" + _line(line, [*widths, 0]), nl=False)
    click.echo()


def _state_object(group: GroupDescription) -> dict[str, object]:
    broker = group.coordinator
    return {
        "group": group.group_id,
        "coordinator": {"id": broker.id, "host": broker.host, "port": broker.port},
        "assignmentStrategy": group.assignor,
        "state": group.state,
        "groupEpoch": group.group_epoch,
        "assignmentEpoch": group.assignment_epoch,
        "numMembers": len(group.members),
    }


def _width(table: Sequence[Sequence[str]], column: int, least: int = _COLUMN) -> int:
    return max([least, *(len(cells[column]) for cells in table)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
