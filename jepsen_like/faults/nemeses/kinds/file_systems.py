"""Faults of a node's whole file system: full, read-only, frozen. Only where nodes have one of their own."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, Repair, Timing, between, each
from pykraft.jepsen_like.faults.nemeses.kinds.power import restore_power, why_no_disks
from pykraft.jepsen_like.faults.nemeses.kinds.processes import pause_length_s
from pykraft.jepsen_like.faults.surroundings.loop_disk import LoopDisk

_ONE: Final = {Target.ANY: 3.0, Target.CONTROLLER: 2.0, Target.BUSIEST: 4.0}
_CLAIMS: Final = frozenset({"process", "disk"})
_LONGEST_FREEZE_S: Final = 6.0


def _breaking(
    begin: Callable[[LoopDisk], None], end: Callable[[LoopDisk], None]
) -> Callable[[ProcessCluster, Fault, Sequence[int]], Repair]:
    def inflict(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
        disks = [cluster.surroundings.disks[node_id] for node_id in victims]
        for disk in disks:
            begin(disk)
        return each(end, disks)

    return inflict


def _turn_read_only(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """A node that has not noticed must end all the same: its disk has to be mounted again."""
    for node_id in victims:
        cluster.surroundings.disks[node_id].turn_read_only()
    return lambda: restore_power(cluster, victims)


def _freeze_length_s(rng: random.Random, timing: Timing) -> float:
    return min(_LONGEST_FREEZE_S, pause_length_s(rng, timing))


_kind = partial(
    Kind, family="disk", targets=_ONE, claims=_CLAIMS, disables=True, why_unavailable=why_no_disks
)

KINDS: Final = (
    _kind(
        "disk-full-real",
        "no space is left on the node's file system; the node may end",
        _breaking(LoopDisk.fill, LoopDisk.free),
        between(1.0, 5.0),
        may_end=True,
    ),
    _kind(
        "read-only-remount",
        "an error turns the node's file system read-only; what was not flushed is lost, the node may end",
        _turn_read_only,
        between(1.0, 5.0),
        may_end=True,
        loses_tails=True,
    ),
    _kind(
        "frozen-disk",
        "writers to the node's file system wait, often longer than the session timeout",
        _breaking(LoopDisk.freeze, LoopDisk.thaw),
        _freeze_length_s,
    ),
)
