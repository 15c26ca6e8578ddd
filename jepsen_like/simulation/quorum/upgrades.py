"""An admin that has a quorum of fixed voters upgraded to kraft.version 1, amid all faults (KIP-853).

It begins after a while and asks the leader at random intervals, for as long as the leader's voters are fixed:
a leader may refuse, or lose its upgrade together with its leadership.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster

LONGEST_START_MS: Final = 6_000
LONGEST_GAP_MS: Final = 400


def upgrades(seed: int) -> bool:
    """Whether a schedule of fixed voters is upgraded: every other is."""
    return seed % 2 == 0


class UpgradeAdmin:
    """``made`` counts the upgrades that were appended, ``refused`` those to which a leader objected."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"upgrade {cluster.seed}")
        self.made = self.refused = 0
        cluster.scheduler.after(1 + self._rng.randrange(LONGEST_START_MS), self._turn)

    def ask(self) -> None:
        """Ask the leader once, if there is one that knows its voters by their ids only."""
        cluster = self._cluster
        leader = cluster.leader()
        if leader is None or leader.paused_until_ms > cluster.scheduler.now_ms:
            return
        if not leader.voters_in_log.is_dynamic:
            objection = cluster.upgrade(leader)
            self.made += objection is None
            self.refused += objection is not None

    def _turn(self) -> None:
        self.ask()
        self._cluster.scheduler.after(1 + self._rng.randrange(LONGEST_GAP_MS), self._turn)
