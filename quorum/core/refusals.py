"""Why a request of a replica is refused whatever it asks for.

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
    """A request of another cluster, one that nobody can mean, or one of an epoch that is over; else NONE."""
    if request.cluster_id != state.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if maybe_disbelieve(state, request):
        return ErrorCode.INVALID_REQUEST
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def refuse_fetcher(state: CoreState, request: FetchRequest | FetchSnapshotRequest) -> ErrorCode:
    """As :func:`refuse_sender`, and whatever only the leader of the request's epoch can answer."""
    error = refuse_sender(state, request)
    if error is not ErrorCode.NONE:
        return error
    if request.epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
