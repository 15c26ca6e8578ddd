"""Runs seeded schedules against the Raft core: ``python -m pykraft.jepsen_like.sim.quorum --seeds 500``.

A schedule counts once it has stepped enough events and seen a leader change after a commit. It ends by
healing everything and demanding progress: one leader, a new value committed on every replica, equal logs.
A violation prints one line that reproduces it.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from time import perf_counter

from pykraft.jepsen_like.sim.quorum_cluster import SimCluster
from pykraft.jepsen_like.sim.quorum_nemesis import QuorumNemesis, draw_options
from pykraft.quorum.invariants import InvariantViolation

MIN_EVENTS = 2_000
MAX_VIRTUAL_MS = 600_000
PROGRESS_WITHIN_MS = 5_000


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


def reproduce_line(seed: int) -> str:
    return f"reproduce: python -m pykraft.jepsen_like.sim.quorum --seed {seed}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pykraft.jepsen_like.sim.quorum")
    parser.add_argument("--seed", type=int, help="run this one schedule and print the end of its trace")
    parser.add_argument("--seeds", type=int, default=500, help="run so many schedules, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lines", type=int, default=60, help="lines of trace to print with --seed")
    options = parser.parse_args(arguments)
    one = options.seed is not None
    first = options.seed if one else options.first
    events = virtual_ms = changes = 0
    began = perf_counter()
    for seed in range(first, first + (1 if one else options.seeds)):
        log: list[str] | None = [] if one else None
        try:
            outcome = run_schedule(seed, log=log)
        except Exception as error:
            for line in (log or [])[-options.lines :]:
                print(line)
            print(f"seed {seed}: {type(error).__name__}: {error}; {reproduce_line(seed)}")
            return 1
        events += outcome.events
        virtual_ms += outcome.virtual_ms
        changes += outcome.leader_changes_after_commit
        if one:
            print(outcome)
    schedules = 1 if one else options.seeds
    print(
        f"{schedules} schedules, {virtual_ms / 3_600_000:.2f} virtual hours, {events} events,"
        f" {changes} leader changes after a commit, 0 violations, {perf_counter() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
