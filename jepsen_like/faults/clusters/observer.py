"""Watches the cluster from outside: who leads, who is the active controller, how long nobody led.

Writes every change to the history. A view is taken over only from a newer epoch, so that a broker that lags
behind cannot make it look as if a leadership had gone back and forth.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.history import HistoryWriter
from pykraft.kafka_client.cluster_probe import NO_LEADER, PartitionView, QuorumView, TopicView

INTERVAL_S = 0.1
PROCESS = "observer"


@dataclass(slots=True)
class LeaderlessSpells:
    """For each partition the time since which nobody alive led it; the longest such spell in seconds.

    A partition is led while its leader answers and says so itself, whatever others still believe: a broker
    that was killed and has come back does not lead until it serves again.
    """

    longest_s: float = 0.0
    _since: dict[int, float] = field(default_factory=dict)

    def note(self, partition: int, led: bool, now_s: float) -> None:
        since = self._since.setdefault(partition, now_s) if not led else self._since.pop(partition, now_s)
        self.longest_s = max(self.longest_s, now_s - since)


class Observer:
    """A thread that asks every running broker, ten times a second."""

    def __init__(self, cluster: ProcessCluster, topic: str, history: HistoryWriter | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._history = history
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._leaders: dict[int, tuple[int, int]] = {}
        self._last_leader: dict[int, int] = {}
        self._quorum = QuorumView(-1, NO_LEADER)
        self.spells = LeaderlessSpells()
        self.leader_changes = 0
        self.controller_changes = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        probe = self._cluster.probe("observer")
        turn = 0
        while not self._stopping.wait(INTERVAL_S):
            serving = self._cluster.serving()
            if not serving:
                self._note_leaders({})
                continue
            turn += 1
            self._note_leaders({node_id: probe.topic(node_id, self._topic) for node_id in serving})
            if turn % 2 == 0:
                self._note_controller(probe.quorum(serving[turn // 2 % len(serving)]))
        probe.close()

    def _note_controller(self, quorum: QuorumView | None) -> None:
        if quorum is not None and quorum > self._quorum:
            if NO_LEADER != self._quorum.leader != quorum.leader:
                self.controller_changes += 1
            self._quorum = quorum
            self._record("controller", None, quorum.leader, {"epoch": quorum.epoch})

    def _note_leaders(self, views: Mapping[int, TopicView | None]) -> None:
        led: set[int] = set()
        for node_id, view in views.items():
            for partition, seen in (view.partitions if view is not None else {}).items():
                epoch, leader = self._leaders.get(partition, (-1, NO_LEADER))
                if seen.leader_epoch > epoch:
                    self._leaders[partition] = (seen.leader_epoch, seen.leader)
                    if leader != seen.leader:
                        self._note_change(partition, seen)
                if seen.leader == node_id and seen.leader_epoch >= epoch:
                    led.add(partition)
        now_s = time.monotonic()
        for partition in self._leaders:
            self.spells.note(partition, partition in led, now_s)

    def _note_change(self, partition: int, seen: PartitionView) -> None:
        self._record("leader", f"{self._topic}-{partition}", seen.leader, {"epoch": seen.leader_epoch})
        if seen.leader != NO_LEADER:
            self.leader_changes += self._last_leader.get(partition, seen.leader) != seen.leader
            self._last_leader[partition] = seen.leader

    def _record(self, op: str, key: str | None, leader: int, detail: dict[str, int]) -> None:
        if self._history is not None:
            self._history.record("info", PROCESS, op, key=key, value=str(leader), detail=detail)
