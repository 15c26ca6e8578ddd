"""Finds which put every record of a compacted log is: none has moved, changed, or come from nowhere."""

from pykraft.jepsen_like.faults.checkers.compacted.log import CompactedLog, MapRead, Put
from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import KeyIndex
from pykraft.jepsen_like.faults.record_text import parse_pair


def check_places(key: KeyIndex, log: CompactedLog, findings: Findings) -> None:
    """Also fills in the offsets of puts of unknown outcome that were read, in ``log``."""
    _Placing(key.key, log, findings).place_all(key)
    _check_writers(key.key, log, findings)


class _Placing:
    """``put_at`` and ``text_at``: the put that is at an offset, and the record that was read there.

    ``deletions``: by offset, those of which nobody was told that offset, with who has read them. A value
    names its put, but a deletion is one that fits in between, so all values have their places first.
    """

    def __init__(self, name: str, log: CompactedLog, findings: Findings) -> None:
        self._name = name
        self._log = log
        self._findings = findings
        self._text_at: dict[int, str] = {}
        self._put_at: dict[int, Put] = {}
        self._deletions: dict[int, tuple[str, str]] = {}
        self._by_text: dict[str, list[Put]] = {}
        self._of_process: dict[str, list[Put]] = {}
        for put in log.puts.values():
            self._of_process.setdefault(put.process, []).append(put)
            self._by_text.setdefault(put.text, []).append(put)
            if put.offset is not None:
                other = self._put_at.setdefault(put.offset, put)
                if other is not put:
                    self._add(Anomaly.INCONSISTENT_OFFSETS, f"both {other} and {put} were acknowledged")

    def place_all(self, key: KeyIndex) -> None:
        end = 0
        for read in self._log.reads:
            self._check_order(read)
            for offset, text in read.records:
                self._place(read.process, offset, text)
            end = max(end, read.end or 0)
        for name, replica in sorted(key.replicas.items()):
            for offset, text in sorted(replica.records.items()):
                if offset < end:
                    self._place(name, offset, text)
        for offset, (process, text) in sorted(self._deletions.items()):
            self._find_put(process, offset, text)

    def _check_order(self, read: MapRead) -> None:
        last = -1
        for offset, text in read.records:
            if offset <= last:
                example = f"{read.process} went from offset {last} back to {offset} ({text})"
                self._add(Anomaly.INT_NONMONOTONIC_POLL, example)
            last = offset

    def _place(self, process: str, offset: int, text: str) -> None:
        known = self._text_at.setdefault(offset, text)
        if known != text:
            example = f"offset {offset} held {known}, but {text} for {process}"
            self._add(Anomaly.INCONSISTENT_OFFSETS, example)
        elif offset not in self._put_at and parse_pair(text)[1] is None:
            self._deletions.setdefault(offset, (process, text))
        elif offset not in self._put_at:
            self._find_put(process, offset, text)
        elif self._put_at[offset].text != text:
            example = f"{process} read {text} at {offset}, where {self._put_at[offset]} was acknowledged"
            self._add(Anomaly.INCONSISTENT_OFFSETS, example)

    def _find_put(self, process: str, offset: int, text: str) -> None:
        """No put was acknowledged at this offset: it is one of unknown outcome, or none."""
        candidates = self._by_text.get(text, [])
        for put in candidates:
            if put.outcome != "fail" and put.offset is None and self._fits(put, offset):
                put.offset = offset
                self._put_at[offset] = put
                return
        self._put_at[offset] = candidates[0] if candidates else Put(process, 0, text, 0)
        example = f"{process} read {text} at offset {offset}"
        if not candidates:
            self._add(Anomaly.PHANTOM_READ, f"{example}: it was never written")
        elif any(put.outcome == "fail" for put in candidates):
            self._add(Anomaly.ABORTED_READ, f"{example}: its write had failed")
        elif candidates[0].deletes:
            self._add(Anomaly.PHANTOM_READ, f"{example}: no deletion can be there")
        elif candidates[0].outcome == "ok":
            self._add(Anomaly.MOVED_OFFSET, f"{example}, but it is {candidates[0]}")
        else:
            self._add(Anomaly.DUPLICATE, f"{example}, but it is {candidates[0]}, too")

    def _fits(self, put: Put, offset: int) -> bool:
        """Whether a deletion may be at this offset: puts of a writer are in order. A value names itself."""
        if not put.deletes:
            return True
        placed = [
            (other.number, other.offset)
            for other in self._of_process[put.process]
            if other.offset is not None and other is not put
        ]
        return all((at < offset) == (number < put.number) for number, at in placed)

    def _add(self, kind: Anomaly, example: str) -> None:
        self._findings.add(kind, self._name, example)


def _check_writers(name: str, log: CompactedLog, findings: Findings) -> None:
    last: dict[str, Put] = {}
    for put in log.puts.values():
        if put.offset is None:
            continue
        before = last.get(put.process)
        if before is not None and before.offset is not None and put.offset <= before.offset:
            findings.add(Anomaly.NONMONOTONIC_SEND, name, f"{put} was written after {before}")
        last[put.process] = put
