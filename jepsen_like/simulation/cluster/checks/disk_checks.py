"""The invariants of the files on a disk after a crash at any point of the writes.

The product's own recovery opens a copy of the disk. Damage is identified by its path, so that injected damage
is not taken for a fault of the product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pykraft.broker.logs.log_loading import load_dir
from pykraft.broker.logs.offline_logs import find_set_aside
from pykraft.jepsen_like.simulation.cluster.checks.derived_checks import DERIVED, find_difference
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import (
    METADATA_LOG_DIRECTORY,
    CorruptCheckpointError,
    CorruptLogError,
    LogConfig,
)
from pykraft.log_store.log.log import Log
from pykraft.node.format import check_directories
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.quorum.storage import QuorumStorage

if TYPE_CHECKING:
    from pykraft.node.config import ServerConfig
    from pykraft.runtime.clock import Clock
    from pykraft.runtime.simulated.memory_disk import MemoryDisk

EVERY_LOG_OPENS: Final = "every_log_opens_after_a_crash"
METADATA_OPENS: Final = "the_metadata_log_opens_after_a_crash"
LOG_START_IS_STORED: Final = "a start finds the log start that was stored"
NOTHING_FLUSHED_IS_LOST: Final = "a_crash_takes_no_record_that_was_flushed"

Replica = tuple[str, int, Uuid]
"""Topic, partition, topic id."""

_DAMAGE: Final = (QuorumStateError, CorruptLogError, CorruptCheckpointError, ValueError, OSError)


def check_disk(
    disk: MemoryDisk,
    config: ServerConfig,
    clock: Clock,
    damaged: Collection[str],
    log_starts: Mapping[Replica, int],
) -> None:
    """Check every file that a start of this node would read. ``disk`` is changed as by a start.

    ``damaged``: names of logs in which damage was injected. ``log_starts``: of the replicas, as
    far as the node has stored them.
    """
    _check_metadata_opens(disk, config, clock)
    if config.is_broker:
        found = check_logs_open(disk, config.log_dirs, clock.wall_ms(), damaged)
        for replica, log_start in log_starts.items():
            if found.get(replica, log_start) < log_start:
                topic, index, _ = replica
                detail = f"{topic}-{index} starts at {found[replica]}, stored was {log_start}"
                raise InvariantViolation(LOG_START_IS_STORED, detail)


def check_logs_open(
    disk: MemoryDisk, log_dirs: Iterable[str], now_ms: int, damaged: Collection[str] = ()
) -> dict[Replica, int]:
    """Every partition's log opens, as a start of the node would open it; ``disk`` is changed as by one.

    Returns the log starts of undamaged logs, of two copies of a log the higher one.
    """
    log_starts: dict[Replica, int] = {}
    missed: dict[tuple[str, int], str] = {}
    for log_dir in log_dirs:
        before = {offline.directory for offline in find_set_aside(disk, log_dir).values()}
        loaded = load_dir(disk, log_dir, LogConfig(), now_ms)
        for opened in loaded.logs:
            if opened.log.name not in damaged:
                difference = find_difference(opened.log, opened.producers, is_loaded=True)
                if difference is not None:
                    raise InvariantViolation(DERIVED, f"{opened.log.directory} opened again: {difference}")
                replica = (*opened.topic_partition, opened.topic_id)
                log_starts[replica] = max(opened.log.log_start_offset, log_starts.get(replica, 0))
            opened.log.abandon()
        for (topic, index), offline in loaded.offline.items():
            if offline.directory not in before and f"{topic}-{index}" not in damaged:
                missed[topic, index] = f"{topic}-{index} in {log_dir}: {offline.reason}"
    for key, detail in missed.items():
        if key not in {replica[:2] for replica in log_starts}:  # otherwise it has started over elsewhere
            raise InvariantViolation(EVERY_LOG_OPENS, detail)
    return log_starts


def _check_metadata_opens(disk: MemoryDisk, config: ServerConfig, clock: Clock) -> None:
    directory = f"{config.metadata_log_dir}/{METADATA_LOG_DIRECTORY}"
    try:
        check_directories(disk, config)
        log = Log.open(disk, directory, LogConfig(), now_ms=clock.wall_ms())
        storage = QuorumStorage(
            log, QuorumStateStore(disk, directory), clock, keeps_mark=config.is_controller
        )
        snapshots = storage.recover()
        storage.compare_with_mark()
        storage.read_election()
        log.abandon()
    except _DAMAGE as error:
        raise InvariantViolation(METADATA_OPENS, str(error)) from error
    if snapshots:
        raise InvariantViolation(METADATA_OPENS, str(snapshots[0]))
    if storage.recovery is not None:
        raise InvariantViolation(NOTHING_FLUSHED_IS_LOST, f"{directory}: {storage.recovery}")
