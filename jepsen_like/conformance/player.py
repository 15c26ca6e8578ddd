"""Plays a script against one system, over plain connections, and notes every answer with its place.

Each actor sends one request at a time, in the order of the script. JoinGroup and SyncGroup may wait for other
members; then the actor goes on with another connection, and the answer is noted after the step that let it
come. Whether an answer is only late or waits for something cannot be told, so it is given some time
(``grace_s``); a difference counts only if longer times do not explain it (:mod:`.compare`).

Two round trips follow each request that waits, so that a system with one network thread and one request
handler has certainly begun with it before it sees the next.

A request of a producer whose answer stems from speed (:mod:`.settling`) is sent again, and after the end of a
transaction its markers are waited for: what comes next finds the same state in both systems.
"""

import itertools
import select
import time
from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.conformance import settling
from pykraft.jepsen_like.conformance.lane import ANSWER_TIMEOUT_S, Lane
from pykraft.jepsen_like.conformance.learning import learn
from pykraft.jepsen_like.conformance.masks import Masks, Plain
from pykraft.jepsen_like.conformance.probe import Probe, decode
from pykraft.jepsen_like.conformance.script import (
    NO_TOPIC_ID,
    Actor,
    Script,
    Step,
    TransactionalId,
    fill,
    strings_in,
)
from pykraft.kafka_protocol.codec.schema import Message, ProtocolError
from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)
from pykraft.kafka_protocol.messages.transactions import EndTxnRequest

STILL_WAITS: Final = "still waits"

Answer = Plain | str
"""A plain answer, or what happened in place of one."""

_runs = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Event:
    """The answer to a step, and the step after which it came."""

    after: int
    step: int
    answer: Answer


class System(Probe):
    """One system at an address."""

    def play(self, script: Script, grace_s: float) -> list[Event]:
        run = _Run(self, script, grace_s)
        try:
            return run.play()
        finally:
            run.close()


class _Run:
    """One playing of one script: its facts, its connections, its events."""

    def __init__(self, system: System, script: Script, grace_s: float) -> None:
        self._system = system
        self._script = script
        self._grace_s = grace_s
        self._settled_s = settling.SETTLED_S + settling.GRACES * grace_s
        self._prefix = f"s{script.seed}-{next(_runs)}-"
        self._actors: dict[int, Actor] = {}
        self._names: dict[str, str] = {}
        self._stuck: set[str] = set()
        """Transactional ids whose markers cannot be written."""
        self._fresh = {self._prefix + name: count for name, count in script.fresh_topics}
        self._topic_ids = self._choose_topics()
        self._topic_names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        said = frozenset(strings_in(script.steps))
        self._masks = Masks(said, self._names, self._topic_names)
        self._lanes: dict[int, list[Lane]] = {}
        self._events: list[Event] = []

    def _choose_topics(self) -> dict[str, Uuid]:
        if not self._fresh:
            return self._system.topic_ids
        made = self._system.make_topics(self._fresh)
        for name in made:
            self._names[name] = name.removeprefix(self._prefix)
        return {self._names[name]: topic_id for name, topic_id in made.items()}

    # The facts that fill blanks.

    def actor(self, number: int) -> Actor:
        return self._actors.setdefault(number, Actor())

    def own_name(self, name: str) -> str:
        self._names[self._prefix + name] = name
        return self._prefix + name

    def topic_name(self, name: str) -> str:
        return self._prefix + name if self._prefix + name in self._fresh else name

    def topic_id(self, name: str) -> Uuid:
        return self._topic_ids.get(name, NO_TOPIC_ID)

    def play(self) -> list[Event]:
        for name, epoch in self._script.first_epochs:
            self._system.use_up_epochs(self.own_name(name), epoch)
        for number, step in enumerate(self._script.steps):
            self._send(number, step)
            self._collect(number)
        waiting = sorted(lane.step for lane in self._all_lanes() if lane.step is not None)
        end = len(self._script.steps)
        return [*self._events, *(Event(end, step, STILL_WAITS) for step in waiting)]

    def close(self) -> None:
        for lane in self._all_lanes():
            lane.close()
        if self._fresh:
            self._system.drop_topics(list(self._fresh))

    def _all_lanes(self) -> list[Lane]:
        return [lane for lanes in self._lanes.values() for lane in lanes]

    def _send(self, number: int, step: Step) -> None:
        try:
            frame = encode_request(fill(step.request, self), step.version, number, f"actor-{step.actor}-")
        except ProtocolError:
            self._events.append(Event(number, number, "cannot be encoded"))
            return
        lanes = self._lanes.setdefault(step.actor, [])
        lane = next((lane for lane in lanes if lane.step is None), None)
        if lane is None:
            lane = Lane(self._system.address)
            lanes.append(lane)
        lane.send(frame)
        lane.step = number
        if isinstance(step.request, JoinGroupRequest | SyncGroupRequest):
            self._system.settle()

    def _collect(self, now: int) -> None:
        """Note the answers that come after step ``now``: its own, and those of requests that waited."""
        must_come = not isinstance(self._script.steps[now].request, JoinGroupRequest | SyncGroupRequest)
        came: list[tuple[int, Message | str]] = [
            (now, self._receive_settled(lane)) for lane in self._all_lanes() if lane.step == now and must_come
        ]
        deadline = time.monotonic() + self._grace_s
        while waiting := [lane for lane in self._all_lanes() if lane.step is not None]:
            left_s = deadline - time.monotonic()
            ready = select.select(waiting, [], [], max(left_s, 0))[0]
            for lane in ready:
                assert lane.step is not None
                came.append((lane.step, self._receive(lane, ANSWER_TIMEOUT_S)))
            if not ready:
                break
        self._note(now, sorted(came, key=lambda item: item[0]))

    def _receive_settled(self, lane: Lane) -> Message | str:
        """The answer once speed no longer decides it; at the end of a transaction, once its markers stand."""
        assert lane.step is not None
        number, step = lane.step, self._script.steps[lane.step]
        limit_s = settling.ENDED_S if step.until_ended else self._settled_s
        deadline = time.monotonic() + limit_s
        while True:
            answer = self._receive(lane, ANSWER_TIMEOUT_S)
            if isinstance(answer, str) or not settling.is_early(step, answer):
                break
            if time.monotonic() >= deadline:
                break
            time.sleep(settling.PAUSE_S)
            lane.step = number
            lane.send_again()
        if isinstance(step.request, EndTxnRequest):
            self._wait_for_markers(step.request)
        return answer

    def _wait_for_markers(self, request: EndTxnRequest) -> None:
        name = request.transactional_id
        if not isinstance(name, TransactionalId):
            return
        transactional_id = name.fill(self)
        deadline = time.monotonic() + self._settled_s
        while settling.is_decided(self._system.describe_transaction(transactional_id)):
            if transactional_id in self._stuck or time.monotonic() >= deadline:
                self._stuck.add(transactional_id)
                return
            time.sleep(settling.PAUSE_S)
        self._stuck.discard(transactional_id)

    def _receive(self, lane: Lane, timeout_s: float) -> Message | str:
        assert lane.step is not None
        step = self._script.steps[lane.step]
        lane.step = None
        try:
            frame = lane.receive(timeout_s)
        except ConnectionError:
            lane.reconnect()
            return "connection closed"
        if frame is None:
            lane.reconnect()
            return "no answer"
        answer: Message = decode(step.request, step.version, frame)
        return answer

    def _note(self, now: int, came: list[tuple[int, Message | str]]) -> None:
        for _, answer in came:
            if isinstance(answer, JoinGroupResponse | ConsumerGroupHeartbeatResponse) and answer.member_id:
                self._masks.see(answer.member_id)
        for number, answer in came:
            if isinstance(answer, str):
                self._events.append(Event(now, number, answer))
            else:
                learn(self.actor(self._script.steps[number].actor), answer, self._topic_names, self._names)
                self._events.append(Event(now, number, self._masks.plain(answer)))
