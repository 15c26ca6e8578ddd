"""What a group coordinator tells its observer, and when."""

import asyncio

from pykraft.group_coordinator.observer import GroupObserver
from pykraft.group_coordinator.runtime import GroupRuntime
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state.config import GroupConfig
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.narrowing import present
from tests.unexpected import unexpected


class Told(GroupObserver):
    def __init__(self) -> None:
        self.words: list[tuple[str, int]] = []

    def shard_loaded(self, shard: GroupShard) -> None:
        assert shard.loaded
        self.words.append(("loaded", shard.partition))

    def shard_committed(self, shard: GroupShard) -> None:
        self.words.append(("committed", shard.partition))


def test_shard_is_observed_once_it_is_loaded_and_whenever_its_log_is_committed() -> None:
    told = Told()
    config = GroupConfig(offsets_topic_num_partitions=1)
    runtime = GroupRuntime(config, tools.MemoryWriter(), ManualClock(), unexpected, observer=told)

    async def load() -> None:
        runtime.elect(0, 1)
        runtime.on_high_watermark(0, 0)  # not loaded yet
        runtime.on_high_watermark(1, 0)  # led by another
        await present(runtime._hosted[0].load_task)

    asyncio.run(load())
    assert told.words == [("loaded", 0)]
    runtime.on_high_watermark(0, 0)
    assert told.words == [("loaded", 0), ("committed", 0)]
