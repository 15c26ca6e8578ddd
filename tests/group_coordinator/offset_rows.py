"""A commit of one topic, made without a request; the index of topics, counted; results, read from a log."""

from collections.abc import Iterable, Mapping

from pykraft.group_coordinator.replay import replay
from pykraft.group_coordinator.shard import write_records
from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.commits import TopicCommit
from pykraft.group_coordinator.state.offset_table import Rows, TopicOffsets, make_extra, pack_row
from pykraft.group_coordinator.state.result import AnyResult
from pykraft.group_coordinator.state.shard_state import ShardState, TopicKey
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.ids import Uuid

NOW_MS = 1_000_000


def commit_of(
    group_id: str, topic: str, offsets: Mapping[int, tuple[int, str]], topic_id: Uuid
) -> TopicCommit:
    """``offsets``: offset and metadata by partition."""
    partitions = sorted(offsets)
    rows = b"".join(pack_row(offsets[index][0], 3, NOW_MS) for index in partitions)
    extras = {
        index: extra
        for index in partitions
        if (extra := make_extra(offsets[index][1], None, topic_id)) is not None
    }
    return TopicCommit(group_id, topic, Rows(partitions, rows, topic_id, extras or None))


def index_of(state: ShardState) -> dict[TopicKey, dict[str, int]]:
    """The index of topics, from the offsets."""
    index: dict[TopicKey, dict[str, int]] = {}
    for group_id, topics in state.offsets.items():
        for name, partitions in topics.items():
            assert isinstance(partitions, TopicOffsets)
            for value in partitions.values():
                groups = index.setdefault((name, value.topic_id), {})
                groups[group_id] = groups.get(group_id, 0) + 1
    return index


def records_of(result: AnyResult) -> list[tuple[bytes, bytes | None]]:
    """As they are written to the log."""
    builder = BatchBuilder()
    write_records(builder, result.records)
    return list(builder)


def read_again(state: ShardState, records: Iterable[tuple[bytes, bytes | None]]) -> ShardState:
    """The state after these records of the log."""
    for key, value in records:
        record = decode_record(key, value)
        assert record is not None
        state = replay(state, record)
    return state
