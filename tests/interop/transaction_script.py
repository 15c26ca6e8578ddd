"""Transactions in every state on one broker, made by raw requests: open, ended, and such as nobody will end.

The broker must not verify that partitions belong to a transaction (:data:`NOT_VERIFIED`), as before KIP-890:
then the coordinator is not told of a partition, and the transaction hangs there.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from pykraft.kafka_client.list_offsets import LATEST_TIMESTAMP, READ_COMMITTED
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import FindCoordinatorRequest
from pykraft.kafka_protocol.messages.records import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.runtime.address import Address
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from pykraft.testing.processes.wire_client import WireClient

NOT_VERIFIED: Final = {"transaction.partition.verification.enable": "false"}
FIRST_MS: Final = 1_700_000_000_000
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
_KEPT: Final = CreatableTopicConfig(name="retention.ms", value="-1")
"""The records are years old."""
_TRANSACTION_KEY: Final = 1
_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Producer(NamedTuple):
    transactional_id: str | None
    id: int
    epoch: int


class TransactionScript:
    def __init__(self, address: Address) -> None:
        self.bootstrap_servers = str(address)
        self._client = WireClient(address)

    def close(self) -> None:
        self._client.close()

    def prepare(self) -> None:
        """One transactional id for each state, old and new hanging transactions, and an idle producer."""
        self._create_topics({"t": 2, "u": 1})
        self.write(self.producer(None), T1, 2, is_transactional=False)
        self.producer("fresh")
        for name, commit in (("done", True), ("undone", False)):
            producer = self.producer(name)
            self.add(producer, [T0])
            self.write(producer, T0, 2)
            self.end(producer, commit)
        going = self.producer("open")
        self.add(going, [T0, U0])
        self.write(going, T0)
        self.write(going, U0)

    def hang(self, name: str, partition: TopicPartition, at_ms: int = FIRST_MS) -> Producer:
        """A transaction of this id that the coordinator does not know."""
        producer = self.producer(name)
        self.write(producer, partition, at_ms=at_ms)
        return producer

    def producer(self, transactional_id: str | None) -> Producer:
        answered: list[InitProducerIdResponse] = []

        def ask() -> bool:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=900_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            answered[:] = [self._client.call(request, 4)]
            return answered[0].error_code not in _LATER

        if transactional_id is not None:
            self._find_coordinator(transactional_id)
        wait_until("a producer id", ask, PATIENCE_S)
        assert answered[0].error_code == 0
        return Producer(transactional_id, answered[0].producer_id, answered[0].producer_epoch)

    def add(self, producer: Producer, partitions: Sequence[TopicPartition]) -> None:
        assert producer.transactional_id is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=it.topic, partitions=[it.partition]) for it in partitions
            ],
        )

        def added() -> bool:
            response = self._client.call(request, 3)
            codes = {
                it.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for it in topic.results_by_partition
            }
            assert codes <= {0, *_LATER}
            return codes == {0}

        wait_until("partitions are added", added, PATIENCE_S)

    def write(
        self,
        producer: Producer,
        partition: TopicPartition,
        count: int = 1,
        *,
        is_transactional: bool = True,
        at_ms: int = FIRST_MS,
    ) -> None:
        batch = encode_batch(
            [RecordInput(None, b"v", (), at_ms)] * count,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=is_transactional,
        )
        data = [PartitionProduceData(index=partition.partition, records=batch)]
        request = ProduceRequest(
            transactional_id=producer.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=data)],
        )
        response = self._client.call(request, 9)
        assert response.responses[0].partition_responses[0].error_code == 0

    def end(self, producer: Producer, commit: bool) -> None:
        assert producer.transactional_id is not None
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

        def ended() -> bool:
            """Repeated until the markers are written, too."""
            return self._client.call(request, 4).error_code == 0

        wait_until("a transaction has ended", ended, PATIENCE_S)
        wait_until("its markers are written", ended, PATIENCE_S)

    def last_stable_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[
                ListOffsetsTopic(
                    name=it.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=it.partition, current_leader_epoch=-1, timestamp=LATEST_TIMESTAMP
                        )
                    ],
                )
                for it in partitions
            ],
        )
        response = self._client.call(request, 6)
        return {
            TopicPartition(topic.name, it.partition_index): it.offset
            for topic in response.topics
            for it in topic.partitions
        }

    def _find_coordinator(self, transactional_id: str) -> None:
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_KEY)

        def found() -> bool:
            return self._client.call(request, 3).error_code == 0

        wait_until("a coordinator", found, PATIENCE_S)

    def _create_topics(self, partitions: dict[str, int]) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=[_KEPT])
            for name, count in partitions.items()
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
        response = self._client.call(request, 5)
        assert not any(it.error_code for it in response.topics)
