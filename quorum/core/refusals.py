"""The reasons to refuse a replica's request of any kind.

The order of the checks is part of the protocol: a request of another cluster says nothing about this one's
epochs, and one of an older epoch says nothing about its leader.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.messages import FetchRequest, FetchSnapshotRequest
from pykraft.quorum.core.plausibility import BoundedRequest, maybe_disbelieve
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.state import CoreState


def refuse_sender(state: CoreState, request: BoundedRequest) -> ErrorCode:
    """The error for a request of another cluster, of an earlier epoch, or an implausible one; else NONE."""
    if request.cluster_id != state.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if maybe_disbelieve(state, request):
        return ErrorCode.INVALID_REQUEST
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def refuse_fetcher(state: CoreState, request: FetchRequest | FetchSnapshotRequest) -> ErrorCode:
    """As :func:`refuse_sender`, and for a request that only the leader of its epoch can handle."""
    error = refuse_sender(state, request)
    if error is not ErrorCode.NONE:
        return error
    if request.epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
