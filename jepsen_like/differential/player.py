"""Plays a script against one system, over plain connections, and notes every answer with its place.

Each actor sends one request at a time, in the order of the script. JoinGroup and SyncGroup may wait for other
members; then the actor goes on with another connection, and the answer is noted after the step that let it
come. Whether an answer is only late or waits for something cannot be told, so it is given some time
(``grace_s``); a difference counts only if longer times do not explain it (:mod:`.compare`).

Two round trips follow each request that waits, so that a system with one network thread and one request
handler has certainly begun with it before it sees the next.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

from pykraft.jepsen_like.differential.masks import Masks, Plain
from pykraft.jepsen_like.differential.script import (
    NO_TOPIC_ID,
    TOPICS,
    Actor,
    Partition,
    Script,
    Step,
    fill,
    strings_in,
)
from pykraft.kafka_protocol.api_keys import response_class
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pykraft.kafka_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykraft.kafka_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykraft.kafka_protocol.messages.sync_group import SyncGroupRequest
from pykraft.kafka_protocol.schema import Message, ProtocolError
from pykraft.runtime.address import Address

ANSWER_TIMEOUT_S: Final = 30.0
STILL_WAITS: Final = "still waits"
_SETTLING_ROUND_TRIPS: Final = 2
_METADATA_VERSION: Final = 12

Answer = Plain | str
"""A plain answer, or what happened in place of one."""

_runs = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Event:
    """The answer to a step, and the step after which it came."""

    after: int
    step: int
    answer: Answer


class _Lane:
    """A connection with at most one request under way."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket = self._connect()
        self._buffer = bytearray()
        self.step: int | None = None
        """The step that waits for its answer here."""

    def _connect(self) -> socket.socket:
        made = socket.create_connection((self._address.host, self._address.port), ANSWER_TIMEOUT_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, timeout_s: float) -> bytes | None:
        """A frame; None if none came in time. ConnectionError if the other side hung up."""
        deadline = time.monotonic() + timeout_s
        while True:
            if len(self._buffer) >= 4:
                size = struct.unpack_from(">i", self._buffer)[0]
                if len(self._buffer) >= 4 + size:
                    frame = bytes(self._buffer[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return frame
            left_s = deadline - time.monotonic()
            if not select.select([self._socket], [], [], max(left_s, 0))[0]:
                return None
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the connection was closed")
            self._buffer += more

    def reconnect(self) -> None:
        self._socket.close()
        self._buffer.clear()
        self._socket = self._connect()

    def close(self) -> None:
        self._socket.close()


class System:
    """One system at an address, with the topics of :data:`TOPICS`."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.address = address
        self._probe = _Lane(address)
        self.versions = self._ask_versions()
        self.topic_ids = self._ask_topic_ids()

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="script", client_software_version="1")
        answer = self._call(request, 3)
        assert isinstance(answer, ApiVersionsResponse)
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def _ask_topic_ids(self) -> dict[str, Uuid]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
        answer = self._call(request, _METADATA_VERSION)
        assert isinstance(answer, MetadataResponse)
        found = {
            topic.name: Uuid(topic.topic_id) for topic in answer.topics if topic.name and not topic.error_code
        }
        assert found.keys() == TOPICS.keys(), f"{self.name} has {sorted(found)}"
        return found

    def settle(self) -> None:
        """Return once the system has seen all that was sent before."""
        for _ in range(_SETTLING_ROUND_TRIPS):
            self._ask_versions()

    def play(self, script: Script, grace_s: float) -> list[Event]:
        run = _Run(self, script, grace_s)
        try:
            return run.play()
        finally:
            run.close()

    def close(self) -> None:
        self._probe.close()

    def _call(self, request: Message, version: int) -> Message:
        self._probe.send(encode_request(request, version, 1, "probe"))
        frame = self._probe.receive(ANSWER_TIMEOUT_S)
        assert frame is not None, f"{self.name} does not answer"
        return _decode(request, version, frame)


class _Run:
    """One playing of one script: its facts, its connections, its events."""

    def __init__(self, system: System, script: Script, grace_s: float) -> None:
        self._system = system
        self._script = script
        self._grace_s = grace_s
        self._prefix = f"s{script.seed}-{next(_runs)}-"
        self._actors: dict[int, Actor] = {}
        self._groups: dict[str, str] = {}
        topic_names = {topic_id: name for name, topic_id in system.topic_ids.items()}
        said = frozenset(strings_in(script.steps))
        self._masks = Masks(said, self._groups, topic_names)
        self._topic_names = topic_names
        self._lanes: dict[int, list[_Lane]] = {}
        self._events: list[Event] = []

    # The facts that fill blanks.

    def actor(self, number: int) -> Actor:
        return self._actors.setdefault(number, Actor())

    def group_id(self, name: str) -> str:
        self._groups[self._prefix + name] = name
        return self._prefix + name

    def topic_id(self, name: str) -> Uuid:
        return self._system.topic_ids.get(name, NO_TOPIC_ID)

    def play(self) -> list[Event]:
        for number, step in enumerate(self._script.steps):
            self._send(number, step)
            self._collect(number)
        waiting = sorted(lane.step for lane in self._all_lanes() if lane.step is not None)
        end = len(self._script.steps)
        return [*self._events, *(Event(end, step, STILL_WAITS) for step in waiting)]

    def close(self) -> None:
        for lane in self._all_lanes():
            lane.close()

    def _all_lanes(self) -> list[_Lane]:
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
            lane = _Lane(self._system.address)
            lanes.append(lane)
        lane.send(frame)
        lane.step = number
        if isinstance(step.request, JoinGroupRequest | SyncGroupRequest):
            self._system.settle()

    def _collect(self, now: int) -> None:
        """Note the answers that come after step ``now``: its own, and those of requests that waited."""
        came: list[tuple[int, Message | str]] = []
        must_come = not isinstance(self._script.steps[now].request, JoinGroupRequest | SyncGroupRequest)
        for lane in self._all_lanes():
            if lane.step == now and must_come:
                came.append((now, self._receive(lane, ANSWER_TIMEOUT_S)))
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

    def _receive(self, lane: _Lane, timeout_s: float) -> Message | str:
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
        return _decode(step.request, step.version, frame)

    def _note(self, now: int, came: list[tuple[int, Message | str]]) -> None:
        for _, answer in came:
            if isinstance(answer, JoinGroupResponse | ConsumerGroupHeartbeatResponse) and answer.member_id:
                self._masks.see(answer.member_id)
        for number, answer in came:
            if isinstance(answer, str):
                self._events.append(Event(now, number, answer))
            else:
                self._learn(self.actor(self._script.steps[number].actor), answer)
                self._events.append(Event(now, number, self._masks.plain(answer)))

    def _learn(self, actor: Actor, answer: Message) -> None:
        match answer:
            case JoinGroupResponse(error_code=ErrorCode.NONE | ErrorCode.MEMBER_ID_REQUIRED):
                actor.learn_id(answer.member_id)
                if answer.error_code == ErrorCode.NONE:
                    actor.epoch = answer.generation_id
            case ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NONE):
                actor.learn_id(answer.member_id or "")
                actor.epoch = answer.member_epoch
                if answer.assignment is not None:
                    actor.assigned = self._partitions(answer.assignment.topic_partitions)

    def _partitions(self, topics: list[Any]) -> tuple[Partition, ...]:
        return tuple(
            sorted(
                (self._topic_names.get(topic.topic_id, "?"), index)
                for topic in topics
                for index in topic.partitions
            )
        )


def _decode(request: Message, version: int, frame: bytes) -> Message:
    _, body_at = decode_response_header(request.API_KEY, version, frame)
    return response_class(request.API_KEY).decode(frame[body_at:], version)
