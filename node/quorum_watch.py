"""Logs that the metadata quorum has no leader, which cannot be seen from log lines about elections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch
from pykraft.runtime.clock import Clock

logger = logging.getLogger(__name__)

_FIRST_WARNING_S: Final = 5
"""Longer than an election takes."""


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class QuorumWatch:
    """A listener of the quorum. Warns after five seconds without a leader, and again after twice the time."""

    def __init__(self, clock: Clock, call_later: CallLater, voters: Callable[[], VoterSet]) -> None:
        self._clock = clock
        self._call_later = call_later
        self._voters = voters
        self._timer: Timer | None = None
        self._lost_at_ms = 0
        self._pause_s = _FIRST_WARNING_S

    def start(self) -> None:
        """A node that starts knows no leader yet."""
        self._lost_at_ms = self._clock.monotonic_ms()
        self._pause_s = _FIRST_WARNING_S
        self._timer = self._call_later(self._pause_s, self._warn)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id is None:
            if self._timer is None:
                self.start()
            return
        if self._pause_s > _FIRST_WARNING_S:
            logger.warning(
                "the metadata quorum has a leader again, %d, after %d s", leader.leader_id, self._lost_s
            )
        self._pause_s = _FIRST_WARNING_S
        self.stop()

    @property
    def _lost_s(self) -> int:
        return (self._clock.monotonic_ms() - self._lost_at_ms) // 1000

    def _warn(self) -> None:
        logger.warning(
            "the metadata quorum has had no leader for %d s: metadata cannot change until a majority of its"
            " voters run and reach each other: %s",
            self._lost_s,
            ", ".join(f"{voter.key.id} at {voter.address}" for voter in self._voters()) or "none is known",
        )
        self._timer = self._call_later(self._pause_s, self._warn)
        self._pause_s *= 2

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Nothing to do: commits do not matter here; nor do snapshots."""

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None: ...

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None: ...

    def finish_snapshot(self) -> None: ...
