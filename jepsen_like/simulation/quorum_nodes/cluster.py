"""The world of whole quorum nodes: processes, links, one client and the invariants, on one virtual loop."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from pykraft.jepsen_like.simulation.quorum.cluster import REFUSED_AFTER_MS
from pykraft.jepsen_like.simulation.quorum.invariants.checker import Checker
from pykraft.jepsen_like.simulation.quorum.invariants.history import History
from pykraft.jepsen_like.simulation.quorum.narrator import Narrator
from pykraft.jepsen_like.simulation.quorum_nodes.node import NodeProcess
from pykraft.jepsen_like.simulation.quorum_nodes.plan import Plan
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import Effect
from pykraft.quorum.core.events import Event
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from pykraft.runtime.rpc import RpcFailure, RpcHandler
from pykraft.runtime.simulated.links import Links
from pykraft.runtime.simulated.processes import ProcessKilledError
from pykraft.runtime.simulated.rpc import SimCall
from pykraft.runtime.simulated.virtual_loop import VirtualLoop

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
    """``injected`` counts faults by kind; ``events`` counts effects carried out, commits delivered and leader
    changes announced, over all of which ``trace`` is a hash.
    """

    def __init__(self, seed: int, plan: Plan, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.rng = random.Random(f"{seed} world")
        self.options, self.config, self.segment_bytes = plan.options, plan.config, plan.segment_bytes
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
        self.led_epochs: set[int] = set()
        self.injected: Counter[str] = Counter()
        self.events = 0
        self.trace = hashlib.blake2b(digest_size=16)
        self.narrator: Narrator | None = None
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

    def note(self, process: NodeProcess, what: object) -> None:
        """Something has happened to a process that equal schedules have in common."""
        self.events += 1
        self.trace.update(f"{self.loop.now_s:.6f} {process.id} {what}".encode())

    def log_event(self, who: int | str, what: str) -> None:
        """Add a line to the story. ``who``: a process's id, or another part of the world."""
        if self.narrator is not None:
            self.narrator.log_event(self._now_ms(), who, what)

    def stepped(self, process: NodeProcess, event: Event) -> None:
        """A core has handled an event; its effects are still to come."""
        if self.narrator is not None:
            self.narrator.stepped(self._now_ms(), process, event)

    def _now_ms(self) -> int:
        return round(self.loop.now_s * 1000)

    def leading(self) -> list[NodeProcess]:
        return [p for p in self.processes.values() if p.alive and p.listener.leads]

    # --- faults -------------------------------------------------------------------------------------------

    def kill(self, process: NodeProcess) -> None:
        process.kill(power_loss=self.rng.random() < 0.6)
        self.restart_later(process)

    def kill_between_effects(self, process: NodeProcess, effect: Effect) -> None:
        self.injected["kill between effects"] += 1
        self.log_event(process.id, f"killed after {type(effect).__name__}")
        self.kill(process)

    def restart_later(self, process: NodeProcess) -> None:
        self.loop.call_later(self.rng.choice((1, 10, 60, 300)) / 1000, self._restart, process)

    def _restart(self, process: NodeProcess) -> None:
        self.run(self._start(process))

    async def _start(self, process: NodeProcess) -> None:
        if process.node is None:
            await process.start()

    def stop_and_restart(self, process: NodeProcess) -> None:
        self.run(self._stop_and_restart(process))

    async def _stop_and_restart(self, process: NodeProcess) -> None:
        await process.stop()
        self.restart_later(process)

    def others_have_records(self, victim: NodeProcess) -> bool:
        """Whether a majority of the voters keeps all records that it has flushed, even without this one."""
        lost = {victim.id, *self.checker.history.lost_batches}
        return victim.id in self.voters.ids and len(set(self.voters.ids) - lost) >= self.voters.majority

    # --- the client ---------------------------------------------------------------------------------------

    def client_turn(self) -> None:
        for process in self.leading():
            for _ in range(self.rng.choice((1, 1, 2, 5))):
                if process.alive and process.listener.leads:
                    self._propose(process)
        self.loop.call_later(self.options.proposal_gap_ms * 2 * self.rng.random() / 1000, self.client_turn)

    def _propose(self, process: NodeProcess) -> None:
        self._next_value += 1
        self.led_epochs.add(process.listener.leader.epoch)
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
