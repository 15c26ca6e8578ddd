"""The Raft core under planned faults: sixty schedules, every invariant after every event."""

from collections import Counter

import pytest

from pykraft.jepsen_like.simulation.quorum.plan import LASTS_MS, WEIGHTS, draw_plan
from pykraft.jepsen_like.simulation.quorum.ring import ALL_DIRECTED as DIRECTED
from pykraft.jepsen_like.simulation.quorum.ring import RING, run_directed
from pykraft.jepsen_like.simulation.schedule import Schedule, describe

SCHEDULES = 60
CHUNK = 20
DURATION_MS = 20_000
# Slow in sum: `make check` runs the first chunk, `make test` all of them, `make sim` many more.
CHUNKS = [
    pytest.param(first, marks=[] if first == 0 else [pytest.mark.slow])
    for first in range(0, SCHEDULES, CHUNK)
]


@pytest.mark.parametrize("first", CHUNKS)
def test_no_schedule_breaks_an_invariant_and_each_ends_in_progress(first: int) -> None:
    injected: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        schedule = Schedule(seed, DURATION_MS)
        try:
            outcome = RING.run(schedule)
        except Exception as error:
            pytest.fail(f"{describe(error)}; reproduce: {schedule.command('quorum')}")
        assert outcome.counts["acknowledged"] > 0
        assert outcome.virtual_ms >= DURATION_MS
        injected.update(outcome.faults)
    assert set(WEIGHTS) <= set(injected), "a kind of fault never occurred"


@pytest.mark.parametrize("name", sorted(DIRECTED))
def test_directed_schedule_keeps_every_invariant(name: str) -> None:
    run_directed(name)


def test_plan_of_a_shorter_time_is_the_beginning_of_the_longer_one() -> None:
    longer, shorter = draw_plan(Schedule(5, 20_000)).faults, draw_plan(Schedule(5, 9_000)).faults
    assert longer[: len(shorter)] == shorter
    assert 0 < len(shorter) < len(longer)


def test_faults_that_are_left_out_leave_the_others_as_they_are() -> None:
    whole = draw_plan(Schedule(5, 20_000)).faults
    assert draw_plan(Schedule(5, 20_000, faults=(3, 7))).faults == (whole[3], whole[7])


def test_faults_that_last_are_known_by_name() -> None:
    assert set(LASTS_MS) <= set(WEIGHTS)
