"""One flush of a log, as a value that a thread can carry out while the log keeps growing.

``Log.prepare_flush`` takes the snapshot, :meth:`FlushJob.run` blocks, ``Log.complete_flush`` publishes the
new recovery point. A job must never touch the log itself. If ``run`` raises, the log must not be used again:
the data of the failed flush may be lost even if a second one succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.epoch_cache import EpochEntry, LeaderEpochCache, encode_entries
from pykraft.log_store.segment.segment import Segment
from pykraft.runtime.disk import Disk, DiskFile


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Everything below ``end_offset``, with its directory entries."""

    disk: Disk
    files: tuple[tuple[Segment, DiskFile | str], ...]
    directory: str
    flush_directory: bool
    epoch_path: str | None
    epochs: tuple[EpochEntry, ...]
    end_offset: int
    # Tokens for complete_flush
    sealed: tuple[Segment, ...]
    aborted: tuple[tuple[Segment, int], ...]
    truncations: int
    directory_changes: int

    def run(self) -> None:
        """Blocks until all is on the medium. :class:`OSError` is final for the log."""
        try:
            if self.epoch_path is not None:
                self.disk.write_atomic(self.epoch_path, encode_entries(self.epochs))
            for segment, file in self.files:
                self._flush(segment, file)
            if self.flush_directory:
                self.disk.flush_dir(self.directory)
        except FileNotFoundError:
            if self.disk.is_dir(self.directory):
                raise
            # the log was deleted meanwhile: nothing is left to save

    def _flush(self, segment: Segment, file: DiskFile | str) -> None:
        if not isinstance(file, str):
            file.flush()
            return
        try:
            opened = self.disk.open(file, create=False)
        except FileNotFoundError:
            if segment.is_removed or file != segment.path:  # an index can be rebuilt
                return
            raise
        try:
            opened.flush()
        finally:
            opened.close()


def snapshot(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    epochs: LeaderEpochCache,
    *,
    end_offset: int,
    truncations: int,
    directory_changes: int,
    directory_flushed: int,
) -> FlushJob:
    """The flush that makes everything of a log below ``end_offset`` durable.

    The segments not yet durable are always the last ones. Whether one is sealed is asked once: it may be
    sealed at any moment, and then its index files are left to the next flush.
    """
    entries = epochs.entries
    unflushed: list[tuple[Segment, bool]] = []
    for segment in reversed(segments):
        if segment.is_durable:
            break
        unflushed.append((segment, segment.is_sealed))
    unflushed.reverse()
    return FlushJob(
        disk=disk,
        files=tuple(
            (segment, file) for segment, sealed in unflushed for file in segment.files_to_flush(sealed=sealed)
        ),
        directory=directory,
        flush_directory=directory_changes != directory_flushed,
        epoch_path=epochs.path if entries is not epochs.persisted else None,
        epochs=entries,
        end_offset=end_offset,
        sealed=tuple(segment for segment, sealed in unflushed if sealed),
        aborted=tuple(
            (segment, segment.aborted.known_count)
            for segment, _ in unflushed
            if segment.aborted.storage.is_unflushed
        ),
        truncations=truncations,
        directory_changes=directory_changes,
    )
