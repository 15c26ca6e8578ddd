"""Transactions whose beginnings are deleted, by seed: :mod:`transactional_world`, with deletions of records.

The log no longer tells what was in it, so the test keeps a ledger of all batches that were ever read from it.
"""

from collections import Counter
from typing import NamedTuple

import pytest

from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.markers import COMMIT, Marker
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import iter_headers
from tests.broker.at_once import now
from tests.broker.transactional_world import KEY, World
from tests.narrowing import present


class Batch(NamedTuple):
    producer_id: int
    next_offset: int
    is_data_of_transaction: bool
    marker: Marker | None


class Fates(NamedTuple):
    """``undecided``: the spans of batches of open transactions. ``first_undecided``: where the oldest
    transaction begins, deleted or not, that is open or whose marker is not committed. ``visible``: offsets.
    """

    undecided: list[tuple[int, int]]
    first_undecided: int
    visible: set[int]


class DeletingWorld(World):
    def __init__(self, seed: int) -> None:
        self.ledger: dict[int, Batch] = {}
        super().__init__(seed, segment_bytes=700)

    def step(self) -> None:
        if self.rng.random() < 0.06:
            self.delete()
        else:
            super().step()

    def delete(self) -> None:
        partition = self.partition
        start = partition.log.log_start_offset
        partition.delete_records(self.rng.randint(start, max(start, partition.high_watermark)))
        self.counts["deleted"] += 1
        if self.rng.random() < 0.9:
            now(self.logs.checkpoints.write({KEY: partition.high_watermark}))
            if self.rng.random() < 0.6 and partition.retire_old_segments(self.time_ms):
                now(self.logs.producers.stand_in(KEY))
                self.logs.checkpoints.delete_retired_segments(KEY)
                self.counts["retired"] += 1

    def take_note(self) -> None:
        log = self.log
        first = log.first_stored_offset
        self.ledger = {
            offset: batch
            for offset, batch in self.ledger.items()
            if batch.next_offset <= first and offset < log.log_end_offset
        }
        for header, marker in log.iter_produced(first):
            is_data = header.is_transactional and not header.is_control
            self.ledger[header.base_offset] = Batch(header.producer_id, header.next_offset, is_data, marker)

    def fates(self) -> Fates:
        high_watermark = self.partition.high_watermark
        spans: dict[int, list[tuple[int, int]]] = {}
        visible: set[int] = set()
        first_undecided = high_watermark
        for offset, (producer_id, next_offset, is_data, marker) in sorted(self.ledger.items()):
            if marker is not None:
                mine = spans.pop(producer_id, [])
                if marker.kind == COMMIT:
                    visible.update(one for start, end in mine for one in range(start, end))
                if mine and offset >= high_watermark:
                    first_undecided = min(first_undecided, mine[0][0])
            elif is_data:
                spans.setdefault(producer_id, []).append((offset, next_offset))
            else:
                visible.update(range(offset, next_offset))
        first_undecided = min([first_undecided, *(mine[0][0] for mine in spans.values())])
        return Fates([span for mine in spans.values() for span in mine], first_undecided, visible)

    def check(self) -> None:
        self.take_note()
        partition, start, fates = self.partition, self.log.log_start_offset, self.fates()
        stable = partition.last_stable_offset
        assert start <= stable <= max(start, partition.high_watermark)
        for first, end in fates.undecided:
            assert end <= start or max(first, start) >= stable, "an undecided record is shown"
        if not partition.producers.is_behind:
            assert stable >= fates.first_undecided, "readers wait for nothing"
        for _ in range(3):
            if stable > start:
                self.check_read(self.rng.randrange(start, stable), fates)

    def check_read(self, offset: int, fates: Fates) -> None:
        max_bytes = self.rng.choice((1, 400, 9999))
        piece = present(self.partition.read_stable(offset, max_bytes, at_least_one=True))
        data = memoryview(piece.file.pread(piece.position, piece.size_bytes))
        headers = list(iter_headers(data))
        aborted = [(one.producer_id, one.first_offset) for one in self.partition.aborted_in(piece, offset)]
        shown = {
            record.offset
            for position, header in visible_batches(data, headers, aborted)
            for record in decode_batch(data[position : position + header.size_bytes], header)
        }
        read = range(headers[0][1].base_offset, headers[-1][1].next_offset)
        assert shown == fates.visible.intersection(read), (
            "a reader sees what was aborted, or misses something"
        )


@pytest.mark.parametrize("block", range(3))
def test_readers_see_what_was_committed_whatever_is_deleted(block: int) -> None:
    totals: Counter[str] = Counter()
    for seed in range(block * 10, block * 10 + 10):
        world = DeletingWorld(seed)
        for _ in range(150):
            world.step()
            world.check()
        totals.update(world.counts)
    wanted = ("data", "marker", "cut", "rebuilt", "stop", "kill", "power", "deleted", "retired")
    assert all(totals[name] >= 5 for name in wanted), totals
