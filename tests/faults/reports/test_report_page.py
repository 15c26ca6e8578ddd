"""The page and the summary of a run: complete, safe to open whoever wrote the history, and readable alone."""

import json
import re
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import Report
from pykraft.jepsen_like.faults.history import Event, HistoryError, write_history
from pykraft.jepsen_like.faults.nemeses.fault import Intensity, Phase, Plan
from pykraft.jepsen_like.faults.plain_text import PlainConsole
from pykraft.jepsen_like.faults.reports.page.elements import tag, to_html
from pykraft.jepsen_like.faults.reports.page.scales import (
    powers_of_ten,
    round_ticks,
    time_text,
    time_ticks_s,
)
from pykraft.jepsen_like.faults.reports.report import print_result, print_runs
from pykraft.jepsen_like.faults.reports.summary import command_to_repeat
from pykraft.jepsen_like.faults.runs.conclusion import conclude, write_report
from tests.faults.histories import fault, in_order, led, ms, sent, steadily

_ACTED_ON = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_TERMINAL = "\x1b[2J\x9b3m\u202e[/b]"
_HOSTILE = _TERMINAL + "<script>alert(1)</script>\"'&]]>--><img src=x onerror=alert(2)>\u0000\u2028{{7*7}}"
_SETTINGS = {
    "workload": "append",
    "nemesis": "process,-pause",
    "tier": "portable",
    "seed": 5,
    "time_limit_s": 40.0,
    "nodes": 3,
    "client": "own",
    "system": "pykraft",
    "versions": {"pykraft": "0.1.0", "commit": None},
    "machine": {"cpus": 2},
}


class Page(HTMLParser):
    """Fails on a tag that is not closed in its place; keeps the texts and what might reach out."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(name)
        if name not in _VOID:
            self.open.append(name)
        for key, value in attributes:
            if key in ("href", "src", "xlink:href", "action", "data", "srcset"):
                self.links.append(value or "")
            if key.startswith("on"):
                self.handlers.append(key)

    def handle_endtag(self, name: str) -> None:
        assert name not in _VOID
        assert self.open.pop() == name

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(text)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def run_directory(directory: Path, events: Iterable[Event], plan: Plan | None = None) -> Path:
    write_history(directory / "history.jsonl", events)
    if plan is not None:
        plan.write(directory / "plan.json")
    return directory


def html_of(directory: Path) -> str:
    return write_report(directory).read_text(encoding="utf-8")


def page_of(directory: Path) -> Page:
    html = html_of(directory)
    page = Page(html)
    assert not re.search(r"https?:|(?<![:\w])//|url\(|@import", html), "reaches out"
    assert not page.tags & {"script", "iframe", "img", "object", "link", "base", "form"}
    assert not page.handlers
    return page


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two faults, of which one stops everything for two seconds."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "node-1.log").write_text("started")
    events = in_order(
        Event("info", "runner", 0, "run", detail=_SETTINGS),
        Event("info", "runner", ms(500), "faults-begin"),
        steadily(500, 3_000),
        sent("stalled", 3_000, 5_000),
        steadily(5_000, 8_000),
        fault(0, "kill", "1", 3_000, 4_000),
        fault(1, "slow", "2,3", 6_000, 7_000, delay_ms=12.5),
        [led("t-0", "1", 600), led("t-0", "2", 4_500)],
        Event("ok", "consumer-0", ms(7_500), "poll", "t-0", records=[(0, "t-0@500")]),
        Event("info", "runner", ms(8_000), "faults-end"),
        Event("info", "runner", ms(8_400), "in-sync", detail={"took_s": 0.4}),
        Event("info", "runner", ms(8_900), "leaderless", detail={"longest_s": 1.5}),
        Event("ok", "final-0", ms(9_000), "final", "t-0", records=[(0, "t-0@500"), (1, "phantom")]),
    )
    return run_directory(tmp_path, events, Plan(5, 7.5, (Phase(Intensity.FEW, 0.0),), ()))


def test_page_says_what_happened(run: Path) -> None:
    page = page_of(run)
    for wanted in (
        "Fault run: append, seed 5",
        "anomaly",
        "phantom-read",
        "--nemesis process,-pause",
        "kill 1",
        "slow 2,3: 6.0 s to 7.0 s",
        "delay_ms 12.5",
        "few from 0.5 s to 8.0 s",
        "sends per second",
        "latency of send",
        "available: share of partitions with an acknowledgement",
        "nothing, for comparison",
        "Longest unavailability: 2.0 s of t-0 at 3.0 s; during kill 1; led by 1 → 2.",
    ):
        assert wanted in page.text, wanted
    assert re.search('<td class="text">delay_ms 12.5</td>', html_of(run)), "a long one takes several lines"
    assert page.links == [
        "./history.jsonl",
        "./plan.json",
        "./summary.json",
        "./cluster/node-1.log",
    ]


def test_summary_has_the_numbers_of_the_page(run: Path) -> None:
    write_report(run)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["outcome"] == "anomaly"
    assert summary["exit_status"] == 1
    assert (summary["tier"], summary["nemesis"], summary["seed"]) == ("portable", "process,-pause", 5)
    assert summary["verdict"]["tally"]["faults"] == 2
    assert summary["anomalies"].keys() == {kind.value for kind in Anomaly}
    assert summary["anomalies"]["phantom-read"] == 1
    assert summary["anomalies"]["duplicate"] == 0
    assert [finding["kind"] for finding in summary["findings"]].count("phantom-read") == 1
    assert summary["operations"]["send"] == {"invoke": 551, "ok": 551, "fail": 0, "info": 0}
    kill = summary["faults_by_kind"]["kill"]
    assert kill["recovery_s"] == {"count": 1, "p50": 2.0, "p99": 2.0, "max": 2.0}
    assert (kill["count"], kill["alone"], kill["not_recovered"]) == (1, 1, 0)
    assert summary["longest_unavailability"] == {
        "key": "t-0",
        "at_s": 3.0,
        "length_s": 2.0,
        "faults_in_force": [{"kind": "kill", "victims": ["1"]}],
        "struck": ["1"],
        "leaderless_s": 0.0,
        "leaders": ["1", "2"],
        "before": None,
    }
    assert (summary["recovery_s"], summary["longest_leaderless_s"]) == (0.4, 1.5)
    assert summary["phases"][1] == {"name": "few", "begin_s": 0.5, "end_s": 8.0}
    assert summary["faults"][1]["settings"] == {"delay_ms": 12.5}
    assert summary["versions"] == {"pykraft": "0.1.0", "commit": None}
    assert summary["worst_lag"]["stale_polls"] == 0


def test_report_is_written_anew_with_the_same_result(run: Path) -> None:
    first = {name: write_report(run).with_name(name).read_text() for name in ("report.html", "summary.json")}
    second = {name: write_report(run).with_name(name).read_text() for name in first}
    without_time = re.compile(r'"check_s": [\d.e-]+|time to check, s</th><td class="number">[^<]+')
    assert [without_time.sub("", text) for text in first.values()] == [
        without_time.sub("", text) for text in second.values()
    ]


def test_command_repeats_the_run_in_a_shell() -> None:
    assert command_to_repeat(_SETTINGS) == (
        "pykraft jepsen run --workload append --tier portable --nemesis process,-pause --time-limit 40"
        " --nodes 3 --client own --system pykraft --seed 5"
    )
    assert command_to_repeat({"seed": 1, "nemesis": "; rm -rf ~"}) == (
        "pykraft jepsen run --nemesis '; rm -rf ~' --seed 1"
    )
    of_others = {**_SETTINGS, "bootstrap_servers": "h:1"}
    assert command_to_repeat(of_others) == (
        "pykraft jepsen run --workload append --time-limit 40 --client own --bootstrap-server h:1 --seed 5"
    )
    assert command_to_repeat({}) is None


def hostile_history() -> list[Event]:
    evil = _HOSTILE
    return [
        Event("info", "runner", 0, "run", detail=dict.fromkeys((*_SETTINGS, evil), evil)),
        Event("info", evil, 1, "producer", detail={"acks": evil}),
        Event("invoke", evil, 5, "send", evil, evil),
        Event("ok", evil, ms(900), "send", evil, evil, 0),
        Event("invoke", evil, 5, evil, evil, evil),
        Event("ok", evil, ms(50), evil, evil, evil),
        Event("ok", "nemesis", 2, evil, value=evil, detail={"target": evil, "for_s": evil, evil: evil}),
        Event("info", "observer", 3, "leader", evil, evil),
        Event("info", "node-1", 4, "node-exited", evil, error=evil),
        Event("ok", "final", ms(950), "final", evil, records=[(0, evil)]),
    ]


def test_history_of_a_stranger_is_shown_as_text(tmp_path: Path) -> None:
    page = page_of(run_directory(tmp_path, hostile_history()))
    assert "<script>alert(1)</script>" in page.text
    assert "onerror=alert(2)" in page.text
    assert not re.search(_ACTED_ON, page.text)


def test_history_of_a_stranger_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    result = conclude(run_directory(tmp_path, hostile_history()))
    console = PlainConsole(file=StringIO(), width=100)
    print_result(console, result)
    print_runs(console, [result, result])
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "node-exited" in shown and "<script>" in shown
    assert not re.search(_ACTED_ON, shown)


def test_styles_of_the_console_are_its_own(tmp_path: Path) -> None:
    console = PlainConsole(file=StringIO(), force_terminal=True, color_system="standard")
    console.say("good\x1b[31mbad", style="bold")
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == "\x1b[1mgood\ufffd[31mbad\x1b[0m\n"


def test_run_that_was_ended_early_says_so(tmp_path: Path) -> None:
    plan = Plan(5, 40.0, (Phase(Intensity.FEW, 0.0),), ())
    events = in_order(
        Event("info", "runner", 0, "run", detail=_SETTINGS),
        Event("info", "runner", ms(500), "faults-begin"),
        steadily(500, 2_000),
        Event("info", "runner", ms(2_000), "faults-end", detail={"early": True}),
        Event("info", "runner", ms(3_000), "in-sync"),
    )
    page = page_of(run_directory(tmp_path, events, plan))
    assert "the faults were ended early" in page.text
    assert "few from 0.5 s to 2.0 s" in page.text
    assert json.loads((tmp_path / "summary.json").read_text())["ended_early"]


def test_file_names_are_quoted_in_links(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / 'javascript:a" onclick=b?.log').write_text("")
    page = page_of(run_directory(tmp_path, []))
    assert "./cluster/javascript%3Aa%22%20onclick%3Db%3F.log" in page.links


@pytest.mark.parametrize(
    "events",
    [
        [],
        steadily(0, 2_500),
        fault(0, "kill", "1", 100, 200),
        fault(0, "kill", "1", 100, None),
        [Event("invoke", "p", 0, "send", "t-0", "a")],
        [Event("ok", "x", 5, "never-seen", "k", "v"), Event("info", "y", 6, "nor-this")],
        [Event("ok", "p", -5_000_000, "send", "t-0", "a", 1), Event("ok", "nemesis", -9, "kill")],
    ],
    ids=[
        "empty",
        "no faults",
        "only a fault",
        "a fault for ever",
        "unanswered",
        "unknown ops",
        "before its time",
    ],
)
def test_any_history_has_a_page(tmp_path: Path, events: list[Event]) -> None:
    directory = run_directory(tmp_path, events)
    page = page_of(directory)
    assert "Timeline" in page.text
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["events"] == len(events)
    console = Console(record=True, width=100)
    print_result(console, conclude(directory))
    assert "verdict: " in console.export_text()


def test_fault_that_was_not_recovered_from_is_seen_first(tmp_path: Path) -> None:
    hangs = sent("hangs", 900, None, "t-1")
    events = in_order(steadily(0, 3_000), hangs, fault(0, "kill", "1", 1_000, 1_100))
    assert "never recovered from a fault" in page_of(run_directory(tmp_path, events)).text
    console = Console(record=True, width=100)
    print_result(console, conclude(tmp_path))
    assert "never recovered from: kill 1" in console.export_text()


def test_page_of_hours_is_small(tmp_path: Path) -> None:
    faults = [
        event
        for n in range(5_000)
        for event in fault(n, f"kind-{n % 12}", str(n % 3), 5_000 * n, 5_000 * n + 3_000, delay_ms=n)
    ]
    events = in_order(faults, steadily(0, 25_000_000, every_ms=5_000))
    directory = run_directory(tmp_path, events)
    page_of(directory)
    assert (directory / "report.html").stat().st_size < 1_500_000
    console = Console(record=True, width=100)
    print_result(console, conclude(directory))
    assert console.export_text().count("\n") < 100


def test_history_that_is_too_large_for_memory_is_examined_elsewhere(run: Path) -> None:
    seen: list[Path] = []

    def check(path: Path) -> Report:
        seen.append(path)
        return Report((), client_resends=3)

    result = conclude(run, check)
    assert seen == [run / "history.jsonl"]
    assert (result.findings, result.report.client_resends, result.lag) == ((), 3, None)
    assert json.loads((run / "summary.json").read_text())["worst_lag"] is None


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [("history.jsonl", "{\n", HistoryError), ("plan.json", "[]", ValueError)],
)
def test_file_that_is_none_is_named(run: Path, name: str, content: str, error: type[Exception]) -> None:
    (run / name).write_text(content)
    with pytest.raises(error, match=name):
        write_report(run)


def test_text_and_attributes_are_escaped() -> None:
    html = to_html(tag("p", "<b>&\x00\ud800", tag("b", "x"), "<", None, title='"><i>', class_=None))
    assert html == '<!doctype html>\n<p title="&quot;&gt;<i&gt;">&lt;b&gt;&amp;\ufffd\ufffd<b>x</b>&lt;</p>\n'


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (0, [0, 1]),
        (0.9, [0, 0.5, 1]),
        (4, [0, 1, 2, 3, 4]),
        (37, [0, 10, 20, 30, 40]),
        (1_234_567, [0, 500_000, 1_000_000, 1_500_000]),
    ],
)
def test_ticks_are_round(high: float, ticks: list[float]) -> None:
    assert round_ticks(high, 5) == ticks


def test_logarithmic_axis_has_a_decade_at_least() -> None:
    assert powers_of_ten(0) == [1, 10]
    assert powers_of_ten(10) == [1, 10]
    assert powers_of_ten(10.5) == [1, 10, 100]


@pytest.mark.parametrize(
    ("end_s", "ticks"),
    [
        (1, [0, 1]),
        (45, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]),
        (0.5, [0]),
        (3_600, list(range(0, 3_601, 600))),
    ],
)
def test_times_are_round(end_s: float, ticks: list[int]) -> None:
    assert time_ticks_s(end_s, 11) == ticks
    assert len(time_ticks_s(30 * 86_400.0, 11)) <= 11


def test_times_are_readable() -> None:
    texts: Callable[[float], str] = time_text
    assert [texts(at_s) for at_s in (0, 119, 120, 3_599, 3_661)] == [
        "0 s",
        "119 s",
        "2:00",
        "59:59",
        "1:01:01",
    ]
