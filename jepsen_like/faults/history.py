"""One history format for every workload and every world: JSON lines, one event a line, in the order written.

A history is the only thing the checkers see, so the same checker judges simulated runs, runs on real
processes and other brokers. Decides: the fields of an event and their names in the file. Never interprets
them. An ``invoke`` is answered by ``ok`` (it happened), ``fail`` (it certainly did not) or ``info`` (nobody
knows). A send is paired with its answer by ``(key, value)``, since one producer has many in flight and values
are unique per key. ``docs/fault-runs.md`` lists the operations.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec

EventType = Literal["invoke", "ok", "fail", "info"]

NEMESIS: Final = "nemesis"
OBSERVER: Final = "observer"
REPAIRED: Final = "repaired"

_WATCHED: Final = frozenset({NEMESIS, OBSERVER})

Records = Sequence[tuple[int, str]]


class HistoryError(ValueError):
    """A line of a history file is not an event; the message names the line."""


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a history.

    ``key`` names an independent log (``topic-partition``). ``offset`` is None where unknown. ``time_us``
    counts microseconds on the monotonic clock from the start of the run.
    """

    type: EventType
    process: str
    time_us: int
    op: str
    key: str | None = None
    value: str | None = None
    offset: int | None = None
    records: Records | None = None
    error: str | None = None
    detail: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """The event's line, without the line break; fields that are None are left out."""
        return msgspec.json.encode(self).decode("utf-8")


def is_fault(event: Event) -> bool:
    """Whether a nemesis says that a fault has begun."""
    return event.process == NEMESIS and event.type == "ok" and event.op != REPAIRED


_decode = msgspec.json.Decoder(Event).decode


def event_from_json(line: str | bytes) -> Event:
    """Parse one line. :class:`HistoryError` when it is not an event."""
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise HistoryError(f"not an event: {error}") from None
    except msgspec.DecodeError as error:
        raise HistoryError(f"not JSON: {error}") from None


def read_history(path: Path) -> Iterator[Event]:
    """Every event of a file, in order.

    A last line without a line break is what a killed writer leaves behind; it is dropped. Any other bad line
    is an error: a checker must not judge half a history.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield event_from_json(line)
            except HistoryError as error:
                raise HistoryError(f"{path}:{number}: {error}") from None


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write a whole history at once."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(event.to_json() + "\n" for event in events)


class Recorder(ABC):
    """Where workloads write their events."""

    @abstractmethod
    def now_us(self) -> int:
        """Microseconds since this history began."""

    @abstractmethod
    def _add(self, event: Event) -> None: ...

    def record(
        self,
        type: EventType,
        process: str,
        op: str,
        *,
        time_us: int | None = None,
        key: str | None = None,
        value: str | None = None,
        offset: int | None = None,
        records: Records | None = None,
        error: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one event, stamped now unless ``time_us`` says otherwise."""
        stamp = self.now_us() if time_us is None else time_us
        self._add(Event(type, process, stamp, op, key, value, offset, records, error, detail))


class MemoryHistory(Recorder):
    """A history in memory, for virtual time: ``now_us`` is its clock, ``events`` what was recorded."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.events: list[Event] = []

    def now_us(self) -> int:
        return self._now_us()

    def _add(self, event: Event) -> None:
        self.events.append(event)


class HistoryWriter(Recorder):
    """Appends events from many threads. The order in the file is the order in which they were recorded.

    What is recorded once it is closed is ignored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many events of each op and type there are."""
        self.watch: Callable[[Event], None] = lambda _: None
        """Told of what the nemesis and the observer record, on the thread that records it."""
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8", buffering=1 << 20)
        self._start_ns = time.monotonic_ns()
        self._closed = False

    def now_us(self) -> int:
        """Microseconds since this history began."""
        return (time.monotonic_ns() - self._start_ns) // 1000

    def _add(self, event: Event) -> None:
        line = event.to_json() + "\n"
        with self._lock:
            if self._closed:
                return
            self._file.write(line)
            self.outcomes[event.op, event.type] += 1
            if event.process in _WATCHED:
                self._file.flush()  # whoever follows the file sees faults as they happen
        if event.process in _WATCHED:
            self.watch(event)

    def close(self) -> None:
        """Flush and close; a straggling callback that records afterwards is ignored."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
