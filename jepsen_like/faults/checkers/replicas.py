"""Compares replicas: from the log start to the high watermark all must hold the same batches, byte for byte.

The last read through a leader is the reference for values; batch marks (base offset, last offset, leader
epoch, CRC) are compared between the replicas. Records at or above the high watermark are not compared: there
replicas may differ. Nor are those that were deleted: files may hold them for some time.
"""

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import BatchMark, KeyIndex
from pykraft.jepsen_like.faults.checkers.transaction_index import parse_value


def check_replicas(key: KeyIndex, findings: Findings) -> None:
    """One pass over each replica's log; checks nothing without a last read, which has the high watermark."""
    if key.final_end is None:
        return
    reference: dict[int, tuple[str, BatchMark]] = {}
    for name, log in sorted(key.replicas.items()):
        for offset, value in key.final.items():
            held = log.records.get(offset)
            if held != value:
                example = (
                    f"{name} holds {held or 'nothing'} at offset {offset}, but the leader served {value}"
                )
                findings.add(Anomaly.DIVERGENT_REPLICA, key.key, example)
        for offset, value in log.records.items():
            is_known = key.final_start <= offset < key.final_end
            if is_known and offset not in key.final and not _is_aborted(key, value):
                example = f"{name} holds {value} at offset {offset}, which the leader did not serve"
                findings.add(Anomaly.DIVERGENT_REPLICA, key.key, example)
        for base, mark in log.batches.items():
            if mark[1] >= key.final_end:
                continue
            other, expected = reference.setdefault(base, (name, mark))
            if mark != expected:
                example = (
                    f"batch at {base}: {name} has {mark[1:]} (last offset, epoch, crc …), {other} has "
                    f"{expected[1:]}"
                )
                findings.add(Anomaly.DIVERGENT_REPLICA, key.key, example)


def _is_aborted(key: KeyIndex, value: str) -> bool:
    """Whether a record may be that of a transaction that was not committed: leaders do not serve those."""
    send = key.sends.get(value)
    return parse_value(value) is not None and send is not None and send.status != "ok"
