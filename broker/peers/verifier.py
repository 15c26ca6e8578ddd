"""Asks transaction coordinators whether partitions belong to a transaction, or puts them into it (KIP-890).

What is asked of one coordinator goes into one request while the one before is on its way. A coordinator on
this broker is asked without a connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from pykraft.broker.peers.batches import PeerBatches
from pykraft.broker.peers.peers import Peers
from pykraft.broker.replicas.ports import ImageSource
from pykraft.coordinator.partitioning import TRANSACTION_STATE_TOPIC, partition_for_key
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.transaction_coordinator.log.codec import by_topic

TopicPartition = tuple[str, int]
AskHere = Callable[[AddPartitionsToTxnRequest, int], Awaitable[AddPartitionsToTxnResponse]]

_PARTITIONS_PER_REQUEST: Final = 5_000
"""A few milliseconds of work for the coordinator; one that names more is asked about by itself."""
_VERSION: Final = AddPartitionsToTxnRequest.MAX_VERSION
_Answer = Mapping[TopicPartition, KafkaError]


class _Asked:
    def __init__(self, transaction: AddPartitionsToTxnTransaction) -> None:
        self.transaction = transaction
        self.answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()

    @property
    def places(self) -> list[TopicPartition]:
        return [(topic.name, index) for topic in self.transaction.topics for index in topic.partitions]

    def take(self, result: AddPartitionsToTxnResult) -> None:
        """The coordinator's answer. A partition that it leaves out is not known to be in the transaction."""
        if self.answer.done():
            return
        codes = {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        unknown = ErrorCode.UNKNOWN_SERVER_ERROR
        self.answer.set_result(
            {
                place: KafkaError(ErrorCode(code))
                for place in self.places
                if (code := codes.get(place, unknown))
            }
        )

    def fail(self, code: ErrorCode, message: str = "") -> None:
        if not self.answer.done():
            error = KafkaError(code, message)
            self.answer.set_result(dict.fromkeys(self.places, error))


class CoordinatorVerifier(PeerBatches[_Asked, AddPartitionsToTxnResponse, AddPartitionsToTxnResponse]):
    """The :class:`~pykraft.broker.replicas.ports.TransactionVerifier` of a broker.

    ``ask_here`` serves a request for the transactional ids that this broker coordinates.
    """

    name = "transactions-at"

    def __init__(
        self, node_id: int, metadata: ImageSource, peers: Peers, ask_here: AskHere, tasks: TaskSupervisor
    ) -> None:
        super().__init__(node_id, metadata, peers, tasks)
        self._ask_here = ask_here

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> _Answer:
        asked = _Asked(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(partitions).items()
                ],
            )
        )
        node_id = self._find_coordinator(transactional_id)
        if node_id is None:
            asked.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the transaction has no coordinator")
        else:
            self.add(node_id, asked)
        return await asked.answer

    def _find_coordinator(self, transactional_id: str) -> int | None:
        topic = self._metadata.image.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        partition = topic.partitions[partition_for_key(transactional_id, len(topic.partitions))]
        return partition.leader if partition.has_leader else None

    def _take(self, due: deque[_Asked]) -> list[_Asked]:
        """Take as much as one request can hold: its answers are told apart by their transactional ids."""
        taken: dict[str, _Asked] = {}
        later = []
        partitions = 0
        while due and partitions < _PARTITIONS_PER_REQUEST:
            asked = due.popleft()
            if taken.setdefault(asked.transaction.transactional_id, asked) is asked:
                partitions += len(asked.places)
            else:
                later.append(asked)
        due.extendleft(reversed(later))
        return list(taken.values())

    def _request(self, batch: Sequence[_Asked]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(transactions=[asked.transaction for asked in batch])

    async def _here(self, batch: Sequence[_Asked]) -> AddPartitionsToTxnResponse:
        return await self._ask_here(self._request(batch), _VERSION)

    def _read(self, response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
        return response

    def _answered(self, batch: Sequence[_Asked], answer: AddPartitionsToTxnResponse) -> None:
        results = {result.transactional_id: result for result in answer.results_by_transaction}
        for asked in batch:
            result = results.get(asked.transaction.transactional_id)
            if result is not None:
                asked.take(result)
        self._failed(batch, KafkaError(ErrorCode(answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)))

    def _failed(self, batch: Sequence[_Asked], error: KafkaError) -> None:
        """Those that have no answer yet."""
        for asked in batch:
            asked.fail(error.code, error.message)
