"""Figures of the performance tools, and their lines, as pure functions of samples and times.

The lines have the wording, the columns and the decimals of kafka-producer-perf-test and
kafka-consumer-perf-test 4.3, so that whatever parses those reads these. Times are milliseconds of one
monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pykraft.kafka_client.metadata import TopicPartition

_MIB: Final = 1 << 20
_SHOWN: Final = {0.5: "50th", 0.95: "95th", 0.99: "99th", 0.999: "99.9th"}

CONSUMER_COLUMNS: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def percentile(counts: Mapping[int, int], fraction: float) -> int:
    """The sample at index ``fraction * n``, rounded down, of all n samples in order; 0 without samples.

    ``counts`` says how often each value was seen.
    """
    index = int(fraction * sum(counts.values()))
    for value in sorted(counts):
        index -= counts[value]
        if index < 0:
            return value
    return 0


@dataclass(slots=True)
class _Window:
    start_ms: int
    count: int = 0
    bytes: int = 0
    latency_ms: int = 0
    max_ms: int = 0

    def line(self, now_ms: int) -> str:
        elapsed_s = (now_ms - self.start_ms) / 1000
        return (
            f"{self.count} records sent, {_quotient(self.count, elapsed_s, 1)} records/sec "
            f"({_quotient(self.bytes / _MIB, elapsed_s, 2)} MB/sec), "
            f"{_quotient(self.latency_ms, self.count, 1)} ms avg latency, {self.max_ms:.1f} ms max latency."
        )


class ProducerStats:
    """Latencies of acknowledged records, in total and since the last line of progress.

    Kafka's tool keeps at most half a million latencies; here every one counts.
    """

    def __init__(self, start_ms: int, reporting_interval_ms: int, *, steady_state: bool = False) -> None:
        self._start_ms = start_ms
        self._interval_ms = reporting_interval_ms
        self._steady_state = steady_state
        self._counts: Counter[int] = Counter()
        self._count = self._bytes = self._latency_ms = 0
        self._window = _Window(start_ms)
        self.is_silent = False
        """Whether lines of progress are left out."""

    def record(self, latency_ms: int, size_bytes: int, now_ms: int) -> list[str]:
        """Count a record that was acknowledged at ``now_ms``; returns the lines to print, if it is time."""
        self._counts[latency_ms] += 1
        self._count += 1
        self._bytes += size_bytes
        self._latency_ms += latency_ms
        window = self._window
        window.count += 1
        window.bytes += size_bytes
        window.latency_ms += latency_ms
        window.max_ms = max(window.max_ms, latency_ms)
        if now_ms - window.start_ms < self._interval_ms:
            return []
        lines = ["In steady state."] if self._steady_state and self._count == window.count else []
        if not self.is_silent:
            lines.append(window.line(now_ms))
        self._window = _Window(now_ms)
        return lines

    def total_line(self, now_ms: int) -> str:
        elapsed_s = (now_ms - self._start_ms) / 1000
        sent = f"{self._count} steady state" if self._steady_state else str(self._count)
        percentiles = [f"{percentile(self._counts, fraction)} ms {name}" for fraction, name in _SHOWN.items()]
        return (
            f"{sent} records sent, {_quotient(self._count, elapsed_s, 6)} records/sec "
            f"({_quotient(self._bytes / _MIB, elapsed_s, 2)} MB/sec), "
            f"{_quotient(self._latency_ms, self._count, 2)} ms avg latency, "
            f"{max(self._counts, default=0):.2f} ms max latency, {', '.join(percentiles)}."
        )


class RebalanceTime:
    """How long a member was waiting for partitions while it owned none."""

    def __init__(self, start_ms: int) -> None:
        self._since_ms = start_ms
        self._owned: set[TopicPartition] = set()
        self.total_ms = 0

    def handle_assigned(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        if not self._owned:
            self.total_ms += now_ms - self._since_ms
        self._owned.update(partitions)

    def handle_revoked(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        self._owned.difference_update(partitions)
        if not self._owned:
            self._since_ms = now_ms


class ConsumerStats:
    """Records and bytes read, in total and since the last line of progress."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = self._window_start_ms = start_ms
        self._window_rebalance_ms = 0
        self._window_first = (0, 0)
        self.records = 0
        self.bytes = 0

    def record(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.bytes += size_bytes

    def is_due(self, now_ms: int, reporting_interval_ms: int) -> bool:
        return now_ms - self._window_start_ms >= reporting_interval_ms

    def window_line(self, time: str, now_ms: int, rebalance_ms: int) -> str:
        """The line of the interval that ends now; the next begins. ``rebalance_ms``: since the start."""
        elapsed_ms = now_ms - self._window_start_ms
        rebalance_in_window_ms = rebalance_ms - self._window_rebalance_ms
        fetch_ms = elapsed_ms - rebalance_in_window_ms
        records, mib = self.records - self._window_first[0], (self.bytes - self._window_first[1]) / _MIB
        fetched = [_quotient(it, fetch_ms / 1000, 4) if fetch_ms > 0 else "0.0000" for it in (mib, records)]
        self._window_start_ms, self._window_rebalance_ms = now_ms, rebalance_ms
        self._window_first = (self.records, self.bytes)
        return (
            f"{time}, 0, {self.bytes / _MIB:.4f}, {_quotient(mib, elapsed_ms / 1000, 4)}, {self.records}, "
            f"{_quotient(records, elapsed_ms / 1000, 4)}, {rebalance_in_window_ms}, {fetch_ms}, "
            f"{', '.join(fetched)}"
        )

    def total_line(self, start: str, end: str, now_ms: int, rebalance_ms: int) -> str:
        elapsed_ms = now_ms - self._start_ms
        fetch_ms = elapsed_ms - rebalance_ms
        mib = self.bytes / _MIB
        return (
            f"{start}, {end}, {mib:.4f}, {_quotient(mib, elapsed_ms / 1000, 4)}, {self.records}, "
            f"{_quotient(self.records, elapsed_ms / 1000, 4)}, {rebalance_ms}, {fetch_ms}, "
            f"{_quotient(mib, fetch_ms / 1000, 4)}, {_quotient(self.records, fetch_ms / 1000, 4)}"
        )


def _quotient(dividend: float, divisor: float, places: int) -> str:
    """A quotient as Java prints it, which divides by zero, too."""
    if divisor:
        return f"{dividend / divisor:.{places}f}"
    return "Infinity" if dividend else "NaN"
