"""When a node writes its next snapshot: by bytes of log after the last one, and by time (KIP-630).

Each node decides for itself, whichever snapshots the other nodes have.
"""

from __future__ import annotations

from pykraft.configuration.settings import Settings, setting
from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotConfig(Settings):
    """The limits.

    ``max_bytes``: the size of the committed log after the last snapshot. ``max_interval_ms``: the age of the
    last snapshot, or of the process, if anything was committed since; 0 for no such limit.
    """

    max_bytes: int = setting("metadata.log.max.record.bytes.between.snapshots")
    max_interval_ms: int = setting("metadata.log.max.snapshot.interval.ms")


class SnapshotSchedule:
    """Counts since the last snapshot. Times are monotonic."""

    def __init__(self, config: SnapshotConfig, now_ms: int) -> None:
        self._config = config
        self._since_ms = now_ms
        self._bytes = 0

    def handle_commit(self, size_bytes: int) -> None:
        """``size_bytes`` more of the log are committed."""
        self._bytes += size_bytes

    def handle_snapshot(self, now_ms: int) -> None:
        """A snapshot was loaded or started at ``now_ms``."""
        self._since_ms = now_ms
        self._bytes = 0

    @property
    def committed_bytes(self) -> int:
        """The size of the committed log after the last snapshot."""
        return self._bytes

    def wait_ms(self, now_ms: int) -> int | None:
        """The time until the next snapshot if nothing more is committed: 0 for now, None for never."""
        if self._bytes >= self._config.max_bytes:
            return 0
        if self._bytes == 0 or self._config.max_interval_ms == 0:
            return None
        return max(0, self._since_ms + self._config.max_interval_ms - now_ms)
