"""The transactional producer: records of several partitions, and offsets of groups, all or nothing (KIP-98).

It goes by the rules that the cluster has finalized when a transaction begins: ``transaction.version`` 2
(KIP-890), or the older ones. Those have a hole: a request without an answer may be carried out after its
transaction has ended, and then counts for the next one. So after such a request the producer takes another
epoch (KIP-360) before it goes on.

One task at a time may call what is a coroutine here, except :meth:`TransactionalProducer.send`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TypeVar

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.coordinators import GROUP_KEY, TRANSACTION_KEY
from pykraft.kafka_client.errors import (
    AbortableError,
    ClientTimeoutError,
    FatalTransactionError,
    OutcomeUnknownError,
)
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork, Future
from pykraft.kafka_client.producer import transaction_requests as requests
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata
from pykraft.kafka_client.producer.partitioner import Pick
from pykraft.kafka_client.producer.prepared_transaction import PreparedTransaction
from pykraft.kafka_client.producer.producer import Producer
from pykraft.kafka_client.producer.transaction import ProducerIdentity, ProducerTransaction, TransactionConfig
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_codec import EncodedRecords
from pykraft.kafka_protocol.records import NO_TIMESTAMP

__all__ = ["TransactionConfig", "TransactionalProducer"]

T = TypeVar("T")


class _State(Enum):
    NEW = "init_transactions() comes first"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    WRITING = "what the open transaction holds is being written, to be committed"
    COMMITTING = "a commit has no answer yet: call commit_transaction() again"
    ABORTING = "an abort has no answer yet: call abort_transaction() again"
    PREPARED = "the transaction is left to who has it now: close the producer"


class TransactionalProducer:
    """Create it on a running event loop and :meth:`close` it there.

    What went wrong is raised as :class:`~.errors.AbortableError` (abort and go on),
    :class:`~.errors.FencedError` and other :class:`~.errors.FatalTransactionError` (close it), or
    :class:`~.errors.OutcomeUnknownError`. A call that does not fit, such as a second begin, is a
    :class:`RuntimeError` and changes nothing. Timeouts default to ``default.api.timeout.ms``.
    """

    def __init__(
        self,
        network: ConcurrentNetwork,
        client: ClientConfig,
        config: ProducerConfig,
        transaction: TransactionConfig,
        *,
        pick: Pick | None = None,
    ) -> None:
        if not config.enable_idempotence:
            raise ValueError("transactional.id needs enable.idempotence")
        self._network = network
        self._transaction = ProducerTransaction(transaction)
        self._cluster = Cluster(network, client)
        self._link = CoordinatorLink(self._cluster, transaction.transactional_id, TRANSACTION_KEY)
        self._groups: dict[str, CoordinatorLink] = {}
        self._added_groups: set[str] = set()
        self._offsets_in_doubt = self._end_in_doubt = self._wants_epoch = False
        self._state = _State.NEW
        self._is_closed = False
        self._begun = 0
        self._fatal: FatalTransactionError | OutcomeUnknownError | None = None
        self._producer = Producer(network, client, config, self._transaction, pick=pick)

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer id and epoch of the open or the next transaction."""
        return self._transaction.identity

    @property
    def error(self) -> KafkaError | None:
        """Why the open transaction can only be aborted, or why nothing is possible any more."""
        return self._fatal or self._transaction.failure

    @property
    def trouble(self) -> KafkaError | None:
        """Why what is being waited for has failed so far, if an attempt has."""
        return self._cluster.trouble or self._producer.trouble

    async def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Take over the transactional id.

        The producer that had it is fenced, and its open transaction aborted, before this returns.
        """
        self._expect(_State.NEW)
        config, deadline_ms = self._transaction.config, self._cluster.deadline(timeout_ms)
        init = partial(requests.init_producer_id, self._link, config, None)
        self._transaction.end(await self._asking("InitProducerId", init, deadline_ms))
        self._state = _State.READY

    async def begin_transaction(self, timeout_ms: int | None = None) -> None:
        """Begin. It asks nobody, unless the coordinator is not connected or another epoch is needed."""
        self._expect(_State.READY)
        transaction, deadline_ms = self._transaction, self._cluster.deadline(timeout_ms)
        if self._wants_epoch:
            bump = partial(requests.init_producer_id, self._link, transaction.config, transaction.identity)
            transaction.end(await self._asking("InitProducerId", bump, deadline_ms))
            self._wants_epoch = False
        rules = partial(requests.implicit_rules, self._link)
        is_implicit = await self._asking("the coordinator's features", rules, deadline_ms)
        transaction.begin(is_implicit=is_implicit)
        self._begun += 1
        self._state = _State.OPEN

    def append(
        self,
        topic: str,
        partition: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> Future[RecordMetadata]:
        """Queue a record of the open transaction, as :meth:`.Producer.append`.

        The future tells that it is written, not that it is committed.
        """
        self._expect(_State.OPEN)
        self._raise_failure()
        return self._producer.append(topic, partition, key, value, headers, timestamp_ms)

    def append_encoded(
        self, topic: str, partition: int | None, content: EncodedRecords
    ) -> Future[RecordMetadata]:
        """As :meth:`append`, for records that are encoded already."""
        self._expect(_State.OPEN)
        self._raise_failure()
        return self._producer.append_encoded(topic, partition, content)

    async def send(
        self,
        topic: str,
        partition: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> RecordMetadata:
        """Write a record of the open transaction and wait until it is acknowledged.

        :class:`RuntimeError`, like a call that comes too late, if the transaction ends before it is queued.
        """
        if partition is None:
            self._expect(_State.OPEN)
            began = self._begun
            await self.partitions_for(topic)
            if began != self._begun:
                raise RuntimeError("the transaction of this record has ended")
        return await self.append(topic, partition, key, value, headers, timestamp_ms)

    async def partitions_for(self, topic: str) -> int:
        """As :meth:`.Producer.partitions_for`."""
        return await self._producer.partitions_for(topic)

    def known_partitions(self, topic: str) -> int:
        """As :meth:`.Producer.known_partitions`."""
        return self._producer.known_partitions(topic)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """As :meth:`.Producer.flush`."""
        return await self._producer.flush(timeout_ms)

    def fail_transaction(self, error: KafkaError) -> None:
        """The open transaction can only be aborted: what belongs to it was lost before it came here."""
        if self._state in (_State.OPEN, _State.WRITING):
            self._failed(requests.failure(error))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        member: GroupIdentity | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction.

        With ``member`` they are refused if it no longer is in the group (KIP-447); None fences nobody.
        """
        self._expect(_State.OPEN)
        self._raise_failure()
        if not offsets:
            return
        if self._offsets_in_doubt:
            # The broker may carry out the earlier request after this one, and the group would fall back.
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "offsets sent before had no answer at first")
            raise self._failed(AbortableError(error.code, error.message))
        transaction, by = self._transaction, self._cluster.deadline(timeout_ms)
        transaction.has_offsets = True
        if not transaction.is_implicit and group_id not in self._added_groups:
            add = partial(requests.add_offsets, self._link, transaction, group_id)
            await self._enlisting("AddOffsetsToTxn", add, by)
            self._added_groups.add(group_id)
        link = self._groups.setdefault(group_id, CoordinatorLink(self._cluster, group_id, GROUP_KEY))
        commit = partial(requests.commit_offsets, link, transaction, offsets, member)
        self._offsets_in_doubt = await self._enlisting("TxnOffsetCommit", commit, by)

    async def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Write what is queued, and commit.

        :class:`~.errors.OutcomeUnknownError`: call it again, or close. :class:`~.errors.ClientTimeoutError`:
        not all is written yet; call it again, or abort.
        """
        self._expect(_State.OPEN, _State.COMMITTING)
        deadline_ms = self._cluster.deadline(timeout_ms)
        if self._state is _State.OPEN:
            await self._write_rest(deadline_ms)
        await self._end(_State.COMMITTING, deadline_ms)

    async def prepare_transaction(self, timeout_ms: int | None = None) -> PreparedTransaction:
        """Write what is queued, and leave it to others to commit or abort (:func:`.end_prepared`).

        Then this producer can only be closed. Errors before that are those of :meth:`commit_transaction`.
        """
        self._expect(_State.OPEN)
        await self._write_rest(self._cluster.deadline(timeout_ms))
        transaction = self._transaction
        assert transaction.identity is not None
        self._state = _State.PREPARED
        return PreparedTransaction(
            transaction.config.transactional_id, transaction.identity, transaction.is_implicit
        )

    async def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Abort; records that are not written yet are given up."""
        self._expect(_State.OPEN, _State.ABORTING)
        self._raise_fatal_failure()
        deadline_ms = self._cluster.deadline(timeout_ms)
        error = AbortableError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction is aborted")
        if not await self._producer.drop_transaction(error, deadline_ms):
            raise ClientTimeoutError("records of the transaction are still in flight")
        await self._end(_State.ABORTING, deadline_ms)

    async def close(self, timeout_ms: int = 0) -> None:
        """Close, without a word to the coordinator: it aborts an open transaction when its time is over.

        A commit that is under way in another task ends with an error.
        """
        self._is_closed = True
        try:
            await self._producer.close(timeout_ms)
        finally:
            self._cluster.close()

    async def _write_rest(self, deadline_ms: int) -> None:
        """No other record may come in between: it would be left to the next transaction."""
        self._state = _State.WRITING
        try:
            if not await self._producer.until_flushed_or_failed(deadline_ms):
                raise ClientTimeoutError("the records of the transaction are not written yet")
        finally:
            self._state = _State.OPEN
        if self._is_closed:  # which gives up what is not written
            raise self._failed(_closed())
        self._raise_failure()

    async def _end(self, state: _State, deadline_ms: int) -> None:
        """Commit or abort, if the coordinator may know of the transaction at all."""
        transaction = self._transaction
        assert transaction.identity is not None
        identity = transaction.identity
        if transaction.is_known_to_coordinator:
            self._state = state
            identity = await self._decide(committed=state is _State.COMMITTING, deadline_ms=deadline_ms)
        self._wants_epoch = transaction.is_in_doubt and not transaction.is_implicit
        self._added_groups.clear()
        self._offsets_in_doubt = self._end_in_doubt = False
        transaction.end(identity)
        self._state = _State.READY

    async def _decide(self, *, committed: bool, deadline_ms: int) -> ProducerIdentity:
        transaction = self._transaction
        attempt = partial(requests.end_txn, self._link, transaction, committed)
        try:
            identity, in_doubt = await self._retrying("EndTxn", attempt, deadline_ms)
        except _NoAnswerError as ended:
            self._end_in_doubt = self._end_in_doubt or ended.in_doubt
            raise OutcomeUnknownError(ended.error.code, ended.error.message) from ended
        except _RefusedError as ended:
            if committed:
                raise self._commit_refused(ended) from ended
            if ended.error.code is ErrorCode.INVALID_TXN_STATE and self._may_never_have_begun:
                assert transaction.identity is not None
                return transaction.identity
            raise self._failed(_fatal(ended.error)) from ended
        except BaseException:  # cancelled
            self._end_in_doubt = True
            raise
        transaction.is_in_doubt = transaction.is_in_doubt or in_doubt or self._end_in_doubt
        return identity

    @property
    def _may_never_have_begun(self) -> bool:
        """Whether the coordinator may not have been told of the open transaction, by the old rules."""
        return self._transaction.is_in_doubt and not self._transaction.is_implicit

    def _commit_refused(self, ended: _RefusedError) -> KafkaError:
        if self._end_in_doubt or ended.in_doubt:
            # An attempt without an answer may have committed it, before another producer took over.
            self._fatal = OutcomeUnknownError(ended.error.code, ended.error.message)
            return self._fatal
        if isinstance(ended.error, AbortableError):
            self._state = _State.OPEN
            return self._failed(ended.error)
        return self._failed(_fatal(ended.error))

    async def _enlisting(
        self, what: str, attempt: Callable[[int], Awaitable[None]], deadline_ms: int
    ) -> bool:
        """Put something into the open transaction, which fails if that does not succeed.

        Whether an attempt may still be carried out later.
        """
        try:
            _, in_doubt = await self._retrying(what, attempt, deadline_ms)
        except _EndedError as ended:
            self._transaction.is_in_doubt = self._transaction.is_in_doubt or ended.in_doubt
            raise self._failed(requests.failure(ended.error)) from ended
        except BaseException:  # cancelled
            self._transaction.is_in_doubt = True
            self._failed(AbortableError(ErrorCode.REQUEST_TIMED_OUT, f"{what} was cancelled"))
            raise
        self._transaction.is_in_doubt = self._transaction.is_in_doubt or in_doubt
        return in_doubt

    async def _asking(self, what: str, attempt: Callable[[int], Awaitable[T]], deadline_ms: int) -> T:
        """Ask between transactions: without an answer nothing has changed, and it can be asked again."""
        try:
            return (await self._retrying(what, attempt, deadline_ms))[0]
        except _EndedError as ended:
            raise self._failed(ended.error) from ended

    async def _retrying(
        self, what: str, attempt: Callable[[int], Awaitable[T]], deadline_ms: int
    ) -> tuple[T, bool]:
        """The result, and whether an attempt before may still be carried out."""
        in_doubt = False

        async def one_attempt() -> T:
            nonlocal in_doubt
            try:
                return await attempt(self._cluster.request_deadline(deadline_ms))
            except KafkaError as error:
                in_doubt = in_doubt or requests.may_take_effect(error)
                raise

        try:
            return await self._cluster.retrying(what, one_attempt, deadline_ms), in_doubt
        except ClientTimeoutError as error:
            raise _NoAnswerError(error, in_doubt) from error
        except KafkaError as error:
            refused = _closed() if self._is_closed else requests.classified(error, what)
            raise _RefusedError(refused, in_doubt) from error

    def _expect(self, *states: _State) -> None:
        if self._is_closed:
            raise RuntimeError(_closed().message)
        if self._fatal is not None:
            raise self._fatal
        if self._state not in states:
            raise RuntimeError(self._state.value)

    def _raise_failure(self) -> None:
        """Raise why the open transaction can only be aborted, if so."""
        failure = self._transaction.failure
        if failure is None:
            return
        raise self._failed(requests.failure(failure)) from failure

    def _raise_fatal_failure(self) -> None:
        """An abort would hide that nothing is possible any more."""
        failure = self._transaction.failure
        if failure is not None and isinstance(requests.failure(failure), FatalTransactionError):
            self._raise_failure()

    def _failed(self, error: KafkaError) -> KafkaError:
        """Nothing more is written of the open transaction; after a fatal error, nothing at all."""
        if isinstance(error, FatalTransactionError):
            self._fatal = error
        self._transaction.fail(error, leaves_gap=False)
        return error


def _closed() -> FatalTransactionError:
    return FatalTransactionError(ErrorCode.INVALID_REQUEST, "the producer is closed")


def _fatal(error: KafkaError) -> FatalTransactionError:
    if isinstance(error, FatalTransactionError):
        return error
    return FatalTransactionError(error.code, error.message)


class _EndedError(Exception):
    """The attempts at a request ended with this error; ``in_doubt``: one may still be carried out."""

    def __init__(self, error: KafkaError, in_doubt: bool) -> None:
        super().__init__(error)
        self.error = error
        self.in_doubt = in_doubt


class _NoAnswerError(_EndedError):
    """It was too late for another attempt."""


class _RefusedError(_EndedError):
    """The error is final."""
