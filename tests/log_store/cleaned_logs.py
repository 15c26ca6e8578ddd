"""Compacts logs to the end, and says what is in them."""

from collections.abc import Callable, Iterable

from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.log_store.compaction.candidates import Cleanable
from pykraft.log_store.compaction.cleaning import CleaningRound, Replacement
from pykraft.log_store.compaction.offset_map import BYTES_PER_KEY, OffsetMap
from pykraft.log_store.compaction.record_filter import ActiveProducers
from pykraft.log_store.compaction.segment_files import remove_files
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.files import DELETED_SUFFIX


def clean(
    log: Log,
    *,
    cleaned_offset: int | None = None,
    limit_offset: int | None = None,
    keys: int = 1_000_000,
    producers: ActiveProducers | None = None,
    now_ms: int = 0,
    before_swap: Callable[[], None] = lambda: None,
) -> int:
    """One round, as the broker's cleaner makes it; returns the end of what is clean then."""
    log.flush()
    limit = log.log_end_offset if limit_offset is None else limit_offset
    cleanable = log.find_cleanable(cleaned_offset, limit_offset=limit, now_ms=now_ms)
    assert cleanable is not None
    return finish(log, begin(log, cleanable, keys, producers, now_ms), before_swap)


def begin(
    log: Log, cleanable: Cleanable, keys: int, producers: ActiveProducers | None, now_ms: int
) -> CleaningRound:
    newest = OffsetMap(keys * BYTES_PER_KEY)
    return log.begin_cleaning(
        cleanable, producers=producers or ActiveProducers(), newest=newest, now_ms=now_ms
    )


def finish(log: Log, cleaning: CleaningRound, before_swap: Callable[[], None] = lambda: None) -> int:
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            before_swap()
            assert log.replace_segments(step)
            log.disk.flush_dir(log.directory)
            bases = [segment.base_offset for segment in step.sources]
            remove_files(log.disk, log.directory, bases, DELETED_SUFFIX)
    return cleaning.end_offset


def records(log: Log) -> list[Record]:
    """All records of a log; its batches follow each other without a hole."""
    found: list[Record] = []
    next_offset = None
    for header, batch in log.iter_batches(0):
        assert next_offset in (None, header.base_offset)
        next_offset = header.next_offset
        if not header.is_control:
            found += [one for one in decode_batch(batch, header) if one.offset >= log.log_start_offset]
    assert next_offset in (None, log.log_end_offset)
    return found


def contents(found: Iterable[Record]) -> dict[bytes, bytes]:
    """What the keys stand for: the newest value of each that was not deleted."""
    values: dict[bytes, bytes] = {}
    for one in found:
        assert one.key is not None
        if one.value is None:
            values.pop(one.key, None)
        else:
            values[one.key] = one.value
    return values
