"""Checks that changes are found again: committed offsets, and the changes of admins.

``set`` and ``get``, ``commit`` and ``committed`` are the writes and the reads of one register per key. A
value that is found must have been set and not certainly refused, and must not be older than another one that
was in force before the read began. A value is in force when its write was answered, or a read found it. A
write with an unknown outcome may take effect at any later time, and so may be found at any later time; one
that was answered took effect before its answer, and once more at any later time if its client had repeated it
(``detail.repeated``): what it sent first may have been on its way for long.

``look`` reads what was ``set`` as one broker shows it (``detail.broker``), whose image of the metadata may
lag: for it only that is in force what it has shown before. A request that is forwarded to the controller may
be carried out twice before it is answered, so there is no more to demand of writes that overlap.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.history import Event

WRITES = frozenset({"set", "commit"})
READS = frozenset({"get", "committed"})


@dataclass(slots=True)
class Write:
    """Times in microseconds: it took effect from ``invoked`` to ``end``."""

    value: str
    offset: int | None
    invoked: float
    end: float = inf
    failed: bool = False
    repeated: bool = False


@dataclass(slots=True)
class Register:
    writes: list[Write] = field(default_factory=list)
    by_value: dict[str, list[Write]] = field(default_factory=dict)
    open: dict[tuple[str, str], Write] = field(default_factory=dict)
    reads: list[Event] = field(default_factory=list)
    looks: dict[str, list[Event]] = field(default_factory=dict)
    """By broker."""


def check_registers(events: Iterable[Event], findings: Findings) -> None:
    registers: dict[str, Register] = {}
    for event in events:
        if event.key is None:
            continue
        if event.op in WRITES and event.value is not None:
            _add_write(registers.setdefault(event.key, Register()), event, event.value)
        elif event.op in READS and event.type == "ok":
            registers.setdefault(event.key, Register()).reads.append(event)
        elif event.op == "look" and event.type == "ok":
            register, broker = registers.setdefault(event.key, Register()), (event.detail or {})["broker"]
            register.looks.setdefault(str(broker), []).append(event)
    for key, register in sorted(registers.items()):
        answered = [(write.end, write.invoked) for write in register.writes if write.end < inf]
        _check(key, register, register.reads, answered, Anomaly.LOST_CHANGE, findings)
        for _, shown in sorted(register.looks.items()):
            _check(key, register, shown, [], Anomaly.CONFIG_WENT_BACK, findings)


def _add_write(register: Register, event: Event, value: str) -> None:
    if event.type == "invoke":
        write = Write(value, event.offset, event.time_us)
        register.writes.append(write)
        register.by_value.setdefault(value, []).append(write)
        register.open[(event.process, value)] = write
        return
    write = register.open.pop((event.process, value))
    if event.type == "ok":
        write.end = event.time_us
        write.repeated = "repeated" in (event.detail or {})
    elif event.type == "fail":
        write.failed = True


def _check(
    key: str,
    register: Register,
    reads: Sequence[Event],
    answered: Sequence[tuple[float, float]],
    stale: Anomaly,
    findings: Findings,
) -> None:
    """``answered``: when a value was in force by its answer, and the invocation of its write."""
    in_force = [*answered, *_in_force_by_reads(register, reads)]
    in_force.sort()
    times = [since for since, _ in in_force]
    newest = list(accumulate((invoked for _, invoked in in_force), max))
    for read in reads:
        asked_us = (read.detail or {}).get("asked_us", read.time_us)
        place = bisect_right(times, asked_us)
        after = newest[place - 1] if place else -inf
        _judge(key, register, read, after, stale, findings)


def _in_force_by_reads(register: Register, reads: Iterable[Event]) -> Iterator[tuple[float, float]]:
    for read in reads:
        candidates = register.by_value.get(read.value or "", [])
        if len(candidates) == 1 and not candidates[0].failed:
            yield read.time_us, candidates[0].invoked


def _judge(
    key: str, register: Register, read: Event, after: float, stale: Anomaly, findings: Findings
) -> None:
    """``after``: the latest invocation of a value that was in force when the read began."""
    who = _reader(read)
    if read.value is None:
        if after > -inf:
            findings.add(stale, key, f"{who} found nothing at {read.time_us} us")
        return
    candidates = [
        write
        for write in register.by_value.get(read.value, [])
        if not write.failed and write.invoked <= read.time_us and write.offset == read.offset
    ]
    if not candidates:
        findings.add(Anomaly.PHANTOM_CHANGE, key, f"{who} found {read.value} at {read.time_us} us")
    elif all(write.end < after and not write.repeated for write in candidates):
        example = f"{who} found {read.value} at {read.time_us} us, though a newer value was in force"
        findings.add(stale, key, example)


def _reader(read: Event) -> str:
    broker = (read.detail or {}).get("broker")
    return read.process if broker is None else f"{read.process}, at broker {broker},"
