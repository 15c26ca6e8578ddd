"""Faults of what a node's machine has: little processor time, little memory, few file descriptors."""

import contextlib
import os
import resource
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault
from pykraft.jepsen_like.faults.nemeses.kind import SINGLE, Kind, NotPossibleNowError, Repair, between, each
from pykraft.jepsen_like.faults.nemeses.kinds.processes import pause
from pykraft.jepsen_like.faults.nemeses.kinds.turns import in_turns
from pykraft.jepsen_like.faults.surroundings.cgroup import Cgroups


def _starve(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """Rests for ``rest_ms``, runs for ``run_ms``: as with a tenth of a processor, without any privilege."""
    resting_s, running_s = fault.settings["rest_ms"] / 1000, fault.settings["run_ms"] / 1000
    return in_turns(lambda: pause(cluster, fault, victims), resting_s, running_s)


def _limit_cpu(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    cgroups = _cgroups(cluster)
    for node_id in victims:
        cgroups.limit_cpu(node_id, fault.settings["share"])
    return each(lambda node_id: cgroups.limit_cpu(node_id, None), victims)


def _limit_memory(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    cgroups, spare_bytes = _cgroups(cluster), int(fault.settings["spare_mib"] * (1 << 20))
    lift = each(lambda node_id: cgroups.limit_memory(node_id, None), victims)
    try:
        for node_id in victims:
            cgroups.limit_memory(node_id, cgroups.resident_bytes(node_id) + spare_bytes)
    except OSError as error:
        lift()
        raise NotPossibleNowError(str(error)) from error
    return lift


def _limit_files(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """The process itself has a limit; its next one has none."""
    limited: dict[int, tuple[int, tuple[int, int]]] = {}
    for node_id in victims:
        pid = cluster.nodes[node_id].pid
        if pid is None:
            raise NotPossibleNowError(f"node {node_id} does not run")
        limited[node_id] = pid, _leave_files(pid, int(fault.settings["spare_files"]))

    def lift() -> None:
        for node_id, (pid, before) in limited.items():
            if cluster.nodes[node_id].pid == pid:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    return lift


def _leave_files(pid: int, spare: int) -> tuple[int, int]:
    """Let a process open ``spare`` files more; the limits that it had. The limit bounds the numbers of
    descriptors, of which the lowest free one is taken."""
    try:
        taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        free = (number for number in range(soft) if number not in taken)
        limit = next(islice(free, spare, None), soft)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    except OSError as error:  # it has ended, or is about to: then its files may not be read
        raise NotPossibleNowError(str(error)) from error
    return soft, hard


def _cgroups(cluster: ProcessCluster) -> Cgroups:
    assert cluster.surroundings.cgroups is not None
    return cluster.surroundings.cgroups


def _why_no_cgroups(cluster: ProcessCluster) -> str | None:
    return None if cluster.surroundings.cgroups else "there are no control groups in this tier"


def _why_no_limits(cluster: ProcessCluster) -> str | None:
    return None if sys.platform == "linux" else "limits of other processes can be changed on Linux only"


_kind = partial(Kind, family="resources", targets=SINGLE)

KINDS: Final = (
    _kind(
        "starve",
        "one node has a tenth of a processor (SIGSTOP and SIGCONT in turn)",
        _starve,
        between(3.0, 10.0),
        settings=lambda rng: {"run_ms": round(rng.uniform(10, 30)), "rest_ms": round(rng.uniform(60, 200))},
    ),
    _kind(
        "cpu-quota",
        "one node has 5 to 20 % of a processor (control group)",
        _limit_cpu,
        between(3.0, 10.0),
        settings=lambda rng: {"share": round(rng.uniform(0.05, 0.2), 3)},
        why_unavailable=_why_no_cgroups,
    ),
    _kind(
        "memory-pressure",
        "one node may have a few MiB more memory than it has (control group); the kernel may kill it",
        _limit_memory,
        between(2.0, 6.0),
        settings=lambda rng: {"spare_mib": round(rng.uniform(1, 16), 1)},
        may_end=True,
        why_unavailable=_why_no_cgroups,
    ),
    _kind(
        "few-files",
        "one node may open none or a few more files and connections; it may end: it needs log files, and "
        "gRPC aborts",
        _limit_files,
        between(2.0, 8.0),
        settings=lambda rng: {"spare_files": rng.choice((0, 1, 2, 4, 8))},
        may_end=True,
        why_unavailable=_why_no_limits,
    ),
)
