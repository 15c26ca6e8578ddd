"""A follower's log: it appends the leader's records, and truncates where the two differ."""

from __future__ import annotations

from pykraft.broker.logs.producers.state import ProducerState
from pykraft.broker.replicas.partition.deleting import Deleting
from pykraft.broker.replicas.partition.follower_batches import begin_within_span, find_new_batches
from pykraft.kafka_protocol.markers import with_markers
from pykraft.kafka_protocol.records import (
    crc_is_valid,
    iter_headers,
)
from pykraft.log_store.compaction.gaps import fill_gaps
from pykraft.log_store.interface import CorruptLogError


class Following(Deleting):
    """Offsets and epochs are the leader's (KIP-101, KIP-279, KIP-320)."""

    __slots__ = ()

    def append_as_follower(self, data: memoryview, now_ms: int, leader_log_start: int = 0) -> int:
        """Append the whole batches in ``data`` that are new; returns their size in bytes.

        Offsets and epochs are the leader's, whose log starts at ``leader_log_start``. A batch that fails its
        checksum, or whose epoch cannot come next, is refused with CORRUPT_MESSAGE, and nothing of ``data`` is
        appended.
        """
        log = self.log
        if log.log_end_offset <= max(log.log_start_offset, leader_log_start):
            self._start_with_a_whole_batch(data)
        log_end = log.log_end_offset
        data = begin_within_span(data, log_end)
        headers, start, end = find_new_batches(
            data,
            log_end,
            log.latest_epoch,
            self.leader_epoch,
            may_have_gaps=log.may_have_gap_at(log_end),
        )
        if not headers:
            return 0
        batches, filled = fill_gaps(data[start:end], headers, log_end, log.latest_epoch)
        log.append(batches, filled, now_ms=now_ms)
        for header, marker in with_markers(batches, filled):
            self._replay(header, marker)
        self.traffic.replication_bytes_in += end - start
        return end - start

    def _start_with_a_whole_batch(self, data: memoryview) -> None:
        """Let a log without a record that its leader still has begin where the batch does that holds its end.

        A log may start in the middle of a batch of its leader: records were deleted up to there, or another
        leader wrote other batches after an unclean election.
        """
        end_offset = self.log.log_end_offset
        for position, header in iter_headers(data):
            if header.next_offset > end_offset:
                if header.base_offset < end_offset and crc_is_valid(data, position, header):
                    self.restart_at(header.base_offset)
                return

    def follow(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """Take the leader's high watermark and log start, as far as this log reaches."""
        log = self.log
        self._advance_log_start(min(leader_log_start, log.log_end_offset))
        reached = max(min(leader_high_watermark, log.log_end_offset), log.log_start_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.last_stable_offset = self._find_stable_offset()
            self._events.high_watermark_moved(self)
            self._observer.high_watermark_moved(self)

    def truncate_to_divergence(self, diverging_epoch: int, end_offset: int) -> int:
        """Truncate the log where the leader's diverges (its end of ``diverging_epoch``); returns the new end.

        If this log does not know that epoch, the end of the last epoch before it is the best known common
        point, and the next fetch starts there (KIP-279). If this log starts beyond that, nothing of it is in
        the leader's, and it begins again there. :class:`CorruptLogError`, and nothing is truncated, if what
        remained might lack records that the leader has.
        """
        own = self.log.end_offset_for_epoch(diverging_epoch)
        cut = end_offset if own.end_offset < 0 else min(end_offset, own.end_offset)
        if cut < self.log.log_start_offset:
            self.restart_at(cut)
        else:
            self._require_whole(cut)
            self.truncate_to(cut)
        return self.log.log_end_offset

    def _require_whole(self, end_offset: int) -> None:
        """Refuse to keep the beginning of a compacted log if what superseded parts of it would be cut off.

        Compaction, here or where the log was copied from, removes records that committed ones supersede. If
        those are lost (with the disks of all other replicas, or to an unclean election), the leader may still
        have what they superseded: its log has to be copied again.
        """
        log = self.log
        compacted_end = max(log.cleaned_end_offset, self.high_watermark if log.config.is_compacted else 0)
        if log.log_start_offset < end_offset < compacted_end:
            reason = f"compacted up to {compacted_end}, and its leader's diverges at {end_offset}"
            raise CorruptLogError(log.directory, 0, reason)

    def truncate_to(self, offset: int) -> None:
        """Drop the records from ``offset`` on, and the state of their producers."""
        if self.log.truncate_to(max(offset, self.log.log_start_offset)):
            self._truncated()
        self._observer.log_truncated(self)

    def restart_at(self, offset: int) -> None:
        """Drop all records: the leader no longer has the offset that would come next."""
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        self.producers.adopt(ProducerState(complete=offset == 0))
        self.last_stable_offset = offset
        self._events.state_changed(self)
        self._observer.log_restarted(self)

    def _truncated(self) -> None:
        if self.producers.is_behind or not self.producers.truncate_to(self.log.log_end_offset):
            self.producers.fall_behind()
            if self.log.log_end_offset < self.high_watermark:
                # Markers that decided what readers have seen may be cut off (an unclean election).
                self.last_stable_offset = self.log.log_start_offset
            self._events.producers_lost(self)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.last_stable_offset = self._find_stable_offset()
        self._events.state_changed(self)
