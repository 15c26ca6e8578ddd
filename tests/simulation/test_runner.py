"""The simulation's command line: sums, the reduced failing schedule, equal traces whatever the process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykraft.jepsen_like.sim import __main__ as command
from pykraft.jepsen_like.sim import determinism
from pykraft.jepsen_like.sim.minimise import minimise
from pykraft.jepsen_like.sim.quorum.ring import RING
from pykraft.jepsen_like.sim.rings import RINGS
from pykraft.jepsen_like.sim.schedule import Outcome, Ring, Schedule


def _fails_with_faults_3_and_11(schedule: Schedule, log: list[str] | None = None) -> Outcome:
    """Breaks when both faults are kept, after 700 ms; needs nothing else of the world."""
    if schedule.seed == 7 and schedule.keeps(3) and schedule.keeps(11) and schedule.duration_ms >= 700:
        raise AssertionError("planted")
    return Outcome(schedule.seed, 10, schedule.duration_ms, "trace")


BROKEN = Ring("broken", _fails_with_faults_3_and_11, parts=("client", "loss"), planned=lambda _, ms: ms // 50)


def test_failing_schedule_is_reduced_to_what_it_needs() -> None:
    smaller, failure = minimise(BROKEN, Schedule(7), "as found", time_limit_s=1.0, now_s=lambda: 0.0)
    assert smaller.faults == (3, 11)
    assert smaller.without == {"client", "loss"}
    assert 700 <= smaller.duration_ms < 750
    assert failure == "AssertionError: planted"


def test_reduction_ends_when_its_time_is_up() -> None:
    smaller, failure = minimise(BROKEN, Schedule(7), "as found", time_limit_s=0.0, now_s=lambda: 0.0)
    assert (smaller, failure) == (Schedule(7), "as found")


def test_violation_prints_one_line_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(RINGS, "broken", BROKEN)
    monkeypatch.setattr(command, "RINGS", RINGS)
    assert command.main(["--ring", "broken", "--first", "5", "--seeds", "5", "--processes", "1"]) == 1
    *_, line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("seed 7: AssertionError: planted; reproduce: ")
    assert "--seed 7" in line and "--faults 3,11 --without client,loss" in line
    assert last.startswith("2 schedules, 0.03 virtual hours, 20 events, 1 violations")
    arguments = line.partition("pykraft.jepsen_like.sim ")[2].split()
    assert command.main(arguments) == 1
    assert "AssertionError: planted" in capsys.readouterr().out


def test_command_that_repeats_a_schedule_is_read_back_as_that_schedule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Schedule] = []

    def note(schedule: Schedule, log: list[str] | None = None) -> Outcome:
        seen.append(schedule)
        return Outcome(schedule.seed, 0, 0, "")

    monkeypatch.setitem(RINGS, "noted", Ring("noted", note))
    for schedule in (
        Schedule(3),
        Schedule(4, 900, (), frozenset({"a", "b"})),
        Schedule(5, 800, (1, 4, 5, 6, 9, 10)),
    ):
        assert command.main(schedule.command("noted").split()[3:]) == 0
        assert seen.pop() == schedule


def test_sums_do_not_depend_on_the_number_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    last = []
    for workers in ("1", "2"):
        assert (
            command.main(
                [
                    "--ring",
                    "quorum",
                    "--seeds",
                    "3",
                    "--duration-ms",
                    "2000",
                    "--processes",
                    workers,
                    "--no-directed",
                ]
            )
            == 0
        )
        last.append(capsys.readouterr().out.splitlines()[-1].partition(" (")[0])
    assert last[0] == last[1]
    assert last[0].startswith("3 schedules, ") and last[0].endswith(" 0 violations")


@pytest.mark.parametrize("ring", sorted(RINGS))
def test_same_seeds_give_the_same_traces_in_three_processes_with_different_hash_seeds(ring: str) -> None:
    first, *others = determinism.traces(ring, 900, 4, 4_000)
    assert len(set(first)) == 4
    assert others == [first, first]


def test_traces_that_differ_are_named_and_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(determinism, "traces", lambda *_: [["quorum 0 a"], ["quorum 0 a"], ["quorum 0 b"]])
    assert determinism.main(["--ring", "quorum", "--seeds", "1"]) == 1
    assert "not equal: quorum 0 a quorum 0 a quorum 0 b\n0/1 seeds" in capsys.readouterr().out


def test_part_that_is_left_out_shows() -> None:
    schedule = Schedule(1, 3_000)
    assert RING.run(schedule).counts["acknowledged"] > 1
    alone = RING.run(replace(schedule, without=frozenset({"client", "lasting faults"})))
    assert alone.counts["acknowledged"] <= 2  # the values by which progress is shown
