"""Topics: create, delete, add partitions, list, describe. One item's error never hides another's result.

An item with a retriable error (no controller at the moment, a timeout in the broker) is sent again, without
the others, until the deadline. If a topic was created but the answer was lost, the second attempt returns
TOPIC_ALREADY_EXISTS, as with Kafka's own client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.metadata import Partition, Topic
from pykraft.kafka_client.results import (
    CreatedTopic,
    NewTopic,
    Outcome,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)

_PAGE_PARTITIONS: Final = 2000

O = TypeVar("O", bound=Outcome)  # noqa: E741 - a type variable of one letter, as usual


class TopicOperations(Operations):
    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> list[CreatedTopic]:
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        wanted = {topic.name: topic for topic in topics}

        async def attempt(names: Sequence[str]) -> Iterable[CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=_broker_timeout(cluster, deadline_ms),
                validate_only=validate_only,
            )
            response = await cluster.ask_any(request, deadline_ms)
            return [_created(result) for result in response.topics]

        return await each(cluster, "CreateTopics", list(wanted), attempt, deadline_ms)

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int | None = None) -> list[Outcome]:
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt(left: Sequence[str]) -> Iterable[Outcome]:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in left],
                topic_names=list(left),
                timeout_ms=_broker_timeout(cluster, deadline_ms),
            )
            response = await cluster.ask_any(request, deadline_ms)
            return [
                Outcome(result.name or "", error_of(result.error_code, result.error_message, result.name))
                for result in response.responses
            ]

        return await each(cluster, "DeleteTopics", names, attempt, deadline_ms, final=_NO_SUCH_TOPIC)

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> list[Outcome]:
        """Raise each topic's number of partitions to the given total.

        ``assignments``: the replicas of each new partition of a topic, in place of the controller's choice.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt(names: Sequence[str]) -> Iterable[Outcome]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name, count=totals[name], assignments=_assigned(assignments, name)
                    )
                    for name in names
                ],
                timeout_ms=_broker_timeout(cluster, deadline_ms),
                validate_only=validate_only,
            )
            response = await cluster.ask_any(request, deadline_ms)
            return [
                Outcome(result.name, error_of(result.error_code, result.error_message, result.name))
                for result in response.results
            ]

        return await each(
            cluster, "CreatePartitions", list(totals), attempt, deadline_ms, final=_NO_SUCH_TOPIC
        )

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[TopicListing]:
        topics = await self.cluster.topics(None, self.cluster.deadline(timeout_ms))
        return [
            TopicListing(topic.name, topic.topic_id, topic.is_internal)
            for topic in topics
            if include_internal or not topic.is_internal
        ]

    async def describe_topics(
        self, names: Sequence[str], *, page_partitions: int | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Raises UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist.

        ``page_partitions``: how many partitions one answer may have; the broker's own limit applies, too.
        """
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> list[TopicDescription]:
            try:
                return await _describe_by_cursor(cluster, names, deadline_ms, page_partitions)
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
            return [_described(topic) for topic in await cluster.topics(names, deadline_ms)]

        return await cluster.retrying("DescribeTopics", attempt, deadline_ms)


def _assigned(
    assignments: Mapping[str, Sequence[Sequence[int]]], topic: str
) -> list[CreatePartitionsAssignment] | None:
    if topic not in assignments:
        return None
    return [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments[topic]]


async def each(
    cluster: Cluster,
    what: str,
    names: Sequence[str],
    attempt: Callable[[Sequence[str]], Awaitable[Iterable[O]]],
    deadline_ms: int,
    final: frozenset[ErrorCode] = frozenset(),
) -> list[O]:
    """Run ``attempt`` until every name has an outcome that is final; outcomes in the order of ``names``.

    ``final`` lists codes that are final here although the table of errors calls them retriable.
    """
    outcomes: dict[str, O] = {}

    async def round_trip() -> None:
        left = [name for name in names if name not in outcomes]
        passing: KafkaError | None = None
        for outcome in await attempt(left):
            error = outcome.error
            if error is not None and is_passing(error) and error.code not in final:
                passing = error
            else:
                outcomes[outcome.name] = outcome
        if passing is not None:
            raise passing

    await cluster.retrying(what, round_trip, deadline_ms)
    missing = [name for name in names if name not in outcomes]
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: no answer about {', '.join(missing)}")
    return [outcomes[name] for name in names]


def error_of(code: int, message: str | None, name: str | None) -> KafkaError | None:
    if code == 0:
        return None
    known = ErrorCode(code)
    return KafkaError(known, message or f"{name}: {known.name}")


_NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def _broker_timeout(cluster: Cluster, deadline_ms: int) -> int:
    """The broker's timeout: a little less than the client waits, so that its error arrives in time."""
    left_ms = cluster.request_deadline(deadline_ms) - cluster.network.now_ms()
    return max(1, left_ms - min(1_000, left_ms // 5))


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.num_partitions is None or assigned else topic.num_partitions,
        replication_factor=-1 if topic.replication_factor is None or assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in sorted(topic.assignments.items())
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in sorted(topic.configs.items())],
    )


def _created(result: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        name=result.name,
        error=error_of(result.error_code, result.error_message, result.name),
        topic_id=Uuid(result.topic_id) if any(result.topic_id) else None,
        num_partitions=result.num_partitions if result.num_partitions >= 0 else None,
        replication_factor=result.replication_factor if result.replication_factor >= 0 else None,
    )


async def _describe_by_cursor(
    cluster: Cluster, names: Sequence[str], deadline_ms: int, page_partitions: int | None
) -> list[TopicDescription]:
    """DescribeTopicPartitions, page by page; a page may end in the middle of a topic."""
    partitions: dict[str, dict[int, PartitionDescription]] = {}
    heads: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    while names:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in sorted(names)],
            response_partition_limit=page_partitions or _PAGE_PARTITIONS,
            cursor=cursor,
        )
        response = await cluster.ask_any(request, deadline_ms)
        for topic in response.topics:
            if topic.error_code:
                code = ErrorCode(topic.error_code)
                unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise KafkaError(
                    code, f"topic {topic.name} {'does not exist' if unknown else f'has error {code.name}'}"
                )
            name = topic.name or ""
            if heads.setdefault(name, topic).topic_id != topic.topic_id:
                code = ErrorCode.INCONSISTENT_TOPIC_ID
                raise KafkaError(code, f"topic {name} was created again while it was described")
            page = partitions.setdefault(name, {})
            for partition in topic.partitions:
                page[partition.partition_index] = PartitionDescription(
                    index=partition.partition_index,
                    leader=partition.leader_id if partition.leader_id >= 0 else None,
                    leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
                    replicas=tuple(partition.replica_nodes),
                    isr=tuple(partition.isr_nodes),
                    offline_replicas=tuple(partition.offline_replicas),
                    elr=None
                    if partition.eligible_leader_replicas is None
                    else tuple(partition.eligible_leader_replicas),
                    last_known_elr=None
                    if partition.last_known_elr is None
                    else tuple(partition.last_known_elr),
                )
        if response.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    missing = [name for name in names if name not in heads]
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {missing[0]} does not exist")
    return [
        TopicDescription(
            name=name,
            topic_id=Uuid(heads[name].topic_id),
            is_internal=heads[name].is_internal,
            partitions=tuple(partitions[name][index] for index in sorted(partitions[name])),
        )
        for name in names
    ]


def _described(topic: Topic) -> TopicDescription:
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(_described_partition(topic.partitions[index]) for index in sorted(topic.partitions)),
    )


def _described_partition(partition: Partition) -> PartitionDescription:
    return PartitionDescription(
        index=partition.index,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        offline_replicas=partition.offline_replicas,
    )
