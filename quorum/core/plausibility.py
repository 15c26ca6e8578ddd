"""Bounds on the epochs, offsets and ids that a peer may send, checked before anything of it is written.

Without authentication any client of the controllers' port may send requests. An epoch in a message is written
into quorum-state and never falls; one Vote in epoch 2^31 - 1 would end all elections forever. So an epoch
counts only if it is not too far ahead of ours:

- never beyond :data:`MAX_EPOCH`, half of what an int32 holds. No replica starts an election beyond it
  either, so that nothing overflows;
- at most :data:`MOST_AHEAD` ahead, and rises in a row may add up to that plus one epoch a millisecond
  (:class:`EpochAllowance`).

**Safety.** A request beyond the bounds is answered with INVALID_REQUEST, and an answer beyond them counts as
lost. Raft is safe whichever messages are lost, pre-votes, observers and voter changes included, so nothing
more need be shown. A vote that is refused has not been cast.

**Liveness.** Elections take at least the time of some messages and of a flush, and each raises the epoch by
one; so no regular history comes near one epoch a millisecond. A replica follows as far as :data:`MOST_AHEAD`
epochs in one step: days of an election a second. If it was away for even longer, it has no leader,
and without one the allowance keeps growing by a thousand epochs a second: it takes part again after a
thousandth of the time that it missed at that pace. While there is a leader the allowance does not grow.

**What remains.** A persistent stranger can still depose leaders, and drive a replica ahead by a thousand
epochs a second; to :data:`MAX_EPOCH` that takes twelve days without a pause. A replica that alone was driven
further than the others accept is excluded as long as they have a leader, and logs that; format it again, like
one with a replaced disk.
"""

from __future__ import annotations

from typing import Final

from pykraft.quorum.core.effects import PeerDisbelieved
from pykraft.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
    VoteRequest,
)
from pykraft.quorum.core.state import CoreState

MAX_EPOCH: Final = 1 << 30
MAX_OFFSET: Final = 1 << 62
MOST_SUCCESSORS: Final = 1000

BoundedRequest = (
    VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
)


class EpochsExhaustedError(Exception):
    """The last epoch has been reached: no further leader can be elected."""


def next_epoch(state: CoreState) -> int:
    """The epoch of the next election. :class:`EpochsExhaustedError` if there is none."""
    if state.epoch >= MAX_EPOCH:
        raise EpochsExhaustedError(
            f"epoch {state.epoch} is the last one: no election can follow it. No series of elections gets"
            " here, but a foreign client of the controllers' listener can. Restore the metadata directories"
        )
    return state.epoch + 1


def maybe_disbelieve(state: CoreState, message: BoundedRequest | Response) -> bool:
    """Whether the message is impossible; if so, it is logged for the operator."""
    reason = _objection(state, message)
    if reason is not None:
        state.emit(PeerDisbelieved(reason))
    return reason is not None


def _objection(state: CoreState, message: BoundedRequest | Response) -> str | None:
    what, epoch = type(message).__name__, message.epoch
    if epoch > MAX_EPOCH or epoch - state.epoch > max(state.epoch_allowance.left, 0):
        return f"a {what} is of epoch {epoch}, ours is {state.epoch}"
    if min(_ids(message), default=0) < 0:
        return f"a {what} names a negative node id"
    offsets = _offsets(message)
    if offsets and not 0 <= min(offsets) <= max(offsets) <= MAX_OFFSET:
        return f"a {what} names offsets {', '.join(map(str, offsets))}"
    if isinstance(message, EndQuorumEpochRequest) and len(message.preferred_successors) > MOST_SUCCESSORS:
        return f"a {what} names {len(message.preferred_successors)} successors"
    return None


def _ids(message: BoundedRequest | Response) -> tuple[int, ...]:
    match message:
        case VoteRequest():
            return (message.candidate.id,)
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return (message.leader.id,)
        case FetchRequest() | FetchSnapshotRequest():
            return (message.replica.id,)
    return () if message.leader_id is None else (message.leader_id,)


def _offsets(message: BoundedRequest | Response) -> tuple[int, ...]:
    """The fields that decide something. Limits on an answer are applied where they are used."""
    match message:
        case VoteRequest():
            return (message.last_offset,)
        case FetchRequest():
            return (message.fetch_offset,)
        case FetchSnapshotRequest():
            return (message.position, message.snapshot_id.end_offset)
        case FetchResponse():
            diverging, snapshot_id = message.diverging, message.snapshot_id
            found = (message.high_watermark, *(batch.end_offset for batch in message.batches[-1:]))
            found += () if diverging is None else (diverging.epoch, diverging.end_offset)
            return found + (() if snapshot_id is None else (snapshot_id.epoch, snapshot_id.end_offset))
        case FetchSnapshotResponse():
            return message.position, message.size_bytes
    return ()
