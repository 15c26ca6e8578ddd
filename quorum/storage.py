"""The effects that touch the disk, carried out on the log and the quorum-state file.

The real log must follow the core's outline of it exactly; every method asserts that it does. All of them
return once the effect has been applied; only PersistElectionState, TruncateTo and InstallSnapshot have then
also been made durable. The driver flushes the log.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.record_codec import encode_batch
from pykraft.kafka_protocol.records import iter_headers, read_header
from pykraft.kafka_protocol.value_batches import encode_values
from pykraft.log_store.flush import FlushJob
from pykraft.log_store.interface import MissingOffsetError
from pykraft.log_store.log.log import Log
from pykraft.log_store.reader import read_checked
from pykraft.quorum import control_records
from pykraft.quorum.core.effects import (
    AdvanceLogStart,
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    AppendSnapshotChunk,
    AppendVoters,
    CheckSnapshot,
    EndRecovery,
    InstallSnapshot,
    PersistElectionState,
    ReplyWithRecords,
    ReplyWithSnapshot,
    TruncateTo,
)
from pykraft.quorum.core.log_shape import BEGINNING, LogShape, SnapshotId
from pykraft.quorum.core.messages import FetchResponse, FetchSnapshotResponse
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.flushed_mark import FlushedMark, FlushedMarkFile
from pykraft.quorum.rpc import FetchedRecords
from pykraft.quorum.snapshots import CorruptSnapshotError, SnapshotInfo, SnapshotStore
from pykraft.quorum.state_store import QuorumStateError
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import DiskFile

DiskEffect = (
    AdvanceLogStart
    | AppendFetched
    | AppendLeaderChange
    | AppendProposal
    | AppendSnapshotChunk
    | AppendVoters
    | EndRecovery
    | InstallSnapshot
    | PersistElectionState
    | TruncateTo
)

logger = logging.getLogger(__name__)

SERVED_RECENTLY_MS = 30_000
_MOST_LOSSES = (1 << 31) - 1


class StateStore(Protocol):
    """The store of the election state; ``write`` returns once it is durable."""

    def read(self) -> ElectionState: ...

    def write(self, state: ElectionState) -> None: ...


def encode_proposal(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch with one record per value. ``now_ms`` is the time of day."""
    return encode_values(values, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=now_ms)


class QuorumStorage:
    """``log`` is open and recovered; only the quorum decides what is deleted of it. Snapshots are beside it.

    ``keeps_mark``: note how far the log was flushed. A replica that never votes need not.
    """

    def __init__(self, log: Log, state_store: StateStore, clock: Clock, *, keeps_mark: bool = True) -> None:
        log.config = replace(log.config, cleanup_policy=frozenset())
        self._log = log
        self._start = BEGINNING
        self._served_ms: dict[SnapshotId, int] = {}
        self.checked: dict[SnapshotId, SnapshotInfo] = {}
        self.snapshots = SnapshotStore(log.disk, log.directory)
        self._keeps_mark = keeps_mark
        self.mark = FlushedMarkFile(log.disk, log.directory)
        self.recovery: Recovery | None = None
        self._found = FlushedMark(0)
        self._state_store = state_store
        self._clock = clock

    def read_election(self) -> ElectionState:
        return self._state_store.read()

    @property
    def losses(self) -> int:
        """How often this replica has lost records that it may have acknowledged."""
        return self._found.losses

    def recover(self) -> list[CorruptSnapshotError]:
        """Make log and snapshots consistent after any crash, and make durable what was read back. Blocks.

        A log that does not reach the newest snapshot was overtaken by it: a fetched snapshot got its name and
        the log was not yet emptied, or committed records were not flushed here. It restarts at the snapshot's
        end. :class:`QuorumStateError` if the newest snapshot is damaged, if records between it and the log
        are missing, or if everything that a formatted directory holds is missing. Returns the older snapshots
        that were damaged and have been removed.
        Call :meth:`compare_with_mark` next, and :meth:`write_mark` before anything else.
        """
        log = self._log
        try:
            damaged = self.snapshots.open()
        except CorruptSnapshotError as error:
            raise QuorumStateError(
                f"{error}. Restore it from a copy, or format the directory again"
            ) from error
        latest = self.snapshots.latest()
        if log.log_start_offset > (0 if latest is None else latest.end_offset):
            held = "there is no snapshot" if latest is None else f"the newest snapshot is {latest}"
            raise QuorumStateError(
                f"{log.directory}: the log begins at offset {log.log_start_offset}, and {held}: the records"
                " before are lost"
            )
        if self._keeps_mark:
            if self.mark.read() is not None:
                self._truncate_beyond_mark()
            elif latest is None and log.log_end_offset == 0:
                raise QuorumStateError(
                    f"{log.directory} is empty, and not as formatting leaves it: {self.mark.path} is missing."
                    " This voter has lost its vote and the records it acknowledged. Restore it from a"
                    " copy, or remove it and the meta.properties beside it, format with --ignore-formatted,"
                    " and make it a voter in place of the old one"
                )
        if latest is not None and not self._leads_up_to(latest):
            log.truncate_fully_and_start_at(latest.end_offset, now_ms=self._clock.wall_ms())
        if log.log_start_offset > 0:
            self._start = next(i for i in self.snapshots.ids() if i.end_offset >= log.log_start_offset)
            log.advance_log_start(self._start.end_offset)
        log.flush()
        return damaged

    def _truncate_beyond_mark(self) -> None:
        """Truncate what lies beyond the mark: it was never acknowledged, and a power loss may have damaged
        it.

        The CRC of a batch does not cover its base offset and its epoch. But offsets have no gaps here, epochs
        never fall, the mark holds the epoch of the last record, and none is above that of the vote file.
        """
        log, mark = self._log, self.mark.mark
        assert mark is not None
        # If the mark is newer, the vote file was lost or replaced, and the start is refused.
        newest_epoch = max(self._state_store.read().epoch, mark.epoch)
        # Its leader judges what a recovering replica has fetched since.
        marked = -1 if mark.end_offset is None or mark.is_recovering else mark.end_offset
        end_offset = first_offset = log.log_start_offset
        with contextlib.suppress(MissingOffsetError):  # what follows is cut off as well
            for header in log.iter_headers(first_offset):
                if header.base_offset != end_offset or header.partition_leader_epoch > newest_epoch:
                    break
                if 0 <= marked <= end_offset:
                    break
                end_offset = header.next_offset
        is_here = first_offset < marked <= end_offset
        if is_here and log.epoch_cache.epoch_for_offset(marked - 1) != mark.epoch:
            end_offset = marked - 1
        if log.truncate_to(end_offset):
            logger.warning("%s: cut at offset %d", log.directory, log.log_end_offset)

    def compare_with_mark(self) -> None:
        """Set ``recovery`` if the log ends before what was flushed (:mod:`.core.recovery`). Writes nothing.

        :class:`QuorumStateError` if ``quorum-state`` is older than what was lost: a vote may be lost, too.
        """
        if not self._keeps_mark:
            return
        end_offset = self._log.log_end_offset
        mark = self.mark.mark or FlushedMark(end_offset)
        is_whole = mark.end_offset is not None and mark.end_offset <= end_offset
        if is_whole and not mark.is_recovering:
            self._found = FlushedMark(end_offset, self._epoch_before(end_offset), mark.losses)
            return
        epoch = self._state_store.read().epoch
        if mark.epoch > epoch:
            raise QuorumStateError(
                f"{self.mark.path} names records of epoch {mark.epoch}, but quorum-state holds epoch"
                f" {epoch} only: the file was lost or replaced, and a vote may be lost"
            )
        self.recovery = Recovery(mark.end_offset)
        losses = mark.losses
        if not mark.is_recovering:
            # A damaged mark has lost the number of losses, and leaders go by the greatest number.
            first = 0 if mark.end_offset is not None else self._clock.wall_ms() // 1000
            losses = min(max(losses, first) + 1, _MOST_LOSSES)
        self._found = mark._replace(losses=losses, is_recovering=True)

    def write_mark(self) -> None:
        """Write what the start has found. Durable on return."""
        if self._keeps_mark:
            self.mark.write(self._found)

    def _epoch_before(self, end_offset: int) -> int:
        """Epoch of the last record below; 0 if there is neither a record nor a snapshot that covers it."""
        if end_offset <= self._start.end_offset:
            return self._start.epoch
        return max(self._log.epoch_cache.epoch_for_offset(end_offset - 1), 0)

    def flush(self, job: FlushJob) -> None:
        """Execute a flush, and note how far it reached. Blocks; runs in a thread."""
        job.run()
        if self._keeps_mark:
            epochs = [entry.epoch for entry in job.epochs if entry.start_offset < job.end_offset]
            self.mark.advance(job.end_offset, epochs[-1] if epochs else 0)

    def _leads_up_to(self, latest: SnapshotId) -> bool:
        log, last_offset = self._log, latest.end_offset - 1
        if log.log_end_offset < latest.end_offset:
            return False
        return last_offset < log.log_start_offset or (
            log.epoch_cache.epoch_for_offset(last_offset) == latest.epoch
        )

    def outline(self) -> LogShape:
        """The outline of the log, for the core."""
        entries = [(entry.epoch, entry.start_offset) for entry in self._log.epoch_cache.entries]
        return LogShape(self._log.log_end_offset, entries, self._start)

    def apply(self, effect: DiskEffect) -> None:
        match effect:
            case PersistElectionState(state):
                self._state_store.write(state)
            case AppendProposal(base_offset, end_offset, _, payload):
                assert isinstance(payload, bytes)
                self._append(payload, base_offset, end_offset)
            case AppendFetched(batches, payload):
                assert isinstance(payload, FetchedRecords)
                self._log.append(payload.data, payload.headers, now_ms=self._clock.wall_ms())
                assert batches[-1].end_offset == self._log.log_end_offset
            case AppendLeaderChange(offset):
                self._append(self._leader_change(effect), offset, offset + 1)
            case AppendVoters(base_offset, end_offset):
                self._append(self._voters(effect), base_offset, end_offset)
            case EndRecovery(end_offset):
                self.mark.write(FlushedMark(end_offset, self._epoch_before(end_offset), self.losses))
            case TruncateTo(end_offset):
                self.mark.lower(end_offset, self._epoch_before(end_offset))
                self._log.truncate_to(end_offset)
                self._log.flush()
                assert end_offset == self._log.log_end_offset
            case AdvanceLogStart(snapshot_id):
                self._advance_start(snapshot_id)
            case AppendSnapshotChunk(snapshot_id, position, data):
                self.snapshots.append_chunk(snapshot_id, position, data)
            case InstallSnapshot(snapshot_id):
                self._install(snapshot_id)

    def prepare_check(self, effect: CheckSnapshot) -> Callable[[], SnapshotInfo]:
        """A job that makes the fetched file durable and reads it back. It blocks; it may run in a thread
        while another snapshot is already being fetched.
        """
        return partial(self._check_snapshot, effect, self.snapshots.open_download(effect.snapshot_id))

    def _check_snapshot(self, effect: CheckSnapshot, file: DiskFile) -> SnapshotInfo:
        info = self.snapshots.check_download(effect.snapshot_id, file)
        if info.checksum != effect.checksum:
            reason = f"its checksum is {info.checksum}, that of the leader's file {effect.checksum}"
            raise CorruptSnapshotError(self.snapshots.path(effect.snapshot_id), 0, reason)
        return info

    def _install(self, snapshot_id: SnapshotId) -> None:
        """First the snapshot's name, then the log: :meth:`recover` completes what a crash interrupts.

        Until all is done the mark is at an offset that both the old log and the snapshot reach; then it moves
        to the snapshot's end, before that counts.
        """
        self.mark.lower(snapshot_id.end_offset, self._epoch_before(snapshot_id.end_offset))
        info = self.checked.pop(snapshot_id)
        self.checked.clear()
        self.snapshots.finish_download(info)
        self._log.truncate_fully_and_start_at(snapshot_id.end_offset, now_ms=self._clock.wall_ms())
        self._log.flush()
        self._start = snapshot_id
        self.mark.replace(snapshot_id.end_offset, snapshot_id.epoch)
        self._delete_snapshots_before(snapshot_id)

    def _advance_start(self, snapshot_id: SnapshotId) -> None:
        """Segments are deleted oldest first, so that a crash leaves an unbroken log."""
        self._log.advance_log_start(snapshot_id.end_offset)
        self._start = snapshot_id
        self._log.delete_old_segments(self._clock.wall_ms())
        self._delete_snapshots_before(snapshot_id)

    def _delete_snapshots_before(self, snapshot_id: SnapshotId) -> None:
        """One that was fetched recently stays until the next time: its fetcher would have to start over."""
        recently_ms = self._clock.monotonic_ms() - SERVED_RECENTLY_MS
        self._served_ms = {i: ms for i, ms in self._served_ms.items() if ms > recently_ms}
        for older in self.snapshots.ids():
            if older.end_offset < snapshot_id.end_offset and older not in self._served_ms:
                self.snapshots.delete(older)

    def _append(self, batch: bytes, base_offset: int, end_offset: int) -> None:
        assert base_offset == self._log.log_end_offset
        self._log.append(batch, [read_header(batch)], now_ms=self._clock.wall_ms())
        assert end_offset == self._log.log_end_offset

    def _leader_change(self, effect: AppendLeaderChange) -> bytes:
        value = control_records.leader_change(effect.leader_id, effect.voters, effect.granting_voters)
        kind = control_records.ControlType.LEADER_CHANGE
        record = control_records.control_record(kind, value, self._clock.wall_ms())
        return encode_batch([record], base_offset=effect.offset, leader_epoch=effect.epoch, is_control=True)

    def _voters(self, effect: AppendVoters) -> bytes:
        kind, now_ms = control_records.ControlType, self._clock.wall_ms()
        voters = control_records.voters_record(effect.voters)
        records = [control_records.control_record(kind.KRAFT_VOTERS, voters, now_ms)]
        if effect.end_offset - effect.base_offset == 2:
            version = control_records.kraft_version()
            records.insert(0, control_records.control_record(kind.KRAFT_VERSION, version, now_ms))
        return encode_batch(
            records, base_offset=effect.base_offset, leader_epoch=effect.epoch, is_control=True
        )

    def read_voters(self, base: VoterSet) -> VoterHistory:
        """Every voter set in the log, after that of the snapshot at its start, or else ``base``.

        :class:`ValueError` if one cannot be read.
        """
        start = self.snapshots.info(self._start)
        snapshot_voters = None if start is None else start.voters or None
        headers = self._log.iter_headers(self._log.log_start_offset)
        logged = []
        for offset in [header.base_offset for header in headers if header.is_control]:
            header, data = next(self._log.iter_batches(offset))
            voters = control_records.find_voters(header, data)
            if voters is not None:
                logged.append((offset, voters))
        return VoterHistory(snapshot_voters or base, logged, is_shared=snapshot_voters is not None)

    def with_records(self, effect: ReplyWithRecords) -> FetchResponse:
        """The answer to a fetch, with the whole batches that are there.

        :class:`CorruptLogError` for damage: an answer without records would mean that there are no more,
        and a recovering replica would believe it.
        """
        found = self._log.read(effect.start_offset, effect.max_bytes, end_offset=effect.end_offset)
        if found is None:
            return effect.response
        data = read_checked(found)
        end = 0
        for position, header in iter_headers(data):
            end = position + header.size_bytes
        return replace(effect.response, payload=data[:end])

    def with_snapshot(self, effect: ReplyWithSnapshot) -> FetchSnapshotResponse:
        """The answer to a snapshot fetch, with a piece of the file if it is there."""
        response = effect.response
        info = self.snapshots.info(response.snapshot_id)
        if info is None:
            return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        if response.position > info.size_bytes:
            return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
        self._served_ms[response.snapshot_id] = self._clock.monotonic_ms()
        data = self.snapshots.read_chunk(response.snapshot_id, response.position, effect.max_bytes)
        return replace(response, size_bytes=info.size_bytes, checksum=info.checksum, data=data)
