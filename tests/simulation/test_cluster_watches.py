"""The watches raise no false alarm: when a replaced disk returns, when a starved broker is late."""

import heapq
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVarTuple, cast

import pytest

from pykraft.jepsen_like.simulation.cluster.checks.leadership import has_preferred_leaders
from pykraft.jepsen_like.simulation.cluster.checks.voters import VoterWatch
from pykraft.jepsen_like.simulation.cluster.faults.starvation import STALE_FENCED, Starvation
from pykraft.jepsen_like.simulation.cluster.model import Model
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.quorum.core.log_shape import LogShape, SnapshotId
from pykraft.quorum.core.roles import ElectionState, Unattached

Ts = TypeVarTuple("Ts")

SESSION_MS = 9000


class StubWorld:
    """The part of a world that the watches read; time passes in :meth:`run`."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.controllers: list[Any] = []
        self.nodes: dict[int, Any] = {}
        self.active: list[Any] = []
        self.starved: list[int] = []
        self.watch = SimpleNamespace(fence_requests=Counter())
        self.options = SimpleNamespace(session_ms=SESSION_MS)
        self.checker = SimpleNamespace(
            active={}, epoch_at=[], end_offset=0, model=SimpleNamespace(brokers={})
        )
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def later(self, after_ms: float, callback: Callable[[*Ts], None], *args: *Ts) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.now_ms + after_ms, self._number, lambda: callback(*args)))

    def run(self, for_ms: float) -> None:
        end_ms = self.now_ms + for_ms
        while self._due and self._due[0][0] <= end_ms:
            self.now_ms, _, callback = heapq.heappop(self._due)
            callback()
        self.now_ms = end_ms

    def failed(self, error: Exception) -> None:
        raise error


class StubController:
    """A live voter, with its state."""

    def __init__(self, epoch: int, log: LogShape) -> None:
        self.alive = self.runs = self.may_start = True
        self.starts = 1
        state = SimpleNamespace(election=ElectionState(epoch), log=log, role=Unattached(0))
        self.parts = SimpleNamespace(quorum=SimpleNamespace(_core=SimpleNamespace(state=state)))

    def start(self) -> None:
        self.starts += 1


def _world_of(logs: list[LogShape], committed_epochs: list[int]) -> tuple[StubWorld, StubController]:
    world = StubWorld()
    victim = StubController(1, LogShape())
    world.controllers = [victim, *(StubController(8, log) for log in logs)]
    world.checker.epoch_at, world.checker.end_offset = committed_epochs, len(committed_epochs)
    return world, victim


def test_replaced_disk_stays_away_while_another_voter_holds_a_diverged_tail_of_the_same_length() -> None:
    whole = LogShape(5, [(1, 0), (8, 3)])
    diverged = LogShape(5, [(1, 0), (7, 3)])
    world, victim = _world_of([whole, diverged], [1, 1, 1, 8, 8])
    VoterWatch(world, world.checker)._return_when_safe(victim, 7, 1)  # type: ignore[arg-type]
    world.run(5000)
    assert victim.starts == 1
    diverged.truncate(3)
    diverged.append(5, 8)
    world.run(5000)
    assert victim.starts == 1, "not flushed"
    diverged.flushed(5, diverged.generation)
    world.run(500)
    assert victim.starts == 2


def test_replaced_disk_may_return_to_voters_that_hold_a_snapshot_of_what_is_committed() -> None:
    world, victim = _world_of([LogShape(5, start=SnapshotId(5, 8))], [1, 1, 1, 8, 8])
    VoterWatch(world, world.checker)._return_when_safe(victim, 7, 1)  # type: ignore[arg-type]
    assert victim.starts == 2


def _starving_world() -> StubWorld:
    world = StubWorld()
    quorum, process = SimpleNamespace(high_watermark=7, log_end_offset=7), SimpleNamespace(name="1.1")
    parts = SimpleNamespace(quorum=quorum)
    world.nodes = {1: SimpleNamespace(id=1, runs=True, parts=parts, process=process)}
    world.active = [world.nodes[1]]
    world.checker.active = {4: 1}
    world.checker.model.brokers = {5: SimpleNamespace(fenced=False)}
    Starvation(world, SimpleNamespace(id=5))  # type: ignore[arg-type]
    return world


def test_starved_broker_that_is_never_fenced_is_noticed() -> None:
    with pytest.raises(InvariantViolation, match=STALE_FENCED):
        _starving_world().run(2 * SESSION_MS)


def test_late_fence_request_of_a_starved_broker_restarts_its_time_limit() -> None:
    world = _starving_world()
    world.run(SESSION_MS - 500)
    world.watch.fence_requests[5] += 1
    world.run(SESSION_MS * 3 // 2)
    with pytest.raises(InvariantViolation, match=STALE_FENCED):
        world.run(4000)


def test_time_limit_continues_when_the_controller_can_commit_again() -> None:
    """Seed 9111437: its voter fetched, but received no response; so the fence was not committed."""
    world = _starving_world()
    quorum = world.nodes[1].parts.quorum
    world.run(SESSION_MS)
    quorum.log_end_offset += 1
    world.run(3 * SESSION_MS)
    quorum.high_watermark += 1
    world.run(SESSION_MS // 2)
    with pytest.raises(InvariantViolation, match=STALE_FENCED):
        world.run(4000)


def test_leaders_are_preferred_only_if_the_first_replica_of_each_partition_leads() -> None:
    def model(*leaders: int) -> Model:
        topic = SimpleNamespace(
            name="groups", partitions=[SimpleNamespace(leader=leader, replicas=(1, 2)) for leader in leaders]
        )
        other = SimpleNamespace(name="other", partitions=[SimpleNamespace(leader=2, replicas=(1, 2))])
        return cast(Model, SimpleNamespace(topics={1: topic, 2: other}))

    assert has_preferred_leaders(model(1, 1), "groups")
    assert not has_preferred_leaders(model(1, 2), "groups")
    assert not has_preferred_leaders(model(1, -1), "groups")
