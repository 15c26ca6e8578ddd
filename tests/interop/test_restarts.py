"""Brokers that are killed, shut down and restarted: real processes, with sessions longer than the test."""

from collections.abc import Iterator

import pytest

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import wait_until
from tests.interop.clusters import create_in_sync, own_cluster, printed_by

pytestmark = pytest.mark.interop


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_cluster(3, {"broker.session.timeout.ms": "600000"}) as cluster:
        create_in_sync(cluster, "t", 3)
        yield cluster


def test_killed_broker_that_restarts_does_not_wait_for_its_old_session(cluster: Cluster) -> None:
    cluster.kill(3)
    cluster.restart(3)
    wait_until(
        "node 3 registered again",
        lambda: printed_by(cluster, 3).count("broker 3 is unfenced, epoch") >= 2,
        60,
    )


def test_broker_that_shuts_down_waits_only_until_the_others_know(cluster: Cluster) -> None:
    cluster.shut_down(2)
    assert "handed over" in printed_by(cluster, 2)
