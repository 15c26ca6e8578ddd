"""TxnOffsetCommit: a transaction commits offsets of a group, which count when it is committed (KIP-447).

Who may commit is asked more leniently than by OffsetCommit, as in Kafka: a producer need not say for which
member it commits, and a group that rebalances takes offsets, too. If it does say, member and generation fence
it: the consumer that it copies from may have lost its partitions.

What one transaction may commit is bounded, for all of it counts at once when its marker comes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from pykraft.group_coordinator.classic.sync import check_member
from pykraft.group_coordinator.consumer.assignment_epochs import check_commit
from pykraft.group_coordinator.offsets.commit import build_rows, check_topic, recorded_topic_id
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.commits import TopicCommit
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.names import check_names
from pykraft.group_coordinator.state.records import TopicPartition
from pykraft.group_coordinator.state.result import Call, CoordinatorResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.offset_commit import FIELDS, CommitTopic
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

MAX_PARTITIONS: Final = 5_000
MAX_TOPICS: Final = 1_000
"""In all that one transaction commits: its marker makes them count in one turn, ten milliseconds."""

_ANSWERED_AT_ONCE = 500
_NO_GENERATION = -1
_LOADING_IS_KNOWN_FROM = 2
"""Older producers may crash when they are told that a coordinator is loading."""


class TransactionalCommit:
    """One request. Partitions that do not exist have their error from the beginning, whatever the group says;
    if none :attr:`is_left`, nobody is asked. What is decided are the error codes, of which :meth:`build`
    makes the answer.
    """

    def __init__(self, request: TxnOffsetCommitRequest, call: Call) -> None:
        """INVALID_COMMIT_OFFSET_SIZE for more than a transaction may commit."""
        self.request = request
        self._call = call
        self._unknown: list[tuple[str, list[int]]] = []
        self._topics: list[CommitTopic] = []
        _check_size(len(request.topics), sum(len(topic.partitions) for topic in request.topics))
        for topic in request.topics:
            self._split(topic)
        self._codes = [check_topic(topic.name, topic, ErrorCode.NONE, call) for topic in self._topics]
        self._records = tuple(self._build_records())

    def _split(self, topic: TxnOffsetCommitRequestTopic) -> None:
        count = self._call.topics.partition_count(topic.name)
        known = [one for one in topic.partitions if 0 <= one.partition_index < count]
        if len(known) < len(topic.partitions):
            unknown = [n for one in topic.partitions if not 0 <= (n := one.partition_index) < count]
            self._unknown.append((topic.name, unknown))
        if known:
            fields = b"".join(FIELDS.pack(one.committed_offset, one.committed_leader_epoch) for one in known)
            texts = [one.committed_metadata for one in known]
            partitions = tuple(one.partition_index for one in known)
            metadata = texts if any(texts) else None
            self._topics.append(CommitTopic(topic.name, ZERO_UUID, partitions, fields, metadata))

    @property
    def is_left(self) -> bool:
        return bool(self._topics)

    def decide(self, state: ShardState) -> CoordinatorResult[list[int | list[int]]]:
        """:class:`KafkaError` is for all partitions that exist."""
        self._check_caller(state, self._codes)
        self._check_room(state)
        producer = (self.request.producer_id, self.request.producer_epoch)
        return CoordinatorResult(self._codes, self._records, producer=producer)

    def _build_records(self) -> Iterator[TopicCommit]:
        call = self._call
        for topic, code in zip(self._topics, self._codes, strict=True):
            rows = build_rows(topic, code, call.wall_ms, None, recorded_topic_id(topic.name, None, call))
            if rows.partitions:
                yield TopicCommit(self.request.group_id, topic.name, rows)

    def _check_room(self, state: ShardState) -> None:
        """Refuse partitions beyond the bound; those committed before may be committed again."""
        request = self.request
        topics, partitions = state.pending.count(request.producer_id)
        if topics:
            tables = state.pending.by_producer[request.producer_id]
            for topic in self._topics:
                known = tables.get((request.group_id, topic.name))
                topics += known is None
                partitions += sum(one not in (known or ()) for one in topic.partitions)
            _check_size(topics, partitions)

    def _check_caller(self, state: ShardState, codes: list[int | list[int]]) -> None:
        request = self.request
        check_names(request.group_id, code=ErrorCode.INVALID_GROUP_ID)
        generation = request.generation_id
        names_member = bool(request.member_id) or request.group_instance_id is not None
        match state.group(request.group_id):
            case None:
                if generation >= 0:
                    raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"There is no group {request.group_id}.")
            case ClassicGroup() as classic:
                is_free = generation < 0 and classic.state is ClassicState.EMPTY
                if (generation >= 0 or names_member) and not is_free:
                    check_member(classic, request.member_id, request.group_instance_id, generation)
            case ConsumerGroup() as group:
                is_free = generation < 0 and group.is_empty
                if (generation != _NO_GENERATION or names_member) and not is_free:
                    self._check_consumer_member(group, codes)

    def _check_consumer_member(self, group: ConsumerGroup, codes: list[int | list[int]]) -> None:
        request = self.request
        member = group.members.get(request.member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not in the group.")
        try:
            check_commit(member, request.generation_id, self._iter_committed(codes))
        except KafkaError as error:
            # Producers do not know STALE_MEMBER_EPOCH.
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error

    def _iter_committed(self, codes: list[int | list[int]]) -> Iterator[TopicPartition]:
        for topic, code in zip(self._topics, codes, strict=True):
            topic_id = self._call.topics.topic_id(topic.name) or ZERO_UUID
            for place, partition in enumerate(topic.partitions):
                if not (code if isinstance(code, int) else code[place]):
                    yield topic_id, partition

    def refuse(self, code: ErrorCode) -> Generator[None, None, TxnOffsetCommitResponse]:
        """The answer if nothing is committed, for one reason."""
        return self.build([_known_code(code, self._call.version)] * len(self._topics))

    def build(self, codes: Sequence[int | list[int]]) -> Generator[None, None, TxnOffsetCommitResponse]:
        """The answer: each topic once; partitions that do not exist first. Yields after each topic."""
        topics: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
        for name, partitions in self._unknown:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.setdefault(name, []).extend(_answers(partitions, repeat(unknown)))
            yield
        for topic, code in zip(self._topics, codes, strict=True):
            each = repeat(code) if isinstance(code, int) else code
            topics.setdefault(topic.name, []).extend(_answers(topic.partitions, each))
            yield
        return _response(topics)


def refuse_all(
    request: TxnOffsetCommitRequest, version: int, code: ErrorCode
) -> Generator[None, None, TxnOffsetCommitResponse]:
    """The answer with one error for everything, of any size. Yields after some partitions."""
    code = _known_code(code, version)
    topics: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    for topic in request.topics:
        answers = topics.setdefault(topic.name, [])
        for start in range(0, len(topic.partitions), _ANSWERED_AT_ONCE):
            some = topic.partitions[start : start + _ANSWERED_AT_ONCE]
            answers.extend(_answers([one.partition_index for one in some], repeat(code)))
            yield
    return _response(topics)


def _check_size(topics: int, partitions: int) -> None:
    if topics > MAX_TOPICS or partitions > MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            f"A transaction commits at most {MAX_PARTITIONS} offsets, of {MAX_TOPICS} topics.",
        )


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_IS_KNOWN_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _answers(partitions: Iterable[int], codes: Iterable[int]) -> Iterator[TxnOffsetCommitResponsePartition]:
    for index, code in zip(partitions, codes, strict=False):
        yield TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)


def _response(topics: dict[str, list[TxnOffsetCommitResponsePartition]]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
