"""``pykraft transactions find-hanging``: transactions that are open in a partition and that no coordinator will
end there (KIP-664).

Candidates are open for longer than any transaction may take. One hangs unless the coordinator of its producer
has the partition in a transaction: then a marker can still be expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import ProducerState, TopicDescription, TransactionDescription
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.shared.kafka_errors import text_of
from pykraft.node.cli.shared.tool_errors import failure, found

_BATCH: Final = 500
"""Topics, or partitions, in one question."""

T = TypeVar("T")


class OpenTransaction(NamedTuple):
    partition: TopicPartition
    producer: ProducerState


class Search:
    """``broker_id``: the broker whose replicas are searched; None: the leaders."""

    def __init__(
        self, client: AdminClient, broker_id: int | None, max_timeout_ms: int, wall_ms: Callable[[], int]
    ) -> None:
        self._client = client
        self._broker_id = broker_id
        self._max_timeout_ms = max_timeout_ms
        self._wall_ms = wall_ms

    def find(self, topic: str | None, partition: int | None) -> list[OpenTransaction]:
        """In one partition, in all of a topic, or (None) everywhere, by partition."""
        if topic is not None and partition is not None:
            return self._hanging([TopicPartition(topic, partition)])
        topics = self._all_topics() if topic is None else [topic]
        return self._hanging([key for some in _batches(topics) for key in self._partitions(some)])

    def _all_topics(self) -> list[str]:
        try:
            return [it.name for it in self._client.list_topics(include_internal=True)]
        except KafkaError as error:
            raise failure("Failed to list topics", error) from error

    def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        try:
            described: list[TopicDescription] = self._client.describe_topics(topics)
        except KafkaError as error:
            reason = KafkaError(error.code, text_of(error))
            raise failure(f"Failed to describe {len(topics)} topics", reason) from error
        return [
            TopicPartition(topic.name, it.index)
            for topic in described
            for it in topic.partitions
            if self._broker_id is None or self._broker_id in it.replicas
        ]

    def _hanging(self, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
        candidates = [it for some in _batches(partitions) for it in self._candidates(some)]
        if not candidates:
            return []
        known = self._transactions(sorted({it.producer.producer_id for it in candidates}))
        hanging = [it for it in candidates if not _is_expected(it, known.get(it.producer.producer_id))]
        return sorted(hanging, key=lambda it: (it.partition, it.producer.producer_id))

    def _candidates(self, partitions: Sequence[TopicPartition]) -> Iterator[OpenTransaction]:
        # As Kafka's tool has it, to the letter.
        broker = "Optional.empty" if self._broker_id is None else f"Optional[{self._broker_id}]"
        what = f"Failed to describe producers for {len(partitions)} partitions on broker {broker}"
        described = self._client.describe_producers(partitions, broker_id=self._broker_id)
        now_ms = self._wall_ms()
        for partition in partitions:
            for producer in found(what, described[partition]):
                is_open = producer.transaction_start_offset is not None
                if is_open and now_ms - producer.last_timestamp_ms > self._max_timeout_ms:
                    yield OpenTransaction(partition, producer)

    def _transactions(self, producer_ids: Sequence[int]) -> dict[int, TransactionDescription]:
        """Those of these producers that coordinators know."""
        try:
            listed = self._client.list_transactions(producer_ids=producer_ids)
        except KafkaError as error:
            raise failure(f"Failed to list transactions for {len(producer_ids)} producers", error) from error
        ids = {it.transactional_id: it.producer_id for it in listed if it.producer_id in set(producer_ids)}
        known = {}
        for transactional_id, result in self._client.describe_transactions(ids).items():
            if isinstance(result, KafkaError) and result.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue  # it has expired meanwhile
            known[ids[transactional_id]] = found(f"Failed to describe {len(ids)} transactions", result)
        return known


def _is_expected(it: OpenTransaction, known: TransactionDescription | None) -> bool:
    return known is not None and it.partition in known.partitions


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _BATCH] for at in range(0, len(items), _BATCH))
