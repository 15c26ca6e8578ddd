"""Metrics of the coordinators of a broker: groups, their lag, and transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.node.broker_node import BrokerNode
from pykraft.node.metrics.metric import Kind, Metric, Sample
from pykraft.node.metrics.scrape import Scrape
from pykraft.transaction_coordinator.transaction import TransactionState

MOST_LAGS: Final = 10_000
"""Partitions of groups whose lag is shown."""


def _groups(scrape: Scrape) -> Iterator[Sample | None]:
    found: Counter[tuple[str, ...]] = Counter()
    for broker in _brokers(scrape):
        for state in broker.groups.states():
            for group in state.groups.values():
                is_consumer = isinstance(group, ConsumerGroup)
                name = group.state_name if isinstance(group, ConsumerGroup) else group.state.value
                found["consumer" if is_consumer else "classic", name] += 1
                yield None
    yield from found.items()


def _members(scrape: Scrape) -> Iterable[Sample]:
    for broker in _brokers(scrape):
        for state in broker.groups.states():
            for group_id, group in state.groups.items():
                yield (group_id,), len(group.members)


def _lags(scrape: Scrape) -> Iterator[Sample | None]:
    """Where this broker coordinates the group and has a replica of the partition."""
    shown = 0
    for broker in _brokers(scrape):
        for state in broker.groups.states():
            for group_id, topics in state.offsets.items():
                for topic, partitions in topics.items():
                    for index, committed in partitions.items():
                        if shown == MOST_LAGS:
                            return
                        replica = broker.data.table.find(topic, index)
                        if replica is None:
                            yield None
                            continue
                        shown += 1
                        yield (
                            (group_id, topic, str(index)),
                            max(0, replica.high_watermark - committed.offset),
                        )


def _transactions(scrape: Scrape) -> Iterator[Sample | None]:
    for broker in _brokers(scrape):
        found: Counter[TransactionState] = Counter()
        for state in broker.transactions.states():
            for transaction in state.transactions.values():
                found[transaction.state] += 1
                yield None
        for name, number in sorted(found.items()):
            yield (name.label,), number


def _brokers(scrape: Scrape) -> Iterable[BrokerNode]:
    return () if scrape.broker is None else (scrape.broker,)


COORDINATOR_METRICS: Final = (
    Metric(
        "kafka_server_groupcoordinatormetrics_group_count",
        Kind.GAUGE,
        "Groups that this broker coordinates, by protocol and state.",
        _groups,
        ("protocol", "state"),
        "kafka.server:type=group-coordinator-metrics,name=group-count",
    ),
    Metric(
        "pykraft_group_members",
        Kind.GAUGE,
        "Members of each group that this broker coordinates.",
        _members,
        ("consumergroup",),
    ),
    Metric(
        "kafka_consumergroup_lag",
        Kind.GAUGE,
        "Committed records that a group has not yet consumed, of at most"
        f" {MOST_LAGS:,} partitions; where this broker coordinates the group and has a replica.",
        _lags,
        ("consumergroup", "topic", "partition"),
    ),
    Metric(
        "pykraft_transactional_ids",
        Kind.GAUGE,
        "Transactional ids that this broker coordinates, by the state of their transaction.",
        _transactions,
        ("state",),
    ),
)
