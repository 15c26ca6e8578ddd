"""The metadata quorum: voters, observers, how far each has come; and the levels of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.results import QuorumDescription, QuorumReplica
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.page import Facts, Problem, part
from pykraft.node.web.console.parameters import Parameters


class QuorumMember(NamedTuple):
    """``lag``: records of the metadata log that it lacks; None: not known."""

    replica: QuorumReplica
    role: str
    lag: int | None
    directory_id: str
    endpoints: str


@dataclass(frozen=True, slots=True)
class QuorumPage:
    TEMPLATE: ClassVar[str] = "quorum.html"
    TAB: ClassVar[str] = "/console/quorum"

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls()

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        quorum = await part(admin.describe_quorum(timeout_ms=limits.section_ms))
        return {
            "quorum": quorum,
            "members": [] if isinstance(quorum, Problem) else _members(quorum),
            "features": await part(admin.describe_features(timeout_ms=limits.section_ms)),
        }

    @staticmethod
    def unasked() -> Facts:
        """For a node that can ask nobody: it still shows its own view."""
        nobody = Problem("This node has no listener at which it could be asked for more.")
        return {"quorum": nobody, "members": [], "features": nobody}


def _members(quorum: QuorumDescription) -> list[QuorumMember]:
    ends = {one.replica_id: one.log_end_offset for one in quorum.voters}
    leader_end = ends.get(quorum.leader_id, -1)

    def member(one: QuorumReplica, role: str) -> QuorumMember:
        known = min(leader_end, one.log_end_offset) >= 0
        endpoints = quorum.nodes.get(one.replica_id, {}) if role != "observer" else {}
        return QuorumMember(
            one,
            "leader" if one.replica_id == quorum.leader_id else role,
            max(0, leader_end - one.log_end_offset) if known else None,
            uuid_to_str(one.directory_id),
            ", ".join(f"{name}://{address}" for name, address in sorted(endpoints.items())),
        )

    return [member(one, "follower") for one in quorum.voters] + [
        member(one, "observer") for one in quorum.observers
    ]
