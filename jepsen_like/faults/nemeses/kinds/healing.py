"""The end of damage to a replica: its node finds it, and has copied the replica again from its leader."""

from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.kind import ToldRepair
from pykraft.jepsen_like.faults.nemeses.kinds.rot import Damage
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing.processes.waits import WaitError

FOUND_TIMEOUT_S: Final = 20.0
"""How long a node that has been started may take to find damage by itself; then it is started again."""


def told_repair(cluster: ProcessCluster, node_id: int, place: TopicPartition, damage: Damage) -> ToldRepair:
    """Heals it; tells the file and what was done to it."""
    file = str(damage.path.relative_to(cluster.log_dir(node_id)))
    return ToldRepair(partial(_heal, cluster, node_id, place, damage), {"file": file, "what": damage.what})


def _heal(cluster: ProcessCluster, node_id: int, place: TopicPartition, damage: Damage) -> None:
    was_running = cluster.nodes[node_id].running
    cluster.ensure_running([node_id])
    with Administrator(cluster) as admin:

        def is_whole() -> bool:
            return damage.is_found and _is_in_sync(admin, node_id, place)

        what = f"{damage.path}, {damage.what}, is found, and {place} of node {node_id} in sync"
        try:
            admin.until(what, is_whole, 0.0 if was_running else FOUND_TIMEOUT_S)
        except WaitError:
            cluster.wait_back(node_id)
            cluster.nodes[node_id].stop()
            cluster.ensure_running([node_id])
            admin.until(what, is_whole)


def _is_in_sync(admin: Administrator, node_id: int, place: TopicPartition) -> bool:
    """Also if the replica has been moved away, or the topic deleted."""
    found = dict(admin.partitions()).get(place)
    return found is None or node_id in found.isr or node_id not in found.replicas
