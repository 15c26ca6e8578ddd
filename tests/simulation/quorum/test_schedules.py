"""The Raft core under seeded faults: at least 500 schedules, every invariant after every event."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pykraft.jepsen_like.sim import quorum as simulation
from pykraft.jepsen_like.sim.quorum_directed import DIRECTED
from pykraft.quorum.invariants import InvariantViolation

SCHEDULES = 500
CHUNK = 50
# Marked slow for their sum: `make check` runs the first hundred schedules, `make test` all of them.


CHUNKS = [
    pytest.param(first, marks=[] if first < 2 * CHUNK else [pytest.mark.slow])
    for first in range(0, SCHEDULES, CHUNK)
]


@pytest.mark.parametrize("first", CHUNKS)
def test_no_schedule_breaks_an_invariant_and_each_ends_in_progress(first):
    for seed in range(first, first + CHUNK):
        try:
            outcome = simulation.run_schedule(seed)
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{simulation.reproduce_line(seed)}")
        assert outcome.events >= 2_000
        assert outcome.leader_changes_after_commit >= 1


@pytest.mark.parametrize("name", sorted(DIRECTED))
def test_directed_schedule_keeps_every_invariant(name):
    simulation.run_directed(name)


def test_same_seed_gives_the_same_trace_in_two_processes_with_different_hash_seeds():
    program = (
        "from pykraft.jepsen_like.sim.quorum import run_schedule\n"
        "print([run_schedule(seed).trace for seed in range(900, 906)])"
    )
    traces = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    ]
    assert traces[0] == traces[1] == traces[2]
    assert traces[0].count(",") == 5


def test_different_seeds_give_different_traces():
    assert simulation.run_schedule(1).trace != simulation.run_schedule(2).trace


def test_a_violation_prints_one_line_that_reproduces_it(monkeypatch, capsys):
    def broken(seed, **_):
        raise InvariantViolation("election safety", "planted")

    monkeypatch.setattr(simulation, "run_schedule", broken)
    assert simulation.main(["--seeds", "3", "--first", "7"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert "election safety: planted" in last
    assert last.endswith("reproduce: python -m pykraft.jepsen_like.sim.quorum --seed 7")
