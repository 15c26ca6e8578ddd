"""A member joins a group.

Ten members have 60 partitions, and ten more members join, one by one: from the first request of the new
member until all have their new shares. Members send heartbeats every 50 ms, so that the time is not the
heartbeat interval. Processor time and median time a join. Before it is measured another group does the
same.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect, create_topic
from comparison.group_members import ClassicLife, ConsumerLife, Life, Topic
from comparison.requests import has_coordinator, topic_id
from comparison.rows.members import Member
from comparison.turn import Figures, Turn

from pykraft.testing.processes.waits import wait_until

_TOPIC = "rebalances"
_PARTITIONS = 60
_MEMBERS = 10
_JOINS = 10
_SESSION_TIMEOUT_MS = 30_000


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        create_topic(cluster.nodes, _TOPIC, _PARTITIONS, 1)
        turn.row("classic group", partial(_measure, turn, cluster, ClassicLife))
        turn.row("consumer group", partial(_measure, turn, cluster, ConsumerLife))


def _measure(turn: Turn, cluster: Cluster, kind: type[Life], figures: Figures) -> None:
    joins = 2 if turn.quick else _JOINS
    topic = Topic(_TOPIC, topic_id(connect(cluster.port), _TOPIC), _PARTITIONS)
    for name in ("warm-up", "measured"):
        group = f"{kind.__name__}-{name}"
        finder = connect(cluster.port)
        wait_until(f"the coordinator of {group}", partial(has_coordinator, finder, group))
        new = partial(kind, group, topic, _SESSION_TIMEOUT_MS)
        with _group(cluster.port, new) as members:
            before = cluster.cpu_s()
            taken_s = [_join(cluster.port, new, members) for _ in range(joins)]
            cpu_s = cluster.cpu_s() - before
    figures.note("CPU", "ms", cpu_s / joins * 1e3)
    figures.note("wall", "ms", statistics.median(taken_s) * 1e3)


@contextlib.contextmanager
def _group(port: int, new: Callable[[], Life]) -> Iterator[list[Member]]:
    """Members that have their shares; the list is of those that leave in the end."""
    members = [Member(port, new()) for _ in range(_MEMBERS)]
    try:
        for member in members:
            member.start()
        wait_until("the group to form", lambda: _is_balanced(members))
        yield members
    finally:
        for member in members:
            member.stop()
        for member in members:
            member.leave()


def _join(port: int, new: Callable[[], Life], members: list[Member]) -> float:
    started = time.perf_counter()
    members.append(Member(port, new()))
    members[-1].start()
    deadline = time.monotonic() + 60
    while not _is_balanced(members):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the group is not balanced: {[len(one.owned) for one in members]}")
        time.sleep(0.001)
    return time.perf_counter() - started


def _is_balanced(members: list[Member]) -> bool:
    """Whether every partition has one owner and the shares are even."""
    for member in members:
        member.check()
    shares = [member.owned for member in members]
    least = _PARTITIONS // len(members)
    return (
        all(len(share) >= least for share in shares)
        and sum(map(len, shares)) == _PARTITIONS
        and len(frozenset().union(*shares)) == _PARTITIONS
    )
