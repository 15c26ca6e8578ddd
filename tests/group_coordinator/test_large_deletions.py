"""Deleting groups with very many offsets."""

from __future__ import annotations

import pytest

from pykraft.group_coordinator import delete_groups
from pykraft.group_coordinator.commits import LEAST_TOMBSTONE_BYTES, TopicRemoval, write_removal
from pykraft.group_coordinator.delete_groups import handle_delete_groups
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.shard import write_records
from pykraft.group_coordinator.state import EMPTY_STATE
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from tests.group_coordinator.offset_rows import commit_of


def test_least_size_of_a_tombstone_is_that_of_the_first_in_a_batch() -> None:
    builder = BatchBuilder()
    before = builder.size_bytes
    write_removal(builder, TopicRemoval("g", "t", (0,)))
    assert builder.size_bytes - before == LEAST_TOMBSTONE_BYTES + len("g") + len("t")


def test_group_that_fits_into_no_batch_is_refused_before_its_records_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets = dict.fromkeys(range(1_000), (1, ""))
    state = replay_all(EMPTY_STATE, [commit_of("g", topic, offsets, ZERO_UUID) for topic in "tu"])
    result = handle_delete_groups(state, ["g"], 1 << 20)
    builder = BatchBuilder()
    write_records(builder, result.records)
    assert replay_all(state, result.records) == EMPTY_STATE
    least_bytes = 2_000 * (LEAST_TOMBSTONE_BYTES + 2)
    assert least_bytes < builder.size_bytes
    handle_delete_groups(state, ["g"], least_bytes)
    monkeypatch.setattr(delete_groups, "build_offset_tombstones", None)  # would fail
    with pytest.raises(KafkaError) as raised:
        handle_delete_groups(state, ["g"], least_bytes - 1)
    assert raised.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
