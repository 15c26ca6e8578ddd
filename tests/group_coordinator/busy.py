"""A coordinator whose turns of the event loop are short."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from pykraft.group_coordinator.runtime import HostedGroups
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.result import CoordinatorResult
from pykraft.group_coordinator.state.shard_state import Group
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.turns import TURN_US
from tests.broker.slices import Turns
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.group_coordinator.offset_rows import commit_of
from tests.unexpected import unexpected
from tests.waits import settle

CONFIG = GroupConfig(offsets_topic_num_partitions=1)


class BusyWorld:
    """A coordinator of one partition. Each look at the clock shows so much more, usually half of a turn."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        *,
        look_us: int = TURN_US // 2,
        lease: Any = None,
        on_growth: Callable[[], None] | None = None,
    ) -> None:
        self.turns = Turns(look_us)
        self.clock, self.writer = ManualClock(), tools.MemoryWriter(max_bytes=1 << 30)
        self.service = GroupCoordinatorService(
            CONFIG,
            self.writer,
            self.clock,
            Random(1),
            unexpected,
            lease,
            on_growth=on_growth,
            turns=self.turns.budget,
        )
        self.set_topics(sizes)

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        image = tools.make_image({**sizes})
        self.service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)

    async def lead(self) -> None:
        self.service.on_elected(0, 1)
        await settle(20)

    @property
    def hosted(self) -> HostedGroups:
        return self.service._runtime._hosted[0]

    def commit(self, offset: int, partitions: int, topic: str = "t") -> None:
        record = commit_of("g", topic, dict.fromkeys(range(partitions), (offset, "")), tools.topic_id(topic))
        self.service._runtime._apply(self.hosted, lambda state: CoordinatorResult(None, (record,)))

    def put(self, *groups: Group) -> None:
        """Groups come into being as they are."""
        shard = self.hosted.shard
        state = shard.state
        for group in groups:
            state = state.with_group(group)
        shard._timeline.set(shard._pending_offset, state)

    def send(self, request: Message, version: int) -> asyncio.Task[Any]:
        return asyncio.ensure_future(tools.answer(self.service, tools.CALLER, request, version))

    async def stop(self) -> None:
        await self.service.stop()
        self.turns.stop()


@asynccontextmanager
async def busy(*, sizes: Mapping[str, int] = {"t": 1}) -> AsyncIterator[BusyWorld]:
    world = BusyWorld(sizes)
    await world.lead()
    yield world
    await world.stop()
