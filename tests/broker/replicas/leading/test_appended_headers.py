"""A leader appends a batch with the header that is in its bytes, though it is not parsed again."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.markers import COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.interface import LOG_APPEND_TIME
from tests.broker.partitions import append, make, state
from tests.stand_ins import interpreted_only


def append_stamped(partition: Partition) -> object:
    partition.log.config = replace(partition.log.config, message_timestamp_type=LOG_APPEND_TIME)
    return append(partition, all_acks=False)


def end_transaction(partition: Partition) -> object:
    return partition.end_transaction(EndOfTransaction(9, 0, Marker(COMMIT, 0), 1), 5000)


@pytest.mark.parametrize(
    "add", [lambda partition: append(partition, all_acks=False), append_stamped, end_transaction]
)
@interpreted_only
def test_header_is_that_of_the_appended_bytes(
    monkeypatch: pytest.MonkeyPatch, add: Callable[[Partition], object]
) -> None:
    partition = make()
    partition.apply(state(1, epoch=7, isr=(1,)), now_ms=0)
    seen: list[tuple[BatchHeader, BatchHeader]] = []
    log_append = partition.log.append

    def look(data: memoryview, headers: Sequence[BatchHeader], *, now_ms: int) -> None:
        seen.append((headers[0], read_header(data)))
        log_append(data, headers, now_ms=now_ms)

    monkeypatch.setattr(partition.log, "append", look)
    for _ in range(2):
        add(partition)
    assert [given for given, _ in seen] == [parsed for _, parsed in seen]
    assert [given.base_offset for given, _ in seen] == [0, 1]
    assert {given.partition_leader_epoch for given, _ in seen} == {7}
