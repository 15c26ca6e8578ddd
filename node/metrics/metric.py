"""The row that describes one metric: its name, its meaning, and how it is read off a node.

Names are those that Apache Kafka's metrics have behind the usual rules of the JMX exporter, so that
dashboards and alerts for Kafka find them. Metrics of which Kafka has no like begin with ``pykraft_``. Nothing
is computed before somebody asks: a row reads what the parts of a node keep for themselves, or plain
counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.durations import Durations

if TYPE_CHECKING:
    from pykraft.node.metrics.scrape import Scrape

Sample: TypeAlias = tuple[tuple[str, ...], float | Durations]
"""The values of a metric's labels, and its value for them: a histogram's are durations."""

Read: TypeAlias = "Callable[[Scrape], Iterable[Sample | None]]"
"""Each step of the iteration is short, and the event loop may run between two of them. A step that found
nothing yields None.
"""


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    """Its name ends with ``_total``, and it starts with the process."""
    HISTOGRAM = "histogram"
    """A histogram of durations, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """``jmx``: Kafka's name of it, or what it is in Kafka; empty if Kafka has no such metric."""

    name: str
    kind: Kind
    help: str
    read: Read
    labels: tuple[str, ...] = ()
    jmx: str = ""


def gauge(name: str, help: str, value: Callable[[Scrape], float | None], jmx: str = "") -> Metric:
    """One value without labels; a node for which ``value`` is None does not have the metric."""
    return Metric(name, Kind.GAUGE, help, _single(value), jmx=jmx)


def counter(name: str, help: str, value: Callable[[Scrape], float | None], jmx: str = "") -> Metric:
    """As :func:`gauge`."""
    return Metric(name, Kind.COUNTER, help, _single(value), jmx=jmx)


def _single(value: Callable[[Scrape], float | None]) -> Read:
    def read(scrape: Scrape) -> Iterable[Sample]:
        found = value(scrape)
        return () if found is None else (((), found),)

    return read
