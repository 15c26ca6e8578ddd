"""A steady ConsumerGroupHeartbeat in the coordinator alone, with its codec, without a network.

As `python benchmarks/group_heartbeat.py`, in processor time, in a process of its own; of this broker only.
"""

import asyncio
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from comparison.systems import Pykraft
from comparison.turn import Figures, Turn
from group_heartbeat import measure

_HEARTBEATS = 20_000
_PARTITIONS_EACH = 10


def run(turn: Turn) -> None:
    if isinstance(turn.system, Pykraft):
        for members in (10, 1_000):
            turn.row(f"{members:,} members", partial(_measure, members, turn.scaled(_HEARTBEATS)))


def _measure(members: int, heartbeats: int, figures: Figures) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        _, coded_us = pool.submit(_run, members, heartbeats).result()
    figures.note("one heartbeat", "µs", coded_us)
    figures.note("of one core", "/s", 1e6 / coded_us)


def _run(members: int, heartbeats: int) -> tuple[float, float]:
    return asyncio.run(measure(members, members * _PARTITIONS_EACH, None, heartbeats))
