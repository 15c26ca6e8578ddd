"""A shard of groups with the joins and syncs that are parked in it, and with its unfinished sweeps."""

from __future__ import annotations

import asyncio
from collections import deque

from pykraft.coordinator.answers import Answers
from pykraft.coordinator.hosted import HostedShard
from pykraft.group_coordinator.housekeeping import Sweep
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state.result import CoordinatorResult, Parked
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode

_NEVER_MS = 2**63


class HostedGroups(HostedShard[ShardState, CoordinatorResult]):
    shard: GroupShard

    def __init__(self, shard: GroupShard, answers: Answers) -> None:
        super().__init__(shard, answers)
        self.parked: dict[Parked, asyncio.Future[object]] = {}
        self.deleted_while_loading: set[str] = set()
        self.sweeps: deque[Sweep] = deque()
        self.sweep_from_ms = 0
        """The earliest time of the next slice: later than now only after one that could not be written."""
        self.swept_offset: int | None = None
        """The end of the last slice until it is committed: the replicas set the pace."""
        self.next_cleanup_ms = 0

    @property
    def sweep_due_ms(self) -> int:
        """When the next slice of a sweep is due; far in the future if none is."""
        return self.sweep_from_ms if self.sweeps and self.swept_offset is None else _NEVER_MS

    def drop(self) -> None:
        for future in self.parked.values():
            self._answers.fail(future, ErrorCode.NOT_COORDINATOR)
        self.parked.clear()
        super().drop()
