"""Which replicas and brokers a throttled move concerns, and when its throttles go."""

from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import ConfigChange, PartitionReassignment
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.node.cli.reassign import reassign_partitions
from pykraft.node.cli.reassign.throttles import Move, clear_throttles, find_moves, set_throttles

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Client:
    """Keeps configurations; ``ongoing``: the moves under way."""

    def __init__(self, ongoing: dict[TopicPartition, PartitionReassignment] | None = None) -> None:
        self.ongoing = ongoing or {}
        self.configs: dict[tuple[ConfigResourceType, str], dict[str, str | None]] = {}

    def alter_configs(self, kind: ConfigResourceType, name: str, changes: list[ConfigChange]) -> None:
        values = self.configs.setdefault((kind, name), {})
        for change in changes:
            if change.operation is ConfigOperation.DELETE:
                values.pop(change.name, None)
            else:
                values[change.name] = change.value

    def describe_cluster(self, *, controllers: bool = False) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(id=id) for id in (1, 2, 3)])

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        return self.ongoing

    def describe_topics(self, names: list[str]) -> list[Any]:
        partition = SimpleNamespace(index=0, replicas=(1, 2))
        return [SimpleNamespace(name=name, partitions=[partition]) for name in names]

    @property
    def admin(self) -> AdminClient:
        return cast(AdminClient, self)

    def is_throttled(self) -> bool:
        return any(self.configs.values())


def test_moves_under_way_are_copied_from_the_replicas_they_began_with() -> None:
    ongoing = {
        T0: PartitionReassignment((1, 2, 3), adding=(3,), removing=(1,)),
        T1: PartitionReassignment((1, 4), adding=(4,), removing=(1,)),
    }
    moves = find_moves(ongoing, {T0: (2, 5), U0: (2, 3)}, {T0: (1, 2, 3), U0: (1, 2)})
    assert moves == {
        T0: Move(frozenset({1, 2}), frozenset({5})),
        T1: Move(frozenset({1}), frozenset({4})),
        U0: Move(frozenset({1, 2}), frozenset({3})),
    }


def test_lists_name_both_sides_and_rates_are_set_on_every_broker_that_takes_part() -> None:
    client = Client()
    moves = {
        T0: Move(frozenset({1, 2}), frozenset({5})),
        T1: Move(frozenset({2}), frozenset({3})),
    }
    set_throttles(client.admin, moves, 5000)
    assert client.configs.pop((ConfigResourceType.TOPIC, "t")) == {
        "leader.replication.throttled.replicas": "0:1,0:2,1:2",
        "follower.replication.throttled.replicas": "0:5,1:3",
    }
    rates = {
        "leader.replication.throttled.rate": "5000",
        "follower.replication.throttled.rate": "5000",
    }
    assert client.configs == {(ConfigResourceType.BROKER, str(id)): rates for id in (1, 2, 3, 5)}
    clear_throttles(client.admin, {T0: (5,)})
    assert not client.is_throttled()


@pytest.mark.parametrize("is_moving", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_verify_clears_throttles_when_nothing_moves_any_more(is_moving: bool, preserve: bool) -> None:
    move = PartitionReassignment((1, 2, 3), adding=(3,), removing=(1,))
    client = Client({T0: move} if is_moving else {})
    set_throttles(client.admin, {U0: Move(frozenset({1}), frozenset({2}))}, 5000)
    # Another partition than the one that moves: its throttle may be needed still.
    with click.Context(reassign_partitions.command):
        reassign_partitions._verify(client.admin, {U0: (1, 2)}, {}, preserve)
    assert client.is_throttled() is (is_moving or preserve)
