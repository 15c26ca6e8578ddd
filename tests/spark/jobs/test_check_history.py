"""Histories are judged in Spark as in process."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pykraft.jepsen_like.faults.checkers.history import Report, examine
from pykraft.jepsen_like.faults.checkers.self_test.plants import PLANTS, clean_history
from pykraft.jepsen_like.faults.history import HistoryError, event_from_json, read_history, write_history
from pykraft.jepsen_like.faults.runs import spark_check
from pykraft.jepsen_like.faults.runs.spark_check import check_histories
from pykraft.node.cli.root import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of some hundred kilobytes has many parts, whose borders are within lines."""
    monkeypatch.setattr(spark_check, "PART_BYTES", 99_991)


def in_process(path: Path) -> Report:
    return examine(read_history(path))


@pytest.mark.usefixtures("small_parts")
def test_every_planted_anomaly_has_the_verdict_of_the_checkers_in_process(
    spark_session: "SparkSession", tmp_path: Path
) -> None:
    clean = clean_history()
    histories = {"clean": clean} | {name: plant(list(clean)) for name, _, plant in PLANTS}
    paths = [tmp_path / f"{number}.jsonl" for number in range(len(histories))]
    for path, events in zip(paths, histories.values(), strict=True):
        write_history(path, events)
    reports = check_histories(spark_session, paths)
    assert dict(zip(histories, reports, strict=True)) == dict(
        zip(histories, map(in_process, paths), strict=True)
    )
    for (name, kind, _), report in zip(PLANTS, reports[1:], strict=True):
        assert kind in {finding.kind for finding in report.findings}, name


@pytest.mark.usefixtures("small_parts")
def test_lines_may_be_written_in_any_way_that_json_allows(
    spark_session: "SparkSession", tmp_path: Path
) -> None:
    """Fields in another order, with spaces, and with characters that are escaped: a key is the same log."""
    _, _, plant = PLANTS[0]
    path, plain = tmp_path / "other [a]*.jsonl", tmp_path / "plain.jsonl"
    write_history(plain, plant(clean_history()))
    lines, plain_lines = [], plain.read_text("utf-8").splitlines()
    for number, line in enumerate(plain_lines):
        fields = json.loads(line)
        backwards = json.dumps(dict(reversed(fields.items())))
        lines.append(backwards.replace("log-0", r"lo\u0067-0") if number % 3 == 0 else line)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    assert list(map(event_from_json, lines)) == list(map(event_from_json, plain_lines))
    found, expected = check_histories(spark_session, [path, plain])
    assert found == expected
    assert found.findings


def test_torn_last_line_is_dropped(spark_session: "SparkSession", tmp_path: Path) -> None:
    path, empty = tmp_path / "history.jsonl", tmp_path / "empty.jsonl"
    write_history(path, clean_history())
    with path.open("a", encoding="utf-8") as file:
        file.write('{"type":"info","process":"nemesis","time_us":1,"op":"node-exited"}')
    empty.touch()
    assert [report.findings for report in check_histories(spark_session, [path, empty])] == [(), ()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("half a line", "not JSON"),
        ('{"type":"ok","process":"p","time_us":1,"op":"send","key":"log-0","colour":1}', "colour"),
        ('{"type":"perhaps","process":"p","time_us":1,"op":"send","key":"log-0"}', "perhaps"),
    ],
)
def test_line_that_is_no_event_is_named(
    spark_session: "SparkSession", tmp_path: Path, line: str, message: str
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    events = clean_history()[:10]
    write_history(good, events)
    write_history(bad, events)
    with bad.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(HistoryError, match=rf"bad\.jsonl:11: .*{message}"):
        check_histories(spark_session, [good, bad])


def test_exit_status_is_that_of_a_fault_run(
    spark_session: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean, lost, bad = (tmp_path / f"{name}.jsonl" for name in ("clean", "lost", "bad"))
    write_history(clean, clean_history())
    _, kind, plant = PLANTS[0]
    write_history(lost, plant(clean_history()))
    bad.write_text("{}\n", "utf-8")
    assert spark_check.main(spark_session, [clean], 2) == 0
    assert f"{clean}: no anomaly" in capsys.readouterr().out
    assert spark_check.main(spark_session, [clean, lost], 2) == 1
    printed = capsys.readouterr().out
    assert kind.value in printed
    assert f"{lost}: " in printed
    assert spark_check.main(spark_session, [bad], 2) == 4
    assert f"{bad}:1: " in capsys.readouterr().out


def test_history_of_ones_own_is_judged_as_the_page_shows(
    spark_session: "SparkSession",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    section = PAGE.read_text("utf-8").partition("### check-history\n")[2].partition("\n### ")[0]
    cells = re.findall(r"^```(?:python|text)\n(.*?)^```", section, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    exec(cells[0], {})
    assert spark_check.main(spark_session, [Path("own.jsonl")], 2) == 1
    assert capsys.readouterr().out == cells[1]


def test_file_that_does_not_exist_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["spark", "check-history", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 2
    assert "does not exist" in result.output
