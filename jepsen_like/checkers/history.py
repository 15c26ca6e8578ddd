"""Runs all checkers over one history (the logs of partitions, groups, and changes) in linear time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykraft.jepsen_like.checkers.consumption import check_consumption
from pykraft.jepsen_like.checkers.findings import Anomaly, Finding, Findings
from pykraft.jepsen_like.checkers.log_index import LogIndex, build_index
from pykraft.jepsen_like.checkers.ownership import check_ownership
from pykraft.jepsen_like.checkers.reads import check_reads
from pykraft.jepsen_like.checkers.registers import check_registers
from pykraft.jepsen_like.checkers.replicas import check_replicas
from pykraft.jepsen_like.checkers.resends import client_resends
from pykraft.jepsen_like.checkers.tail_losses import without_lost_tails
from pykraft.jepsen_like.checkers.times import check_times
from pykraft.jepsen_like.checkers.transactions import check_transactions
from pykraft.jepsen_like.checkers.writes import check_writes
from pykraft.jepsen_like.history import Event

# Events that are findings by themselves: the workload observed the anomaly.
_REPORTED: dict[tuple[str, str], Anomaly] = {
    ("poll", "info"): Anomaly.POSITION_LOST,
    ("producer-fatal", "info"): Anomaly.PRODUCER_FATAL,
    ("node-exited", "info"): Anomaly.NODE_EXITED,
    ("no-progress", "info"): Anomaly.NO_PROGRESS,
    ("hanging", "info"): Anomaly.HANGING_TRANSACTION,
}


@dataclass(frozen=True, slots=True)
class Report:
    """``findings`` fail the run; ``client_resends`` counts the values that librdkafka itself repeated,
    ``write_cycles`` the groups of concurrent transactions that wrote in different orders (allowed)."""

    findings: tuple[Finding, ...]
    client_resends: int
    write_cycles: int = 0


def check(events: Iterable[Event], min_insync_replicas: int = 2) -> tuple[Finding, ...]:
    """All findings of a history; empty if every guarantee was kept."""
    return examine(events, min_insync_replicas).findings


def examine(events: Iterable[Event], min_insync_replicas: int = 2) -> Report:
    """The findings of a history, and the number of client resends.

    ``min_insync_replicas``: that of all topics. Kafka does not guarantee records while this many disks have
    lost their tails.
    """
    history = list(events)
    guaranteed = without_lost_tails(history, min_insync_replicas)
    index = build_index(guaranteed)
    findings = Findings()
    resends = 0
    for _, key in sorted(index.keys.items()):
        key.resent = client_resends(key)
        resends += len(key.resent)
        check_writes(key, findings)
        check_reads(key, findings)
        check_times(key, findings)
        check_replicas(key, findings)
    check_ownership(index.others, findings)
    check_registers(index.others, findings)
    write_cycles = check_transactions(index, findings)
    if guaranteed is history:  # otherwise some reads are left out
        check_consumption(index, findings)
    for event in index.others:
        kind = _REPORTED.get((event.op, event.type))
        if kind is Anomaly.POSITION_LOST and _is_deleted(index, event):
            continue
        if kind is not None:
            findings.add(kind, event.key or "", f"{event.process}: {event.error}")
    return Report(findings.result(), resends, write_cycles)


def _is_deleted(index: LogIndex, event: Event) -> bool:
    """Whether a position was lost because records were deleted, perhaps by a leader that is gone."""
    key = index.keys.get(event.key or "")
    if key is None or event.offset is None:
        return False
    return event.offset < max(key.deletable, key.asked_to, key.low_watermark)
