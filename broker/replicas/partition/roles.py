"""A replica takes the controller's newest state: it becomes the leader or a follower, or its ISR changes."""

from __future__ import annotations

from pykraft.broker.replicas.partition.isr import (
    FollowerProgress,
    IsrState,
)
from pykraft.broker.replicas.partition.state import NO_EPOCH, ReplicaState
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.log_store.interface import CorruptLogError
from pykraft.metadata_log.image import PartitionRegistration


class Roles(ReplicaState):
    """By the leader epoch it knows which leader is the current one, by the partition epoch which ISR."""

    __slots__ = ()

    def apply(self, registration: PartitionRegistration, now_ms: int) -> bool:
        """Take the controller's newest state; whether the leader or the leader epoch changed.

        A state older than the known one is ignored (an AlterPartition answer may overtake the metadata log).
        """
        if registration.leader_epoch < self.leader_epoch:
            return False
        if registration.partition_epoch < self.isr.partition_epoch:
            return False
        leader = registration.leader if registration.has_leader else None
        if self.log.latest_epoch > registration.leader_epoch:
            # No leader can have written that: it is damage, as the CRC of a batch does not cover the epoch.
            reason = f"leader epoch {self.log.latest_epoch} is later than the controller's"
            self.storage_failed(
                CorruptLogError(self.log.directory, 0, f"{reason} {registration.leader_epoch}")
            )
            return False
        changed = registration.leader_epoch > self.leader_epoch or leader != self.leader_id
        self.replicas = registration.replicas
        if changed:
            self.leader_epoch = registration.leader_epoch
            self.leader_id = leader
            self.isr = IsrState(registration.isr, registration.partition_epoch, elr=registration.elr)
            self.isr_retry_ms = self.isr_refusals = 0
            if self.is_leader:
                self._become_leader(now_ms)
            else:
                self._become_follower()
        else:
            self.isr = self.isr.with_committed(
                registration.isr, registration.partition_epoch, registration.elr
            )
            for replica in registration.replicas:
                if self.is_leader and replica not in self.followers and replica != self._node_id:
                    self.followers[replica] = FollowerProgress(
                        now_ms if replica in self.isr.committed else None
                    )
        self._isr_changed()
        return changed

    def set_min_isr(self, min_isr: int, *, strict: bool) -> None:
        """Set how many replicas must be in sync: for acks=all, and if ``strict`` for any commit."""
        if (min_isr, strict) != (self.min_isr, self.strict_min_isr):
            self.min_isr, self.strict_min_isr = min_isr, strict
            self._isr_changed()

    def set_throttled(self, *, as_leader: bool, as_follower: bool) -> None:
        """Set whether copies of this replica count for, and wait for, the broker's limits (KIP-73)."""
        self.is_throttled_leader, self.is_throttled_follower = as_leader, as_follower

    def _become_leader(self, now_ms: int) -> None:
        self.leader_epoch_start = self.log.log_end_offset
        self.log.assign_epoch(self.leader_epoch, self.leader_epoch_start)
        self.followers = {
            replica: FollowerProgress(now_ms if replica in self.isr.committed else None)
            for replica in self.replicas
            if replica != self._node_id
        }
        self._observer.became_leader(self)

    def _become_follower(self) -> None:
        self.followers = {}
        self._forget_empty_epochs()
        self.refuse_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _forget_empty_epochs(self) -> None:
        """Forget epochs in which this replica led and wrote nothing: no leader's log could confirm them."""
        log = self.log
        log.epoch_cache.truncate_from_end(log.log_end_offset)
        log.assign_epoch(NO_EPOCH, 0)  # assigns nothing, but makes the log read its newest epoch again

    def refuse_waiters(self, code: ErrorCode) -> None:
        """Refuse all waiting requests: this replica will no longer learn whether a batch was committed."""
        for waiter in (*self.committed_waiters.pop_all(), *self.flushed_waiters.pop_all()):
            waiter.offset_refused(code)
        for waiting in [*self.consumer_waiters, *self.replica_waiters, *self.log_start_waiters]:
            waiting.wake()
        self._events.state_changed(self)
