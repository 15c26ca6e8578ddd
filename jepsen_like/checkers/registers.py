"""Checks that changes are found again: committed offsets, and the changes of admins.

``set`` and ``get``, ``commit`` and ``committed`` are the writes and the reads of one register per key. A
value that is found must have been set and not certainly refused, and must not be older than another one that
was in force before the read began. A value is in force when its write was answered, or a read found it. A
write with an unknown outcome may take effect at any later time, and so may be found at any later time; one
that was answered took effect before its answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from pykraft.jepsen_like.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.history import Event

WRITES = frozenset({"set", "commit"})
READS = frozenset({"get", "committed"})


@dataclass(slots=True)
class Write:
    """Times in microseconds: it took effect from ``invoked`` to ``end``, certainly by ``in_force``."""

    value: str
    offset: int | None
    invoked: float
    end: float = inf
    in_force: float = inf
    failed: bool = False


@dataclass(slots=True)
class Register:
    writes: list[Write] = field(default_factory=list)
    by_value: dict[str, list[Write]] = field(default_factory=dict)
    open: dict[tuple[str, str], Write] = field(default_factory=dict)
    reads: list[Event] = field(default_factory=list)


def check_registers(events: Iterable[Event], findings: Findings) -> None:
    registers: dict[str, Register] = {}
    for event in events:
        if event.key is None:
            continue
        if event.op in WRITES and event.value is not None:
            _add_write(registers.setdefault(event.key, Register()), event, event.value)
        elif event.op in READS and event.type == "ok":
            registers.setdefault(event.key, Register()).reads.append(event)
    for key, register in sorted(registers.items()):
        _check(key, register, findings)


def _add_write(register: Register, event: Event, value: str) -> None:
    if event.type == "invoke":
        write = Write(value, event.offset, event.time_us)
        register.writes.append(write)
        register.by_value.setdefault(value, []).append(write)
        register.open[(event.process, value)] = write
        return
    write = register.open.pop((event.process, value))
    if event.type == "ok":
        write.end = write.in_force = event.time_us
    elif event.type == "fail":
        write.failed = True


def _check(key: str, register: Register, findings: Findings) -> None:
    for read in register.reads:
        candidates = register.by_value.get(read.value or "", [])
        if len(candidates) == 1:
            candidates[0].in_force = min(candidates[0].in_force, read.time_us)
    certain = sorted((w.in_force, w.invoked) for w in register.writes if w.in_force < inf and not w.failed)
    times = [in_force for in_force, _ in certain]
    newest = list(accumulate((invoked for _, invoked in certain), max))
    for read in register.reads:
        asked_us = (read.detail or {}).get("asked_us", read.time_us)
        place = bisect_right(times, asked_us)
        after = newest[place - 1] if place else -inf
        _judge(key, register, read, after, findings)


def _judge(key: str, register: Register, read: Event, after: float, findings: Findings) -> None:
    """``after``: the latest invocation of a value that was in force when the read began."""
    if read.value is None:
        if after > -inf:
            findings.add(Anomaly.LOST_CHANGE, key, f"{read.process} found nothing at {read.time_us} us")
        return
    candidates = [
        write
        for write in register.by_value.get(read.value, [])
        if not write.failed and write.invoked <= read.time_us and write.offset == read.offset
    ]
    if not candidates:
        findings.add(Anomaly.PHANTOM_CHANGE, key, f"{read.process} found {read.value} at {read.time_us} us")
    elif all(write.end < after for write in candidates):
        example = f"{read.process} found {read.value} at {read.time_us} us, though a newer value was in force"
        findings.add(Anomaly.LOST_CHANGE, key, example)
