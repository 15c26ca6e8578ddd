"""For brokers that coordinate no transactions: nothing is in a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError


class NoTransactions:
    """The :class:`~pykraft.broker.replicas.ports.TransactionVerifier` of a cluster without a transaction
    coordinator: it refuses everything, whatever the configuration says.
    """

    is_optional = False

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, KafkaError]:
        refusal = KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker does not coordinate transactions")
        return dict.fromkeys(partitions, refusal)
