"""Takes the pictures of README and site from the real thing: ``python -m tests.docs.screenshots [NAME …]``.

A console over three nodes with clients at work, the report of a fault run, and a run of pytest. They are
written into ``docs/screenshots``; look at them before they are committed. It needs a machine without other
work, and installs Chromium and its driver where that is possible, as the tests of the console do.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from pykraft.testing import Cluster
from tests.node.web.browser import Browser, browser, need_browser

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = ROOT / "docs" / "screenshots"
WIDTH_PX, HEIGHT_PX = 1_200, 810
MOST_BYTES: Final = 200_000
TOPICS: Final = ("orders", "payments", "shipments")
TRAFFIC_S: Final = 100
"""How long clients work before the console is looked at: its charts show five minutes."""

TESTS: Final = """\
import pytest
from confluent_kafka import Producer


def test_orders_are_written(kafka, kafka_topic):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(kafka_topic, b"order 1")
    producer.flush()
    assert [record.value for record in kafka.read(kafka_topic)] == [b"order 1"]


@pytest.mark.kafka(nodes=3, properties={"min.insync.replicas": "2"})
def test_orders_survive_a_killed_leader(kafka, kafka_topic):
    kafka.produce(kafka_topic, "order 1", "order 2")
    kafka.kill(kafka.partition_leader(kafka_topic))
    assert len(kafka.read(kafka_topic, 2)) == 2


@pytest.mark.kafka(nodes=3, properties={"min.insync.replicas": "2"})
def test_a_lost_answer_writes_no_duplicate(kafka, kafka_topic):
    with kafka.lose_answer("Produce", times=1) as lost:
        kafka.produce(kafka_topic, "once")
    assert lost.met == 1 and len(kafka.read(kafka_topic)) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_every_codec_is_read_back(kafka, kafka_topic, codec):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec})
    producer.produce(kafka_topic, b"x" * 10_000)
    producer.flush()
    assert kafka.read(kafka_topic)[0].value == b"x" * 10_000
"""


def take_console(window: Browser) -> None:
    with Cluster(nodes=3, processes=True, http=True, properties={"min.insync.replicas": "2"}) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, 6)
        cluster.wait_in_sync("orders")
        with _working(cluster.bootstrap_servers):
            time.sleep(TRAFFIC_S)
            window.look(WIDTH_PX, HEIGHT_PX, scrollbars=False)
            window.open(f"http://{cluster.http_addresses[1]}/console")
            window.wait_for(".plot svg")
            window.shown("console")


def take_report(window: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="pykraft-report-") as out:
        _run(("-m", "pykraft", "jepsen", "run", "--time-limit", "60", "--seed", "7", "--out", out))
        (report,) = Path(out).rglob("report.html")
        window.look(WIDTH_PX, HEIGHT_PX, scrollbars=False)
        window.open(report.as_uri())
        window.shown("fault-report")


def take_pytest(window: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="orders-") as directory:
        project = Path(directory) / "orders"
        (project / "tests").mkdir(parents=True)
        (project / "tests" / "test_orders.py").write_text(TESTS, encoding="utf-8")
        (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
        command = ("-m", "pytest", "--verbose", "--no-header", "--color=yes", "-p", "no:cacheprovider")
        text = _run(command, project, {"COLUMNS": "100"})
        page = Path(directory) / "terminal.html"
        page.write_text(_terminal("$ pytest --verbose", text), encoding="utf-8")
        window.look(WIDTH_PX * 3 // 4, 200)
        window.open(page.as_uri())
        window.picture("pytest")


@contextmanager
def _working(servers: str) -> Iterator[None]:
    """Producers and two groups, until the end."""
    ended = threading.Event()
    threads = [threading.Thread(target=work, args=(servers, ended)) for work in (_produce, _consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _produce(servers: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    number = 0
    while not ended.is_set():
        for _ in range(40 + 20 * (number // 2_000 % 3)):
            number += 1
            producer.produce(TOPICS[number % 3], f'{{"order": {number}}}', f"customer-{number % 31}")
        producer.poll(0)
        ended.wait(0.1)
    producer.flush(30)


def _consume(servers: str, ended: threading.Event) -> None:
    consumers = []
    for group, protocol in (("billing", "classic"), ("analytics", "consumer")):
        settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": servers, **settings})
        consumer.subscribe(list(TOPICS))
        consumers.append(consumer)
    while not ended.is_set():
        for consumer in consumers:
            consumer.consume(500, 0.1)
    for consumer in consumers:
        consumer.close()


def _run(command: tuple[str, ...], cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        (sys.executable, *command),
        cwd=cwd,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _terminal(command: str, text: str) -> str:
    """A page that shows what a terminal shows."""
    console = Console(record=True, width=110, file=io.StringIO())
    console.print(command, style="bold", highlight=False)
    console.print(Text.from_ansi(text), highlight=False)
    inside = console.export_html(code_format="<pre>{code}</pre>", theme=MONOKAI, inline_styles=True)
    style = (
        "body{margin:0;padding:16px 20px;background:#16181d;color:#d7dae0}"
        "pre{margin:0;font:14px/1.4 'DejaVu Sans Mono',monospace}"
    )
    return f"<!doctype html><meta charset=utf-8><style>{style}</style>{inside}"


TAKES: Final[Mapping[str, Callable[[Browser], None]]] = {
    "console": take_console,
    "fault-report": take_report,
    "pytest": take_pytest,
}


def main() -> None:
    need_browser()
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or TAKES:
        with browser(PICTURES) as window:
            TAKES[name](window)
        size = (PICTURES / f"{name}.png").stat().st_size
        print(f"docs/screenshots/{name}.png: {size:,} bytes")
        assert size < MOST_BYTES, name


if __name__ == "__main__":
    main()
