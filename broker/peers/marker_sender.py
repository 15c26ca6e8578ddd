"""Writes the markers of decided transactions to the leaders of their partitions (KIP-98).

All that is due at one broker goes into one request, while the one before is on its way: so a thousand small
transactions cost few requests. What a leader cannot do now is tried again, at the leader of that time, for as
long as it takes: the transaction is decided. A partition that was deleted needs no marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from pykraft.broker.peers.exchanges import Exchanges
from pykraft.broker.peers.peers import Peers
from pykraft.broker.replicas.ports import ImageSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.transaction_coordinator.log.codec import by_topic
from pykraft.transaction_coordinator.ports import MarkersRefusedError
from pykraft.transaction_coordinator.transaction import TopicPartition, Transaction, TransactionState

logger = logging.getLogger(__name__)

WriteHere = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]

_REQUEST_TIMEOUT_MS: Final = 30_000
_RETRY_MS: Final = 100
_MARKERS_PER_REQUEST: Final = 500
"""As many transactions may become complete in one turn of the event loop."""
_MARKERS_PER_TURN: Final = 500
_DONE: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_REFUSED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer coordinator, or a newer transaction, has been there."""


class _Ending:
    """A transaction, with the partitions that have no marker yet."""

    def __init__(self, prepared: Transaction, coordinator_epoch: int) -> None:
        self.prepared = prepared
        self.coordinator_epoch = coordinator_epoch
        self.left = set(prepared.partitions)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(self, place: TopicPartition) -> None:
        self.left.discard(place)
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def refused(self, place: TopicPartition, code: ErrorCode) -> None:
        if not self.done.done():
            self.done.set_exception(MarkersRefusedError(f"{place[0]}-{place[1]}: {code.name}"))

    def marker(self, places: Iterable[TopicPartition]) -> WritableTxnMarker:
        value = self.prepared
        return WritableTxnMarker(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            transaction_result=value.state is TransactionState.PREPARE_COMMIT,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(places).items()
            ],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=value.client_version,
        )


_Due = tuple[_Ending, TopicPartition]


class MarkerSender:
    """The :class:`~pykraft.transaction_coordinator.ports.MarkerWriter` of a broker.

    ``write_here`` serves a request for the partitions that this broker leads.
    """

    def __init__(
        self,
        node_id: int,
        metadata: ImageSource,
        peers: Peers,
        write_here: WriteHere,
        tasks: TaskSupervisor,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._write_here = write_here
        self._tasks = tasks
        self._exchanges: Exchanges[_Due] = Exchanges(
            "markers-to", tasks, _take_some, self._exchange, self._send_later
        )
        self._later: list[_Due] = []
        """Markers to send again after a while; if there are any, a task waits for that."""

    async def write(self, prepared: Transaction, coordinator_epoch: int) -> None:
        if not prepared.partitions:
            return
        ending = _Ending(prepared, coordinator_epoch)
        try:
            await self._send_in_slices([(ending, place) for place in sorted(ending.left)])
            await ending.done
        finally:
            ending.done.cancel()  # nobody waits any more: what is queued is dropped

    def _send(self, ending: _Ending, place: TopicPartition) -> None:
        """Queue a marker for the leader of its partition."""
        if ending.done.done():
            return
        topic = self._metadata.image.topic(place[0])
        if topic is None or place[1] >= len(topic.partitions):
            ending.written(place)
            return
        partition = topic.partitions[place[1]]
        if not partition.has_leader:
            self._send_later([(ending, place)])
            return
        self._exchanges.add(partition.leader, (ending, place))

    async def _send_in_slices(self, due: Sequence[_Due]) -> None:
        for number, one in enumerate(due, 1):
            self._send(*one)
            if number % _MARKERS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _send_later(self, due: Iterable[_Due]) -> None:
        """One task for all, since a broker that is gone may have led very many partitions."""
        if not self._later:
            self._tasks.start(self._retry(), "markers-retry")
        self._later += due

    async def _retry(self) -> None:
        await self._tasks.sleep(_RETRY_MS)
        due, self._later = self._later, []
        await self._send_in_slices(due)

    async def _exchange(self, node_id: int, batch: Sequence[_Due]) -> None:
        """One request to a broker, with what somebody still waits for."""
        due = [(ending, place) for ending, place in batch if not ending.done.done()]
        if not due:
            return
        by_ending: dict[_Ending, list[TopicPartition]] = {}
        for ending, place in due:
            by_ending.setdefault(ending, []).append(place)
        request = WriteTxnMarkersRequest(
            markers=[ending.marker(places) for ending, places in by_ending.items()]
        )
        try:
            if node_id == self._node_id:
                response = await self._write_here(request)
            else:
                response = await self._peers.call(node_id, request, _REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            logger.debug("markers to broker %d: %s", node_id, error)
            self._send_later(due)
            return
        codes = {
            (result.producer_id, topic.name, partition.partition_index): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        again = []
        for ending, place in due:
            code = codes.get((ending.prepared.producer_id, *place), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                ending.written(place)
            elif code in _REFUSED:
                ending.refused(place, ErrorCode(code))
            else:
                again.append((ending, place))
        if again:
            self._send_later(again)


def _take_some(due: deque[_Due]) -> list[_Due]:
    return [due.popleft() for _ in range(min(len(due), _MARKERS_PER_REQUEST))]
