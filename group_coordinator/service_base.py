"""Common to all group requests: finding a group's shard, and asking it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from pykraft.coordinator.lease import Lease
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, partition_for_key
from pykraft.coordinator.writer import PartitionWriter
from pykraft.group_coordinator.consumer.heartbeat import HeartbeatPace
from pykraft.group_coordinator.observer import UNOBSERVED, GroupObserver
from pykraft.group_coordinator.past_lease import Member
from pykraft.group_coordinator.runtime import GroupRuntime
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.result import Call, CoordinatorResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.hot.offset_commit import CommitRequestView
from pykraft.kafka_protocol.ids import Uuid, make_uuid, uuid_to_str
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.runtime.clock import Clock
from pykraft.runtime.slices import Slices
from pykraft.runtime.tasks import FatalHandler, Workers
from pykraft.runtime.turns import Turns, UnlimitedTurn

if TYPE_CHECKING:
    from random import Random

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
_GROUPS_AT_ONCE = 20
_MOST_CACHED_GROUPS = 10_000
MERGES = 3
"""How often the offsets of a large change are merged over several turns, if they change meanwhile."""


class ServiceBase:
    """Leadership, metadata and settings come in here. The APIs are in its subclasses."""

    def __init__(
        self,
        config: GroupConfig,
        writer: PartitionWriter,
        clock: Clock,
        rng: Random,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
        workers: Workers | None = None,
        observer: GroupObserver = UNOBSERVED,
    ) -> None:
        """``workers`` compile long regular expressions, by default in the turn.

        ``on_growth`` is called repeatedly while the state of groups grows by many long-lived objects.
        """
        self.config = config
        self._runtime = GroupRuntime(config, writer, clock, on_fatal, lease, on_growth, turns, observer)
        self._pace = HeartbeatPace(self._runtime.count_timers)
        turns = UnlimitedTurn() if turns is None else turns
        self._fetches = Slices(turns, "large fetches")
        self._changes = Slices(turns, "large changes")
        self._looks = Slices(turns, "looks at many groups")
        self._upgrades = asyncio.Lock()
        self._workers = workers
        self._clock = clock
        self._rng = rng
        self._partition_cache_of = 0
        self._partition_cache: dict[str, int] = {}
        """Hashing an id takes longer than parsing its request. For this number of partitions."""

    async def start(self) -> None:
        self._runtime.start()

    async def stop(self) -> None:
        """Stop; requests that still wait are answered with NOT_COORDINATOR."""
        await self._runtime.stop()

    def partition_for(self, group_id: str) -> int:
        count = self.num_partitions
        if self._partition_cache_of != count or len(self._partition_cache) >= _MOST_CACHED_GROUPS:
            self._partition_cache_of, self._partition_cache = count, {}
        partition = self._partition_cache.get(group_id)
        if partition is None:
            partition = self._partition_cache[group_id] = partition_for_key(group_id, count)
        return partition

    @property
    def num_partitions(self) -> int:
        """The number of partitions of the offsets topic; the configured one until it exists."""
        return self._runtime.topics.partition_count(OFFSETS_TOPIC) or self.config.offsets_topic_num_partitions

    def leads(self, partition: int) -> bool:
        """Whether this broker has been elected for the partition, which it may still have to load."""
        return self._runtime.leads(partition)

    def states(self) -> Iterator[ShardState]:
        """The newest state of every partition that it serves, for counting."""
        return self._runtime.states()

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition: load it. Until then requests get COORDINATOR_LOAD_IN_PROGRESS."""
        self._runtime.elect(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition: all waiting requests fail with NOT_COORDINATOR."""
        self._runtime.resign(partition)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        self._runtime.on_high_watermark(partition, high_watermark)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._runtime.on_metadata(delta, image)

    def tick(self) -> None:
        """Run every timer that is due (the started service does this by itself)."""
        self._runtime.tick()

    def on_config(self, config: GroupConfig) -> None:
        """This broker's settings have changed; heartbeats from now on are answered by the new ones."""
        self.config = self._runtime.config = config

    def _prepare(self, partition: int, prepare: Callable[[ShardState], Iterator[None]]) -> Iterator[None]:
        """Have a large change prepared for the newest state, again if the state changes meanwhile."""
        for _ in range(1 + MERGES):
            yield from prepare(self._runtime.state_of(partition))

    def _call(self, ctx: RequestContext, request: Message | CommitRequestView, version: int) -> Call:
        return Call(
            config=self._runtime.config_of(getattr(request, "group_id", "")),
            topics=self._runtime.topics,
            version=version,
            wall_ms=self._clock.wall_ms(),
            client_id=ctx.client_id,
            client_host=f"/{ctx.client_address}",
            new_member_id=self._new_member_id(request),
        )

    def _new_member_id(self, request: Message | CommitRequestView) -> str:
        match request:
            case JoinGroupRequest(member_id=""):
                text = self._random_uuid().hex()
                return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            case ConsumerGroupHeartbeatRequest(member_id=""):
                return uuid_to_str(self._random_uuid())
            case _:
                return ""

    def _random_uuid(self) -> Uuid:
        while (drawn := make_uuid(self._rng.randbytes(16))) is None:
            pass
        return drawn

    def _write(
        self,
        group_id: str,
        decide: Callable[[ShardState], CoordinatorResult[C]],
        member: Member | None = None,
    ) -> Awaitable[C]:
        return self._runtime.write(self.partition_for(group_id), decide, member)

    async def _gather_in_slices(
        self, look_up: Callable[[A], Awaitable[B]], items: Sequence[A], at_once: int = _GROUPS_AT_ONCE
    ) -> list[B]:
        """``look_up`` of each item, in order, a few at a time: one request may name very many groups."""
        found: list[B] = []
        for start in range(0, len(items), at_once):
            found += await asyncio.gather(*(look_up(item) for item in items[start : start + at_once]))
            await self._looks.pause()
        return found
