"""Schedules of whole nodes with deletions, moves of logs, throttles, reads from followers; their checks."""

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis.cluster import describe_log_dirs
from pykraft.broker.replicas.replication_quota import FOLLOWER_RATE, LEADER_RATE, LEADER_REPLICAS
from pykraft.jepsen_like.simulation.cluster.checks.follower_reads import COMMITTED_ONLY, FollowerReads
from pykraft.jepsen_like.simulation.cluster.clients.directories import ONE_DIRECTORY
from pykraft.jepsen_like.simulation.cluster.clients.load import draw_workload
from pykraft.jepsen_like.simulation.cluster.clients.throttles import InSyncReplicas
from pykraft.jepsen_like.simulation.cluster.model import Model, ModelBroker, ModelPartition, ModelTopic
from pykraft.jepsen_like.simulation.cluster.options import WorldOptions, draw_options
from pykraft.jepsen_like.simulation.cluster.ring import run_schedule
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.jepsen_like.simulation.story import Story
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid


@pytest.fixture(autouse=True)
def _kills_are_not_logged() -> None:
    logging.disable(logging.CRITICAL)


def _seed(wanted: Callable[[WorldOptions], object]) -> int:
    """The first whose schedule has these options and appends records."""
    return next(n for n in range(200) if draw_workload(n)[0] == "append" and wanted(draw_options(n)))


def _run(wanted: Callable[[WorldOptions], object], duration_ms: int) -> tuple[Mapping[str, int], str]:
    story = Story()
    outcome = run_schedule(Schedule(_seed(wanted), duration_ms, faults=()), story)
    return outcome.counts, "\n".join(story.lines())


def test_records_are_deleted_and_every_replica_stores_the_log_start() -> None:
    counts, _ = _run(lambda options: options.delete_every_s == 0.5, 10_000)
    assert counts["delete-records ok"] > 2


def _moves(options: WorldOptions) -> bool:
    return options.log_dirs == 3 and options.moves_logs


def test_logs_are_moved_between_directories() -> None:
    _, story = _run(_moves, 10_000)
    assert ": done" in "".join(line for line in story.splitlines() if "move to /data-3 of broker" in line)


def test_directory_that_is_not_described_as_it_is_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = describe_log_dirs._topics

    def without_the_last(*args: Any) -> Generator[None, None, list[Any]]:
        return (yield from topics(*args))[:-1]

    monkeypatch.setattr(describe_log_dirs, "_topics", without_the_last)
    with pytest.raises(InvariantViolation, match=ONE_DIRECTORY):
        _run(_moves, 1000)


def test_replication_is_throttled_and_the_throttles_are_lifted_in_the_end() -> None:
    _, story = _run(lambda options: options.throttles, 10_000)
    for name in (LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS):
        assert f"set {name} = " in story
    assert "replication.throttled.rate = None" in story


@dataclass
class _InSync:
    """Two replicas in sync."""

    partition: ModelPartition
    model: Model

    @classmethod
    def make(cls) -> "_InSync":
        partition = ModelPartition((1, 2, 3), (1, 2), 1, 4, 9)
        model = Model()
        model.topics = {Uuid(b"i" * 16): ModelTopic("t", [partition])}
        model.brokers = {
            id: ModelBroker(id, Uuid(bytes(16)), False, False, 0, 0, (), (), ()) for id in (1, 2, 3)
        }
        return cls(partition, model)


def test_follower_that_leaves_the_isr_while_it_is_throttled_is_found() -> None:
    world = _InSync.make()
    in_sync = InSyncReplicas(world.model)
    assert in_sync.find_starved() is None
    world.partition.isr = (1,)
    assert "broker 2 has left t-0" in (in_sync.find_starved() or "")


def test_follower_that_leaves_the_isr_for_another_reason_is_not_starved() -> None:
    for change in ("fenced", "removed", "lost", "another leader"):
        world = _InSync.make()
        in_sync = InSyncReplicas(world.model)
        world.partition.isr = (1,)
        if change == "fenced":
            world.model.brokers[2].fenced = True
        elif change == "removed":
            world.partition.replicas = (1, 3)
        elif change == "lost":
            world.partition.lost = (2,)
        else:
            world.partition.leader_epoch += 1
        assert in_sync.find_starved() is None, change


def test_consumers_read_from_followers() -> None:
    counts, _ = _run(lambda options: options.reads_followers, 5000)
    assert counts["reads served by followers"] > 5
    counts, _ = _run(lambda options: not options.reads_followers, 5000)
    assert counts["reads served by followers"] == 0


def test_follower_that_serves_what_no_leader_has_committed_is_found() -> None:
    found: list[str] = []
    reads = FollowerReads(lambda name, detail: found.append(name), lambda partition: 5)
    machine = cast(Any, SimpleNamespace(id=2))
    for is_leader, high_watermark in ((False, 5), (True, 6)):
        reads.read(machine, cast(Any, SimpleNamespace(is_leader=is_leader, high_watermark=high_watermark)))
    assert not found and reads.served == 1
    reads.read(machine, cast(Any, SimpleNamespace(is_leader=False, high_watermark=6)))
    assert found == [COMMITTED_ONLY]
