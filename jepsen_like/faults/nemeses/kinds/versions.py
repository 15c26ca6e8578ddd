"""Nodes that run another version of this package for a while, on the same files and in the same cluster."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, Repair, ToldRepair, between
from pykraft.testing.processes.systems import Pykraft
from pykraft.testing.processes.waits import WaitError, wait_until

START_TIMEOUT_S: Final = 60.0
BACK_TIMEOUT_S: Final = 10.0


def _run_other_version(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """One node after the other, each once the last one serves. The repair tells if one did not start."""
    version = cluster.other_version
    assert version is not None
    try:
        for node_id in victims:
            cluster.wait_back(node_id, BACK_TIMEOUT_S)
    except WaitError as error:
        raise NotPossibleNowError(str(error)) from error
    detail = {"version": version.name}
    try:
        _switch(cluster, victims, version.environment)
    except WaitError as error:
        _switch(cluster, victims, {})
        return ToldRepair(partial(_fail, error), detail)
    return ToldRepair(partial(_switch, cluster, victims, {}), detail)


def _fail(error: WaitError) -> None:
    raise error


def _switch(cluster: ProcessCluster, node_ids: Sequence[int], environment: Mapping[str, str]) -> None:
    """``environment`` takes the place of what another version has set."""
    for node_id in node_ids:
        node = cluster.nodes[node_id]
        node.stop()
        kept = {name: value for name, value in node.environment.items() if name not in _OF_A_VERSION}
        node.environment = {**kept, **environment}
        cluster.ensure_running([node_id])
        _await_start(cluster, node_id)


def _await_start(cluster: ProcessCluster, node_id: int) -> None:
    node, probe = cluster.nodes[node_id], cluster.probe("versions")

    def serves() -> bool:
        if node_id not in cluster.members:
            return True  # it has left the cluster meanwhile
        if not node.running:
            raise WaitError(f"node {node_id} does not start: {node.output_tail(600).strip()}")
        view = probe.topic(node_id, "__none")
        return view is not None and node_id in view.brokers

    try:
        wait_until(f"node {node_id} serves", serves, START_TIMEOUT_S)
    finally:
        probe.close()


def _why_unavailable(cluster: ProcessCluster) -> str | None:
    if cluster.system.name != Pykraft.name:
        return f"the nodes run {cluster.system.name}"
    if cluster.other_version is None:
        return "there is no release to go back to, since the repository has no tag: give --other-version"
    return None


_OF_A_VERSION: Final = frozenset({"PYTHONPATH", "PYTHONSAFEPATH"})
_CLAIMS: Final = frozenset({"process", "disk"})
"""With a disk that fails no version starts."""

_kind = partial(
    Kind,
    family="versions",
    claims=_CLAIMS,
    disables=True,
    moves_leaders=True,
    why_unavailable=_why_unavailable,
)

KINDS: Final = (
    _kind(
        "other-version",
        "a node is stopped and runs another version on its files for a while",
        _run_other_version,
        between(2.0, 10.0),
        targets={Target.ANY: 2.0, Target.CONTROLLER: 1.0, Target.BUSIEST: 1.0},
    ),
    _kind(
        "rolling-upgrade",
        "every node runs another version, one after the other, and then this one again",
        _run_other_version,
        between(1.0, 8.0),
        targets={Target.ALL: 1.0},
        weight=0.3,
    ),
)
