"""Faults that are aimed at transactions: between which steps a broker dies, and what becomes of markers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pykraft.jepsen_like.faults.history import Event
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import WriteTxnMarkersRequest
from pykraft.transaction_coordinator.transaction import TransactionVersion

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.model import Model
    from pykraft.jepsen_like.simulation.cluster.view import Cluster, Machine

COORDINATOR_KILLED: Final = "coordinator killed"
KILLED_BETWEEN_STEPS: Final = "killed between two steps"
MARKERS_LOST: Final = "markers lost"
MARKERS_LATE: Final = "markers repeated late"
KINDS: Final = (COORDINATOR_KILLED, KILLED_BETWEEN_STEPS, KILLED_BETWEEN_STEPS, MARKERS_LOST, MARKERS_LATE)
REPLACED: Final = ("power loss", "power loss of all", "disk loss", "rot", "bad sector", "lease race")
"""Where no disk loses anything, these faults are replaced by those of :data:`KINDS`."""
SHARE: Final = 0.35
"""So many of the others are, too."""

STATE_TOPIC: Final = "__transaction_state"
STATE_PARTITIONS: Final = 3
_STEPS: Final = ("send", "send", "txn-offset", "txn-commit", "txn-commit", "txn-abort", "txn-init")
_LATE_MS: Final = (30, 300, 1500, 6000)

Undo = Callable[[], None]


class TransactionFaults:
    """``step`` is called with every event of the clients.

    ``loses``: the share of marker requests without effect, or without an answer; ``repeats``: whether such
    requests arrive once more, later; ``holds``: no marker is sent to the partitions of this topic;
    ``ends_at_ms``: the time at which all faults end, ``is_over``: they have; ``send``: sends one to a broker.
    """

    def __init__(self, world: Cluster, model: Model, rng: random.Random) -> None:
        self._world = world
        self._model = model
        self._rng = rng
        self._armed: dict[int, Callable[[Event], None]] = {}
        self.loses = 0.0
        self.repeats = False
        self.holds: str | None = None
        self.ends_at_ms = 0
        self.is_over = False
        self.send: Callable[[int, WriteTxnMarkersRequest], None] | None = None

    def leader_of(self, topic: str, index: int) -> Machine | None:
        """The broker that leads a partition, by the metadata log."""
        for known in self._model.topics.values():
            if known.name == topic and index < len(known.partitions):
                return self._world.nodes.get(known.partitions[index].leader)
        return None

    def end(self) -> None:
        """No fault begins any more."""
        self.is_over = True
        self.holds = None

    def step(self, event: Event) -> None:
        for armed in list(self._armed.values()):
            armed(event)

    def begin(self, kind: str, number: int, rng: random.Random) -> Undo | None:
        """Inject the fault; returns what ends it, None if it is not possible now."""
        if kind == MARKERS_LOST:
            self.loses = rng.choice((0.3, 0.7, 1.0))
            return self._end_loss
        if kind == MARKERS_LATE:
            self.repeats = True
            return self._end_repeats
        if kind == COORDINATOR_KILLED:
            victim = self.leader_of(STATE_TOPIC, rng.randrange(STATE_PARTITIONS))
            if victim is None or not victim.alive:
                return None
            victim.kill(power_loss=False)
            return victim.start
        return self._arm(number, rng)

    def _end_loss(self) -> None:
        self.loses = 0.0

    def _end_repeats(self) -> None:
        self.repeats = False

    def _arm(self, number: int, rng: random.Random) -> Undo:
        """Wait for a step of some client, and kill the broker that it concerns a moment later."""
        op, left = rng.choice(_STEPS), rng.randrange(1, 6)
        is_answer, after_ms = rng.random() < 0.4, rng.choice((0, 1, 3, 10, 40))
        killed: list[Machine] = []

        def look(event: Event) -> None:
            nonlocal left
            if event.op != op or ((event.type == "invoke") == is_answer and op != "txn-offset"):
                return
            left -= 1
            if left > 0:
                return
            self._armed.pop(number, None)
            topic, index = STATE_TOPIC, rng.randrange(STATE_PARTITIONS)
            if op == "send" and event.key is not None:
                topic, _, partition = event.key.rpartition("-")
                index = int(partition)
            self._world.later(after_ms, strike, topic, index)

        def strike(topic: str, index: int) -> None:
            victim = self.leader_of(topic, index)
            if victim is not None and victim.alive:
                killed.append(victim)
                self._world.log_event(victim.id, f"is to die now, as the leader of {topic}-{index}")
                victim.kill(power_loss=False)

        def undo() -> None:
            self._armed.pop(number, None)
            for victim in killed:
                victim.start()

        self._armed[number] = look
        return undo

    async def exchange(
        self,
        send: Callable[..., Awaitable[Any]],
        sender: Any,
        node_id: int,
        due: Sequence[Any],
    ) -> None:
        """Markers of a coordinator, to one broker; what did not pass is handed back to ``sender``."""
        held = [one for one in due if one[1][0] == self.holds]
        if held:
            sender._send_later(held)
            due = [one for one in due if one[1][0] != self.holds]
            if not due:
                return
        loses = self._rng.random() < self.loses
        if loses and self._rng.random() < 0.5:
            sender._send_later(due)
            return
        if self.repeats:
            self._repeat_later(node_id, due)
        await send(_without_answers(sender) if loses else sender, node_id, due)

    def _repeat_later(self, node_id: int, due: Sequence[Any]) -> None:
        """Only of transactions with an epoch of their own: the old rules cannot tell them (KIP-890)."""
        markers = [
            ending.marker([place])
            for ending, place in due
            if ending.end.transaction_version >= TransactionVersion.TV_2
        ]
        if markers:
            request = WriteTxnMarkersRequest(markers=markers)
            self._world.later(self._rng.choice(_LATE_MS), self._repeat, node_id, request)

    def _repeat(self, node_id: int, request: WriteTxnMarkersRequest) -> None:
        if self.send is not None:
            self.send(node_id, request)


def _without_answers(sender: Any) -> Any:
    """One whose requests arrive, and whose answers do not. It shares all that is due."""
    deaf = copy(sender)
    deaf._peers, deaf._send_later = _Peers(sender._peers), sender._send_later

    async def write_here(ends: Any) -> NoReturn:
        await sender._write_here(ends)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the answer is lost")

    deaf._write_here = write_here
    return deaf


class _Peers:
    """Brokers whose answers are lost."""

    def __init__(self, peers: Any) -> None:
        self._peers = peers

    async def call(self, *arguments: Any) -> NoReturn:
        await self._peers.call(*arguments)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the answer is lost")
