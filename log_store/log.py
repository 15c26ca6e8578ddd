"""The log of one partition: segments that only grow at the end, found by offset.

Decides when to roll, where a read starts and ends, what a flush covers, and what truncation and retention
remove. Offsets and leader epochs come assigned with the batches; the log never opens a record except to
answer a look-up by time, and never waits: only ``flush`` (or the job it is made of) blocks.

Not thread-safe, with one exception: ``flush`` and a :class:`FlushJob` may run in a thread beside appends.
Every :class:`OSError` that comes out of a log is final for it: stop using it. Errors that concern this log
only (``DAMAGE_ERRORS``) cost this replica; any other error of the disk halts the node.

It is long because appending, reading, flushing, truncation and retention share one list of segments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.records import HEADER_BYTES, BatchHeader
from pykraft.log_store import timestamps
from pykraft.log_store.compaction.candidates import Cleanable, find_cleanable
from pykraft.log_store.compaction.cleaning import CleaningRound, Replacement, Source
from pykraft.log_store.compaction.offset_map import OffsetMap
from pykraft.log_store.compaction.record_filter import ActiveProducers
from pykraft.log_store.compaction.segment_files import (
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    rename_files,
)
from pykraft.log_store.epoch_cache import LEADER_EPOCH_CHECKPOINT, Epochs
from pykraft.log_store.flush import FlushJob, snapshot
from pykraft.log_store.index_build import IndexBuild, IndexCheck, repairing_indexes
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import (
    CorruptLogError,
    EpochEnd,
    LogConfig,
    LogSlice,
    RecoveryReport,
    TimestampOffset,
    Truncation,
)
from pykraft.log_store.opening import LogParts, create_segment, open_parts
from pykraft.log_store.reader import Extent, read_slice, segment_index, walk
from pykraft.log_store.retention import deletable_segments
from pykraft.log_store.scan import SCAN_READ_AHEAD_BYTES, read_stored_marker
from pykraft.log_store.scrub import Scrub
from pykraft.log_store.segment import DELETED_SUFFIX, MAX_RELATIVE_OFFSET, BadIndexError, Segment
from pykraft.log_store.timestamps import LatestLookup, TimeLookup
from pykraft.log_store.unflushed import Unflushed
from pykraft.runtime.disk import Buffer, Disk

__all__ = [
    "DELETED_DIRECTORY_SUFFIX",
    "CorruptLogError",
    "EpochEnd",
    "FlushJob",
    "Log",
    "LogConfig",
    "LogSlice",
    "RecoveryReport",
    "TimestampOffset",
    "Truncation",
]

DELETED_DIRECTORY_SUFFIX = "-delete"
"""A partition directory with this suffix is being deleted: remove it at the start."""
_MAX_NAME_BYTES = 255


def renamed_directory(directory: str, suffix: str) -> str:
    """The path of a partition directory with another suffix; a topic name too long for it is shortened."""
    parent, _, name = directory.rpartition("/")
    topic, dash, index = name.rpartition("-")
    ending = f"{dash}{index}{suffix}"
    return f"{parent}/{topic[: _MAX_NAME_BYTES - len(ending)]}{ending}"


def rename_directory(disk: Disk, directory: str, target: str) -> None:
    """Rename a partition directory within its log directory, durably."""
    disk.rename(directory, target)
    disk.flush_dir(directory.rpartition("/")[0] or ".")


class Log:
    """See the module. Attributes are read-only, except ``config``."""

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

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        compacted_offset: int = 0,
        clean: bool = False,
        on_batch: Callable[[BatchHeader], None] | None = None,
        flush: bool = True,
    ) -> Log:
        """Open the log in ``directory``, creating it if missing.

        ``recovery_point``, ``log_start_offset`` (None: unknown) and ``compacted_offset`` are what its owner
        stored: how far it was flushed, from where on it is complete, and how far compaction left gaps.
        After an unclean stop everything from the recovery point on is checked (see ``recovery``), each good
        header passing through ``on_batch``; after a clean one nothing is, and ``on_batch`` is not called: use
        :meth:`iter_headers`. If not ``flush``, the caller calls :meth:`flush_recovered` before anything else.
        :class:`CorruptLogError` names file and position of damage, missing segments and
        a missing end of what was flushed included.
        """
        parts = open_parts(
            disk,
            directory,
            config,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            compacted_offset=compacted_offset,
            clean=clean,
            on_batch=on_batch,
            flush=flush,
        )
        log = cls(disk, directory, config, parts)
        if log.log_end_offset < log.log_start_offset:
            # the records between were deleted on purpose, and the rest is lost: begin where the log should
            log.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
        return log

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
        """How often stored bytes were truncated or replaced; a place in a file that was chosen before may
        hold something else since.
        """
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

    # -- append ----------------------------------------------------------------------------------------

    def append(self, data: Buffer, headers: Sequence[BatchHeader], *, now_ms: int) -> None:
        """Write whole batches, offsets and epochs assigned, at or above the log end: one write.

        ``data`` is exactly the batches of ``headers``; it is not kept. Not durable until flushed.
        """
        first, last = headers[0], headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        assert first.base_offset >= self.log_end_offset and not self._is_closed, (
            f"{self.name}: append at {first.base_offset}, log end is {self.log_end_offset}"
        )
        segment = self._active
        if segment.size_bytes + len(data) > self._config.most_segment_bytes or segment.must_roll(
            self._config, headers, last_offset, now_ms
        ):
            segment = self._roll_for(first.base_offset, last_offset, now_ms)
        segment.append(data, headers)
        if last.partition_leader_epoch != self._latest_epoch:
            for header in headers:
                self.epoch_cache.assign(header.partition_leader_epoch, header.base_offset)
            self._latest_epoch = self.epoch_cache.latest_epoch
        start = self.log_end_offset
        # Last, so that a flush beside this never promises bytes that are not written.
        self.log_end_offset = last_offset + 1
        if (
            self._unflushed.has_limits
            and self.on_unflushed is not None
            and self._unflushed.appended(start, self.log_end_offset, self.recovery_point)
        ):
            self.on_unflushed()

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note a leader epoch before its first batch (a leader does so when it is elected)."""
        self.epoch_cache.assign(epoch, start_offset)
        self._latest_epoch = self.epoch_cache.latest_epoch

    def adopt_epochs(self, entries: Epochs) -> None:
        """Take the leader epochs of a log with the same batches, those without a batch included."""
        self.epoch_cache.entries = entries
        self._latest_epoch = self.epoch_cache.latest_epoch

    def _roll_for(self, first_offset: int, last_offset: int, now_ms: int) -> Segment:
        """A segment for these offsets, named by the log end, so that a gap between segments reveals a loss.

        Only where relative offsets would not reach (a gap of 2**31) is it named by the first batch.
        """
        base_offset = self.log_end_offset
        if last_offset - base_offset > MAX_RELATIVE_OFFSET:
            base_offset = first_offset
        if self._active.size_bytes or self._active.base_offset != base_offset:
            self._roll(base_offset, now_ms)
        return self._active

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the newest is empty."""
        if self._active.size_bytes:
            self._roll(self.log_end_offset, now_ms)

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

    def _use_segments(self, segments: tuple[Segment, ...]) -> None:
        # The tuple is swapped whole: a flush in a thread sees the old or the new one.
        self._segments: tuple[Segment, ...] = segments
        self._active = segments[-1]
        self._base_offsets = [segment.base_offset for segment in segments]

    # -- read ------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int | None = None, at_least_one: bool = True
    ) -> LogSlice | None:
        """The stored bytes from the batch that holds ``offset`` on, within one segment.

        ``end_offset`` (exclusive, default the log end) bounds the batches. The slice may cut its last batch
        at ``max_bytes``; with ``at_least_one`` the first is whole however large. None when nothing is there
        to read; OFFSET_OUT_OF_RANGE outside of log start and log end. :class:`BadIndexError` if
        ``on_bad_index`` is set and the read has to be repeated when it has had the index built again.
        """
        log_end = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is outside of [{self.log_start_offset}, {log_end}]",
            )
        bound = log_end if end_offset is None or end_offset > log_end else end_offset
        try:
            piece = self._read_slice(offset, bound, max_bytes, at_least_one)
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                raise
            piece = repairing_indexes(partial(self._read_slice, offset, bound, max_bytes, at_least_one))
        if piece is not None and piece.base_offset > offset and not self.may_have_gap_at(offset):
            reason = f"offset {offset} is missing, the next batch has offset {piece.base_offset}"
            raise CorruptLogError(piece.file.path, piece.position, reason)
        return piece

    def _read_slice(self, offset: int, bound: int, max_bytes: int, at_least_one: bool) -> LogSlice | None:
        return read_slice(
            self._segments, self._base_offsets, self.log_end_offset, offset, bound, max_bytes, at_least_one
        )

    def may_have_gap_at(self, offset: int) -> bool:
        """Whether compaction may have removed the record at an offset, here or where this log was copied
        from.
        """
        return offset < self.compacted_offset or "compact" in self._config.cleanup_policy

    @property
    def first_stored_offset(self) -> int:
        """Where the batches begin that are stored without gaps, those below the log start too."""
        return max(self._base_offsets[0], self._whole_from)

    @property
    def first_retained_offset(self) -> int:
        """Where the segment of the log start begins: retention deletes those before it."""
        return self._base_offsets[segment_index(self._base_offsets, self.log_start_offset)]

    def offset_before(self, offset: int, size_bytes: int) -> int:
        """An offset at least so many bytes before another one, or :attr:`first_stored_offset`."""
        index = segment_index(self._base_offsets, offset)
        find = self._segments[index].offset_before
        found, left_bytes = repairing_indexes(partial(find, offset, size_bytes))
        first = self.first_stored_offset
        while left_bytes > 0 and index > 0 and found > first:
            index -= 1
            find = self._segments[index].offset_before
            found, left_bytes = repairing_indexes(partial(find, found, left_bytes))
        return max(first, found)

    def prepare_index_build(self, segment: Segment) -> IndexBuild | None:
        """A job that builds the indexes of a segment again; None if the segment is not part of the log."""
        if segment not in self._segments:
            return None
        earlier = self._segments[: self._segments.index(segment)]
        return IndexBuild(segment, self._truncations, earlier)

    def complete_index_build(self, build: IndexBuild) -> bool:
        """Use what a job has built; False if the segment has changed meanwhile: prepare another one."""
        if not self.is_as_prepared(build):
            return False
        build.adopt()
        return True

    def is_as_prepared(self, build: IndexBuild) -> bool:
        """Whether the segment of a build was neither cut, closed nor deleted meanwhile."""
        segment = build.segment
        return (
            build.truncations == self._truncations
            and build.was_sealed == segment.is_sealed
            and segment in self._segments
        )

    def scrub_segment(self, base_offset: int) -> Scrub | None:
        """The check of one segment as it is now; None if there no longer is one at that offset."""
        if base_offset not in self._base_offsets:
            return None
        index = self._base_offsets.index(base_offset)
        segment, ends = self._segments[index], [*self._base_offsets[1:], self.log_end_offset]
        has_gaps = self.may_have_gap_at(base_offset)
        check = None
        if segment.is_sealed:
            check = partial(
                IndexCheck, self._disk, self.directory, base_offset, self._config.index_interval_bytes
            )
        return Scrub(
            self._disk,
            segment.path,
            base_offset,
            segment.size_bytes,
            ends[index],
            self.epoch_cache.entries,
            has_gaps=has_gaps,
            begin_index_check=check,
        )

    def doubt_indexes(self, base_offset: int, *, transactions: bool = False) -> None:
        """The scrub found that the indexes of a segment do not match its batches: have them built again;
        ``transactions``: its transaction index, too.
        """
        for segment in self._segments:
            if segment.base_offset == base_offset and self.on_bad_index is not None:
                segment.aborted.is_bad |= transactions
                self.on_bad_index(BadIndexError(segment, "the indexes do not match the batches"))

    def has_file(self, path: str) -> bool:
        """Whether a segment's file is a part of the log."""
        return any(segment.path == path for segment in self._segments)

    def is_damage(self, error: CorruptLogError | OSError, rewrites: int) -> bool:
        """Whether the file of an error is a part of the log, and has been since :attr:`rewrite_count` was
        that."""
        path = error.path if isinstance(error, CorruptLogError) else str(error.filename)
        return self.rewrite_count == rewrites and self.has_file(path)

    def iter_headers(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        read_ahead_bytes: int = SCAN_READ_AHEAD_BYTES,
    ) -> Iterator[BatchHeader]:
        """Headers of the batches that hold or follow ``start_offset``, without their records.

        Cheap enough to rebuild producer state from: no record is read unless it shares a block.
        """
        for _, _, header in self._walk(start_offset, end_offset, read_ahead_bytes):
            yield header

    def iter_stored_headers(self, start_offset: int, end_offset: int | None = None) -> Iterator[BatchHeader]:
        """As :meth:`iter_headers`, also of the deleted records from :attr:`first_stored_offset` on: their
        producers go on."""
        first = self.first_stored_offset
        for _, _, header in self._walk(start_offset, end_offset, SCAN_READ_AHEAD_BYTES, first):
            yield header

    def iter_produced(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, Marker | None]]:
        """As :meth:`iter_stored_headers`, with the markers of transactions: all that the state of producers
        is derived from."""
        first = self.first_stored_offset
        for segment, position, header in self._walk(start_offset, end_offset, SCAN_READ_AHEAD_BYTES, first):
            marker = None
            if header.is_control:
                marker = read_stored_marker(segment.file, position, header)
            yield header, marker

    def iter_batches(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        """(header, bytes) of each whole batch that holds or follows ``start_offset``."""
        for segment, position, header in self._walk(start_offset, end_offset, HEADER_BYTES):
            yield header, segment.file.pread(position, header.size_bytes)

    def _walk(
        self,
        start_offset: int,
        end_offset: int | None,
        read_ahead_bytes: int,
        first_offset: int | None = None,
    ) -> Iterator[tuple[Segment, int, BatchHeader]]:
        bound = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        start_offset = max(start_offset, self.log_start_offset if first_offset is None else first_offset)
        extent = Extent(lambda: self.log_end_offset, self.may_have_gap_at)
        return walk(self._segments, self._base_offsets, start_offset, bound, read_ahead_bytes, extent)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest known epoch not above ``epoch`` and its exclusive end; -1/-1 if unknown (KIP-320)."""
        return self.epoch_cache.end_offset_for(epoch, self.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch, -1 if none."""
        return self._latest_epoch

    def prepare_lookup(self, timestamp_ms: int | None) -> TimeLookup | LatestLookup:
        """A job that finds the first record not earlier than a time, or (None) the first with the largest.

        :class:`BadIndexError` if ``on_bad_index`` is set and the look-up has to be repeated when it has had
        the index built again.
        """

        def prepare() -> TimeLookup | LatestLookup:
            args = self.log_start_offset, self.rewrite_count
            if timestamp_ms is None:
                return timestamps.prepare_latest(self._disk, self._segments, *args)
            return timestamps.prepare_lookup(self._disk, self._segments, timestamp_ms, *args)

        try:
            return prepare()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                raise
            return repairing_indexes(prepare)

    def lookup_timestamp(self, timestamp_ms: int, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record not earlier than ``timestamp_ms``; None if there is none below ``end_offset``.

        Blocks. A broker runs the job of :meth:`prepare_lookup` in a worker.
        """
        found = self.prepare_lookup(timestamp_ms).run()
        return found if found is None or end_offset is None or found.offset < end_offset else None

    def max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp. Blocks."""
        return self.prepare_lookup(None).run()

    # -- aborted transactions --------------------------------------------------------------------------

    def iter_aborted(self) -> Iterator[AbortedTransaction]:
        """All that the transaction indexes hold, in the order of the markers."""
        for segment in self._segments:
            yield from segment.aborted.entries()

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """A marker was appended that aborts a transaction with data."""
        index = self._segment_of(transaction.last_offset).aborted
        if not index.storage.exists():
            self._directory_changes += 1
        index.append(transaction)

    def restore_aborted(self, transactions: Sequence[AbortedTransaction], first_offset: int) -> None:
        """Take all aborted transactions whose markers are at or above ``first_offset``, in their order.

        Nothing from :attr:`unindexed_from` on may be left out. Entries that are right stay as they are: they
        may be durable, and the next start relies on those below the recovery point, or below the one that a
        flush under way will bring.
        """
        self.unindexed_from = None
        wanted: dict[Segment, list[AbortedTransaction]] = {}
        for transaction in transactions:
            wanted.setdefault(self._segment_of(transaction.last_offset), []).append(transaction)
        for segment in self._segments[segment_index(self._base_offsets, first_offset) :]:
            missing = segment.aborted.keep_common(wanted.get(segment, []), first_offset)
            for transaction in missing:
                self.note_aborted(transaction)
            if missing and missing[0].last_offset < max(self.recovery_point, self._flush_end_offset):
                segment.aborted.storage.flush()
                self._disk.flush_dir(self.directory)

    def aborted_in(self, piece: LogSlice, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with data in a slice that was read from ``offset`` on and bounded by
        ``end_offset``; others may be among them.

        :class:`BadIndexError` if ``on_bad_index`` is set, as :meth:`read`.
        """
        find = partial(self._find_aborted, piece, offset, end_offset)
        try:
            return find()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                raise
            return repairing_indexes(find, self._segments)

    def _find_aborted(self, piece: LogSlice, offset: int, end_offset: int) -> list[AbortedTransaction]:
        index = segment_index(self._base_offsets, piece.base_offset)
        indexed = [segment for segment in self._segments[index:] if segment.aborted.may_have_entries]
        if not indexed:
            return []
        bound = end_offset
        if index + 1 < len(self._segments):
            bound = min(bound, self._base_offsets[index + 1])
        after = self._segments[index].offset_after(piece.position + piece.size_bytes)
        if after is not None:
            bound = min(bound, after)
        found: list[AbortedTransaction] = []
        for segment in indexed:
            aborted, is_complete = segment.collect_aborted(offset, bound)
            found += aborted
            if is_complete:
                break
        return found

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[segment_index(self._base_offsets, offset)]

    # -- flush -----------------------------------------------------------------------------------------

    @property
    def acknowledged_end_offset(self) -> int:
        """Up to where appends may be acknowledged: the log end, unless ``flush.messages`` of them wait for a
        flush.
        """
        return self._unflushed.acknowledged_end(self.log_end_offset)

    @property
    def is_flush_due(self) -> bool:
        """Whether appends wait for a flush to be acknowledged."""
        return self._unflushed.is_due

    def prepare_flush(self) -> FlushJob:
        """A snapshot of what is not yet durable. At most one job per log may be under way."""
        end_offset = self.log_end_offset  # first: everything read after it includes what it covers
        self._flush_end_offset = end_offset
        self._unflushed.flush_begins()
        return snapshot(
            self._disk,
            self.directory,
            self._segments,
            self.epoch_cache,
            end_offset=end_offset,
            truncations=self._truncations,
            directory_changes=self._directory_changes,
            directory_flushed=self._directory_flushed,
        )

    def flush_recovered(self) -> None:
        """Make durable what recovery has truncated. Blocks; may run in a thread while the log is not used."""
        if self._is_cut_unflushed:
            self._active.file.flush()
            self._is_cut_unflushed = False

    def complete_flush(self, job: FlushJob) -> int:
        """Publish a job that ran; the recovery point stays if the log was truncated meanwhile."""
        self.epoch_cache.persisted = job.epochs
        self._directory_flushed = job.directory_changes
        if job.truncations == self._truncations:
            for segment in job.sealed:
                segment.is_durable = True
            for segment, count in job.aborted:
                if segment.aborted.known_count == count:
                    segment.aborted.storage.is_unflushed = False
            self.recovery_point = max(self.recovery_point, job.end_offset)
            self._unflushed.flushed(self.recovery_point)
            self._is_cut_unflushed = False
        return self.recovery_point

    def flush(self, up_to: int | None = None) -> None:
        """Block until everything appended before this call is durable (nothing to do below ``up_to``)."""
        if up_to is not None and up_to <= self.recovery_point:
            return
        job = self.prepare_flush()
        job.run()
        self.complete_flush(job)

    # -- truncate --------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at or above ``offset``; returns whether there was anything. Not durable until
        flushed.

        An offset inside a batch drops the whole batch. The recovery point falls with the log end.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        index = segment_index(self._base_offsets, offset)
        found = repairing_indexes(partial(self._segments[index].find, offset))
        if found is not None:
            offset = min(offset, found[1])
        self._notify_truncated(offset)
        self._remove_segments(self._segments[index + 1 :])
        self._use_segments(self._segments[: index + 1])
        segment = self._active
        position, _ = segment.load(offset)
        segment.truncate(position)
        self._is_cut_unflushed = True
        self._truncated_to(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Forget everything; the log starts and ends at ``offset``."""
        self._notify_truncated(0)
        self._remove_segments(self._segments)
        self._use_segments((create_segment(self._disk, self.directory, offset, self._config, now_ms),))
        self._disk.flush_dir(self.directory)
        self.epoch_cache.clear()
        self.log_start_offset = self.stored_log_start_offset = self._whole_from = offset
        self.unindexed_from = None
        self._truncated_to(offset)
        self.recovery_point = offset

    def _notify_truncated(self, offset: int) -> None:
        if self.before_truncation is not None:
            self.before_truncation(offset)

    def _truncated_to(self, offset: int) -> None:
        self._truncations += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.stored_log_start_offset = min(self.stored_log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.cleaned_end_offset = min(self.cleaned_end_offset, offset)
        self._unflushed.truncated(offset)
        self.epoch_cache.truncate_from_end(offset)
        self._latest_epoch = self.epoch_cache.latest_epoch

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Newest first, durably: a removed segment that reappeared could seem to continue what is appended
        now.
        """
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

    # -- retention -------------------------------------------------------------------------------------

    def delete_old_segments(self, now_ms: int, *, limit_offset: int | None = None) -> int:
        """Retire and delete at once, for logs whose start is not stored; the number of segments deleted."""
        if not self.retire_old_segments(now_ms, limit_offset=limit_offset):
            return 0
        return self.delete_retired_segments(self.log_start_offset)

    def retire_old_segments(self, now_ms: int, *, limit_offset: int | None = None) -> bool:
        """Move the log start past the segments that time, size and log start retire; returns whether there
        are segments to delete then. Store the log start before :meth:`delete_retired_segments`: a start that
        misses segments which the stored log start still needs takes that for damage.

        Nothing that reaches above ``limit_offset`` (the high watermark; default the log end) is touched.
        """
        ends = [*self._base_offsets[1:], self.log_end_offset]
        count_deletable = partial(
            deletable_segments,
            self._segments,
            ends,
            self._config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            limit_offset=self.log_end_offset if limit_offset is None else limit_offset,
        )
        try:
            count = count_deletable()
        except BadIndexError as error:
            if self.on_bad_index is not None:
                self.on_bad_index(error)
                return False  # the next check knows the age of the segment
            count = repairing_indexes(count_deletable)
        if count == 0:
            return False
        if count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        self.advance_log_start(self._base_offsets[count])
        return True

    def delete_retired_segments(self, log_start_offset: int) -> int:
        """Delete the segments that lie wholly below ``log_start_offset``, the stored one; returns how many.

        Readers are not affected: slices keep their file.
        """
        count = segment_index(self._base_offsets, min(log_start_offset, self.log_start_offset))
        old, kept = self._segments[:count], self._segments[count:]
        if old:
            self._use_segments(kept)
            for segment in old:
                self._delete(segment)
            self._directory_changes += 1
        return count

    def advance_log_start(self, offset: int) -> None:
        """Hide everything below ``offset``; the next retention check deletes whole segments."""
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot start {self.name} at {offset}, beyond its end {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epoch_cache.truncate_from_start(offset)

    def adopt_log_start(self, other: Log) -> None:
        """Take the log start of a log with the same batches, and how far that one is durable."""
        self.advance_log_start(other.log_start_offset)
        self.stored_log_start_offset = other.stored_log_start_offset

    def log_start_stored(self, offset: int) -> None:
        """The owner has stored this log start durably, and nothing was truncated meanwhile."""
        self.stored_log_start_offset = max(self.stored_log_start_offset, min(offset, self.log_start_offset))

    # -- compaction ------------------------------------------------------------------------------------

    @property
    def has_cleanable_segments(self) -> bool:
        """Whether this log is to be compacted and has more than its active segment. Looks at no file."""
        return len(self._segments) > 1 and self._config.is_compacted

    def find_cleanable(
        self, cleaned_offset: int | None, *, limit_offset: int, now_ms: int
    ) -> Cleanable | None:
        """What may be compacted. ``cleaned_offset``: what the last round reached (None: there was none).

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

    # -- end -------------------------------------------------------------------------------------------

    def use_directory(self, directory: str) -> None:
        """The directory has been renamed: open its files under their new paths. Readers keep their files."""
        self.directory, self.name = directory, directory.rpartition("/")[2]
        self.epoch_cache.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        for segment in self._segments:
            segment.use_directory(directory)

    def close(self) -> None:
        """Make everything durable, index entries included, and release the files. Blocks."""
        if self._is_closed:
            return
        self._active.release_room()
        if self._active.flush_indexes() or self._is_unflushed():
            self._directory_changes += 1  # the index files may be new
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Release the files without writing anything (after a fault, or in place of a kill)."""
        self._is_closed = True
        for segment in self._segments:
            segment.close()

    def delete(self) -> None:
        """Remove the log with its directory; a crash in between leaves a directory named for deletion.

        Readers are not affected: slices keep their file.
        """
        self._is_closed = True
        # The owner holds this log: with these, its files would stay open until some garbage collection.
        self.before_truncation = self.on_roll = self.on_bad_index = None
        self.on_deleted = self.on_unflushed = None
        deleted_directory = renamed_directory(self.directory, f".{'0' * 32}{DELETED_DIRECTORY_SUFFIX}")
        self._disk.remove_tree(deleted_directory)
        rename_directory(self._disk, self.directory, deleted_directory)
        self._disk.remove_tree(deleted_directory)

    def _is_unflushed(self) -> bool:
        return (
            self.recovery_point < self.log_end_offset
            or self._is_cut_unflushed
            or self.epoch_cache.is_dirty
            or self._directory_changes != self._directory_flushed
        )
