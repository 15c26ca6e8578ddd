"""The ISR of one partition as its leader sees it: the followers' progress, and the high watermark.

The high watermark is the smallest log end offset over the *maximal* ISR: the committed ISR plus every replica
that a proposal in flight may have added (KIP-497). A replica that is eligible to lead although it left the
ISR (KIP-966) must hold every committed record; so nothing is committed while there is such a replica. A
removal counts only once the controller has committed it. A proposal whose answer was lost may have been
applied, and a late copy of it may still arrive; the replicas that it would add stay in the maximal ISR until
the partition epoch changes. This module decides and never sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from pykraft.lazy_dataclass import dataclass

UNKNOWN_OFFSET = -1
DAMAGE_CHECK_EVERY = 16


class CountedFetches(Protocol):
    """The partition in a fetch session of a follower: each request of the session is a fetch of it."""

    @property
    def last_fetch_ms(self) -> int: ...

    def displaced(self) -> None:
        """Another fetch counts now. If that one came late, the next request of the session corrects it."""
        ...


class FollowerProgress:
    """The leader's view of one follower.

    While it has everything, its fetches are not noted one by one: those of a session count.
    """

    __slots__ = (
        "_last_caught_up_ms",
        "broker_epoch",
        "counted",
        "last_fetch_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "repeated_fetches",
        "sent_log_start_offset",
        "sent_offset",
    )

    def __init__(self, last_caught_up_ms: int | None) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        #: The log start that it has stored.
        self.log_start_offset = UNKNOWN_OFFSET
        #: The leader's log start that it knows, or is about to read.
        self.sent_log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        self.last_fetch_ms: int | None = None
        self.last_fetch_end = UNKNOWN_OFFSET
        self._last_caught_up_ms = last_caught_up_ms
        self.counted: CountedFetches | None = None
        self.sent_offset = UNKNOWN_OFFSET
        self.repeated_fetches = 0

    @property
    def last_caught_up_ms(self) -> int | None:
        """The latest time at which it is known to have had all that the leader had; None if never."""
        if self.counted is None:
            return self._last_caught_up_ms
        return self.counted.last_fetch_ms

    def stop_counting(self, fetches: CountedFetches) -> None:
        """The fetches of this session count up to the last one, and no longer.

        A follower that goes over to another session is soon forgotten by the one that it had before.
        """
        if fetches is self.counted:
            self._last_caught_up_ms = self.last_fetch_ms = fetches.last_fetch_ms
            self.counted = None

    def may_have_found_damage(self, fetch_offset: int) -> bool:
        """Whether the follower may have found the records at an offset damaged.

        It then asks again for an offset that was sent to it. But it may just have lost the answer; so this is
        true for the first repetition, and then for one in :data:`DAMAGE_CHECK_EVERY`.
        """
        if fetch_offset != self.sent_offset:
            self.repeated_fetches = 0
            return False
        self.sent_offset = UNKNOWN_OFFSET
        self.repeated_fetches += 1
        return self.repeated_fetches % DAMAGE_CHECK_EVERY == 1

    def handle_fetch(
        self,
        fetch_offset: int,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int,
        log_start_offset: int,
    ) -> None:
        """A fetch at ``fetch_offset`` acknowledges everything before it, and that records below
        ``log_start_offset`` will not be back after any restart.

        A follower that asks for the end of the log is caught up now; one that asks for where the log ended at
        its previous fetch was caught up at that fetch.
        """
        if self.counted is not None:
            displaced = self.counted
            self.stop_counting(displaced)
            displaced.displaced()
        if fetch_offset >= leader_end_offset:
            self._last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and fetch_offset >= self.last_fetch_end:
            self._last_caught_up_ms = max(self._last_caught_up_ms or self.last_fetch_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        if log_start_offset > self.sent_log_start_offset:
            self.sent_log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.last_fetch_end = leader_end_offset
        self.last_fetch_ms = now_ms

    def is_lagging(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has not been at the end of the log for more than ``max_lag_ms``."""
        if self.log_end_offset == leader_end_offset:
            return False
        caught_up_ms = self.last_caught_up_ms
        return caught_up_ms is None or now_ms - caught_up_ms > max_lag_ms


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change requested from the controller. ``broker_epochs`` names the incarnations of the members."""

    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[int, ...]
    broker_epochs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class IsrState:
    """The committed ISR and what may be on its way to be committed."""

    committed: tuple[int, ...]
    partition_epoch: int
    pending: IsrProposal | None = None
    maybe_added: frozenset[int] = frozenset()
    """Replicas that a proposal of unknown outcome would add, at this partition epoch."""
    elr: tuple[int, ...] = ()
    """The eligible leader replicas at this partition epoch."""

    @property
    def maximal(self) -> frozenset[int]:
        proposed = self.pending.new_isr if self.pending is not None else ()
        return frozenset(self.committed) | self.maybe_added | frozenset(proposed)

    def with_committed(
        self, isr: tuple[int, ...], partition_epoch: int, elr: tuple[int, ...] = ()
    ) -> IsrState:
        """Take the controller's state: a newer one completes all open proposals, others change nothing."""
        if partition_epoch <= self.partition_epoch:
            return self
        return IsrState(isr, partition_epoch, elr=elr)

    def answered(
        self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int, elr: tuple[int, ...] = ()
    ) -> IsrState:
        """The controller accepted a proposal; the arguments are the state after it.

        The metadata log may have brought that state before, and another proposal may be in flight since: it
        stays open. An answer with no newer partition epoch completes only its own proposal.
        """
        if partition_epoch > self.partition_epoch:
            return IsrState(isr, partition_epoch, elr=elr)
        return self.rejected() if self.pending is proposal else self

    def with_pending(self, proposal: IsrProposal) -> IsrState:
        assert self.pending is None, "one proposal at a time"
        return replace(self, pending=proposal)

    def rejected(self) -> IsrState:
        """The pending proposal was not and will not be applied; earlier unanswered ones stay open."""
        return replace(self, pending=None)

    def unanswered(self) -> IsrState:
        """It is unknown whether the pending proposal was or will be applied."""
        proposed = frozenset(self.pending.new_isr) if self.pending is not None else frozenset()
        added = self.maybe_added | (proposed - frozenset(self.committed))
        return replace(self, pending=None, maybe_added=added)


def high_watermark_candidate(
    state: IsrState, local_id: int, local_end_offset: int, followers: Mapping[int, FollowerProgress]
) -> int:
    """The smallest log end over the maximal ISR; ``UNKNOWN_OFFSET`` while a member has not fetched yet."""
    lowest = local_end_offset
    for replica in state.maximal:
        if replica == local_id:
            continue
        follower = followers.get(replica)
        end_offset = follower.log_end_offset if follower is not None else UNKNOWN_OFFSET
        if end_offset < lowest:
            lowest = end_offset
    return lowest


def lagging_members(
    state: IsrState,
    local_id: int,
    local_end_offset: int,
    followers: Mapping[int, FollowerProgress],
    now_ms: int,
    max_lag_ms: int,
) -> tuple[int, ...]:
    """Members of the committed ISR that have fallen behind for too long."""
    return tuple(
        replica
        for replica in state.committed
        if replica != local_id
        and (replica not in followers or followers[replica].is_lagging(local_end_offset, now_ms, max_lag_ms))
    )


def without(isr: Iterable[int], removed: Iterable[int]) -> tuple[int, ...]:
    gone = frozenset(removed)
    return tuple(replica for replica in isr if replica not in gone)
