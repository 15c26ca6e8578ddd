"""The list of groups, and one group: its members, what they are assigned, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, Self

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.list_offsets import LATEST_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import CommittedOffset, GroupDescription, MemberDescription
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.asked_brokers import ask_brokers
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.extents import offsets_of
from pykraft.node.web.console.page import Facts, NotFoundError, Problem, found, part
from pykraft.node.web.console.paging import MOST_PAGES, page_of
from pykraft.node.web.console.parameters import Parameters

_MOST_ID: Final = 32_767


class GroupProgress(NamedTuple):
    """One partition. ``owner``: the member assigned to it; ``end``, ``lag`` None: unknown, or no commit."""

    place: TopicPartition
    committed: CommittedOffset | None
    end: int | None
    owner: MemberDescription | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed.offset)


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """``search``: what their ids contain, in whatever case; ``number`` of the page, from 1."""

    TEMPLATE: ClassVar[str] = "groups.html"
    TAB: ClassVar[str] = "/console/groups"
    search: str
    number: int

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls(
            search=parameters.text("search").strip(),
            number=parameters.number("page", 1, MOST_PAGES, least=1),
        )

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        wanted = self.search.lower()
        asked = await ask_brokers(admin, limits)
        page = page_of([one for one in asked.groups if wanted in one.group_id.lower()], self.number)
        ids = [one.group_id for one in page.items]
        described = await part(admin.describe_groups(ids, timeout_ms=limits.section_ms)) if ids else {}
        members = {}
        if not isinstance(described, Problem):
            members = {
                group_id: len(one.members)
                for group_id, one in described.items()
                if isinstance(one, GroupDescription)
            }
        return {"asked": self, "page": page, "members": members, "brokers": asked}


@dataclass(frozen=True, slots=True)
class GroupPage:
    """``number``: of the page of partitions, from 1."""

    TEMPLATE: ClassVar[str] = "group.html"
    TAB: ClassVar[str] = "/console/groups"
    group_id: str
    number: int

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        group_id = parameters.text("id", _MOST_ID)
        if not group_id:
            raise NotFoundError("The address names no group.")
        return cls(group_id, parameters.number("page", 1, MOST_PAGES, least=1))

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        group = await found(admin.describe_group(self.group_id), f"group {self.group_id}")
        committed = await part(admin.group_offsets(self.group_id, timeout_ms=limits.section_ms))
        if isinstance(committed, Problem):
            return {"group": group, "progress": committed}
        owners = {
            TopicPartition(topic, index): member
            for member in group.members
            for topic, indexes in member.assignment.items()
            for index in indexes
        }
        places = sorted(committed.keys() | owners.keys())
        ends = await part(offsets_of(admin, places, LATEST_TIMESTAMP, limits.section_ms))
        known = {} if isinstance(ends, Problem) else ends
        progress = [
            GroupProgress(place, committed.get(place), known.get(place), owners.get(place))
            for place in places
        ]
        lags = [one.lag for one in progress if one.lag is not None]
        return {
            "group": group,
            "progress": page_of(progress, self.number),
            "ends_problem": ends if isinstance(ends, Problem) else None,
            "total_lag": sum(lags) if lags else None,
        }
