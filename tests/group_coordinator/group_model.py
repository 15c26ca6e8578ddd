"""What the seeded simulations of one group share: a log whose high watermark lags, and a replay of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from tests.group_coordinator import tools


class GroupModel(ABC, tools.ShardLab):
    def __init__(self, rng: Random, sizes: Mapping[str, int], config: GroupConfig) -> None:
        self.rng = rng
        self.sizes = dict(sizes)
        super().__init__(self.sizes, config)
        self.writer.hold = True
        self.writer.logs[0] = []
        self.shadow, self.shadow_offset = EMPTY_STATE, 0
        self.in_flight: list[tuple[Any, ...]] = []
        """Answers that wait for the high watermark: the offset, then what :meth:`deliver` takes."""

    @abstractmethod
    def deliver(self, *args: Any, **kwargs: Any) -> None:
        """An answer reaches its client."""

    def advance_watermark(self, *, fully: bool = False) -> None:
        end, old = len(self.writer.logs[0]), self.writer.high_watermark(0)
        self.writer.watermarks[0] = end if fully else self.rng.randint(old, end)
        self.shard.advance(self.writer.high_watermark(0))
        for entry in list(self.in_flight):
            if entry[0] <= self.writer.high_watermark(0):
                self.in_flight.remove(entry)
                self.deliver(*entry[1:])

    def take_over(self) -> bool:
        """Another coordinator has all below the high watermark, and possibly more: whether it has all."""
        ends = list(accumulate((len(batch) for _, _, batch in self.writer.batches), initial=0))
        keep = self.rng.choice([end for end in ends if end >= self.writer.high_watermark(0)])
        del self.writer.logs[0][keep:]
        del self.writer.batches[ends.index(keep) :]
        self.in_flight.clear()
        self.fail_over()
        self.shadow, self.shadow_offset = EMPTY_STATE, 0
        return keep == ends[-1]

    def replayed(self) -> ShardState:
        """What the log says, of which only the new part is read each time."""
        log = self.writer.logs[0]
        self.shadow = replay_all(self.shadow, decoded(log[self.shadow_offset :]))
        self.shadow_offset = len(log)
        return self.shadow


def decoded(records: Iterable[tuple[bytes, bytes | None]]) -> list[Any]:
    return [record for key, value in records if (record := tools.decode(key, value)) is not None]


def refused(work: Callable[[], object], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        work()
    assert caught.value.code is code
