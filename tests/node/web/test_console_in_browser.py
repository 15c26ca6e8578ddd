"""The console of a node in a real browser: wide and narrow, light and dark, with the mouse and the keyboard.

The pictures in ``build/screenshots`` are for those who want to see what was tested.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from aiohttp.test_utils import TestServer
from selenium.webdriver.common.keys import Keys

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.watch.server import WatchPage
from pykraft.kafka_client.loop_thread import LoopThread
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.faults.histories import fault, steadily
from tests.faults.reports.test_watch import begin, write
from tests.node.web.browser import Browser, browser, need_browser
from tests.node.web.console_data import HOSTILE, MODERN, ORDERS, STRANGE, fill, groups

pytestmark = pytest.mark.interop

PICTURES: Final = Path(__file__).resolve().parents[3] / "build" / "screenshots"
LOOKS: Final = {
    "light": (1_200, 900, False),
    "dark": (1_200, 900, True),
    "phone": (390, 800, False),
    "phone-dark": (360, 740, True),
}
"""Width and height of the window, and whether it is dark."""
PAGES: Final = {
    "overview": "/console",
    "topics": "/console/topics?internal=1",
    "topic": f"/console/topics/{ORDERS}",
    "records": f"/console/topics/{ORDERS}/records?partition=0",
    "record": f"/console/topics/{ORDERS}/records?partition=0&from=offset&offset=5&limit=1",
    "strange": f"/console/topics/{STRANGE}/records?partition=0",
    "produce": f"/console/topics/{ORDERS}/produce",
    "groups": "/console/groups",
    "group": f"/console/group?id={MODERN}",
    "brokers": "/console/brokers",
    "broker": "/console/brokers/1",
    "quorum": "/console/quorum",
}


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, ProcessCluster]]:
    """Three nodes with something to show; the first serves the console."""
    need_browser()
    PICTURES.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    with (
        tempfile.TemporaryDirectory(prefix="pykraft-console-") as directory,
        ProcessCluster(Path(directory), 3, {**FAST_FAILOVER, "min.insync.replicas": "2"}) as cluster,
    ):
        cluster.format()
        with cluster.config_file(1).open("a", encoding="utf-8") as file:
            file.write(f"pykraft.http.listener=127.0.0.1:{port}\npykraft.http.console=produce\n")
        cluster.start()
        fill(cluster.bootstrap_servers, 3)
        with groups(cluster.bootstrap_servers):
            yield f"http://127.0.0.1:{port}", cluster


@pytest.fixture(scope="module")
def window(site: tuple[str, ProcessCluster]) -> Iterator[Browser]:
    with browser(PICTURES) as window:
        yield window


@pytest.fixture
def page(window: Browser) -> Browser:
    """As it is without any wishes, and empty."""
    window.look()
    window.open("about:blank")
    window.complaints()
    return window


def check(page: Browser, name: str) -> None:
    """What holds of every page."""
    assert page.complaints() == [], name
    assert not page.overflows(), name
    assert page.nameless() == [], name
    assert "Traceback" not in page.text, name


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_shown_in_every_look(
    site: tuple[str, ProcessCluster], page: Browser, look: str
) -> None:
    width, height, dark = LOOKS[look]
    page.look(width, height, dark=dark)
    for name, path in PAGES.items():
        page.open(site[0] + path)
        if name == "overview":
            wait_until("charts", lambda: page.count("svg") == 4, PATIENCE_S)
        check(page, name)
        page.picture(f"{name}-{look}")
    assert page.is_dark == dark


def test_pages_are_reached_by_following_links(site: tuple[str, ProcessCluster], page: Browser) -> None:
    page.open(site[0])
    for selector, shown in (
        ("nav a[href='/console/topics']", "3 topics"),
        (f"a[href='/console/topics/{ORDERS}']", "Configuration"),
        ("a.button", "Records"),
        ("details summary", "Records"),
        ("nav a[href='/console/groups']", MODERN),
        (f"a[href$='id={MODERN}']", "records behind"),
        ("nav a[href='/console/brokers']", "active controller"),
        ("a[href='/console/brokers/2']", "Log directories"),
        ("nav a[href='/console/quorum']", "metadata.version"),
    ):
        (page.click if selector == "details summary" else page.follow)(selector)
        assert shown in page.text, (selector, page.text)
        check(page, selector)


def test_record_is_produced_and_what_strangers_write_is_not_run(
    site: tuple[str, ProcessCluster], page: Browser
) -> None:
    page.open(f"{site[0]}{PAGES['produce']}")
    page.fill("[name=key]", HOSTILE)
    page.fill("[name=value]", HOSTILE)
    page.follow("form button")
    assert "The record was written" in page.text and HOSTILE in page.text
    page.open(f"{site[0]}{PAGES['strange']}")
    assert HOSTILE in page.text
    check(page, "produced")


def test_keyboard_reaches_everything(site: tuple[str, ProcessCluster], page: Browser) -> None:
    page.open(f"{site[0]}{PAGES['records']}")
    reached = [page.tab() for _ in range(18)]
    assert reached[0] == "A Skip to the content" and reached[1] == "A pykraft"
    assert [it for it in reached if it.startswith("A ")][2:7] == [
        *("A Overview", "A Topics", "A Groups", "A Brokers", "A Quorum")
    ]
    fields = ("SELECT", "INPUT offset", "INPUT time", "INPUT contains", "BUTTON Show", "SUMMARY More")
    for field in fields:
        assert any(it.startswith(field) for it in reached), (field, reached)
    while not page.tab().startswith("SUMMARY 0"):
        pass
    page.press(Keys.ENTER)
    assert '"order": ' in page.evaluate("document.querySelector('details[open] pre.json').innerText")


def test_page_works_without_scripts(site: tuple[str, ProcessCluster], page: Browser) -> None:
    page.look(scripts=False)
    page.open(f"{site[0]}/console")
    assert "brokers active" in page.text and "Drawn by a script." in page.text
    page.follow("nav a[href='/console/topics']")
    assert ORDERS in page.text


def test_fault_run_is_watched(site: tuple[str, ProcessCluster], page: Browser, tmp_path: Path) -> None:
    begin(tmp_path)
    write(tmp_path, [*steadily(1_000, 9_000), *fault(1, "kill", "1", 2_000, 4_000)])
    page.look(390, 800, dark=True)
    with LoopThread() as thread:
        server = TestServer(thread.call(WatchPage(tmp_path).app))
        thread.run(server.start_server())
        try:
            page.open(str(server.make_url("/")))
            assert "pause" not in page.text and "append, seed 7" in page.text
            write(tmp_path, fault(2, "pause", "2", 8_000, None))
            wait_until("the new fault is shown", lambda: "pause" in page.text, PATIENCE_S)
            check(page, "watch")
            page.picture("watch-phone-dark")
        finally:
            thread.run(server.close())


def test_broker_that_is_gone_is_seen_at_once(site: tuple[str, ProcessCluster], page: Browser) -> None:
    """The last test: the broker stays away."""
    address, cluster = site
    cluster.nodes[3].kill()

    def is_seen() -> bool:
        page.open(f"{address}/console")
        return "Needs attention" in page.text and "fenced" in page.text

    wait_until("the broker is missed", is_seen, PATIENCE_S)
    check(page, "trouble")
    page.picture("trouble-light")
