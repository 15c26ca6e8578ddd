"""Checks reads against each other: one value per offset, one offset per value, in order, all sent.

Order is checked on indices, that is on offsets without the holes, since control records take offsets that no
consumer gets. The known offsets are those of all reads and of all acknowledgements.
"""

from itertools import pairwise

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import KeyIndex, Read


def check_reads(key: KeyIndex, findings: Findings) -> None:
    """One pass for values and offsets and one for order."""
    value_at = _check_values(key, findings)
    _check_order(key, _indices(key, value_at), findings)


def _check_values(key: KeyIndex, findings: Findings) -> dict[int, str]:
    value_at: dict[int, str] = {}
    offset_of: dict[str, int] = {}
    reported: set[tuple[int, str]] = set()
    for read in key.reads:
        _check_limit(key, read, findings)
        for offset, value in read.records:
            if value_at.get(offset) == value:
                continue
            other = value_at.setdefault(offset, value)
            first = offset_of.setdefault(value, offset)
            if (offset, value) in reported:
                continue
            reported.add((offset, value))
            if other != value:
                example = f"offset {offset} held {other}, but {value} for {read.process}"
                findings.add(Anomaly.INCONSISTENT_OFFSETS, key.key, example)
            if first != offset and _is_idempotent(key, value) and not key.is_resent(value, first, offset):
                findings.add(Anomaly.DUPLICATE, key.key, f"{value} read at {first} and at {offset}")
            _check_origin(key, value, offset, findings)
    first = min(key.final, default=key.low_watermark)
    if first < key.low_watermark:
        example = f"offset {first} is in the last read, deleted was up to {key.low_watermark}"
        findings.add(Anomaly.DELETED_READ, key.key, example)
    if key.final_end is not None:
        in_final, after_final = set(key.final.values()), _read_only_after(key, key.final_end)
        for offset, value in value_at.items():
            send = key.sends.get(value)
            is_lost = send is not None and send.must_stay and value not in in_final  # see ``writes``
            is_known = offset in key.final or offset in after_final
            if not is_known and offset >= key.deletable and not is_lost:
                findings.add(
                    Anomaly.VANISHED_READ,
                    key.key,
                    f"{value} was read at {offset}, but is not there in the last read",
                )
    return value_at


def _read_only_after(key: KeyIndex, final_end: int) -> set[int]:
    """Offsets from the end of the last read on, of which all reads ended after that had begun: what was not
    acknowledged may be committed meanwhile.
    """
    before = len(key.reads) if key.reads_before_last is None else key.reads_before_last
    early, late = (
        {offset for read in reads for offset, _ in read.records if offset >= final_end}
        for reads in (key.reads[:before], key.reads[before:])
    )
    return late - early


def _check_limit(key: KeyIndex, read: Read, findings: Findings) -> None:
    last, limit = read.records[-1][0], read.high_watermark
    if limit is not None and last >= limit:
        example = f"{read.process} read offset {last}, but the high watermark was {limit}"
        findings.add(Anomaly.READ_TOO_FAR, key.key, example)


def _is_idempotent(key: KeyIndex, value: str) -> bool:
    send = key.sends.get(value)
    return send is None or send.kind.idempotent


def _check_origin(key: KeyIndex, value: str, offset: int, findings: Findings) -> None:
    send = key.sends.get(value)
    if send is None:
        findings.add(Anomaly.PHANTOM_READ, key.key, f"{value!r} at offset {offset} was never sent")
    elif send.status == "fail":
        findings.add(Anomaly.ABORTED_READ, key.key, f"{value} at offset {offset}: its send had failed")


def _indices(key: KeyIndex, value_at: dict[int, str]) -> dict[int, int]:
    known = set(value_at)
    known.update(send.offset for send in key.sends.values() if send.must_stay and send.offset is not None)
    return {offset: index for index, offset in enumerate(sorted(known))}


def _check_order(key: KeyIndex, index_of: dict[int, int], findings: Findings) -> None:
    last_of_process: dict[str, int] = {}
    for read in key.reads:
        if read.continues:
            before, after = last_of_process[read.process], read.records[0][0]
            _check_step(
                key, read, before, after, index_of, findings, Anomaly.POLL_SKIP, Anomaly.NONMONOTONIC_POLL
            )
        for (before, _), (after, _) in pairwise(read.records):
            if after != before + 1:  # a step by one offset is always a step by one index
                _check_step(
                    key,
                    read,
                    before,
                    after,
                    index_of,
                    findings,
                    Anomaly.INT_POLL_SKIP,
                    Anomaly.INT_NONMONOTONIC_POLL,
                )
        last_of_process[read.process] = read.records[-1][0]


def _check_step(
    key: KeyIndex,
    read: Read,
    before: int,
    after: int,
    index_of: dict[int, int],
    findings: Findings,
    skip: Anomaly,
    backwards: Anomaly,
) -> None:
    delta = index_of[after] - index_of[before]
    if delta > 1:
        findings.add(
            skip, key.key, f"{read.process} went from offset {before} to {after}, over {delta - 1} records"
        )
    elif delta < 1:
        findings.add(backwards, key.key, f"{read.process} went from offset {before} back to {after}")
