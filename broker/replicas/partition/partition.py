"""One replica of one partition: its log, its role and, while it leads, its followers and high watermark.

A leader appends, and a record is committed once the whole maximal ISR has it (and, with eligible leader
replicas, once that ISR is large enough: KIP-966); a follower appends the leader's records and truncates its
log where the leader's history differs (KIP-101, KIP-279, KIP-320). The leader epoch decides which leader is
the current one; the partition epoch decides which ISR is the newest. Decides everything about one replica and
calls nothing but its log: no sockets, no clocks, no tasks.
"""

from __future__ import annotations

from pykraft.broker.replicas.partition.following import Following
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import LogSlice
from pykraft.log_store.log.log import Log


class Partition(Following):
    """See the module. What happens to it is in the modules of its base classes; here it is read."""

    __slots__ = ()

    def use_log(self, log: Log) -> None:
        """The log was moved to another directory: ``log`` holds the same."""
        assert log.log_end_offset == self.log.log_end_offset, f"{self}: the moved log differs"
        log.config = self.log.config
        self.log = log

    def read_committed(self, offset: int, max_bytes: int, *, at_least_one: bool) -> LogSlice | None:
        """The committed records from ``offset`` on, for consumers."""
        end_offset = self.high_watermark
        piece = self.log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        if piece is not None:
            self._observer.records_read(self, offset)
        return piece

    def read_stable(self, offset: int, max_bytes: int, *, at_least_one: bool) -> LogSlice | None:
        """The committed records below the last stable offset, for readers of committed transactions."""
        return self.log.read(offset, max_bytes, end_offset=self.last_stable_offset, at_least_one=at_least_one)

    def aborted_in(self, piece: LogSlice, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader must leave out of a slice, which was read from ``offset`` on
        and ends below the last stable offset. Others may be among them.
        """
        return self.log.aborted_in(piece, offset, self.last_stable_offset)

    def read_replica(self, offset: int, max_bytes: int, *, at_least_one: bool) -> LogSlice | None:
        """All records from ``offset`` on, for followers."""
        return self.log.read(offset, max_bytes, at_least_one=at_least_one)
