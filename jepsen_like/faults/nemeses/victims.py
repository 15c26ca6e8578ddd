"""On whom a fault falls, decided when it is due.

Never more than a minority is disturbed at once, so that progress stays possible, except by faults that aim at
more and by reckless ones. Nobody is asked who leads before it is clear that the fault may happen: nodes that
do not answer take their time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind
from pykraft.kafka_client.cluster_probe import ClusterProbe

if TYPE_CHECKING:
    from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster

Claims = Collection[tuple[int | None, str]]
"""What is claimed of each node by faults in force; None: of the cluster, and so of every node."""


def choose_victims(
    cluster: ProcessCluster,
    topic: str,
    fault: Fault,
    kind: Kind,
    claimed: Claims,
    down: Collection[int],
    spared: Collection[int],
    probe: ClusterProbe,
) -> tuple[int, ...] | None:
    """None if the fault may not happen now. ``topic``: whose leaders count; ``down``: what is disturbed;
    ``spared``: what may not be disturbed so."""
    if fault.target is Target.CLUSTER:
        return () if kind.claims.isdisjoint(claim for _, claim in claimed) else None
    members = list(cluster.members)
    wanted = _count(fault.target, len(members))
    taken = {node_id for node_id, claim in claimed if claim in kind.claims}
    free = [] if None in taken else [one for one in members if one not in taken]
    if kind.has_process:
        free = [one for one in free if cluster.nodes[one].running]
    if kind.disables or kind.may_end:
        free = [one for one in free if one not in spared]
    if kind.disables and not fault.reckless:
        if fault.target in (Target.ALL, Target.MAJORITY):
            if down:
                return None
        else:
            most_down = (len(members) - 1) // 2
            if len(down) > most_down:
                return None
            if len(down) + wanted > most_down:
                free = [one for one in free if one in down]  # those disturb nobody else
    if not wanted or len(free) < wanted:
        return None
    return _pick(cluster, topic, fault, free, wanted, probe)


def _count(target: Target, members: int) -> int:
    match target:
        case Target.ALL:
            return members
        case Target.MAJORITY:
            return members // 2 + 1
        case Target.MINORITY:
            return (members - 1) // 2
        case _:
            return 1


def _pick(
    cluster: ProcessCluster, topic: str, fault: Fault, free: Sequence[int], wanted: int, probe: ClusterProbe
) -> tuple[int, ...]:
    first: int | None = None
    if fault.target is Target.CONTROLLER or (wanted > 1 and fault.draw < 0.25):
        first = cluster.active_controller(probe, timeout_s=1.0)
    elif fault.target is Target.BUSIEST or (wanted > 1 and fault.draw < 0.5):
        first = cluster.busiest_broker(probe, topic)
    turn = int(fault.draw * len(free))
    order = [*free[turn:], *free[:turn]]
    if first in order:
        order.remove(first)
        order.insert(0, first)
    return tuple(sorted(order[:wanted]))
