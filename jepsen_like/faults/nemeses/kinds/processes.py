"""Faults of processes, by signals: killed, paused, stopped and started again."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import (
    SINGLE,
    Kind,
    NotPossibleNowError,
    Repair,
    Timing,
    between,
    each,
)
from pykraft.testing.processes.waits import WaitError

LONGEST_PAUSE_S: Final = 15.0


def _kill(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    for node_id in victims:
        cluster.nodes[node_id].kill()
    return lambda: cluster.ensure_running(victims)


def pause(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    for node_id in victims:
        cluster.nodes[node_id].pause()
    return each(lambda node_id: cluster.nodes[node_id].resume(), victims)


def _stop(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """One after the other, each started again before the next is stopped. A node that is still starting is
    waited for: until it can be asked to stop, SIGTERM just ends it. Other faults may keep it from coming
    back."""
    for node_id in victims:
        cluster.ensure_running([node_id])
        try:
            cluster.wait_back(node_id)
        except WaitError as error:
            raise NotPossibleNowError(str(error)) from error
        cluster.nodes[node_id].stop()
        if node_id != victims[-1]:
            cluster.ensure_running([node_id])
    return lambda: cluster.ensure_running(victims[-1:])


def pause_length_s(rng: random.Random, timing: Timing) -> float:
    """Short, or mostly just past the session timeout, where a deposed leader is most dangerous."""
    if rng.random() < 2 / 3:
        return rng.uniform(1.0, 2.5)
    beyond = rng.uniform(0.2, 2.5) if rng.random() < 0.85 else rng.uniform(2.5, 10.0)
    return min(LONGEST_PAUSE_S, timing.session_timeout_s + beyond)


_kind = partial(Kind, family="process", disables=True, moves_leaders=True)

KINDS: Final = (
    _kind("kill", "kill -9, and started again", _kill, between(0.1, 3.0), targets=SINGLE, weight=4.0),
    _kind(
        "pause",
        "SIGSTOP, often just longer than the session timeout, and SIGCONT",
        pause,
        pause_length_s,
        targets=SINGLE,
        weight=3.0,
    ),
    _kind(
        "stop",
        "SIGTERM, which must end the process with status 0, and started again",
        _stop,
        between(0.1, 3.0),
        targets=SINGLE,
    ),
    _kind(
        "rolling-restart",
        "every node stopped and started again, one after the other",
        _stop,
        between(0.1, 1.0),
        targets={Target.ALL: 1.0},
        weight=0.4,
    ),
    _kind(
        "kill-all",
        "kill -9 of all nodes at once",
        _kill,
        between(0.1, 1.0),
        targets={Target.ALL: 1.0},
        weight=0.2,
    ),
)
