"""One wrong byte in any file of a log directory costs at most the log that it belongs to, never the start."""

import random

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import ABORT, COMMIT, Marker, build_marker
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.log_managers import CONFIG, started
from tests.seeds import seeds

KEYS = (("rots", 0), ("stays", 0))


def append(log: Log, data: bytes) -> None:
    batch = bytearray(data)
    assign_offset(batch, 0, log.log_end_offset, 3)
    log.append(batch, [read_header(batch)], now_ms=0)


def fill(log: Log) -> None:
    """Three transactions, each in a segment of its own, and one that is under way."""
    for number in range(4):
        records = [RecordInput(b"key", b"value", (), 1)] * 2
        append(
            log,
            encode_batch(
                records,
                producer_id=7,
                producer_epoch=0,
                base_sequence=2 * number,
                is_transactional=True,
            ),
        )
        if number < 3:
            append(log, build_marker(7, 0, Marker(ABORT if number else COMMIT, 3), 0))
            log.roll(0)


async def stopped(rng: random.Random) -> MemoryDisk:
    disk = MemoryDisk()
    logs = await started(disk)
    for opened in await logs.open_or_create([(*key, Uuid(b"a" * 16), CONFIG) for key in KEYS]):
        fill(opened.log)
        await logs.flush(opened.topic_partition)
    if rng.random() < 0.5:
        await logs.stop(1, dict.fromkeys(KEYS, 5))
    else:
        await logs.checkpoints.write(dict.fromkeys(KEYS, 5))
    return disk


@pytest.mark.parametrize("seed", seeds(150, checked=40))
async def test_start_passes_over_rot(seed: int) -> None:
    rng = random.Random(f"rot {seed}")
    disk = await stopped(rng)
    directory = "/d/rots-0"
    path = f"{directory}/{rng.choice([name for name in disk.list(directory) if 'txn' not in name])}"
    size = len(disk.read(path))
    for position in range(size and rng.randrange(size), size)[: rng.choice((1, 1, 9))]:
        disk.flip_bit(path, position, rng.randrange(8))
    again = await started(disk)
    assert KEYS[1] in again.logs and again.logs[KEYS[1]].log.log_end_offset == 11
    assert (KEYS[0] in again.logs) != (KEYS[0] in again.offline)
