"""Brokers that are killed, shut down and restarted: real processes, with sessions longer than the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pykraft.jepsen_like.awaiting import wait_until
from pykraft.jepsen_like.process_cluster import ProcessCluster

pytestmark = pytest.mark.interop


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path / "cluster", 3, {"broker.session.timeout.ms": "600000"}) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic("t", 3, 3)
        yield cluster


def test_killed_broker_that_restarts_does_not_wait_for_its_old_session(cluster: ProcessCluster) -> None:
    cluster.nodes[3].kill()
    cluster.nodes[3].start()
    wait_until(
        "node 3 registered again",
        lambda: cluster.nodes[3].output_file.read_text().count("broker 3 is unfenced, epoch") >= 2,
        60,
    )


def test_broker_that_shuts_down_waits_only_until_the_others_know(cluster: ProcessCluster) -> None:
    assert cluster.nodes[2].stop()
    assert "handed over" in cluster.nodes[2].output_file.read_text()
