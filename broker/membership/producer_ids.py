"""Producer ids, handed out of blocks the controller allocates; no two producers ever share one.

Nobody waits for the controller, as in Kafka: the next block is asked for when nine tenths of the last are
used up, and the first one when the broker starts. Without an id the answer is COORDINATOR_LOAD_IN_PROGRESS,
which clients repeat; they take other errors of controllers for fatal.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Ask the controller for a block: (first id, number of ids)."""

_LOW_PERCENT: Final = 10


class ProducerIdAllocator:
    """Hands out ids one by one. One block at a time is asked for, however many wait for it."""

    def __init__(self, allocate_block: AllocateBlock, tasks: TaskSupervisor) -> None:
        self._allocate_block = allocate_block
        self._tasks = tasks
        self._ids = range(0)
        self._next_ids = range(0)
        """The block after that, if it is known already."""
        self._low = 0
        self._is_asking = False

    def next_id(self) -> int:
        """An id that no other producer has. COORDINATOR_LOAD_IN_PROGRESS while there is none."""
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, range(0)
        if not self._ids:
            self.fetch_block()
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller has not given any ids yet."
            )
        id, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) <= self._low:
            self.fetch_block()
        return id

    def fetch_block(self) -> None:
        """Ask for the next block, unless it is there or was asked for."""
        if not self._next_ids and not self._is_asking:
            self._is_asking = True
            self._tasks.start(self._fetch(), "producer-ids")

    async def _fetch(self) -> None:
        try:
            start, length = await self._allocate_block()
            self._next_ids = range(start, start + length)
            self._low = length * _LOW_PERCENT // 100
        except KafkaError as error:
            logger.warning("the controller gives no producer ids: %s", error)
        finally:
            self._is_asking = False
