"""The copy of a partition's log in another log directory, which is going to take its place (KIP-113).

It grows from the current log, in pieces, until it holds everything that the current log holds. Then its
directory, ``<topic>-<partition>.<32 hex digits>-future``, gets the partition's name: that is the one step of
a move that counts, and before it the copy means nothing. A start that finds a copy deletes it, and begins the
move again. Decides what is copied; :mod:`pykraft.broker.replicas.placement.log_moves` decides when.
"""

from __future__ import annotations

from typing import Final

from pykraft.broker.logs.log_loading import FUTURE_SUFFIX, OpenLog
from pykraft.broker.logs.producers.snapshots import Run, SnapshotWriter
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import with_markers
from pykraft.kafka_protocol.records import crc_is_valid, iter_headers
from pykraft.log_store.checkpoint import write_partition_metadata
from pykraft.log_store.compaction.gaps import fill_gaps
from pykraft.log_store.compaction.transactions import TransactionScan
from pykraft.log_store.interface import CorruptLogError, LogSlice
from pykraft.log_store.log.log import Log
from pykraft.runtime.disk import Disk

MAX_NAME_BYTES: Final = 255


def future_name(topic: str, index: int, unique: str) -> str:
    """``unique``: 32 hex digits."""
    return f"{topic}-{index}.{unique}{FUTURE_SUFFIX}"


class FutureLog:
    """``is_announced``: the controller is told that the replica is in ``log_dir``. ``is_marked``: the log is
    marked durably as one whose place the copy may have taken (:mod:`.move_marks`). ``unique``: 32 hex digits
    in the copy's name.
    """

    def __init__(self, log: Log, log_dir: str, source: OpenLog, unique: str) -> None:
        self.log = log
        self.log_dir = log_dir
        self.source = source
        self.unique = unique
        self.is_announced = self.is_marked = False
        self._cut: int | None = None
        #: The log start of the current log that the copy follows: it may be within the copy's next batch.
        self._followed_start = 0
        self._transactions = TransactionScan()
        self._snapshots: SnapshotWriter | None = None

    @classmethod
    def create(cls, disk: Disk, log_dir: str, source: OpenLog, unique: str, now_ms: int) -> FutureLog:
        """Create an empty one. Blocks."""
        topic, index = source.topic_partition
        path = f"{log_dir}/{future_name(topic, index, unique)}"
        disk.make_dirs(path)
        write_partition_metadata(disk, path, source.topic_id)
        return cls(Log.open(disk, path, source.log.config, now_ms=now_ms), log_dir, source, unique)

    @property
    def topic_id(self) -> Uuid:
        return self.source.topic_id

    @property
    def lag(self) -> int:
        """How many offsets it is behind the current log."""
        return max(0, self.source.log.log_end_offset - self.log.log_end_offset)

    def note_truncation(self, end_offset: int) -> None:
        """The current log is truncated: the copy must follow before it grows again."""
        self._cut = end_offset if self._cut is None else min(self._cut, end_offset)

    @property
    def must_follow(self) -> bool:
        """Whether :meth:`follow` comes before the next piece."""
        source = self.source.log
        is_new_start = self._followed_start != source.log_start_offset
        return self._cut is not None or (is_new_start and self.log.log_end_offset < source.log_start_offset)

    def take_step(self) -> tuple[int | None, int]:
        """Return :meth:`follow`'s next step: where to truncate the copy, and its least first offset."""
        first_offset = self._first_offset()
        cut, self._cut = self._cut, None
        self._followed_start = self.source.log.log_start_offset
        return cut, first_offset

    def _first_offset(self) -> int:
        """Where the current log begins: with the batch that holds its log start."""
        source = self.source.log
        piece = source.read(source.log_start_offset, 0)
        return source.log_start_offset if piece is None else min(piece.base_offset, source.log_start_offset)

    def follow(self, step: tuple[int | None, int]) -> None:
        """Truncate the copy, and begin again where it ends before the current log begins. Blocks."""
        cut, first_offset = step
        if cut is not None and self.log.truncate_to(cut):
            self._transactions = TransactionScan()
            for header, marker in self.log.iter_produced(0):
                self._transactions.note(header, marker)
        if self.log.log_end_offset < first_offset:
            self.log.truncate_fully_and_start_at(first_offset)
            self._transactions = TransactionScan()

    def next_piece(self, max_bytes: int) -> LogSlice | None:
        """Return the next piece of the current log; None if the copy is complete."""
        source = self.source.log
        offset = max(self.log.log_end_offset, source.log_start_offset)
        return source.read(offset, max_bytes) if offset < source.log_end_offset else None

    def append(self, piece: LogSlice, data: bytes, now_ms: int) -> None:
        """Append whole batches of a piece; blocks. CorruptLogError if the current log is damaged there."""
        headers, end = [], 0
        for position, header in iter_headers(data):
            if not crc_is_valid(data, position, header):
                raise CorruptLogError(piece.file.path, piece.position + position, "the checksum is wrong")
            headers.append(header)
            end = position + header.size_bytes
        if headers:
            log, source = self.log, self.source.log
            batches, filled = fill_gaps(
                memoryview(data)[:end],
                headers,
                log.log_end_offset,
                log.latest_epoch,
                source.epoch_cache.entries,
            )
            if filled is not headers and not source.may_have_gap_at(log.log_end_offset):
                reason = (
                    f"a batch is missing between offsets {log.log_end_offset} and {headers[-1].base_offset}"
                )
                raise CorruptLogError(piece.file.path, piece.position, reason)
            log.append(batches, filled, now_ms=now_ms)
            for header, marker in with_markers(batches, filled):
                aborted = self._transactions.note(header, marker)
                if aborted is not None:
                    log.note_aborted(aborted)
            self._transactions.aborted.clear()

    @property
    def lacks_producers(self) -> bool:
        """Whether no durable snapshot tells of the producers whose batches it does not have."""
        durable = 0 if self._snapshots is None else self._snapshots.durable_offset
        return self.log.log_end_offset > 0 and not 0 < durable >= self.log.first_stored_offset

    async def store_producers(self, run: Run) -> bool:
        """Write a snapshot of the producers as of now; False if they are not known as of its end."""
        log, producers = self.log, self.source.producers
        is_level = not self.must_follow and log.log_end_offset == self.source.log.log_end_offset
        if producers.is_behind or not is_level:
            return False
        self._snapshots = SnapshotWriter(log.disk, log, producers, run)
        log.before_truncation = self._snapshots.remove_above
        await self._snapshots.write(log.log_end_offset, producers.items(), producers.complete)
        return True

    def holds_everything(self) -> bool:
        """Whether nothing is lost if the current log is replaced now, by a power loss neither."""
        source = self.source.log
        return (
            not self.must_follow
            and not self.lacks_producers
            and self.log.log_end_offset == source.log_end_offset
            and self.log.recovery_point >= source.recovery_point
        )

    def take_place(self, disk: Disk) -> OpenLog:
        """Give the whole directory the partition's name. Durable once the parent directory is flushed."""
        topic, index = self.source.topic_partition
        target = f"{self.log_dir}/{topic}-{index}"
        source, log = self.source, self.log
        if self._snapshots is not None and not source.producers.complete:
            self._snapshots.forget_some()  # since it was written
        disk.rename(log.directory, target)
        log.use_directory(target)
        log.adopt_log_start(source.log)
        log.adopt_epochs(source.log.epoch_cache.entries)
        return OpenLog(log, source.topic_id, self.log_dir, source.producers, source.high_watermark)
