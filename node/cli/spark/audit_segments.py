"""``pykraft spark audit-segments``: the segment files of replicas, checked and compared in Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import astuple
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pykraft.log_store.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    GAP_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.node.cli.shared.common import json_key, json_option, print_json, print_table, wants_json
from pykraft.node.cli.spark.spark import spark_session, with_master
from pykraft.runtime.os_disk import OsDisk

if TYPE_CHECKING:
    from pykraft.spark.jobs.audit_files import AuditPlan, LogDir
    from pykraft.spark.jobs.audit_findings import Found, Place, Subject
    from pykraft.spark.jobs.audit_segments import Audit

EXIT_CLEAN: Final = 0
EXIT_ANOMALY: Final = 1
EXIT_COULD_NOT_READ: Final = 4
"""As those of fault runs."""

_PLACE: Final = ("offset", "position", "file", "detail")
_FINDINGS: Final = ("TOPIC", "PARTITION", "REPLICA", "COUNT", *map(str.upper, _PLACE))
_TOTALS: Final = ("REPLICA", "PARTITIONS", "SEGMENTS", "BATCHES", "RECORDS", "BYTES")


class UnreadableError(click.ClickException):
    """Nothing was audited."""

    exit_code = EXIT_COULD_NOT_READ


@click.command()
@click.argument("log_dirs", nargs=-1, required=True, metavar="[NAME=]DIR...")
@click.option("--topic", "topics", multiple=True, help="A topic; may be repeated. Without it all topics.")
@click.option(
    "--compacted",
    multiple=True,
    metavar="TOPIC",
    help="Replicas of this topic may lack records anywhere; may be repeated.",
)
@json_option
@with_master
def command(
    log_dirs: tuple[str, ...], topics: tuple[str, ...], compacted: tuple[str, ...], master: str
) -> None:
    """Check the segment files in log directories, and compare those of the same partition.

    Each DIR is a directory of log.dirs of a broker that is stopped, or a copy of one. NAME names the replica
    (without it: DIR); directories with the same NAME are of the same replica.

    Exits with 0 if there is no anomaly, with 1 if there is one, with 4 if there is none in what could be read,
    and something could not be.
    """
    from pykraft.spark.jobs.audit_files import plan_audit
    from pykraft.spark.jobs.audit_segments import audit_segments

    plan = plan_audit(_read_log_dirs(log_dirs), topics, compacted)
    for topic in {*topics} - {log.topic for log in plan.logs}:
        raise UnreadableError(f"no log directory holds topic {topic}")
    if not plan.segments and not plan.unreadable:
        raise UnreadableError(f"there is no segment in a TOPIC-PARTITION folder of {', '.join(log_dirs)}")
    with spark_session("pykraft audit-segments", master) as session:
        audit = audit_segments(session, plan)
    (_print_json if wants_json() else _print)(plan, audit)
    if any(subject.kind.is_anomaly for subject, _ in audit.tally):
        sys.exit(EXIT_ANOMALY)
    sys.exit(EXIT_COULD_NOT_READ if audit.unreadable else EXIT_CLEAN)


def _read_log_dirs(arguments: Sequence[str]) -> list[LogDir]:
    from pykraft.spark.jobs.audit_files import LogDir

    found: dict[Path, LogDir] = {}
    disk = OsDisk(read_only=True)
    for argument in arguments:
        name, separator, directory = argument.partition("=")
        if not separator or "/" in name or Path(argument).is_dir():
            name = directory = argument
        path = Path(directory)
        if not name or not path.is_dir():
            raise click.UsageError(f"{argument!r}: there is no directory {directory!r}")
        if path.resolve() in found:
            raise click.UsageError(f"{directory!r} is given twice")
        try:
            starts, replicated, cleaned, gaps = (
                read_offset_checkpoint(disk, f"{path}/{file}")
                for file in (
                    LOG_START_OFFSET_CHECKPOINT,
                    REPLICATION_OFFSET_CHECKPOINT,
                    CLEANER_OFFSET_CHECKPOINT,
                    GAP_OFFSET_CHECKPOINT,
                )
            )
        except (OSError, CorruptCheckpointError) as error:
            raise UnreadableError(str(error)) from error
        found[path.resolve()] = LogDir(
            replica=name,
            path=path,
            log_starts=starts,
            high_watermarks=replicated,
            compacted_ends={key: max(cleaned.get(key, 0), gaps.get(key, 0)) for key in cleaned | gaps},
        )
    return list(found.values())


def _ordered(plan: AuditPlan, audit: Audit) -> list[tuple[Subject, Found]]:
    """By kind, topic and partition."""
    from pykraft.spark.jobs.audit_findings import Kind

    order = list(Kind)

    def rank(item: tuple[Subject, Found]) -> tuple[int, str, int, str]:
        kind, log, replicas = item[0]
        return order.index(kind), plan.logs[log].topic, plan.logs[log].partition, replicas

    return sorted(audit.tally, key=rank)


def _print_json(plan: AuditPlan, audit: Audit) -> None:
    found: dict[bool, list[object]] = {True: [], False: []}
    for subject, one in _ordered(plan, audit):
        row = {
            "kind": subject.kind.label,
            "topic": plan.logs[subject.log].topic,
            "partition": plan.logs[subject.log].partition,
            "replica": subject.replicas,
            "count": one.count,
            "examples": [dict(zip(_PLACE, _place(plan, place), strict=True)) for place in one.places],
        }
        found[subject.kind.is_anomaly].append(row)
    print_json(
        {
            "anomalies": found[True],
            "notes": found[False],
            "skipped": plan.skipped,
            "unreadable": audit.unreadable,
            "replicas": [
                dict(zip(map(json_key, _TOTALS), astuple(one), strict=True)) for one in audit.totals
            ],
        }
    )


def _print(plan: AuditPlan, audit: Audit) -> None:
    for kind, items in groupby(_ordered(plan, audit), key=lambda item: item[0].kind):
        click.echo(f"{kind.label}{'' if kind.is_anomaly else ' (a note)'}: {kind.meaning}")
        rows = []
        for subject, one in items:
            log = plan.logs[subject.log]
            what = log.topic, log.partition, subject.replicas, one.count
            rows += [(*what, *_place(plan, place)) for place in one.places]
        print_table(_FINDINGS, rows)
        click.echo()
    for reason in plan.skipped:
        click.echo(f"skipped: {reason}")
    for reason in audit.unreadable:
        click.echo(f"could not be read: {reason}")
    print_table(_TOTALS, [astuple(one) for one in audit.totals])
    kinds = {subject.kind.label: None for subject, _ in _ordered(plan, audit) if subject.kind.is_anomaly}
    click.echo(f"anomalies: {', '.join(kinds)}" if kinds else "no anomaly")


def _place(plan: AuditPlan, place: Place) -> tuple[object, ...]:
    """As :data:`_PLACE`. Where a log begins or ends is in no file."""
    segment = None if place.segment < 0 else plan.segments[place.segment]
    position = None if segment is None else place.position
    return place.offset, position, None if segment is None else segment.path, place.detail
