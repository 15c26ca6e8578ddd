"""The transaction of a Produce request: asks its coordinator before the first batch is appended (KIP-890).

A batch of a transaction that the log does not know yet may be of one that has ended, or that never began: its
coordinator would write no marker for it, and readers would wait forever. So the leader asks. Up to version
11 the client has told the coordinator about the partition, and the leader only verifies that; from 12 on the
leader adds the partition to the transaction. The guard of each partition (:mod:`.verification`) must still be
there when the batch is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.logs.producers.verification import UNVERIFIED, Guard
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader
from pykraft.metadata_log.broker_configs import effective_dynamic_values
from pykraft.runtime.slices import Slices

ADDS_FROM: Final = 12
"""The first version whose producers leave it to the leader to add a partition to their transaction."""
_GENERIC_ERROR_FROM: Final = 11
"""The first version whose producers know TRANSACTION_ABORTABLE."""
_ATTRIBUTES_BYTE: Final = 22
_ENABLED: Final = "transaction.partition.verification.enable"
_FIRST_PAUSE_MS: Final = 1
_LOOKED_AT_ONCE: Final = 500
_ASKED_AT_ONCE: Final = 2_000
"""Partitions; the coordinator is asked about more in several requests, one after the other."""

_RETRIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors after which a producer is to send again what it sent, which it does without a new coordinator or new
metadata after NOT_ENOUGH_REPLICAS.
"""


def is_transactional(records: memoryview | None) -> bool:
    """Whether a record set begins with a batch of a transaction; without a whole header it is refused."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and bool(records[_ATTRIBUTES_BYTE] & TRANSACTIONAL_BIT)
    )


def is_disabled(services: BrokerServices) -> bool:
    """Whether the configuration does without the verification of transactions."""
    values = effective_dynamic_values(services.metadata.image, services.config.node_id)
    text = values.get(_ENABLED)
    return not (services.config.transaction_verification if text is None else text == "true")


class Verified:
    """A partition's verification: the guard of its batch, or why it is refused.

    ``find_leader`` returns the replica here, or raises.
    """

    __slots__ = ("error", "find_leader", "guard", "header", "key")

    def __init__(self, header: BatchHeader, find_leader: Callable[[], Partition]) -> None:
        self.header = header
        self.find_leader = find_leader
        self.key: TopicPartition = ("", -1)
        self.guard: Guard | None = None
        self.error: KafkaError | None = None


class RequestTransaction:
    """``partitions``: those of a request that have a transactional batch."""

    def __init__(
        self,
        services: BrokerServices,
        transactional_id: str | None,
        version: int,
        partitions: Sequence[Verified],
    ) -> None:
        """TRANSACTIONAL_ID_AUTHORIZATION_FAILED or INVALID_PRODUCER_ID_MAPPING refuses the whole request."""
        if transactional_id is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a request with transactional batches must name its transactional id",
            )
        self._services = services
        self._transactional_id = transactional_id
        self._version = version
        self._adds = version >= ADDS_FROM
        self._partitions = partitions
        producers = {(one.header.producer_id, one.header.producer_epoch) for one in partitions}
        if len(producers) > 1:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional batches are of several producers"
            )

    def begin(self) -> Generator[None, None, bool]:
        """Look which partitions to ask about, in slices; whether there are any. Errors are noted."""
        is_skipped = not self._adds and is_disabled(self._services)
        for number, one in enumerate(self._partitions, 1):
            if not number % _LOOKED_AT_ONCE:
                yield
            one.guard = one.error = None
            try:
                partition = one.find_leader()
                one.key = (partition.topic, partition.index)
                now_ms = self._services.clock.monotonic_ms()
                if is_skipped:
                    one.guard = UNVERIFIED
                else:
                    one.guard = partition.begin_verification(
                        one.header, now_ms, supports_epoch_bump=self._adds
                    )
            except KafkaError as error:
                one.error = error
        return not is_skipped and bool(self._open())

    def _open(self) -> list[Verified]:
        return [one for one in self._partitions if one.guard is not None and one.error is None]

    async def ask(self, slices: Slices) -> None:
        """Ask the coordinator, after :meth:`begin`; again for a while if the last transaction is not over.

        It nearly always is within a few milliseconds. So the first pauses are short, and
        ``add.partitions.to.txn.retry.backoff.ms`` is the longest.
        """
        services, config = self._services, self._services.config
        pause_ms = _FIRST_PAUSE_MS
        until_ms = services.clock.monotonic_ms() + config.add_partitions_retry_max_ms
        while True:
            is_early, asked = False, self._open()
            for start in range(0, len(asked), _ASKED_AT_ONCE):
                is_early |= await self._ask_about(asked[start : start + _ASKED_AT_ONCE])
            if not (self._adds and is_early) or services.clock.monotonic_ms() >= until_ms:
                return
            await services.tasks.sleep(min(pause_ms, config.add_partitions_retry_ms))
            pause_ms *= 2
            if not await slices.result(self.begin()):
                return

    async def _ask_about(self, asked: Sequence[Verified]) -> bool:
        """Note the errors; whether the last transaction is not over."""
        header = asked[0].header
        errors = await self._services.verifier.verify(
            self._transactional_id,
            header.producer_id,
            header.producer_epoch,
            [one.key for one in asked],
            adds=self._adds,
        )
        for one in asked:
            error = errors.get(one.key)
            if error is not None:
                one.error = KafkaError(_translate(error.code, self._version), error.message)
        return any(error.code is ErrorCode.CONCURRENT_TRANSACTIONS for error in errors.values())


def _translate(code: ErrorCode, version: int) -> ErrorCode:
    """Translate the coordinator's refusal for the producer."""
    if code in _RETRIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _GENERIC_ERROR_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code
