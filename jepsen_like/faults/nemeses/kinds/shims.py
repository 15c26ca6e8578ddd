"""The preloaded shims of a fault's victims: what the faults of clocks and of disks share."""

from collections.abc import Sequence
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.kind import NotPossibleNowError
from pykraft.jepsen_like.faults.surroundings.shim import Shim, ShimError, why_unavailable
from pykraft.testing.processes.waits import WaitError, wait_until

_LOAD_TIMEOUT_S: Final = 5.0


def why_no_shims(cluster: ProcessCluster) -> str | None:
    """For :attr:`~pykraft.jepsen_like.faults.nemeses.kind.Kind.why_unavailable`."""
    if cluster.surroundings.shims:
        return None
    return f"no shim: {why_unavailable() or f'the tier {cluster.surroundings.tier} has none here'}"


def shims_of(cluster: ProcessCluster, victims: Sequence[int]) -> list[Shim]:
    """:class:`NotPossibleNowError` if a victim does not run with one."""
    shims = cluster.surroundings.shims
    for node_id in victims:
        if node_id not in shims or not cluster.nodes[node_id].running:
            raise NotPossibleNowError(f"node {node_id} does not run with a shim")
        refuse_ignored(cluster, node_id)
    return [shims[node_id] for node_id in victims]


def refuse_ignored(cluster: ProcessCluster, node_id: int) -> None:
    """:class:`ShimError` if a node runs without its shim, whose faults would silently do nothing."""
    shim, node = cluster.surroundings.shims[node_id], cluster.nodes[node_id]
    try:  # a process that has just been started loads it in a moment
        wait_until("it is loaded", lambda: bool(shim.loaded) or not node.running, _LOAD_TIMEOUT_S)
    except WaitError:
        raise ShimError(f"node {node_id} has not loaded its shim; is LD_PRELOAD ignored?") from None
