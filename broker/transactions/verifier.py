"""Asks transaction coordinators whether partitions belong to a transaction, or puts them into it (KIP-890).

What is asked of one coordinator goes into one request while the one before is on its way. A coordinator on
this broker is asked without a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from pykraft.broker.peers.peers import Peers
from pykraft.broker.replicas.ports import ImageSource
from pykraft.coordinator.partitioning import TRANSACTION_STATE_TOPIC, partition_for_key
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.transaction_coordinator.codec import by_topic

TopicPartition = tuple[str, int]
AskHere = Callable[[AddPartitionsToTxnRequest, int], Awaitable[AddPartitionsToTxnResponse]]

_REQUEST_TIMEOUT_MS: Final = 30_000
_VERSION: Final = AddPartitionsToTxnRequest.MAX_VERSION
_Answer = Mapping[TopicPartition, KafkaError]


class _Asked:
    def __init__(self, transaction: AddPartitionsToTxnTransaction) -> None:
        self.transaction = transaction
        self.answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()

    def fail(self, code: ErrorCode, message: str = "") -> None:
        if not self.answer.done():
            error = KafkaError(code, message)
            topics = self.transaction.topics
            self.answer.set_result(
                {(topic.name, index): error for topic in topics for index in topic.partitions}
            )


class CoordinatorVerifier:
    """The :class:`~pykraft.broker.replicas.ports.TransactionVerifier` of a broker.

    ``ask_here`` serves a request for the transactional ids that this broker coordinates.
    """

    def __init__(
        self,
        node_id: int,
        metadata: ImageSource,
        peers: Peers,
        ask_here: AskHere,
        tasks: TaskSupervisor,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._ask_here = ask_here
        self._tasks = tasks
        self._due: dict[int, list[_Asked]] = {}
        """By broker; while there is an entry its task is running."""

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
        elif node_id in self._due:
            self._due[node_id].append(asked)
        else:
            self._due[node_id] = [asked]
            self._tasks.start(self._run(node_id), f"transactions-at-{node_id}")
        return await asked.answer

    def _find_coordinator(self, transactional_id: str) -> int | None:
        topic = self._metadata.image.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        partition = topic.partitions[partition_for_key(transactional_id, len(topic.partitions))]
        return partition.leader if partition.has_leader else None

    async def _run(self, node_id: int) -> None:
        """Ask one coordinator what is to be asked, until nothing is."""
        while due := self._due[node_id]:
            self._due[node_id] = []
            batch, later = _one_of_each_id(due)
            self._due[node_id] += later
            await self._exchange(node_id, batch)
        del self._due[node_id]

    async def _exchange(self, node_id: int, batch: Mapping[str, _Asked]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[asked.transaction for asked in batch.values()])
        try:
            if node_id == self._node_id:
                response = await self._ask_here(request, _VERSION)
            else:
                response = await self._peers.call(
                    node_id, request, AddPartitionsToTxnResponse, _REQUEST_TIMEOUT_MS
                )
        except KafkaError as error:
            for asked in batch.values():
                asked.fail(error.code, error.message)
            return
        for result in response.results_by_transaction:
            asked_of = batch.get(result.transactional_id)
            if asked_of is not None and not asked_of.answer.done():
                asked_of.answer.set_result(
                    {
                        (topic.name, one.partition_index): KafkaError(ErrorCode(one.partition_error_code))
                        for topic in result.topic_results
                        for one in topic.results_by_partition
                        if one.partition_error_code
                    }
                )
        for asked in batch.values():
            asked.fail(ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR))


def _one_of_each_id(due: Sequence[_Asked]) -> tuple[dict[str, _Asked], list[_Asked]]:
    """What fits into one request, whose answers are told apart by their transactional ids; and the rest."""
    batch: dict[str, _Asked] = {}
    later = []
    for asked in due:
        if batch.setdefault(asked.transaction.transactional_id, asked) is not asked:
            later.append(asked)
    return batch, later
