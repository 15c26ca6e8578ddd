"""The Raft core embedded in sixty lines: three replicas in one process agree on a list of words.

The core decides and never acts. The program around it executes its effects in order (the contract is in
``quorum/core/effects.py``) and reports what happened as events. Here a list is the log, a queue is the
network, and time is a number; ``quorum/driver.py`` does the same on a disk, on gRPC and on an event loop.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core import effects as e
from pykraft.quorum.core import events
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.log_shape import LogShape
from pykraft.quorum.core.messages import BatchSpan, Request, Response
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address

KEYS = [ReplicaKey(n, Uuid(bytes([n]) * 16)) for n in (1, 2, 3)]
VOTERS = VoterSet([Voter(key, Address("memory", key.id)) for key in KEYS])
WORDS = ["pull", "based", "Raft"]


class Replica:
    """One core, its log in memory, and the calls that it has not responded to yet."""

    def __init__(self, key: ReplicaKey, network: deque[tuple[Replica, events.Event]]) -> None:
        self.log: list[tuple[BatchSpan, object]] = []
        self.peers: dict[int, Replica] = {}
        self._network = network
        self._calls: list[tuple[Replica, int]] = []
        self.core = RaftCore(
            config=QuorumConfig(),
            cluster_id="example",
            local=key,
            history=VoterHistory(VOTERS),
            rng=random.Random(key.id),
            election=ElectionState(),
            log=LogShape(),
            now_ms=0,
        )

    def committed(self) -> list[object]:
        return [word for span, word in self.log if word and span.end_offset <= self.core.state.high_watermark]

    def step(self, event: events.Event, now_ms: int) -> None:
        for effect in self.core.step(event, now_ms):
            self._carry_out(effect)

    def call(self, caller: Replica, correlation_id: int, request: Request) -> None:
        self._calls.append((caller, correlation_id))
        self._network.append((self, events.RequestReceived(len(self._calls) - 1, request)))

    def _answer(self, token: int, response: Response) -> None:
        caller, correlation_id = self._calls[token]
        self._network.append((caller, events.ResponseReceived(correlation_id, response)))

    def _carry_out(self, effect: e.Effect) -> None:
        match effect:
            case e.AppendLeaderChange(offset, epoch):
                self.log.append((BatchSpan(offset, offset + 1, epoch), None))
            case e.AppendProposal(base_offset, end_offset, epoch, word):
                self.log.append((BatchSpan(base_offset, end_offset, epoch), word))
            case e.AppendFetched(_, payload):
                assert isinstance(payload, list)
                self.log += payload
            case e.TruncateTo(end_offset):
                self.log = [batch for batch in self.log if batch[0].end_offset <= end_offset]
            case e.FlushLog(end_offset, generation):  # memory counts as durable here
                self._network.append((self, events.LogFlushed(end_offset, generation)))
            case e.Send(to, correlation_id, request):
                self.peers[to].call(self, correlation_id, request)
            case e.Reply(token, response):
                self._answer(token, response)
            case e.ReplyWithRecords(token, response, start_offset):
                found = [batch for batch in self.log if batch[0].base_offset >= start_offset]
                spans = tuple(span for span, _ in found)
                self._answer(token, replace(response, batches=spans, payload=found))


def main() -> dict[int, list[object]]:
    """The committed words of each replica, by its id."""
    network: deque[tuple[Replica, events.Event]] = deque()
    replicas = {key.id: Replica(key, network) for key in KEYS}
    for replica in replicas.values():
        replica.peers = replicas
        replica.step(events.Started(), now_ms=0)
    words, now_ms = deque(WORDS), 0
    while any(replica.committed() != WORDS for replica in replicas.values()):
        while network:
            receiver, event = network.popleft()
            receiver.step(event, now_ms)
        for replica in replicas.values():
            epoch = replica.core.state.epoch
            if words and replica.core.may_propose(epoch):
                replica.step(events.Proposed(epoch, 1, words.popleft()), now_ms)
        now_ms += 10
        for replica in replicas.values():
            replica.step(events.TimerFired(), now_ms)
    return {node_id: replica.committed() for node_id, replica in replicas.items()}


if __name__ == "__main__":
    for node_id, words in main().items():
        print(f"replica {node_id}: {' '.join(map(str, words))}")
