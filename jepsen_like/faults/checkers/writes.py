"""Checks the outcome of every send: lost, unseen, moved or reordered.

A value acknowledged with acks=all must be in the last read, at the offset of its acknowledgement, unless it
may have been deleted; if its producer is idempotent, there alone, and after the values that the producer sent
to the same key before it. A send that was answered with ``info``, or not at all, or had fewer acks, may be
there or not.
"""

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import KeyIndex, Send


def check_writes(key: KeyIndex, findings: Findings) -> None:
    """One pass over the sends of a key, after a pass over its reads."""
    assert not key.sent_twice, (
        f"the workload sent {key.sent_twice[0]} twice to {key.key}: values must be unique"
    )
    offset_of = _first_offsets(key)
    in_final = set(key.final.values())
    bound = max(key.final, default=max(offset_of.values(), default=-1))
    last_of_process: dict[str, tuple[int, str]] = {}
    acknowledged_at: dict[int, str] = {}
    for number, send in enumerate(key.sends.values()):
        read_at = offset_of.get(send.value)
        if send.must_stay:
            known_at = send.offset if send.offset is not None else read_at
            least = send.floor if known_at is None else known_at
            is_missing = send.value not in in_final and not key.may_be_deleted(number, least)
            if is_missing and (read_at is None or key.final_end is not None):
                _add_missing(key, findings, send.value, send.offset, read_at, bound)
            if send.offset is not None:
                if read_at is not None and _is_moved(key, send, send.offset, read_at):
                    example = f"{send.value} was acknowledged at {send.offset}, but read at {read_at}"
                    findings.add(Anomaly.MOVED_OFFSET, key.key, example)
                other = acknowledged_at.setdefault(send.offset, send.value)
                if other != send.value:
                    example = f"offset {send.offset} was acknowledged for both {other} and {send.value}"
                    findings.add(Anomaly.INCONSISTENT_OFFSETS, key.key, example)
        position = read_at if read_at is not None else send.offset
        if position is None or not send.kind.idempotent:
            continue
        earlier = last_of_process.get(send.process)
        if earlier is not None and position <= earlier[0]:
            example = f"{send.process} sent {send.value} (at {position}) after {earlier[1]} (at {earlier[0]})"
            findings.add(Anomaly.NONMONOTONIC_SEND, key.key, example)
        last_of_process[send.process] = (position, send.value)


def _is_moved(key: KeyIndex, send: Send, acknowledged_at: int, read_at: int) -> bool:
    """``read_at``: the first offset. Without idempotence a value may be elsewhere, too, but must be there."""
    if send.kind.idempotent:
        return acknowledged_at != read_at and not key.is_resent(send.value, acknowledged_at, read_at)
    is_known = key.final_end is not None and acknowledged_at >= key.final_start
    return is_known and key.final.get(acknowledged_at) != send.value


def _first_offsets(key: KeyIndex) -> dict[str, int]:
    """Where each value was read; the last read takes precedence over polls during the run."""
    offset_of: dict[str, int] = {}
    for offset, value in key.final.items():
        offset_of.setdefault(value, offset)
    for read in key.reads:
        for offset, value in read.records:
            offset_of.setdefault(value, offset)
    return offset_of


def _add_missing(
    key: KeyIndex,
    findings: Findings,
    value: str,
    acked_at: int | None,
    read_at: int | None,
    bound: int,
) -> None:
    place = "an unknown offset" if acked_at is None else f"offset {acked_at}"
    if acked_at is not None and acked_at > bound and read_at is None:
        example = f"{value} was acknowledged at {place}, but the log was read up to {bound} only"
        findings.add(Anomaly.UNSEEN, key.key, example)
        return
    before = "never read" if read_at is None else f"read earlier at {read_at}"
    findings.add(
        Anomaly.LOST_WRITE,
        key.key,
        f"{value} was acknowledged at {place}, {before}, but is not in the last read",
    )
