"""What a scrape shows of very many things: all of them up to a bound, and beyond it so many."""

from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.node.metrics import coordinators, replicas
from pykraft.node.metrics.coordinators import COORDINATOR_METRICS
from pykraft.node.metrics.replicas import REPLICA_METRICS

MOST = 3


def read(name: str, scrape: Any) -> list[Any]:
    (metric,) = (one for one in (*REPLICA_METRICS, *COORDINATOR_METRICS) if one.name == name)
    return [one for one in metric.read(scrape) if one is not None]


@pytest.mark.parametrize("count", [0, MOST - 1, MOST, MOST + 1, 10 * MOST])
def test_logs_are_shown_one_by_one_up_to_a_bound_and_the_others_are_counted(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "MOST_LOGS", MOST)
    partitions = [
        SimpleNamespace(topic="t", index=n, log=SimpleNamespace(size_bytes=n + 1)) for n in range(count)
    ]
    scrape = SimpleNamespace(broker=object(), partitions=partitions)
    shown = read("kafka_log_log_size", scrape)
    assert shown == [(("t", str(n)), n + 1) for n in range(min(count, MOST))]
    assert read("pykraft_metrics_omitted_logs", scrape) == [((), max(0, count - MOST))]
    scrape.broker = None
    assert read("pykraft_metrics_omitted_logs", scrape) == []


def lags(here: set[int], committed: dict[int, int]) -> Any:
    """Of one group, in the partitions of ``t`` that have a replica ``here``, all with 10 records."""
    table = SimpleNamespace(
        find=lambda topic, index: SimpleNamespace(high_watermark=10) if index in here else None
    )
    offsets = {"g": {"t": {index: SimpleNamespace(offset=at) for index, at in committed.items()}}}
    groups = SimpleNamespace(states=lambda: [SimpleNamespace(offsets=offsets)])
    broker = SimpleNamespace(data=SimpleNamespace(table=table), groups=groups)
    (name,) = (one.name for one in COORDINATOR_METRICS if "lag" in one.name)
    return read(name, SimpleNamespace(broker=broker))


def test_lags_are_those_of_partitions_that_are_here_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "MOST_LAGS", MOST)
    every = {n: n for n in range(20)}
    assert lags({3, 5, 9}, every) == [(("g", "t", str(n)), 10 - n) for n in (3, 5, 9)]
    assert lags({3, 5, 9, 8}, every) == [(("g", "t", str(n)), 10 - n) for n in (3, 5, 8)]
    assert lags(set(range(MOST)), every) == [(("g", "t", str(n)), 10 - n) for n in range(MOST)]
    assert lags({0}, {0: 11}) == [(("g", "t", "0"), 0)]
