"""Reading batch after batch notices where they do not continue each other."""

import pytest

from pykraft.log_store.interface import LogConfig, MissingOffsetError
from pykraft.log_store.log.log import Log
from tests.log_store.places import Fill, MakeBatch, MemoryPlace

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


def offsets(log: Log, start: int = 0, end: int | None = None) -> list[int]:
    return [header.base_offset for header in log.iter_headers(start, end)]


def without_batch(memory: MemoryPlace, fill: Fill, missing: int, config: LogConfig) -> Log:
    """A log of five batches that was opened before one of them vanished."""
    log = memory.open(config)
    batches = fill(log, 5)
    path = memory.path(f"{0:020}.log")
    left = b"".join(batch.data for number, batch in enumerate(batches) if number != missing)
    log._active.truncate(0)
    memory.disk.open(path).append(left)
    log._active._size_bytes = len(left)
    return log


@pytest.mark.parametrize("missing", range(5))
def test_batch_that_is_missing_is_noticed_unless_compaction_may_have_removed_it(
    memory: MemoryPlace, fill: Fill, missing: int
) -> None:
    log = without_batch(memory, fill, missing, LogConfig())
    with pytest.raises(MissingOffsetError, match=f"no batch holds offset {missing}"):
        offsets(log)
    assert offsets(log, 0, missing) == list(range(missing))
    log.config = COMPACTED
    assert offsets(log) == [offset for offset in range(5) if offset != missing]


@pytest.mark.parametrize("config", [LogConfig(), COMPACTED], ids=["delete", "compact"])
def test_base_offset_beyond_the_end_of_the_log_is_noticed_under_any_policy(
    memory: MemoryPlace, fill: Fill, config: LogConfig
) -> None:
    log = memory.open(config)
    fill(log, 3)
    memory.disk.flip_bit(memory.path(f"{0:020}.log"), 2 * log.size_bytes // 3 + 3)
    with pytest.raises(MissingOffsetError):
        offsets(log)


def test_log_may_grow_while_it_is_read(memory: MemoryPlace, fill: Fill, make_batch: MakeBatch) -> None:
    log = memory.open(COMPACTED)
    fill(log, 2)
    walk = log.iter_headers(0, read_ahead_bytes=61)
    assert next(walk).base_offset == 0
    batch = make_batch(5)  # a follower of a compacted log
    log.append(batch.data, [batch.header], now_ms=0)
    assert [header.base_offset for header in walk] == [1]
    assert offsets(log) == [0, 1, 5]
