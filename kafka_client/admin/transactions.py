"""Transactions as their coordinators know them (KIP-664): list, describe, and take them from their producers.

Errors carry the messages of Kafka's admin client, which its tools print.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.coordinators import TRANSACTION_KEY, ask_coordinator, ask_coordinators
from pykraft.kafka_client.errors import UnsupportedByBrokerError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    BrokerDescription,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

_DURATION_VERSION: Final = 1
_PATTERN_VERSION: Final = 2

_REFUSALS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "failed due to cluster authorization failure",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "failed due to authorization failure",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "failed because the ID could not be found",
}

Described = dict[str, TransactionDescription | KafkaError]
Fenced = dict[str, ProducerIdAndEpoch | KafkaError]


class TransactionOperations(Operations):
    async def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        *,
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that pass all filters; an empty one, or None, passes all. Fails if one broker
        cannot be asked, or cannot filter: a list of some, or of too many, would mislead.

        ``longer_than_ms``: open for longer (an id without a transaction counts, too); ``pattern``: a regular
        expression for the whole id.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        duration_ms = -1 if longer_than_ms is None else longer_than_ms
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern or None,
        )
        needed = _PATTERN_VERSION if pattern else _DURATION_VERSION if duration_ms >= 0 else 0
        found: dict[int, list[TransactionListing]] = {}

        async def attempt() -> None:
            await cluster.refresh([], deadline_ms)
            for broker_id in sorted(cluster.metadata.brokers.keys() - found.keys()):
                connection = await cluster.broker(broker_id, deadline_ms)
                if connection.version_for(request) < needed:
                    raise UnsupportedByBrokerError(
                        f"broker {broker_id} cannot list transactions by duration or pattern"
                    )
                response = await cluster.ask_broker(broker_id, request, deadline_ms)
                if response.error_code:
                    asked = f"ListTransactions request sent to broker {broker_id}"
                    code = ErrorCode(response.error_code)
                    raise KafkaError(code, f"{asked} failed with an unexpected exception")
                found[broker_id] = [
                    TransactionListing(it.transactional_id, it.producer_id, it.transaction_state, broker_id)
                    for it in response.transaction_states
                ]

        await cluster.retrying("ListTransactions", attempt, deadline_ms)
        return sorted((it for listed in found.values() for it in listed), key=lambda it: it.transactional_id)

    async def describe_transactions(
        self, transactional_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Transactional ids as their coordinators know them, or their errors."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def describe(coordinator: BrokerDescription, ids: Sequence[str]) -> Described:
            request = DescribeTransactionsRequest(transactional_ids=list(ids))
            response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
            return {it.transactional_id: _described(it, coordinator.id) for it in response.transaction_states}

        what = "DescribeTransactions"
        return await ask_coordinators(
            cluster, what, transactional_ids, describe, deadline_ms, TRANSACTION_KEY
        )

    async def fence_producers(
        self, transactional_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> dict[str, ProducerIdAndEpoch | KafkaError]:
        """Shut out the producers of these ids, and abort their transactions; what a new producer would get.

        As in Kafka, ``timeout_ms`` (default ``request.timeout.ms``) becomes the ids' transaction timeout.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        txn_timeout_ms = cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms

        async def fence_one(coordinator: BrokerDescription, id: str) -> ProducerIdAndEpoch | KafkaError:
            request = InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=txn_timeout_ms)
            try:
                response = await ask_coordinator(cluster, coordinator, request, deadline_ms)
            except KafkaError as error:
                return error
            if response.error_code:
                return _error("InitProducerId", id, response.error_code)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        async def fence(coordinator: BrokerDescription, ids: Sequence[str]) -> Fenced:
            return {id: await fence_one(coordinator, id) for id in ids}

        return await ask_coordinators(
            cluster, "InitProducerId", transactional_ids, fence, deadline_ms, TRANSACTION_KEY
        )

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout_ms: int | None = None
    ) -> None:
        """Abort the open transaction of an id and shut out its producer; the id need not be known."""
        fenced = await self.fence_producers([transactional_id], timeout_ms=timeout_ms)
        if isinstance(error := fenced[transactional_id], KafkaError):
            raise error


def _described(found: DescribedTransaction, coordinator_id: int) -> TransactionDescription | KafkaError:
    if found.error_code:
        return _error("DescribeTransactions", found.transactional_id, found.error_code)
    return TransactionDescription(
        transactional_id=found.transactional_id,
        coordinator_id=coordinator_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        start_time_ms=None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
        ),
    )


def _error(api: str, transactional_id: str, number: int) -> KafkaError:
    code = ErrorCode(number)
    reason = _REFUSALS.get(code, "failed due to unexpected error")
    return KafkaError(code, f"{api} request for transactionalId `{transactional_id}` {reason}")
