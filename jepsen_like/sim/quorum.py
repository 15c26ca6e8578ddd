"""Runs seeded schedules against the Raft core: ``python -m pykraft.jepsen_like.sim.quorum --seeds 500``.

A schedule counts once it has stepped enough events and seen a leader change after a commit. Half of them
then leave a minority broken for good and demand that the others get on. All end by healing everything and
demanding progress: one leader, a new value committed on every replica, equal logs. A violation prints one
line that reproduces it.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from time import perf_counter

from pykraft.jepsen_like.sim.quorum_cluster import SimCluster
from pykraft.jepsen_like.sim.quorum_directed import DIRECTED
from pykraft.jepsen_like.sim.quorum_nemesis import QuorumNemesis, draw_options
from pykraft.quorum.invariants import InvariantViolation

MIN_EVENTS = 2_000
MAX_VIRTUAL_MS = 600_000
PROGRESS_WITHIN_MS = 2_000
_COMMAND = "reproduce: python -m pykraft.jepsen_like.sim.quorum"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One schedule. ``trace`` is equal for equal seeds, whatever the process."""

    seed: int
    events: int
    virtual_ms: int
    elections: int
    leader_changes_after_commit: int
    acknowledged: int
    trace: str


def run_schedule(seed: int, *, min_events: int = MIN_EVENTS, log: list[str] | None = None) -> Outcome:
    """Raises whatever the invariants, or the core's own assertions, raise."""
    rng = random.Random(seed)
    cluster = SimCluster(seed, draw_options(rng))
    cluster.log = log
    nemesis = QuorumNemesis(cluster, rng)
    cluster.start_all()
    cluster.start_client()
    nemesis.start()

    def has_enough() -> bool:
        return cluster.events >= min_events and cluster.leader_changes_after_commit > 0

    if not cluster.run_until(has_enough, MAX_VIRTUAL_MS):
        raise InvariantViolation("the schedule qualifies", f"{cluster.events} events, no leader change")
    if rng.random() < 0.5:
        nemesis.leave_a_majority(rng)
        demand_progress_of_majority(cluster)
    nemesis.stop()
    demand_progress(cluster)
    history = cluster.checker.history
    return Outcome(
        seed,
        cluster.events,
        cluster.scheduler.now_ms,
        cluster.elections,
        cluster.leader_changes_after_commit,
        len(history.acknowledged),
        cluster.trace.hexdigest(),
    )


def demand_progress(cluster: SimCluster) -> None:
    """After healing, one leader is found and what it proposes then commits on every replica, in time."""
    limit_ms = cluster.scheduler.now_ms + PROGRESS_WITHIN_MS
    replicas = list(cluster.replicas.values())

    def agreed() -> bool:
        leader = cluster.leader()
        return leader is not None and all(
            r.core.state.epoch == leader.core.state.epoch and r.core.state.leader_id == leader.id
            for r in replicas
        )

    if not cluster.run_until(agreed, limit_ms):
        raise InvariantViolation("progress", "no leader that all replicas follow after healing")
    leader = cluster.leader()
    assert leader is not None
    cluster.propose(leader)
    end_offset = leader.core.state.log.end_offset

    def committed() -> bool:
        return all(r.core.state.high_watermark >= end_offset for r in replicas)

    if not cluster.run_until(committed, limit_ms):
        raise InvariantViolation("progress", f"offset {end_offset - 1} did not commit on every replica")
    cluster.checker.check_everything(replicas)


def demand_progress_of_majority(cluster: SimCluster) -> None:
    """While a minority is dead, deaf or mute for good, the client is answered all the same."""
    acknowledged = cluster.checker.history.acknowledged
    wanted = len(acknowledged) + 5

    def answered() -> bool:
        return len(acknowledged) >= wanted

    if not cluster.run_until(answered, cluster.scheduler.now_ms + PROGRESS_WITHIN_MS):
        raise InvariantViolation("progress", "a healthy majority is held up by the rest")


def run_directed(name: str) -> SimCluster:
    """One schedule written by hand, then progress as after any other."""
    cluster = DIRECTED[name]()
    for replica in cluster.replicas.values():
        replica.paused_until_ms = 0
    cluster.links.become_perfect()
    cluster.max_fetch_batches = 1000
    cluster.start_all()
    demand_progress(cluster)
    return cluster


def reproduce_line(seed: int) -> str:
    return f"{_COMMAND} --seed {seed}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pykraft.jepsen_like.sim.quorum")
    parser.add_argument("--seed", type=int, help="run this one schedule and print the end of its trace")
    parser.add_argument("--seeds", type=int, default=500, help="run so many schedules, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lines", type=int, default=60, help="lines of trace to print with --seed")
    parser.add_argument("--directed", choices=sorted(DIRECTED), help="run this one schedule written by hand")
    parser.add_argument("--no-directed", action="store_true", help="only schedules drawn from seeds")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _run_one(options.seed, options.lines)
    names = [options.directed] if options.directed else sorted(DIRECTED)
    if options.no_directed:
        names = []
    for name in names:
        try:
            run_directed(name)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}; {_COMMAND} --directed {name}")
            return 1
    return 0 if options.directed else _run_many(options.first, options.seeds, len(names))


def _run_one(seed: int, lines: int) -> int:
    log: list[str] = []
    try:
        print(run_schedule(seed, log=log))
    except Exception as error:
        print(*log[-lines:], sep="\n")
        print(_violation(seed, error))
        return 1
    return 0


def _run_many(first: int, count: int, directed: int) -> int:
    events = virtual_ms = changes = 0
    began = perf_counter()
    for seed in range(first, first + count):
        try:
            outcome = run_schedule(seed)
        except Exception as error:
            print(_violation(seed, error))
            return 1
        events += outcome.events
        virtual_ms += outcome.virtual_ms
        changes += outcome.leader_changes_after_commit
    print(
        f"{count} schedules and {directed} directed ones, {virtual_ms / 3_600_000:.2f} virtual hours,"
        f" {events} events, {changes} leader changes after a commit, 0 violations,"
        f" {perf_counter() - began:.1f} s"
    )
    return 0


def _violation(seed: int, error: Exception) -> str:
    return f"seed {seed}: {type(error).__name__}: {error}; {reproduce_line(seed)}"


if __name__ == "__main__":
    sys.exit(main())
