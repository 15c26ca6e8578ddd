"""Checks that no record below a group's committed offset was skipped: each was read by some member."""

from collections import defaultdict

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import LogIndex


def check_consumption(index: LogIndex, findings: Findings) -> None:
    """Checks no partition without a last read, from which the log is known."""
    group_of: dict[str, str] = {}
    committed: dict[tuple[str, str], int] = defaultdict(int)
    for event in index.others:
        if event.op == "member":
            group_of[event.process] = (event.detail or {})["group"]
        elif event.op == "commit" and event.type == "ok" and event.key is not None:
            group, _, name = event.key.partition("/")
            committed[(group, name)] = max(committed[(group, name)], event.offset or 0)
    for (group, name), end in sorted(committed.items()):
        key = index.keys.get(name)
        if key is None or key.final_end is None:
            continue
        read = {
            offset for one in key.reads if group_of.get(one.process) == group for offset, _ in one.records
        }
        for offset, value in key.final.items():
            if offset < end and offset not in read:
                example = f"{group} committed {end}, but no member read {value} at {offset}"
                findings.add(Anomaly.SKIPPED_BY_GROUP, name, example)
