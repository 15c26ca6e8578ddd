"""``--print-metrics``: what a client sends and receives, counted where it does, with the names of Kafka's metrics.

Only what can be seen from outside of pykraft's client is measured: its requests, and what the tool asks of it. As
in Kafka's tool each metric is ``group:name:{tags}``, and they are in the order of the alphabet. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from pykraft.kafka_protocol.api_keys import ApiKey

_LATENCIES: Final = {
    # Group, prefix of the names.
    ApiKey.FETCH: ("consumer-fetch-manager-metrics", "fetch-latency"),
    ApiKey.OFFSET_COMMIT: ("consumer-coordinator-metrics", "commit-latency"),
}
_TOTALS: Final = {
    ApiKey.FETCH: ("consumer-fetch-manager-metrics", "fetch-total"),
    ApiKey.OFFSET_COMMIT: ("consumer-coordinator-metrics", "commit-total"),
    ApiKey.HEARTBEAT: ("consumer-coordinator-metrics", "heartbeat-total"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("consumer-coordinator-metrics", "heartbeat-total"),
    ApiKey.JOIN_GROUP: ("consumer-coordinator-metrics", "join-total"),
    ApiKey.SYNC_GROUP: ("consumer-coordinator-metrics", "sync-total"),
}

Metrics = dict[tuple[str, str], float]
"""Values by group and name."""


class _Sampled:
    """Average and maximum."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = self._max = 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value
        self._max = max(self._max, value)

    def into(self, found: Metrics, group: str, prefix: str) -> None:
        if self._count:
            found[group, f"{prefix}-avg"] = self._sum / self._count
            found[group, f"{prefix}-max"] = self._max


class RequestMetrics:
    """Counts connections, requests and bytes."""

    def __init__(self) -> None:
        self._connections = 0
        self._responses = 0
        self._out_bytes = self._in_bytes = 0
        self._by_api: defaultdict[int, int] = defaultdict(int)
        self._size_bytes = _Sampled()
        self._latency_ms = _Sampled()
        self._latency_by_api: defaultdict[int, _Sampled] = defaultdict(_Sampled)

    def handle_connected(self) -> None:
        self._connections += 1

    def handle_request(self, api_key: int, size_bytes: int) -> None:
        self._by_api[api_key] += 1
        self._out_bytes += size_bytes
        self._size_bytes.add(size_bytes)

    def handle_response(self, api_key: int, size_bytes: int, latency_ms: float) -> None:
        self._responses += 1
        self._in_bytes += size_bytes
        self._latency_ms.add(latency_ms)
        self._latency_by_api[api_key].add(latency_ms)

    def collect(self, group: str, elapsed_s: float) -> Metrics:
        """``group``: ``producer-metrics`` or ``consumer-metrics``; rates are averages of ``elapsed_s``."""
        requests = sum(self._by_api.values())
        totals = {
            "connection-creation": self._connections,
            "incoming-byte": self._in_bytes,
            "network-io": requests + self._responses,
            "outgoing-byte": self._out_bytes,
            "request": requests,
            "response": self._responses,
        }
        found: Metrics = {}
        for name, total in totals.items():
            found[group, f"{name}-total"] = total
            found[group, f"{name}-rate"] = total / elapsed_s if elapsed_s else 0.0
        self._size_bytes.into(found, group, "request-size")
        self._latency_ms.into(found, group, "request-latency")
        if group == "consumer-metrics":
            for api, where in _TOTALS.items():
                found[where] = found.get(where, 0) + self._by_api[api]
            for api, (its_group, prefix) in _LATENCIES.items():
                self._latency_by_api[api].into(found, its_group, prefix)
        return found


def metric_lines(metrics: Mapping[tuple[str, str], float], client_id: str) -> list[str]:
    """The table that Kafka's tools print, with an empty line before it."""
    named = {f"{group}:{name}:{{client-id={client_id}}}": value for (group, name), value in metrics.items()}
    width = max(map(len, named))
    rows = [f"{name:<{width}} : {value:.3f}" for name, value in sorted(named.items())]
    return ["", f"{'Metric Name':<{width}}   Value", *rows]
