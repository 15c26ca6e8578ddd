"""Watches the nodes while faults are in force: who is back, who ended by itself, whose replicas are in sync.

A node that ends although nothing gave it a reason is a finding. Whatever has ended it, it is started again as
soon as no fault holds it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.history import NEMESIS, HistoryWriter
from pykraft.kafka_client.cluster_probe import ClusterProbe

INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
MIN_INSYNC_REPLICAS: Final = 2
"""That of all topics."""
BACK_WITHIN_S: Final = 15.0
"""A node that has not answered until then is no longer waited for."""
_PROBE_TIMEOUT_MS: Final = 300
_ENDED: Final = "node-exited"
_GAVE_UP: Final = "node-gave-up"


class NodeWatch:
    """For one thread, except :meth:`lost_tail` and :meth:`is_over`, which threads of faults may call."""

    def __init__(
        self,
        cluster: ProcessCluster,
        topics: Sequence[str],
        history: HistoryWriter,
        progress: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._history = history
        self._progress = progress
        self._returning: dict[int, float] = {}
        """Nodes that were disabled and have not answered since, with the time until which that counts."""
        self._hit_again: set[int] = set()
        """Those of them that another fault has disturbed before they were back."""
        self._excused: dict[int, float] = {}
        """Nodes that may still end because of a fault that is over, with the time until which they may."""
        self._unclean_ends: dict[int, int] = {}
        """How many of each node's processes are known to have ended without flushing."""
        self._out_of_sync: set[int] = set()
        """Nodes that have ended so, or lost their tails, and whose replicas have not been in sync since."""
        self._damaged: set[int] = set()
        """Those of them that have a damaged replica."""

    @property
    def returning(self) -> frozenset[int]:
        """Nodes that count as down although no fault is in force on them."""
        return frozenset(tuple(self._returning))

    @property
    def hit_again(self) -> frozenset[int]:
        """Nodes that need peace to come back: others' faults would hit a starting one again and again."""
        return frozenset(tuple(self._hit_again))

    @property
    def all_well(self) -> bool:
        return not self._returning and not self._out_of_sync

    @property
    def need_operator(self) -> bool:
        """Whether a partition may have lost all replicas that count: nobody leads it until someone acts."""
        return bool(self._damaged) and len(self._out_of_sync) >= MIN_INSYNC_REPLICAS

    def lost_tail(self, victims: Iterable[int], *, is_damaged: bool) -> None:
        """Note that these nodes lost what they had not flushed. Processes that ended are part of it."""
        for node_id in victims:
            self._unclean_ends[node_id] = self._cluster.nodes[node_id].unclean_ends
            self._out_of_sync.add(node_id)
            self._history.record("info", NEMESIS, "tail-loss", value=str(node_id))
        if is_damaged:
            self._damaged |= set(victims)

    def is_over(self, victims: Iterable[int], *, may_end: bool) -> None:
        """A fault that has disturbed these nodes is repaired."""
        until = dict.fromkeys(victims, time.monotonic() + BACK_WITHIN_S)
        self._hit_again |= until.keys() & self._returning.keys()
        self._returning |= until
        if may_end:
            self._excused |= until

    def expect_all(self, within_s: float) -> None:
        """From now on every member counts as down until it answers."""
        self._returning = dict.fromkeys(self._cluster.members, time.monotonic() + within_s)

    def look(
        self,
        probe: ClusterProbe,
        disabled: Collection[int],
        may_end: Collection[int],
        held: Collection[int],
    ) -> None:
        """``disabled``: the nodes on which disabling faults are in force; ``may_end``: those that may end
        now; ``held``: those that are not to be started as long as a fault is in force."""
        self._note_back(probe)
        self._note_unclean_ends()
        self._note_restored(probe, {*disabled, *may_end})
        for node_id, what in self._cluster.unordered_exits().items():
            has_reason = node_id in may_end or time.monotonic() < self._excused.get(node_id, 0.0)
            self._cluster.nodes[node_id].forgive_exit()
            self._history.record("info", f"node-{node_id}", _GAVE_UP if has_reason else _ENDED, error=what)
            self._progress(f"node {node_id} ended by itself")
        self._cluster.ensure_running({*self._cluster.members} - {*held})

    def _note_back(self, probe: ClusterProbe) -> None:
        for node_id, until_s in tuple(self._returning.items()):
            is_over = until_s < time.monotonic() or node_id not in self._cluster.members
            if is_over or probe.topic(node_id, self._topics[0], _PROBE_TIMEOUT_MS) is not None:
                del self._returning[node_id]
                self._hit_again.discard(node_id)

    def _note_unclean_ends(self) -> None:
        for node_id, node in self._cluster.nodes.items():
            ends = node.unclean_ends
            if ends > self._unclean_ends.get(node_id, 0):
                self._unclean_ends[node_id] = ends
                self._out_of_sync.add(node_id)
                self._history.record("info", NEMESIS, "unclean-end", value=str(node_id))

    def _note_restored(self, probe: ClusterProbe, disturbed: Collection[int]) -> None:
        """A node that may be ending now is not asked: its answer might be from before."""
        for node_id in sorted(self._out_of_sync - set(disturbed)):
            is_gone = node_id not in self._cluster.members  # and its replicas with it
            if is_gone or self._is_in_sync(node_id, probe):
                self._out_of_sync.discard(node_id)
                self._damaged.discard(node_id)
                self._history.record("info", NEMESIS, "tail-restored", value=str(node_id))

    def _is_in_sync(self, node_id: int, probe: ClusterProbe) -> bool:
        """Whether each of its replicas has been in sync since it came back: before it has applied its own
        registration, which takes it out of every ISR, it does not answer."""
        for topic in (*self._topics, *INTERNAL_TOPICS):
            view = probe.topic(node_id, topic, _PROBE_TIMEOUT_MS)
            if view is None or node_id not in view.brokers:
                return False
            if any(node_id in one.replicas and node_id not in one.isr for one in view.partitions.values()):
                return False
        return True
