"""A log's side of compaction: what it may read, and how its result takes the place of segments."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial

from pykraft.log_store.compaction.candidates import Cleanable, find_cleanable
from pykraft.log_store.compaction.cleaning import CleaningRound, Replacement, Source
from pykraft.log_store.compaction.offset_map import OffsetMap
from pykraft.log_store.compaction.record_filter import ActiveProducers
from pykraft.log_store.compaction.segment_files import (
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    rename_files,
)
from pykraft.log_store.index_build import repairing_indexes
from pykraft.log_store.log.cutting import Cutting
from pykraft.log_store.segment.files import DELETED_SUFFIX
from pykraft.log_store.segment.reading import BadIndexError


class Compacting(Cutting):
    """A round is begun here, runs by itself, and replaces segments here unless the log was truncated."""

    @property
    def has_cleanable_segments(self) -> bool:
        """Whether this log is to be compacted and has more than its active segment. Looks at no file."""
        return len(self._segments) > 1 and self._config.is_compacted

    def find_cleanable(
        self, cleaned_offset: int | None, *, limit_offset: int, now_ms: int
    ) -> Cleanable | None:
        """Find the segments to compact. ``cleaned_offset``: the last round's end (None: there was none).

        Nothing at or above ``limit_offset`` (the high watermark) is touched, and nothing that is not flushed:
        what supersedes a record must be as durable as its removal. None while the age of a segment is not
        known, since its index is being built again.
        """
        find = partial(
            find_cleanable,
            self._segments,
            self._config,
            cleaned_offset=cleaned_offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            limit_offset=min(limit_offset, self.recovery_point),
            now_ms=now_ms,
        )
        try:
            return find()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                return None
            return repairing_indexes(find)

    def begin_cleaning(
        self, cleanable: Cleanable, *, producers: ActiveProducers, newest: OffsetMap, now_ms: int
    ) -> CleaningRound:
        """A round of compaction; ``newest`` is an empty map. Its steps may run beside appends and reads."""
        count = bisect_left(self._base_offsets, cleanable.end_offset)
        ends = self._base_offsets[1:]
        sources = [
            Source(segment, end, segment.size_bytes)
            for segment, end in zip(self._segments[: min(count, len(ends))], ends, strict=False)
        ]
        return CleaningRound(
            self._disk,
            self.directory,
            self._config,
            sources,
            cleanable,
            epochs=self.epoch_cache.entries,
            producers=producers,
            newest=newest,
            now_ms=now_ms,
            truncations=self._truncations,
        )

    def replace_segments(self, replacement: Replacement) -> bool:
        """Put a compacted segment in place of its sources; False, and nothing done, if the log was truncated
        since the round began, or no longer has all of them.

        Renames only; durable when the directory is flushed. Readers of the sources are not affected: slices
        keep their files, and the files of the sources stay for a while under other names.
        """
        cleaned, sources = replacement.cleaned, replacement.sources
        index = bisect_left(self._base_offsets, cleaned.base_offset)
        end = index + len(sources)
        if self._segments[index:end] != sources or replacement.truncations != self._truncations:
            return False
        rename_files(self._disk, self.directory, cleaned.base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)
        deleted: list[str] = []
        for segment in sources:
            segment.is_removed = True
            deleted += rename_files(self._disk, self.directory, segment.base_offset, "", DELETED_SUFFIX)
            segment.use_suffix(DELETED_SUFFIX)
        rename_files(self._disk, self.directory, cleaned.base_offset, SWAP_SUFFIX, "")
        cleaned.use_suffix("")
        self._use_segments((*self._segments[:index], cleaned, *self._segments[end:]))
        self.cleaned_end_offset = max(self.cleaned_end_offset, replacement.end_offset)
        self._directory_changes += 1
        self._replacements += 1
        if self.on_deleted is not None:
            self.on_deleted(deleted)
        return True
