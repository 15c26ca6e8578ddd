"""Voters that are removed, and added again when that is repaired. They must be in the metadata log."""

from collections.abc import Sequence
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, Repair, between


def _remove_controller(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """It goes on as an observer, and as a broker."""
    (node_id,) = victims
    with Administrator(cluster) as admin:
        voters = admin.ask(admin.voters)
        if node_id not in voters or len(voters) <= 2:
            raise NotPossibleNowError(f"{node_id} cannot be removed from the voters {sorted(voters)}")
        admin.change(lambda: admin.client.remove_raft_voter(node_id, voters[node_id]))

    def add_back() -> None:
        with Administrator(cluster) as admin:
            admin.until(f"node {node_id} votes again", lambda: admin.is_voter(node_id))

    return add_back


def voters_are_fixed(cluster: ProcessCluster) -> str | None:
    """Why they cannot change; None if they can."""
    return None if cluster.dynamic_voters else "the voters are fixed by controller.quorum.voters"


def _no_third_voter(cluster: ProcessCluster) -> str | None:
    return "fewer than three voters" if len(cluster.voters) < 3 else voters_are_fixed(cluster)


KINDS: Final = (
    Kind(
        "remove-controller",
        "one voter less: RemoveRaftVoter, often of the active controller, and AddRaftVoter",
        _remove_controller,
        between(1.0, 6.0),
        family="membership",
        targets={Target.ANY: 1.0, Target.CONTROLLER: 2.0},
        claims=frozenset({"voters"}),
        disables=True,
        why_unavailable=_no_third_voter,
    ),
)
