"""Runs all checkers over one history (the logs of partitions, groups, and changes) in linear time.

A history may be examined in parts: most events are of one log, and most guarantees concern one log. What is
found in parts and merged is what is found at once.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from pykraft.jepsen_like.faults.checkers.compacted.checker import check_compacted, find_circumstances
from pykraft.jepsen_like.faults.checkers.consumption import check_consumption
from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Finding, Findings
from pykraft.jepsen_like.faults.checkers.linear_registers import check_ids, check_linearizable
from pykraft.jepsen_like.faults.checkers.log_index import LogIndex, build_index, is_of_a_log
from pykraft.jepsen_like.faults.checkers.ownership import check_ownership
from pykraft.jepsen_like.faults.checkers.reads import check_reads
from pykraft.jepsen_like.faults.checkers.registers import check_registers
from pykraft.jepsen_like.faults.checkers.replicas import check_replicas
from pykraft.jepsen_like.faults.checkers.resends import client_resends
from pykraft.jepsen_like.faults.checkers.static_members import check_static_members
from pykraft.jepsen_like.faults.checkers.tail_losses import without_lost_tails
from pykraft.jepsen_like.faults.checkers.times import check_times
from pykraft.jepsen_like.faults.checkers.transactions import check_transactions
from pykraft.jepsen_like.faults.checkers.writes import check_writes
from pykraft.jepsen_like.faults.history import Event

# Events that are findings by themselves: the workload observed the anomaly.
_REPORTED: dict[tuple[str, str], Anomaly] = {
    ("poll", "info"): Anomaly.POSITION_LOST,
    ("producer-fatal", "info"): Anomaly.PRODUCER_FATAL,
    ("node-exited", "info"): Anomaly.NODE_EXITED,
    ("no-progress", "info"): Anomaly.NO_PROGRESS,
    ("hanging", "info"): Anomaly.HANGING_TRANSACTION,
    ("replica-damaged", "info"): Anomaly.DIVERGENT_REPLICA,
}


@dataclass(frozen=True, slots=True)
class Report:
    """``findings`` fail the run. The numbers are of what does not, and is told.

    ``client_resends``: the values that librdkafka itself repeated. ``write_cycles``,
    ``antidependency_cycles`` and ``send_skips``: see :class:`~.transaction_order.Allowed`.
    ``unjudged_deletions``: see ``compacted``. ``undecided``: the registers of which nobody knows whether they
    are linearizable, because the search was given up.
    """

    findings: tuple[Finding, ...]
    client_resends: int = 0
    write_cycles: int = 0
    antidependency_cycles: int = 0
    send_skips: int = 0
    unjudged_deletions: int = 0
    undecided: int = 0

    @property
    def allowed(self) -> dict[str, int]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in _NUMBERS}


_NUMBERS = tuple(field.name for field in fields(Report) if field.name != "findings")


def check(events: Iterable[Event], min_insync_replicas: int = 2) -> tuple[Finding, ...]:
    """All findings of a history; empty if every guarantee was kept."""
    return examine(events, min_insync_replicas).findings


def examine(events: Iterable[Event], min_insync_replicas: int = 2) -> Report:
    """The findings of a history, and the numbers of what is allowed.

    ``min_insync_replicas``: that of all topics. Kafka does not guarantee records while this many disks have
    lost their tails.
    """
    index, nothing_lost = _index(events, min_insync_replicas)
    findings = Findings()
    numbers = _check_logs(index, findings, nothing_lost=nothing_lost)
    undecided = _check_the_rest(index, findings)
    return _with_transactions(index, findings, **numbers, undecided=undecided)


def examine_logs(events: Iterable[Event], min_insync_replicas: int = 2) -> Report:
    """Run :func:`examine` on single logs. The events may be of some logs only (see
    :func:`~pykraft.jepsen_like.faults.checkers.log_index.is_of_a_log`), with all others in their places."""
    index, nothing_lost = _index(events, min_insync_replicas)
    findings = Findings()
    numbers = _check_logs(index, findings, nothing_lost=nothing_lost)
    return Report(findings.result(), **numbers)


def examine_the_rest(events: Iterable[Event], min_insync_replicas: int = 2) -> Report:
    """Run :func:`examine` on the events that are of no log; transactions are not examined."""
    index, _ = _index(events, min_insync_replicas)
    findings = Findings()
    undecided = _check_the_rest(index, findings)
    return Report(findings.result(), undecided=undecided)


def examine_transactions(events: Iterable[Event], min_insync_replicas: int = 2) -> Report:
    """Run :func:`examine` on transactions, which span several logs."""
    index, _ = _index(events, min_insync_replicas)
    return _with_transactions(index, Findings())


def merge(reports: Iterable[Report]) -> Report:
    """One report of several about different parts of a history."""
    merged = Findings()
    numbers = dict.fromkeys(_NUMBERS, 0)
    for report in reports:
        merged.add_all(report.findings)
        for name in numbers:
            numbers[name] += getattr(report, name)
    return Report(merged.result(), **numbers)


def _index(events: Iterable[Event], min_insync_replicas: int) -> tuple[LogIndex, bool]:
    """The index of what is guaranteed, and whether that is everything."""
    history = list(events)
    guaranteed = without_lost_tails(history, min_insync_replicas)
    return build_index(guaranteed), guaranteed is history


def _check_logs(index: LogIndex, findings: Findings, *, nothing_lost: bool) -> dict[str, int]:
    """The numbers of a report that are of logs."""
    resends = unjudged = 0
    circumstances = find_circumstances(index.others)
    for _, key in sorted(index.keys.items()):
        key.resent = client_resends(key, index.skippers)
        resends += len(key.resent)
        check_writes(key, findings)
        check_reads(key, findings)
        check_times(key, findings)
        check_replicas(key, findings)
        unjudged += check_compacted(key, circumstances, findings)
    if nothing_lost:  # otherwise some reads are left out
        check_consumption(index, findings)
    for event in index.others:
        if is_of_a_log(event):
            _add_reported(index, event, findings)
    return {"client_resends": resends, "unjudged_deletions": unjudged}


def _check_the_rest(index: LogIndex, findings: Findings) -> int:
    """The number of registers that were not decided."""
    check_ownership(index.others, findings)
    check_static_members(index.others, findings)
    check_registers(index.others, findings)
    check_ids(index.others, findings)
    for event in index.others:
        if not is_of_a_log(event):
            _add_reported(index, event, findings)
    return check_linearizable(index.others, findings)


def _with_transactions(index: LogIndex, findings: Findings, **numbers: int) -> Report:
    allowed = check_transactions(index, findings)
    return Report(findings.result(), **numbers, **asdict(allowed))


def _add_reported(index: LogIndex, event: Event, findings: Findings) -> None:
    kind = _REPORTED.get((event.op, event.type))
    if kind is None or (kind is Anomaly.POSITION_LOST and _is_deleted(index, event)):
        return
    findings.add(kind, event.key or "", f"{event.process}: {event.error}")


def _is_deleted(index: LogIndex, event: Event) -> bool:
    """Whether a position was lost because records were deleted, perhaps by a leader that is gone."""
    key = index.keys.get(event.key or "")
    if key is None or event.offset is None:
        return False
    return event.offset < max(key.deletable, key.asked_to, key.low_watermark)
