"""Safety while the voters change (KIP-853; Raft thesis §4). See :mod:`.checker`."""

from pykraft.jepsen_like.simulation.quorum.invariants.history import History, Invariant, ReplicaView, keys_of
from pykraft.quorum.core.effects import AppendLeaderChange, AppendVoters, Effect
from pykraft.quorum.core.roles import Leader


class ElectedByMajority(Invariant):
    """A leader has received the votes of a majority of its newest voter set, in its epoch."""

    name = "elected by a majority"
    watches = (AppendLeaderChange,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AppendLeaderChange)
        voters = replica.voters_in_log
        granted = 0
        for key in effect.granting_voters:
            vote = (key.id, effect.epoch)
            granted += voters.is_voter(key)
            voted = replica.durable_election.voted  # there may be no other voter to ask
            own = key.id == replica.id and voted is not None and voted.matches(key)
            if not own and history.votes.get(vote) != replica.id and vote not in history.lost_votes:
                self.fail(f"{replica.id} leads epoch {effect.epoch} by a vote that {key.id} never granted")
        if granted < voters.majority:
            self.fail(f"{replica.id} leads epoch {effect.epoch} by {granted} votes of {voters}")


class OneVoterChange(Invariant):
    """At most one voter change is uncommitted, and none precedes the first commit of the leader's epoch.

    Checked in the leader's log when it appends a changed voter set.
    """

    name = "one uncommitted voter change"
    watches = (AppendVoters,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AppendVoters)
        state = replica.core_state
        if keys_of(effect.voters) == keys_of(state.history.at(effect.base_offset)):
            return
        high_watermark = state.high_watermark
        before = [offset for offset, _ in state.history.records if offset < effect.base_offset]
        if before and before[-1] >= high_watermark:
            self.fail(f"{replica.id} changes the voters, but the change at {before[-1]} is not committed")
        if history.epoch_starts.get(effect.epoch, effect.base_offset) >= high_watermark:
            self.fail(f"{replica.id} changes the voters before it has committed anything in its epoch")


class MajoritiesIntersect(Invariant):
    """Each majority of a new voter set has a voter in common with each majority of the one before."""

    name = "majorities intersect"
    watches = (AppendVoters,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AppendVoters)
        before, after = replica.core_state.history.at(effect.base_offset), effect.voters
        gone = [key for key in keys_of(before) if not after.is_voter(key)]
        if len(before) and before.majority + after.majority <= len(after) + len(gone):
            self.fail(f"{replica.id} replaces {before} by {after}")


class UpgradeKeepsTheVoters(Invariant):
    """The set that takes the place of fixed voters names the same ids, each with its disk of then.

    A disk that was replaced while the leader had not noticed yet is the exception.
    """

    name = "an upgrade keeps the voters"
    watches = (AppendVoters,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        assert isinstance(effect, AppendVoters)
        before, after = replica.core_state.history.at(effect.base_offset), effect.voters
        if before.is_dynamic:
            return
        if after.ids != before.ids or not after.is_dynamic:
            self.fail(f"{replica.id} replaces the fixed {before} by {after}")
        for key in keys_of(after):
            if key != history.replica(key.id).key and key not in history.replaced:
                self.fail(f"{replica.id} names {key}, which never was")


class VotersFollowTheLog(Invariant):
    """The voter set in force is the newest in the log; a replica whose removal is committed does not lead."""

    name = "voters follow the log"

    def after_step(self, replica: ReplicaView, history: History) -> None:
        state = replica.core_state
        if state.voters is not replica.voters_in_log and state.voters != replica.voters_in_log:
            self.fail(f"{replica.id} acts on {state.voters}, but {replica.voters_in_log} are in its log")
        if isinstance(state.role, Leader) and not state.may_be_candidate:
            self.fail(f"{replica.id} leads, although its removal is committed")
