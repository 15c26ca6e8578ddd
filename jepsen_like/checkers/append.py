"""The checker of the append workload: every promise about one log, over a whole history, in linear time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykraft.jepsen_like.checkers.findings import Anomaly, Finding, Findings
from pykraft.jepsen_like.checkers.log_index import build_index
from pykraft.jepsen_like.checkers.reads import check_reads
from pykraft.jepsen_like.checkers.replicas import check_replicas
from pykraft.jepsen_like.checkers.resends import client_resends
from pykraft.jepsen_like.checkers.writes import check_writes
from pykraft.jepsen_like.history import Event

# Events that are findings by themselves: whoever runs the workload saw them happen.
_TOLD: dict[tuple[str, str], Anomaly] = {
    ("poll", "info"): Anomaly.POSITION_LOST,
    ("producer-fatal", "info"): Anomaly.PRODUCER_FATAL,
    ("node-exited", "info"): Anomaly.NODE_EXITED,
    ("no-progress", "info"): Anomaly.NO_PROGRESS,
}


@dataclass(frozen=True, slots=True)
class AppendReport:
    """``findings`` fail the run; ``client_resends`` counts values that librdkafka wrote again by itself."""

    findings: tuple[Finding, ...]
    client_resends: int


def check_append(events: Iterable[Event]) -> tuple[Finding, ...]:
    """All findings of a history; empty when every promise was kept."""
    return examine_append(events).findings


def examine_append(events: Iterable[Event]) -> AppendReport:
    """The findings, and what was seen beside them."""
    index = build_index(events)
    findings = Findings()
    resends = 0
    for _, key in sorted(index.keys.items()):
        key.resent = client_resends(key, frozenset(index.pipelined))
        resends += len(key.resent)
        check_writes(key, findings)
        check_reads(key, findings)
        check_replicas(key, findings)
    for event in index.others:
        kind = _TOLD.get((event.op, event.type))
        if kind is not None:
            findings.add(kind, event.key or "", f"{event.process}: {event.error}")
    return AppendReport(findings.result(), resends)
