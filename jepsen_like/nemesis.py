"""What is broken, in which order and for how long is drawn from a seed; on whom is decided when it happens.

The plan is a pure function of the seed and the length of the run. It is biased towards what finds bugs: the
active controller, the broker that leads most partitions, pauses just past the session timeout (a leader
that does not know that it was deposed). Never more than a minority is down at once, so that progress stays
possible; the exception is a rare kill of all nodes, which is safe because SIGKILL does not lose the page
cache.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pykraft.jepsen_like.cluster_probe import ClusterProbe
from pykraft.jepsen_like.history import HistoryWriter
from pykraft.jepsen_like.process_cluster import ProcessCluster

PROCESS = "nemesis"
ANSWER_TIMEOUT_S = 15.0
QUIET_START_S = 1.5
QUIET_END_S = 2.0
LONGEST_PAUSE_S = 15.0
EAGER_SHARE = 0.35


class FaultKind(StrEnum):
    """What is done; named as in the history."""

    KILL = "kill"
    PAUSE = "pause"
    KILL_ALL = "kill-all"


class Target(StrEnum):
    """To whom."""

    ANY = "any"
    CONTROLLER = "controller"
    BUSIEST = "busiest"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Fault:
    """``down_s`` is how long the node stays down or paused, ``rest_s`` the pause before the next fault.

    ``draw`` in [0, 1) picks the node where the target leaves a choice. An ``eager`` fault waits only until
    the nodes of earlier faults are back in the quorum, not until they serve clients again.
    """

    kind: FaultKind
    target: Target
    down_s: float
    rest_s: float
    draw: float
    eager: bool = False


def plan_faults(seed: int, time_limit_s: float, session_timeout_s: float) -> list[Fault]:
    """More faults than fit, in the order in which they are to happen.

    The first six hold two kills of the busiest broker, one of the controller, and one pause past the session
    timeout, in an order that the seed chooses; after them everything is drawn.
    """
    rng = random.Random(seed)
    opening = [
        _kill(rng, Target.CONTROLLER),
        _kill(rng, Target.BUSIEST),
        _kill(rng, Target.BUSIEST),
        _kill(rng, Target.ANY),
        _short_pause(rng, rng.choice([Target.CONTROLLER, Target.BUSIEST])),
        _long_pause(rng, rng.choice([Target.CONTROLLER, Target.BUSIEST]), session_timeout_s),
    ]
    rng.shuffle(opening)
    faults = opening + [_any_fault(rng, session_timeout_s) for _ in range(int(time_limit_s) + 1)]
    if rng.random() < 0.15:
        everyone = Fault(FaultKind.KILL_ALL, Target.ALL, rng.uniform(0.1, 1.0), rng.uniform(2.0, 3.0), 0.0)
        faults.insert(rng.randrange(2, 8), everyone)
    return faults


def _any_fault(rng: random.Random, session_timeout_s: float) -> Fault:
    target = rng.choices([Target.ANY, Target.CONTROLLER, Target.BUSIEST], weights=[3, 3, 4])[0]
    match rng.choices(["kill", "short", "long"], weights=[60, 27, 13])[0]:
        case "kill":
            return _kill(rng, target)
        case "short":
            return _short_pause(rng, target)
        case _:
            return _long_pause(rng, target, session_timeout_s)


def _kill(rng: random.Random, target: Target) -> Fault:
    return Fault(
        FaultKind.KILL,
        target,
        rng.uniform(0.1, 3.0),
        rng.uniform(0.3, 1.5),
        rng.random(),
        rng.random() < EAGER_SHARE,
    )


def _short_pause(rng: random.Random, target: Target) -> Fault:
    return Fault(
        FaultKind.PAUSE,
        target,
        rng.uniform(1.0, 2.5),
        rng.uniform(0.3, 1.5),
        rng.random(),
        rng.random() < EAGER_SHARE,
    )


def _long_pause(rng: random.Random, target: Target, session_timeout_s: float) -> Fault:
    """Mostly just past the session timeout, where a deposed leader is most dangerous; sometimes far."""
    beyond = rng.uniform(0.2, 2.5) if rng.random() < 0.85 else rng.uniform(2.5, 10.0)
    down_s = min(LONGEST_PAUSE_S, session_timeout_s + beyond)
    return Fault(
        FaultKind.PAUSE, target, down_s, rng.uniform(0.3, 1.5), rng.random(), rng.random() < EAGER_SHARE
    )


class Nemesis:
    """Carries out a plan on a cluster of processes, one fault after another, until the time is up."""

    def __init__(
        self, cluster: ProcessCluster, topic: str, plan: Sequence[Fault], history: HistoryWriter
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._plan = plan
        self._history = history
        self._stopping = threading.Event()

    def run(self, time_limit_s: float) -> None:
        """Break and repair until ``time_limit_s`` have passed; returns with everything repaired."""
        end = time.monotonic() + time_limit_s
        probe = self._cluster.probe("nemesis")
        try:
            self._stopping.wait(min(QUIET_START_S, time_limit_s / 10))
            for fault in self._plan:
                left_s = end - time.monotonic() - QUIET_END_S
                if left_s < fault.down_s or self._stopping.is_set():
                    if left_s < 1.0 or self._stopping.is_set():
                        break
                    continue
                self._inflict(fault, probe)
                self._stopping.wait(fault.rest_s)
            self._stopping.wait(max(0.0, end - time.monotonic()))
        finally:
            probe.close()
            self._cluster.heal()

    def stop(self) -> None:
        """End the run early (from another thread or a signal handler)."""
        self._stopping.set()

    def _inflict(self, fault: Fault, probe: ClusterProbe) -> None:
        self._await_nodes(probe, fault)
        victims = self._victims(fault, probe)
        for node_id in victims:
            node = self._cluster.nodes[node_id]
            if fault.kind is FaultKind.PAUSE:
                node.pause()
            else:
                node.kill()
        detail = {"target": fault.target.value, "down_s": round(fault.down_s, 3)}
        named = ",".join(map(str, victims))
        self._history.record("ok", PROCESS, fault.kind.value, value=named, detail=detail)
        self._stopping.wait(fault.down_s)
        for node_id in victims:
            node = self._cluster.nodes[node_id]
            if fault.kind is FaultKind.PAUSE:
                node.resume()
            elif not node.running:
                node.start()
        repair = "resume" if fault.kind is FaultKind.PAUSE else "start"
        self._history.record("ok", PROCESS, repair, value=named)

    def _victims(self, fault: Fault, probe: ClusterProbe) -> list[int]:
        serving = self._cluster.serving()
        if fault.target is Target.ALL:
            return serving
        wanted: int | None = None
        if fault.target is Target.CONTROLLER:
            wanted = self._cluster.active_controller(probe, timeout_s=3.0)
        elif fault.target is Target.BUSIEST:
            wanted = self._cluster.busiest_broker(probe, self._topic)
        if wanted in serving:
            return [wanted]
        return [serving[int(fault.draw * len(serving))]]

    def _await_nodes(self, probe: ClusterProbe, fault: Fault) -> None:
        """A restarted node that is not back in the quorum is down: hitting another would stop a majority.

        Bounded: a node that stays silent is a finding of the last phase of the run, not a reason to stop
        breaking.
        """
        end = time.monotonic() + ANSWER_TIMEOUT_S
        while time.monotonic() < end and not self._stopping.is_set():
            for node_id, what in self._cluster.unordered_exits().items():
                self._history.record("info", f"node-{node_id}", "node-exited", error=what)
                self._cluster.nodes[node_id].start()
            nodes = self._cluster.nodes
            if fault.eager and all(self._cluster.controller_listens(node_id) for node_id in nodes):
                return
            if all(probe.topic(node_id, self._topic) is not None for node_id in nodes):
                return
            self._stopping.wait(0.1)
