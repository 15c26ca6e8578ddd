"""Whole nodes in virtual time: some schedules, and the simulation's own processes and clocks."""

import asyncio
import logging
import sys
from collections.abc import Mapping

import pytest

from pykraft.jepsen_like.faults.clients.interface import RefusedError
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.simulation import determinism
from pykraft.jepsen_like.simulation.cluster.clients.load import Load, draw_workload
from pykraft.jepsen_like.simulation.cluster.faults.planned import CALM, CALM_RACE, CALM_STALLS, plan_faults
from pykraft.jepsen_like.simulation.cluster.ring import run_schedule
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.jepsen_like.simulation.story import Story
from pykraft.metadata_log.controller import driver, elections
from pykraft.quorum import delivery
from pykraft.runtime.simulated.processes import ProcessClock, ProcessLoop, SimProcess
from pykraft.runtime.simulated.virtual_loop import WALL_START_MS


@pytest.fixture(autouse=True)
def _kills_are_not_logged() -> None:
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("seed", range(12))
def test_schedules_of_whole_nodes_break_no_invariant(seed: int) -> None:
    outcome = run_schedule(Schedule(seed))
    assert outcome.counts["commits"] > 20
    assert outcome.counts["clients served"] > 0
    assert outcome.counts["records committed"] > 20
    assert outcome.counts["final ok"] > 0, "the workload ended"


@pytest.mark.parametrize("seed", range(20, 24))
def test_schedules_in_which_decisions_and_commits_come_in_slices_break_no_invariant(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those with very many partitions do; elections, faults and other requests fall between the slices."""
    monkeypatch.setattr(elections, "_NEW_AT_ONCE", 1)
    monkeypatch.setattr(driver, "RECORDS_AT_ONCE", 1)
    monkeypatch.setattr(sys.modules["pykraft.metadata_log.replay"], "RECORDS_AT_ONCE", 1)
    monkeypatch.setattr(delivery, "SLICE_RECORDS", 1)
    outcome = run_schedule(Schedule(seed))
    assert outcome.counts["commits"] > 20
    assert outcome.counts["final ok"] > 0, "the workload ended"


def test_schedule_of_groups_times_how_soon_they_are_reconciled() -> None:
    assert draw_workload(10)[0] == "groups"
    assert run_schedule(Schedule(10)).counts["group convergences timed"] > 0


def test_workload_that_could_not_begin_amid_the_faults_begins_when_they_are_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_begin: list[bool] = []
    create_topic, finish = OwnAdmin.create_topic, Load.finish

    async def refuse(
        self: OwnAdmin, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        if not may_begin:
            raise RefusedError("not yet")
        await create_topic(self, topic, partitions, replication_factor, configs)

    def heal(self: Load) -> asyncio.Task[None]:
        may_begin.append(True)
        return finish(self)

    monkeypatch.setattr(OwnAdmin, "create_topic", refuse)
    monkeypatch.setattr(Load, "finish", heal)
    outcome = run_schedule(Schedule(0, 5_000, faults=()))
    assert outcome.counts["final-end ok"] > 0


def test_clients_and_admins_get_what_they_ask_for_and_disks_are_lost() -> None:
    named: set[str] = set()
    lost = changes = 0
    for seed in (3, 12):
        story = Story()
        outcome = run_schedule(Schedule(seed), story)
        described = [line.partition("clients")[2].strip() for line in story.lines()]
        named |= {line.rpartition(" ")[0] for line in described if line.endswith(": done")}
        lost += outcome.faults.get("disk loss", 0)
        changes += outcome.counts["voter changes"]
    for asked in (
        *("create t", "delete t", "partitions for t", "late request to be fenced", "add the voter"),
        *("remove the voter", "reassign t", "cancel a reassignment of t", "preferred election of t"),
        *("set the level 0 of", "set the level 1 of", "set min.insync.replicas = "),
        "set unclean.leader.election.enable = ",
    ):
        assert any(asked in line for line in named), asked
    assert lost and changes > 20


def test_same_schedule_has_the_same_trace() -> None:
    story = Story()
    first = run_schedule(Schedule(5, 15_000), story)
    assert first == run_schedule(Schedule(5, 15_000))
    assert first.trace != run_schedule(Schedule(6, 15_000)).trace
    assert any("(fault " in line for line in story.lines())


def test_story_lists_faults_elections_leaders_and_client_results_in_order() -> None:
    story = Story()
    run_schedule(Schedule(4, 20_000), story)
    preface, heading, *lines = story.lines()
    assert "controllers" in preface and "session" in preface
    column = heading.index("what happened")
    times = [float(line[:10]) for line in lines]
    assert times == sorted(times)
    assert all(line[column - 1] == " " != line[column] for line in lines)
    described = {line[10:column].strip(): [] for line in lines}  # type: dict[str, list[str]]
    for line in lines:
        described[line[10:column].strip()].append(line[column:])
    assert {"faults", "metadata", "clients"} < set(described)
    words = "\n".join(lines)
    for happening in (
        "becomes the active controller",
        "leader epoch",
        "ISR",
        "writes acknowledged",
        ": done",
    ):
        assert happening in words, happening
    assert "starts (process 2 on this machine)" in words and "is up" in words
    assert "everything is healed" in described["faults"]
    assert not [line for line in lines if "0x" in line or "b'" in line or "Record(" in line]


def test_messages_are_traced_only_if_a_reader_wants_them() -> None:
    few, all_of_them = Story(), Story(has_messages=True)
    schedule = Schedule(5, 5_000)
    assert run_schedule(schedule, few) == run_schedule(schedule, all_of_them)
    assert not [line for line in few.lines() if "receives Fetch" in line]
    assert [line for line in all_of_them.lines() if "receives Fetch from node" in line]


def test_trace_is_the_same_in_three_processes_under_three_hash_seeds() -> None:
    first, *others = determinism.traces("cluster", 0, 3, 8000)
    assert len(first) == 3
    assert all(lines == first for lines in others)


def test_shorter_plan_is_the_beginning_of_a_longer_one() -> None:
    long, short = plan_faults(3, 60_000), plan_faults(3, 20_000)
    assert 0 < len(short) < len(long)
    assert long[: len(short)] == short


def test_no_other_fault_overlaps_an_undisturbed_one() -> None:
    kinds: list[str] = []
    for seed in range(40):
        plan = plan_faults(seed, 60_000)
        for calm in (fault for fault in plan if fault.kind in CALM):
            until_ms = calm.at_ms + calm.for_ms
            assert [fault for fault in plan if calm.at_ms <= fault.at_ms < until_ms] == [calm]
            kinds.append(calm.kind)
    assert (kinds.count(CALM_RACE), kinds.count(CALM_STALLS)) == (20, 10)


def test_dead_broker_is_fenced_while_the_active_controller_stalls_repeatedly() -> None:
    for seed in (3, 27, 43):
        (stalls,) = (fault for fault in plan_faults(seed, 60_000) if fault.kind == CALM_STALLS)
        outcome = run_schedule(
            Schedule(
                seed, stalls.at_ms + stalls.for_ms, faults=(stalls.number,), without=frozenset({"client"})
            )
        )
        assert outcome.faults == {CALM_STALLS: 1}
        assert outcome.counts["fences during faults"] > 0


def test_undisturbed_lease_race_lasts_until_the_broker_is_fenced() -> None:
    for seed in (2, 6, 12):
        (race,) = (fault for fault in plan_faults(seed, 60_000) if fault.kind == CALM_RACE)
        outcome = run_schedule(Schedule(seed, race.at_ms + race.for_ms, faults=(race.number,)))
        assert outcome.faults == {CALM_RACE: 1}
        assert outcome.counts["fences"] > 0


def test_without_faults_and_clients_nothing_happens() -> None:
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
    clock.set_wall(WALL_START_MS)
    assert clock.wall_ms() == WALL_START_MS
    assert clock.monotonic_ms() == before_ms[0] + 1000
    task.cancel()
    _run_for(loop, 1)
    loop.close()
