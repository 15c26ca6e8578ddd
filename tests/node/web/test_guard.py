"""Who a node answers over HTTP, at every address that it may listen on, and what browsers are told."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from pykraft.node.web import routes
from pykraft.runtime.free_ports import free_ports
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.node.web.raw_http import Answer, RawHttp

TOPIC = "guarded"
PRODUCE = f"/console/topics/{TOPIC}/produce"
FORM = ("Content-Type", "application/x-www-form-urlencoded")
RECORD = urlencode({"partition": "0", "value": "written by hand"}).encode()
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Server": "pykraft",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer."""
PUBLIC, LOOPBACK = "0.0.0.0", "127.0.0.1"


@pytest.fixture(scope="module", params=[PUBLIC, LOOPBACK])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[RawHttp, Cluster]]:
    (port,) = free_ports(1)
    properties = {
        "pykraft.http.listener": f"{request.param}:{port}",
        "pykraft.http.console": "produce",
        "pykraft.http.allowed.hosts": "console.example",
    }
    with Cluster(http=True, properties=properties) as cluster:
        site = RawHttp(port)
        wait_until("it serves", lambda: _serves(site), PATIENCE_S)
        cluster.create_topic(TOPIC)
        yield site, cluster


def _serves(site: RawHttp) -> bool:
    try:
        return site.ask("/readyz").status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def site(server: tuple[RawHttp, Cluster]) -> RawHttp:
    return server[0]


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "10.1.2.3:8080", "[::1]:80", "Console.Example."]
)
@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/console", "/console/static/console.css"])
def test_server_answers_to_its_names(site: RawHttp, path: str, host: str) -> None:
    assert site.ask(path, hosts=[host]).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example@localhost", "a.console.example", "", "console"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/console", "/none", PRODUCE])
def test_server_answers_to_no_other_name(site: RawHttp, path: str, method: str, host: str) -> None:
    answer = site.ask(path, method, hosts=[host])
    assert answer.status == 421
    assert "pykraft.http.allowed.hosts" in answer.text or method == "HEAD"


def test_page_of_a_stranger_neither_reads_nor_writes_under_a_name_of_its_own(
    server: tuple[RawHttp, Cluster],
) -> None:
    """DNS rebinding: ``evil.example`` was made to lead here after its page had been loaded."""
    site, cluster = server
    before = cluster.read(TOPIC)
    host = f"evil.example:{site.host.rpartition(':')[2]}"
    assert site.ask(f"/console/topics/{TOPIC}/records", hosts=[host]).status == 421
    own = [FORM, ("Origin", f"http://{host}"), ("Sec-Fetch-Site", "same-origin")]
    assert site.ask(PRODUCE, "POST", own, hosts=[host], body=RECORD).status == 421
    assert cluster.read(TOPIC) == before


@pytest.mark.parametrize("hosts", [[], ["evil.example", "127.0.0.1"], ["127.0.0.1", "evil.example"]])
def test_request_without_one_name_is_refused(site: RawHttp, hosts: list[str]) -> None:
    assert site.ask("/metrics", hosts=hosts).status in (400, 421)
    assert site.ask("/metrics", hosts=[site.host]).status == 200


def test_old_request_without_a_name_is_refused(site: RawHttp) -> None:
    assert site.send(b"GET /metrics HTTP/1.0\r\n\r\n").status == 421


@pytest.mark.parametrize("target", ["http://evil.example/metrics", "http://evil.example@127.0.0.1/metrics"])
def test_name_in_the_request_line_is_looked_at(site: RawHttp, target: str) -> None:
    assert site.ask(target).status in (400, 421)
    assert site.ask(f"http://{site.host}/metrics").status == 200
    assert site.ask(f"http://{site.host}/metrics", hosts=["evil.example"]).status == 421


@pytest.mark.parametrize(
    "header",
    [
        ("X-Forwarded-Host", "{}"),
        ("Forwarded", "host={}"),
        ("X-Original-Host", "{}"),
        ("X-Host", "{}"),
        ("X-Forwarded-Server", "{}"),
        ("X-Real-IP", "127.0.0.1"),
    ],
)
def test_what_proxies_say_changes_nothing(site: RawHttp, header: tuple[str, str]) -> None:
    name, value = header
    assert (
        site.ask("/metrics", headers=[(name, value.format("localhost"))], hosts=["evil.example"]).status
        == 421
    )
    assert site.ask("/metrics", headers=[(name, value.format("evil.example"))]).status == 200
    foreign = [FORM, ("Origin", "http://evil.example"), (name, value.format("evil.example"))]
    assert site.ask(PRODUCE, "POST", foreign, body=RECORD).status == 403


# --- pages of other sites ---------------------------------------------------------------------------------


def test_own_page_writes(server: tuple[RawHttp, Cluster]) -> None:
    site, cluster = server
    for origin, host in (
        (f"http://{site.host}", site.host),
        ("http://localhost:1", "localhost:1"),
        ("https://console.example", "console.example"),
    ):
        written = len(cluster.read(TOPIC))
        headers = [FORM, ("Origin", origin), ("Sec-Fetch-Site", "same-origin")]
        answer = site.ask(PRODUCE, "POST", headers, hosts=[host], body=RECORD)
        assert answer.status == 303
        (location,) = answer.header("Location")
        assert location.startswith(f"/console/topics/{TOPIC}/records?")
        assert len(cluster.read(TOPIC)) == written + 1


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", "http://evil.example")],
        [("Origin", "null")],
        [("Origin", "")],
        [("Origin", "http://localhost")],
        [("Origin", "http://127.0.0.1:1")],
        [("Origin", "http://{host}"), ("Origin", "http://evil.example")],
        [("Origin", "http://{host}"), ("Sec-Fetch-Site", "cross-site")],
        [("Origin", "http://{host}"), ("Sec-Fetch-Site", "same-site")],
        [("Origin", "http://{host}"), ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "")],
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")],
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_page_of_another_site_changes_nothing(
    server: tuple[RawHttp, Cluster], method: str, headers: list[tuple[str, str]]
) -> None:
    site, cluster = server
    before = cluster.read(TOPIC)
    sent = [FORM, *((name, value.format(host=site.host)) for name, value in headers)]
    assert site.ask(PRODUCE, method, sent, body=RECORD).status == 403
    assert cluster.read(TOPIC) == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "document"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Sec-Fetch-Site": "elsewhere"}, 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_other_sites_may_have_links_here_and_load_nothing(
    site: RawHttp, method: str, headers: dict[str, str], status: int
) -> None:
    for path in ("/metrics", "/console", "/console/traffic.json"):
        answer = site.ask(path, method, list(headers.items()))
        assert answer.status == status
        assert not answer.header("Access-Control-Allow-Origin")


# --- headers ----------------------------------------------------------------------------------------------

ANSWERS: dict[str, tuple[int, Callable[[RawHttp], Answer]]] = {
    "health": (200, lambda site: site.ask("/healthz")),
    "readiness": (200, lambda site: site.ask("/readyz")),
    "head": (200, lambda site: site.ask("/healthz", "HEAD")),
    "metrics": (200, lambda site: site.ask("/metrics")),
    "page": (200, lambda site: site.ask("/console")),
    "rates": (200, lambda site: site.ask("/console/traffic.json")),
    "style": (200, lambda site: site.ask("/console/static/console.css")),
    "script": (200, lambda site: site.ask("/console/static/console.js")),
    "icon": (200, lambda site: site.ask("/console/static/icon.svg")),
    "redirect": (302, lambda site: site.ask("/")),
    "written": (303, lambda site: site.ask(PRODUCE, "POST", [FORM], body=RECORD)),
    "bad request": (400, lambda site: site.ask("/console/topics?page=0")),
    "bad form": (400, lambda site: site.ask(PRODUCE, "POST", [FORM], body=b"partition=x")),
    "no request": (400, lambda site: site.send(b"no request at all\r\n\r\n")),
    "long header": (400, lambda site: site.ask("/healthz", headers=[("X-Long", "x" * 20_000)])),
    "other site": (403, lambda site: site.ask(PRODUCE, "POST", [FORM, ("Origin", "null")], body=RECORD)),
    "no topic": (404, lambda site: site.ask("/console/topics/none")),
    "no page": (404, lambda site: site.ask("/console/none")),
    "no file": (404, lambda site: site.ask("/console/static/none.js")),
    "nothing": (404, lambda site: site.ask("/none")),
    "other method": (405, lambda site: site.ask("/metrics", "POST")),
    "trace": (405, lambda site: site.ask("/console", "TRACE")),
    "too large": (413, lambda site: site.ask(PRODUCE, "POST", [FORM], body=b"x" * (3 << 20))),
    "no form": (415, lambda site: site.ask(PRODUCE, "POST", body=RECORD)),
    "expectation": (417, lambda site: site.ask("/healthz", headers=[("Expect", "wonders")])),
    "other name": (421, lambda site: site.ask("/healthz", hosts=["evil.example"])),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_answer_has_every_header(site: RawHttp, kind: str) -> None:
    status, ask = ANSWERS[kind]
    check(ask(site), status)


def check(answer: Answer, status: int) -> None:
    assert answer.status == status, answer
    assert {name: answer.header(name) for name in HEADERS} == {name: [it] for name, it in HEADERS.items()}
    assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]


def test_failures_of_the_server_have_every_header(site: RawHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "why_not_ready", lambda node, now_ms: "a test is running")
    check(site.ask("/readyz"), 503)

    def fail(*_: object) -> str:
        raise ValueError("secret")

    monkeypatch.setattr(routes, "why_not_ready", fail)
    for accept in ("text/html", "text/plain"):
        answer = site.ask("/readyz", headers=[("Accept", accept)])
        check(answer, 500)
        assert "secret" not in answer.text and "Traceback" not in answer.text


def test_content_is_what_it_says(site: RawHttp) -> None:
    for path, kind in (
        ("/healthz", "text/plain; charset=utf-8"),
        ("/console", "text/html; charset=utf-8"),
        ("/console/traffic.json", "application/json; charset=utf-8"),
        ("/console/static/console.css", "text/css; charset=utf-8"),
        ("/console/static/console.js", "text/javascript; charset=utf-8"),
        ("/console/static/icon.svg", "image/svg+xml; charset=utf-8"),
    ):
        assert site.ask(path).header("Content-Type") == [kind]
    (kind,) = site.ask("/metrics").header("Content-Type")
    assert kind.startswith("text/plain; version=")


# --- bounds -----------------------------------------------------------------------------------------------


def test_scrapes_beyond_two_at_once_are_refused_and_do_not_wait(
    site: RawHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[asyncio.AbstractEventLoop] = []
    go_on = asyncio.Event()

    async def wait(*_: object) -> bytes:
        begun.append(asyncio.get_running_loop())
        await go_on.wait()
        return b"scraped\n"

    monkeypatch.setattr(routes, "expose", wait)
    with ThreadPoolExecutor(2) as pool:
        try:
            asked = [pool.submit(site.ask, "/metrics") for _ in range(2)]
            wait_until("two are being made", lambda: len(begun) == 2, PATIENCE_S)
            for _ in range(3):
                refused = site.ask("/metrics")
                check(refused, 503)
                assert refused.text == "too many scrapes at once\n"
        finally:
            begun[0].call_soon_threadsafe(go_on.set)
        assert [one.result().text for one in asked] == ["scraped\n"] * 2
    assert len(begun) == 2
    monkeypatch.undo()
    assert site.ask("/metrics").status == 200


def test_scrape_that_fails_or_is_given_up_makes_room_for_others(
    site: RawHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> bytes:
        raise ValueError("no metrics today")

    monkeypatch.setattr(routes, "expose", fail)
    for _ in range(5):
        check(site.ask("/metrics"), 500)
    monkeypatch.undo()
    assert site.ask("/metrics").status == 200


def test_free_port_is_chosen_and_told(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return re.findall(r"served at http://127\.0\.0\.1:([1-9]\d*)/", caplog.text)

    with (
        caplog.at_level(logging.INFO, "pykraft.node.web.server"),
        Cluster(http=True, properties={"pykraft.http.listener": "127.0.0.1:0"}),
    ):
        wait_until("the address is told", lambda: bool(told()), PATIENCE_S)
        assert RawHttp(int(told()[0])).ask("/healthz").status == 200
