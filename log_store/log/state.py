"""The state of a log, and its list of segments: each of the other modules of :mod:`.log` works on it.

The tuple of segments is swapped whole, so that a flush in a thread sees the old or the new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykraft.log_store.interface import (
    LogConfig,
)
from pykraft.log_store.opening import LogParts, create_segment
from pykraft.log_store.reader import segment_index
from pykraft.log_store.segment.reading import BadIndexError
from pykraft.log_store.segment.segment import Segment
from pykraft.log_store.unflushed import Unflushed
from pykraft.runtime.disk import Disk


class LogState:
    """Attributes are read-only, except ``config``."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, parts: LogParts) -> None:
        self.directory = directory
        self.name = directory.rpartition("/")[2]
        self.epoch_cache = parts.epochs
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        #: How far the log start is durable: a start after a power loss finds this one or a later one.
        self.stored_log_start_offset = parts.log_start_offset
        self.recovery_point = parts.recovery_point
        self.recovery_report = parts.report
        #: From where on the transaction indexes may lack aborted transactions after an unclean stop
        #: (:meth:`restore_aborted`); None if they lack none.
        self.unindexed_from = parts.report.unindexed_from
        self._disk = disk
        self._config = config
        #: Below it compaction may have left gaps.
        self.compacted_offset = parts.compacted_offset
        self._whole_from = parts.whole_from
        #: Compaction has removed records because of later ones, all of them below it. Truncated to less, the
        #: log would have neither.
        self.cleaned_end_offset = 0
        self._use_segments(parts.segments)
        self._latest_epoch = parts.epochs.latest_epoch
        # Tokens that tell a finished flush what changed meanwhile.
        self._truncations = 0
        self._replacements = 0
        self._is_cut_unflushed = parts.is_cut_unflushed
        self._unflushed = Unflushed(config)
        self._directory_changes = 1
        self._directory_flushed = 1 if parts.is_durable else 0
        self._flush_end_offset = 0  # of the newest flush job
        self._is_closed = False
        #: Called with the new end before anything is truncated, 0 if everything is: what the owner has stored
        #: of this log must not promise more, or the next start would take the cut for damage.
        self.before_truncation: Callable[[int], None] | None = None
        #: Called with its base offset when a new segment has begun, before anything is appended to it.
        self.on_roll: Callable[[int], None] | None = None
        #: Called where a read finds a bad index, to have it built again (:meth:`prepare_index_build`).
        #: Without an owner that does, it is done at once, which blocks.
        self.on_bad_index: Callable[[BadIndexError], None] | None = None
        #: Called with the renamed files of a deleted segment, to remove them when file.delete.delay.ms has
        #: passed. Without an owner that does, files are removed at once.
        self.on_deleted: Callable[[Sequence[str]], None] | None = None
        #: Called when a flush is due (``is_flush_due``), or has to follow within ``flush.ms``. Without an
        #: owner that flushes, those settings have no effect.
        self.on_unflushed: Callable[[], None] | None = None

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._active.index_interval_bytes = config.index_interval_bytes
        self._unflushed.configure(config)
        if (
            self.on_unflushed is not None
            and self.recovery_point < self.log_end_offset
            and self._unflushed.begins_to_wait()
        ):
            self.on_unflushed()

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Taken from the directory's name, ``topic-partition``."""
        topic, _, partition = self.name.rpartition("-")
        return topic, int(partition)

    @property
    def size_bytes(self) -> int:
        """All segments together."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def truncation_count(self) -> int:
        """How often the log was truncated; a range that was chosen before may hold other records since."""
        return self._truncations

    @property
    def rewrite_count(self) -> int:
        """How often stored bytes were cut or replaced: a place chosen before may hold something else."""
        return self._truncations + self._replacements

    @property
    def disk(self) -> Disk:
        return self._disk

    @property
    def active_segment_bytes(self) -> int:
        """The newest segment."""
        return self._active.size_bytes

    def size_bytes_from(self, offset: int) -> int:
        """The segments that would stay if the log began at ``offset``."""
        ends = [*self._base_offsets[1:], self.log_end_offset + 1]
        return sum(s.size_bytes for s, end in zip(self._segments, ends, strict=True) if end > offset)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(self._base_offsets)

    def _use_segments(self, segments: tuple[Segment, ...]) -> None:
        # The tuple is swapped whole: a flush in a thread sees the old or the new one.
        self._segments: tuple[Segment, ...] = segments
        self._active = segments[-1]
        self._base_offsets = [segment.base_offset for segment in segments]

    def _roll(self, base_offset: int, now_ms: int) -> None:
        old = self._active
        kept = self._segments
        if self._is_cut_unflushed:
            # If a power loss undid the truncation, the old tail might meet the new segment seamlessly.
            old.file.flush()
            self._is_cut_unflushed = False
        if old.size_bytes:
            old.seal()
        else:
            old.remove()
            kept = kept[:-1]
        fresh = create_segment(self._disk, self.directory, base_offset, self._config, now_ms)
        self._use_segments((*kept, fresh))
        self._directory_changes += 1
        if self.on_roll is not None:
            self.on_roll(base_offset)

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[segment_index(self._base_offsets, offset)]

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Newest first, durably: a segment that reappeared could seem to continue what is appended now."""
        for segment in reversed(segments):
            self._delete(segment)
        if segments:
            self._disk.flush_dir(self.directory)

    def _delete(self, segment: Segment) -> None:
        """Delete a segment that is no longer part of the log."""
        if self.on_deleted is None:
            segment.remove()
        else:
            self.on_deleted(segment.mark_deleted())
