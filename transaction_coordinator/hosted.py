"""A shard of transactions with those whose markers are being written."""

from __future__ import annotations

import asyncio
from collections import deque

from pykraft.coordinator.answers import Answers
from pykraft.coordinator.hosted import HostedShard
from pykraft.transaction_coordinator.result import CoordinatorResult
from pykraft.transaction_coordinator.shard import TransactionShard
from pykraft.transaction_coordinator.state import ShardState


class HostedTransactions(HostedShard[ShardState, CoordinatorResult]):
    shard: TransactionShard

    def __init__(self, shard: TransactionShard, answers: Answers) -> None:
        super().__init__(shard, answers)
        self.prepared: deque[tuple[int, tuple[str, ...]]] = deque()
        """Decided transactions, by the offset from which on their markers may be written."""
        self.completing: dict[asyncio.Task[None], None] = {}
        """Their markers are being written, and then that they are complete."""
        self.next_timeouts_ms = 0
        self.next_expiry_ms = 0
        self.walk: asyncio.Task[None] | None = None
        """Looks for timeouts and expired ids."""

    def drop(self) -> None:
        for task in self.completing:
            task.cancel()
        if self.walk is not None:
            self.walk.cancel()
        super().drop()
