"""Each broker asked by itself: which of them answer, and the groups that they coordinate.

A broker that was killed counts as active until its session has expired. Here it is seen at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.admin.groups import list_groups_of_broker
from pykraft.kafka_client.results import GroupListing
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.page import Problem, explain

_NO_ANSWER: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class AskedBrokers:
    """``groups`` by id, of the brokers that told theirs; ``missing``: why the others, by id, did not;
    ``silent``: those of them that do not answer at all, or not in time."""

    groups: list[GroupListing]
    missing: Mapping[int, Problem]
    silent: frozenset[int]


async def ask_brokers(admin: Admin, limits: CallLimits) -> AskedBrokers:
    """All that are not fenced, at the same time, once. :class:`KafkaError` if nobody knows them."""
    cluster = admin.cluster
    by = cluster.deadline()
    await cluster.retrying("Metadata", lambda: cluster.refresh([], by), by)
    asked = sorted(cluster.metadata.brokers)
    section = cluster.deadline(limits.section_ms)

    async def ask(broker_id: int) -> list[GroupListing] | KafkaError:
        try:
            return await list_groups_of_broker(cluster, broker_id, section)
        except KafkaError as error:
            return error

    answers = dict(zip(asked, await asyncio.gather(*map(ask, asked)), strict=True))
    failed = {broker: told for broker, told in answers.items() if isinstance(told, KafkaError)}
    told = [one for groups in answers.values() if not isinstance(groups, KafkaError) for one in groups]
    return AskedBrokers(
        groups=sorted({one.group_id: one for one in told}.values(), key=lambda one: one.group_id),
        missing={broker: Problem(explain(error)) for broker, error in failed.items()},
        silent=frozenset(broker for broker, error in failed.items() if error.code in _NO_ANSWER),
    )
