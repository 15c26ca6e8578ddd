"""Real node processes: formatted, started, killed, healed, stopped; and a whole fault run in small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from rich.console import Console

from pykraft.jepsen_like.awaiting import wait_until
from pykraft.jepsen_like.checkers.self_test import PLANTS
from pykraft.jepsen_like.cluster_probe import ClusterProbe
from pykraft.jepsen_like.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.report import EXIT_COULD_NOT_RUN
from pykraft.jepsen_like.runner import RunError, main, run

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path / "cluster", 3, FAST_FAILOVER) as cluster:
        cluster.format()
        cluster.start()
        yield cluster


@pytest.fixture
def closing_probe(cluster: ProcessCluster) -> Iterator[Callable[[str], ClusterProbe]]:
    """Makes probes that are closed when the test ends."""
    with ExitStack() as opened:
        yield lambda client_id: opened.enter_context(closing(cluster.probe(client_id)))


def test_killed_leader_is_replaced_and_returns_in_sync(
    cluster: ProcessCluster, closing_probe: Callable[[str], ClusterProbe]
) -> None:
    cluster.create_topic("t", 3, configs={"min.insync.replicas": "2"})
    probe = closing_probe("test")
    busiest = cluster.busiest_broker(probe, "t")
    assert busiest is not None
    cluster.nodes[busiest].kill()

    def led_by_others() -> bool:
        return any(
            all(p.leader not in (-1, busiest) for p in view.partitions.values())
            for view in cluster.views(probe, "t")
        )

    wait_until("other leaders", led_by_others, 30)
    cluster.heal()
    cluster.wait_in_sync("t", 60)
    assert cluster.stop() == []


def test_killed_controller_is_replaced(
    cluster: ProcessCluster, closing_probe: Callable[[str], ClusterProbe]
) -> None:
    probe = closing_probe("test")
    first = cluster.active_controller(probe, 10)
    assert first is not None
    cluster.nodes[first].kill()
    wait_until("another controller", lambda: cluster.active_controller(probe, 1) not in (None, first), 30)


def test_leaving_the_cluster_ends_every_process(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "cluster", 1) as cluster:
        cluster.format()
        cluster.start()
        cluster.nodes[1].pause()
    assert not cluster.nodes[1].running


def test_short_fault_run_finds_no_anomaly_and_leaves_its_history(tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    result = run("append", 12, 5, tmp_path, 3, console)
    text = console.export_text()
    assert text.startswith("seed 5")
    assert f"{len(PLANTS)} planted anomalies caught" in text
    assert result.findings == (), text
    assert result.verdict.tally.faults >= 1
    assert result.history_path.exists()
    report = json.loads((result.history_path.parent / "report.json").read_text())
    assert report["seed"] == 5


def test_run_that_cannot_start_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ProcessCluster) -> str:
        raise RuntimeError("no room")

    monkeypatch.setattr(ProcessCluster, "format", refuse)
    with pytest.raises(RunError, match="no room"):
        run("append", 5, 1, tmp_path, 3, Console(quiet=True))
    assert main(time_limit=5, seed=1, out_dir=tmp_path) == EXIT_COULD_NOT_RUN
