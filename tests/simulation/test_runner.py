"""The simulation's command line: sums, the reduced failing schedule, equal traces in every process."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from pykraft.jepsen_like.simulation import __main__ as command
from pykraft.jepsen_like.simulation import determinism
from pykraft.jepsen_like.simulation.progress import LINE_EVERY_S, Progress
from pykraft.jepsen_like.simulation.quorum.ring import RING
from pykraft.jepsen_like.simulation.reducing import minimise
from pykraft.jepsen_like.simulation.rings import RINGS
from pykraft.jepsen_like.simulation.runner import run_many
from pykraft.jepsen_like.simulation.schedule import Outcome, Ring, Schedule
from pykraft.jepsen_like.simulation.story import Story
from pykraft.jepsen_like.simulation.tally import Tally


def _fails_with_faults_3_and_11(schedule: Schedule, story: Story | None = None) -> Outcome:
    """Fails after 700 ms if both faults are kept; needs nothing else of the world."""
    if schedule.seed == 7 and schedule.keeps(3) and schedule.keeps(11) and schedule.duration_ms >= 700:
        raise AssertionError("planted")
    if story is not None:
        for second in range(5):
            story.log(second * 1_000_000, "node 1", f"does thing {second}")
    return Outcome(schedule.seed, 10, schedule.duration_ms, "trace", {"kill": 1, "pause": 1})


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
    *_, line, ran, injected, violations = capsys.readouterr().out.splitlines()
    assert line.startswith("seed 7: AssertionError: planted; reproduce: ")
    assert "--seed 7" in line and "--faults 3,11 --without client,loss" in line
    assert ran.startswith("Schedules: 3 of ring broken; 0.03 virtual hours, 20 events, in ")
    assert injected == "Injected faults: 4 of 2 kinds, most often kill 2, pause 2"
    assert violations == "Violations: 1, above, each with the command that reproduces it"
    arguments = line.partition("pykraft.jepsen_like.simulation ")[2].split()
    assert command.main(arguments) == 1
    assert "AssertionError: planted" in capsys.readouterr().out


def test_command_that_repeats_a_schedule_is_read_back_as_that_schedule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Schedule] = []

    def note(schedule: Schedule, story: Story | None = None) -> Outcome:
        seen.append(schedule)
        return Outcome(schedule.seed, 0, 0, "")

    monkeypatch.setitem(RINGS, "noted", Ring("noted", note, workloads=("w",)))
    for schedule in (
        Schedule(3),
        Schedule(4, 900, (), frozenset({"a", "b"})),
        Schedule(5, 800, (1, 4, 5, 6, 9, 10)),
        Schedule(6, workload="w"),
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
        *_, ran, injected, violations = capsys.readouterr().out.splitlines()
        last.append((ran.rpartition(", in ")[0], injected, violations))
    assert last[0] == last[1]
    assert last[0][0].startswith("Schedules: 3 of ring quorum; ")
    assert last[0][2] == "Violations: none"


class Seconds:
    """A clock that advances a second each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def _run_broken(screen: StringIO, seeds: range, keeps_going: bool = False) -> Tally:
    progress = Progress(screen, Seconds())
    return run_many(BROKEN, seeds, 900, workers=1, minimise_s=0.0, progress=progress, keeps_going=keeps_going)


def test_progress_is_a_line_now_and_then() -> None:
    screen = StringIO()
    _run_broken(screen, range(100, 400))
    lines = screen.getvalue().splitlines()
    assert 5 <= len(lines) <= 300 / LINE_EVERY_S + 2
    assert all(" of 300 schedules, " in line for line in lines)


def test_run_stops_at_the_first_violation_unless_it_keeps_going() -> None:
    assert _run_broken(StringIO(), range(5, 10)).schedules == 3
    whole = _run_broken(StringIO(), range(5, 10), keeps_going=True)
    assert whole.schedules == 5
    (failure,) = whole.failures
    assert failure.startswith("seed 7: AssertionError: planted; reproduce: ")


def test_seed_without_a_ring_is_run_in_every_ring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        command, "RINGS", {"one": replace(BROKEN, name="one"), "two": replace(BROKEN, name="two")}
    )
    assert command.main(["--seed", "7", "--faults", "3"]) == 2
    assert "--ring" in capsys.readouterr().out
    assert command.main(["--seed", "6"]) == 0
    printed = capsys.readouterr().out
    assert "ring one, seed 6" in printed and "ring two, seed 6" in printed
    assert printed.splitlines()[-3].startswith("Schedules: 1 of ring one and 1 of ring two; ")
    assert command.main(["--seed", "7"]) == 1


def test_story_is_limited_to_its_newest_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "RINGS", {"broken": BROKEN})
    assert command.main(["--seed", "6", "--lines", "2"]) == 0
    printed = capsys.readouterr().out
    assert "3 earlier lines are left out" in printed
    assert "does thing 2" not in printed and "     3.000  node 1  does thing 3\n" in printed
    assert command.main(["--seed", "6"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_story_counts_what_happens_often() -> None:
    story = Story()
    story.log(1_500_000, "node 10", "is killed")
    for _ in range(3):
        story.count(1_200_000, "clients", "writes acknowledged")
    story.count(1_900_000, "clients", "reads answered")
    story.log(2_100_000, "node 2", "is up")
    assert story.lines() == [
        "   seconds  where    what happened",
        "     1.500  node 10  is killed",
        "     2.000  clients  in this second: 1 reads answered, 3 writes acknowledged",
        "     2.100  node 2   is up",
    ]


def test_story_of_the_quorum_contains_faults_roles_and_values() -> None:
    story = Story()
    RING.run(Schedule(3, 3_000), story)
    words = "\n".join(story.lines())
    for happening in ("leads, epoch", "follows", "starts with a log", "values acknowledged", "(fault "):
        assert happening in words, happening


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


def test_schedule_in_pictures_shows_its_faults_and_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "pictures"
    asked = ["--ring", "cluster", "--seed", "1", "--duration-ms", "8000", "--workload", "append"]
    assert command.main([*asked, "--report", str(directory)]) == 0
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["outcome"], summary["exit_status"]) == ("clean", 0)
    (told,) = re.findall(r"Injected faults: (\d+)", capsys.readouterr().out)
    assert summary["verdict"]["tally"]["faults"] == len(summary["faults"]) == int(told)
    assert summary["verdict"]["tally"]["leader_changes"] > 0
    assert summary["nodes"] >= 3
    assert summary["operations"]["send"]["ok"] > 0
    page = (directory / "report.html").read_text()
    assert "jepsen_like.simulation --ring cluster --seed 1 --duration-ms 8000" in page
    assert [fault["kind"] in page for fault in summary["faults"]]


def test_pictures_are_of_the_ring_that_has_clients(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main(["--seed", "3", "--report", str(tmp_path)]) == 2
    assert "--report needs --ring cluster" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
