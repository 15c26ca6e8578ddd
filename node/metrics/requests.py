"""Metrics of the clients of a node: their connections and requests, and who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pykraft.broker.serving.request_metrics import ApiTimes
from pykraft.node.metrics.metric import Kind, Metric, Sample, gauge
from pykraft.node.metrics.scrape import Scrape
from pykraft.runtime.durations import Durations

_REQUESTS: Final = "kafka.network:type=RequestMetrics,name="


def _seen(scrape: Scrape) -> Iterable[ApiTimes]:
    """The APIs that were called since the start."""
    measured = None if scrape.broker is None else scrape.broker.measured
    return () if measured is None else [times for times in measured.times.values() if times.requests]


def _requests(scrape: Scrape) -> Iterable[Sample]:
    for times in _seen(scrape):
        for version, number in sorted(times.requests.items()):
            yield (times.name, str(version)), number


def _phase(name: str, help: str, value: Callable[[ApiTimes], Durations]) -> Metric:
    def read(scrape: Scrape) -> Iterable[Sample]:
        for times in _seen(scrape):
            yield (times.name,), value(times)

    metric = f"kafka_network_requestmetrics_{name.lower()}"
    return Metric(metric, Kind.HISTOGRAM, help, read, ("request",), _REQUESTS + name)


def _waiting(scrape: Scrape) -> Iterable[Sample]:
    for times in _seen(scrape):
        yield (times.name,), times.waiting


def _connections(scrape: Scrape) -> Iterable[Sample]:
    if scrape.broker is not None:
        for listener, connections in scrape.broker.listeners.connection_counts():
            yield (listener,), connections


REQUEST_METRICS: Final = (
    Metric(
        "kafka_network_requestmetrics_requests_total",
        Kind.COUNTER,
        "Requests received, by API and version.",
        _requests,
        ("request", "version"),
        _REQUESTS + "RequestsPerSec",
    ),
    _phase("TotalTimeMs", "From the receipt of a request until its answer is sent.", lambda it: it.total),
    _phase("LocalTimeMs", "The broker's own work on a request.", lambda it: it.local),
    _phase(
        "RemoteTimeMs",
        "Waiting for followers, flushes, the controller, more bytes, or a later turn of the event loop.",
        lambda it: it.remote,
    ),
    _phase(
        "ResponseQueueTimeMs",
        "An answer waits for those of earlier requests of its connection.",
        lambda it: it.response_queue,
    ),
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        Kind.GAUGE,
        "Requests that have no answer yet, by API.",
        _waiting,
        ("delayedOperation",),
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
    ),
    Metric(
        "kafka_server_socketservermetrics_connection_count",
        Kind.GAUGE,
        "Connections of clients, by listener.",
        _connections,
        ("listener",),
        "kafka.server:type=socket-server-metrics,attribute=connection-count",
    ),
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions of consumers and followers.",
        lambda scrape: None if scrape.broker is None else len(scrape.broker.fetch_sessions),
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
    ),
)
