"""Faults that meet others, on processes that only sleep: the runner goes on, and every node comes back."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.history import HistoryWriter, read_history
from pykraft.jepsen_like.faults.nemeses import nemesis
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Plan, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, Repair, between
from pykraft.jepsen_like.faults.nemeses.kinds import versions
from pykraft.jepsen_like.faults.nemeses.nemesis import Nemesis
from pykraft.jepsen_like.faults.nemeses.node_watch import NodeWatch
from pykraft.jepsen_like.faults.nemeses.victims import choose_victims
from pykraft.kafka_client.cluster_probe import ClusterProbe, TopicView
from pykraft.testing.processes.waits import PATIENCE_S, WaitError, wait_until

pytestmark = pytest.mark.slow

SLEEPING, ENDING = ("sleep", "600"), ("false",)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    """Nobody listens at the addresses of its nodes."""
    with ProcessCluster(tmp_path / "cluster", 3, spares=1) as cluster:
        for node in cluster.nodes.values():
            node.command = SLEEPING
        cluster.ensure_running(cluster.members)
        yield cluster


class Answering(ClusterProbe):
    """Every node answers that knows it."""

    def __init__(self) -> None:
        super().__init__({})

    def topic(self, node_id: int, topic: str, timeout_ms: int = 0) -> TopicView | None:
        return TopicView(frozenset({node_id}), {})


def play(cluster: ProcessCluster, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the nemesis recorded of one fault of this kind on node 1."""
    monkeypatch.setattr(nemesis, "LAST_PATIENCE_S", 0.0)
    monkeypatch.setitem(KINDS, kind.name, kind)
    plan = Plan(1, 0.3, (), (Fault(0, kind.name, Target.ANY, 0.0, 0.0),))
    file = cluster.directory / "history.jsonl"
    with HistoryWriter(file) as history:
        Nemesis(cluster, ["t"], plan, history).run(plan.time_limit_s)
    return [event.op for event in read_history(file)]


def choose(cluster: ProcessCluster, name: str, **others: Sequence[object]) -> tuple[int, ...] | None:
    given = {"claimed": (), "down": (), "spared": (), **others}
    fault = Fault(0, name, Target.ANY, 0.0, 1.0)
    return choose_victims(cluster, "t", fault, KINDS[name], **given, probe=Answering())  # type: ignore[arg-type]


def fail() -> None:
    raise WaitError("every replica is where it was: not within 90 s")


@pytest.mark.parametrize("begins", [True, False])
def test_fault_that_is_not_repaired_or_taken_back_is_recorded_and_the_run_goes_on(
    cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    def inflict(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
        if not begins:
            fail()
        return fail

    kind = Kind("hopeless", "", inflict, between(0, 0), "test", {Target.ANY: 1.0})
    assert play(cluster, kind, monkeypatch) == [*(["hopeless"] if begins else []), "no-progress"]


def test_node_that_ends_while_a_fault_has_its_process_is_started_when_that_is_over(
    cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the disk of a node without power could not be unmounted."""
    node = cluster.nodes[1]

    def inflict(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
        assert list(victims) == [1] and node.pid is not None
        os.kill(node.pid, signal.SIGKILL)
        wait_until("its end", lambda: not node.running, PATIENCE_S)
        wait_until("that is noticed", lambda: node.unordered_exit is None, PATIENCE_S)
        with pytest.raises(WaitError):
            wait_until("somebody starts it", lambda: node.running, 0.3)
        raise NotPossibleNowError

    kind = Kind("quiet", "", inflict, between(0, 0), "test", {Target.ANY: 1.0})
    assert "node-exited" in play(cluster, kind, monkeypatch)
    assert node.running


def test_starting_node_is_hit_once_more_and_then_left_alone_until_it_is_back(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    assert choose(cluster, "kill", down=[2]) == (2,)
    assert choose(cluster, "kill", down=[2], spared=[2]) is None
    assert choose(cluster, "slow-links", down=[2], spared=[2]) == (1,)
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        watch = NodeWatch(cluster, ["t"], history, lambda _: None)
        watch.is_over([2], may_end=False)
        assert watch.returning == {2} and not watch.hit_again
        watch.is_over([2], may_end=False)
        assert watch.hit_again == {2}
        watch.look(Answering(), (), (), ())
        assert not watch.returning and not watch.hit_again


def test_operator_is_needed_when_no_replica_can_be_counted_on(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        watch = NodeWatch(cluster, ["t"], history, lambda _: None)
        watch.lost_tail([1], is_damaged=True)
        assert not watch.need_operator  # others have whole logs
        cluster.nodes[2].kill()
        watch.look(Answering(), disabled={1, 2}, may_end={1, 2}, held={2})
        assert watch.need_operator
        watch.look(Answering(), disabled=(), may_end=(), held=())
        assert not watch.need_operator  # both are in sync again


def test_node_that_has_left_is_not_waited_for(cluster: ProcessCluster, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        watch = NodeWatch(cluster, ["t"], history, lambda _: None)
        watch.is_over([4], may_end=False)
        watch.look(ClusterProbe({}), (), (), ())
        assert watch.all_well


def test_process_that_does_not_run_is_no_victim(cluster: ProcessCluster) -> None:
    cluster.nodes[1].kill()
    assert choose(cluster, "pause") == (2,)
    assert choose(cluster, "cut-node") == (1,)


def test_no_version_is_started_on_a_disk_that_fails(cluster: ProcessCluster) -> None:
    assert choose(cluster, "other-version", claimed=[(1, "disk")]) == (2,)


def test_version_of_a_node_that_has_left_is_not_waited_for(cluster: ProcessCluster) -> None:
    versions._switch(cluster, [4], {})
    assert not cluster.nodes[4].running


def test_node_that_does_not_come_back_cannot_be_stopped_now(cluster: ProcessCluster) -> None:
    cluster.nodes[1].kill()
    cluster.nodes[1].command = ENDING
    with pytest.raises(NotPossibleNowError, match="node 1 has ended"):
        KINDS["stop"].inflict(cluster, Fault(0, "stop", Target.ANY, 0.0, 1.0), [1])


def test_starved_node_rests_and_runs_in_turns_and_runs_in_the_end(cluster: ProcessCluster) -> None:
    node = cluster.nodes[1]
    fault = Fault(0, "starve", Target.ANY, 0.0, 1.0, settings={"run_ms": 5, "rest_ms": 5})
    feed = KINDS["starve"].inflict(cluster, fault, [1])
    for _ in range(2):
        wait_until("it rests", lambda: node.paused, PATIENCE_S, interval_s=0)
        wait_until("it runs", lambda: node.serving, PATIENCE_S, interval_s=0)
    feed()
    assert node.serving


def test_nobody_starts_a_killed_node_before_it_may(cluster: ProcessCluster) -> None:
    node = cluster.nodes[1]
    starter = threading.Thread(target=node.ensure_running)
    with node.killed():
        starter.start()
        starter.join(0.2)
        assert starter.is_alive() and not node.running
    starter.join(PATIENCE_S)
    assert node.running
