"""Common to both worlds: a workload starts, runs under faults, and ends when all faults have ended.

Also the common parts of all workloads: their tasks, and the record of an operation with its outcome.
"""

import asyncio
import random
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pykraft.jepsen_like.faults.clients.interface import OperationError, Polled
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.kafka_client.metadata import TopicPartition

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that must exist before a workload starts."""

    name: str
    partitions: int
    replication_factor: int = 3
    configs: Mapping[str, str] = field(default_factory=lambda: {"min.insync.replicas": "2"})


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a healed cluster may take, in seconds of virtual or real time.

    ``answers_s`` until every send has its outcome; ``read_s`` until one partition is read; ``settle_s`` until
    a change or a rebalance is complete, in addition to the waits of the protocol itself.
    """

    answers_s: float = 60.0
    read_s: float = 30.0
    settle_s: float = 10.0


class Workload(Protocol):
    """Runs on an event loop; all its operations are in the history."""

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        """The topics that must exist before :meth:`start`."""
        ...

    def start(self) -> None:
        """Begin, as tasks of the running loop."""
        ...

    async def finish(self, limits: Limits) -> None:
        """All faults have ended: make no more changes, wait for open operations, check the result, and end.

        An operation that does not end within its limit is recorded as ``no-progress``.
        """
        ...


class Played(Generic[C]):
    """The base of every workload: clients, its config, a seed, and the history that it writes."""

    def __init__(self, clients: OwnClients, config: C, seed: int, history: Recorder) -> None:
        self._clients = clients
        self._config = config
        self._history = history
        self._rng = random.Random(seed)

    def _own(self, name: str) -> str:
        """The name of a topic, a group or a transactional id, where others may use the same."""
        return self._clients.prefix + name

    def _places(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """Partitions of topics of one's own, by the number that each has."""
        return [TopicPartition(self._own(name), n) for name, count in topics.items() for n in range(count)]


class Tasks:
    """The tasks of a workload, which end when ``stopping`` is set. An error of one is an error of the run."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *work: Coroutine[Any, Any, None]) -> None:
        self._tasks += [asyncio.get_running_loop().create_task(one) for one in work]

    async def pause(self, duration_s: float) -> bool:
        """Sleep; returns False at once when the workload is to end."""
        try:
            await asyncio.wait_for(self.stopping.wait(), duration_s)
        except TimeoutError:
            return True
        return False

    async def stop(self, timeout_s: float) -> bool:
        """Stop all tasks and wait for them; False if some had to be cancelled."""
        self.stopping.set()
        if not self._tasks:
            return True
        await asyncio.wait(self._tasks, timeout=timeout_s)
        late = [task for task in self._tasks if not task.done()]
        for task in self._tasks:
            if task.done():
                task.result()
            else:
                task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._tasks.clear()
        return not late


def branch(rng: random.Random) -> random.Random:
    """A generator for one task: what it draws does not depend on when others draw."""
    return random.Random(rng.random())


async def recorded(
    history: Recorder,
    process: str,
    op: str,
    key: str,
    value: str,
    operation: Awaitable[None],
    admin: OwnAdmin | None = None,
) -> bool:
    """Run one change and record its invocation and its outcome; whether it was answered with success.

    ``admin``: who carries it out, if it may repeat it.
    """
    before = 0 if admin is None else admin.repeats
    history.record("invoke", process, op, key=key, value=value)
    try:
        await operation
    except OperationError as error:
        history.record(error.outcome, process, op, key=key, value=value, error=str(error))
        return False
    history.record("ok", process, op, key=key, value=value, detail=repeated_since(admin, before))
    return True


def repeated_since(admin: OwnAdmin | None, before: int) -> dict[str, object] | None:
    """Describe for the history that a change was repeated since ``admin.repeats`` was ``before``."""
    return None if admin is None or admin.repeats == before else {"repeated": admin.repeats - before}


def record_no_progress(history: Recorder, error: str, place: TopicPartition | None = None) -> None:
    """Something does not happen within its limit, although all faults have ended."""
    key = None if place is None else str(place)
    history.record("info", "runner", "no-progress", key=key, error=error)


def record_polled(
    history: Recorder, process: str, op: str, asked_us: int, polled: Mapping[TopicPartition, Polled]
) -> None:
    """Write what one poll returned, a pair of events for each partition; also that a poll found nothing."""
    if op == "poll" and not polled:
        history.record("ok", process, "poll-empty", time_us=asked_us)
    for partition, found in polled.items():
        detail = None if found.high_watermark is None else {"high_watermark": found.high_watermark}
        history.record("invoke", process, op, time_us=asked_us, key=str(partition))
        history.record("ok", process, op, key=str(partition), records=found.records, detail=detail)
