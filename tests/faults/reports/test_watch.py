"""A run that is watched while it goes on: its history is followed, and a page shows where it is."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from pykraft.jepsen_like.faults.history import Event, HistoryError, HistoryWriter
from pykraft.jepsen_like.faults.nemeses.fault import Intensity, Phase, Plan
from pykraft.jepsen_like.faults.run_files import CLUSTER, HISTORY, PAGE, PLAN
from pykraft.jepsen_like.faults.runs.conclusion import conclude
from pykraft.jepsen_like.faults.watch.follower import HistoryFollower
from pykraft.jepsen_like.faults.watch.live_page import build_document, build_fragment
from pykraft.jepsen_like.faults.watch.live_run import NOBODY, LiveRun, find_run
from pykraft.jepsen_like.faults.watch.server import WatchPage
from pykraft.node.web.guard import guarded
from tests.faults.histories import fault, led, ms, steadily
from tests.faults.reports.test_report_page import Page

THE_PLAN = Plan(1, 10.0, (Phase(Intensity.MANY, 0.0), Phase(Intensity.NONE, 5.0)), ())
SETTINGS = {"workload": "append", "seed": 7, "nemesis": "mixed", "tier": "portable"}
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def add(directory: Path, text: str) -> None:
    with (directory / HISTORY).open("a", encoding="utf-8") as file:
        file.write(text)


def write(directory: Path, events: Iterable[Event]) -> None:
    add(directory, "".join(event.to_json() + "\n" for event in events))


def begin(directory: Path) -> None:
    """A run whose faults began after a second."""
    THE_PLAN.write(directory / PLAN)
    started = Event("info", "runner", 0, "run", detail=SETTINGS)
    write(directory, [started, Event("info", "runner", ms(1_000), "faults-begin")])


def read_on(run: LiveRun) -> LiveRun:
    run.read_on(60)
    assert run.left_bytes == 0
    return run


def test_follower_reads_what_was_added_and_only_whole_lines(tmp_path: Path) -> None:
    follower, (one, two) = HistoryFollower(tmp_path / HISTORY), fault(1, "kill", "1", 10, 20)
    assert follower.read() == [] and follower.left_bytes == 0
    write(tmp_path, [one])
    assert follower.read() == [one] and follower.read() == []
    line = two.to_json() + "\n"
    for part in (line[:10], line[10:]):
        add(tmp_path, part)
        assert follower.left_bytes == len(part)
        found = follower.read()
    assert found == [two] and follower.left_bytes == 0


def test_follower_names_the_line_that_is_no_event(tmp_path: Path) -> None:
    write(tmp_path, fault(1, "kill", "1", 10, None))
    add(tmp_path, "{}\n")
    follower = HistoryFollower(tmp_path / HISTORY)
    assert len(follower.read()) == 1
    for _ in range(2):
        with pytest.raises(HistoryError, match=f"{HISTORY}:2: not an event"):
            follower.read()


def test_faults_are_in_the_file_as_soon_as_they_are_recorded(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / HISTORY) as history:
        history.record("ok", "nemesis", "kill", value="1", detail={"number": 1})
        (event,) = HistoryFollower(tmp_path / HISTORY).read()
        assert event.op == "kill"


def test_run_is_shown_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = read_on(LiveRun(tmp_path))
    assert run.stage == "starting" and run.progress is None
    begin(tmp_path)
    write(tmp_path, [*steadily(1_000, 3_000), led("t-0", "1", 0), led("t-1", NOBODY, 0)])
    write(tmp_path, fault(1, "pause", "2", 2_000, 2_500) + fault(2, "kill", "3", 2_600, None))
    write(tmp_path, [Event("info", "observer", ms(2_800), "controller", value="2")])
    read_on(run)
    assert run.stage == "faults" and run.progress == pytest.approx(0.2, abs=0.01)
    assert run.per_second("ok") == [0, 100, 100] and run.per_second("fail", "info") == [0, 0, 0]
    assert run.controller == "2" and run.leaders() == {"1": 1, NOBODY: 1}
    page = build_fragment(run, str(tmp_path))
    for text in ("append, seed 7", "2 of 10 s, many faults", "200", "1 by 1", "partitions led, 1 by nobody"):
        assert text in page, text
    in_force = page.partition('id="in-force"')[2].partition("</section>")[0]
    assert "kill" in in_force and "pause" not in in_force
    write(tmp_path, [Event("info", "runner", ms(12_000), "in-sync")])
    assert "in sync again" in build_fragment(read_on(run), "")
    (tmp_path / PAGE).touch()
    assert "No verdict can be read" in build_fragment(read_on(run), "")


def test_what_is_no_history_is_told_and_what_came_before_is_shown(tmp_path: Path) -> None:
    begin(tmp_path)
    add(tmp_path, "no event\n")
    run = LiveRun(tmp_path)
    run.read_on(60)
    page = build_fragment(run, "")
    assert "No more is read: history.jsonl:3: not JSON" in page and "append, seed 7" in page
    far = tmp_path / "far"
    far.mkdir()
    write(far, [Event("ok", "p", ms(1e12), "send", "t-0", "v")])
    run = LiveRun(far)
    run.read_on(60)
    assert run.problem is not None and "no run is that long" in run.problem


def test_whatever_a_history_and_nodes_hold_is_only_shown(tmp_path: Path) -> None:
    begin(tmp_path)
    write(tmp_path, fault(1, HOSTILE, HOSTILE, 1_000, None, why=HOSTILE))
    write(tmp_path, [Event("info", "runner", ms(1_100), HOSTILE, HOSTILE, HOSTILE, error=HOSTILE)])
    (tmp_path / CLUSTER).mkdir()
    (tmp_path / CLUSTER / "node-1.log").write_text(f"first\n{HOSTILE}\n", encoding="utf-8")
    page = build_document(read_on(LiveRun(tmp_path)), str(tmp_path))
    assert "<script>alert" not in page and page.count("<script") == 1 and "style=" not in page
    assert "&lt;script&gt;alert" in page and "\x1b" not in page and "\u202e" not in page


def test_the_run_that_was_written_to_last_is_found(tmp_path: Path) -> None:
    assert find_run(tmp_path) is None
    assert "There is no run in" in build_document(None, str(tmp_path))
    for number, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        begin(tmp_path / name)
        os.utime(tmp_path / name / HISTORY, (number, number))
    assert find_run(tmp_path) == tmp_path / "two" and find_run(tmp_path / "one") == tmp_path / "one"


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[ClientSession]:
    runner = await guarded(WatchPage(directory).app(), ())
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ((host, port),) = runner.addresses
        async with ClientSession(f"http://{host}:{port}") as client:
            yield client
    finally:
        await runner.cleanup()


async def test_page_is_served_to_this_machine_only_and_follows_the_run(tmp_path: Path) -> None:
    async with watched(tmp_path) as client:
        assert "There is no run in" in await (await client.get("/")).text()
        (tmp_path / "run").mkdir()
        begin(tmp_path / "run")
        answer = await client.get("/main")
        text = await answer.text()
        assert text.startswith("<main>") and "append, seed 7" in text
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        write(tmp_path / "run", fault(1, "kill", "1", 2_000, None))
        assert "kill" in await (await client.get("/main")).text()
        for path in ("/style.css", "/watch.js", "/icon.svg"):
            assert (await client.get(path)).status == 200
        assert (await client.get("/", headers={"Host": "elsewhere.example"})).status == 421


async def test_finished_run_shows_its_verdict_and_its_report(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "secret.txt").write_text("not for others")
    (tmp_path / CLUSTER).mkdir()
    (tmp_path / CLUSTER / "node-1.log").write_text("started")
    write(tmp_path, [Event("ok", "final-0", ms(3_000), "final", "t-0", records=[(0, "phantom")])])
    async with watched(tmp_path) as client:
        assert (await client.get(f"/{PAGE}")).status == 404
        assert conclude(tmp_path).outcome == "anomaly"
        page = await (await client.get("/main")).text()
        assert f'href="/{PAGE}"' in page and "phantom-read: " in page and ">anomaly<" in page
        report = await client.get(f"/{PAGE}")
        assert report.content_type == "text/html"
        assert "style-src 'unsafe-inline'" in report.headers["Content-Security-Policy"]
        assert "default-src 'none'" in report.headers["Content-Security-Policy"]
        for link in Page(await report.text()).links:
            answer = await client.get(f"/{link.removeprefix('./')}")
            assert (answer.status, answer.content_type) == (200, "text/plain")
        for path in ("/secret.txt", "/cluster", "/cluster/../secret.txt", "/%2e%2e/secret.txt"):
            assert (await client.get(path)).status == 404
        assert (await client.get(f"/{PAGE}", headers={"Host": "elsewhere.example"})).status == 421


@pytest.mark.slow
def test_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    begin(tmp_path)
    command = [sys.executable, "-m", "pykraft.node", "jepsen", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().partition("watched at ")[2].partition(";")[0]
            with urllib.request.urlopen(address) as answer:
                assert "append, seed 7" in answer.read().decode()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
