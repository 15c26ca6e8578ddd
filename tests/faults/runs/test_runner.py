"""Of several runs: what goes wrong in the runner itself neither looks like an anomaly nor hides one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykraft.jepsen_like.faults.history import Event, write_history
from pykraft.jepsen_like.faults.reports.report import (
    EXIT_ANOMALY,
    EXIT_CLEAN,
    EXIT_COULD_NOT_RUN,
    EXIT_DOES_NOT_COUNT,
    EXIT_INTERRUPTED,
    Result,
)
from pykraft.jepsen_like.faults.runs import runner
from pykraft.jepsen_like.faults.runs.conclusion import conclude
from pykraft.jepsen_like.faults.runs.run_config import RunConfig, RunError
from pykraft.node.cli import jepsen
from tests.faults.histories import sent

Play = Callable[[Path], Result]


def quiet(directory: Path) -> Result:
    return _of(directory)


def anomaly(directory: Path) -> Result:
    return _of(directory, Event("info", "runner", 2, "no-progress", error="all stands"))


def ended_early(directory: Path) -> Result:
    return _of(directory, Event("info", "runner", 2, "faults-end", detail={"early": True}))


def fails(error: BaseException) -> Play:
    def play(directory: Path) -> Result:
        raise error

    return play


def _of(directory: Path, *events: Event) -> Result:
    settings = {"workload": "append", "seed": 1, "time_limit_s": 5.0}
    write_history(directory / "history.jsonl", [Event("info", "runner", 0, "run", detail=settings), *events])
    return conclude(directory)


@pytest.mark.parametrize(
    ("plays", "status", "told"),
    [
        ([quiet, anomaly, quiet], EXIT_ANOMALY, "3 runs"),
        ([quiet, fails(RunError("no disk")), anomaly], EXIT_COULD_NOT_RUN, "seed 2: no disk"),
        ([quiet, fails(KeyError("x")), anomaly], EXIT_COULD_NOT_RUN, "seed 2: broke off: KeyError: 'x'"),
        ([anomaly, fails(KeyError("x"))], EXIT_ANOMALY, "Traceback"),
        ([fails(KeyboardInterrupt()), anomaly], EXIT_INTERRUPTED, "seed 1: interrupted"),
        ([quiet, ended_early, anomaly], EXIT_INTERRUPTED, "2 runs"),
        ([quiet, quiet], EXIT_DOES_NOT_COUNT, "2 runs"),
        ([fails(KeyError("[/red]\x1b[2J"))], EXIT_COULD_NOT_RUN, "[/red]"),
    ],
)
def test_worst_status_counts_and_what_breaks_off_ends_the_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    plays: list[Play],
    status: int,
    told: str,
) -> None:
    left = iter(plays)
    monkeypatch.setattr(runner, "run", lambda config, console, check: next(left)(tmp_path))
    assert runner.main(RunConfig(seed=1), runs=len(plays)) == status
    output = capsys.readouterr().out
    assert told in output
    assert "\x1b" not in output


def test_directory_that_cannot_be_made_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "run_self_test", lambda: 0)
    (tmp_path / "file").write_text("")
    assert runner.main(RunConfig(out_dir=tmp_path / "file" / "out")) == EXIT_COULD_NOT_RUN
    output = capsys.readouterr().out
    assert "cannot be made" in output and "Traceback" not in output


@pytest.mark.parametrize("command", ["check", "report", "shrink"])
@pytest.mark.parametrize("content", [None, "", "garbage\n", '{"type":"ok"}\n'])
def test_directory_without_a_run_is_refused(tmp_path: Path, command: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / "history.jsonl").write_text(content)
    result = CliRunner().invoke(jepsen.command, [command, str(tmp_path)])
    assert result.exit_code == EXIT_COULD_NOT_RUN
    assert str(tmp_path) in result.output and "Traceback" not in result.output


def test_history_is_checked_and_reported_again(tmp_path: Path) -> None:
    write_history(
        tmp_path / "history.jsonl", [Event("info", "runner", 2, "no-progress", error="\x1b]0;x\x07")]
    )
    found = CliRunner().invoke(jepsen.command, ["check", str(tmp_path)])
    assert found.exit_code == EXIT_ANOMALY
    assert "no-progress: 1 on the cluster" in found.output and "\x1b" not in found.output
    reported = CliRunner().invoke(jepsen.command, ["report", str(tmp_path)])
    assert reported.exit_code == EXIT_CLEAN
    assert reported.output == f"{tmp_path / 'report.html'}\n"


def test_history_that_breaks_off_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    events = [*sent("a", 1, 2, offset=0), *sent("b", 3, 4, offset=1)]
    read = Event("ok", "consumer-0", 5_000, "poll", "t-0", records=[(0, "a")])
    write_history(tmp_path / "history.jsonl", [*events, read])
    result = CliRunner().invoke(jepsen.command, ["check", str(tmp_path)])
    assert result.exit_code == EXIT_ANOMALY
    assert "unseen" in result.output and "broke off before its last read" in result.output
    ends = [
        Event("ok", "final", 6_000, "final", "t-0", records=[(0, "a")]),
        Event("ok", "final", 7_000, "final-end", "t-0", offset=1),
    ]
    write_history(tmp_path / "history.jsonl", [*events, read, *ends])
    result = CliRunner().invoke(jepsen.command, ["check", str(tmp_path)])
    assert "unseen" in result.output and "broke off" not in result.output


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--nemesis", ""], "leaves no fault"),
        (["--nemesis", "mixed,-mixed"], "leaves no fault"),
        (["--kafka-libs", "."], "--kafka-libs is for --system kafka and --client java"),
        (["--bootstrap-server", "h:1", "--other-version", "x"], "--other-version is for nodes that the run"),
        (["--nodes", "2"], "2 is not in the range"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: list[str], error: str) -> None:
    result = CliRunner().invoke(jepsen.command, ["run", *options])
    assert result.exit_code == 2
    assert error in result.output


@pytest.mark.parametrize("daemon", [False, True])
def test_process_ends_although_a_client_never_returns(tmp_path: Path, daemon: bool) -> None:
    program = (
        "import concurrent.futures, threading;"
        "from pykraft.jepsen_like.faults.runs import runner; from pykraft.node.cli.root import cli;"
        "pool = concurrent.futures.ThreadPoolExecutor(1, 'clients');"
        f"hang = threading.Thread(target=pool.submit, args=[threading.Event().wait], daemon={daemon});"
        "runner.main = lambda *_: hang.start() or hang.join() or print('told') or 3;"
        f"cli(['jepsen', 'run', '--out', {str(tmp_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "told\n"), done.stderr


STANDSTILL = """
import ctypes, threading
from pykraft.jepsen_like.faults.runs.standstill import no_standstill
with no_standstill(after_s=0.5, wind_up_s=0.05):
    {work}
threading.Event().wait(1)  # nothing ends it any more
print("done")
"""


def test_process_that_stands_still_ends_and_shows_where() -> None:
    """A call that keeps the interpreter's lock: no thread of Python can end it."""
    program = STANDSTILL.format(work="ctypes.PyDLL(None).pause()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and 'File "<string>", line 5 in <module>' in done.stderr, done.stderr


def test_process_that_only_waits_goes_on() -> None:
    program = STANDSTILL.format(work="threading.Event().wait(1.5)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
