"""Bounds of what the console takes and shows: each at its bound, and one beyond it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.fetcher import FetchedBatches
from pykraft.kafka_client.metadata import Partition, Topic, TopicPartition
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.node.web.console import app, record_reader
from pykraft.node.web.console.cluster_calls import BusyError, CallLimits, ClusterCalls
from pykraft.node.web.console.paging import page_of
from pykraft.node.web.console.parameters import (
    MAX_OFFSET,
    MOST_TEXT,
    BadParameterError,
    Parameters,
    is_topic_name,
)
from pykraft.node.web.console.record_reader import Allowance, Found, RecordReader
from pykraft.node.web.console.survey import MOST_TROUBLED, survey
from pykraft.runtime.address import Address


@pytest.mark.parametrize("troubled", [0, 1, MOST_TROUBLED - 1, MOST_TROUBLED, MOST_TROUBLED + 1, 100])
def test_first_troubled_topics_are_listed_and_the_others_counted(troubled: int) -> None:
    def topic(name: str, leader: int | None, isr: tuple[int, ...], partitions: int = 3) -> Topic:
        made = {n: Partition(name, ZERO_UUID, n, leader, 0, (1, 2), isr) for n in range(partitions)}
        return Topic(name, ZERO_UUID, False, made)

    offline = troubled // 2
    topics = [topic(f"t{n:03}", None if n < offline else 1, (1,)) for n in range(troubled)]
    found = survey([topic("fine", 1, (1, 2)), *reversed(topics)])
    assert [one.name for one in found.troubled] == [f"t{n:03}" for n in range(min(troubled, MOST_TROUBLED))]
    assert len(found.troubled) + found.more_troubled == troubled
    assert (found.offline, found.under_replicated) == (3 * offline, 3 * troubled)


@pytest.mark.parametrize(
    ("total", "number", "shown", "pages"),
    [
        (0, 1, (0, 0), 1),
        (1, 1, (1, 1), 1),
        (3, 1, (1, 3), 1),
        (4, 1, (1, 3), 2),
        (4, 2, (4, 4), 2),
        (6, 2, (4, 6), 2),
        (6, 3, (0, 0), 2),
        (7, 3, (7, 7), 3),
    ],
)
def test_pages_end_with_their_size(total: int, number: int, shown: tuple[int, int], pages: int) -> None:
    page = page_of(range(1, total + 1), number, size=3)
    assert (page.first, page.last, page.pages, page.total) == (*shown, pages, total)
    assert list(page.items) == [n for n in range(shown[0], shown[1] + 1) if n]
    other = page.of(["a"] * len(page.items))
    assert (other.first, other.last, other.pages) == (page.first, page.last, page.pages)


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadParameterError, match=message):
        call()


def test_parameters_are_taken_up_to_their_bounds() -> None:
    longest = Parameters({"text": "x" * MOST_TEXT, "name": "ab"})
    assert len(longest.text("text")) == MOST_TEXT and longest.text("name", 2) == "ab"
    refused(lambda: longest.text("name", 1), "name is longer than 1 characters")
    refused(lambda: Parameters({"text": "x" * (MOST_TEXT + 1)}).text("text"), f"longer than {MOST_TEXT}")
    for text, least, most, number in (("7", 0, 7, 7), ("7", 7, 9, 7), (" 8 ", 7, 9, 8), ("", 7, 9, 5)):
        assert Parameters({"n": text}).number("n", 5, most, least) == number
    for text, least, most in (("8", 0, 7), ("6", 7, 9), ("-1", 0, 9), ("1.5", 0, 9), ("\u0661", 0, 9)):
        given = Parameters({"n": text})
        refused(lambda: given.number("n", 5, most, least), f"a whole number from {least} to {most}")  # noqa: B023
    assert Parameters({"n": str(MAX_OFFSET)}).number("n", 0, MAX_OFFSET) == MAX_OFFSET
    refused(lambda: Parameters({"n": str(MAX_OFFSET + 1)}).number("n", 0, MAX_OFFSET), "whole number")
    assert Parameters({"t": str(MAX_OFFSET)}).time_ms("t") == MAX_OFFSET
    refused(lambda: Parameters({"t": str(MAX_OFFSET + 1)}).time_ms("t"), "whole number")
    assert is_topic_name("x" * 249) and not is_topic_name("x" * 250) and not is_topic_name("..")


def test_form_may_have_so_many_fields() -> None:
    most = app._MOST_FIELDS
    assert app._parse_form("&".join(f"f{n}=1" for n in range(most)).encode()).text(f"f{most - 1}") == "1"
    refused(lambda: app._parse_form("&".join(f"f{n}=1" for n in range(most + 1)).encode()), "too many fields")


async def test_pages_wait_for_their_turn_up_to_a_bound_and_take_it_one_after_the_other() -> None:
    limits = CallLimits(page_ms=60_000, at_once=2, waiting=3)
    let_go = threading.Event()
    at_work: list[int] = []

    async def wait(admin: Admin) -> None:
        at_work.append(1)
        assert len(at_work) <= limits.at_once
        await asyncio.to_thread(let_go.wait)
        at_work.pop()

    calls = ClusterCalls(limits)
    where = [Address("localhost", 1)]
    try:
        asked = [asyncio.ensure_future(calls.run(where, wait)) for _ in range(5)]
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(BusyError):
                await calls.run(where, wait)
        asked[-1].cancel()
        await asyncio.wait([asked[-1]])
        again = asyncio.ensure_future(calls.run(where, wait))
        await asyncio.sleep(0)
        assert not again.done(), "the place of one that has gone is free"
        let_go.set()
        await asyncio.gather(*asked[:-1], again)
        await calls.run(where, wait)
    finally:
        let_go.set()
        await calls.close()


class _Log:
    """20 records in batches of 5, for a :class:`RecordReader`. ``windows``: where it began to read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.windows: list[int] = []
        self.batches = [
            encode_batch([RecordInput(None, b"%d" % n) for n in range(at, at + 5)], base_offset=at)
            for at in range(0, 20, 5)
        ]
        log = self

        class Fetcher:
            def __init__(
                self, cluster: Any, topic: str, topic_id: Any, index: int, at: int, how: Any
            ) -> None:
                self.position = at
                log.windows.append(at)

            async def fetch(self, deadline_ms: int) -> Any:
                data = log.batches[self.position // 5]
                header = read_header(data)
                self.position = header.next_offset
                return FetchedBatches(memoryview(data), ((0, header),), self.position, 20, 20, 0)

            def close(self) -> None: ...

        monkeypatch.setattr(record_reader, "PartitionFetcher", Fetcher)

    def read(self, which: str, wanted: int, allowed: int = 1_000, allowed_bytes: int = 1 << 20) -> Found:
        allowance = Allowance(allowed_bytes, allowed, 1 << 62)
        reader = RecordReader(None, TopicPartition("t", 0), 0, allowance, 0)  # type: ignore[arg-type]
        found: Found = asyncio.run(getattr(reader, which)(0, 20, wanted, lambda record: True))
        return found


def offsets(found: Found) -> list[int]:
    return [one.offset for one in found.records]


@pytest.mark.parametrize("wanted", [1, 5, 6, 19, 20, 21])
def test_so_many_records_are_shown_from_either_end(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(monkeypatch)
    shown = min(wanted, 20)
    oldest, newest = log.read("first", wanted), log.read("last", wanted)
    assert offsets(oldest) == list(range(shown)) and (oldest.start, oldest.end) == (0, shown)
    assert offsets(newest) == list(range(20 - shown, 20)) and (newest.start, newest.end) == (20 - shown, 20)


def test_windows_are_not_larger_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(monkeypatch)
    monkeypatch.setattr(record_reader, "_LARGEST_WINDOW", 6)
    assert offsets(log.read("last", 20)) == list(range(20))
    assert log.windows == [19, 14, 8, 2, 0], "the first look is for the size of records"


def test_reading_ends_when_its_allowance_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(monkeypatch)
    assert offsets(log.read("first", 20, allowed=6)) == list(range(10)), "a batch is read to its end"
    assert offsets(log.read("first", 20, allowed=5)) == list(range(5))
    one = len(log.batches[0])
    assert offsets(log.read("first", 20, allowed_bytes=one)) == list(range(5))
    assert offsets(log.read("first", 20, allowed_bytes=one + 1)) == list(range(10))


@pytest.mark.parametrize("beyond", [0, 1])
def test_batch_is_shown_if_it_is_not_too_large_when_it_is_unfolded(
    beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _Log(monkeypatch)
    inputs = [RecordInput(None, b"x" * 500)] * 5
    plain_bytes = len(encode_batch(inputs)) - 61
    log.batches[0] = encode_batch(inputs, compression=Compression.GZIP)
    monkeypatch.setattr(record_reader, "_MOST_UNFOLDED_BYTES", plain_bytes - beyond)
    found = log.read("first", 6)
    if beyond:
        assert "records up to offset 4" in (found.records[0].problem or "")
        assert offsets(found) == [0, *range(5, 10)]
    else:
        assert offsets(found) == list(range(6)) and all(one.is_record for one in found.records)
