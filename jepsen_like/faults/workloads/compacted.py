"""The compacted workload: a compacted topic as a map that is written, read and compacted at the same time.

Each key has one writer, an idempotent producer with one request in flight, so that the order of its values is
known. Most keys are set again and again; others are set once, deleted soon, and then left alone. Readers read
a partition from its start to its end, again and again. In the history a key of an event is a partition, as
everywhere; the keys of the map are in the values (``checkers/compacted/log``).
"""

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pykraft.jepsen_like.faults.clients.interface import (
    OperationError,
    PositionLostError,
    Producer,
    ProducerConfig,
    Reader,
)
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.record_text import record_text
from pykraft.jepsen_like.faults.workloads.workload import (
    Limits,
    Played,
    Tasks,
    TopicSpec,
    branch,
    record_no_progress,
)
from pykraft.kafka_client.metadata import TopicPartition

TOPIC = "compacted"
DELETE_RETENTION_MS = 40_000
"""Longer than faults keep a replica away, mostly; shorter than a long run."""
CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "min.insync.replicas": "2",
}
BRIEF_SHARE = 0.15
"""The share of puts that set or delete a key that is set only once."""
MOST_BRIEF = 10
"""How many such keys of one writer are there at a time."""
DELETE_SHARE = 0.15
"""The share of deletions among the puts to other keys."""
ABANDON_SHARE = 0.3
"""The share of producers that do not wait for answers when they are replaced."""
POLL_S = 0.2
RETRY_S = 0.5
CLOSE_S = 15.0


@dataclass(frozen=True, slots=True)
class CompactedConfig:
    """``keys_each``: the keys of one writer, spread over all partitions. ``puts_per_s`` is for all writers
    together; ``replace_every_s`` is the mean lifetime of a producer, ``read_every_s`` the mean time between
    two reads of one of the ``readers``."""

    partitions: int = 4
    writers: int = 4
    keys_each: int = 25
    readers: int = 3
    puts_per_s: float = 200.0
    replace_every_s: float = 25.0
    read_every_s: float = 0.5
    replication_factor: int = 3


class Keys:
    """The keys of one writer, and what it does to them."""

    def __init__(self, writer: str, count: int, rng: random.Random) -> None:
        self._writer = writer
        self._count = count
        self._rng = rng
        self._brief: deque[int] = deque()
        self._next_brief = count

    def draw(self) -> tuple[int, str, bool]:
        """The number of a key, its name, and whether it is deleted now."""
        rng = self._rng
        if rng.random() >= BRIEF_SHARE:
            return self._named(rng.randrange(self._count), rng.random() < DELETE_SHARE)
        if len(self._brief) == MOST_BRIEF or (self._brief and rng.random() < 0.5):
            return self._named(self._brief.popleft(), True)
        self._brief.append(self._next_brief)
        self._next_brief += 1
        return self._named(self._brief[-1], False)

    def _named(self, number: int, is_deleted: bool) -> tuple[int, str, bool]:
        return number, f"{self._writer}/{number}", is_deleted


class CompactedWorkload(Played[CompactedConfig]):
    """A :class:`~pykraft.jepsen_like.faults.workloads.workload.Workload`."""

    def __init__(self, clients: OwnClients, config: CompactedConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._writing = Tasks()
        self._reading = Tasks()
        self._answers_s = CLOSE_S
        self._ends = dict.fromkeys(self._places({TOPIC: config.partitions}), 0)
        """One past the last acknowledged offset."""

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        config = self._config
        return (TopicSpec(self._own(TOPIC), config.partitions, config.replication_factor, CONFIGS),)

    def start(self) -> None:
        for number in range(self._config.writers):
            self._writing.start(self._write(f"writer-{number}", branch(self._rng)))
        for number in range(self._config.readers):
            self._reading.start(self._read(f"reader-{number}", branch(self._rng)))

    async def finish(self, limits: Limits) -> None:
        self._answers_s = limits.answers_s
        if not await self._writing.stop(limits.answers_s + CLOSE_S):
            record_no_progress(self._history, "writers still wait for answers")
        if not await self._reading.stop(limits.answers_s):
            record_no_progress(self._history, "readers did not end")
        for place in self._ends:
            if not await self._read_to_end(f"final-{place.partition}", place, limits.read_s):
                record_no_progress(
                    self._history, "the last read did not reach every acknowledged offset", place
                )

    # --- writers -------------------------------------------------------------------------------------------

    async def _write(self, name: str, rng: random.Random) -> None:
        """One producer after the other; most wait for an outcome of every put before they end."""
        loop, stopping = asyncio.get_running_loop(), self._writing.stopping
        rest_s = self._config.writers / self._config.puts_per_s
        keys, life = Keys(name, self._config.keys_each, rng), 0
        while not stopping.is_set():
            process = f"{name}.{life}"
            producer = self._clients.producer(ProducerConfig(process))
            until_s = loop.time() + rng.uniform(0.4, 1.6) * self._config.replace_every_s
            number = 0
            while loop.time() < until_s and producer.fatal is None:
                if not await self._writing.pause(rng.expovariate(1 / rest_s)):
                    break
                number += self._put(producer, process, number + 1, keys)
            if producer.fatal is not None:
                self._history.record("info", process, "producer-fatal", error=producer.fatal)
            elif stopping.is_set() or rng.random() > ABANDON_SHARE:
                await producer.flush(self._answers_s)
            await producer.close()
            life += 1

    def _put(self, producer: Producer, process: str, number: int, keys: Keys) -> bool:
        """Set a key of the writer, or delete it; False, with nothing recorded, while the queue is full."""
        key_number, key, is_deleted = keys.draw()
        place = TopicPartition(self._own(TOPIC), key_number % self._config.partitions)
        value = None if is_deleted else f"{process}#{number}"
        put_us = self._history.now_us()
        answer = producer.send(place, value, self._clients.wall_ms(), key)
        if answer is None:
            return False
        text = record_text(key.encode(), None if value is None else value.encode())
        detail = {"number": number}
        self._history.record(
            "invoke", process, "put", time_us=put_us, key=str(place), value=text, detail=detail
        )
        answer.add_done_callback(partial(self._answered, process, place, text, number))
        return True

    def _answered(
        self,
        process: str,
        place: TopicPartition,
        text: str,
        number: int,
        answer: asyncio.Future[int | None],
    ) -> None:
        key, detail = str(place), {"number": number}
        error = answer.exception()
        if isinstance(error, OperationError):
            self._history.record(
                error.outcome, process, "put", key=key, value=text, error=str(error), detail=detail
            )
            return
        offset = answer.result()
        self._history.record("ok", process, "put", key=key, value=text, offset=offset, detail=detail)
        if offset is not None:
            self._ends[place] = max(self._ends[place], offset + 1)

    # --- readers -------------------------------------------------------------------------------------------

    async def _read(self, name: str, rng: random.Random) -> None:
        places, number = list(self._ends), 0
        while await self._reading.pause(rng.expovariate(1 / self._config.read_every_s)):
            number += 1
            await self._read_to_end(f"{name}.{number}", rng.choice(places), DELETE_RETENTION_MS / 2000)

    async def _read_to_end(self, name: str, place: TopicPartition, timeout_s: float) -> bool:
        """Read from the start to a high watermark that covers what was acknowledged; whether it got there."""
        history, key, wanted = self._history, str(place), self._ends[place]
        detail = {"delete_retention_ms": DELETE_RETENTION_MS}
        history.record("ok", name, "map-start", key=key, detail=detail)
        loop, reader = asyncio.get_running_loop(), self._clients.reader(name, {place: 0})
        deadline_s, position, end = loop.time() + timeout_s, 0, -1
        try:
            while not position >= end >= wanted and loop.time() < deadline_s:
                if end < wanted:
                    end = await self._end_offset(reader, place)
                elif polled := (await reader.poll(POLL_S)).get(place):
                    history.record("ok", name, "map-read", key=key, records=polled.records)
                    position = polled.records[-1][0] + 1
        except PositionLostError as lost:
            history.record("info", name, "poll", key=key, offset=lost.offset, error=str(lost))
            return False
        finally:
            await reader.close()
        if not position >= end >= wanted:
            return False
        history.record("ok", name, "map-end", key=key, offset=position)
        return True

    async def _end_offset(self, reader: Reader, place: TopicPartition) -> int:
        """-1: not known. A new leader may for a moment know only an older high watermark than it had."""
        try:
            end = await reader.end_offset(place)
        except OperationError:
            end = -1
        if end < self._ends[place]:
            await asyncio.sleep(RETRY_S)
        return end
