"""Consumers' throughput while their group rebalances.

Ten consumers of librdkafka read 20 partitions, to which another process writes a small batch each 20 times a
second; then one more joins, and leaves again. The share is what all consumers got per second from when it
began to join or leave until the group was stable, by the same figure of the 4 s before; more is better.
Beside it that time, and the longest time in which nobody got anything. Defaults of the client, but `range`
for the eager classic group; `group.initial.rebalance.delay.ms=0`.
"""

import time
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import ANSWER_TIMEOUT_S
from comparison.turn import Figures, Turn
from coordination.readers import (
    CONSUMER,
    EAGER,
    Reader,
    are_stable,
    consumed,
    longest_silence_s,
    reading,
    steady_production,
)
from coordination.rows.members import make_topic, wait_until_coordinated

from pykraft.testing.processes.waits import wait_until

_PARTITIONS = 20
_CONSUMERS = 10
_SETTLE_S = 2
_BEFORE_S = 4
_PATIENCE_S = 90


def run(turn: Turn) -> None:
    with turn.cluster(1, group_initial_rebalance_delay_ms="0") as cluster:
        for name, protocol in (("consumer", CONSUMER), ("classic, eager", EAGER)):
            if turn.wants(name):
                _measure(turn, cluster, name, protocol)


def _measure(turn: Turn, cluster: Cluster, name: str, protocol: dict[str, str]) -> None:
    topic = f"consuming-{turn.next_number()}"
    make_topic(cluster, topic, _PARTITIONS)
    wait_until_coordinated(cluster, topic)
    with (
        steady_production(cluster, topic, _PARTITIONS),
        reading(cluster, topic, topic, _PARTITIONS, protocol, _CONSUMERS) as readers,
    ):
        wait_until(
            "records for every consumer", lambda: all(reader.seen for reader in readers), ANSWER_TIMEOUT_S
        )
        new = partial(Reader, cluster, topic, topic, protocol)
        turn.row(f"{name}: one joins", partial(_join, readers, new))
        turn.row(f"{name}: one leaves", partial(_leave, readers))


def _join(readers: list[Reader], new: partial[Reader], figures: Figures) -> None:
    time.sleep(_SETTLE_S + _BEFORE_S)
    began_s = time.monotonic()
    readers.append(new())
    readers[-1].start()
    _note(readers, readers, began_s, figures)


def _leave(readers: list[Reader], figures: Figures) -> None:
    time.sleep(_SETTLE_S + _BEFORE_S)
    everybody = list(readers)
    began_s = time.monotonic()
    readers.pop().stop()
    _note(everybody, readers, began_s, figures)


def _note(everybody: list[Reader], live: list[Reader], began_s: float, figures: Figures) -> None:
    wait_until("the group to be stable", lambda: are_stable(live, _PARTITIONS), _PATIENCE_S)
    ended_s = time.monotonic()
    time.sleep(0.2)  # a poll that has begun is counted when it ends
    before = consumed(everybody, began_s - _BEFORE_S, began_s) / _BEFORE_S
    meanwhile = consumed(everybody, began_s, ended_s) / (ended_s - began_s)
    figures.note("share", "%", 100 * meanwhile / before)
    figures.note("time", "s", ended_s - began_s)
    figures.note("longest silence", "s", longest_silence_s(everybody, began_s, ended_s))
    figures.note("before", "records/s", before)
