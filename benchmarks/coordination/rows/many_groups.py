"""10,000 groups of the consumer protocol on one broker, each with one member and one partition.

100 connections share the groups, each with one request in flight. All join, as fast as that goes, and again
for their share; memory is what the process grew meanwhile (a JVM takes its heap when it likes, so that its
figure says little). Then each member sends a heartbeat every 5 s, as by default: processor time of the
broker as a share of one core, for 15 s, and the longest turn of the loop in 15 s more. Then heartbeats
without a pause, 100 in flight: how many a second, in time that broker and driver share, and what each costs
the broker.
"""

import struct
import time
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

from comparison.cluster import Cluster, rss_mib
from comparison.group_members import Ask, ConsumerLife, Topic
from comparison.load import load
from comparison.many import Peers, peers
from comparison.requests import check
from comparison.turn import Figures, Turn
from coordination.fleet import frames_of
from coordination.rows.members import SESSION_TIMEOUT_MS, make_topic, wait_until_coordinated
from coordination.watched import watching

from pykraft.testing.processes.wire_client import decode_answer, frame_of

_GROUPS = 10_000
_CONNECTIONS = 100
_INTERVAL_S = 5.0
_SECONDS = 15.0
_SETTLE_S = 5.0
_HEARTBEATS = 100_000
_ERROR_AT = 9
"""Where the error is in an answer: after the correlation id, its tagged fields, and the throttle time."""


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        topic = make_topic(cluster, "many", 1)
        for number in range(200):
            wait_until_coordinated(cluster, f"probe-{number}")
        count = turn.scaled(_GROUPS)
        with peers(cluster.port, _CONNECTIONS) as opened:
            groups = _Groups(cluster, opened, topic, count)
            groups.warm_up()
            turn.row(f"{count:,} groups: all join", groups.measure_join)
            turn.row(f"{count:,} groups: heartbeats every 5 s", partial(groups.measure_beats, turn))
            turn.row(f"{count:,} groups: heartbeats without a pause", partial(groups.measure_rate, turn))


class _Groups:
    """A member each; those of one connection speak in turn."""

    def __init__(self, cluster: Cluster, opened: Peers, topic: Topic, count: int) -> None:
        self._cluster = cluster
        self._opened = opened
        self._lives = [ConsumerLife(f"group-{number}", topic, SESSION_TIMEOUT_MS) for number in range(count)]
        self._topic = topic
        self._frames: list[list[bytes]] = []

    def warm_up(self) -> None:
        self._play([ConsumerLife(f"warm-{number}", self._topic, SESSION_TIMEOUT_MS) for number in range(500)])

    def measure_join(self, figures: Figures) -> None:
        memory_mib = rss_mib(self._cluster.nodes[0])
        cost = self._cluster.cost(lambda: self._play(self._lives))
        grown_mib = rss_mib(self._cluster.nodes[0]) - memory_mib
        figures.note("memory a group", "KiB", grown_mib * 1024 / len(self._lives))
        figures.note("time", "s", cost.wall_s)
        figures.note("CPU a group", "µs", cost.cpu_s / len(self._lives) * 1e6)
        frames = frames_of(life.beat() for life in self._lives)
        self._frames = [frames[number::_CONNECTIONS] for number in range(_CONNECTIONS)]

    def measure_beats(self, turn: Turn, figures: Figures) -> None:
        seconds = 1.0 if turn.quick else _SECONDS
        self._beat(0.0 if turn.quick else _SETTLE_S)
        driver_s = time.thread_time()
        cost = self._cluster.cost(lambda: self._beat(seconds))
        driver_s = time.thread_time() - driver_s
        figures.note("broker CPU", "% of a core", 100 * cost.cpu_s / cost.wall_s)
        figures.note("driver CPU", "% of a core", 100 * driver_s / cost.wall_s)
        with watching(self._cluster, figures):
            self._beat(seconds)

    def measure_rate(self, turn: Turn, figures: Figures) -> None:
        count = turn.scaled(_HEARTBEATS)
        frames = [own[0] for own in self._frames]
        driver_s = 0.0

        def beat() -> None:
            nonlocal driver_s
            driver_s = beaters.run(count).cpu_s

        with load(self._cluster.port, frames, _check_beaten) as beaters:
            cost = self._cluster.cost(beat)
        figures.note("heartbeats", "/s", count / cost.wall_s)
        figures.note("broker CPU of one", "µs", cost.cpu_s / count * 1e6)
        figures.note("driver CPU of one", "µs", driver_s / count * 1e6)

    def _play(self, lives: list[ConsumerLife]) -> None:
        """Let all join and take their share."""
        queues = [iter(lives[number::_CONNECTIONS]) for number in range(_CONNECTIONS)]
        plays = {number: _requests(queue) for number, queue in enumerate(queues)}
        asked = {number: next(play) for number, play in plays.items()}
        for number, ask in asked.items():
            self._send(number, ask)
        waiting = len(asked)
        for peer, frame in self._opened.answers():
            ask = asked[peer.number]
            answer = decode_answer(ask.request.RESPONSE, ask.version, frame)
            try:
                asked[peer.number] = plays[peer.number].send(answer)
            except StopIteration:
                waiting -= 1
                if not waiting:
                    return
            else:
                self._send(peer.number, asked[peer.number])

    def _send(self, number: int, ask: Ask) -> None:
        self._opened.all[number].send(frame_of(ask.request, ask.version))

    def _beat(self, seconds: float) -> None:
        """Every member sends a heartbeat each interval, at times of its own."""
        started = time.monotonic()
        each = len(self._frames[0])
        step_s = _INTERVAL_S / each / _CONNECTIONS
        answers = self._opened.answers()
        for number in range(int(seconds / step_s)):
            time.sleep(max(0.0, started + number * step_s - time.monotonic()))
            own = self._frames[number % _CONNECTIONS]
            self._opened.all[number % _CONNECTIONS].send(own[number // _CONNECTIONS % each])
            _, frame = next(answers)
            _check_beaten(frame)


def _requests(lives: Iterator[ConsumerLife]) -> Generator[Ask, Any, None]:
    """Yield the members' requests until each has its share."""
    for life in lives:
        steps = life.steps()
        ask = next(steps)
        while ask is not None:
            ask = steps.send((yield ask))


def _check_beaten(frame: bytes) -> None:
    check(struct.unpack_from(">h", frame, _ERROR_AT)[0], "ConsumerGroupHeartbeat")
