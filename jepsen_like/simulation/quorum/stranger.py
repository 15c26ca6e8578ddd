"""A stranger that reaches the controllers' listener from outside of the quorum, and sends anything to all.

It uses an id of its own, which no replica knows; a stranger that poses as a voter can destroy what the voters
hold, and no protocol without authentication is safe from that. Its messages are either implausible (epochs
near the end of int32, or far ahead; huge offsets), or plausible and no more than a nuisance: an epoch a
little ahead.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core import messages as m
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.plausibility import MAX_EPOCH, MAX_OFFSET
from pykraft.quorum.core.state import MOST_AHEAD
from pykraft.quorum.core.voters import ReplicaKey

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
    from pykraft.jepsen_like.simulation.quorum.replica import SimReplica

LONGEST_MS: Final = 60_000
"""No schedule lasts longer, which bounds the allowance of a replica for the epochs of others."""


def comes(seed: int) -> bool:
    """Whether a schedule has a stranger: every eighth has."""
    return seed % 8 == 5


class Stranger:
    """Sends messages at random intervals until :meth:`leave`."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"stranger {cluster.seed}")
        self._is_here = True
        self.messages = 0
        cluster.has_stranger = True
        self._turn()

    def leave(self) -> None:
        self._is_here = False

    def _turn(self) -> None:
        if not self._is_here:
            return
        replica = self._rng.choice(list(self._cluster.replicas.values()))
        if replica.alive:
            self.messages += 1
            self._cluster.receive_from_stranger(self._message_to(replica), replica)
        self._cluster.scheduler.after(1 + self._rng.randrange(400), self._turn)

    def _message_to(self, replica: SimReplica) -> m.Request:
        choose = self._rng.choice
        no_node = ReplicaKey(choose((77, 2**31 - 1, -1)), Uuid(self._rng.randbytes(16)))
        epoch = self._epoch(replica)
        offset = choose((0, 1, -1, MAX_OFFSET, MAX_OFFSET + 1, 2**63 - 1))
        match self._rng.randrange(5):
            case 0:
                pre_vote = choose((False, True))
                last_epoch = choose((0, 1, epoch - 1, epoch, -1))
                return m.VoteRequest("sim", no_node, replica.key, epoch, last_epoch, offset, pre_vote)
            case 1:
                return m.BeginQuorumEpochRequest("sim", no_node, replica.key, epoch)
            case 2:
                successors = tuple(ReplicaKey(id) for id in range(choose((0, 3, 2000))))
                return m.EndQuorumEpochRequest("sim", no_node, replica.key, epoch, successors)
            case 3:
                limits = choose((-1, 0, 2**31 - 1)), choose((-1, 0, 2**31 - 1))
                return m.FetchRequest("sim", no_node, epoch, offset, choose((0, epoch)), offset, *limits)
        snapshot_id = SnapshotId(offset, choose((0, epoch)))
        return m.FetchSnapshotRequest("sim", no_node, epoch, snapshot_id, offset, choose((-1, 1, 2**31 - 1)))

    def _epoch(self, replica: SimReplica) -> int:
        known = replica.core.state.epoch
        implausible = (2**31 - 1, MAX_EPOCH + 1, MAX_EPOCH, known + MOST_AHEAD + 2 * LONGEST_MS)
        if self._rng.random() < 0.9:
            return self._rng.choice(implausible)
        return self._rng.choice((-5, known, known + 1, known + 500))
