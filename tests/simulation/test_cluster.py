"""Whole nodes in virtual time: some schedules, and the simulation's own processes and clocks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pykraft.jepsen_like.sim import determinism
from pykraft.jepsen_like.sim.cluster.faults import CALM, CALM_RACE, CALM_STUTTER, plan_faults
from pykraft.jepsen_like.sim.cluster.ring import run_schedule
from pykraft.jepsen_like.sim.processes import ProcessClock, ProcessLoop, SimProcess
from pykraft.jepsen_like.sim.schedule import Schedule


@pytest.fixture(autouse=True)
def _deaths_are_not_logged() -> None:
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("seed", range(12))
def test_schedules_of_whole_nodes_break_nothing(seed: int) -> None:
    outcome = run_schedule(Schedule(seed))
    assert outcome.counts["commits"] > 20
    assert outcome.counts["clients served"] > 0
    assert outcome.counts["records committed"] > 20


def test_clients_and_admins_get_what_they_ask_for_and_disks_are_lost() -> None:
    named: set[str] = set()
    lost = changes = 0
    for seed in (3, 12):
        log: list[str] = []
        outcome = run_schedule(Schedule(seed), log)
        for words in (line.split()[1:] for line in log):
            if words[-1] == "0":
                named |= {words[0], " ".join(words[:2])}
        lost += outcome.faults.get("disk loss", 0)
        changes += outcome.counts["voter changes"]
    assert {"create", "delete", "partitions", "late wish", "add voter", "remove voter"} <= named
    assert {"reassign", "cancel", "elect PREFERRED", "level 0", "level 1"} <= named
    assert {"alter min.insync.replicas", "alter unclean.leader.election.enable"} <= named
    assert lost and changes > 20


def test_same_schedule_has_the_same_trace() -> None:
    log: list[str] = []
    first = run_schedule(Schedule(5, 15_000), log)
    assert first == run_schedule(Schedule(5, 15_000))
    assert first.trace != run_schedule(Schedule(6, 15_000)).trace
    assert any(" fault " in line for line in log)


def test_trace_is_the_same_in_three_processes_under_three_hash_seeds() -> None:
    first, *others = determinism.traces("cluster", 0, 3, 8000)
    assert len(first) == 3
    assert all(lines == first for lines in others)


def test_shorter_plan_is_the_beginning_of_a_longer_one() -> None:
    long, short = plan_faults(3, 60_000), plan_faults(3, 20_000)
    assert 0 < len(short) < len(long)
    assert long[: len(short)] == short


def test_nothing_else_strikes_while_an_undisturbed_fault_may_be_under_way() -> None:
    kinds: list[str] = []
    for seed in range(40):
        plan = plan_faults(seed, 60_000)
        for calm in (fault for fault in plan if fault.kind in CALM):
            until_ms = calm.at_ms + calm.for_ms
            assert [fault for fault in plan if calm.at_ms <= fault.at_ms < until_ms] == [calm]
            kinds.append(calm.kind)
    assert (kinds.count(CALM_RACE), kinds.count(CALM_STUTTER)) == (20, 10)


def test_dead_broker_is_fenced_while_the_active_controller_stalls_again_and_again() -> None:
    for seed in (3, 27, 43):
        (stutter,) = (fault for fault in plan_faults(seed, 60_000) if fault.kind == CALM_STUTTER)
        outcome = run_schedule(
            Schedule(
                seed, stutter.at_ms + stutter.for_ms, faults=(stutter.number,), without=frozenset({"client"})
            )
        )
        assert outcome.faults == {CALM_STUTTER: 1}
        assert outcome.counts["fences during faults"] > 0


def test_undisturbed_lease_race_lasts_until_the_broker_is_fenced() -> None:
    for seed in (2, 6, 12):
        (race,) = (fault for fault in plan_faults(seed, 60_000) if fault.kind == CALM_RACE)
        outcome = run_schedule(Schedule(seed, race.at_ms + race.for_ms, faults=(race.number,)))
        assert outcome.faults == {CALM_RACE: 1}
        assert outcome.counts["fences"] > 0


def test_without_faults_and_clients_nothing_strikes() -> None:
    outcome = run_schedule(Schedule(1, 8000, faults=(), without=frozenset({"client"})))
    assert not outcome.faults
    assert outcome.counts["active controllers"] == 1


async def _ticks(ticks: list[float], loop: ProcessLoop) -> None:
    while True:
        await asyncio.sleep(1)
        ticks.append(loop.now_s)


def _run_for(loop: ProcessLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_paused_process_does_nothing_until_resumed_and_a_dead_one_never() -> None:
    loop = ProcessLoop()
    ticks: list[float] = []
    process = SimProcess("1.1")
    task = loop.create_task(_ticks(ticks, loop), context=process.context)
    _run_for(loop, 1.5)
    process.pause()
    _run_for(loop, 3)
    assert ticks == [1.0]
    process.resume(loop)
    _run_for(loop, 1)
    assert ticks == [1.0, 4.5, 5.5]
    process.kill()
    _run_for(loop, 3)
    assert len(ticks) == 3 and not task.done()
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


def test_timers_and_clock_run_at_the_rate_of_their_machine() -> None:
    loop = ProcessLoop()
    ticks: list[float] = []
    process, clock = SimProcess("1.1", rate=2.0), ProcessClock(loop, start_ms=500)
    clock.set_rate(2.0)
    task = loop.create_task(_ticks(ticks, loop), context=process.context)
    _run_for(loop, 1.1)
    assert ticks == [0.5, 1.0]
    assert clock.monotonic_ms() == 500 + 2200
    clock.jump_wall(-60_000)
    clock.set_rate(1.0)
    before_ms = clock.monotonic_ms(), clock.wall_ms()
    _run_for(loop, 1)
    assert clock.monotonic_ms() - before_ms[0] == clock.wall_ms() - before_ms[1] == 1000
    task.cancel()
    _run_for(loop, 1)
    loop.close()
