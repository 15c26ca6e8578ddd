"""The records of a topic: of one partition or of all, from a place or a time on, or the newest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, Self
from urllib.parse import quote, urlencode

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from pykraft.kafka_client.metadata import Topic, TopicPartition
from pykraft.kafka_client.producer.producer import RecordMetadata
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.data_text import DataText, Format, show
from pykraft.node.web.console.extents import Extent, Extents, extents_of, offsets_of
from pykraft.node.web.console.page import Facts, NotFoundError, found
from pykraft.node.web.console.parameters import MAX_OFFSET, BadParameterError, Parameters
from pykraft.node.web.console.record_reader import Allowance, Found, FoundRecord, Matches, RecordReader
from pykraft.node.web.console.topic_pages import topic_in
from pykraft.runtime.clock import monotonic_us

MOST_RECORDS: Final = 200
_USUAL_RECORDS: Final = 50
MOST_PARTITIONS: Final = 64
"""At most the records of so many are shown together."""
_MOST_PARTITION: Final = (1 << 31) - 1
_MOST_BYTES: Final = 8 << 20
_LEAST_BYTES: Final = 256 << 10
"""What is fetched for a page, shared by its partitions, and the least share of one."""
_MOST_LOOKED_AT: Final = 200_000
_READ_US: Final = 2_000_000
_SHOWN_IN_LIST: Final = 2_048
_SHOWN_ALONE: Final = 65_536

STARTS: Final = ("newest", "oldest", "offset", "time")
_PLACES: Final = ("any", "key", "value")
_LEVELS: Final = {"uncommitted": READ_UNCOMMITTED, "committed": READ_COMMITTED}


class RecordRow(NamedTuple):
    record: FoundRecord
    key: DataText
    value: DataText
    headers: list[tuple[str, DataText]]


class Span(NamedTuple):
    """The part of a partition's log that was looked at; ``end`` exclusive."""

    partition: int
    log: Extent
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """``partition`` None: all. ``before``: with ``newest``, the end of what is looked at. ``offset`` and
    ``time`` are given if ``start`` says so."""

    TEMPLATE: ClassVar[str] = "records.html"
    TAB: ClassVar[str] = "/console/topics"
    topic: str
    partition: int | None
    start: str
    offset: int
    time_ms: int
    time_text: str
    before: int | None
    limit: int
    contains: str
    where: str
    format: Format
    isolation: str
    written: bool

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        topic = topic_in(path)
        start = parameters.choice("from", STARTS, "newest")
        partition = parameters.optional_number("partition", _MOST_PARTITION)
        offset = parameters.optional_number("offset", MAX_OFFSET)
        if start == "offset" and (partition is None or offset is None):
            raise BadParameterError("to read from an offset on, give partition and offset")
        return cls(
            topic=topic,
            partition=partition,
            start=start,
            offset=offset or 0,
            time_ms=parameters.time_ms("time") if start == "time" else 0,
            time_text=parameters.text("time"),
            before=None if partition is None else parameters.optional_number("before", MAX_OFFSET),
            limit=parameters.number("limit", _USUAL_RECORDS, MOST_RECORDS, least=1),
            contains=parameters.text("contains"),
            where=parameters.choice("where", _PLACES, "any"),
            format=Format(parameters.choice("format", [one.value for one in Format], "auto")),
            isolation=parameters.choice("isolation", _LEVELS, "uncommitted"),
            written=parameters.flag("written"),
        )

    @staticmethod
    def written_at(place: RecordMetadata) -> str:
        """The address of the page that shows one record that was just written."""
        given = {"partition": place.partition, "from": "newest", "limit": 20}
        if place.offset is not None:
            given |= {"from": "offset", "offset": place.offset, "limit": 1}
        return f"/console/topics/{quote(place.topic)}/records?{urlencode({**given, 'written': 1})}"

    @property
    def is_alone(self) -> bool:
        """One record is asked for, and shown whole."""
        return self.limit == 1 and self.start == "offset"

    @property
    def has_more(self) -> bool:
        """Something is asked for that seldom is."""
        given = (self.limit, self.where, self.format, self.isolation)
        return given != (_USUAL_RECORDS, "any", Format.AUTO, "uncommitted")

    def link(self, **changes: object) -> str:
        """The query of the same page with some parameters changed."""
        given: dict[str, object] = {
            "partition": "" if self.partition is None else self.partition,
            "from": self.start,
            "offset": self.offset if self.start == "offset" else "",
            "time": self.time_text if self.start == "time" else "",
            "limit": self.limit,
            "contains": self.contains,
            "where": self.where if self.contains else "",
            "format": self.format.value,
            "isolation": self.isolation,
        }
        changed = given | {name.rstrip("_"): value for name, value in changes.items()}
        return urlencode({name: value for name, value in changed.items() if value != ""})

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        by = admin.cluster.deadline()
        (topic,) = await found(admin.cluster.topics([self.topic], by), f"topic {self.topic}")
        places, level = self._places(topic), _LEVELS[self.isolation]
        logs = await extents_of(admin, places, limits.section_ms, level)
        if len(places) == 1 and not logs:
            text = f"{places[0]} has no leader that answers: nobody can read it now"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        starts = await self._starts(admin, logs, limits)
        spans, records = [], []
        share = max(_LEAST_BYTES, _MOST_BYTES // max(1, len(logs)))
        by_us = monotonic_us() + _READ_US
        for place, log in logs.items():
            allowance = Allowance(share, _MOST_LOOKED_AT // len(logs), by_us)
            reader = RecordReader(admin.cluster, place, level, allowance, by)
            read = await self._read(reader, log, starts.get(place, log.end))
            records += read.records
            spans.append(Span(place.partition, log, read.start, read.end))
        return {
            "asked": self,
            "partitions": sorted(topic.partitions),
            "unavailable": sorted({place.partition for place in places} - {span.partition for span in spans}),
            "is_internal": topic.is_internal,
            "rows": [self._row(record) for record in self._chosen(records)],
            "spans": spans,
            "older": self._older(spans),
            "next": self._next(spans),
        }

    def _places(self, topic: Topic) -> list[TopicPartition]:
        if self.partition is None:
            if len(topic.partitions) > MOST_PARTITIONS:
                raise BadParameterError(
                    f"the topic has {len(topic.partitions):,} partitions: give one of them as partition"
                )
            return [TopicPartition(self.topic, index) for index in sorted(topic.partitions)]
        if self.partition not in topic.partitions:
            raise NotFoundError(f"There is no partition {self.partition} of topic {self.topic}.")
        return [TopicPartition(self.topic, self.partition)]

    async def _starts(self, admin: Admin, logs: Extents, limits: CallLimits) -> dict[TopicPartition, int]:
        """Where reading begins; a partition that is left out has nothing as new as the time."""
        match self.start:
            case "offset":
                return {place: min(max(self.offset, log.start), log.end) for place, log in logs.items()}
            case "time":
                return await offsets_of(admin, logs, self.time_ms, limits.section_ms)
        return {place: log.start for place, log in logs.items()}

    async def _read(self, reader: RecordReader, log: Extent, start: int) -> Found:
        if self.start == "newest":
            end = log.end if self.before is None else min(max(self.before, log.start), log.end)
            return await reader.last(log.start, end, self.limit, self._matches())
        return await reader.first(start, log.end, self.limit, self._matches())

    def _matches(self) -> Matches:
        if not self.contains:
            return lambda record: True
        wanted, where = self.contains.encode("utf-8", "surrogatepass"), self.where

        def matches(record: FoundRecord) -> bool:
            in_key = where != "value" and record.key is not None and wanted in record.key
            return in_key or (where != "key" and record.value is not None and wanted in record.value)

        return matches

    def _chosen(self, records: list[FoundRecord]) -> list[FoundRecord]:
        newest = self.start == "newest"
        order = sorted(records, key=lambda one: (one.timestamp_ms, one.partition, one.offset))
        if self.partition is not None:
            order = sorted(records, key=lambda one: one.offset)
        return order[::-1][: self.limit] if newest else order[: self.limit]

    def _row(self, record: FoundRecord) -> RecordRow:
        most = _SHOWN_ALONE if self.is_alone else _SHOWN_IN_LIST
        return RecordRow(
            record,
            show(record.key, self.format, most),
            show(record.value, self.format, most),
            [(name, show(value, Format.AUTO, _SHOWN_IN_LIST)) for name, value in record.headers],
        )

    def _older(self, spans: list[Span]) -> str | None:
        """The query of what is before all this; of one partition only."""
        if self.partition is None or not spans or spans[0].start <= spans[0].log.start:
            return None
        return self.link(from_="newest", before=spans[0].start, offset="", time="")

    def _next(self, spans: list[Span]) -> str | None:
        """The query of what follows."""
        if self.partition is None or not spans or spans[0].end >= spans[0].log.end:
            return None
        return self.link(from_="offset", offset=spans[0].end)
