"""All checks and watches of the nodes of one world, as the probes call them."""

from collections import Counter
from dataclasses import dataclass, field

from pykraft.jepsen_like.simulation.cluster.checks.commits import ClusterChecker
from pykraft.jepsen_like.simulation.cluster.checks.voters import VoterWatch
from pykraft.metadata_log.pb import controller_pb2 as pb

_NEWEST = 20


@dataclass(frozen=True, slots=True)
class Watch:
    """``fence_requests``: how many requests to be fenced a controller has received from each broker.

    ``proposals``: the newest requests of leaders for other ISRs, with their brokers' ids: they may be sent
    again, late.
    """

    checker: ClusterChecker
    voters: VoterWatch
    fence_requests: Counter[int] = field(default_factory=Counter)
    proposals: list[tuple[int, pb.AlterPartitionRequest]] = field(default_factory=list)

    def proposed(self, broker_id: int, request: pb.AlterPartitionRequest) -> None:
        """A leader proposes other ISRs to the controller."""
        self.proposals.append((broker_id, request))
        del self.proposals[:-_NEWEST]
