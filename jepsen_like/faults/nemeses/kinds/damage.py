"""Rotten disks: changed bits and missing bytes in files of one replica, of a stopped node or a running one.

What is promised (docs/replication.md, "Damage"): the replica is found, at a start, when it is read, or by the
scrub that follows each start, and is copied again; the node does not end; no follower and no client that
checks CRCs takes a wrong record. So the repair waits until the damage is found, restarts a running node for
a scrub if it was not, and demands that the replica is in sync again. A replica is only damaged if another one
in sync is sound: what happens to the last one is up to the operator. As long as it lasts the node counts as
one that has lost its records.
"""

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, ToldRepair, between
from pykraft.jepsen_like.faults.nemeses.kinds import rot
from pykraft.jepsen_like.faults.nemeses.kinds.healing import told_repair
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing.processes.systems import Pykraft

BACK_TIMEOUT_S: Final = 10.0
_CHECKPOINT_SHARE: Final = 0.1
_SEGMENT_SHARE: Final = 0.5
_ONE_AT_A_TIME = threading.Lock()
"""So that two faults do not damage two replicas of a partition, each because the other one is sound."""

_Change = Callable[[Path, Fault, random.Random], rot.Damage]


def _inflict(
    change: _Change, *, running: bool
) -> Callable[[ProcessCluster, Fault, Sequence[int]], ToldRepair]:
    """``running``: beneath a running process; otherwise the node is taken down first."""

    def inflict(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> ToldRepair:
        (node_id,), rng = victims, random.Random(fault.draw)
        try:
            with _ONE_AT_A_TIME:
                place = _find_replica(cluster, node_id, rng)
                if not running:
                    _take_down(cluster, node_id, orderly=bool(fault.settings["orderly"]))
                path = _find_file(cluster, node_id, place, rng, checkpoints=not running)
                damage = change(path, fault, rng)
        except OSError as error:  # a file is gone, or the node does not come back to be stopped
            cluster.ensure_running(victims)
            raise NotPossibleNowError(str(error)) from error
        return told_repair(cluster, node_id, place, damage)

    return inflict


def _take_down(cluster: ProcessCluster, node_id: int, *, orderly: bool) -> None:
    if orderly:
        cluster.wait_back(node_id, BACK_TIMEOUT_S)
        cluster.nodes[node_id].stop()
    else:
        cluster.nodes[node_id].kill()


def _flip(path: Path, fault: Fault, rng: random.Random) -> rot.Damage:
    return rot.flip_bits(path, int(fault.settings["bits"]), rng)


def _cut(path: Path, fault: Fault, rng: random.Random) -> rot.Damage:
    return rot.cut(path, rng, middle=bool(fault.settings["middle"]))


# --- what is damaged ----------------------------------------------------------------------------------------


def _find_replica(cluster: ProcessCluster, node_id: int, rng: random.Random) -> TopicPartition:
    """A partition with a replica here and a sound one elsewhere, in sync on a node that runs."""
    with Administrator(cluster) as admin:
        in_sync = {str(place): partition.isr for place, partition in admin.ask(lambda: [*admin.partitions()])}
    names = [path.name for path in rot.replicas(cluster.log_dir(node_id))]
    rng.shuffle(names)
    for name in names:
        others = set(in_sync.get(name, ())) & set(cluster.serving()) - {node_id}
        if any(rot.find_fault(cluster.log_dir(other) / name) is None for other in others):
            topic, _, number = name.rpartition("-")
            return TopicPartition(topic, int(number))
    raise NotPossibleNowError(f"node {node_id} has no replica of which another one is in sync and sound")


def _find_file(
    cluster: ProcessCluster, node_id: int, place: TopicPartition, rng: random.Random, *, checkpoints: bool
) -> Path:
    """Mostly of the partition; else one of the node's checkpoint files. :class:`FileNotFoundError`."""
    directory, patterns = cluster.log_dir(node_id) / str(place), rot.OF_A_LOG
    if checkpoints and rng.random() < _CHECKPOINT_SHARE:
        directory, patterns = cluster.log_dir(node_id), rot.CHECKPOINTS
    elif rng.random() < _SEGMENT_SHARE:
        patterns = rot.SEGMENTS
    return rot.find_file(directory, patterns, rng)


def _draw_stopped(rng: random.Random) -> dict[str, float]:
    return {**_draw_running(rng), "orderly": float(rng.random() < 0.4)}


def _draw_running(rng: random.Random) -> dict[str, float]:
    return {"bits": rng.choice((1, 1, 2, 5)), "middle": float(rng.random() < 0.4)}


_TARGETS: Final = {Target.ANY: 2.0, Target.BUSIEST: 2.0, Target.CONTROLLER: 1.0}
_CLAIMS: Final = frozenset({"process", "links", "disk", "clock"})


def _why_unavailable(cluster: ProcessCluster) -> str | None:
    name = cluster.system.name
    return None if name == Pykraft.name else f"{name} does not promise to repair damaged files"


_kind = partial(
    Kind,
    family="damage",
    targets=_TARGETS,
    claims=_CLAIMS,
    disables=True,
    loses_tails=True,
    why_unavailable=_why_unavailable,
)
_stopped = partial(_kind, lasts_s=between(0.1, 3.0), settings=_draw_stopped, moves_leaders=True)
_running = partial(_kind, lasts_s=between(1.0, 8.0), settings=_draw_running)

KINDS: Final = (
    _stopped(
        "bit-flip",
        "bits of a file of one replica are flipped while its node is down",
        _inflict(_flip, running=False),
    ),
    _stopped(
        "cut-file",
        "a file of one replica loses its end or a part of its middle while its node is down",
        _inflict(_cut, running=False),
    ),
    _running(
        "bit-flip-running",
        "bits of a file of one replica are flipped while its node runs",
        _inflict(_flip, running=True),
    ),
    _running(
        "cut-file-running",
        "a file of one replica loses its end or a part of its middle while its node runs",
        _inflict(_cut, running=True),
        weight=0.5,
    ),
)
