"""The answer to DescribeQuorum, from the core's state."""

from __future__ import annotations

from pykraft.quorum.core.progress import FetchProgress
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.listener import QuorumDescription, ReplicaProgress


def describe_quorum(state: CoreState, wall_minus_monotonic_ms: int, now_ms: int) -> QuorumDescription:
    """``now_ms`` is the time of day; the difference converts the core's monotonic times."""
    role = state.role
    voters, observers = [], []
    for voter in state.voters:
        if state.is_voter and voter.key.id == state.local.id:
            voters.append(ReplicaProgress(state.local, state.log.end_offset, now_ms, now_ms))
        elif isinstance(role, Leader):
            voters.append(_shown(role.progress[voter.key.id], role, wall_minus_monotonic_ms))
        else:
            voters.append(ReplicaProgress(voter.key, -1, -1, -1))
    if isinstance(role, Leader):
        role.forget_silent_observers(now_ms - wall_minus_monotonic_ms)
        by_id = sorted(role.observers.values(), key=lambda progress: progress.key.id)
        observers = [_shown(progress, role, wall_minus_monotonic_ms) for progress in by_id]
    return QuorumDescription(
        state.leader_id, state.epoch, state.high_watermark, tuple(voters), tuple(observers)
    )


def _shown(progress: FetchProgress, role: Leader, wall_minus_monotonic_ms: int) -> ReplicaProgress:
    def wall(monotonic_ms: int) -> int:
        return -1 if monotonic_ms <= role.elected_at_ms else monotonic_ms + wall_minus_monotonic_ms

    end_offset = progress.end_offset if progress.last_fetch_ms > role.elected_at_ms else -1
    return ReplicaProgress(
        progress.key, end_offset, wall(progress.last_fetch_ms), wall(progress.last_caught_up_ms)
    )
