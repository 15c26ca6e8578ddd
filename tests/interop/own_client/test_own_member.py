"""Own group members and confluent-kafka's share groups of either protocol, with either as the leader."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.group.member import GroupConfig, GroupMember, OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition as Where
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.narrowing import present

pytestmark = pytest.mark.interop

PARTITIONS = 6
PROTOCOLS = {
    "range": ("classic", "range"),
    "cooperative": ("classic", "cooperative-sticky"),
    "consumer": ("consumer", None),
}
CONFLUENT = {
    "range": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
    "cooperative": {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
CLASSIC_TIMES = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300}


class Belief:
    """A listener that records what it was told."""

    def __init__(self) -> None:
        self.owned: set[Where] = set()
        self.lost_count = 0

    def assigned(self, partitions: Sequence[Where]) -> None:
        assert self.owned.isdisjoint(partitions)
        self.owned.update(partitions)

    async def revoked(self, partitions: Sequence[Where]) -> None:
        assert self.owned.issuperset(partitions)
        self.owned.difference_update(partitions)

    def lost(self, partitions: Sequence[Where]) -> None:
        self.lost_count += 1
        self.owned.difference_update(partitions)

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None: ...


class Group:
    """Own members and confluent's in one group; every record any of them read."""

    def __init__(self, cluster: Cluster, topic: str, group: str, protocol: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.protocol = protocol
        self.group = group
        self.own: list[GroupMember] = []
        self.confluent: list[Consumer] = []
        self.read: list[str] = []

    def add_own(self) -> GroupMember:
        protocol, assignor = PROTOCOLS[self.protocol]
        config = GroupConfig(
            self.group,
            (self.topic,),
            protocol,  # type: ignore[arg-type]
            assignor,
            session_timeout_ms=3_000,
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
        )
        client = ClientConfig(parse_bootstrap_servers(self.cluster.bootstrap_servers))
        chance = random.Random(len(self.own))
        member = GroupMember(AsyncioNetwork(), client, config, Belief(), chance)
        self.own.append(member)
        return member

    def add_confluent(self) -> Consumer:
        settings = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **CONFLUENT[self.protocol],
            **({} if self.protocol == "consumer" else CLASSIC_TIMES),
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.topic])
        self.confluent.append(consumer)
        return consumer

    async def poll(self) -> None:
        """One round: each member commits what it has read."""
        for member in self.own:
            found = await member.poll(50)
            for polled in found.values():
                self.read += [record.value.decode() for record in polled.records if record.value]
            if found:
                await member.commit({p: OffsetAndMetadata(polled.next_offset) for p, polled in found.items()})
        for consumer in self.confluent:
            for message in await asyncio.to_thread(consumer.consume, 100, 0.05):
                assert message.error() is None, message.error()
                self.read.append(present(message.value()).decode())
                await asyncio.to_thread(partial(consumer.commit, message=message, asynchronous=False))

    def owned(self) -> list[list[int]]:
        own = [sorted(where.partition for where in member.owned) for member in self.own]
        return own + [sorted(item.partition for item in one.assignment()) for one in self.confluent]

    async def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = Deadline(PATIENCE_S)
        while not done():
            assert not deadline.passed, f"{what}: {self.owned()}, {len(self.read)} records"
            await self.poll()

    async def shared(self, *counts: int) -> None:
        def is_shared() -> bool:
            owned = self.owned()
            everything = sorted(p for partitions in owned for p in partitions)
            return everything == list(range(PARTITIONS)) and sorted(map(len, owned)) == sorted(counts)

        await self.until(is_shared, f"shared as {counts}")

    async def produce_and_read(self, values: list[str]) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for n, value in enumerate(values):
            producer.produce(self.topic, value, partition=n % PARTITIONS)
        assert await asyncio.to_thread(producer.flush, 20) == 0
        self.read.clear()
        await self.until(lambda: len(self.read) >= len(values), "read everything")
        assert sorted(self.read) == sorted(values), "each record once: committed offsets are kept"

    async def close(self) -> None:
        for member in self.own:
            member.abandon()
        for consumer in self.confluent:
            await asyncio.to_thread(consumer.close)


@pytest.mark.parametrize("own_first", [True, False], ids=["own first", "confluent first"])
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_members_of_both_kinds_share_a_group(
    trio: Cluster,
    new_topic: Callable[..., str],
    fresh: Callable[[str], str],
    protocol: str,
    own_first: bool,
) -> None:
    topic = new_topic(PARTITIONS)

    async def main() -> None:
        group = Group(trio, topic, fresh("group"), protocol)
        try:
            for add in (
                (group.add_own, group.add_confluent) if own_first else (group.add_confluent, group.add_own)
            ):
                add()
                await group.poll()
            await group.shared(3, 3)
            await group.produce_and_read([f"a{n:02}" for n in range(60)])
            group.add_own()
            await group.shared(2, 2, 2)
            await group.produce_and_read([f"b{n:02}" for n in range(60)])
            leaving = group.own.pop(0)
            await leaving.close()
            assert leaving.owned == frozenset()
            await group.shared(3, 3)
            await group.produce_and_read([f"c{n:02}" for n in range(60)])
            # One is killed; its session ends, and the other gets everything.
            group.own.pop().abandon()
            await group.shared(6)
            await group.produce_and_read([f"d{n:02}" for n in range(60)])
        finally:
            await group.close()

    asyncio.run(main())
