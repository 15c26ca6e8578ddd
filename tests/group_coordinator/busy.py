"""A coordinator whose turns of the event loop are short."""

import asyncio
from random import Random

from pykraft.group_coordinator.runtime import HostedGroups
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.result import CoordinatorResult
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.turns import TURN_US, TurnBudget
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.group_coordinator.offset_rows import commit_of
from tests.unexpected import unexpected


class BusyWorld:
    """A coordinator of one partition. Each look at the clock shows half of a turn more."""

    def __init__(self, sizes: dict[str, int]) -> None:
        loop = asyncio.get_running_loop()
        self.now_us = self.turn = 0
        self.writer = tools.MemoryWriter(max_bytes=1 << 30)
        budget = TurnBudget(loop.call_soon, self._look)
        config = GroupConfig(offsets_topic_num_partitions=1)
        self.service = GroupCoordinatorService(
            config, self.writer, ManualClock(), Random(1), unexpected, turns=budget
        )
        image = tools.make_image(sizes)
        self.service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
        self.service.on_elected(0, 1)

    def _look(self) -> int:
        self.now_us += TURN_US // 2
        return self.now_us

    @property
    def hosted(self) -> HostedGroups:
        return self.service._runtime._hosted[0]

    def commit(self, offset: int, partitions: int, topic: str = "t") -> None:
        record = commit_of("g", topic, dict.fromkeys(range(partitions), (offset, "")), tools.topic_id(topic))
        self.service._runtime._apply(self.hosted, lambda state: CoordinatorResult(None, (record,)))
