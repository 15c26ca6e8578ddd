"""Faults of one node's disk, below its data directory: full, read-only, failing, slow.

A node may rightly end when a write or a flush has failed: what is on its disk is no longer certain. It is
started again afterwards, with a disk that works and with all that it had written. A replica that could not
be read is set aside, and copied from its leader again.
"""

import errno
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.fault import Fault
from pykraft.jepsen_like.faults.nemeses.kind import SINGLE, Kind, NotPossibleNowError, Repair, between, each
from pykraft.jepsen_like.faults.nemeses.kinds.shims import shims_of, why_no_shims
from pykraft.jepsen_like.faults.surroundings.shim import DiskState, Shim

_DISK: Final = frozenset({"disk"})

_Inflict = Callable[[ProcessCluster, Fault, Sequence[int]], Repair]


def _breaking(**broken: Any) -> _Inflict:
    """``broken``, and the settings of the fault: fields of :class:`DiskState`."""

    def inflict(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
        shims = shims_of(cluster, victims)
        for node_id, shim in zip(victims, shims, strict=True):
            shim.set_disk(DiskState(cluster.log_dir(node_id), **{**broken, **fault.settings}))
        return each(Shim.heal_disk, shims)

    return inflict


def _fail_reads(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """Only while every replica is in sync, and none is the only one: this may cost a node all of its
    replicas, and nobody promises that records outlive the last one."""
    with Administrator(cluster) as admin:
        partitions = admin.ask(lambda: [partition for _, partition in admin.partitions()])
    if any(len(one.replicas) < 2 or set(one.isr) != set(one.replicas) for one in partitions):
        raise NotPossibleNowError("not every partition has another replica that is in sync")
    return _breaking(read_errno=errno.EIO)(cluster, fault, victims)


def _rarely_or_always(rng: random.Random) -> Mapping[str, float]:
    """One failed call among many that succeed is more dangerous than a disk that is plainly dead."""
    return {"probability": rng.choice((1.0, 0.1, 0.01))}


def _often(rng: random.Random) -> Mapping[str, float]:
    return {"probability": round(rng.uniform(0.1, 1.0), 2)}


def _draw_delays(rng: random.Random) -> Mapping[str, float]:
    """Either flushes and reads are slow, or any call, also a write to memory, stalls now and then."""
    if rng.random() < 0.5:
        return {
            **_often(rng),
            "fsync_delay_ms": round(10 ** rng.uniform(1, 3)),
            "read_delay_ms": round(rng.uniform(0, 50)),
        }
    stall_ms = round(10 ** rng.uniform(1, 3))
    return {
        "probability": round(10 ** rng.uniform(-3, -1.5), 4),
        **dict.fromkeys(("write_delay_ms", "fsync_delay_ms", "read_delay_ms"), stall_ms),
    }


_kind = partial(Kind, family="disk", targets=SINGLE, claims=_DISK, why_unavailable=why_no_shims)
_failing = partial(_kind, lasts_s=between(0.5, 6.0), disables=True, may_end=True)

KINDS: Final = (
    _failing(
        "disk-full",
        "writes fail with ENOSPC, some after a part; files can be removed",
        _breaking(write_errno=errno.ENOSPC, short_writes=True),
    ),
    _failing(
        "disk-read-only",
        "writes, and all other changes of files, fail with EROFS",
        _breaking(write_errno=errno.EROFS),
        weight=0.5,
    ),
    _failing(
        "eio-write",
        "writes fail with EIO: all of them, or one of ten or of a hundred",
        _breaking(write_errno=errno.EIO),
        settings=_rarely_or_always,
    ),
    _failing(
        "eio-fsync",
        "flushes fail with EIO: all of them, or one of ten or of a hundred, and the next one succeeds",
        _breaking(fsync_errno=errno.EIO),
        settings=_rarely_or_always,
    ),
    _failing(
        "eio-read",
        "reads fail with EIO: all of them, or one of ten or of a hundred; what they concern is copied again",
        _fail_reads,
        settings=_rarely_or_always,
        weight=0.5,
        loses_tails=True,
    ),
    _kind(
        "short-writes",
        "writes write a part of what they were asked to, which is no error",
        _breaking(short_writes=True),
        between(2.0, 8.0),
        settings=_often,
    ),
    _kind(
        "slow-disk",
        "flushes and reads take up to a second longer, or any call does now and then",
        _breaking(),
        between(2.0, 10.0),
        settings=_draw_delays,
    ),
)
