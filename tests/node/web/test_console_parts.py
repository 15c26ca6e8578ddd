"""What the pages are made of: text of data, samples of traffic, long lists, large batches."""

import asyncio
import re
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import cast

import pytest

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.list_offsets import READ_UNCOMMITTED
from pykraft.kafka_client.metadata import Partition, Topic, TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig
from pykraft.kafka_client.results import BrokerDescription, ClusterDescription
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.record_codec import RecordInput, encode_records
from pykraft.node.web.console import data_text, topic_pages
from pykraft.node.web.console.asked_brokers import AskedBrokers
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.data_text import MOST_JSON_BYTES, Format, show
from pykraft.node.web.console.extents import Extents
from pykraft.node.web.console.page import Problem
from pykraft.node.web.console.paging import ListPage, page_of
from pykraft.node.web.console.parameters import Parameters
from pykraft.node.web.console.record_reader import Allowance, Found, RecordReader
from pykraft.node.web.console.survey import MOST_TROUBLED, survey, topic_row
from pykraft.node.web.console.templating import UNKNOWN, ago, render, size, utc
from pykraft.node.web.console.topic_pages import TopicsPage
from pykraft.node.web.console.traffic import Counters, TrafficSamples
from pykraft.runtime.clock import monotonic_us
from pykraft.testing import Cluster

ROOT = Path(__file__).resolve().parents[3]


def test_templates_and_static_files_are_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        shipped = tomllib.load(file)["tool"]["setuptools"]["package-data"]
    for package in ("node/web/console", "jepsen_like/faults/watch"):
        folder = ROOT / package
        patterns = shipped["pykraft." + package.replace("/", ".")]
        files = [it.relative_to(folder).as_posix() for it in folder.glob("*/*.*") if it.suffix != ".pyc"]
        assert files and all(any(fnmatch(name, one) for one in patterns) for name in files)


def test_json_is_laid_out_without_changing_what_it_says() -> None:
    shown = show(b' {"a":1.50,"a":[],"b":{"c":"x,y}\\"","d":[1,2]},"e":1e400}', Format.AUTO, 1_000)
    assert shown.kind == "json"
    assert shown.text.splitlines() == [
        "{",
        '  "a": 1.50,',
        '  "a": [],',
        '  "b": {',
        '    "c": "x,y}\\"",',
        '    "d": [',
        "      1,",
        "      2",
        "    ]",
        "  },",
        '  "e": 1e400',
        "}",
    ]


@pytest.mark.parametrize(
    "data",
    [b"[" * 200_000, b"[" * 200_000 + b"]" * 200_000, b"{", b'{"a":NaN', b"[1]x", b'"text"', b"1" * 5_000],
)
def test_what_is_no_json_or_no_object_is_text(data: bytes) -> None:
    assert show(data, Format.AUTO, 100).kind == "text"


def test_text_is_cut_between_characters() -> None:
    shown = show("ä".encode() * 1_000, Format.AUTO, 99)
    assert (shown.kind, shown.text, shown.is_cut, shown.size_bytes) == ("text", "ä" * 99, True, 2_000)
    assert show("ä".encode() * 99, Format.AUTO, 99).is_cut is False
    assert show("ä".encode()[:1], Format.AUTO, 99).kind == "hex"


def test_deeply_nested_json_is_cut_before_it_grows() -> None:
    data = b"[" * 900 + b"1," * 25_000 + b"1" + b"]" * 900
    shown = show(data, Format.JSON, 2_000)
    assert shown.kind == "json" and shown.is_cut and len(shown.text) == 2_000


class Counted:
    """A pattern that counts what it has found."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.found = 0

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        for match in self._pattern.finditer(text):
            self.found += 1
            yield match

    def findall(self, text: str) -> list[str]:
        found = list(self.finditer(text))
        return [match[0] for match in found]


def test_no_more_of_json_is_laid_out_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call over all of it would keep the node's own loop waiting."""
    tokens = Counted(data_text._TOKEN)
    monkeypatch.setattr(data_text, "_TOKEN", tokens)
    shown = show(b"[" + b"1," * 30_000 + b"1]", Format.AUTO, 2_048)
    assert shown.kind == "json" and shown.is_cut and len(shown.text) == 2_048
    assert tokens.found <= 2_048


def test_only_data_of_bounded_size_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    monkeypatch.setattr(f"{data_text.__name__}.json.loads", lambda text: parsed.append(len(text)))
    for size_bytes, kind in ((MOST_JSON_BYTES, "json"), (MOST_JSON_BYTES + 1, "text")):
        data = b"[" + b" " * (size_bytes - 2) + b"]"
        for wanted in (Format.AUTO, Format.JSON):
            assert show(data, wanted, 100).kind == kind
    assert parsed == [MOST_JSON_BYTES] * 2
    assert "65,536 bytes are not laid out" in show(data, Format.JSON, 100).note
    assert show(data, Format.AUTO, 100).note == ""


@pytest.mark.parametrize("size_bytes", [1 << 10, 1 << 20, 64 << 20])
def test_no_more_of_text_is_translated_than_is_shown(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    translated: list[int] = []

    def translate(text: str) -> str:
        translated.append(len(text))
        return text

    monkeypatch.setattr(data_text, "visible", translate)
    shown = show(b"x" * size_bytes, Format.AUTO, 2_048)
    assert (shown.kind, shown.size_bytes, shown.is_cut) == ("text", size_bytes, size_bytes > 2_048)
    assert translated and max(translated) <= 2_048


@pytest.mark.parametrize("most", [16, 100, 2_048])
@pytest.mark.parametrize("wanted", Format)
@pytest.mark.parametrize(
    "data",
    [
        b"x" * 10_000,
        b"\x00" * 10_000,
        b"\x1b" * 10_000,
        "\u202e".encode() * 9_000,
        b'{"a":"' + b"x" * 9_000 + b'"}',
    ],
)
def test_what_is_shown_is_bounded_whatever_it_is(data: bytes, wanted: Format, most: int) -> None:
    shown = show(data, wanted, most)
    rows = len(shown.text.splitlines())
    assert shown.is_cut
    assert len(shown.text) <= (rows * 100 if shown.kind == "hex" else most)
    assert shown.kind != "hex" or rows == -(-max(16, most // 4) // 16)


def test_sizes_and_times_are_in_words() -> None:
    assert [size(it) for it in (None, -1, 1023, 1536, 5 << 30)] == [
        UNKNOWN,
        UNKNOWN,
        "1,023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert utc(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert [utc(it) for it in (-1, -5, 1 << 62)] == ["no timestamp", "-5 ms", f"{1 << 62} ms"]
    assert ago(1_000, 2_500) == "1.5 s ago" and ago(0, 1_000_000) == "1970-01-01 00:00:00.000"


def test_long_list_is_shown_a_page_at_a_time() -> None:
    items = [f"topic-{number}" for number in range(10_000)]
    page = page_of(items, 100)
    assert (page.pages, page.first, page.last, page.items[-1]) == (100, 9_901, 10_000, "topic-9999")
    beyond = page_of(items, 101)
    assert (beyond.items, beyond.first, beyond.last) == ([], 0, 0)


def test_survey_counts_troubled_partitions_by_topic() -> None:
    def partition(index: int, leader: int | None, isr: tuple[int, ...]) -> Partition:
        return Partition("t", ZERO_UUID, index, leader, 0, (1, 2), isr)

    partitions = [partition(0, 1, (1, 2)), partition(1, 2, (2,)), partition(2, None, (1,))]
    topic = Topic("t", ZERO_UUID, False, {one.index: one for one in partitions})
    found = survey([topic])
    assert (found.topics, found.partitions, found.under_replicated, found.offline) == (1, 3, 2, 1)
    assert found.troubled == (topic_row(topic),) and found.more_troubled == 0
    assert found.leaders_of == {1: 1, 2: 1} and found.replicas_of == {1: 3, 2: 3}
    assert topic_row(topic).replicas == 2


def troubled_topic(name: str, partitions: int) -> Topic:
    made = {n: Partition(name, ZERO_UUID, n, 1, 0, (1, 2), (1,)) for n in range(partitions)}
    return Topic(name, ZERO_UUID, name.startswith("__"), made)


def test_overview_has_a_row_per_troubled_topic_and_a_link_to_all() -> None:
    topics = [troubled_topic("__consumer_offsets", 50), *(troubled_topic(f"t{n}", 2) for n in range(9))]
    facts = {
        "cluster": ClusterDescription("c", 1, (BrokerDescription(1, "h", 9092, None, False),)),
        "survey": survey(topics),
        "asked": AskedBrokers([], {}, frozenset()),
        "quorum": Problem("not known"),
        "node_id": 1,
        "may_produce": False,
        "tabs": [],
        "tab": "",
        "not_ready": None,
    }
    text = render("overview.html", **facts)
    assert text.count('href="/console/topics/') == MOST_TROUBLED
    assert text.count('href="/console/topics/__consumer_offsets"') == 1 and "50 under-replicated" in text
    assert 'href="/console/topics?internal=1&amp;troubled=1"' in text and ": 2 more" in text


def test_list_of_troubled_topics_leaves_out_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Topic("fine", ZERO_UUID, False, {0: Partition("fine", ZERO_UUID, 0, 1, 0, (1,), (1,))})
    topics = [troubled_topic("__consumer_offsets", 50), fine, troubled_topic("hurt", 2)]

    async def all_of_them(admin: Admin) -> list[Topic]:
        return topics

    async def unknown(*_: object) -> Extents:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")

    monkeypatch.setattr(topic_pages, "all_topics", all_of_them)
    monkeypatch.setattr(topic_pages, "extents_of", unknown)
    page = TopicsPage.parse(Parameters({"internal": "1", "troubled": "1"}), {})
    shown = asyncio.run(page.load(cast(Admin, None), CallLimits()))["page"]
    assert isinstance(shown, ListPage) and [row.name for row in shown.items] == ["__consumer_offsets", "hurt"]


def test_rates_are_those_between_samples() -> None:
    pending: list[Callable[[], None]] = []
    now_ms, counters = 0, Counters(0, 0, 0, 0)

    class Timer:
        def cancel(self) -> None:
            pending.clear()

    def call_later(delay_s: float, callback: Callable[[], None]) -> Timer:
        pending.append(callback)
        return Timer()

    samples = TrafficSamples(lambda: counters, call_later, lambda: now_ms)
    samples.start()
    for _ in range(200):
        now_ms += 2_000
        counters = Counters(*(value + 10 for value in counters))
        pending.pop()()
    rates = samples.rates()
    assert rates["bytes_in"] == rates["requests"] == [5.0] * 150
    assert rates["ago_s"] == [2.0 * n for n in range(149, -1, -1)]
    counters = Counters(0, 0, 0, 0)  # the broker was started anew
    pending.pop()()
    newest = samples.rates()["messages_in"]
    assert isinstance(newest, list) and newest[-1] == 0
    samples.stop()
    assert not pending


def test_records_of_a_large_batch_are_found_and_only_those_are_made() -> None:
    """The batch is compressed to a hundredth, and holds more records than a page may look at."""
    content = encode_records([RecordInput(None, b"%d" % number) for number in range(60_000)])

    async def write(admin: Admin) -> None:
        config = ProducerConfig(compression=Compression.ZSTD, max_request_size_bytes=8 << 20)
        producer = Producer(AsyncioNetwork(), admin.cluster.config, config)
        await producer.append_encoded("batch", 0, content)
        await producer.close()

    async def read(admin: Admin) -> tuple[Found, Found, Found]:
        def reader(allowance: Allowance) -> RecordReader:
            place, by = TopicPartition("batch", 0), admin.cluster.deadline()
            return RecordReader(admin.cluster, place, READ_UNCOMMITTED, allowance, by)

        def plenty() -> Allowance:
            return Allowance(8 << 20, 1 << 20, monotonic_us() + 60_000_000)

        few = Allowance(8 << 20, 1_000, monotonic_us() + 60_000_000)
        return (
            await reader(plenty()).last(0, 60_000, 3, lambda record: True),
            await reader(plenty()).first(
                30_000, 60_000, 2, lambda record: (record.value or b"").endswith(b"7")
            ),
            await reader(few).first(0, 60_000, 1, lambda record: False),
        )

    async def main(servers: str) -> tuple[Found, Found, Found]:
        admin = Admin(AsyncioNetwork(), ClientConfig(parse_bootstrap_servers(servers)))
        try:
            await write(admin)
            return await read(admin)
        finally:
            admin.close()

    with Cluster() as cluster:
        cluster.create_topic("batch")
        last, sevenths, cut = asyncio.run(main(cluster.bootstrap_servers))
    assert [one.value for one in last.records] == [b"59997", b"59998", b"59999"] and last.end == 60_000
    assert [one.offset for one in sevenths.records] == [30_007, 30_017] and sevenths.end == 30_018
    assert not cut.records and cut.start == 0 and 1_000 <= cut.end < 60_000
