"""Empty batches take the place of what is missing between batches that are copied."""

import pytest

from pykraft.kafka_protocol.records import iter_headers
from pykraft.log_store.compaction.gaps import fill_gaps
from pykraft.log_store.epoch_cache import EpochEntry, Epochs
from pykraft.log_store.segment.segment import MAX_RELATIVE_OFFSET
from tests.log_store.places import make_batch

HISTORY = (EpochEntry(1, 0), EpochEntry(2, 4), EpochEntry(3, 6))


@pytest.mark.parametrize(
    ("latest_epoch", "epochs", "filled"),
    [
        (1, (), [(2, 3, 1), (5, 6, 1), (6, 8, 1), (8, 9, 3)]),
        (-1, (), [(2, 3, 1), (5, 6, 1), (6, 8, 1), (8, 9, 3)]),
        (1, HISTORY, [(2, 3, 1), (4, 5, 2), (5, 6, 1), (6, 8, 3), (8, 9, 3)]),
    ],
)
def test_what_is_missing_is_filled(
    latest_epoch: int, epochs: Epochs, filled: list[tuple[int, int, int]]
) -> None:
    batches = [make_batch(3, epoch=1), make_batch(5, epoch=1), make_batch(8, epoch=3)]
    data = b"".join(batch.data for batch in batches)
    result, headers = fill_gaps(data, [batch.header for batch in batches], 2, latest_epoch, epochs)
    found = [header for _, header in iter_headers(bytes(result))]
    assert found == list(headers)
    seen = [(it.base_offset, it.next_offset, it.partition_leader_epoch) for it in found]
    assert [end for _, end, _ in seen[:-1]] == [start for start, _, _ in seen[1:]] and seen[0][0] == 2
    assert set(filled) <= set(seen)
    assert [it for it in found if it.record_count] == [batch.header for batch in batches]


def test_what_is_complete_is_not_copied() -> None:
    batches = [make_batch(3, records=2), make_batch(5)]
    data, headers = b"".join(batch.data for batch in batches), [batch.header for batch in batches]
    result, same = fill_gaps(data, headers, 3, 1)
    assert result is data and same is headers


def test_one_batch_spans_no_more_than_its_header_can_say() -> None:
    batch = make_batch(3 * MAX_RELATIVE_OFFSET)
    _, headers = fill_gaps(batch.data, [batch.header], 0, 1)
    assert len(headers) == 4 and headers[2].next_offset == batch.header.base_offset
