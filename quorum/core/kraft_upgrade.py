"""kraft.version 0 → 1 while running: voters fixed by the configuration become voters in the log (KIP-853).

Fixed voters are known by their ids. To write them into the log their leader needs their directory ids, and
the address that each has for itself; so they announce themselves with every fetch. The leader keeps that in
memory, with their progress; a new leader hears it again. (Kafka's voters send UpdateRaftVoter to each new
leader.) The upgrade is one batch, kraft.version and the set, and in force once appended. If it is truncated,
the configured voters are in force again: they remain the base of the history (:mod:`.voter_history`).

**Safety.** (Raft thesis, 4.1: a set may follow another if each majority of one meets each of the other.)

* Both sets have the same ids, so two majorities share a node. While voters are fixed, Raft is safe only if
  every node keeps its disk: then that node is one replica, with its votes and all that it acknowledged. An
  upgrade changes no voter, which is less than the one that a change may.
* It waits, like any change, until a record of its leader's epoch is committed. An uncommitted set that an
  earlier leader left can only be another upgrade, with the same ids. What comes after waits for the commit
  (:mod:`.reconfig`).
* Once it is committed, any majority of the configured ids has a voter that holds it and refuses its vote to
  all that do not. So no leader is elected by the configuration any more, whatever was added or removed since.

**Liveness.** The vote of a replica that lacks the upgrade may be needed by voters that were added since and
that it does not know. A candidate or leader that holds the upgrade calls it by its directory id, and is heard
(:mod:`.vote`, :mod:`.begin_end`); any other must be among the voters that it knows. A voter that is silent
could come back with another disk, and be none: an upgrade is refused unless all voters have just fetched.
"""

from __future__ import annotations

from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.quorum.core.progress import FetchProgress
from pykraft.quorum.core.reconfig import append_voters
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import Announcement, Voter, VoterSet

DYNAMIC_VOTERS = 1
"""The level from which on the voters are in the log."""


def build_announcement(state: CoreState) -> Announcement | None:
    """Return this replica's announcement for its next fetch; None unless it is a fixed voter."""
    if state.voters.is_dynamic or not state.is_voter or state.local_address is None:
        return None
    return Announcement(state.local_address)


def find_objection(state: CoreState, now_ms: int) -> str | None:
    """Why the leader must not append the upgrade now, for people; None if it may."""
    role = state.role
    if not isinstance(role, Leader):
        return "this replica does not lead the quorum"
    if state.high_watermark <= role.epoch_start_offset:
        return "the first record of the leader's epoch is not committed yet"
    if state.local.directory_id == ZERO_UUID:
        return "the leader has no directory id"
    objections = (_objection_to(state, progress, now_ms) for progress in role.progress.values())
    return next((it for it in objections if it is not None), None)


def _objection_to(state: CoreState, progress: FetchProgress, now_ms: int) -> str | None:
    key, announced = progress.key, progress.announced
    silent_ms = now_ms - progress.last_fetch_ms
    if silent_ms >= state.config.fetch_timeout_ms:
        return f"voter {key.id} has not fetched for {silent_ms} ms: all voters must be up"
    if announced is None or key.directory_id == ZERO_UUID:
        return (
            f"voter {key.id} has not told this leader its directory id and address:"
            " it has just started, or its software is too old"
        )
    if announced.highest_kraft_version < DYNAMIC_VOTERS:
        return f"voter {key.id} can run kraft.version {announced.highest_kraft_version} at most"
    return None


def handle_upgrade(state: CoreState, epoch: int, now_ms: int) -> None:
    """The leader appends the upgrade, to which it has just had no objection."""
    role = state.role
    assert isinstance(role, Leader) and epoch == state.epoch, "proposed to a replica that does not lead"
    assert not state.voters.is_dynamic, "the voters are in the log already"
    voters = [_own_voter(state)]
    for progress in role.progress.values():
        assert progress.announced is not None
        voters.append(Voter(progress.key, progress.announced.address))
    append_voters(state, epoch, VoterSet(voters), now_ms, with_kraft_version=True)


def _own_voter(state: CoreState) -> Voter:
    configured = state.voters.get(state.local.id)
    assert configured is not None, "a leader of fixed voters is one of them"
    return Voter(state.local, state.local_address or configured.address)
