"""Runs for hours: each follows from its seed, and what all of them say is added up."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykraft.jepsen_like.faults.nemeses.choice import choose
from pykraft.jepsen_like.faults.reports.report import EXIT_INTERRUPTED
from pykraft.jepsen_like.faults.reports.tally_table import table
from pykraft.jepsen_like.faults.runs import long_run
from pykraft.jepsen_like.faults.runs.long_run import (
    LONGEST_S,
    SHORTEST_S,
    WORKLOADS,
    choose_run,
    play,
    read_results,
)
from pykraft.jepsen_like.faults.workloads.registry import WORKLOADS as KNOWN

TIERS = ("portable", "root")


def test_run_follows_from_its_seed_and_every_choice_occurs() -> None:
    runs = [choose_run(seed, TIERS) for seed in range(400)]
    assert runs == [choose_run(seed, TIERS) for seed in range(400)]
    assert set(WORKLOADS) <= set(KNOWN)
    assert {run.workload for run in runs} == set(WORKLOADS)
    assert {run.tier for run in runs} == set(TIERS)
    assert all(choose(run.nemesis) and SHORTEST_S <= run.time_limit_s < LONGEST_S for run in runs)
    assert "--tier=root" in next(run for run in runs if run.tier == "root").command(Path("out"))


def fault(kind: str, recovery_s: float | None, *, alone: bool) -> dict[str, Any]:
    missing = ["t-0"] if recovery_s is None else []
    return {"kind": kind, "recovery_s": recovery_s, "alone": alone, "not_recovered": missing}


def run(seed: int, status: int | None, **summary: Any) -> dict[str, Any]:
    whole = {
        "time_limit_s": 180.0,
        "operations": {
            "send": {"invoke": 100, "ok": 90, "fail": 0, "info": 10},
            "kill": {"invoke": 0, "ok": 5, "fail": 0, "info": 0},
        },
        "records_read": 1_000,
        "anomalies": {"lost-write": 0, "unseen": 0},
        "faults": [],
        "longest_unavailability": None,
    }
    return line(seed, status, whole | summary)


def line(seed: int, status: int | None, summary: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    told = {"workload": "append", "tier": "root", "took_s": 360.0, "status": status, "summary": summary}
    return {"seed": seed, **told, **more}


def test_tables_add_up_what_the_runs_say() -> None:
    spell = {
        "key": "append-1",
        "length_s": 7.25,
        "at_s": 12.0,
        "leaderless_s": 3.0,
        "leaders": ["1", "-1"],
        "faults_in_force": [{"kind": "kill"}] * 2,
        "struck": ["1", "3"],
    }
    calm = {**spell, "length_s": 0.5, "faults_in_force": [], "leaders": [], "before": {"kind": "pause"}}
    text = table(
        [
            run(1, 0, faults=[fault("kill", 1.0, alone=True), fault("kill", 9.0, alone=False)]),
            run(2, 1, anomalies={"lost-write": 3, "unseen": 0}, longest_unavailability=spell),
            run(3, 3, faults=[fault("kill", 3.0, alone=True), fault("cut-off", None, alone=True)]),
            run(5, 1, anomalies={"lost-write": 2, "unseen": 0}, longest_unavailability=calm),
            line(4, None, None, workload="groups", tier="portable"),
            line(6, 1, None, reason="KeyError: a | b"),
            line(7, 4, None),
        ]
    )
    assert "| root | 6 | 1 | 2 | 1 | 2 | 0 | 0.6 | 0.2 | 4 | 400 | 360 | 4,000 |" in text
    assert "| all | 7 | 1 | 2 | 1 | 2 | 1 | 0.7 | 0.2 | 4 | 400 | 360 | 4,000 |" in text
    assert "| append | root | 6 | 1 | 2 | 1 | 2 | 0 |" in text
    assert "| groups | portable | 1 | 0 | 0 | 0 | 0 | 1 |" in text
    assert "| 4 | groups, portable | did not end | 360 | - |" in text
    assert "| 6 | append, root | broke off | 360 | KeyError: a / b |" in text
    assert "| 7 | append, root | broke off | 360 | - |" in text
    assert "| lost-write | 5 | 2, 5 |" in text and "| unseen | 0 | - |" in text
    assert "| duplicate | 0 | - |" in text
    assert "| kill | 3 | 3.00 | 9.00 | 9.00 | 0 | 2 | 1.00 | 3.00 | 3.00 |" in text
    assert "| cut-off | 1 | - | - | - | 1 | 1 | - | - | - |" in text
    assert "| 7.2 | 2 | append, root | 12.0 | append-1 | 2 kill | 1, 3 | 3.0 |" in text
    assert "| 0.5 | 5 | append, root | 12.0 | append-1 | nothing; before it pause | 1, 3 | - |" in text


def test_tables_of_nothing_are_empty() -> None:
    assert "| all | 0 | 0 | 0 | 0 | 0 | 0 | 0.0 | 0.0 | 0 | 0 | 0 | 0 |" in table([])


def written(out_dir: Path, *results: dict[str, Any], more: bytes = b"") -> str:
    out_dir.mkdir()
    lines = b"".join(msgspec.json.encode(result) + b"\n" for result in results)
    (out_dir / "results.jsonl").write_bytes(lines + more)
    return f"--out={out_dir}"


@pytest.mark.parametrize(
    ("status", "exits"), [(0, 0), (3, 0), (1, 1)], ids=["clean", "does not count", "anomaly"]
)
def test_several_directories_have_one_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    exits: int,
) -> None:
    out = [written(tmp_path / "a", run(1, 0), more=b'{"half'), written(tmp_path / "b", run(1, status))]
    monkeypatch.setattr(sys, "argv", ["long_run", "--table", *out])
    assert long_run.main() == exits
    assert "| all | 2 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--table", "--out", "nowhere"], "nowhere/results.jsonl"),
        (["--out", "a", "--out", "b"], "several --out are for --table"),
        (["--tier", "none"], "invalid choice: 'none'"),
    ],
)
def test_wrong_arguments_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["long_run", *arguments])
    with pytest.raises(SystemExit, match="2"):
        long_run.main()
    assert error in capsys.readouterr().err


def test_run_that_breaks_off_is_kept_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "print('\\x1b[2Jlast words'); raise SystemExit(1)"
    monkeypatch.setattr(long_run, "cli", lambda *_: [sys.executable, "-c", code])
    lines = [play(choose_run(7, TIERS), tmp_path / "out") for _ in range(2)]
    assert [one["directory"] for one in lines] == ["run-7", "run-7-2"]
    (tmp_path / "out" / "results.jsonl").write_bytes(
        b"".join(msgspec.json.encode(one) + b"\n" for one in lines)
    )
    assert [one["reason"] for one in read_results(tmp_path / "out")] == ["\ufffd[2Jlast words"] * 2


def test_line_that_is_none_is_named(tmp_path: Path) -> None:
    written(tmp_path / "a", run(1, 0), more=b'{"half{}\n')
    with pytest.raises(ValueError, match=r"results\.jsonl:2: "):
        read_results(tmp_path / "a")


def test_interrupt_ends_the_runs_with_their_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = written(tmp_path / "a", run(1, 0))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(long_run, "play", interrupted)
    monkeypatch.setattr(sys, "argv", ["long_run", out])
    assert long_run.main() == EXIT_INTERRUPTED
    assert "| all | 1 |" in capsys.readouterr().out
