"""Carries out a plan on a cluster of processes, and leaves everything repaired.

Decides when a fault may begin, and what is recorded of it. Each fault is inflicted, kept in force and
repaired on a thread of its own; while it lasts it has its claims on its victims to itself.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.history import NEMESIS, REPAIRED, HistoryWriter
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Plan
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, Repair, ToldRepair
from pykraft.jepsen_like.faults.nemeses.node_watch import NodeWatch
from pykraft.jepsen_like.faults.nemeses.victims import choose_victims
from pykraft.kafka_client.cluster_probe import ClusterProbe
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.testing.processes.waits import WaitError

PATIENCE_S: Final = 15.0
"""How long a fault waits until it may happen; then it is left out."""
LAST_PATIENCE_S: Final = 60.0
OPERATOR_AFTER_S: Final = 10.0
"""How long partitions may have no replica that counts before one of the others is made their leader."""
TICK_S: Final = 0.1
_THREADS: Final = 32


@dataclass(frozen=True, slots=True)
class _Active:
    """A fault that is being inflicted, is in force, or is being repaired."""

    fault: Fault
    kind: Kind
    victims: tuple[int, ...]
    playing: Future[None]


class Nemesis:
    """``topics`` are the workload's: leaders are those of the first, and a node whose disk has lost its tail
    counts as restored when it is in sync in all of them. ``progress`` is told of every fault and repair in
    one line."""

    def __init__(
        self,
        cluster: ProcessCluster,
        topics: Sequence[str],
        plan: Plan,
        history: HistoryWriter,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._plan = plan
        self._history = history
        self._progress = progress
        self._nodes = NodeWatch(cluster, topics, history, progress)
        self._stopping = threading.Event()
        self._all_over = threading.Event()
        self._active: list[_Active] = []
        self._operator_comes_s = 0.0

    def run(self, time_limit_s: float) -> None:
        """Break and repair until ``time_limit_s`` have passed; returns with everything repaired."""
        start_s = time.monotonic()
        waiting = [(start_s + fault.at_s, fault) for fault in self._plan.faults]
        probe = self._cluster.probe(NEMESIS)
        with ThreadPoolExecutor(_THREADS, NEMESIS) as pool:
            try:
                while time.monotonic() < start_s + time_limit_s and not self._stopping.is_set():
                    self._look(probe)
                    waiting = self._begin_due(waiting, probe, pool)
                    self._stopping.wait(TICK_S)
                self._all_over.set()
                self._await_repairs(probe)
                self._await_nodes(probe)
            except BaseException:
                self._cluster.kill_all()  # so that what waits for nodes ends, and the pool with it
                raise
            finally:
                self._all_over.set()
                probe.close()

    def stop(self) -> None:
        """End the run early (from another thread or a signal handler)."""
        self._stopping.set()

    # --- beginnings ----------------------------------------------------------------------------------------

    def _begin_due(
        self, waiting: list[tuple[float, Fault]], probe: ClusterProbe, pool: ThreadPoolExecutor
    ) -> list[tuple[float, Fault]]:
        """Begin what is due and may happen; the faults that remain."""
        remaining = []
        for due_s, fault in waiting:
            now_s = time.monotonic()
            if due_s > now_s or (not self._begin(fault, probe, pool) and now_s < due_s + PATIENCE_S):
                remaining.append((due_s, fault))
        return remaining

    def _begin(self, fault: Fault, probe: ClusterProbe, pool: ThreadPoolExecutor) -> bool:
        kind = KINDS[fault.kind]
        claimed = {
            (node_id, claim)
            for one in self._active
            for node_id in (one.victims or (None,))
            for claim in one.kind.claims
        }
        down = self._disabled() | self._nodes.returning
        spared = self._nodes.hit_again
        victims = choose_victims(self._cluster, self._topics[0], fault, kind, claimed, down, spared, probe)
        if victims is None:
            return False
        playing = pool.submit(self._play, fault, kind, victims)
        self._active.append(_Active(fault, kind, victims, playing))
        return True

    # --- one fault, on a thread of its own -----------------------------------------------------------------

    def _play(self, fault: Fault, kind: Kind, victims: tuple[int, ...]) -> None:
        begun_us = self._history.now_us()
        try:
            repair = kind.inflict(self._cluster, fault, victims)
            self._record_beginning(fault, kind, victims, begun_us, repair)
            self._all_over.wait(fault.lasts_s)
            repair()
            self._record_end(fault, kind, victims)
        except NotPossibleNowError:
            pass
        except WaitError as error:  # a cluster that does not let itself be repaired in time
            self._history.record("info", NEMESIS, "no-progress", error=f"{kind.name}: {error}")
        if kind.disables or kind.may_end:
            self._nodes.is_over(victims, may_end=kind.may_end)

    def _record_beginning(
        self, fault: Fault, kind: Kind, victims: tuple[int, ...], begun_us: int, repair: Repair
    ) -> None:
        detail = {
            "number": fault.number,
            "target": fault.target.value,
            "for_s": fault.lasts_s,
            **fault.settings,
            **(repair.detail if isinstance(repair, ToldRepair) else {}),
        }
        value = _written(victims)
        self._history.record("ok", NEMESIS, kind.name, time_us=begun_us, value=value, detail=detail)
        if kind.loses_tails:
            self._nodes.lost_tail(victims, is_damaged=kind.family == "damage")
        self._progress(f"{kind.name} {value}".rstrip())

    def _record_end(self, fault: Fault, kind: Kind, victims: tuple[int, ...]) -> None:
        detail = {"number": fault.number, "kind": kind.name}
        self._history.record("ok", NEMESIS, REPAIRED, value=_written(victims), detail=detail)
        self._progress(f"{kind.name} {_written(victims)}".rstrip() + " repaired")

    # --- nodes ---------------------------------------------------------------------------------------------

    def _look(self, probe: ClusterProbe) -> None:
        """Follow faults and nodes; an error of a fault is an error of the run."""
        for one in tuple(self._active):
            if one.playing.done():
                one.playing.result()
                self._active.remove(one)
        may_end = self._victims(lambda kind: kind.may_end)
        held = self._victims(lambda kind: kind.may_end or kind.has_process)
        self._nodes.look(probe, self._disabled(), may_end, held)
        if not self._nodes.need_operator:
            self._operator_comes_s = time.monotonic() + OPERATOR_AFTER_S
        elif time.monotonic() > self._operator_comes_s:
            self._elect_anyone()
            self._operator_comes_s = time.monotonic() + OPERATOR_AFTER_S

    def _elect_anyone(self) -> None:
        """Unclean elections of the partitions that nobody leads."""
        with Administrator(self._cluster) as admin, suppress(KafkaError):
            for outcome in admin.client.elect_leaders(ElectionType.UNCLEAN):
                if outcome.error is None:
                    self._history.record("info", NEMESIS, "unclean-election", value=str(outcome.partition))

    def _disabled(self) -> frozenset[int]:
        return self._victims(lambda kind: kind.disables)

    def _victims(self, of: Callable[[Kind], bool]) -> frozenset[int]:
        return frozenset(node_id for one in self._active if of(one.kind) for node_id in one.victims)

    def _await_repairs(self, probe: ClusterProbe) -> None:
        while self._active:
            self._look(probe)
            time.sleep(TICK_S)

    def _await_nodes(self, probe: ClusterProbe) -> None:
        """Wait until nodes answer and have their records. The run's last phase finds those that stay away."""
        self._cluster.heal()
        end_s = time.monotonic() + LAST_PATIENCE_S
        self._nodes.expect_all(LAST_PATIENCE_S)
        while not self._nodes.all_well and time.monotonic() < end_s:
            self._look(probe)
            time.sleep(TICK_S)


def _written(victims: Sequence[int]) -> str:
    return ",".join(map(str, victims))
