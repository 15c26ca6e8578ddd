"""How lately this controller provably led, and a broker was current: the base of the leases of brokers.

A broker relies on its lease: until it ends, no controller has fenced the broker. The active controller keeps
that promise for itself by dating the session from when it received the heartbeat, which is not before it was
sent. But a controller that was deposed may not know it yet (its process was paused, its network cut), and its
successor knows nothing of the heartbeats it still acknowledges. So a lease rests on a proof of leadership
that the quorum gives.

The argument. A record that this controller appended at time R, in epoch e, has been committed: a majority of
voters took it in epoch e, each of them after R (or is this controller, which is in epoch e even now). A
successor needs the votes of a majority; the two majorities share a voter, and that voter had epoch e after R
and a later epoch when it voted. Hence every successor was elected after R. A successor gives every broker a
full session from the moment it takes over, so it fences nobody before R + session timeout. At time t an
answer therefore may promise session timeout - (t - R) and no more. The broker counts that from when it *sent*
the heartbeat, which was before t, so its lease ends by R + session timeout at the latest. The one broker that
may be replaced before its lease ends is one that is proven dead, by the next process on its directories
(:mod:`pykraft.runtime.directory_lock`): it serves nobody.

Clocks need not agree, and each may run up to 5 % too fast or too slow: a tenth of the session is kept back.
Then, in true time and sessions, a lease ends at the latest at R + 0.9 / 0.95 = R + 0.947 (a slow broker; or
one that is fast, told by a controller whose slow clock makes R look recent, which comes to no more), and a
controller with a fast clock fences no sooner than R + 1 / 1.05 = R + 0.952.

**Session timeouts that differ.** The session of the argument is the one of the controller that grants the
lease, and its successor may be configured with a shorter one, by mistake or during a rolling change. Neither
refusing such a controller nor taking the smallest timeout would do: it may be elected before anybody has been
told of it. So the log says how long a lease may be (:class:`SessionTimeoutRecord`). A controller whose
timeout is longer than what stands there writes its own among the first records of its reign, and grants no
lease before one of them is committed; whoever is elected later has it in its log. A successor gives the
brokers that it finds active as long as the log says, if that is longer than its own session: it fences none
of them before R + that time. What it grants itself rests on its own session. Once it has been active for so
long, no lease of an earlier reign is left, and it writes its own, shorter timeout. It cannot shorten what a
reign before it had still to grant: every lease before it rests on an R before its election.

**Brokers that do not follow.** A leadership also moves from brokers that live: by a preferred election, a
reassignment, a controlled shutdown. The old leader cannot hear of it before its copy of the log says so, and
its heartbeats may pass while its copy stands still. Therefore a lease rests on a second time as well, T: the
newest one of which this controller knows that the broker has applied all that was committed then
(:mod:`.heartbeats`). It ends by min(R, T) + 0.9 sessions, on clocks as above. What that promises:

- Until a lease ends no controller fences the broker, as before. That it is fenced for being stale changes
  nothing: it comes no sooner than a session after a time at which the broker got further, which is not
  before T; and a successor gives a session of its own, or what the log says.
- Of a leadership that was moved away it promises less: not that nobody else leads yet, but that the move was
  committed less than 0.9 / 0.95 of a session ago. For had it been committed by T, by this controller or one
  before it, the broker would have applied it: a controller becomes active when it has applied all that was
  committed before. And a successor commits nothing before R. So a broker whose copy of the log stands still
  takes writes with acks=0 and acks=1 as the old leader for so long at the most, and one that follows only
  until the record reaches it. A commit counts from when the active controller has been handed it.

An operator who unregisters a live broker takes its leaderships away like a reassignment: what a lease
promises of those holds, while its first promise, that nobody fences the broker, is broken on demand.

While records flow R is recent. When they do not, a heartbeat brings a record of its own that changes nothing,
at most one per :attr:`ControllerConfig.lease_proof_max_age_ms`, and is answered when that is committed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_LEASE_PERCENT: Final = 90
"""Of a session; the rest covers clocks that run at different rates."""


class LeadershipProof:
    """When the newest committed record of this reign was appended. Times are monotonic."""

    def __init__(self) -> None:
        self._pending: deque[tuple[int, int]] = deque()
        self._appended_ms: int | None = None
        self._proven_ms: int | None = None

    def clear(self) -> None:
        """A reign begins or ends: what was proven in another one proves nothing."""
        self._pending.clear()
        self._appended_ms = self._proven_ms = None

    def handle_append(self, last_offset: int, now_ms: int) -> None:
        """Records up to ``last_offset`` were appended, not before ``now_ms``."""
        self._pending.append((last_offset, now_ms))
        self._appended_ms = now_ms

    def handle_commit(self, offset: int) -> None:
        """Everything up to ``offset`` is committed."""
        while self._pending and self._pending[0][0] <= offset:
            self._proven_ms = self._pending.popleft()[1]

    def needs_record(self, max_age_ms: int, now_ms: int) -> bool:
        """Whether even the commit of all that is pending would prove too little."""
        return self._appended_ms is None or now_ms - self._appended_ms > max_age_ms

    def lease_ms(self, session_timeout_ms: int, now_ms: int, current_ms: int | None) -> int:
        """What may be promised to a broker in an answer that leaves at ``now_ms``; 0 for nothing.

        The broker has applied all that was committed at ``current_ms``; None if no such time is known.
        """
        if self._proven_ms is None or current_ms is None:
            return 0
        age_ms = now_ms - min(self._proven_ms, current_ms)
        return max(0, session_timeout_ms * _LEASE_PERCENT // 100 - age_ms)
