"""Disks of replicas that lose flushed records."""

from collections.abc import Sequence

from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.quorum.storage import QuorumStorage, encode_proposal
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.quorum.nodes import DIRECTORY

MARK = f"{DIRECTORY}/flushed-offset"


def disk_with(epochs: Sequence[int]) -> MemoryDisk:
    """A voter's disk: a batch of two records for each epoch, all flushed and recorded in the mark."""
    disk = MemoryDisk()
    format_log(disk, DIRECTORY, now_ms=0)
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(max(epochs), 2))
    log, storage = read_back(disk)
    for epoch in epochs:
        base = log.log_end_offset
        storage._append(encode_proposal([b"one", b"two"], base, epoch, 0), base, base + 2)
        flush(log, storage)
    log.close()
    return disk


def read_back(disk: MemoryDisk, keeps_mark: bool = True) -> tuple[Log, QuorumStorage]:
    log = Log.open(disk, DIRECTORY, LogConfig(), now_ms=0)
    storage = QuorumStorage(log, QuorumStateStore(disk, DIRECTORY), SystemClock(), keeps_mark=keeps_mark)
    storage.recover()
    storage.compare_with_mark()
    storage.write_mark()
    return log, storage


def flush(log: Log, storage: QuorumStorage) -> None:
    job = log.prepare_flush()
    storage.flush(job)
    log.complete_flush(job)


def lose_everything_but(disk: MemoryDisk, *kept: str) -> None:
    for name in disk.list(DIRECTORY):
        if name not in kept:
            disk.remove(f"{DIRECTORY}/{name}")
