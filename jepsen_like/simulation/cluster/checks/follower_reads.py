"""The invariant of reads from followers (KIP-392): a follower serves nothing that no leader has committed.

What readers see (nothing vanishes, no offset is left out, they reach the end) is in the workload's history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.jepsen_like.simulation.cluster.view import Machine

COMMITTED_ONLY: Final = "a follower serves only what a leader has committed"

RACKS: Final = ("r0", "r1", "r2")
"""The racks of brokers, and of the readers of the workload."""


class FollowerReads:
    """``committed_to`` is the highest high watermark of any leader of a partition. ``served``: how many reads
    of clients followers have answered with records."""

    def __init__(self, fail: Callable[[str, str], None], committed_to: Callable[[Partition], int]) -> None:
        self._fail = fail
        self._committed_to = committed_to
        self.served = 0

    def read(self, machine: Machine, partition: Partition) -> None:
        """A replica answers a client with records below its high watermark."""
        if partition.is_leader:
            return
        self.served += 1
        if partition.high_watermark > self._committed_to(partition):
            detail = f"{machine.id} serves {partition} up to {partition.high_watermark}"
            self._fail(COMMITTED_ONLY, f"{detail}, committed is {self._committed_to(partition)}")
