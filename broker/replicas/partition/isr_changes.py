"""When a leader proposes another ISR, and what the controller's answer to that changes."""

from __future__ import annotations

from collections.abc import Callable

from pykraft.broker.replicas.partition.isr import (
    IsrProposal,
    lagging_members,
    without,
)
from pykraft.broker.replicas.partition.roles import Roles


class IsrChanges(Roles):
    """One proposal is in flight; until its outcome is known, both ISRs hold the high watermark back."""

    __slots__ = ()

    @property
    def is_in_sync(self) -> bool:
        """Whether the ISR cannot change before an event: all replicas are in it and have the whole log, and
        nothing is open at the controller. True if another replica leads.
        """
        isr, end_offset = self.isr, self.log.log_end_offset
        return not self.is_leader or (
            isr.pending is None
            and not isr.maybe_added
            and len(isr.committed) == len(self.replicas)
            and all(follower.log_end_offset == end_offset for follower in self.followers.values())
        )

    def needs_isr_change(self, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]) -> bool:
        """Whether :meth:`next_proposal` would return a proposal."""
        return self._find_new_isr(now_ms, max_lag_ms, is_eligible) is not None

    def next_proposal(
        self, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> IsrProposal | None:
        """The ISR to propose, if it should change and no proposal is in flight; it counts as in flight then.

        ``is_eligible(replica, broker epoch)``: whether it is registered in that incarnation and may be in the
        ISR.
        """
        new_isr = self._find_new_isr(now_ms, max_lag_ms, is_eligible)
        if new_isr is None:
            return None
        epochs = {
            replica: follower.broker_epoch
            for replica, follower in self.followers.items()
            if replica in new_isr
        }
        proposal = IsrProposal(self.leader_epoch, self.isr.partition_epoch, new_isr, epochs)
        self.isr = self.isr.with_pending(proposal)
        self._isr_changed()
        return proposal

    def _find_new_isr(
        self, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> tuple[int, ...] | None:
        isr, end_offset = self.isr, self.log.log_end_offset
        if not self.is_leader or isr.pending is not None or now_ms < self.isr_retry_ms:
            return None
        removed = lagging_members(isr, self._node_id, end_offset, self.followers, now_ms, max_lag_ms)
        added = tuple(
            replica
            for replica in self.replicas
            if replica not in isr.committed
            and self._is_caught_up(replica, is_eligible)
            and not self.followers[replica].is_lagging(end_offset, now_ms, max_lag_ms)
        )
        new_isr = without(isr.committed, removed) + added
        if new_isr != isr.committed:
            return new_isr
        if not isr.maybe_added or len(isr.committed) == 1:
            return None
        # An unanswered addition holds the high watermark back until the partition epoch changes. Proposing
        # the same members in another order changes it, and makes a late copy of that addition void.
        return (*isr.committed[1:], isr.committed[0])

    def _is_caught_up(self, replica: int, is_eligible: Callable[[int, int], bool]) -> bool:
        """Whether it has reached the high watermark and this leader's epoch; before, histories may differ.

        It must have stored this log's start, too: as a leader it would serve deleted records again.
        """
        follower = self.followers.get(replica)
        return (
            follower is not None
            and follower.log_end_offset >= max(self.high_watermark, self.leader_epoch_start)
            and follower.log_start_offset >= self.log.log_start_offset
            and is_eligible(replica, follower.broker_epoch)
        )

    def handle_isr_accepted(
        self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int, elr: tuple[int, ...] = ()
    ) -> None:
        """The controller committed a proposal."""
        if proposal.leader_epoch == self.leader_epoch and self.is_leader:
            self.isr = self.isr.answered(proposal, isr, partition_epoch, elr)
            self.isr_refusals = 0
            self._isr_changed()

    def handle_isr_refused(self, proposal: IsrProposal, retry_ms: int, *, outcome_known: bool) -> None:
        """The controller refused a proposal; none is made before ``retry_ms`` (monotonic).

        ``outcome_known``: the proposal was certainly not applied.
        """
        if self.isr.pending is proposal:
            self.isr = self.isr.rejected() if outcome_known else self.isr.unanswered()
            self.isr_retry_ms = retry_ms
            self.isr_refusals += 1
            self._isr_changed()

    def handle_isr_unanswered(self, proposal: IsrProposal) -> None:
        """There was no answer: the outcome of the proposal is unknown."""
        if self.isr.pending is proposal:
            self.isr = self.isr.unanswered()
            self._isr_changed()
