"""The values that go in and out of a log: its settings, slices, answers and the report of a recovery."""

from __future__ import annotations

from typing import NamedTuple

from pykraft.configuration.settings import Settings, setting
from pykraft.configuration.topic_keys import FOREVER
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.disk import DiskFile, UnreadableError

LOG_APPEND_TIME = "LogAppendTime"
"""One of the values of ``message.timestamp.type``."""
METADATA_LOG_DIRECTORY = "__cluster_metadata-0"
"""The one log directory that is no partition of a broker: the quorum's."""


def _unless_forever(limit: int) -> int | None:
    return None if limit == FOREVER else limit


@dataclass(frozen=True, slots=True)
class LogConfig(Settings):
    """Settings of one log. Sizes in bytes, times in milliseconds; -1 (for flushes None) means no limit."""

    segment_bytes: int = setting("segment.bytes")
    internal_segment_bytes: int | None = setting("internal.segment.bytes")
    segment_ms: int = setting("segment.ms")
    segment_jitter_ms: int = setting("segment.jitter.ms")
    preallocate: bool = setting("preallocate")
    index_interval_bytes: int = setting("index.interval.bytes")
    index_bytes: int = setting("segment.index.bytes")
    retention_bytes: int = setting("retention.bytes")
    retention_ms: int = setting("retention.ms")
    cleanup_policy: frozenset[str] = setting("cleanup.policy", frozenset)
    min_cleanable_dirty_ratio: float = setting("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms")
    max_compaction_lag_ms: int = setting("max.compaction.lag.ms")
    delete_retention_ms: int = setting("delete.retention.ms")
    file_delete_delay_ms: int = setting("file.delete.delay.ms")
    flush_messages: int | None = setting("flush.messages", _unless_forever)
    flush_ms: int | None = setting("flush.ms", _unless_forever)
    max_message_bytes: int = setting("max.message.bytes")
    message_timestamp_type: str = setting("message.timestamp.type")
    message_timestamp_before_max_ms: int = setting("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = setting("message.timestamp.after.max.ms")
    compression_type: str = setting("compression.type")
    gzip_level: int = setting("compression.gzip.level")
    lz4_level: int = setting("compression.lz4.level")
    zstd_level: int = setting("compression.zstd.level")
    min_insync_replicas: int = setting("min.insync.replicas")

    @property
    def most_segment_bytes(self) -> int:
        """The size at which a new segment is started."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is rolled: a compacted one in time for ``max.compaction.lag.ms``."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def compression_level(self) -> int | None:
        """The level of the codec that batches are stored with; None if it has no levels."""
        levels = {"gzip": self.gzip_level, "lz4": self.lz4_level, "zstd": self.zstd_level}
        return levels.get(self.compression_type)


@dataclass(slots=True)  # one is made for every fetch, and frozen ones take three times as long
class LogSlice:
    """Stored bytes to send as they are.

    ``position`` is the start of a batch and ``base_offset`` that batch's base offset, which may lie below
    the offset asked for. The last batch may be cut by ``size_bytes``. Holding the slice keeps the file
    readable even after its segment is deleted.
    """

    file: DiskFile
    position: int
    size_bytes: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Answer to "where does this leader epoch end?" (KIP-101/320); -1 and -1 when unknown."""

    epoch: int
    end_offset: int


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Truncation:
    """A tail that recovery truncated, and why."""

    path: str
    position: int
    lost_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery at start.

    ``removed`` are segments dropped because the one before lost its tail, ``rebuilt`` files whose content did
    not fit the batches. ``unindexed_from``: aborted transactions whose markers are there or above are missing
    in the transaction indexes; None if all are there.
    """

    scanned_batches: int = 0
    truncations: tuple[Truncation, ...] = ()
    removed: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    unindexed_from: int | None = None


class CorruptLogError(Exception):
    """Stored data that was once flushed, or lies in the middle of the log, does not read back as written."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class MissingOffsetError(CorruptLogError):
    """No batch holds an offset that must be there."""


STORAGE_ERRORS = (OSError, CorruptLogError)
"""After any of these errors a log must not be used again."""

DAMAGE_ERRORS = (CorruptLogError, FileNotFoundError, UnreadableError)
"""Those that concern one log only. Any other error of the disk concerns the whole node: data that it failed
to write may be lost, and where it ran out of files or memory the log itself is undamaged.
"""


class CorruptCheckpointError(Exception):
    """A checkpoint or properties file that does not parse."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
