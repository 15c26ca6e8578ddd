"""The one list of all metrics; docs/metrics.md is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykraft import __version__
from pykraft.node.metrics.cluster import CLUSTER_METRICS
from pykraft.node.metrics.coordinators import COORDINATOR_METRICS
from pykraft.node.metrics.metric import Kind, Metric, Sample, gauge
from pykraft.node.metrics.replicas import REPLICA_METRICS
from pykraft.node.metrics.requests import REQUEST_METRICS
from pykraft.node.metrics.scrape import Scrape


def _version(scrape: Scrape) -> Iterable[Sample]:
    config = scrape.node.config
    return [((__version__, str(config.node_id), ",".join(sorted(config.roles))), 1)]


def _stalls(scrape: Scrape) -> Iterable[Sample]:
    return [((), scrape.stalls.late)]


PROCESS_METRICS: Final = (
    Metric(
        "pykraft_build_info",
        Kind.GAUGE,
        "Always 1: the version of the node, its id and its roles.",
        _version,
        ("version", "node_id", "roles"),
    ),
    Metric(
        "pykraft_event_loop_delay_ms",
        Kind.HISTOGRAM,
        "How late the event loop called a timer, four times a second: it was held for so long.",
        _stalls,
    ),
    gauge(
        "pykraft_event_loop_longest_delay_seconds",
        "The longest of these delays since the start.",
        lambda scrape: scrape.stalls.longest_us / 1_000_000,
    ),
)

SECTIONS: Final = (
    ("The node", PROCESS_METRICS),
    ("Metadata: quorum, controller, registration", CLUSTER_METRICS),
    ("Replicas", REPLICA_METRICS),
    ("Requests of clients", REQUEST_METRICS),
    ("Groups and transactions", COORDINATOR_METRICS),
)

METRICS: Final = tuple(metric for _, metrics in SECTIONS for metric in metrics)
