"""Changes of the voter set, one voter at a time (KIP-853; Raft thesis, chapter 4).

A voter set is in force on a replica from the moment its record is appended there, and until it is truncated.
Two consecutive sets differ in one voter, so that any majority of the one meets any majority of the other.
Safety depends on that alone, and on two rules of a leader: no change while an earlier one is uncommitted, and
none before a record of its own epoch is committed. Otherwise one leader could leave a set uncommitted,
another replace it without knowing it, and the first set come back.

The request waits at the leader until the change is committed, is refused, or times out.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core.effects import AppendVoters, FlushLog, Reply, VotersChanged
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from pykraft.quorum.core.progress import FetchProgress
from pykraft.quorum.core.roles import Follower, Leader, VoterChange
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet

MAX_WAITING = 16
MAX_WAIT_MS = 60_000
"""The longest wait of a request: no caller may occupy a place for days."""

# --- the set in force ---------------------------------------------------------------------------------------


def adopt_voters(state: CoreState, now_ms: int) -> None:
    """The history has changed: its newest set is in force from now on."""
    voters = state.history.current
    if voters == state.voters:
        return
    state.voters = voters
    state.is_voter = voters.is_voter(state.local)
    if isinstance(state.role, Leader):
        _follow_progress_of(state, state.role, now_ms)
    state.emit(VotersChanged(voters))


def _follow_progress_of(state: CoreState, role: Leader, now_ms: int) -> None:
    """The leader's knowledge of a replica moves between voters and observers with the replica."""
    others = [voter.key for voter in state.voters if voter.key.id != state.local.id]
    for progress in list(role.progress.values()):
        if not state.voters.is_voter(progress.key):
            del role.progress[progress.key.id]
            role.begin_at_ms.pop(progress.key.id, None)
            role.observers[progress.key] = progress
    for key in others:
        if key.id not in role.progress:
            known = role.observers.pop(key, None)
            role.progress[key.id] = known or FetchProgress(
                key, 0, now_ms, role.elected_at_ms, state.log.end_offset
            )
            role.begin_at_ms[key.id] = now_ms


def append_voters(
    state: CoreState, epoch: int, voters: VoterSet, now_ms: int, *, with_kraft_version: bool = False
) -> int:
    """The leader appends a set, which is in force at once; the offset of its batch."""
    log = state.log
    offset = log.end_offset
    end_offset = offset + (2 if with_kraft_version else 1)
    state.emit(AppendVoters(offset, end_offset, epoch, voters))
    log.append(end_offset, epoch)
    state.history.append(offset, voters)
    state.emit(FlushLog(log.end_offset, log.generation))
    adopt_voters(state, now_ms)
    return offset


def append_first_voters(state: CoreState, now_ms: int) -> None:
    """The first leader of a dynamic quorum writes its voters, known from formatting, into the log."""
    if state.voters.is_dynamic and not state.history.is_shared:
        append_voters(state, state.epoch, _with_own_address(state), now_ms, with_kraft_version=True)


def _with_own_address(state: CoreState) -> VoterSet:
    if state.is_voter and state.local_address is not None:
        return state.voters.with_voter(Voter(state.local, state.local_address))
    return state.voters


# --- at the leader ------------------------------------------------------------------------------------------


def handle_change_request(state: CoreState, token: int, request: VoterChangeRequest, now_ms: int) -> None:
    """Accept the request, or refuse it at once; :func:`run_changes` does the rest."""
    role = state.role
    if request.cluster_id != state.cluster_id:
        _answer(state, token, ErrorCode.INCONSISTENT_CLUSTER_ID, "the request is for another cluster")
    elif not isinstance(role, Leader):
        _answer(state, token, ErrorCode.NOT_CONTROLLER, "this replica does not lead the quorum")
    elif not state.voters.is_dynamic:
        message = "the voters are fixed by controller.quorum.voters: first upgrade kraft.version to 1"
        _answer(state, token, ErrorCode.UNSUPPORTED_VERSION, message)
    elif len(role.changes) >= MAX_WAITING:
        _answer(state, token, ErrorCode.REQUEST_TIMED_OUT, "too many changes of the voter set are waiting")
    else:
        wait_ms = min(max(request.timeout_ms, 0), MAX_WAIT_MS)
        role.changes.append(VoterChange(token, request, now_ms + wait_ms))


def run_changes(state: CoreState, role: Leader, now_ms: int) -> bool:
    """Continue every change that can continue; True if a voter set was appended."""
    before = state.history.current_offset
    if role.changes:
        role.changes = [change for change in role.changes if not _carry_on(state, role, change, now_ms)]
    if _moved(state) and _may_change(state, role):
        append_voters(state, state.epoch, _with_own_address(state), now_ms)
    return state.history.current_offset != before


def changes_deadline_ms(role: Leader) -> int | None:
    times = [change.deadline_ms for change in role.changes]
    times += [change.probe_at_ms for change in role.changes if change.probe_at_ms is not None]
    return min(times, default=None)


def refuse_changes(state: CoreState, leader: Leader) -> None:
    """A leader that stops leading cannot know their outcome."""
    for change in leader.changes:
        message = "leadership was lost before the change was committed; it may be made or not"
        _answer(state, change.token, ErrorCode.NOT_CONTROLLER, message)
    leader.changes = []


def forget_change(role: Leader, token: int) -> None:
    """The caller has hung up. An appended change stays; any other is dropped."""
    role.changes = [change for change in role.changes if change.token != token]


def _may_change(state: CoreState, role: Leader) -> bool:
    """No change is under way, a record of our own epoch is committed, and we are not about to resign."""
    first_offset = max(role.epoch_start_offset, state.history.current_offset)
    return state.is_voter and state.voters.is_dynamic and state.high_watermark > first_offset


def _moved(state: CoreState) -> bool:
    """Whether the set holds an address for us that is not our current one."""
    entry = state.voters.get(state.local.id)
    return entry is not None and state.local_address not in (None, entry.address)


def _carry_on(state: CoreState, role: Leader, change: VoterChange, now_ms: int) -> bool:
    """One step of one change; True once it has been answered."""
    if change.offset is not None:
        change.waits_for = "the change is appended, and not committed yet"
        if state.high_watermark > change.offset:
            return _answer(state, change.token, ErrorCode.NONE)
    elif not _may_change(state, role):
        # Nothing can be probed until that is committed, so no timer is needed.
        change.probe_at_ms = None
        change.waits_for = "an earlier change, or the first record of the leader's epoch, is not committed"
    else:
        error, message = _objection(state, change.request)
        if error is not ErrorCode.NONE:
            return _answer(state, change.token, error, message)
        if _is_ready(state, role, change, now_ms) and _can_elect(state, role, change, now_ms):
            return _make(state, change, now_ms)
    if now_ms >= change.deadline_ms:
        return _answer(state, change.token, ErrorCode.REQUEST_TIMED_OUT, change.waits_for)
    return False


def _objection(state: CoreState, request: VoterChangeRequest) -> tuple[ErrorCode, str]:
    """Why the current set does not allow the change; None if it does."""
    voters = state.voters
    match request:
        case AddRaftVoterRequest(_, voter):
            if voter.key.directory_id == ZERO_UUID:
                return ErrorCode.INVALID_REQUEST, f"voter {voter.key} has no directory id"
            if voters.get(voter.key.id) is not None:
                return ErrorCode.DUPLICATE_VOTER, f"{voter.key.id} is a voter already: {voters}"
        case RemoveRaftVoterRequest(_, key):
            if not _is_in(voters, key):
                return ErrorCode.VOTER_NOT_FOUND, f"{key} is not a voter: {voters}"
            if len(voters) == 1:
                return ErrorCode.INVALID_REQUEST, f"{key} is the last voter"
        case UpdateRaftVoterRequest(_, voter):
            if not _is_in(voters, voter.key):
                return ErrorCode.VOTER_NOT_FOUND, f"{voter.key} is not a voter: {voters}"
    return ErrorCode.NONE, ""


def _is_in(voters: VoterSet, key: ReplicaKey) -> bool:
    """With exactly this directory: it may not be left open here."""
    voter = voters.get(key.id)
    return voter is not None and voter.key == key


def _is_ready(state: CoreState, role: Leader, change: VoterChange, now_ms: int) -> bool:
    """A new voter must answer and hold what the leader holds; one that is replaced must be silent."""
    if isinstance(change.request, RemoveRaftVoterRequest) and change.request.only_if_silent:
        return _is_silent(state, role, change, change.request.voter, now_ms)
    if not isinstance(change.request, AddRaftVoterRequest):
        return True
    voter = change.request.voter
    if not change.is_reached:
        change.waits_for = f"no answer from {voter.key} at {voter.address}"
        if change.probe_correlation is None and (change.probe_at_ms or 0) <= now_ms:
            change.probe_at_ms = None
            request = BeginQuorumEpochRequest(
                state.cluster_id, state.local, voter.key, state.epoch, state.leader_address
            )
            change.probe_correlation = state.send(voter.key, voter.address, request)
        return False
    progress = role.observers.get(voter.key)
    change.waits_for = f"{voter.key} has not caught up with the log"
    oldest_ms = max(now_ms - state.config.fetch_timeout_ms, role.elected_at_ms + 1)
    return (
        progress is not None
        and progress.end_offset > role.epoch_start_offset
        and min(progress.last_fetch_ms, progress.last_caught_up_ms) >= oldest_ms
    )


def _can_elect(state: CoreState, role: Leader, change: VoterChange, now_ms: int) -> bool:
    """Whether a majority of the changed set votes, as far as we know from recent fetches.

    If not, and we stop before the change is committed, no leader can ever be elected again: a recovering
    voter needs a leader first, and we refuse our vote to all that lack the change. A silent voter may be
    about to say that it recovers. (Without a majority that fetches, the change would not be committed
    anyway.)
    """
    voters = _changed(state.voters, change.request)
    change.waits_for = "too few voters fetch and have lost nothing: the changed set might elect no leader"
    oldest_ms = now_ms - state.config.fetch_timeout_ms
    known = [*role.progress.values(), *role.observers.values()]
    voting = {it.key for it in known if it.end_offset > 0 and it.last_fetch_ms > oldest_ms} | {state.local}
    return sum(voter.key in voting for voter in voters) >= voters.majority


def _is_silent(state: CoreState, role: Leader, change: VoterChange, key: ReplicaKey, now_ms: int) -> bool:
    """Whether a voter of another directory counts as removed: two with one id could remove each other."""
    change.waits_for = f"{key} is alive: is its node id used twice?"
    progress = role.progress.get(key.id)
    return progress is not None and now_ms - progress.last_fetch_ms >= state.config.fetch_timeout_ms


def _changed(voters: VoterSet, request: VoterChangeRequest) -> VoterSet:
    match request:
        case AddRaftVoterRequest(_, voter) | UpdateRaftVoterRequest(_, voter):
            return voters.with_voter(voter)
        case RemoveRaftVoterRequest(voter=key):
            return voters.without(key.id)


def _make(state: CoreState, change: VoterChange, now_ms: int) -> bool:
    """Append the changed set; True if the answer does not wait for the commit."""
    voters = _changed(state.voters, change.request)
    if voters == state.voters:
        return _answer(state, change.token, ErrorCode.NONE)
    change.offset = append_voters(state, state.epoch, voters, now_ms)
    if isinstance(change.request, AddRaftVoterRequest) and not change.request.ack_when_committed:
        return _answer(state, change.token, ErrorCode.NONE)
    return False


def handle_probe_response(
    state: CoreState, role: Leader, correlation_id: int, response: BeginQuorumEpochResponse, now_ms: int
) -> None:
    """The replica to be added may have answered: it has if there is no error."""
    change = _probed(role, correlation_id)
    if change is not None:
        change.probe_correlation = None
        change.is_reached = response.error is ErrorCode.NONE
        change.probe_at_ms = None if change.is_reached else now_ms + state.config.retry_backoff_ms


def handle_probe_failure(state: CoreState, role: Leader, correlation_id: int, now_ms: int) -> None:
    change = _probed(role, correlation_id)
    if change is not None:
        change.probe_correlation = None
        change.probe_at_ms = now_ms + 5 * state.config.retry_backoff_ms


def _probed(role: Leader, correlation_id: int) -> VoterChange | None:
    return next((c for c in role.changes if c.probe_correlation == correlation_id), None)


def _answer(state: CoreState, token: int, error: ErrorCode, message: str = "") -> bool:
    response = VoterChangeResponse(
        state.cluster_id, state.local, error, state.epoch, state.leader_id, state.leader_address, message
    )
    state.emit(Reply(token, response))
    return True


# --- at a follower ------------------------------------------------------------------------------------------


def maybe_ask_for_change(state: CoreState, role: Follower, now_ms: int) -> None:
    """Have the leader correct our entry: our address, and (if so configured) that we vote at all.

    Only once the log has caught up: before that, the set we see may be out of date.
    """
    if role.change_correlation is not None or now_ms < role.change_at_ms:
        return
    if not 0 < role.leader_high_watermark <= state.log.flushed_offset:
        return
    request = _wanted_change(state)
    if request is not None and role.leader_address is not None:
        role.change_correlation = state.send(ReplicaKey(role.leader_id), role.leader_address, request)


def change_due_ms(state: CoreState, role: Follower) -> int | None:
    """When to ask (again), None if there is nothing to ask for now."""
    if role.change_correlation is not None or role.leader_address is None or _wanted_change(state) is None:
        return None
    if not 0 < role.leader_high_watermark <= state.log.flushed_offset:
        return None
    return role.change_at_ms


def _wanted_change(state: CoreState) -> VoterChangeRequest | None:
    voters, local, address = state.voters, state.local, state.local_address
    if address is None or not voters.is_dynamic:
        return None
    timeout_ms = state.config.request_timeout_ms // 2
    entry = voters.get(local.id)
    if entry is not None and entry.key == local:
        voter = Voter(local, address)
        return UpdateRaftVoterRequest(state.cluster_id, voter, timeout_ms) if _moved(state) else None
    if not state.config.auto_join:
        return None
    if entry is not None:
        # Our disk was replaced: the set still holds the old directory under our id.
        return RemoveRaftVoterRequest(state.cluster_id, entry.key, timeout_ms, only_if_silent=True)
    # The leader needs our fetches to commit the change: its answer must not wait for that.
    return AddRaftVoterRequest(state.cluster_id, Voter(local, address), timeout_ms, ack_when_committed=False)


def change_was_answered(state: CoreState, correlation_id: int, now_ms: int) -> None:
    """Done, refused or lost: if the set does not show the change in time, we ask again."""
    role = state.role
    if isinstance(role, Follower) and role.change_correlation == correlation_id:
        role.change_correlation = None
        role.change_at_ms = now_ms + max(state.config.fetch_timeout_ms // 2, 1)
