"""Everybody who looks on in the nodes of one world, as the probes reach them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pykraft.jepsen_like.sim.cluster.checks import ClusterChecker
from pykraft.jepsen_like.sim.cluster.voters import VoterWatch
from pykraft.metadata_log.pb import controller_pb2 as pb

_NEWEST = 20


@dataclass(frozen=True, slots=True)
class Watch:
    """``wishes_heard``: how often a controller has heard that a broker wishes to be fenced.

    ``proposals``: the newest requests of leaders for other ISRs, with their brokers' ids: somebody may bring
    them again, late.
    """

    checker: ClusterChecker
    voters: VoterWatch
    wishes_heard: Counter[int] = field(default_factory=Counter)
    proposals: list[tuple[int, pb.AlterPartitionRequest]] = field(default_factory=list)

    def proposed(self, broker_id: int, request: pb.AlterPartitionRequest) -> None:
        """A leader asks the controller for other ISRs."""
        self.proposals.append((broker_id, request))
        del self.proposals[:-_NEWEST]
