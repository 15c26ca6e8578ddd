"""Commits of very many topics or partitions, which are looked up and encoded over several turns.

Nothing of it is visible before :meth:`LargeCommit.decide`, which checks the caller on the newest state and
returns one record, :class:`PreparedChange`: the whole batch, and the maps of offsets as they will be. That
costs no more than a commit of one partition, unless the same offsets, or the index of topics, have changed
since they were prepared: then they are merged again, about a microsecond a topic. So a large commit is in the
log, and in the state, as a whole or not at all, as any other, and other requests go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykraft.group_coordinator.offsets.commit import (
    LookedUp,
    build_rows,
    check_group,
    check_topic,
    expires_at_ms,
    recorded_topic_id,
    topic_name,
)
from pykraft.group_coordinator.state.commits import TopicCommit, too_large, write_commit
from pykraft.group_coordinator.state.prepared_change import PreparedChange
from pykraft.group_coordinator.state.records import TopicPartition
from pykraft.group_coordinator.state.result import Call, CoordinatorResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.offset_commit import FIELDS_BYTES, CommitRequestView, CommitTopic

SLICE_STEPS = 2_000
"""The steps of a slice, each about a microsecond."""

_TOPIC_STEPS = 8
_PARTITION_STEPS = 3
"""A partition that has metadata, or an expiry time of its own; others are written as columns."""

_COLUMN_PIECE = 4_000
_PIECE = 500
"""How many partitions of one topic are taken at a time."""

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class LargeCommit:
    """One request: :meth:`prepare` to its end, :meth:`merge` while the state changes, :meth:`decide`."""

    def __init__(self, request: CommitRequestView, call: Call, max_batch_bytes: int) -> None:
        self._request = request
        self._call = call
        self._max_bytes = max_batch_bytes
        self._codes: list[int | list[int]] = []
        self._names: list[str | None] = []
        self._total = self._existing = 0
        self._is_too_large = False
        self._prepared = PreparedChange(request.group_id)

    def prepare(self) -> Iterator[None]:
        """Look up all topics and encode the records; yields after each slice."""
        steps = 0
        for topic in self._request.topics:
            name = topic_name(topic, self._call)
            self._names.append(name)
            codes: list[tuple[int | list[int], int]] = []
            for piece in self._pieces(topic):
                codes.append((self._take(name, piece), len(piece.partitions)))
                steps += self._steps_of(piece)
                if steps >= SLICE_STEPS:
                    yield
                    steps = 0
            self._codes.append(_joined(codes))

    def merge(self, state: ShardState) -> Iterator[None]:
        """Make the next state, unless :meth:`prepare` or the last merge was made from the same offsets."""
        return self._prepared.merge(state)

    def decide(self, state: ShardState, topics: TopicsView) -> CoordinatorResult[list[int | list[int]]]:
        """As :func:`~pykraft.group_coordinator.offsets.commit.handle_offset_commit`."""
        looked_up = LookedUp(self._total, self._existing, self._iter_committed)
        refused, timers = check_group(state, self._request, self._call, looked_up)
        if refused is not ErrorCode.NONE:
            return CoordinatorResult([_refuse(codes, refused) for codes in self._codes], (), timers)
        if self._is_too_large:
            raise too_large()
        if self._has_lost_topics(topics):
            # Their offsets are being deleted, and nothing would delete those that are written now.
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Topics were deleted meanwhile.")
        return CoordinatorResult(self._codes, (self._prepared,) if self._prepared.changes else (), timers)

    def _pieces(self, topic: CommitTopic) -> Iterator[CommitTopic]:
        count = len(topic.partitions)
        size = _COLUMN_PIECE if self._is_columns(topic) else _PIECE
        if count <= size:
            yield topic
            return
        for start in range(0, count, size):
            end = start + size
            yield topic._replace(
                partitions=topic.partitions[start:end],
                fields=topic.fields[start * FIELDS_BYTES : end * FIELDS_BYTES],
                metadata=None if topic.metadata is None else topic.metadata[start:end],
            )

    def _is_columns(self, topic: CommitTopic) -> bool:
        return topic.metadata is None and self._request.retention_time_ms < 0

    def _steps_of(self, piece: CommitTopic) -> int:
        count = len(piece.partitions)
        return _TOPIC_STEPS + (count // 4 if self._is_columns(piece) else count * _PARTITION_STEPS)

    def _take(self, name: str | None, piece: CommitTopic) -> int | list[int]:
        call = self._call
        codes = check_topic(name, piece, ErrorCode.NONE, call)
        self._total += len(piece.partitions)
        if isinstance(codes, list):
            self._existing += sum(code not in _UNKNOWN for code in codes)
        elif codes not in _UNKNOWN:
            self._existing += len(piece.partitions)
        is_refused = codes != ErrorCode.NONE if isinstance(codes, int) else all(codes)
        if name is None or is_refused or self._is_too_large:
            return codes
        expires_ms = expires_at_ms(self._request, call)
        topic_id = recorded_topic_id(name, expires_ms, call)
        rows = build_rows(piece, codes, call.wall_ms, expires_ms, topic_id)
        if rows.partitions:
            prepared = self._prepared
            write_commit(prepared.builder, TopicCommit(self._request.group_id, name, rows))
            prepared.add(name, rows)
            if prepared.builder.size_bytes > self._max_bytes:
                self._is_too_large = True
                self._prepared = PreparedChange(self._request.group_id)
        return codes

    def _iter_committed(self) -> Iterator[TopicPartition]:
        topics = self._call.topics
        for topic, name, codes in zip(self._request.topics, self._names, self._codes, strict=True):
            topic_id = None if name is None else topics.topic_id(name)
            if topic_id is None:
                continue
            for place, partition in enumerate(topic.partitions):
                if not (codes if isinstance(codes, int) else codes[place]):
                    yield topic_id, partition

    def _has_lost_topics(self, topics: TopicsView) -> bool:
        before, now = self._call.topics.image.topic_ids, topics.image.topic_ids
        return before is not now and any(now.get(name) != before.get(name) for name in self._prepared.changes)


def _joined(codes: list[tuple[int | list[int], int]]) -> int | list[int]:
    """The codes of a topic from those of its pieces, each with the number of its partitions."""
    first, _ = codes[0]
    if len(codes) == 1 or (isinstance(first, int) and all(code == first for code, _ in codes)):
        return first
    joined: list[int] = []
    for code, count in codes:
        joined += [code] * count if isinstance(code, int) else code
    return joined


def _refuse(codes: int | list[int], refused: ErrorCode) -> int | list[int]:
    """Return the codes when the group refuses: unknown partitions keep theirs."""
    if isinstance(codes, int):
        return codes if codes in _UNKNOWN else int(refused)
    return [code if code in _UNKNOWN else int(refused) for code in codes]
