"""The first page (the cluster in numbers), the list of brokers, and one broker: directories and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.results import LogDirDescription
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.page import Facts, NotFoundError, part
from pykraft.node.web.console.parameters import BadParameterError, Parameters
from pykraft.node.web.console.survey import cluster_facts

_MOST_ID: Final = (1 << 31) - 1
_MOST_REPLICAS: Final = 20


@dataclass(frozen=True, slots=True)
class OverviewPage:
    TEMPLATE: ClassVar[str] = "overview.html"
    TAB: ClassVar[str] = "/console"

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls()

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        return await cluster_facts(admin, limits)


class BrokersPage(OverviewPage):
    """Shows more of the same facts."""

    TEMPLATE = "brokers.html"
    TAB = "/console/brokers"


@dataclass(frozen=True, slots=True)
class BrokerPage:
    TEMPLATE: ClassVar[str] = "broker.html"
    TAB: ClassVar[str] = "/console/brokers"
    broker_id: int

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        try:
            return cls(Parameters(path).number("broker", 0, _MOST_ID))
        except BadParameterError:
            raise NotFoundError("No broker can have this id.") from None

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        cluster = await admin.describe_cluster(include_fenced_brokers=True)
        broker = next((one for one in cluster.brokers if one.id == self.broker_id), None)
        if broker is None:
            raise NotFoundError(f"There is no broker {self.broker_id}.")
        if broker.is_fenced:  # no client is told where it is
            return {"broker": broker}
        described = await part(admin.describe_log_dirs([broker.id], timeout_ms=limits.section_ms))
        return {
            "broker": broker,
            "log_dirs": described if not isinstance(described, dict) else described[broker.id],
            "largest": _largest(described[broker.id]) if isinstance(described, dict) else [],
            "configs": await part(
                admin.describe_configs(
                    ConfigResourceType.BROKER,
                    str(broker.id),
                    include_documentation=True,
                    timeout_ms=limits.section_ms,
                )
            ),
        }


def _largest(directories: list[LogDirDescription]) -> list[tuple[str, int, str]]:
    """The largest replicas: name, bytes and directory."""
    found = [
        (str(one.partition), one.size_bytes, directory.path)
        for directory in directories
        for one in directory.replicas
    ]
    return sorted(found, key=lambda one: -one[1])[:_MOST_REPLICAS]
