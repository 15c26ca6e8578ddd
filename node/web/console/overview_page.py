"""The first page: the cluster in numbers, its brokers, and what needs attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pykraft.kafka_client.admin.client import Admin
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.page import Facts
from pykraft.node.web.console.parameters import Parameters
from pykraft.node.web.console.survey import cluster_facts


@dataclass(frozen=True, slots=True)
class OverviewPage:
    TEMPLATE: ClassVar[str] = "overview.html"
    TAB: ClassVar[str] = "/console"

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls()

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        return await cluster_facts(admin, limits)
