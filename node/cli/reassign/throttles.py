"""The throttles of moves (KIP-73), set and cleared as kafka-reassign-partitions does.

A move is throttled by the rate of the brokers that take part, and by its replicas in the lists of its topic:
those that are copied from, and those that are copied to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import ConfigChange, PartitionReassignment
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.shared.common import say

Replicas = Mapping[TopicPartition, Sequence[int]]

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"


class Move(NamedTuple):
    """Where a partition is copied from, and to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def find_moves(
    ongoing: Mapping[TopicPartition, PartitionReassignment], wanted: Replicas, current: Replicas
) -> dict[TopicPartition, Move]:
    """All moves: those under way, and those that are about to begin."""
    moves = {
        partition: Move(frozenset(move.replicas) - frozenset(move.adding), frozenset(move.adding))
        for partition, move in ongoing.items()
    }
    for partition, replicas in wanted.items():
        known = moves.get(partition)
        sources = known.sources if known is not None else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


def set_throttles(client: AdminClient, moves: Mapping[TopicPartition, Move], rate: int) -> None:
    """Limit all ``moves``, to ``rate`` bytes a second on each broker."""
    for topic in sorted({partition.topic for partition in moves}):
        of_topic = {it.partition: move for it, move in moves.items() if it.topic == topic}
        lists = {
            _LEADERS: {f"{index}:{id}" for index, move in of_topic.items() for id in move.sources},
            _FOLLOWERS: {f"{index}:{id}" for index, move in of_topic.items() for id in move.destinations},
        }
        changes = [
            ConfigChange(name, ConfigOperation.SET, ",".join(sorted(entries)))
            for name, entries in lists.items()
        ]
        client.alter_configs(ConfigResourceType.TOPIC, topic, changes)
    changes = [ConfigChange(name, ConfigOperation.SET, str(rate)) for name in _RATES]
    for broker in sorted(frozenset().union(*(move.sources | move.destinations for move in moves.values()))):
        client.alter_configs(ConfigResourceType.BROKER, str(broker), changes)
    say(f"The inter-broker throttle limit was set to {rate} B/s")


def set_directory_throttle(client: AdminClient, brokers: Iterable[int], rate: int) -> None:
    """Limit moves between the directories of each of these brokers to ``rate`` bytes a second."""
    for broker in sorted(set(brokers)):
        change = ConfigChange(_DIRECTORY_RATE, ConfigOperation.SET, str(rate))
        client.alter_configs(ConfigResourceType.BROKER, str(broker), [change])
    say(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def clear_throttles(client: AdminClient, wanted: Replicas, *, controllers: bool = False) -> None:
    """Clear the throttles of all brokers and of the topics of ``wanted``, no matter who set them: nothing tells
    which brokers took part in moves that have ended. ``controllers``: the client is one of controllers.
    """
    live = {node.id for node in client.describe_cluster(controllers=controllers).brokers}
    brokers = sorted(live.union(*wanted.values()))
    topics = sorted({partition.topic for partition in wanted})
    say(f"Clearing broker-level throttles on broker{_plural(brokers)} {_names(brokers)}")
    for broker in brokers:
        try:
            client.alter_configs(ConfigResourceType.BROKER, str(broker), _deleted(*_RATES, _DIRECTORY_RATE))
        except KafkaError as error:
            # The file may name a broker that has gone, and not every controller is a broker.
            if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
    say(f"Clearing topic-level throttles on topic{_plural(topics)} {_names(topics)}")
    for topic in topics:
        client.alter_configs(ConfigResourceType.TOPIC, topic, _deleted(_LEADERS, _FOLLOWERS))


def _deleted(*names: str) -> list[ConfigChange]:
    return [ConfigChange(name, ConfigOperation.DELETE) for name in names]


def _plural(items: Sequence[object]) -> str:
    return "s" if len(items) != 1 else ""


def _names(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
