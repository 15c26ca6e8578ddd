"""Power losses: what a node had not flushed is gone, and its process with it.

Kafka does not flush before it acknowledges, except where ``flush.messages`` asks for it: what must survive
which losses is stated in ``checkers/tail_losses``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, Repair, between
from pykraft.jepsen_like.faults.surroundings import loop_disk

_CLAIMS: Final = frozenset({"process", "disk"})


def cut_power(cluster: ProcessCluster, node_ids: Sequence[int]) -> None:
    """For all of them at one moment, as nearly as possible; the processes die with it. They are stopped
    before, so that none sees its disk fail and ends by itself."""
    for node_id in node_ids:
        cluster.nodes[node_id].pause()
    for node_id in node_ids:
        cluster.surroundings.disks[node_id].cut_power()
    for node_id in node_ids:
        cluster.nodes[node_id].kill()


def restore_power(cluster: ProcessCluster, node_ids: Sequence[int]) -> None:
    """The disks are there again with what was flushed, as after a restart of the machines, and the nodes are
    started. A process that somebody has started meanwhile ends before."""
    for node_id in node_ids:
        disk = cluster.surroundings.disks[node_id]
        with cluster.nodes[node_id].killed():
            disk.unmount()
            disk.mount()
    cluster.ensure_running(node_ids)


def why_no_disks(cluster: ProcessCluster) -> str | None:
    """Why the nodes have no file systems of their own; None if they have."""
    if cluster.surroundings.disks:
        return None
    return loop_disk.why_unavailable() or "the nodes have no file systems of their own in this tier"


def _lose_power(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    cut_power(cluster, victims)
    return lambda: restore_power(cluster, victims)


_kind = partial(
    Kind,
    family="power",
    claims=_CLAIMS,
    disables=True,
    moves_leaders=True,
    loses_tails=True,
    why_unavailable=why_no_disks,
)

KINDS: Final = (
    _kind(
        "power-loss",
        "kill -9 of one node, and what it had not flushed is lost",
        _lose_power,
        between(0.1, 4.0),
        targets={Target.ANY: 2.0, Target.CONTROLLER: 3.0, Target.BUSIEST: 5.0},
        weight=2.0,
    ),
    _kind(
        "power-loss-all",
        "the same of all nodes at one moment",
        _lose_power,
        between(0.1, 1.5),
        targets={Target.ALL: 1.0},
        weight=0.5,
    ),
)
