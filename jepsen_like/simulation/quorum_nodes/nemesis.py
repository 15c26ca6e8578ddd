"""Carries out the plan of a seed on whole quorum nodes."""

import random

from pykraft.jepsen_like.simulation.quorum.plan import Fault
from pykraft.jepsen_like.simulation.quorum_nodes.cluster import NodeCluster
from pykraft.jepsen_like.simulation.quorum_nodes.node import NodeProcess
from pykraft.jepsen_like.simulation.quorum_nodes.plan import Plan


class NodesNemesis:
    """Cuts stay until a fault heals them; what is killed or stopped starts again after a while."""

    def __init__(self, cluster: NodeCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._active = True

    def start(self) -> None:
        cluster, links, plan = self._cluster, self._cluster.links, self._plan
        links.drop, links.duplicate, links.straggle = plan.drop, plan.duplicate, plan.straggle
        cluster.kill_chance = plan.kill_chance
        for fault in plan.faults:
            cluster.loop.call_later(fault.at_ms / 1000, self._strike, fault)

    def stop(self) -> None:
        """End all faults for good."""
        self._active = False
        self._cluster.kill_chance = {}
        self._cluster.links.become_perfect()

    def _strike(self, fault: Fault) -> None:
        if not self._active:
            return
        cluster, rng = self._cluster, random.Random(fault.seed)
        processes = list(cluster.processes.values())
        victim = rng.choice(processes)
        leading = cluster.leading()
        if leading and rng.random() < 0.6:
            victim = rng.choice(leading)
        if self._inject(fault.kind, victim, rng):
            cluster.injected[fault.kind] += 1
            cluster.log_event(victim.id, f"{fault.kind} (fault {fault.number})")

    def _inject(self, kind: str, victim: NodeProcess, rng: random.Random) -> bool:
        """False if the fault does not fit the victim."""
        cluster, ids = self._cluster, list(self._cluster.processes)
        match kind:
            case "kill" if victim.node is not None:
                cluster.kill(victim)
            case "restart of a leader" if victim.alive and victim.listener.leads:
                cluster.stop_and_restart(victim)
            case "lost power and a flipped bit" if victim.alive and cluster.others_have_records(victim):
                victim.lose_power_and_a_bit()
                cluster.restart_later(victim)
            case "partition":
                cluster.links.partition([victim.id], ids)
            case "cut out":
                cluster.links.cut([victim.id], rng.sample(ids, rng.randrange(1, len(ids) + 1)))
            case "cut in":
                cluster.links.cut(rng.sample(ids, rng.randrange(1, len(ids) + 1)), [victim.id])
            case "heal":
                cluster.links.heal()
            case _:
                return False
        return True
