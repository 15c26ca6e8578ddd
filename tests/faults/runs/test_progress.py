"""What a run says of itself while it goes on."""

import io
from collections import Counter
from pathlib import Path

from rich.console import Console

from pykraft.jepsen_like.faults.history import Event, HistoryWriter
from pykraft.jepsen_like.faults.nemeses.fault import Intensity, Phase, Plan
from pykraft.jepsen_like.faults.runs.progress import Progress
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.faults.histories import fault, led

PLAN = Plan(1, 60.0, (Phase(Intensity.MANY, 0.0), Phase(Intensity.NONE, 25.0)), ())


class FakeHistory:
    """Its clock stands still until it is set."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def now_us(self) -> int:
        return round(self.now_s * 1e6)


def lines_of(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def plain_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def test_there_is_a_line_every_ten_seconds() -> None:
    history, console = FakeHistory(2.0), plain_console()
    progress = Progress(console, history, PLAN)
    for second in range(3, 24):
        history.now_s = second
        history.outcomes["send", "ok"] += 100
        progress.tick()
    assert lines_of(console) == [
        "  12.0 s  10 of 60 s, many faults; acknowledged 1,000, 100/s; in force: nothing;"
        " controller unknown, leaders: none",
        "  22.0 s  20 of 60 s, many faults; acknowledged 2,000, 100/s; in force: nothing;"
        " controller unknown, leaders: none",
    ]


def test_line_names_faults_and_leaders_of_the_moment() -> None:
    history = FakeHistory()
    progress = Progress(plain_console(), history, PLAN)
    kill, repaired = fault(1, "kill", "2", 1_000, 9_000)
    (moves,) = fault(2, "moves", "", 3_000, None)
    controller = Event("info", "observer", 0, "controller", value="3")
    for event in (kill, moves, controller, led("t-0", "1", 0), led("t-1", "1", 0), led("t-2", "-1", 0)):
        progress.note(event)
    history.now_s = 4.0
    assert progress.line().endswith(
        "in force: kill 2 for 3.0 s, moves for 1.0 s; controller 3, leaders: 1 of 2, 1 without"
    )
    progress.note(repaired)
    progress.note(led("t-2", "2", 0))
    assert progress.line().endswith("in force: moves for 1.0 s; controller 3, leaders: 1 of 2, 2 of 1")


def test_line_says_where_the_run_is() -> None:
    history, console = FakeHistory(), plain_console()
    progress = Progress(console, history, PLAN)
    history.now_s = 30.0
    assert progress.line().startswith("30 of 60 s, no faults; ")
    history.now_s = 61.0
    assert progress.line().startswith("waits for the last repairs; ")
    progress.enter("reads everything")
    assert progress.line().startswith("reads everything; ")
    assert lines_of(console) == ["  61.0 s  reads everything"]


def test_every_fault_has_a_line_at_once() -> None:
    history, console = FakeHistory(12.34), plain_console()
    progress = Progress(console, history, PLAN)
    progress.say("kill [2]")
    assert lines_of(console) == ["  12.3 s  kill [2]"]


def test_where_nothing_is_sent_every_success_counts() -> None:
    history = FakeHistory()
    history.outcomes.update({("set", "ok"): 3, ("get", "ok"): 4, ("get", "fail"): 9})
    assert "acknowledged 7," in Progress(plain_console(), history, PLAN).line()


def test_time_passes_by_itself() -> None:
    history = FakeHistory()
    with Progress(plain_console(), history, PLAN) as progress:
        history.now_s = 30.0
        history.outcomes["send", "ok"] = 1_234
        wait_until("a tick", lambda: "acknowledged 1,234, 41/s" in progress.line(), PATIENCE_S)


def test_writer_counts_and_tells_of_faults_and_leaders(tmp_path: Path) -> None:
    seen: list[str] = []
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        history.watch = lambda event: seen.append(event.op)
        for _ in range(3):
            history.record("ok", "p", "send")
        history.record("ok", "nemesis", "kill", value="1")
        history.record("info", "observer", "leader", key="t-0", value="1")
    history.record("ok", "nemesis", "late")
    assert seen == ["kill", "leader"]
    assert history.outcomes == {("send", "ok"): 3, ("kill", "ok"): 1, ("leader", "info"): 1}
