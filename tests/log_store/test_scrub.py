"""The scrub of a segment: what it finds, and that it works in steps."""

import pytest

from pykraft.log_store.epoch_cache import EpochEntry, Epochs
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.scrub import STEP_BYTES, Scrub
from tests.log_store.places import Fill, Place

PATH = f"{0:020d}.log"


def scrub(place: Place, end_offset: int, *, epochs: Epochs = (), has_gaps: bool = False) -> int:
    """Run all steps; returns their number."""
    size = len(place.disk.read(place.path(PATH)))
    job, steps = Scrub(place.disk, place.path(PATH), 0, size, end_offset, epochs, has_gaps=has_gaps), 0
    while not job.is_done:
        job.step()
        steps += 1
    return steps


def test_large_segment_is_read_in_steps(place: Place, fill: Fill) -> None:
    log = place.open()
    fill(log, 100, value_bytes=STEP_BYTES // 20)
    log.close()
    assert 5 <= scrub(place, 100) <= 7


def test_batch_missing_in_the_middle_is_found_unless_compaction_removed_it(place: Place, fill: Fill) -> None:
    log = place.open(LogConfig())
    batches = [batch.data for batch in fill(log, 5)]
    log.close()
    place.disk.write_atomic(place.path(PATH), b"".join(batches[:2] + batches[3:]))
    with pytest.raises(CorruptLogError, match="batch of offset 3, expected 2") as raised:
        scrub(place, 5)
    assert raised.value.position == len(batches[0] + batches[1])
    assert scrub(place, 5, has_gaps=True) == 1


def test_missing_end_is_found(place: Place, fill: Fill) -> None:
    log = place.open(LogConfig())
    fill(log, 5)
    log.close()
    with pytest.raises(CorruptLogError, match="ends at offset 5, not 6"):
        scrub(place, 6)


def test_leader_epoch_other_than_the_logs_is_found_even_in_the_last_batch(place: Place, fill: Fill) -> None:
    """Within the segment epochs do not fall."""
    log = place.open()
    fill(log, 3)
    log.close()
    epoch = log.latest_epoch
    own = (EpochEntry(epoch, 0),)
    assert scrub(place, 3, epochs=own) == 1
    assert scrub(place, 3, epochs=(EpochEntry(9, 3),)) == 1, "epochs of older records are not known"
    with pytest.raises(CorruptLogError, match=f"epoch is {epoch}, offset 2 is of {epoch + 1}") as raised:
        scrub(place, 3, epochs=(*own, EpochEntry(epoch + 1, 2)))
    assert raised.value.position == 2 * 88
