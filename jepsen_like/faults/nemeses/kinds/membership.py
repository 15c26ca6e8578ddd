"""Nodes that join the cluster and leave it; in the end it has the voters, brokers and replicas it had."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator, Placements
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, Repair, between
from pykraft.jepsen_like.faults.nemeses.kinds.voters import voters_are_fixed
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.testing.processes.commands import CommandError
from pykraft.testing.processes.waits import WaitError

JOIN_TIMEOUT_S: Final = 30.0
CHANGE_TIMEOUT_S: Final = 15.0
"""For what other faults may keep from happening: then all is taken back."""
_MOVED_SHARE: Final = 0.5
"""The share of partitions of which a node that joins gets a replica."""


def _add_node(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """A spare joins as broker and as voter, and gets replicas."""
    spare = next((node_id for node_id in cluster.nodes if node_id not in cluster.members), None)
    if spare is None:
        raise NotPossibleNowError("every node belongs to the cluster")
    with Administrator(cluster) as admin:
        before = admin.ask(admin.placements)
        try:
            cluster.format_node(spare)
        except (CommandError, OSError) as error:  # a fault from before it left has its disk
            raise NotPossibleNowError(str(error)) from error
        cluster.join(spare)
        cluster.ensure_running([spare])
        try:
            admin.until(f"broker {spare} is registered", lambda: spare in admin.brokers(), JOIN_TIMEOUT_S)
            admin.until(f"node {spare} votes", lambda: admin.is_voter(spare), CHANGE_TIMEOUT_S)
            admin.move(_with_replicas_on(spare, before, random.Random(fault.draw)))
        except (WaitError, KafkaError) as error:
            _take_out(cluster, spare, before)
            raise NotPossibleNowError(str(error)) from error
    return lambda: _take_out(cluster, spare, before)


def _with_replicas_on(
    node_id: int, before: Placements, rng: random.Random
) -> dict[TopicPartition, Sequence[int]]:
    wanted: dict[TopicPartition, Sequence[int]] = {}
    for place, replicas in before.items():
        if rng.random() < _MOVED_SHARE:
            replaced = rng.choice(replicas)
            wanted[place] = [node_id if id == replaced else id for id in replicas]
    return wanted


def _take_out(cluster: ProcessCluster, node_id: int, before: Placements) -> None:
    """Move its replicas away, take its vote, stop it, forget it: it may join again, with an empty disk."""
    with Administrator(cluster) as admin:
        admin.until(f"no replica is on node {node_id}", lambda: admin.is_placed(before, gone=[node_id]))
        admin.until(f"node {node_id} does not vote", lambda: admin.is_no_voter(node_id))
        cluster.leave(node_id)
        try:
            _stop(cluster, node_id)
        except WaitError:  # another fault has killed it: nobody starts it any more
            cluster.nodes[node_id].kill()
        admin.until(f"broker {node_id} is unregistered", lambda: _is_unregistered(admin, node_id))
        admin.until(f"the disk of node {node_id} is empty", lambda: _is_emptied(cluster.log_dir(node_id)))


def _is_emptied(directory: Path) -> bool:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return True


def _stop(cluster: ProcessCluster, node_id: int) -> None:
    """A node that is still starting is waited for: until it can be asked to stop, SIGTERM just ends it."""
    cluster.wait_back(node_id, CHANGE_TIMEOUT_S)
    cluster.nodes[node_id].stop()


def _is_unregistered(admin: Administrator, node_id: int) -> bool:
    try:
        admin.client.unregister_broker(node_id)
    except KafkaError as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
    return True


def _remove_broker(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """Its replicas are moved to brokers that have none, or given up; it is stopped and unregistered. It keeps
    its vote, which does not count while it is stopped."""
    (node_id,) = victims
    with Administrator(cluster) as admin:
        before = admin.ask(admin.placements)
        elsewhere = _without(node_id, before, admin.ask(admin.brokers))
        try:
            admin.until(
                f"no replica is on node {node_id}",
                lambda: admin.is_placed(elsewhere, gone=victims),
                CHANGE_TIMEOUT_S,
            )
            _stop(cluster, node_id)
            what = f"broker {node_id} is unregistered"
            admin.until(what, lambda: _is_unregistered(admin, node_id), CHANGE_TIMEOUT_S)
        except WaitError as error:
            _bring_back(cluster, node_id, before)
            raise NotPossibleNowError(str(error)) from error
    return lambda: _bring_back(cluster, node_id, before)


def _without(
    node_id: int, before: Placements, brokers: Sequence[int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas on the node replaced by ones of other brokers, or left out if all have one."""
    elsewhere: dict[TopicPartition, tuple[int, ...]] = {}
    for place, replicas in before.items():
        others = [id for id in replicas if id != node_id]
        free = [id for id in brokers if id not in replicas]
        if len(others) < len(replicas):
            elsewhere[place] = (*others, *free[:1])
            if not elsewhere[place]:
                raise NotPossibleNowError(f"{place} is on node {node_id} only")
    return elsewhere


def _bring_back(cluster: ProcessCluster, node_id: int, before: Placements) -> None:
    cluster.ensure_running([node_id])
    with Administrator(cluster) as admin:
        admin.until(f"broker {node_id} is registered", lambda: node_id in admin.brokers())
        admin.until("every replica is where it was", lambda: admin.is_placed(before))


def _no_spare(cluster: ProcessCluster) -> str | None:
    has_spare = len(cluster.nodes) > len(cluster.voters)
    return voters_are_fixed(cluster) if has_spare else "no spare node was prepared"


def _no_third_broker(cluster: ProcessCluster) -> str | None:
    return "fewer than three brokers" if len(cluster.voters) < 3 else None


KINDS: Final = (
    Kind(
        "add-node",
        "a new node joins as broker and voter and gets replicas; all of that is taken back",
        _add_node,
        between(1.0, 8.0),
        family="membership",
        targets={Target.CLUSTER: 1.0},
        claims=frozenset({"voters", "partitions"}),
        weight=0.7,
        not_with=frozenset({"changes", "moves"}),
        why_unavailable=_no_spare,
    ),
    Kind(
        "remove-broker",
        "one broker's replicas are moved off, it is stopped and unregistered, and comes back",
        _remove_broker,
        between(0.5, 4.0),
        family="membership",
        targets={Target.ANY: 1.0},
        claims=frozenset({"process", "links", "disk", "clock", "voters", "partitions"}),
        weight=0.5,
        disables=True,
        not_with=frozenset({"moves"}),
        why_unavailable=_no_third_broker,
    ),
)
