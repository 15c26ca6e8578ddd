"""Opens the logs of one log directory, with what its checkpoint files say, and finds those that are damaged.

Runs in an executor before the logs are used. A damaged log is set aside and reported; the others are not
affected.
"""

from __future__ import annotations

import logging
import re
from dataclasses import field
from typing import Final, NamedTuple

from pykraft.broker.logs import offline_logs
from pykraft.broker.logs.checkpoint_files import StoredOffsets
from pykraft.broker.logs.move_marks import Mark, read_marks
from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.broker.logs.producers.snapshots import SnapshotWriter, load_producers
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import (
    DAMAGE_ERRORS,
    METADATA_LOG_DIRECTORY,
    CorruptCheckpointError,
    CorruptLogError,
    LogConfig,
)
from pykraft.log_store.log.log import DELETED_DIRECTORY_SUFFIX, Log
from pykraft.runtime.disk import Disk

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OpenLog:
    """One partition's log with what was learned when it was opened.

    ``marks``: of the copies one of which may have taken its place.
    """

    log: Log
    topic_id: Uuid
    log_dir: str
    producers: ProducerState
    high_watermark: int
    snapshots: SnapshotWriter | None = None
    marks: frozenset[Mark] = frozenset()

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition


class FoundCopy(NamedTuple):
    """A copy of a log that was being moved; ``unique``: as in :class:`.FutureLog`."""

    key: TopicPartition
    unique: str
    path: str


@dataclass(slots=True)
class LoadedDir:
    """The contents of a log directory. ``broker_epoch``: of the orderly stop; None after an unclean one.

    ``copies``: to be removed once the marks of their logs are.
    """

    stored: StoredOffsets
    broker_epoch: int | None
    logs: list[OpenLog] = field(default_factory=list)
    offline: dict[TopicPartition, OfflineLog] = field(default_factory=dict)
    copies: list[FoundCopy] = field(default_factory=list)


FUTURE_SUFFIX: Final = "-future"
_FUTURE_NAME: Final = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})" + FUTURE_SUFFIX)


def parse_future_name(name: str) -> tuple[TopicPartition, str] | None:
    """The partition whose log moves to a directory of this name, and the unique part; None: another name."""
    match = _FUTURE_NAME.fullmatch(name)
    return None if match is None else ((match[1], int(match[2])), match[3])


def load_dir(disk: Disk, log_dir: str, config: LogConfig, now_ms: int) -> LoadedDir:
    """Open all partition logs below one directory. Blocks. Call :meth:`Log.flush_recovered` of each next."""
    disk.make_dirs(log_dir)
    disk.flush_dir(log_dir)  # what a killed process has just renamed there is relied on from now on
    broker_epoch = checkpoint.read_clean_shutdown(disk, log_dir)
    stored = StoredOffsets.read(disk, log_dir, is_clean=broker_epoch is not None)
    loaded = LoadedDir(stored, broker_epoch)
    if stored.is_clean:
        checkpoint.remove_clean_shutdown(disk, log_dir)
    loaded.offline = offline_logs.find_set_aside(disk, log_dir)
    for name in disk.list(log_dir):
        path = f"{log_dir}/{name}"
        if not disk.is_dir(path):
            continue
        if name.endswith(DELETED_DIRECTORY_SUFFIX):
            disk.remove_tree(path)
            continue
        copy = parse_future_name(name)
        if copy is not None:
            loaded.copies.append(FoundCopy(*copy, path))
            continue
        topic, _, number = name.rpartition("-")
        if not topic or not number.isdigit() or name == METADATA_LOG_DIRECTORY:
            continue
        key = (topic, int(number))
        try:
            opened = _open_log(disk, log_dir, key, config, stored, now_ms)
        except (*DAMAGE_ERRORS, CorruptCheckpointError) as error:
            offline = OfflineLog(offline_logs.read_topic_id(disk, path), log_dir, path, str(error))
            offline_logs.set_aside(disk, offline)
            logger.error("%s-%d is damaged (%s) and was set aside as %s", *key, error, offline.directory)
            loaded.offline[key] = offline
        else:
            if opened is not None:
                loaded.logs.append(opened)
    there = loaded.offline.keys() | {opened.topic_partition for opened in loaded.logs}
    for key in sorted(stored.with_records() - there):
        logger.error("%s-%d is damaged: its directory in %s is missing", *key, log_dir)
        loaded.offline[key] = OfflineLog(None, log_dir, None, "its directory is missing", is_set_aside=True)
    if stored.gaps is None:
        stored.gaps = _accept_gaps(disk, log_dir, loaded.logs)
    return loaded


def _accept_gaps(disk: Disk, log_dir: str, logs: list[OpenLog]) -> dict[TopicPartition, int]:
    """At the first start with a directory: remember how far each of its logs, which Kafka wrote, may have
    gaps.

    A round of Kafka's cleaner may have been stopped midway, and a log that was copied has the gaps of its
    leader: that one is there, and where it ends, is all that can be known. From now on a gap above is damage.
    """
    gaps = {}
    for opened in logs:
        end_offset = opened.log.compacted_offset = opened.log.log_end_offset
        if end_offset > 0:
            gaps[opened.topic_partition] = end_offset
            logger.info("%s is new here: gaps up to offset %d are accepted", opened.log.directory, end_offset)
    checkpoint.write_offset_checkpoint(disk, f"{log_dir}/{checkpoint.GAP_OFFSET_CHECKPOINT}", gaps)
    return gaps


def _open_log(
    disk: Disk, log_dir: str, key: TopicPartition, config: LogConfig, stored: StoredOffsets, now_ms: int
) -> OpenLog | None:
    """Open one log; None if its creation was interrupted."""
    path = f"{log_dir}/{key[0]}-{key[1]}"
    topic_id = _read_topic_id(disk, path, stored.recovery_point(key))
    if topic_id is None:
        return None
    log = Log.open(
        disk,
        path,
        config,
        now_ms=now_ms,
        recovery_point=stored.recovery_point(key),
        log_start_offset=stored.log_start(key),
        compacted_offset=stored.gap_offset(key),
        clean=stored.is_clean,
        flush=False,
    )
    report = log.recovery_report
    if report.scanned_batches:
        logger.info("%s: checked %d batches above the recovery point", path, report.scanned_batches)
    for rebuilt in report.rebuilt:
        logger.warning("%s did not match the batches of its log; rebuilt from them", rebuilt)
    for cut in report.truncations:
        logger.warning("%s: truncated %d bytes at %d: %s", cut.path, cut.lost_bytes, cut.position, cut.reason)
    for removed in report.removed:
        logger.warning("%s: removed, since the segment before it lost its end", removed)
    opened = _opened(log, topic_id, log_dir, stored.high_watermarks.get(key, 0))
    opened.marks = read_marks(disk, path)
    return opened


def _read_topic_id(disk: Disk, path: str, recovery_point: int) -> Uuid | None:
    """The topic id of a partition directory. If its creation was interrupted: None, and it is removed."""
    try:
        return checkpoint.read_partition_metadata(disk, path)
    except FileNotFoundError:
        if recovery_point > 0 or any(file.endswith(".log") for file in disk.list(path)):
            raise CorruptLogError(f"{path}/{checkpoint.PARTITION_METADATA}", 0, "is missing") from None
        disk.remove_tree(path)  # the id is written before the log
        return None


def create_log(
    disk: Disk, log_dir: str, path: str, config: LogConfig, topic_id: Uuid, now_ms: int
) -> OpenLog:
    """Create a partition directory, its topic id first: a log without one counts as damaged. Blocks."""
    disk.make_dirs(path)
    checkpoint.write_partition_metadata(disk, path, topic_id)
    return _opened(Log.open(disk, path, config, now_ms=now_ms), topic_id, log_dir, 0)


def _opened(log: Log, topic_id: Uuid, log_dir: str, high_watermark: int) -> OpenLog:
    high_watermark = min(high_watermark, log.log_end_offset)
    producers = load_producers(log.disk, log, max(high_watermark, log.log_start_offset))
    return OpenLog(log, topic_id, log_dir, producers, high_watermark)
