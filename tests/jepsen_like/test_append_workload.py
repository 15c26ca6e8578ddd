"""The workload and the checkers agree on a broker that nobody disturbs: librdkafka's own mock cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pykraft.jepsen_like.awaiting import wait_until
from pykraft.jepsen_like.checkers.append import check_append
from pykraft.jepsen_like.checkers.counting import count_run
from pykraft.jepsen_like.history import HistoryWriter, read_history
from pykraft.jepsen_like.workloads.append import AppendConfig, AppendWorkload

TOPIC = "append"


@pytest.fixture
def mock_cluster() -> Iterator[str]:
    owner = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "", "log_level": 0})
    owner.list_topics(TOPIC, timeout=10)
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


def test_undisturbed_run_keeps_every_promise(mock_cluster: str, tmp_path: Path) -> None:
    config = AppendConfig(topic=TOPIC, partitions=4, sends_per_s=1_000, abandon_every_s=0.8)
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as history:
        workload = AppendWorkload(mock_cluster, config, 1, history)
        workload.start()
        wait_until("2,000 acknowledgements", lambda: workload.acknowledged >= 2_000, 60)
        assert workload.stop_producers(30)
        assert workload.final_read(30) == []
        workload.stop_consumers()
    events = list(read_history(path))
    assert check_append(events) == ()
    verdict = count_run(events, 60)
    assert verdict.tally.acknowledged == workload.acknowledged
    assert not verdict.counts
    processes = {event.process for event in events if event.op == "send"}
    assert len(processes) > config.producers, "no producer was ever replaced"
    final = {value for event in events if event.op == "final" for _, value in event.records or ()}
    polled = {value for event in events if event.op == "poll" for _, value in event.records or ()}
    assert polled <= final
    assert polled
