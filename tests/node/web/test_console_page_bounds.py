"""Bounds of single pages of the console: each at its bound, one below it, and one beyond it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from pykraft.kafka_client.metadata import Partition, Topic, TopicPartition
from pykraft.kafka_client.results import LogDirDescription, LogDirReplica
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.node.web.console import records_page, topic_pages
from pykraft.node.web.console.broker_pages import BrokerPage, _largest
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.data_text import DataText, Format, _line, registry_note, show
from pykraft.node.web.console.extents import Extent
from pykraft.node.web.console.group_pages import GroupPage, GroupsPage
from pykraft.node.web.console.page import NotFoundError
from pykraft.node.web.console.parameters import BadParameterError, Parameters
from pykraft.node.web.console.produce_page import parse_record
from pykraft.node.web.console.record_reader import Allowance, Found, FoundRecord
from pykraft.node.web.console.records_page import RecordsPage
from pykraft.node.web.console.topic_pages import TopicPage, TopicsPage

TOPIC: Final = {"topic": "t"}
Parse = Callable[[Parameters, Mapping[str, str]], object]


@pytest.mark.parametrize(
    ("parse", "name", "least", "most"),
    [
        (RecordsPage.parse, "limit", 1, 200),
        (RecordsPage.parse, "partition", 0, 2**31 - 1),
        (RecordsPage.parse, "offset", 0, 2**63 - 1),
        (parse_record, "partition", 0, 2**31 - 1),
        *((one.parse, "page", 1, 1_000_000) for one in (TopicsPage, TopicPage, GroupsPage, GroupPage)),
    ],
)
def test_number_is_taken_up_to_its_bounds(parse: Parse, name: str, least: int, most: int) -> None:
    def taken(number: int) -> bool:
        try:
            parse(Parameters({name: str(number), "id": "g"}), TOPIC)
        except BadParameterError as error:
            assert str(error) == f"{name} is a whole number from {least} to {most}"
            return False
        return True

    assert [taken(one) for one in (least - 1, least, most, most + 1)] == [False, True, True, False]


def test_no_broker_can_have_an_id_beyond_those_of_brokers() -> None:
    assert BrokerPage.parse(Parameters({}), {"broker": str(2**31 - 1)}) == BrokerPage(2**31 - 1)
    with pytest.raises(NotFoundError):
        BrokerPage.parse(Parameters({}), {"broker": str(2**31)})


@pytest.mark.parametrize(
    ("parse", "name", "most"),
    [
        (parse_record, "key", 1 << 20),
        (parse_record, "value", 1 << 20),
        (parse_record, "headers", 16_384),
        (GroupPage.parse, "id", 32_767),
    ],
)
def test_text_is_taken_up_to_its_bound(parse: Parse, name: str, most: int) -> None:
    text = "h:".ljust(most, "x")
    parse(Parameters({name: text}), TOPIC)
    with pytest.raises(BadParameterError, match=f"^{name} is longer than {most} characters$"):
        parse(Parameters({name: text + "x"}), TOPIC)


def topic(partitions: int) -> Topic:
    made = {n: Partition("t", ZERO_UUID, n, 1, 0, (1,), (1,)) for n in range(partitions)}
    return Topic("t", ZERO_UUID, False, made)


def test_so_many_partitions_are_shown_together() -> None:
    page = RecordsPage.parse(Parameters({}), TOPIC)
    for count in (63, 64):
        assert page._places(topic(count)) == [TopicPartition("t", n) for n in range(count)]
    with pytest.raises(BadParameterError, match="the topic has 65 partitions: give one of them"):
        page._places(topic(65))
    assert RecordsPage.parse(Parameters({"partition": "64"}), TOPIC)._places(topic(65)) == [
        TopicPartition("t", 64)
    ]


class StandInCluster:
    """Answers with one topic."""

    def __init__(self, partitions: int) -> None:
        self.cluster = self
        self._topic = topic(partitions)

    def deadline(self) -> int:
        return 0

    async def topics(self, names: list[str], deadline_ms: int) -> list[Topic]:
        return [self._topic]


@pytest.mark.parametrize(
    ("partitions", "share_bytes", "records"),
    [
        (1, 8 << 20, 200_000),
        (2, 4 << 20, 100_000),
        (31, (8 << 20) // 31, 6_451),
        (32, 256 << 10, 6_250),
        (33, 256 << 10, 6_060),
        (64, 256 << 10, 3_125),
    ],
)
def test_partitions_share_what_is_read_for_a_page(
    monkeypatch: pytest.MonkeyPatch, partitions: int, share_bytes: int, records: int
) -> None:
    allowed: list[Allowance] = []

    class Reader:
        def __init__(
            self, cluster: Any, place: TopicPartition, level: int, allowance: Allowance, by_ms: int
        ) -> None:
            allowed.append(allowance)

        async def last(self, start: int, end: int, wanted: int, matches: Any) -> Found:
            assert wanted == 50
            return Found([], start, end)

    async def extents_of(
        admin: Any, places: list[TopicPartition], *_: object
    ) -> dict[TopicPartition, Extent]:
        return dict.fromkeys(places, Extent(0, 1))

    monkeypatch.setattr(records_page, "RecordReader", Reader)
    monkeypatch.setattr(records_page, "extents_of", extents_of)
    monkeypatch.setattr(records_page, "monotonic_us", lambda: 5)
    page = RecordsPage.parse(Parameters({}), TOPIC)
    cluster: Any = StandInCluster(partitions)
    asyncio.run(page.load(cluster, CallLimits()))
    assert allowed == [Allowance(share_bytes, records, 2_000_005)] * partitions


@pytest.mark.parametrize(
    ("query", "most"),
    [({}, 2_048), ({"partition": "0", "from": "offset", "offset": "0", "limit": "1"}, 65_536)],
)
def test_data_are_shown_up_to_a_bound_that_is_higher_for_one_record(query: dict[str, str], most: int) -> None:
    page = RecordsPage.parse(Parameters(query), TOPIC)
    batch = read_header(encode_batch([RecordInput(None, b"")]))

    def row(size_bytes: int) -> tuple[DataText, ...]:
        data = b"x" * size_bytes
        made = page._row(FoundRecord(0, 0, 0, data, data, (("h", data),), batch))
        return made.key, made.value, made.headers[0][1]

    assert [one.is_cut for one in row(2_048)] == [False] * 3
    assert [one.is_cut for one in row(most)[:2]] == [False] * 2
    assert [(one.is_cut, len(one.text)) for one in row(most + 1)] == [
        (True, most),
        (True, most),
        (True, 2_048),
    ]


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 40])
def test_so_many_of_the_largest_replicas_are_listed(count: int) -> None:
    replicas = tuple(LogDirReplica(TopicPartition("t", n), n, 0, False) for n in range(count))
    directories = [
        LogDirDescription(path, ErrorCode.NONE, part, -1, -1)
        for path, part in (("/a", replicas[::2]), ("/b", replicas[1::2]))
    ]
    assert _largest(directories) == [
        (f"t-{n}", n, "/b" if n % 2 else "/a") for n in reversed(range(max(0, count - 20), count))
    ]


@pytest.mark.parametrize(
    ("schema_id", "size_bytes", "is_noted"),
    [
        (0, 9, False),
        (1, 9, True),
        ((1 << 24) - 1, 9, True),
        (1 << 24, 9, False),
        (7, 5, False),
        (7, 6, True),
        (7, 7, True),
        (7, 8, False),  # as many as of a number
    ],
)
def test_only_what_may_be_an_id_of_a_schema_is_said_to_be_one(
    schema_id: int, size_bytes: int, is_noted: bool
) -> None:
    data = b"\0" + schema_id.to_bytes(4, "big")
    note = registry_note(data.ljust(size_bytes, b"x"))
    assert (f"with schema {schema_id}:" in note) is is_noted and bool(note) is is_noted
    assert registry_note(b"\1" + data[1:].ljust(size_bytes, b"x")) == ""


def test_json_is_indented_up_to_a_depth() -> None:
    assert [len(_line(depth)) for depth in (0, 63, 64, 65)] == [1, 127, 129, 129]


@pytest.mark.parametrize(("most", "shown"), [(60, 16), (64, 16), (68, 17), (400, 100)])
def test_bytes_are_shown_up_to_a_bound_and_a_line_at_least(most: int, shown: int) -> None:
    for size_bytes in (shown - 1, shown, shown + 1):
        made = show((b"\0\xff" * 60)[:size_bytes], Format.HEX, most)
        assert made.is_cut is (size_bytes > shown)
        assert len(made.text.splitlines()) == -(-min(size_bytes, shown) // 16)


@pytest.mark.parametrize(("partitions", "is_asked"), [(1_999, True), (2_000, True), (2_001, False)])
def test_offsets_are_asked_for_unless_a_page_of_topics_has_too_many_partitions(
    monkeypatch: pytest.MonkeyPatch, partitions: int, is_asked: bool
) -> None:
    async def extents_of(
        admin: Any, places: list[TopicPartition], *_: object
    ) -> dict[TopicPartition, Extent]:
        return dict.fromkeys(places, Extent(1, 3))

    monkeypatch.setattr(topic_pages, "extents_of", extents_of)
    admin: Any = None
    page = TopicsPage.parse(Parameters({}), {})
    (row,) = asyncio.run(page._rows(admin, [topic(partitions)], CallLimits()))
    assert row.offsets == (2 * partitions if is_asked else None)
