"""Watches replicas at work, with no part in it: a simulation checks there what it cannot ask for later."""

from __future__ import annotations

from typing import Any, Final


class PartitionObserver:
    """One for all replicas of a broker. Each tells it, in the same turn, what it has just done.

    This one does nothing. ``partition`` is the whole :class:`.Partition`, as in :class:`.PartitionEvents`.
    """

    def became_leader(self, partition: Any) -> None:
        """It leads in a new epoch. Its ISR has not been counted yet."""

    def high_watermark_moved(self, partition: Any) -> None:
        """Up, of a leader or a follower. What waited for it has been told."""

    def log_truncated(self, partition: Any) -> None:
        """What differed from its leader's log is cut off, if anything did."""

    def log_restarted(self, partition: Any) -> None:
        """All records are dropped: the log begins at another offset."""

    def records_deleted(self, partition: Any) -> None:
        """By a client's request: the log start of a leader is at, or above, what was asked for."""

    def records_read(self, partition: Any, offset: int) -> None:
        """A client is given committed records from ``offset`` on."""


UNOBSERVED: Final = PartitionObserver()
