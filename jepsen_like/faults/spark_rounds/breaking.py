"""Carries out the plan of a round on the drivers and the topics."""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pykraft.jepsen_like.faults.spark_rounds.driver_process import DriverProcess
from pykraft.jepsen_like.faults.spark_rounds.feed import Feed
from pykraft.jepsen_like.faults.spark_rounds.plan import MOST_PARTITIONS, Fault, FaultKind
from pykraft.jepsen_like.faults.spark_rounds.topics import SOURCE, Topics

_RESUMED_S: Final = 3.0
"""How long a driver that was stalled goes on beside the next one before anything else happens."""


def carry_out(
    plan: Sequence[Fault],
    time_limit_s: float,
    driver: DriverProcess,
    topics: Topics,
    feed: Feed,
    failed: threading.Event,
) -> Counter[str]:
    """Break until the time is up, or ``failed`` is set; how often each kind happened."""
    end_s = time.monotonic() + time_limit_s
    happened: Counter[str] = Counter()
    for fault in plan:
        failed.wait(max(0.0, min(fault.rest_s, end_s - time.monotonic())))
        if time.monotonic() >= end_s or failed.is_set():
            break
        if not driver.is_running:
            driver.start()
        happened[fault.kind.value] += _inflict(fault, driver, topics, feed, failed)
    return happened


def _inflict(
    fault: Fault, driver: DriverProcess, topics: Topics, feed: Feed, failed: threading.Event
) -> bool:
    """Whether it came to that: a cluster under faults may refuse to change a topic."""
    match fault.kind:
        case FaultKind.KILL_DRIVER:
            driver.kill()
            driver.start()
        case FaultKind.KILL_PYTHON:
            driver.kill_python()
            driver.start()
        case FaultKind.STALL_DRIVER:
            resume = driver.stall()
            driver.start()
            failed.wait(fault.stall_s)
            resumed_count = resume()
            failed.wait(_RESUMED_S)
            return resumed_count > 0
        case FaultKind.KILL_WORKERS:
            return driver.kill_workers(random.Random(fault.draw))
        case FaultKind.MOVE:
            return topics.move(random.Random(fault.draw))
        case FaultKind.GROW:
            count = topics.grow(SOURCE, MOST_PARTITIONS)
            feed.partitions = count or feed.partitions
            return count is not None
    return True
