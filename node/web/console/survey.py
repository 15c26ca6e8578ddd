"""The cluster in numbers, counted from the metadata of all topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.metadata import Partition, Topic
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.asked_brokers import ask_brokers
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.page import Facts, part

MOST_TROUBLED: Final = 8


@dataclass(frozen=True, slots=True)
class TopicRow:
    """``replicas``: of its first partition; ``offsets``: see :class:`Extent`; None: not known."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    offsets: int | None = None

    @property
    def is_troubled(self) -> bool:
        return bool(self.under_replicated or self.offline)


@dataclass(frozen=True, slots=True)
class Survey:
    """``troubled``: the first of the topics with partitions that are offline or under-replicated, those with
    the most offline ones first; ``more_troubled``: how many there are beside them."""

    topics: int
    internal_topics: int
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    troubled: tuple[TopicRow, ...]
    more_troubled: int
    leaders_of: Counter[int]
    replicas_of: Counter[int]


async def cluster_facts(admin: Admin, limits: CallLimits) -> Facts:
    """Gather the facts of the overview and the list of brokers; without ``quorum`` if it is not known."""
    topics = await all_topics(admin)
    asked = await ask_brokers(admin, limits)
    return {
        "asked": asked,
        "cluster": await admin.describe_cluster(include_fenced_brokers=True),
        "survey": survey(topics),
        "quorum": await part(admin.describe_quorum(timeout_ms=limits.section_ms)),
    }


async def all_topics(admin: Admin) -> list[Topic]:
    """By name."""
    return await admin.cluster.topics(None, admin.cluster.deadline())


def is_offline(partition: Partition) -> bool:
    return partition.leader_id is None


def is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


def topic_row(topic: Topic) -> TopicRow:
    partitions = topic.partitions.values()
    first = topic.partitions.get(0)
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(partitions),
        0 if first is None else len(first.replicas),
        sum(map(is_under_replicated, partitions)),
        sum(map(is_offline, partitions)),
    )


def survey(topics: Iterable[Topic]) -> Survey:
    rows = []
    leaders_of: Counter[int] = Counter()
    replicas_of: Counter[int] = Counter()
    for topic in topics:
        rows.append(topic_row(topic))
        for partition in topic.partitions.values():
            replicas_of.update(partition.replicas)
            if partition.leader_id is not None:
                leaders_of[partition.leader_id] += 1
    troubled = [row for row in rows if row.is_troubled]
    troubled.sort(key=lambda row: (-row.offline, -row.under_replicated, row.name))
    return Survey(
        topics=len(rows),
        internal_topics=sum(row.is_internal for row in rows),
        partitions=sum(row.partitions for row in rows),
        replicas=replicas_of.total(),
        under_replicated=sum(row.under_replicated for row in rows),
        offline=sum(row.offline for row in rows),
        troubled=tuple(troubled[:MOST_TROUBLED]),
        more_troubled=max(0, len(troubled) - MOST_TROUBLED),
        leaders_of=leaders_of,
        replicas_of=replicas_of,
    )
