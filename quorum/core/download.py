"""Fetching a snapshot, at the follower (KIP-630): piece by piece, checked whole, then in place of the log.

A leader whose log no longer holds the records that we fetch, or the offset at which our log diverged from it,
names a snapshot. Its file is fetched in pieces; a lost answer costs one piece. A new leader that names the
same snapshot continues where the old one stopped if size and checksum of its file are the same; otherwise the
fetch starts over. The local log is untouched until all of the file is durable and every CRC has been checked.
Installing is safe only while we follow the leader that named the snapshot: in its epoch we acknowledge
nothing that the snapshot does not contain.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core import recovery
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AppendSnapshotChunk,
    CheckSnapshot,
    InstallSnapshot,
)
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from pykraft.quorum.core.reconfig import adopt_voters
from pykraft.quorum.core.roles import Follower
from pykraft.quorum.core.state import CoreState, Download
from pykraft.quorum.core.transitions import maybe_adopt_epoch
from pykraft.quorum.core.voters import VoterSet


def fetch_snapshot_next(state: CoreState, role: Follower, snapshot_id: SnapshotId, now_ms: int) -> None:
    """The leader answered a fetch with a snapshot: fetch it, unless no correct leader would send this."""
    if snapshot_id.end_offset <= state.high_watermark or not 0 < snapshot_id.epoch <= state.epoch:
        role.next_fetch_ms = now_ms + state.config.retry_backoff_ms
        return
    role.snapshot_id = snapshot_id
    if state.download is None or state.download.snapshot_id != snapshot_id:
        _restart_download(state, snapshot_id)


def _restart_download(state: CoreState, snapshot_id: SnapshotId) -> Download:
    state.downloads += 1
    state.download = Download(snapshot_id, state.downloads)
    return state.download


def build_request(state: CoreState, snapshot_id: SnapshotId) -> FetchSnapshotRequest:
    """Ask for the next piece; while the file is being checked, only to stay in contact."""
    download = state.download
    assert download is not None and download.snapshot_id == snapshot_id
    return FetchSnapshotRequest(
        state.cluster_id,
        state.local,
        state.epoch,
        snapshot_id,
        download.position,
        state.config.fetch_snapshot_max_bytes,
    )


def handle_fetch_snapshot_response(
    state: CoreState, correlation_id: int, response: FetchSnapshotResponse, now_ms: int
) -> None:
    role = state.role
    if not isinstance(role, Follower) or role.fetch_correlation != correlation_id:
        return
    role.fetch_correlation = None
    if maybe_adopt_epoch(state, response, now_ms):
        return
    role.next_fetch_ms = now_ms + state.config.retry_backoff_ms
    if response.epoch != state.epoch or response.replica.id != role.leader_id:
        return
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        role.record_contact(now_ms)
        role.snapshot_id = state.download = None  # an ordinary fetch learns which snapshot there is now
        return
    if response.error is not ErrorCode.NONE or response.snapshot_id != role.snapshot_id:
        return
    role.record_contact(now_ms)
    download = state.download
    assert download is not None and download.snapshot_id == role.snapshot_id
    if download.is_checking:
        role.next_fetch_ms = now_ms + state.config.fetch_wait_ms
    elif response.position == download.position:
        _take(state, role, download, response, now_ms)


def _take(
    state: CoreState, role: Follower, download: Download, response: FetchSnapshotResponse, now_ms: int
) -> None:
    snapshot_id = download.snapshot_id
    if download.size_bytes is not None and (download.size_bytes, download.checksum) != (
        response.size_bytes,
        response.checksum,
    ):
        _restart_download(state, snapshot_id)  # another file of this id: its pieces do not fit ours
        return
    download.size_bytes, download.checksum = response.size_bytes, response.checksum
    if response.data:
        state.emit(AppendSnapshotChunk(snapshot_id, download.position, response.data))
        download.position += len(response.data)
        role.next_fetch_ms = now_ms
    if download.position > response.size_bytes:
        _restart_download(state, snapshot_id)
    elif download.position == response.size_bytes:
        download.is_checking = True
        role.next_fetch_ms = now_ms + state.config.fetch_wait_ms
        state.emit(CheckSnapshot(snapshot_id, download.attempt, response.checksum))


def handle_checked(
    state: CoreState, attempt: int, is_intact: bool, voters: VoterSet | None, now_ms: int
) -> None:
    """Install it if it is still wanted; otherwise it is kept in case the next leader names it again."""
    download, role = state.download, state.role
    if download is None or download.attempt != attempt:
        return
    download.is_checking = False
    if not is_intact:
        _restart_download(state, download.snapshot_id)
    elif isinstance(role, Follower) and role.snapshot_id == download.snapshot_id:
        _install(state, role, download.snapshot_id, voters, now_ms)


def _install(
    state: CoreState, role: Follower, snapshot_id: SnapshotId, voters: VoterSet | None, now_ms: int
) -> None:
    assert snapshot_id.end_offset > state.high_watermark, "a snapshot of what is committed here already"
    state.log.restart_at(snapshot_id)
    state.snapshot = snapshot_id
    state.download = role.snapshot_id = None
    role.next_fetch_ms = now_ms
    state.emit(InstallSnapshot(snapshot_id))
    recovery.handle_flushed(state)
    state.high_watermark = snapshot_id.end_offset
    state.emit(AdvanceHighWatermark(snapshot_id.end_offset))
    state.history.replace(voters)
    adopt_voters(state, now_ms)
