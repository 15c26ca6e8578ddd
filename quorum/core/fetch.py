"""Fetch: replication by pulling, and the high watermark (KIP-595; Raft §5.3 and §5.4.2).

At the leader: a fetch names the fetcher's epoch and the epoch of its last record. If the leader's log does
not hold that epoch up to that offset, the answer is where the two diverge; otherwise the fetch acknowledges
everything before its offset. A fetch of what the log no longer holds is answered with a snapshot. The high
watermark is what a majority of voters has flushed, and moves only to offsets of the leader's own epoch.
At the follower: the fetch offset is the flushed log end, so a fetch never runs ahead of fsync. The high
watermark is the leader's, capped by what is flushed here, and nothing below it is ever truncated.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core import download, recovery
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AppendFetched,
    AppendProposal,
    FlushLog,
    PeerDisbelieved,
    Reply,
    ReplyWithRecords,
    TruncateTo,
)
from pykraft.quorum.core.kraft_upgrade import build_announcement
from pykraft.quorum.core.log_shape import BEGINNING, SnapshotId
from pykraft.quorum.core.messages import DivergingEpoch, FetchRequest, FetchResponse
from pykraft.quorum.core.progress import FetchProgress, majority_reached
from pykraft.quorum.core.reconfig import adopt_voters
from pykraft.quorum.core.refusals import refuse_fetcher
from pykraft.quorum.core.roles import Follower, Leader, ParkedFetch, Unattached
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.transitions import maybe_adopt_epoch, transition_to_unattached
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.address import Address

# --- at the leader -----------------------------------------------------------------------------------


def handle_fetch_request(state: CoreState, token: int, request: FetchRequest, now_ms: int) -> None:
    error = _refusal(state, request)
    if error is ErrorCode.UNKNOWN_LEADER_EPOCH and isinstance(state.role, Leader):
        # A replica in a later epoch never follows us. A voter would tell us so; an observer would stay away.
        transition_to_unattached(state, request.epoch, now_ms)
        error = _refusal(state, request)
    if error is not ErrorCode.NONE:
        state.emit(Reply(token, _response(state, error)))
        return
    role = state.role
    assert isinstance(role, Leader)
    _release_parked(state, role, request.replica)
    progress = progress_of(state, role, request.replica, now_ms)
    progress.announced = request.announced
    is_believed = progress.is_believed(request.losses, now_ms, is_recovering=request.is_recovering)
    if _is_before_log_start(state.log.start, request):
        progress.record_contact(now_ms)
        assert state.snapshot is not None, "the log was shortened and no snapshot replaces it"
        state.emit(Reply(token, _response(state, snapshot_id=state.snapshot)))
        return
    epoch, end_offset = state.log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch != request.last_fetched_epoch or end_offset < request.fetch_offset:
        progress.record_contact(now_ms)
        state.emit(Reply(token, _response(state, diverging=DivergingEpoch(epoch, end_offset))))
        return
    if is_believed:
        progress.record_fetch(request.fetch_offset, state.log.end_offset, now_ms)
    else:
        progress.record_contact(now_ms)
    maybe_advance_leader_high_watermark(state, role)
    parked = ParkedFetch(
        token,
        request.replica,
        request.fetch_offset,
        request.high_watermark,
        min(request.max_bytes, state.config.fetch_max_bytes),
        now_ms + min(request.max_wait_ms, state.config.fetch_wait_ms),
    )
    if not _maybe_answer(state, parked):
        role.parked[request.replica] = parked


def _refusal(state: CoreState, request: FetchRequest) -> ErrorCode:
    error = refuse_fetcher(state, request)
    if error is not ErrorCode.NONE:
        return error
    if not 0 <= request.last_fetched_epoch <= request.epoch:
        return ErrorCode.INVALID_REQUEST
    if request.losses < request.is_recovering:
        return ErrorCode.INVALID_REQUEST
    if request.replica.id == state.local.id or (request.fetch_offset > 0) != (request.last_fetched_epoch > 0):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _is_before_log_start(start: SnapshotId, request: FetchRequest) -> bool:
    """Whether the fetcher's log ends, or diverges from ours, before our log starts.

    Our log knows only epochs from that of its start on. A replica that has the same epoch at the start, or a
    later one beyond it, shares everything before the start.
    """
    if start == BEGINNING:
        return False
    if request.fetch_offset == start.end_offset:
        return request.last_fetched_epoch != start.epoch
    return request.fetch_offset < start.end_offset or request.last_fetched_epoch < start.epoch


def progress_of(state: CoreState, role: Leader, key: ReplicaKey, now_ms: int) -> FetchProgress:
    """The progress of a replica that sends a request, voter or observer."""
    if state.voters.is_voter(key):
        return _progress_of_voter(role, key)
    progress = role.observers.get(key)
    if progress is None:
        role.forget_silent_observers(now_ms)
        end_offset = state.log.end_offset
        progress = role.observers[key] = FetchProgress(key, 0, now_ms, role.elected_at_ms, end_offset)
    return progress


def _progress_of_voter(role: Leader, key: ReplicaKey) -> FetchProgress:
    """A voter given by id alone shows its directory by fetching; another disk under its id starts empty."""
    progress = role.progress[key.id]
    if key.directory_id not in (ZERO_UUID, progress.key.directory_id):
        if progress.key.directory_id != ZERO_UUID:
            last_ms = progress.last_fetch_ms
            progress = role.progress[key.id] = FetchProgress(key, 0, last_ms, role.elected_at_ms)
        progress.key = key
    return progress


def _release_parked(state: CoreState, role: Leader, replica: ReplicaKey) -> None:
    """A replica that fetches again has given up its earlier fetch."""
    earlier = role.parked.pop(replica, None)
    if earlier is not None:
        state.emit(Reply(earlier.token, _response(state)))


def _maybe_answer(state: CoreState, parked: ParkedFetch) -> bool:
    """Answer with records, or with a high watermark that is new to the fetcher; otherwise wait."""
    log = state.log
    if parked.fetch_offset < log.end_offset:
        response = _response(state)
        state.emit(
            ReplyWithRecords(parked.token, response, parked.fetch_offset, log.end_offset, parked.max_bytes)
        )
        return True
    if min(state.high_watermark, parked.fetch_offset) > parked.high_watermark:
        state.emit(Reply(parked.token, _response(state)))
        return True
    return False


def _answer_parked(state: CoreState, role: Leader) -> None:
    for key in [key for key, parked in role.parked.items() if _maybe_answer(state, parked)]:
        del role.parked[key]


def handle_appended_voters(state: CoreState, role: Leader) -> None:
    """Waiting followers are answered at once, and a smaller majority may already have been reached."""
    _answer_parked(state, role)
    maybe_advance_leader_high_watermark(state, role)


def expire_parked(state: CoreState, role: Leader, now_ms: int) -> None:
    for key in [key for key, parked in role.parked.items() if parked.deadline_ms <= now_ms]:
        state.emit(Reply(role.parked.pop(key).token, _response(state)))


def forget_parked(role: Leader, token: int) -> None:
    """The replica has closed its call: its place is free."""
    for key in [key for key, parked in role.parked.items() if parked.token == token]:
        del role.parked[key]


def handle_proposal(state: CoreState, epoch: int, record_count: int, payload: object) -> None:
    """Append one batch to our own log; waiting followers are answered at once."""
    role, log = state.role, state.log
    assert isinstance(role, Leader) and epoch == state.epoch, "proposed to a replica that does not lead"
    base_offset = log.end_offset
    state.emit(AppendProposal(base_offset, base_offset + record_count, epoch, payload))
    log.append(base_offset + record_count, epoch)
    state.emit(FlushLog(log.end_offset, log.generation))
    _answer_parked(state, role)


def maybe_advance_leader_high_watermark(state: CoreState, role: Leader) -> None:
    """Commit what a majority has flushed, but only up to and including records of our own epoch.

    The majority is one of the newest voter set, committed or not; we count only if we are in it.
    Records of earlier epochs commit with the first of ours that covers them, never by count alone: a
    majority may hold one and yet see it replaced (Raft figure 8).
    """
    offsets = [p.end_offset for p in role.progress.values()]
    if state.is_voter:
        offsets.append(state.log.flushed_offset)
    reached = majority_reached(offsets, state.voters.majority)
    if reached > state.high_watermark and reached > role.epoch_start_offset:
        state.high_watermark = reached
        state.emit(AdvanceHighWatermark(reached))
        _answer_parked(state, role)


def _response(
    state: CoreState,
    error: ErrorCode = ErrorCode.NONE,
    diverging: DivergingEpoch | None = None,
    snapshot_id: SnapshotId | None = None,
) -> FetchResponse:
    return FetchResponse(
        state.cluster_id,
        state.local,
        error,
        state.epoch,
        state.leader_id,
        state.high_watermark,
        diverging,
        leader_address=state.leader_address,
        snapshot_id=snapshot_id,
    )


# --- at the follower ---------------------------------------------------------------------------------


def maybe_fetch(state: CoreState, role: Follower | Unattached, now_ms: int) -> None:
    """Fetch more, unless a fetch is open, a back-off runs, or appended records await their flush."""
    log = state.log
    if (
        role.fetch_correlation is not None
        or now_ms < role.next_fetch_ms
        or log.flushed_offset < log.end_offset
    ):
        return
    target = _fetch_target(state, role, now_ms)
    if target is None:
        role.next_fetch_ms = now_ms + state.config.fetch_timeout_ms
        return
    if isinstance(role, Follower) and role.snapshot_id is not None:
        role.fetch_correlation = state.send(*target, download.build_request(state, role.snapshot_id))
        return
    role.fetch_correlation = state.send(
        *target,
        FetchRequest(
            cluster_id=state.cluster_id,
            replica=state.local,
            epoch=state.epoch,
            fetch_offset=log.flushed_offset,
            last_fetched_epoch=log.last_epoch,
            high_watermark=state.high_watermark,
            max_wait_ms=state.config.fetch_wait_ms,
            max_bytes=state.config.fetch_max_bytes,
            is_recovering=state.recovery is not None,
            losses=state.losses,
            announced=build_announcement(state),
        ),
    )


def _fetch_target(
    state: CoreState, role: Follower | Unattached, now_ms: int
) -> tuple[ReplicaKey, Address] | None:
    """Where to fetch from: the leader; a replica that does not vote may also ask any node if it knows no
    leader, or has lost it. None if no node is known.

    A leader is addressed by its id alone: whichever replica answers as the leader of this epoch was elected
    in it, and our voter set may still show the disk it had before.
    """
    targets = []
    if isinstance(role, Follower) and state.leader_address is not None:
        leader = ReplicaKey(role.leader_id), state.leader_address
        if state.takes_part or now_ms < role.fetch_deadline_ms:
            return leader
        targets.append(leader)
    targets += [(voter.key, voter.address) for voter in state.voters if voter.key.id != state.local.id]
    known = {address for _, address in targets} | {state.local_address}
    for number, address in enumerate(state.config.bootstrap_servers):
        if address not in known:
            targets.append((ReplicaKey(-1 - number), address))
    return targets[state.rng.randrange(len(targets))] if targets else None


def handle_fetch_response(
    state: CoreState, correlation_id: int, response: FetchResponse, now_ms: int
) -> None:
    role = state.role
    if not isinstance(role, Follower | Unattached) or role.fetch_correlation != correlation_id:
        return
    role.fetch_correlation = None
    if maybe_adopt_epoch(state, response, now_ms):
        return
    is_from_leader = isinstance(role, Follower) and response.replica.id == role.leader_id
    if response.error is not ErrorCode.NONE or response.epoch != state.epoch or not is_from_leader:
        role.next_fetch_ms = now_ms + state.config.retry_backoff_ms
        if isinstance(role, Follower) and (response.epoch, response.leader_id) == (
            state.epoch,
            role.leader_id,
        ):
            # An observer whose leader does not answer asks others: it may know an old address.
            role.leader_address = response.leader_address or role.leader_address
        return
    assert isinstance(role, Follower)
    role.record_contact(now_ms)
    if response.snapshot_id is not None:
        download.fetch_snapshot_next(state, role, response.snapshot_id, now_ms)
        return
    if response.diverging is not None:
        if not _truncate(state, response.diverging, now_ms):
            role.next_fetch_ms = now_ms + state.config.retry_backoff_ms
        return
    if response.batches and not _is_contiguous(state, response):
        role.next_fetch_ms = now_ms + state.config.retry_backoff_ms
        return
    if response.batches:
        _append(state, response, now_ms)
    else:
        recovery.handle_caught_up(state)
    role.leader_high_watermark = max(role.leader_high_watermark, response.high_watermark)
    advance_follower_high_watermark(state, role)


def _is_contiguous(state: CoreState, response: FetchResponse) -> bool:
    """Whether the batches continue our log, in epochs that do not fall. Otherwise they are not used."""
    offset, epoch = state.log.end_offset, state.log.last_epoch
    for batch in response.batches:
        if batch.base_offset != offset or not epoch <= batch.epoch <= state.epoch:
            return False
        if batch.end_offset <= offset:
            return False
        offset, epoch = batch.end_offset, batch.epoch
    return True


def _append(state: CoreState, response: FetchResponse, now_ms: int) -> None:
    log = state.log
    state.emit(AppendFetched(response.batches, response.payload))
    for batch in response.batches:
        log.append(batch.end_offset, batch.epoch)
        if batch.voters is not None:
            state.history.append(batch.base_offset, batch.voters)
    adopt_voters(state, now_ms)
    state.emit(FlushLog(log.end_offset, log.generation))


def _truncate(state: CoreState, diverging: DivergingEpoch, now_ms: int) -> bool:
    """Truncate to where our log may still agree with the leader's; the next fetch finds out if it does."""
    log = state.log
    epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
    if epoch == diverging.epoch:
        end_offset = min(end_offset, diverging.end_offset)
    if end_offset < state.high_watermark:
        known = f"offsets below {state.high_watermark} are committed"
        state.emit(PeerDisbelieved(f"a leader would have us truncate to {end_offset}, but {known}"))
        return False
    if end_offset >= log.end_offset:
        return False  # no correct leader sends this
    log.truncate(end_offset)
    state.emit(TruncateTo(end_offset))
    state.history.truncate(end_offset)
    adopt_voters(state, now_ms)
    if log.flushed_offset < end_offset:
        state.emit(FlushLog(end_offset, log.generation))
    return True


def advance_follower_high_watermark(state: CoreState, role: Follower) -> None:
    """Follow the leader's high watermark, but never past what is flushed here."""
    known = min(role.leader_high_watermark, state.log.flushed_offset)
    if known > state.high_watermark:
        state.high_watermark = known
        state.emit(AdvanceHighWatermark(known))


def handle_fetch_failure(state: CoreState, correlation_id: int, now_ms: int) -> None:
    role = state.role
    if isinstance(role, Follower | Unattached) and role.fetch_correlation == correlation_id:
        role.fetch_correlation = None
        role.next_fetch_ms = now_ms + state.config.retry_backoff_ms
