"""``pykraft transactions``, with the commands, flags, tables and messages of kafka-transactions.

As there, every error ends with status 1, also one in the options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    AbortTransactionSpec,
    ProducerState,
    TopicDescription,
    TransactionDescription,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import FC, Cell, json_option, print_table
from pykraft.node.cli.shared.kafka_errors import text_of
from pykraft.node.cli.shared.logging_setup import LEVEL_VARIABLE, set_up_logging
from pykraft.node.cli.shared.tool_errors import ToolError, failure, found
from pykraft.runtime.clock import SystemClock

_BATCH: Final = 500
"""Topics, or partitions, in one question."""

T = TypeVar("T")


class OpenTransaction(NamedTuple):
    partition: TopicPartition
    producer: ProducerState


class Search:
    """Looks for transactions that are open in a partition and that no coordinator will end there (KIP-664).

    Candidates are open for longer than any transaction may take. One hangs unless the coordinator of its
    producer has the partition in a transaction: then a marker can still be expected. ``broker_id``: the broker
    whose replicas are searched; None: the leaders.
    """

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


_TIMEOUT_MS: Final = 30_000
"""Also the transaction timeout of an id that is terminated, as with Kafka's tool."""
_NONE: Final = Cell(None, "None")


class _Integer(click.ParamType[int]):
    """A number that the protocol has so many bits for."""

    name = "integer"

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        if number.bit_length() >= self._bits:
            self.fail(f"{number} does not fit into {self._bits} bits.", param, ctx)
        return number


_SHORT: Final = _Integer(16)
_INT: Final = _Integer(32)
_LONG: Final = _Integer(64)


@click.group()
@cluster_options(names={"--version": ("-v",)})
@click.pass_context
def command(context: click.Context, /, target: Target) -> None:
    """Look at transactions and their producers; find transactions that nobody will end, and end them."""
    if os.environ.get(LEVEL_VARIABLE):
        set_up_logging()
    context.obj = target


@command.command("list")
@click.option("--duration-filter", type=_LONG, metavar="MS",
              help="Only transactions that are open for longer; all if negative.")  # fmt: skip
@click.option("--transactional-id-pattern", metavar="REGEX",
              help="Only ids that match this expression as a whole.")  # fmt: skip
@json_option
@click.pass_obj
def list_command(target: Target, duration_filter: int | None, transactional_id_pattern: str | None) -> None:
    """List the transactional ids of all coordinators."""
    with target.client(_TIMEOUT_MS) as client:
        try:
            listed = client.list_transactions(
                longer_than_ms=duration_filter, pattern=transactional_id_pattern
            )
        except KafkaError as error:
            raise failure("Failed to list transactions", error) from error
    print_table(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(it.transactional_id, it.coordinator_id, it.producer_id, it.state) for it in listed],
        tabs=True,
    )


@command.command()
@click.option("--transactional-id", required=True, metavar="ID", help="The transactional id.")
@json_option
@click.pass_obj
def describe(target: Target, transactional_id: str) -> None:
    """Describe the newest transaction of a transactional id."""
    what = f"Failed to describe transaction state of transactional-id `{transactional_id}`"
    with target.client(_TIMEOUT_MS) as client:
        it = found(what, client.describe_transactions([transactional_id])[transactional_id])
    start_ms = it.start_time_ms
    columns = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    )
    row = (
        *(it.coordinator_id, it.transactional_id, it.producer_id, it.producer_epoch, it.state),
        it.timeout_ms,
        _NONE if start_ms is None else start_ms,
        _NONE if start_ms is None else SystemClock().wall_ms() - start_ms,
        Cell([partition._asdict() for partition in it.partitions], ",".join(map(str, it.partitions))),
    )
    print_table(columns, [row], tabs=True)


def _topic_option(required: bool, text: str) -> Callable[[FC], FC]:
    return click.option("--topic", required=required, metavar="NAME", help=text)


def _partition_option(required: bool) -> Callable[[FC], FC]:
    return click.option("--partition", type=_INT, required=required, help="The number of the partition.")


@command.command("describe-producers")
@click.option("--broker-id", type=_INT, help="Ask the replica on this broker, not the leader.")
@_topic_option(True, "The topic.")
@_partition_option(True)
@json_option
@click.pass_obj
def describe_producers(target: Target, broker_id: int | None, topic: str, partition: int) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    key = TopicPartition(topic, partition)
    where = "leader" if broker_id is None else f"broker {broker_id}"
    with target.client(_TIMEOUT_MS) as client:
        result = client.describe_producers([key], broker_id=broker_id)[key]
    producers = found(f"Failed to describe producers for partition {key} on {where}", result)
    print_table(
        (
            *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
            "CurrentTransactionStartOffset",
        ),
        [_producer_row(it) for it in producers],
        tabs=True,
    )


def _producer_row(it: ProducerState) -> tuple[object, ...]:
    epoch, start = it.coordinator_epoch, it.transaction_start_offset
    return (
        it.producer_id,
        it.producer_epoch,
        -1 if epoch is None else epoch,
        it.last_sequence,
        it.last_timestamp_ms,
        _NONE if start is None else start,
    )


@command.command()
@_topic_option(True, "The topic.")
@_partition_option(True)
@click.option("--start-offset", type=_LONG, help="Where the transaction begins in the partition.")
@click.option("--producer-id", type=_LONG, help="Without --start-offset: its producer.")
@click.option("--producer-epoch", type=_SHORT, help="With --producer-id.")
@click.option("--coordinator-epoch", type=_INT, help="With --producer-id.")
@click.pass_obj
def abort(
    target: Target,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in one partition."""
    key = TopicPartition(topic, partition)
    if start_offset is None:
        spec = _named(key, producer_id, producer_epoch, coordinator_epoch)
    with target.client(_TIMEOUT_MS) as client:
        if start_offset is not None:
            spec = _open_at(client, key, start_offset)
        try:
            client.abort_transaction(spec)
        except KafkaError as error:
            raise failure(f"Failed to abort transaction {spec}", error) from error


def _named(
    partition: TopicPartition,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> AbortTransactionSpec:
    if producer_id is None:
        raise ToolError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or "
            "above) or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if producer_epoch is None:
        raise ToolError("Missing required argument --producer-epoch")
    if coordinator_epoch is None:
        raise ToolError("Missing required argument --coordinator-epoch")
    # A producer that never ended a transaction here is shown with -1; no coordinator has an epoch below 0.
    return AbortTransactionSpec(partition, producer_id, producer_epoch, max(0, coordinator_epoch))


def _open_at(client: AdminClient, partition: TopicPartition, start_offset: int) -> AbortTransactionSpec:
    what = f"Failed to validate producer state for partition {partition}"
    for it in found(what, client.describe_producers([partition])[partition]):
        if it.transaction_start_offset == start_offset:
            return AbortTransactionSpec(
                partition, it.producer_id, it.producer_epoch, it.coordinator_epoch or 0
            )
    raise ToolError(
        f"Could not find any open transactions starting at offset {start_offset} on partition {partition}"
    )


@command.command("find-hanging")
@click.option("--broker-id", type=_INT, help="Search the replicas on this broker.")
@click.option("--max-transaction-timeout", type=_INT, default=15, show_default=True, metavar="MINUTES",
              help="Only transactions that have been open without a record for longer.")  # fmt: skip
@_topic_option(False, "Search this topic.")
@_partition_option(False)
@json_option
@click.pass_obj
def find_hanging(
    target: Target,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
) -> None:
    """Find transactions that are open in a partition, but not for their coordinator."""
    if topic is None and broker_id is None:
        raise ToolError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if partition is not None and topic is None:
        raise ToolError("The --partition argument requires --topic to be provided")
    with target.client(_TIMEOUT_MS) as client:
        search = Search(client, broker_id, max_transaction_timeout * 60_000, SystemClock().wall_ms)
        hanging = search.find(topic, partition)
    now_ms = SystemClock().wall_ms()
    print_table(
        (
            *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"),
            *("LastTimestamp", "Duration(min)"),
        ),
        [
            (
                *(at.topic, at.partition, it.producer_id, it.producer_epoch),
                -1 if it.coordinator_epoch is None else it.coordinator_epoch,
                it.transaction_start_offset,
                it.last_timestamp_ms,
                (now_ms - it.last_timestamp_ms) // 60_000,
            )
            for at, it in hanging
        ],
        tabs=True,
    )


@command.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", required=True, metavar="ID",
              help="The transactional id.")  # fmt: skip
@click.pass_obj
def force_terminate(target: Target, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id, and shut out its producer."""
    with target.client(_TIMEOUT_MS) as client:
        try:
            client.force_terminate_transaction(transactional_id)
        except KafkaError as error:
            what = f"Failed to force terminate transactionalId `{transactional_id}`"
            raise failure(what, error) from error
