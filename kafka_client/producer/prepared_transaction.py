"""A transaction that one client has written, and that another one commits or aborts.

For programs whose writers do not know whether all of their work succeeds, such as the tasks of a job: they
prepare, and who knows decides. Until then the transaction is open, and its timeout runs. A producer that
takes over the transactional id meanwhile aborts it.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.coordinators import TRANSACTION_KEY
from pykraft.kafka_client.errors import ClientTimeoutError, OutcomeUnknownError
from pykraft.kafka_client.producer import transaction_requests as requests
from pykraft.kafka_client.producer.transaction import ProducerIdentity, ProducerTransaction, TransactionConfig
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """Everything is written. ``is_implicit``: by the rules of KIP-890. It can be pickled."""

    transactional_id: str
    identity: ProducerIdentity
    is_implicit: bool


async def end_prepared(
    cluster: Cluster, prepared: PreparedTransaction, *, committed: bool, deadline_ms: int
) -> None:
    """Commit or abort; the same again changes nothing.

    :class:`~.errors.FencedError`: another producer has taken over, and it is not committed, unless another
    call has done that.
    :class:`~.errors.ClientTimeoutError` and :class:`~.errors.OutcomeUnknownError`: nobody knows what became
    of it; after the second nobody will.
    """
    transaction = ProducerTransaction(TransactionConfig(prepared.transactional_id))
    transaction.identity = prepared.identity
    transaction.begin(is_implicit=prepared.is_implicit)
    link = CoordinatorLink(cluster, prepared.transactional_id, TRANSACTION_KEY)
    may_be_committed = False

    async def attempt() -> None:
        nonlocal may_be_committed
        try:
            await requests.end_txn(link, transaction, committed, cluster.request_deadline(deadline_ms))
        except KafkaError as error:
            may_be_committed = may_be_committed or (committed and requests.may_take_effect(error))
            raise

    try:
        await cluster.retrying("EndTxn", attempt, deadline_ms)
    except ClientTimeoutError:
        raise
    except KafkaError as error:
        if may_be_committed:  # by an attempt before this one, and before another producer took over
            raise OutcomeUnknownError(error.code, f"EndTxn: {error.message}") from error
        raise requests.classified(error, "EndTxn") from error


async def end_all_prepared(
    cluster: Cluster, prepared: Iterable[PreparedTransaction], *, committed: bool
) -> list[KafkaError]:
    """End all, in this order; the errors of those that could not be ended.

    They share one ``default.api.timeout.ms``, which begins again with each that is answered: while no broker
    answers, many of them take no longer than one.
    """
    errors: list[KafkaError] = []
    deadline_ms = cluster.deadline()
    for one in prepared:
        try:
            await end_prepared(cluster, one, committed=committed, deadline_ms=deadline_ms)
        except ClientTimeoutError as error:
            errors.append(error)
            continue
        except KafkaError as error:
            errors.append(error)
        deadline_ms = cluster.deadline()
    return errors
