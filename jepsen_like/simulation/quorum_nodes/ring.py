"""Quorum nodes under faults in virtual time: ``python -m pykraft.jepsen_like.simulation.quorum_nodes.ring``.

The same invariants as for the core alone (:mod:`.quorum.ring`), and those of delivery, with the parts that
the core's simulation leaves out: the driver with its queue of effects and flushes in an executor, the log
with its segments, the state file, the bytes on the wire. A schedule costs more, so there are fewer.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from pykraft.jepsen_like.simulation.quorum.cluster import CONFIG, REFUSED_AFTER_MS
from pykraft.jepsen_like.simulation.quorum.invariants.checker import Checker
from pykraft.jepsen_like.simulation.quorum.invariants.history import History
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.plan import draw_options
from pykraft.jepsen_like.simulation.quorum_nodes.node import NodeProcess
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core import effects
from pykraft.quorum.core.effects import Effect
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from pykraft.runtime.rpc import RpcFailure, RpcHandler
from pykraft.runtime.simulated.links import Links
from pykraft.runtime.simulated.processes import ProcessKilledError
from pykraft.runtime.simulated.rpc import SimCall
from pykraft.runtime.simulated.virtual_loop import VirtualLoop

VIRTUAL_S = 5.0
PROGRESS_WITHIN_S = 6.0
_COMMAND = "reproduce: python -m pykraft.jepsen_like.simulation.quorum_nodes.ring"
OnReply = Callable[[bytes | RpcFailure], None]


class _Server:
    def __init__(self, handlers: dict[str, RpcHandler]) -> None:
        self._handlers = handlers

    def register(self, method: str, handler: RpcHandler) -> None:
        self._handlers[method] = handler


class _Transport:
    """Calls of one incarnation of one process."""

    def __init__(self, cluster: NodeCluster, sender: NodeProcess) -> None:
        self._cluster = cluster
        self._sender = sender
        self._incarnation = sender.incarnation

    def send(self, to: Address, method: str, payload: bytes, deadline_ms: int, on_reply: OnReply) -> SimCall:
        cluster, sender, loop = self._cluster, self._sender, self._cluster.loop
        receiver = cluster.processes[to.port]
        answered = False

        def answer(outcome: bytes | RpcFailure) -> None:
            nonlocal answered
            if not answered and sender.incarnation == self._incarnation:
                answered = True
                on_reply(outcome)

        def cancel() -> None:
            nonlocal answered
            answered = True

        def arrive() -> None:
            if receiver.alive:
                cluster.handlers[receiver.id][method](payload).add_done_callback(reply)  # type: ignore[attr-defined]

        def reply(handled: asyncio.Future[bytes]) -> None:
            for delay_ms in cluster.links.deliveries(receiver.id, sender.id):
                loop.call_later(delay_ms / 1000, answer, handled.result())

        delays = cluster.links.deliveries(sender.id, receiver.id)
        if delays and not receiver.alive:
            return SimCall(loop.call_later(REFUSED_AFTER_MS / 1000, answer, RpcFailure("refused")).cancel)
        loop.call_later(deadline_ms / 1000, answer, RpcFailure("deadline"))
        for delay_ms in delays:
            loop.call_later(delay_ms / 1000, arrive)
        return SimCall(cancel)

    async def close(self) -> None:
        """Do nothing: no connection is open."""


class NodeCluster:
    """Processes, links, one client and the invariants, on one virtual loop."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.rng = random.Random(seed)
        self.options: ClusterOptions = draw_options(self.rng)
        self.segment_bytes = self.rng.choice((400, 2000, 1 << 20))
        self.config = replace(CONFIG, fetch_max_bytes=self.rng.choice((1000, 1 << 20)))
        self.links = Links(random.Random(seed + 1), max_delay_ms=self.options.max_delay_ms)
        count = self.options.voters + self.options.observers
        keys = [ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in range(1, count + 1)]
        named = [ReplicaKey(k.id) if self.options.static_voters else k for k in keys[: self.options.voters]]
        self.voters = VoterSet([Voter(key, Address("sim", key.id)) for key in named])
        self.checker = Checker(History())
        self.handlers: dict[int, dict[str, RpcHandler]] = {key.id: {} for key in keys}
        self.processes = {key.id: NodeProcess(self, key) for key in keys}
        self.checker.history.replicas = list(self.processes.values())
        self.kill_chance: dict[type[Effect], float] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.error: BaseException | None = None
        self.faulty = True
        self.leaders: set[int] = set()
        self._next_value = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    def transport(self, sender: NodeProcess) -> _Transport:
        return _Transport(self, sender)

    def server(self, process: NodeProcess) -> Any:
        return _Server(self.handlers[process.id])

    def failed(self, error: BaseException) -> None:
        self.error = self.error or error

    def run(self, coroutine: Any) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ProcessKilledError):
            self.failed(error)

    def leading(self) -> list[NodeProcess]:
        return [p for p in self.processes.values() if p.alive and p.listener.leads]

    # --- faults -------------------------------------------------------------------------------------------

    def kill(self, process: NodeProcess) -> None:
        process.kill(power_loss=self.rng.random() < 0.6)
        self._restart_later(process)

    def _restart_later(self, process: NodeProcess) -> None:
        self.loop.call_later(self.rng.choice((1, 10, 60, 300)) / 1000, self._restart, process)

    def _restart(self, process: NodeProcess) -> None:
        self.run(self._start(process))

    async def _start(self, process: NodeProcess) -> None:
        if process.node is None:
            await process.start()

    async def _stop_and_restart(self, process: NodeProcess) -> None:
        await process.stop()
        self._restart_later(process)

    def start_faults(self) -> None:
        rng, links = self.rng, self.links
        links.drop = rng.choice((0.0, 0.0, 0.02))
        links.duplicate = rng.choice((0.0, 0.05, 0.2))
        links.straggle = rng.choice((0.0, 0.02, 0.1))
        if rng.random() < 0.6:
            chance = rng.choice((0.002, 0.01))
            self.kill_chance = {
                effects.AppendFetched: chance,
                effects.AppendProposal: chance,
                effects.AppendLeaderChange: 4 * chance,
                effects.TruncateTo: 8 * chance,
                effects.PersistElectionState: 2 * chance,
                effects.FlushLog: chance,
                effects.Reply: chance / 4,
            }
        self._gap_s = rng.choice((0.05, 0.15, 0.4))
        self.loop.call_later(self._gap_s, self._inject_fault)

    def _inject_fault(self) -> None:
        if not self.faulty:
            return
        rng, ids = self.rng, list(self.processes)
        victim = rng.choice(self.leading() or list(self.processes.values()))
        if rng.random() < 0.4:
            victim = rng.choice(list(self.processes.values()))
        match rng.randrange(9):
            case 0 | 1 if victim.node is not None:
                self.kill(victim)
            case 8 if victim.alive and self._others_have_records(victim):
                victim.lose_power_and_a_bit()
                self._restart_later(victim)
            case 2:
                self.links.partition([victim.id], ids)
            case 3:
                self.links.cut([victim.id], rng.sample(ids, rng.randrange(1, len(ids) + 1)))
            case 4:
                self.links.cut(rng.sample(ids, rng.randrange(1, len(ids) + 1)), [victim.id])
            case 5 if victim.alive and victim.listener.leads:
                self.run(self._stop_and_restart(victim))
            case _:
                self.links.heal()
        self.loop.call_later(self._gap_s * 2 * rng.random(), self._inject_fault)

    def _others_have_records(self, victim: NodeProcess) -> bool:
        """Whether a majority of the voters keeps all records that it has flushed, even without this one."""
        lost = {victim.id, *self.checker.history.lost_batches}
        return victim.id in self.voters.ids and len(set(self.voters.ids) - lost) >= self.voters.majority

    def heal(self) -> None:
        self.faulty = False
        self.kill_chance = {}
        self.links.become_perfect()

    # --- the client ---------------------------------------------------------------------------------------

    def client_turn(self) -> None:
        for process in self.leading():
            for _ in range(self.rng.choice((1, 1, 2, 5))):
                if process.alive and process.listener.leads:
                    self._propose(process)
        self.loop.call_later(self.options.proposal_gap_ms * 2 * self.rng.random() / 1000, self.client_turn)

    def _propose(self, process: NodeProcess) -> None:
        self._next_value += 1
        self.leaders.add(process.listener.leader.epoch)
        try:
            process.listener.propose(b"%d" % self._next_value, 1 + self.rng.randrange(3))
        except (KafkaError, ProcessKilledError):
            return

    # --- the end ------------------------------------------------------------------------------------------

    def has_caught_up(self) -> bool:
        """Whether every process is alive, follows the same leader, and has delivered a value of its epoch."""
        processes = list(self.processes.values())
        if not all(process.alive for process in processes):
            return False
        leaders = {process.listener.leader for process in processes}
        return (
            len(leaders) == 1
            and len(self.leading()) == 1
            and min(process.listener.next_offset for process in processes) > self._goal
        )

    def set_goal(self) -> None:
        self._goal = self.checker.history.committed_end_offset

    def check_everything(self) -> None:
        processes = list(self.processes.values())
        self.checker.check_everything(processes)
        held = {batch.end_offset - 1: batch.value for batch in self.checker.history.committed}
        for value, offset in self.acknowledged.items():
            if value not in held[offset]:  # type: ignore[operator]
                raise InvariantViolation("acknowledged values are never lost", f"{value!r} at {offset}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of one schedule."""

    seed: int
    acknowledged: int
    led_epochs: int
    restarts: int


def run_schedule(seed: int) -> Outcome:
    """Run one schedule; raises the errors of the invariants, and an error that halted a node."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_run(seed, loop))
    finally:
        loop.close()


async def _run(seed: int, loop: VirtualLoop) -> Outcome:
    cluster = NodeCluster(seed, loop)

    def on_error(_: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ProcessKilledError):
            cluster.failed(error or RuntimeError(context["message"]))

    loop.set_exception_handler(on_error)
    for process in cluster.processes.values():
        cluster.run(process.start())
    cluster.client_turn()
    cluster.start_faults()
    await _let_pass(cluster, VIRTUAL_S, lambda: False)
    cluster.heal()
    cluster.set_goal()
    if not await _let_pass(cluster, PROGRESS_WITHIN_S, cluster.has_caught_up):
        raise InvariantViolation(
            "progress", "after healing not every listener follows a leader and has a new value"
        )
    cluster.check_everything()
    restarts = sum(process.incarnation - 1 for process in cluster.processes.values())
    return Outcome(seed, len(cluster.acknowledged), len(cluster.leaders), restarts)


async def _let_pass(cluster: NodeCluster, duration_s: float, until: Callable[[], bool]) -> bool:
    end_s = cluster.loop.now_s + duration_s
    while not until():
        await asyncio.sleep(0.01)
        if cluster.error is not None:
            raise cluster.error
        if cluster.loop.now_s >= end_s:
            return False
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pykraft.jepsen_like.simulation.quorum_nodes.ring")
    parser.add_argument("--seed", type=int, help="run this one schedule")
    parser.add_argument("--seeds", type=int, default=50, help="run this many schedules, from --first on")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # a violation halts the node that it is found in
    first, count = options.first, options.seeds
    if options.seed is not None:
        first, count = options.seed, 1
    began = perf_counter()
    acknowledged = led_epochs = restarts = 0
    for seed in range(first, first + count):
        try:
            outcome = run_schedule(seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}; {_COMMAND} --seed {seed}")
            return 1
        acknowledged += outcome.acknowledged
        led_epochs += outcome.led_epochs
        restarts += outcome.restarts
    print(
        f"{count} schedules of whole nodes, {acknowledged} values acknowledged, {led_epochs} epochs led,"
        f" {restarts} restarts, 0 violations, {perf_counter() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
