"""The results of groups and transactions as markdown; no figure is written by hand."""

from collections.abc import Mapping, Sequence
from typing import Final

from comparison.results import FamilyResults, Results, Row
from comparison.table import about, describe, failures, figure, side_by_side, table

_BY_MEMBERS: Final = ("consumer", "classic")
"""Families whose rows are the events in groups of several sizes."""
_WATCHED: Final = ", under watch"

ABOUT: Final[Mapping[str, str]] = {
    "commits": (
        "single-partition OffsetCommits of 100 clients on one coordinator, one request in flight each."
        " The driver shares the cores with the broker. More is better."
    ),
    "heartbeats": (
        "a steady ConsumerGroupHeartbeat in the coordinator alone, with its codec, without a network"
        " (`python benchmarks/group_heartbeat.py`)."
    ),
    "partitions": (
        "900 partitions are added to the topic of ten librdkafka consumers, from the request until all"
        " are assigned; then each gets a record."
    ),
    "consumer": (
        "members of the consumer protocol join, leave and crash, until every partition has one owner and"
        " shares are even. A group has twice as many partitions as members. A crash counts from the end of"
        " its session (10 s). Most of each time is waiting for heartbeats: every 5 s with Kafka, sooner"
        " here while members are few. A cell is our time and, as ratios to Kafka's, that time and the"
        " brokers' processor time."
    ),
    "classic": "the same in the classic protocol, with heartbeats every 3 s.",
    "consuming": (
        "ten librdkafka consumers read 20 partitions while one more joins and leaves: records a second"
        " until the group is stable, as a share of the 4 s before. More is better."
    ),
    "groups": "10,000 groups of the consumer protocol, each with one member and one partition.",
    "committing": (
        "transactions follow each other without a pause and write to three partitions (one record: to"
        " one). The client is pykraft's own with KIP-890, or librdkafka where a row says so. *Commit* is"
        " the call alone."
    ),
    "reading": (
        "a librdkafka consumer reads transactions of 100 records of 1 KiB, every tenth aborted. Per GB of"
        " values in the log."
    ),
}


def render(runs: Sequence[Results]) -> str:
    families = [family for results in runs for family in results.families]
    by_members = [family for family in families if family.name in _BY_MEMBERS]
    others = [family for family in families if family.name not in _BY_MEMBERS]
    lines = [*describe(runs), ""]
    if others:
        lines += [*about(others, ABOUT), "", *table(others), ""]
    if by_members:
        rows = [(family, row) for family in by_members for row in family.rows]
        timed = [(row, _place(family, row)) for family, row in rows if not row.name.endswith(_WATCHED)]
        lines += [*about(by_members, ABOUT), ""]
        lines += [*side_by_side(timed, "broker CPU"), ""] if timed else []
        lines += [_watched(family, row) for family, row in rows if row.name.endswith(_WATCHED)]
    return "\n".join([*lines, "", *failures(families)]).rstrip()


def _place(family: FamilyResults, row: Row) -> tuple[str, str]:
    members, _, event = row.name.partition(": ")
    return f"{family.name}: {event}", members


def _watched(family: FamilyResults, row: Row) -> str:
    """The longest turn of the event loop; the watch costs much itself, so these rows have no times."""
    turn = row.measures[0].spread("pykraft")
    longest = "-" if turn is None else f"{figure(turn.median)} {row.measures[0].unit}"
    return f"{family.name}, {row.name.removesuffix(_WATCHED)}: longest turn {longest}."
