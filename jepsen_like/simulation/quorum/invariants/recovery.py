"""A voter that has lost records: what it must not do, and what it must hold once it has recovered.

The simulated world knows the losses, since it caused them; what the replica believes is not used. See
:mod:`.checker`.
"""

from bisect import bisect_left

from pykraft.jepsen_like.simulation.quorum.invariants.history import History, Invariant, ReplicaView
from pykraft.quorum.core.effects import AppendLeaderChange, Effect, EndRecovery, Reply, Send
from pykraft.quorum.core.messages import VoteRequest, VoteResponse
from pykraft.quorum.core.roles import Leader


class LosersDoNotElect(Invariant):
    """A voter that has lost flushed records does not vote, ask for votes or lead."""

    name = "a voter that has lost records takes no part in elections"
    watches = (Reply, Send, AppendLeaderChange)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        if replica.id not in history.lost_batches:
            return
        match effect:
            case Reply(_, VoteResponse(vote_granted=True)):
                self.fail(f"{replica.id} grants a vote")
            case Send(_, _, VoteRequest()):
                self.fail(f"{replica.id} asks for votes")
            case AppendLeaderChange():
                self.fail(f"{replica.id} leads")


class RecoveredHoldsCommitted(Invariant):
    """A voter that declares that it has recovered holds all committed records that it had lost."""

    name = "a recovered voter holds the committed records"
    watches = (EndRecovery,)

    def observe(self, replica: ReplicaView, effect: Effect, history: History) -> None:
        self.check(replica, history)

    def check(self, replica: ReplicaView, history: History) -> None:
        """Also called when a start finds that the recovery was complete."""
        committed, held = history.committed, replica.batches
        for batch in history.lost_batches.pop(replica.id, ()):
            index = bisect_left(committed, batch.base_offset, key=lambda it: it.base_offset)
            if committed[index : index + 1] == [batch] and (
                list(held[index : index + 1]) != [batch] or replica.durable_end_offset < batch.end_offset
            ):
                self.fail(f"{replica.id} lacks the committed {batch}")


class RecoveringIsNotCounted(Invariant):
    """A leader that knows of a voter's loss counts nothing for it until it has recovered."""

    name = "a recovering voter does not count"

    def after_step(self, replica: ReplicaView, history: History) -> None:
        role = replica.core_state.role
        if not isinstance(role, Leader):
            return
        for node_id in history.lost_batches:
            progress = role.progress.get(node_id)
            if (
                progress is not None
                and progress.key.matches(history.replica(node_id).key)  # not the disk that it had before
                and progress.end_offset
                and progress.losses == history.losses.get(node_id)
            ):
                self.fail(f"{replica.id} counts {progress.end_offset} for {node_id}")
