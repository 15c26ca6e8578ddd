"""The basis of the brokers' leases: when this controller last provably led, and when a broker was current.

A lease promises a broker that no controller fences it before the lease ends. The active controller keeps this
promise itself, because it counts the session from when it received the heartbeat, which is not before the
broker sent it. But a deposed controller may not know yet that it was deposed (its process was paused, its
network cut), and its successor knows nothing of the heartbeats that the old one still acknowledges. So a
lease is based on a proof of leadership from the quorum.

The argument. A record that this controller appended at time R, in epoch e, has been committed: a majority of
voters stored it in epoch e, each of them after R (or is this controller, which is still in epoch e). A
successor needs the votes of a majority; the two majorities share a voter, and that voter was in epoch e after
R and in a later epoch when it voted. Hence every successor was elected after R. A successor gives every
broker a full session from the moment it becomes active, so it fences no broker before R + session timeout. A
response at time t may therefore promise session timeout - (t - R) and no more. The broker counts that from
when it *sent* the heartbeat, which was before t, so its lease ends by R + session timeout at the latest. The
only broker that may be replaced before its lease ends is one that is proven dead by the next process on its
directories (:mod:`pykraft.runtime.directory_lock`): a dead process serves no client.

Clocks need not agree, and each may run up to 5 % too fast or too slow: a tenth of the session is kept in
reserve. Then, in true time and in units of sessions, a lease ends at the latest at R + 0.9 / 0.95 = R + 0.947
(for a broker with a slow clock; a controller with a slow clock, to which R looks more recent, leads to no
later end), and a controller with a fast clock fences no sooner than R + 1 / 1.05 = R + 0.952.

**Session timeouts that differ.** The argument uses the session timeout of the controller that grants the
lease, but its successor may be configured with a shorter one, by mistake or during a rolling change. Neither
refusing such a controller nor using the smallest timeout would help: it may be elected before any other node
knows its timeout. So the log holds how long a lease may be (:class:`SessionTimeoutRecord`). A controller
whose timeout is longer than the logged one writes its own among the first records of its epoch, and grants no
lease before one of them is committed; every controller that is elected later has it in its log. A successor
gives the brokers that it finds active the logged time, if that is longer than its own session: it fences none
of them before R + that time. The leases that it grants are based on its own session. Once it has been active
for the logged time, no lease of an earlier epoch is left, and it writes its own, shorter timeout. This cannot
break a lease of an earlier epoch: each of them is based on an R before its election.

**Brokers that do not follow.** Leaderships also move away from live brokers: by a preferred election, a
reassignment, a controlled shutdown. The old leader cannot know of the move before its copy of the log holds
it, and its heartbeats may succeed while its copy does not advance. Therefore a lease is also based on a
second time, T: the latest time for which this controller knows that the broker has applied everything that
was committed then (:mod:`.heartbeats`). The lease ends by min(R, T) + 0.9 sessions, on clocks as above. It
promises:

- Until a lease ends no controller fences the broker, as before. Fencing of stale brokers does not change
  this: it comes no sooner than one session after a time at which the broker advanced, which is not before T;
  and a successor gives a session of its own, or the logged time.
- For a leadership that was moved away it promises less: not that no other broker leads yet, but that the move
  was committed less than 0.9 / 0.95 of a session ago. If the move had been committed by T, by this controller
  or an earlier one, the broker would have applied it: a controller becomes active only when it has applied
  everything that was committed before. And a successor commits nothing before R. So a broker whose copy of
  the log does not advance accepts writes with acks=0 and acks=1 as the old leader for at most that long, and
  a broker that follows only until the record reaches it. The time of a commit is when the active controller
  learns of it.

Unregistering a live broker moves its leaderships away like a reassignment: the promise about leaderships
still holds, but the first promise, that no controller fences the broker, is broken at the operator's request.

While records are appended, R is recent. Otherwise a heartbeat appends a record that changes nothing, at most
one per :attr:`ControllerConfig.lease_proof_max_age_ms`, and is answered when that record is committed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_LEASE_PERCENT: Final = 90
"""The part of a session that a lease may last; the rest covers clocks that run at different rates."""


class LeadershipProof:
    """When the newest committed record of this epoch was appended. Times are monotonic."""

    def __init__(self) -> None:
        self._pending: deque[tuple[int, int]] = deque()
        self._appended_ms: int | None = None
        self._proven_ms: int | None = None

    def clear(self) -> None:
        """This controller becomes active or resigns: proofs of another epoch are void."""
        self._pending.clear()
        self._appended_ms = self._proven_ms = None

    def handle_append(self, last_offset: int, now_ms: int) -> None:
        """Records up to ``last_offset`` were appended, at ``now_ms`` or later."""
        self._pending.append((last_offset, now_ms))
        self._appended_ms = now_ms

    def handle_commit(self, offset: int) -> None:
        """Everything up to ``offset`` is committed."""
        while self._pending and self._pending[0][0] <= offset:
            self._proven_ms = self._pending.popleft()[1]

    def needs_record(self, max_age_ms: int, now_ms: int) -> bool:
        """Whether the proof would be too old even when all pending records are committed."""
        return self._appended_ms is None or now_ms - self._appended_ms > max_age_ms

    def lease_ms(self, session_timeout_ms: int, now_ms: int, current_ms: int | None) -> int:
        """The lease that a response sent at ``now_ms`` may grant to a broker; 0 for none.

        The broker has applied everything that was committed at ``current_ms``; None if no such time is known.
        """
        if self._proven_ms is None or current_ms is None:
            return 0
        age_ms = now_ms - min(self._proven_ms, current_ms)
        return max(0, session_timeout_ms * _LEASE_PERCENT // 100 - age_ms)
