"""Our own snapshots in the core: which part of the log they replace, and serving them to others (KIP-630)."""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.effects import AdvanceLogStart, Reply, ReplyWithSnapshot
from pykraft.quorum.core.fetch import progress_of
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from pykraft.quorum.core.refusals import refuse_fetcher
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.state import CoreState


def note_snapshot(state: CoreState, snapshot_id: SnapshotId) -> None:
    """Ours is durable. A newer one may have been fetched meanwhile."""
    assert snapshot_id.end_offset <= state.high_watermark, "a snapshot of what is not committed"
    if state.snapshot is None or snapshot_id.end_offset > state.snapshot.end_offset:
        state.snapshot = snapshot_id


def advance_log_start(state: CoreState, snapshot_id: SnapshotId) -> None:
    """Replicas that still need what is deleted now will be given a snapshot."""
    newest = state.snapshot
    assert newest is not None and snapshot_id.end_offset <= newest.end_offset, "no snapshot replaces the log"
    if snapshot_id.end_offset > state.log.start_offset:
        state.log.advance_start(snapshot_id)
        state.history.forget_before(snapshot_id.end_offset)
        state.emit(AdvanceLogStart(snapshot_id))


def handle_fetch_snapshot_request(
    state: CoreState, token: int, request: FetchSnapshotRequest, now_ms: int
) -> None:
    """Answer with a piece of the file. The request counts as contact: fetching a snapshot may take long."""
    error = _refusal(state, request)
    response = FetchSnapshotResponse(
        state.cluster_id,
        state.local,
        error,
        state.epoch,
        state.leader_id,
        request.snapshot_id,
        request.position,
        leader_address=state.leader_address,
    )
    if error is not ErrorCode.NONE:
        state.emit(Reply(token, response))
        return
    role = state.role
    assert isinstance(role, Leader)
    progress_of(state, role, request.replica, now_ms).record_contact(now_ms)
    max_bytes = min(request.max_bytes, state.config.fetch_snapshot_max_bytes)
    state.emit(ReplyWithSnapshot(token, response, max_bytes))


def _refusal(state: CoreState, request: FetchSnapshotRequest) -> ErrorCode:
    error = refuse_fetcher(state, request)
    if error is not ErrorCode.NONE:
        return error
    if request.max_bytes < 1 or request.replica.id == state.local.id:
        return ErrorCode.INVALID_REQUEST
    if request.snapshot_id.end_offset < 1:  # the bootstrap checkpoint is not for others
        return ErrorCode.SNAPSHOT_NOT_FOUND
    return ErrorCode.NONE
