"""``pykraft topics --describe``: the lines of kafka-topics, and which of them its filters leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    PartitionDescription,
    PartitionReassignment,
    TopicDescription,
)
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.ids import uuid_from_str, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.shared.common import print_json, wants_json

_MIN_ISR: Final = "min.insync.replicas"
_FILTERS: Final = ("under_replicated", "unavailable", "under_min_isr", "at_min_isr")


@dataclass(frozen=True, slots=True)
class Shown:
    """The choice of lines. ``with_overrides``: topics' lines only, if they have configurations.

    ``filters``: only partitions for which one of them holds, without the line of their topic; none: all.
    """

    filters: tuple[str, ...]
    with_overrides: bool

    @classmethod
    def asked_for(cls, given: Mapping[str, Any]) -> Shown:
        """:class:`click.UsageError` if the options contradict each other."""
        filters = tuple(name for name in _FILTERS if given[f"{name}_partitions"])
        if filters and given["topics_with_overrides"]:
            raise click.UsageError(
                "--topics-with-overrides shows no partitions: give no other filter with it"
            )
        return cls(filters, given["topics_with_overrides"])


class _Partition(NamedTuple):
    """A partition, and what its state is measured by."""

    described: PartitionDescription
    reassignment: PartitionReassignment | None
    min_isr: int
    live_brokers: frozenset[int]

    @property
    def replication_factor(self) -> int:
        """Without the replicas that a reassignment is adding."""
        replicas, moved = self.described.replicas, self.reassignment
        if moved is None or not {*moved.adding, *moved.removing} & set(replicas):
            return len(replicas)  # a reassignment that has just ended
        return len(moved.replicas) - len(moved.adding)

    def passes(self, filters: Sequence[str]) -> bool:
        leader, in_sync = self.described.leader, len(self.described.isr)
        found = {
            "under_replicated": in_sync < self.replication_factor,
            "unavailable": leader is None or leader not in self.live_brokers,
            "under_min_isr": leader is None or in_sync < self.min_isr,
            "at_min_isr": in_sync == self.min_isr,
        }
        return not filters or any(found[name] for name in filters)


def find_by_id(client: AdminClient, topic_id: str, exclude_internal: bool) -> str | None:
    """The name of a topic; :class:`click.UsageError` for what is no id."""
    try:
        wanted = uuid_from_str(topic_id)
    except ValueError as error:
        raise click.UsageError(f"--topic-id: {error}") from None
    topics = client.list_topics(include_internal=not exclude_internal)
    return next((it.name for it in topics if it.topic_id == wanted), None)


def describe_topics(
    client: AdminClient, names: Sequence[str], shown: Shown, page_partitions: int | None
) -> None:
    topics = client.describe_topics(names, page_partitions=page_partitions)
    live = frozenset(it.id for it in client.describe_cluster().brokers)
    moves = client.list_partition_reassignments()
    objects = []
    for topic in topics:
        configs, min_isr = _configs(client, topic.name)
        if shown.with_overrides and not configs:
            continue
        every = [
            _Partition(it, moves.get(TopicPartition(topic.name, it.index)), min_isr, live)
            for it in topic.partitions
        ]
        passing = [] if shown.with_overrides else [it for it in every if it.passes(shown.filters)]
        if wants_json():
            if passing or not shown.filters:
                objects.append(_as_object(topic, configs, every, passing))
            continue
        if not shown.filters:
            click.echo(_topic_line(topic, configs, every))
        for partition in passing:
            click.echo(_partition_line(topic.name, partition))
    if wants_json():
        print_json(objects)


def _configs(client: AdminClient, topic: str) -> tuple[dict[str, str | None], int]:
    """Return the configs that are not at their default, wherever set; ``min.insync.replicas`` in any case."""
    entries = client.describe_configs(ConfigResourceType.TOPIC, topic)
    changed = {it.name: it.value for it in entries if it.source is not ConfigSource.DEFAULT_CONFIG}
    min_isr = next((it.value for it in entries if it.name == _MIN_ISR), None)
    return dict(sorted(changed.items())), int(min_isr or 1)


def _topic_line(
    topic: TopicDescription, configs: Mapping[str, str | None], every: Sequence[_Partition]
) -> str:
    text = ",".join(f"{name}={value}" for name, value in configs.items())
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_to_str(topic.topic_id)}\tPartitionCount: {len(every)}\t"
        f"ReplicationFactor: {_factor(every)}\tConfigs: {text}"
    )


def _factor(every: Sequence[_Partition]) -> int:
    return every[0].replication_factor if every else 0


def _partition_line(topic: str, partition: _Partition) -> str:
    it, moved = partition.described, partition.reassignment
    leader = "none" if it.leader is None else it.leader
    changes = "" if moved is None else (
        f"\tAdding Replicas: {_ids(moved.adding)}\tRemoving Replicas: {_ids(moved.removing)}"
    )  # fmt: skip
    return (
        f"\tTopic: {topic}\tPartition: {it.index}\tLeader: {leader}\tReplicas: {_ids(it.replicas)}\t"
        f"Isr: {_ids(it.isr)}{changes}\tElr: {_ids(it.elr)}\tLastKnownElr: {_ids(it.last_known_elr)}"
    )


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _as_object(
    topic: TopicDescription,
    configs: Mapping[str, str | None],
    every: Sequence[_Partition],
    passing: Sequence[_Partition],
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topicId": uuid_to_str(topic.topic_id),
        "partitionCount": len(every),
        "replicationFactor": _factor(every),
        "configs": configs,
        "partitions": [_partition_object(it) for it in passing],
    }


def _partition_object(partition: _Partition) -> dict[str, object]:
    it, moved = partition.described, partition.reassignment
    return {
        "partition": it.index,
        "leader": it.leader,
        "leaderEpoch": it.leader_epoch,
        "replicas": it.replicas,
        "isr": it.isr,
        "elr": it.elr or (),
        "lastKnownElr": it.last_known_elr or (),
        "offlineReplicas": it.offline_replicas,
        "addingReplicas": moved.adding if moved is not None else (),
        "removingReplicas": moved.removing if moved is not None else (),
    }
