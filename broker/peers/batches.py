"""One exchange at a time with each broker: what becomes due meanwhile shares the next one.

What is due at this broker needs no request. An error that nobody foresaw (an answer that makes no sense, a
bug) costs the batch that met it, and neither what is due after it nor the node.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final, Generic, TypeVar

from pykraft.broker.peers.peers import Peers
from pykraft.broker.replicas.ports import ImageSource
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", bound=Message)
A = TypeVar("A")

_REQUEST_TIMEOUT_MS: Final = 30_000


class PeerBatches(ABC, Generic[T, R, A]):
    """Sends each ``T`` to a broker; ``R`` is the response of others, ``A`` what it or this broker says."""

    name: ClassVar[str]
    """The names of the tasks."""

    def __init__(self, node_id: int, metadata: ImageSource, peers: Peers, tasks: TaskSupervisor) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._tasks = tasks
        self._due: dict[int, deque[T]] = {}
        """By broker; while there is an entry its task is running."""

    @abstractmethod
    def _take(self, due: deque[T]) -> Sequence[T]:
        """Remove from what is due at least one; the next batch is what is still wanted of that."""

    @abstractmethod
    def _request(self, batch: Sequence[T]) -> Request[R]: ...

    @abstractmethod
    async def _here(self, batch: Sequence[T]) -> A:
        """Return this broker's own answer."""

    @abstractmethod
    def _read(self, response: R) -> A: ...

    @abstractmethod
    def _answered(self, batch: Sequence[T], answer: A) -> None: ...

    @abstractmethod
    def _failed(self, batch: Sequence[T], error: KafkaError) -> None: ...

    def add(self, node_id: int, one: T) -> None:
        """Send this to a broker soon."""
        due = self._due.get(node_id)
        if due is None:
            due = self._due[node_id] = deque()
            self._tasks.start(self._run(node_id, due), f"{self.name}-{node_id}")
        due.append(one)

    async def _run(self, node_id: int, due: deque[T]) -> None:
        try:
            while due:
                batch = self._take(due)
                try:
                    await self._exchange(node_id, batch)
                except Exception:
                    logger.exception("%s-%d: %d have failed", self.name, node_id, len(batch))
                    self._failed(batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        finally:
            del self._due[node_id]

    async def _exchange(self, node_id: int, batch: Sequence[T]) -> None:
        if not batch:
            return
        try:
            if node_id == self._node_id:
                answer = await self._here(batch)
            else:
                request = self._request(batch)
                answer = self._read(await self._peers.call(node_id, request, _REQUEST_TIMEOUT_MS))
        except KafkaError as error:
            logger.debug("%s-%d: %s", self.name, node_id, error)
            self._failed(batch, error)
            return
        self._answered(batch, answer)
