"""Records that a killed process left in the page cache, without a mark: the next start flushes them."""

from random import Random

import pytest

from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.quorum.storage import QuorumStorage, encode_proposal
from pykraft.runtime.clock import SystemClock
from tests.quorum.lost_records import MARK, disk_with, read_back
from tests.quorum.nodes import DIRECTORY


@pytest.mark.parametrize("seed", range(10))
def test_records_that_a_start_reads_back_survive_the_next_power_loss(seed: int) -> None:
    disk = disk_with([1])
    killed, storage = read_back(disk)
    for base in range(2, 40, 2):
        storage._append(encode_proposal([b"one", b"two"], base, 1, 0), base, base + 2)
        if base % 10 == 0:
            killed.roll(0)
    disk.remove(MARK)
    disk.flush_dir(DIRECTORY)
    log = Log.open(disk, DIRECTORY, LogConfig(), now_ms=0)
    end_offset = log.log_end_offset
    assert end_offset == 40, "the page cache outlives the process"
    QuorumStorage(log, QuorumStateStore(disk, DIRECTORY), SystemClock()).recover()
    disk.crash(Random(seed))
    assert Log.open(disk, DIRECTORY, LogConfig(), now_ms=0).log_end_offset == end_offset
