"""One node in virtual time, whose topics, brokers and groups have settings at their legal extremes."""

import asyncio
import random
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from pykraft.broker.replicas.data_plane import DataPlane
from pykraft.broker.replicas.leading.offset_lookup import EARLIEST
from pykraft.configuration.keys import ConfigError, ConfigKey, ConfigType
from pykraft.jepsen_like.faults.clients.own_admin import client_config
from pykraft.jepsen_like.simulation.cluster import node as simulated
from pykraft.jepsen_like.simulation.cluster import world as worlds
from pykraft.jepsen_like.simulation.cluster.node import SimNode
from pykraft.jepsen_like.simulation.cluster.options import WorldOptions, draw_options
from pykraft.jepsen_like.simulation.cluster.ring import _discard_world, _on_error
from pykraft.jepsen_like.simulation.cluster.settings import CLIENT_PORT, QUORUM_PORT
from pykraft.jepsen_like.simulation.cluster.world import World, make_loop
from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.fetcher import FetchConfig, PartitionFetcher
from pykraft.kafka_client.group.config import GroupConfig
from pykraft.kafka_client.group.member import GroupMember, OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_records
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.runtime.simulated.streams import address_of

NUMBERS: Final = (-(1 << 63), 1 - (1 << 63), -(1 << 31), 1 - (1 << 31), -(1 << 15), -2, -1, 0, 1)
PROPERTIES: Final = {
    "log.retention.check.interval.ms": 1000,
    "log.cleaner.backoff.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.min.session.timeout.ms": 1,
    "group.consumer.max.session.timeout.ms": (1 << 31) - 1,
    "group.consumer.min.heartbeat.interval.ms": 1,
    "group.consumer.max.heartbeat.interval.ms": (1 << 31) - 1,
    "group.consumer.max.assignment.interval.ms": (1 << 31) - 1,
}


def extremes(key: ConfigKey) -> Iterator[str]:
    """The least and the greatest values that a key takes, or all of a few."""
    if key.type is ConfigType.BOOLEAN:
        yield from _legal(key, ("false", "true"))
    elif key.type in (ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD):
        allowed = "" if key.validator is None else key.validator.allowed
        choices = [] if "..." in allowed or ":" in allowed else allowed.strip("[]").split(", ")
        yield from _legal(key, (*choices, ",".join(choices), "", "*"))
    else:
        bounds = re.findall(r"-?\d+", "" if key.validator is None else key.validator.allowed)
        numbers = sorted({*NUMBERS, *(-number - 1 for number in NUMBERS), *map(int, bounds)})
        if key.type is ConfigType.DOUBLE:
            yield from dict.fromkeys(_legal(key, map(str, (*map(float, numbers), 1.7976931348623157e308))))
        else:
            legal = list(_legal(key, map(str, numbers)))
            yield from dict.fromkeys([*legal[:2], *legal[-2:]])


def _legal(key: ConfigKey, texts: Any) -> Iterator[str]:
    for text in dict.fromkeys(texts):
        try:
            key.parse(text)
        except ConfigError:
            continue
        yield text


class LoneWorld:
    """One node, which is controller and broker, and clients on another machine."""

    def __init__(self, world: World) -> None:
        self.world = world
        network, config = AsyncioNetwork(), client_config(world.bootstrap, "test")
        self.admin = Admin(network, config)
        self.cluster = Cluster(network, config)
        self.producer = Producer(network, config, ProducerConfig(linger_ms=0))
        self.expected: dict[str, list[tuple[int, bytes | None, bytes | None, int]]] = {}
        """Of each topic what was acknowledged: offset, key, value and time of each record."""

    @property
    def node(self) -> SimNode:
        return self.world.nodes[1]

    @property
    def data(self) -> DataPlane:
        """The replicas of the broker that runs now."""
        assert self.node.node is not None and self.node.node.broker is not None
        return self.node.node.broker.data

    @property
    def now_ms(self) -> int:
        return self.node.clock.wall_ms()

    async def close(self) -> None:
        await self.producer.close()
        self.cluster.close()
        self.admin.close()

    async def until(self, condition: Callable[[], object], limit_s: float = 120) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():
                self.check()
                await asyncio.sleep(0.02)

    def check(self) -> None:
        if self.world.error is not None:
            raise self.world.error

    async def rest(self, seconds: float) -> None:
        """Let the broker work."""
        await asyncio.sleep(seconds)
        self.check()
        assert self.node.is_serving

    async def append(self, topic: str, key: bytes | None, value: bytes | None, time_ms: int) -> None:
        """Write a record in a batch of its own."""
        record = RecordInput(key, value, (), time_ms)  # other clients send any time
        done = await self.producer.append_encoded(topic, 0, encode_records([record]))
        assert done.offset is not None
        self.expected.setdefault(topic, []).append((done.offset, key, value, time_ms))

    async def read(self, topic: str, isolation_level: int = 0) -> list[Record]:
        """All records of partition 0 that are left."""
        found: list[Record] = []
        place = TopicPartition(topic, 0)
        start = (await self.admin.list_offsets({place: EARLIEST}))[place].offset
        assert start is not None
        config = FetchConfig(max_wait_ms=10, isolation_level=isolation_level)
        fetcher = PartitionFetcher(self.cluster, topic, None, 0, start, config)
        while True:
            got = await fetcher.fetch(self.cluster.deadline(None))
            for position, header in got.headers:
                if not header.is_control:
                    data = got.data[position : position + header.size_bytes]
                    found += [one for one in decode_batch(data) if one.offset >= start]
            end = got.last_stable_offset if isolation_level else got.high_watermark
            if got.next_offset >= end:
                fetcher.close()
                return found

    async def consume(self, topic: str, end_offset: int, limit_s: float) -> bool:
        """Join the group ``g``, read and commit up to there; whether that was done in time."""
        config = GroupConfig("g", (topic,), "consumer", auto_offset_reset="earliest")
        network, client = AsyncioNetwork(), client_config(self.world.bootstrap, "member")
        member = GroupMember(network, client, config, _Silent(), random.Random(self.now_ms))
        place = TopicPartition(topic, 0)
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    with suppress(KafkaError):
                        polled = await member.poll(100)
                        offsets = {one: OffsetAndMetadata(of.next_offset) for one, of in polled.items()}
                        if offsets:
                            await member.commit(offsets)
                    with suppress(KafkaError):
                        found = await self.admin.group_offsets("g", [place])
                        if place in found and found[place].offset == end_offset:
                            return True
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        finally:
            await member.close()

    async def restart(self, *, power_loss: bool) -> None:
        self.node.kill(power_loss=power_loss)
        self.node.start()
        await self.until(lambda: self.node.is_serving)


class _Silent:
    """A listener that has nothing to do."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None: ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None: ...

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None: ...


def run(
    monkeypatch: pytest.MonkeyPatch,
    body: Callable[[LoneWorld], Coroutine[Any, Any, None]],
    properties: Mapping[str, object] | None = None,
) -> None:
    """Run ``body`` on a client's machine beside a node with these properties."""
    text = "".join(
        f"{name}={value}\n" for name, value in {**_listeners(), **PROPERTIES, **(properties or {})}.items()
    )

    def lone_config(options: WorldOptions, node_id: int, *, session_ms: int) -> ServerConfig:
        return load_server_config(text)

    monkeypatch.setattr(simulated, "server_config", lone_config)
    monkeypatch.setattr(worlds, "draw_options", _lone_options)
    loop = make_loop(1)
    world = World(1, loop)
    loop.set_exception_handler(lambda _, context: _on_error(world, context))

    async def main() -> None:
        world.later(1, world.nodes[1].start)
        client = world.start_client("test")

        async def client_main() -> None:
            lone = LoneWorld(world)
            try:
                await lone.until(lambda: lone.node.is_serving)
                await body(lone)
                lone.check()
            finally:
                await lone.close()

        await client.run(client_main())
        if world.error is not None:
            raise world.error

    try:
        loop.run_until_complete(main())
    finally:
        _discard_world(world)


def _lone_options(seed: int, workload: str | None) -> WorldOptions:
    return replace(
        draw_options(seed, workload),
        controllers=(1,),
        brokers=(1,),
        first_voters=(1,),
        voters_in_log=False,
        log_dirs=1,
        moves_logs=False,
        reads_followers=False,
        throttles=False,
        flush_messages=None,
        keeps_tails=True,
    )


def _listeners() -> dict[str, object]:
    quorum = f"{address_of(1)}:{QUORUM_PORT}"
    return {
        "node.id": 1,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{address_of(1)}:{CLIENT_PORT},CONTROLLER://{quorum}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{quorum}",
        "log.dirs": "/data",
    }
