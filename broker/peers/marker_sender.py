"""Writes the markers of decided transactions to the leaders of their partitions (KIP-98).

All that is due at one broker goes into one request, while the one before is on its way: so a thousand small
transactions cost few requests. What a leader cannot do now is tried again, at the leader of that time, for as
long as it takes: the transaction is decided. A partition that was deleted needs no marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from pykraft.broker.peers.batches import PeerBatches
from pykraft.broker.peers.peers import Peers
from pykraft.broker.replicas.ports import ImageSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
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

Codes = Mapping[tuple[int, str, int], int]
"""By producer id, topic and partition."""
WriteHere = Callable[[Sequence[tuple[EndOfTransaction, Sequence[TopicPartition]]]], Awaitable[Codes]]

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
        kind = COMMIT if prepared.state is TransactionState.PREPARE_COMMIT else ABORT
        marker = Marker(kind, coordinator_epoch)
        id, epoch, version = prepared.producer_id, prepared.producer_epoch, prepared.client_version
        self.end = EndOfTransaction(id, epoch, marker, version)
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
        id, epoch, marker, version = self.end
        return WritableTxnMarker(
            producer_id=id,
            producer_epoch=epoch,
            transaction_result=marker.kind == COMMIT,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(places).items()
            ],
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=version,
        )


_Due = tuple[_Ending, TopicPartition]


class MarkerSender(PeerBatches[_Due, WriteTxnMarkersResponse, Codes]):
    """The :class:`~pykraft.transaction_coordinator.ports.MarkerWriter` of a broker.

    ``write_here`` writes the markers of the partitions that this broker leads.
    """

    name = "markers-to"

    def __init__(
        self, node_id: int, metadata: ImageSource, peers: Peers, write_here: WriteHere, tasks: TaskSupervisor
    ) -> None:
        super().__init__(node_id, metadata, peers, tasks)
        self._write_here = write_here
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
        self.add(partition.leader, (ending, place))

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

    def _take(self, due: deque[_Due]) -> list[_Due]:
        """Take the markers of one request, without those nobody waits for."""
        some = [due.popleft() for _ in range(min(len(due), _MARKERS_PER_REQUEST))]
        return [(ending, place) for ending, place in some if not ending.done.done()]

    def _request(self, batch: Sequence[_Due]) -> WriteTxnMarkersRequest:
        return WriteTxnMarkersRequest(
            markers=[ending.marker(places) for ending, places in _by_ending(batch).items()]
        )

    async def _here(self, batch: Sequence[_Due]) -> Codes:
        return await self._write_here([(ending.end, places) for ending, places in _by_ending(batch).items()])

    def _read(self, response: WriteTxnMarkersResponse) -> Codes:
        return {
            (result.producer_id, topic.name, partition.partition_index): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }

    def _answered(self, batch: Sequence[_Due], answer: Codes) -> None:
        again = []
        for ending, place in batch:
            code = answer.get((ending.end.producer_id, *place), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                ending.written(place)
            elif code in _REFUSED:
                ending.refused(place, ErrorCode(code))
            else:
                again.append((ending, place))
        if again:
            self._send_later(again)

    def _failed(self, batch: Sequence[_Due], error: KafkaError) -> None:
        self._send_later(batch)


def _by_ending(batch: Sequence[_Due]) -> dict[_Ending, list[TopicPartition]]:
    found: dict[_Ending, list[TopicPartition]] = {}
    for ending, place in batch:
        found.setdefault(ending, []).append(place)
    return found
