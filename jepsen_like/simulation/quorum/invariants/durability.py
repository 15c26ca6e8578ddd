"""Durability: what must be on a disk before a replica may count on it. See :mod:`.checker`."""

from bisect import bisect_left

from pykraft.jepsen_like.simulation.quorum.invariants.history import History, Invariant, ReplicaView
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AdvanceLogStart,
    Effect,
    InstallSnapshot,
    Reply,
    ReplyWithRecords,
    Send,
    VotersChanged,
)
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    FetchRequest,
    RemoveRaftVoterRequest,
    Request,
    Response,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from pykraft.quorum.core.roles import Leader
from pykraft.quorum.core.voters import VoterSet


class CommittedIsDurable(Invariant):
    """A majority of the voters has everything committed on disk, so no acknowledged value can be lost.

    The voters are those that were in force at the leader when it committed.
    """

    name = "acknowledged values are never lost"
    watches = (AdvanceHighWatermark, VotersChanged)

    def __init__(self) -> None:
        self._in_force: dict[int, VoterSet] = {}
        self._committed = 0

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        if isinstance(effect, VotersChanged):
            self._in_force[replica.id] = effect.voters
            return
        if len(history.committed) > self._committed:
            self._committed = len(history.committed)
            history.commit_voters = self._in_force.get(replica.id, replica.core_state.voters)
        self.check(history)

    def after_step(self, replica: ReplicaView, history: History) -> None:
        self._in_force[replica.id] = replica.core_state.voters

    def check(self, history: History) -> None:
        """Also called after each crash and truncation: only those can remove records."""
        voters = history.commit_voters
        if not history.committed or voters is None:
            return
        index, last = len(history.committed) - 1, history.committed[-1]
        holders = 0
        for replica in history.replicas:
            if voters.is_voter(replica.key) and replica.durable_end_offset >= last.end_offset:
                held = replica.batches
                holders += len(held) > index and held[index] == last
        lost = sum(end_offset >= last.end_offset for end_offset in history.lost_end_offsets)
        if holders < voters.majority - lost:
            self.fail(f"committed {last} is durable on {holders} voters only")


class SnapshotIsCommitted(Invariant):
    """A snapshot in place of the log holds what was committed, up to the end of a batch, with its epoch."""

    name = "a snapshot holds committed records"
    watches = (AdvanceLogStart, InstallSnapshot)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AdvanceLogStart | InstallSnapshot)
        end_offset, epoch = effect.snapshot_id
        count = bisect_left(history.committed, end_offset, key=lambda batch: batch.base_offset)
        last = history.committed[count - 1] if count else None
        if last is None or (last.end_offset, last.epoch) != (end_offset, epoch):
            self.fail(f"{replica.id} continues from snapshot {effect.snapshot_id}, but {last} is committed")
        if list(replica.batches[:count]) != history.committed[:count]:
            self.fail(f"{replica.id} continues from snapshot {effect.snapshot_id}, but holds other records")

    def after_step(self, replica: ReplicaView, history: History) -> None:
        state = replica.core_state
        start_offset, snapshot = state.log.start_offset, state.snapshot
        if start_offset and (snapshot is None or snapshot.end_offset < start_offset):
            self.fail(f"the log of {replica.id} starts at {start_offset}, but its snapshot is {snapshot}")


class CountedIsHeld(Invariant):
    """Records that a leader counts for a voter were fetched in its epoch, and are on the voter's disk.

    Checked when the count changes. A voter in a later epoch no longer has to hold what this leader counted.
    """

    name = "a leader counts only records that are held"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int], int] = {}

    def after_step(self, replica: ReplicaView, history: History) -> None:
        state = replica.core_state
        role, epoch = state.role, state.election.epoch
        if not isinstance(role, Leader):
            return
        for node_id, progress in role.progress.items():
            key = (replica.id, epoch, node_id)
            if progress.end_offset != self._seen.get(key, 0):
                self._seen[key] = progress.end_offset
                voter = history.replica(node_id)
                has_lost = node_id in history.lost_batches  # its leader may not know of the loss yet
                if (
                    voter.key.matches(progress.key) and not has_lost
                ):  # otherwise it is the progress of a replaced disk
                    self._check(replica, epoch, progress.end_offset, voter)

    def _check(self, leader: ReplicaView, epoch: int, end_offset: int, voter: ReplicaView) -> None:
        durable_epoch = voter.durable_election.epoch
        if durable_epoch > epoch or end_offset == 0:
            return
        if durable_epoch < epoch:
            self.fail(f"{leader.id} counts {voter.id} in epoch {epoch}, which {voter.id} does not know")
        index = leader.batch_index(end_offset) - 1
        held = voter.batches
        if voter.durable_end_offset < end_offset or held[index] != leader.batches[index]:
            self.fail(f"{leader.id} counts {end_offset} for {voter.id}, which holds other records")


class VoteDurable(Invariant):
    """A vote is on disk before it is answered, and no replica votes twice in an epoch."""

    name = "vote durable before answered"
    watches = (Reply, Send)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        if isinstance(effect, Reply):
            if not isinstance(effect.response, VoteResponse) or effect.response.pre_vote:
                return
            if not effect.response.vote_granted:
                return
            epoch, candidate = effect.response.epoch, replica.candidate_of(effect.token)
        else:
            assert isinstance(effect, Send)
            if not isinstance(effect.request, VoteRequest) or effect.request.pre_vote:
                return
            epoch, candidate = effect.request.epoch, effect.request.candidate
        durable = replica.durable_election
        if durable.epoch != epoch or durable.voted != candidate:
            self.fail(f"{replica.id} votes for {candidate} in epoch {epoch}, but {durable} is on its disk")
        earlier = history.votes.setdefault((replica.id, epoch), candidate.id)
        if earlier != candidate.id:
            self.fail(f"{replica.id} votes for {earlier} and {candidate.id} in epoch {epoch}")


class EpochDurable(Invariant):
    """No message is sent with an epoch that a crash could make its sender forget."""

    name = "epoch durable before sent"
    watches = (Reply, ReplyWithRecords, Send)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        message: Request | Response = effect.request if isinstance(effect, Send) else effect.response  # type: ignore[union-attr]
        if isinstance(message, AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest):
            return  # these messages have no epoch
        if message.epoch > replica.durable_election.epoch:
            self.fail(
                f"{replica.id} sends epoch {message.epoch}, but {replica.durable_election} is on its disk"
            )


class FetchAcknowledgesDurable(Invariant):
    """A fetch, which acknowledges everything before its offset, acknowledges only what is flushed."""

    name = "flushed before acknowledged"
    watches = (Send,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, Send)
        request = effect.request
        if isinstance(request, FetchRequest) and request.fetch_offset > replica.durable_end_offset:
            self.fail(
                f"{replica.id} acknowledges {request.fetch_offset}, but flushed {replica.durable_end_offset}"
            )
