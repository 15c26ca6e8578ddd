"""``pykraft consumer-groups --reset-offsets``: where a group is to continue, as kafka-consumer-groups decides it.

Only a group without members is reset; one that does not exist is made, as an offset may exist without a group.
All new offsets are decided before any is set.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import GroupDescription
from pykraft.kafka_protocol.consumer_protocol import PROTOCOL_TYPE
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.groups.changes import partitions_of
from pykraft.node.cli.groups.java_times import parse_datetime, parse_duration_ms
from pykraft.node.cli.shared.common import print_json, wants_json
from pykraft.node.cli.shared.kafka_errors import text_of
from pykraft.node.cli.shared.tool_errors import report

SCENARIOS: Final = (
    *("to-offset", "to-earliest", "to-latest", "shift-by"),
    *("to-datetime", "by-duration", "from-file", "to-current"),
)
_QUOTED_FROM: Final = 25
"""Kafka's tool quotes texts of this length or more, and those with a character up to the comma."""

Offsets = dict[TopicPartition, int]


class ResetError(Exception):
    """Nothing was changed; the message ends the line in which Kafka's tool gives up."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The reset that the options ask for. ``topics`` None: all that the group has offsets of.

    ``since_ms`` is of ``--to-datetime`` and ``--by-duration``; ``plan`` is ``--from-file``, by group.
    """

    scenario: str
    topics: tuple[str, ...] | None
    execute: bool
    export: bool
    single_group: bool
    number: int = 0
    since_ms: int = 0
    plan: Mapping[str, Offsets] | None = None

    @classmethod
    def planned(cls, given: Mapping[str, Any]) -> Reset:
        """From options that were checked. :class:`click.UsageError` for a value that cannot be read."""
        (scenario,) = [it for it in SCENARIOS if _is_given(given, it)]
        value = given[scenario.replace("-", "_")]
        groups = given["groups"]
        since_ms, plan = 0, None
        try:
            if scenario == "to-datetime":
                since_ms = parse_datetime(value)
            elif scenario == "by-duration":
                since_ms = time.time_ns() // 1_000_000 - parse_duration_ms(value)
            elif scenario == "from-file":
                plan = _read_plan(value, groups)
        except ValueError as error:
            raise click.UsageError(f"--{scenario}: {error}") from None
        return cls(
            scenario,
            None if given["all_topics"] else given["topics"],
            given["execute"],
            given["export"],
            len(groups) == 1,
            value if scenario in ("to-offset", "shift-by") else 0,
            # Times before 1970 are no times to brokers, but special offsets.
            max(0, since_ms),
            plan,
        )


def _is_given(given: Mapping[str, Any], scenario: str) -> bool:
    value = given[scenario.replace("-", "_")]
    return value is not None and value is not False


def reset_offsets(client: AdminClient, names: Sequence[str], reset: Reset) -> None:
    """Groups that may not be reset are reported and left alone."""
    results, refusals = dict[str, Offsets](), list[str]()
    for name, described in client.describe_groups(names).items():
        refusal = _refusal(name, described)
        if refusal is None and reset.plan is not None and name not in reset.plan:
            refusal = f"No reset plan for group {name} found"
        if refusal is not None:
            refusals.append(refusal)
        results[name] = {} if refusal is not None else _new_offsets(client, name, reset)
    if reset.execute:
        for name, offsets in results.items():
            if offsets:
                _set_offsets(client, name, offsets)
    _print(results, reset)
    report(refusals)


def _refusal(name: str, described: GroupDescription | KafkaError) -> str | None:
    if isinstance(described, KafkaError):
        if described.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise ResetError(text_of(described))
    if described.protocol_type not in ("", PROTOCOL_TYPE):
        raise ResetError(f"GroupId {name} is not a consumer group ({described.protocol_type}).")
    if described.state in ("Empty", "Dead"):
        return None
    return (
        f"Assignments can only be reset if the group '{name}' is inactive, "
        f"but the current state is {described.state}."
    )


def _set_offsets(client: AdminClient, name: str, offsets: Offsets) -> None:
    given = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    for partition, error in client.alter_group_offsets(name, given).items():
        if error is not None:
            raise ResetError(f"{text_of(error)} ({partition})") from error


def _new_offsets(client: AdminClient, name: str, reset: Reset) -> Offsets:
    committed = {it: found.offset for it, found in client.group_offsets(name).items()}
    if reset.scenario == "from-file":
        assert reset.plan is not None
        return _within_the_log(client, reset.plan[name])
    partitions = list(committed) if reset.topics is None else _named(client, reset.topics)
    _refuse_unknown(client, partitions)
    match reset.scenario:
        case "to-offset":
            return _within_the_log(client, dict.fromkeys(partitions, reset.number))
        case "to-earliest":
            return _listed(client, partitions, EARLIEST_TIMESTAMP)
        case "to-latest":
            return _listed(client, partitions, LATEST_TIMESTAMP)
        case "shift-by":
            for partition in partitions:
                if partition not in committed:
                    raise click.UsageError(
                        f"Cannot shift offset for partition {partition} since there is no current committed offset"
                    )
            return _within_the_log(client, {it: committed[it] + reset.number for it in partitions})
        case "to-current":
            uncommitted = [it for it in partitions if it not in committed]
            kept = {it: committed[it] for it in partitions if it in committed}
            return kept | _listed(client, uncommitted, LATEST_TIMESTAMP)
        case _:
            return _since(client, partitions, reset.since_ms)


def _named(client: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    named, missing = partitions_of(client, topics)
    for error in missing.values():
        raise ResetError(text_of(error))
    return named


def _refuse_unknown(client: AdminClient, partitions: Iterable[TopicPartition]) -> None:
    wanted = set(partitions)
    if not wanted:
        return
    try:
        topics = client.describe_topics(sorted({it.topic for it in wanted}))
    except KafkaError as error:
        raise ResetError(text_of(error)) from error
    leaders = {TopicPartition(topic.name, it.index): it.leader for topic in topics for it in topic.partitions}
    missing = sorted(wanted - leaders.keys())
    if missing:
        raise ResetError(f'The partitions "{",".join(map(str, missing))}" do not exist')
    without = sorted(it for it in wanted if leaders[it] is None)
    if without:
        raise ResetError(f'The partitions "{",".join(map(str, without))}" have no leader')


def _listed(client: AdminClient, partitions: Sequence[TopicPartition], timestamp: int) -> Offsets:
    try:
        found = client.list_offsets(dict.fromkeys(partitions, timestamp)) if partitions else {}
    except KafkaError as error:
        raise ResetError(text_of(error)) from error
    return {partition: listed.offset for partition, listed in found.items() if listed.offset is not None}


def _since(client: AdminClient, partitions: Sequence[TopicPartition], since_ms: int) -> Offsets:
    found = _listed(client, partitions, since_ms)
    later = sorted(set(partitions) - found.keys())
    for topic, index in later:
        click.echo(
            f"\nWarn: Partition {index} from topic {topic} is empty. Falling back to latest known offset.",
            err=wants_json(),
        )
    return found | _listed(client, later, LATEST_TIMESTAMP)


def _within_the_log(client: AdminClient, wanted: Offsets) -> Offsets:
    """The offsets, moved to the nearest end of the log where they are outside of it."""
    first = _listed(client, list(wanted), EARLIEST_TIMESTAMP)
    end = _listed(client, list(wanted), LATEST_TIMESTAMP)
    moved = {}
    for partition, offset in wanted.items():
        moved[partition] = min(max(offset, first[partition]), end[partition])
        if moved[partition] != offset:
            side = "higher than latest" if moved[partition] < offset else "lower than earliest"
            click.echo(
                f"WARN New offset ({offset}) is {side} offset for topic partition {partition}. "
                f"Value will be set to {moved[partition]}",
                err=True,
            )
    return moved


def _print(results: Mapping[str, Offsets], reset: Reset) -> None:
    rows = [
        (name, partition, offset)
        for name, offsets in sorted(results.items())
        for partition, offset in sorted(offsets.items())
    ]
    if wants_json():
        print_json(
            [
                {"group": name, "topic": it.topic, "partition": it.partition, "newOffset": offset}
                for name, it, offset in rows
            ]
        )
        return
    if reset.export:
        click.echo(_as_csv(rows, with_group=not reset.single_group))
        return
    if results:
        widths = (
            max([15, *map(len, results)]),
            max([15, *(len(partition.topic) for _, partition, _ in rows)]),
        )
        table = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
        table += [(name, it.topic, str(it.partition), str(offset)) for name, it, offset in rows]
        for group, topic, partition_text, offset_text in table:
            line = f"\n{group:{widths[0]}} {topic:{widths[1]}} {partition_text:10} {offset_text}"
            click.echo(line, nl=False)
    click.echo()


def _as_csv(rows: Iterable[tuple[str, TopicPartition, int]], *, with_group: bool) -> str:
    lines = []
    for name, partition, offset in rows:
        cells = [_quoted(name)] if with_group else []
        lines.append(
            ",".join([*cells, _quoted(partition.topic), str(partition.partition), str(offset)]) + "\n"
        )
    return "".join(lines)


def _quoted(text: str) -> str:
    if len(text) < _QUOTED_FROM and all(character > "," for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _read_plan(path: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """The offsets in a file, by group: ``topic,partition,offset`` of the only group, or with the group first.

    :class:`ValueError` for a file that holds anything else.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = file.read().replace("\r\n", "\n").rstrip("\n").split("\n")
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    plan: dict[str, Offsets] = {}
    size: int | None = None
    for number, line in enumerate(lines, 1):
        try:
            cells = next(csv.reader(io.StringIO(line), strict=True), [])
        except csv.Error as error:
            raise ValueError(f"line {number} of {path}: {error}") from None
        size = len(cells) if size is None else size
        if len(cells) != size or size not in ((3, 4) if len(groups) == 1 else (4,)):
            raise ValueError(
                f"line {number} of {path} is not {'topic' if len(groups) == 1 else 'group,topic'},partition,offset"
            )
        group, topic, partition, offset = cells if size == 4 else [groups[0], *cells]
        plan.setdefault(group, {})[TopicPartition(topic, _number(partition))] = _number(offset)
    return plan


def _number(text: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.lstrip("-").isdecimal()):
        raise ValueError(f"{text!r} is not a number")
    return int(stripped)
