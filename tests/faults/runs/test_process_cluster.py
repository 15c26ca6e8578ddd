"""Real node processes: formatted, started, killed, healed, stopped; and a whole fault run in small."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from rich.console import Console

from pykraft.jepsen_like.faults.checkers.self_test.plants import PLANTS
from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.history import HistoryWriter, read_history
from pykraft.jepsen_like.faults.reports.report import EXIT_COULD_NOT_RUN
from pykraft.jepsen_like.faults.runs.process_run import await_in_sync
from pykraft.jepsen_like.faults.runs.run_config import RunConfig, RunError
from pykraft.jepsen_like.faults.runs.runner import main, run
from pykraft.jepsen_like.faults.surroundings.surroundings import Surroundings
from pykraft.kafka_client.cluster_probe import ClusterProbe
from pykraft.testing.processes.commands import CommandError
from pykraft.testing.processes.waits import PATIENCE_S, WaitError, wait_until

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


def test_node_that_ends_after_the_faults_is_a_finding_and_started_again(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 1)
    for node in cluster.nodes.values():
        os.kill(node.pid or 0, signal.SIGKILL)  # nobody's order
    wait_until("all have ended", lambda: len(cluster.unordered_exits()) == 3, PATIENCE_S)
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        await_in_sync(cluster, ["t"], history)
    assert sorted(cluster.serving()) == [1, 2, 3]
    recorded = [(event.process, event.op) for event in read_history(tmp_path / "history.jsonl")]
    assert recorded == [(f"node-{node_id}", "node-exited") for node_id in (1, 2, 3)]


def test_node_that_ends_again_and_again_is_given_up(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, 1) as cluster, HistoryWriter(tmp_path / "history.jsonl") as history:
        cluster.nodes[1].command = ("false",)
        cluster.ensure_running([1])
        wait_until("it has ended", lambda: not cluster.nodes[1].running, PATIENCE_S)
        with pytest.raises(WaitError, match="node 1"):
            await_in_sync(cluster, ["t"], history)
    assert [event.op for event in read_history(tmp_path / "history.jsonl")] == ["node-exited"] * 2


def test_leaving_the_cluster_ends_every_process(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "cluster", 1) as cluster:
        cluster.format()
        cluster.start()
        cluster.nodes[1].pause()
    assert not cluster.nodes[1].running


def test_surroundings_that_cannot_be_removed_keep_no_process_alive(tmp_path: Path) -> None:
    class Stuck(Surroundings):
        def close(self) -> None:
            raise CommandError("target is busy")

    with pytest.raises(CommandError), ProcessCluster(tmp_path, 1, surroundings=Stuck()) as cluster:
        cluster.nodes[1].command = ("sleep", "600")
        cluster.ensure_running([1])
    assert not cluster.nodes[1].running
    assert not (tmp_path / "processes").exists()


def test_short_fault_run_finds_no_anomaly_and_leaves_its_history(tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    result = run(RunConfig(time_limit_s=12, seed=5, out_dir=tmp_path, nemesis="signals"), console)
    text = console.export_text()
    assert text.startswith("seed 5")
    assert f"{len(PLANTS)} planted anomalies caught" in text
    assert result.findings == (), text
    assert result.verdict.tally.faults >= 1
    assert result.history_path.exists()
    summary = json.loads((result.history_path.parent / "summary.json").read_text())
    assert summary["seed"] == 5


def test_run_that_cannot_start_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ProcessCluster) -> str:
        raise RuntimeError("no room")

    monkeypatch.setattr(ProcessCluster, "format", refuse)
    with pytest.raises(RunError, match="no room"):
        run(RunConfig(time_limit_s=5, out_dir=tmp_path), Console(quiet=True))
    assert main(RunConfig(time_limit_s=5, out_dir=tmp_path)) == EXIT_COULD_NOT_RUN
