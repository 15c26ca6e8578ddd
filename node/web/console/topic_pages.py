"""The list of topics, and one topic with its partitions and its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final, Self

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.metadata import Topic, TopicPartition
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.extents import extents_of, sizes_of
from pykraft.node.web.console.page import Facts, NotFoundError, found, part
from pykraft.node.web.console.paging import MOST_PAGES, page_of
from pykraft.node.web.console.parameters import Parameters, is_topic_name
from pykraft.node.web.console.survey import TopicRow, all_topics, topic_row

_MOST_ASKED: Final = 2_000
"""Partitions whose offsets are asked for at once."""


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """``search``: what their names contain, in whatever case; ``troubled``: only those with partitions that
    are offline or under-replicated; ``number`` of the page, from 1."""

    TEMPLATE: ClassVar[str] = "topics.html"
    TAB: ClassVar[str] = "/console/topics"
    search: str
    internal: bool
    troubled: bool
    number: int

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls(
            search=parameters.text("search").strip(),
            internal=parameters.flag("internal"),
            troubled=parameters.flag("troubled"),
            number=parameters.number("page", 1, MOST_PAGES, least=1),
        )

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        wanted = self.search.lower()
        topics = await all_topics(admin)
        shown = [
            one
            for one in topics
            if wanted in one.name.lower()
            and (self.internal or not one.is_internal)
            and (not self.troubled or topic_row(one).is_troubled)
        ]
        page = page_of(shown, self.number)
        rows = await self._rows(admin, page.items, limits)
        return {"asked": self, "page": page.of(rows), "of_all": len(topics)}

    async def _rows(self, admin: Admin, topics: Sequence[Topic], limits: CallLimits) -> list[TopicRow]:
        rows = [topic_row(topic) for topic in topics]
        places = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        if len(places) > _MOST_ASKED:
            return rows
        extents = await part(extents_of(admin, places, limits.section_ms))
        if not isinstance(extents, dict):
            return rows
        offsets: dict[str, int] = {}
        for place, extent in extents.items():
            offsets[place.topic] = offsets.get(place.topic, 0) + extent.offsets
        return [replace(row, offsets=offsets.get(row.name)) for row in rows]


@dataclass(frozen=True, slots=True)
class TopicPage:
    """``number``: of the page of partitions, from 1."""

    TEMPLATE: ClassVar[str] = "topic.html"
    TAB: ClassVar[str] = "/console/topics"
    topic: str
    number: int

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls(topic_in(path), parameters.number("page", 1, MOST_PAGES, least=1))

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        (topic,) = await found(admin.describe_topics([self.topic]), f"topic {self.topic}")
        page = page_of(topic.partitions, self.number)
        places = [TopicPartition(self.topic, one.index) for one in page.items]
        brokers = {broker for one in page.items for broker in one.replicas}
        return {
            "topic": topic,
            "page": page,
            "extents": await part(extents_of(admin, places, limits.section_ms)),
            "sizes": await part(sizes_of(admin, places, brokers, limits.section_ms)),
            "configs": await part(
                admin.describe_configs(
                    ConfigResourceType.TOPIC,
                    self.topic,
                    include_documentation=True,
                    timeout_ms=limits.section_ms,
                )
            ),
        }


def topic_in(path: Mapping[str, str]) -> str:
    name = path["topic"]
    if not is_topic_name(name):
        raise NotFoundError("No topic can have this name.")
    return name
