"""Members join, leave and crash, until all is stable: every partition has one owner, and shares are even.

A group of so many members has twice as many partitions. All members join at once; then one more joins, one
leaves, and one falls silent right after a heartbeat. A crash counts from the end of its session: the answer
to its last heartbeat plus the session timeout (10 s). Heartbeats of the consumer protocol come as often as
the coordinator says (Kafka: every 5 s; this broker: sooner while members are few), those of the classic one
every 3 s, as is the default, distributed over that time except when all join at once; most of each time is
waiting for them. `group.initial.rebalance.delay.ms=0`. One thread plays all members over a connection each;
its processor time is the `driver CPU`. A failed request is one that a client has to ask again. Before it is
measured, a group of 100 members forms. A watch on the event loop costs much itself, so that it runs only
while a group of its own forms.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect
from comparison.group_members import ClassicLife, ConsumerLife, Life, Topic
from comparison.requests import has_coordinator, topic_id
from comparison.turn import Figures, Turn
from coordination.fleet import Fleet, Seat
from coordination.watched import Watched, watching

from pykraft.kafka_protocol.messages import groups
from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until

PROPERTIES = {
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_session_timeout_ms": "10000",
    "group_consumer_min_session_timeout_ms": "10000",
}
SESSION_TIMEOUT_MS = 10_000
_SIZES = (10, 100, 1_000)
_WARM_UP = 100
_PARTITIONS_EACH = 2
_PATIENCE_S = 90
_UNKNOWN_MEMBER_ID = 25


def run_classic(turn: Turn) -> None:
    _run(turn, ClassicLife)


def run_consumer(turn: Turn) -> None:
    _run(turn, ConsumerLife)


def _run(turn: Turn, kind: type[Life]) -> None:
    with turn.cluster(1, **PROPERTIES) as cluster:
        with group(cluster, kind, "warm-up", _WARM_UP) as warm:
            warm.form()
        for size in _SIZES[: 1 if turn.quick else None]:
            name = f"{size:,} members"
            if not turn.wants(name):
                continue
            if size == max(_SIZES) and isinstance(turn.system, Watched):
                with group(cluster, kind, f"{size}-watched", size) as one:
                    turn.row(f"{name}: all join at once, under watch", one.watch_form)
            with group(cluster, kind, f"{size}-members", size) as one:
                turn.row(f"{name}: all join at once", one.measure_form)
                turn.row(f"{name}: one joins", one.measure_join)
                turn.row(f"{name}: one leaves", one.measure_leave)
                turn.row(f"{name}: one crashes", one.measure_crash)


@contextlib.contextmanager
def group(cluster: Cluster, kind: type[Life], name: str, size: int) -> Iterator[Group]:
    """A group that nobody has joined yet; its members are gone in the end."""
    partitions = size * _PARTITIONS_EACH
    topic = make_topic(cluster, name, partitions)
    wait_until_coordinated(cluster, name)
    fleet = Fleet(cluster.port, partitions)
    try:
        yield Group(cluster, fleet, partial(kind, name, topic, SESSION_TIMEOUT_MS), size)
        fleet.dissolve()
    finally:
        fleet.close()


def make_topic(cluster: Cluster, name: str, partitions: int) -> Topic:
    client = connect(cluster.port)
    request_topic(client, name, partitions, 1)
    wait_until(f"topic {name}", lambda: is_in_sync(client, [name], 1))
    return Topic(name, topic_id(client, name), partitions)


def wait_until_coordinated(cluster: Cluster, name: str) -> None:
    """Until the coordinator of this group is at work."""
    client = connect(cluster.port)
    wait_until(f"the coordinator of {name}", lambda: has_coordinator(client, name))
    probe = groups.HeartbeatRequest(group_id=name, member_id="nobody", generation_id=1)

    def is_loaded() -> bool:
        answer = client.call(probe, 4)
        return bool(answer.error_code == _UNKNOWN_MEMBER_ID)

    wait_until(f"the coordinator of {name} to be loaded", is_loaded)


class Group:
    """The events of one group, each measured once, in this order."""

    def __init__(self, cluster: Cluster, fleet: Fleet, new: partial[Life], size: int) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._new = new
        self._size = size

    def form(self) -> float:
        seats = self._connect(self._size)
        started = time.monotonic()
        self._fleet.join(seats)
        return self._stable() - started

    def measure_form(self, figures: Figures) -> None:
        seats = self._connect(self._size)
        with self._costs(figures) as taken_s:
            started = time.monotonic()
            self._fleet.join(seats)
            taken_s.append(self._stable() - started)

    def watch_form(self, figures: Figures) -> None:
        with watching(self._cluster, figures):
            self.form()

    def measure_join(self, figures: Figures) -> None:
        seats = self._connect(1)
        self._settle()
        with self._costs(figures) as taken_s:
            started = time.monotonic()
            self._fleet.join(seats)
            taken_s.append(self._stable() - started)

    def measure_leave(self, figures: Figures) -> None:
        self._settle()
        seat = self._idle_seat()
        with self._costs(figures) as taken_s:
            started = time.monotonic()
            self._fleet.leave(seat)
            taken_s.append(self._stable() - started)

    def measure_crash(self, figures: Figures) -> None:
        self._settle()
        ended_s = self._fleet.crash(self._idle_seat()) + SESSION_TIMEOUT_MS / 1000
        self._fleet.run_for(ended_s - time.monotonic() - 0.5)
        with self._costs(figures) as taken_s:
            taken_s.append(self._stable() - ended_s)

    def _connect(self, count: int) -> list[Seat]:
        return self._fleet.connect(self._new() for _ in range(count))

    def _settle(self) -> None:
        """Let the heartbeats of all members be distributed, at an assignment that may be replaced."""
        self._fleet.spread()
        self._fleet.run_for(1.5)

    def _idle_seat(self) -> Seat:
        """Of a member that was not the first: that one may lead the group."""
        return next(seat for seat in reversed(self._fleet.seats) if seat.asked is None)

    def _stable(self) -> float:
        return self._fleet.run_until(self._fleet.shares.are_final, _PATIENCE_S, "the group to be stable")

    @contextlib.contextmanager
    def _costs(self, figures: Figures) -> Iterator[list[float]]:
        """Note the time that the block puts into the list, and what broker and driver spend meanwhile."""
        taken_s: list[float] = []
        self._fleet.failures.clear()
        broker_s, driver_s, requests = self._cluster.cpu_s(), self._fleet.cpu_s(), self._fleet.requests
        yield taken_s
        broker_s, driver_s = self._cluster.cpu_s() - broker_s, self._fleet.cpu_s() - driver_s
        figures.note("time", "s", taken_s[0])
        figures.note("broker CPU", "ms", broker_s * 1e3)
        figures.note("driver CPU", "ms", driver_s * 1e3)
        figures.note("requests", "", self._fleet.requests - requests)
        figures.note("failed requests", "", self._fleet.failures.total())
