"""The append workload: producers of every kind, readers meanwhile, and a final read of everything.

Every value is unique and names its producer and its place in the producer's order. Most producers are
idempotent with acks=all; a few have weaker guarantees (no idempotence, acks=1, acks=0). From time to time a
producer is abandoned and another takes its place. Readers are assigned, not subscribed, so that they must see
all records, in order. One task looks up offsets by time. Another deletes records, if that is configured; then
readers begin at the log start.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pykraft.jepsen_like.faults.clients.interface import (
    ACKS_ALL,
    OperationError,
    Polled,
    PositionLostError,
    Producer,
    ProducerConfig,
    Reader,
)
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.workload import (
    Limits,
    Played,
    Tasks,
    TopicSpec,
    branch,
    record_no_progress,
    record_polled,
)
from pykraft.kafka_client.metadata import TopicPartition

TICK_S = 0.02
POLL_S = 0.2
PIPELINED_REQUESTS = 5
LONGEST_CATCH_UP_S = 1.0
REOPEN_AFTER_S = 1.0
CLOSE_S = 15.0
TIMESTAMP_JITTER_MS = 2_000
FINAL_LOOKUPS = 3
DELETER = "deleter"
ALL_SHARE = 0.2
"""The share of deletions that delete everything that is committed."""

STRONG = ProducerConfig("")
WEAK = (
    ProducerConfig("", acks=ACKS_ALL, idempotent=False),
    ProducerConfig("", acks=1, idempotent=False),
    ProducerConfig("", acks=0, idempotent=False),
)


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """``sends_per_s`` is for all strong producers together, ``weak_sends_per_s`` for each weak one.

    ``abandon_every_s`` is the mean lifetime of a producer. ``delete_every_s`` is the mean time between two
    deletions of records, None: there are none. The first ``pipelined_producers`` have five
    requests in flight, the others one: see ``checkers/resends``. ``flush_messages`` is the topic's.
    """

    topic: str = "append"
    partitions: int = 6
    replication_factor: int = 3
    min_insync_replicas: int = 2
    producers: int = 3
    consumers: int = 2
    sends_per_s: int = 1_500
    weak_sends_per_s: int = 50
    abandon_every_s: float = 25.0
    pipelined_producers: int = 1
    look_every_s: float = 0.5
    delete_every_s: float | None = None
    flush_messages: int | None = None


class AppendWorkload(Played[AppendConfig]):
    """A :class:`~pykraft.jepsen_like.faults.workloads.workload.Workload`."""

    def __init__(self, clients: OwnClients, config: AppendConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._producing = Tasks()
        self._deleting = Tasks()
        self._reading = Tasks()
        self._answers_s = 0.0
        self._strong: set[str] = set()
        self.end_offsets = {self._place(partition): 0 for partition in range(config.partitions)}
        """One past the last offset acknowledged to strong producers, by partition."""
        self.read_to: dict[TopicPartition, int] = {}
        """The end of the final read, by partition."""
        self._begin_ms = clients.wall_ms()
        self.acknowledged = 0

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        config = self._config
        configs = {"min.insync.replicas": str(config.min_insync_replicas)}
        if config.flush_messages is not None:
            configs["flush.messages"] = str(config.flush_messages)
        return (TopicSpec(self._own(config.topic), config.partitions, config.replication_factor, configs),)

    def start(self) -> None:
        config = self._config
        for number in range(config.consumers):
            mine = range(number, config.partitions, config.consumers)
            self._reading.start(self._follow(f"consumer-{number}", list(mine)))
        for number in range(config.producers):
            in_flight = PIPELINED_REQUESTS if number < config.pipelined_producers else 1
            kind = replace(STRONG, name=f"p{number}", max_in_flight=in_flight)
            self._producing.start(
                self._produce(kind, config.sends_per_s / config.producers, branch(self._rng))
            )
        for number, weak in enumerate(WEAK if config.weak_sends_per_s else ()):
            kind = replace(weak, name=f"w{number}")
            self._producing.start(self._produce(kind, config.weak_sends_per_s, branch(self._rng)))
        self._reading.start(self._seek(branch(self._rng)))
        if config.delete_every_s is not None:
            self._deleting.start(self._delete(config.delete_every_s, branch(self._rng)))

    async def finish(self, limits: Limits) -> None:
        self._answers_s = limits.answers_s
        if not await self._producing.stop(limits.answers_s + CLOSE_S):
            record_no_progress(self._history, "producers still wait for answers")
        if not await self._deleting.stop(limits.answers_s):
            record_no_progress(self._history, "a deletion of records was not answered")
        for partition in range(self._config.partitions):
            if not await self._read_to_end(partition, limits):
                record_no_progress(
                    self._history, "the final read did not reach the end", self._place(partition)
                )
        if not await self._reading.stop(limits.answers_s):
            record_no_progress(self._history, "readers did not end")

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._own(self._config.topic), partition)

    # --- producers -----------------------------------------------------------------------------------------

    async def _produce(self, kind: ProducerConfig, sends_per_s: float, rng: random.Random) -> None:
        loop, stopping = asyncio.get_running_loop(), self._producing.stopping
        life = sequence = 0
        while not stopping.is_set():
            config = replace(kind, name=f"{kind.name}.{life}")
            producer = self._open_producer(config)
            death = loop.time() + rng.uniform(0.4, 1.6) * self._config.abandon_every_s
            due, credit = loop.time(), 0.0
            while not stopping.is_set() and loop.time() < death and producer.fatal is None:
                due = max(due + TICK_S, loop.time() - LONGEST_CATCH_UP_S)
                credit += sends_per_s * TICK_S
                while credit >= 1 and self._send(producer, config.name, f"{kind.name}-{sequence}", rng):
                    sequence, credit = sequence + 1, credit - 1
                credit = min(credit, 1.0)
                await asyncio.sleep(max(0.0, due - loop.time()))
            if producer.fatal is not None:
                self._history.record("info", config.name, "producer-fatal", error=producer.fatal)
            elif stopping.is_set():
                await producer.flush(self._answers_s)
            await producer.close()
            if producer.has_skipped:
                self._history.record("info", config.name, "skipped-sequence")
            life += 1

    def _open_producer(self, config: ProducerConfig) -> Producer:
        detail = {
            "max_in_flight": config.max_in_flight,
            "acks": config.acks,
            "idempotent": config.idempotent,
        }
        if config.idempotent:
            self._strong.add(config.name)
        self._history.record("info", config.name, "producer", detail=detail)
        return self._clients.producer(config)

    def _send(self, producer: Producer, process: str, value: str, rng: random.Random) -> bool:
        """Pass one value to the client; False, with nothing recorded, while its queue is full."""
        place = self._place(rng.randrange(self._config.partitions))
        timestamp_ms = self._clients.wall_ms() + rng.randint(-TIMESTAMP_JITTER_MS, TIMESTAMP_JITTER_MS)
        sent_us = self._history.now_us()
        answer = producer.send(place, value, timestamp_ms)
        if answer is None:
            return False
        self._history.record(
            "invoke",
            process,
            "send",
            time_us=sent_us,
            key=str(place),
            value=value,
            detail={"timestamp_ms": timestamp_ms},
        )
        answer.add_done_callback(partial(self._answered, process, place, value))
        return True

    def _answered(
        self, process: str, place: TopicPartition, value: str, answer: asyncio.Future[int | None]
    ) -> None:
        error = answer.exception()
        if isinstance(error, OperationError):
            self._history.record(
                error.outcome, process, "send", key=str(place), value=value, error=str(error)
            )
            return
        offset = answer.result()
        self._history.record("ok", process, "send", key=str(place), value=value, offset=offset)
        self.acknowledged += 1
        if offset is not None and process in self._strong:
            self.end_offsets[place] = max(self.end_offsets[place], offset + 1)

    # --- readers -------------------------------------------------------------------------------------------

    def _open_reader(self, name: str, positions: Mapping[int, int]) -> Reader:
        detail = {"topic": self._own(self._config.topic), "partitions": list(positions)}
        self._history.record("ok", name, "assign", detail=detail)
        return self._clients.reader(name, {self._place(number): at for number, at in positions.items()})

    async def _follow(self, name: str, partitions: list[int]) -> None:
        """Read continuously; a position that the broker refuses is recorded, and everything is read again."""
        reader = self._open_reader(name, dict.fromkeys(partitions, 0))
        while not self._reading.stopping.is_set():
            if await self._poll(reader, name, "poll") is None:
                await self._reading.pause(REOPEN_AFTER_S)
                positions = {number: await self._log_start(reader, number) for number in partitions}
                await reader.close()
                reader = self._open_reader(name, positions)
        await reader.close()

    async def _log_start(self, reader: Reader, partition: int) -> int:
        """Where a partition is read from; 0 also where that cannot be found now: it is asked for again."""
        if self._config.delete_every_s is None:
            return 0
        try:
            return await reader.log_start(self._place(partition))
        except OperationError:
            return 0

    async def _poll(self, reader: Reader, name: str, op: str) -> Mapping[TopicPartition, Polled] | None:
        """Record what one poll returned, a pair of events for each partition; None: a position was lost."""
        asked_us = self._history.now_us()
        try:
            polled = await reader.poll(POLL_S)
        except PositionLostError as lost:
            self._history.record(
                "info", name, "poll", key=str(lost.partition), offset=lost.offset, error=str(lost)
            )
            return None
        record_polled(self._history, name, op, asked_us, polled)
        return polled

    async def _read_to_end(self, partition: int, limits: Limits) -> bool:
        """Read up to a high watermark that covers every acknowledged offset; False if none was reached.

        A new leader may for a moment know only an older high watermark, so a high watermark below an
        acknowledged offset is requested again for some time; if it stays there, the checker reports the
        missing records. A deletion that nobody waits for any more may move the log's start: then it is read
        from there.
        """
        loop, place, name = asyncio.get_running_loop(), self._place(partition), f"final-{partition}"
        deadline, all_replicated = loop.time() + limits.read_s, loop.time() + limits.settle_s
        position, end = 0, -1
        reader = self._open_reader(name, {partition: 0})
        deletes = self._config.delete_every_s is not None
        if deletes:
            reader, position = await self._from_start(reader, partition, name, deadline)
        while loop.time() < deadline:
            if position >= end:
                try:
                    end = max(end, await reader.end_offset(place))
                except OperationError as error:
                    self._history.record("info", name, "end-offset-failed", error=str(error))
                    await asyncio.sleep(POLL_S)
                if position >= end >= (0 if loop.time() > all_replicated else self.end_offsets[place]):
                    break
            polled = await self._poll(reader, name, "final")
            if polled is None:
                if not deletes:
                    break
                await asyncio.sleep(POLL_S)
                reader, position = await self._from_start(reader, partition, name, deadline)
                continue
            if place in polled:
                position = polled[place].records[-1][0] + 1
        await reader.close()
        self.read_to[place] = position
        if position >= end >= 0:
            self._history.record("ok", name, "final-end", key=str(place), offset=position)
        return position >= end >= 0

    async def _from_start(
        self, reader: Reader, partition: int, name: str, deadline: float
    ) -> tuple[Reader, int]:
        """A reader at the start of the log, in place of this one, and that position."""
        position = await self._find_start(reader, partition, name, deadline)
        await reader.close()
        return self._open_reader(name, {partition: position}), position

    async def _find_start(self, reader: Reader, partition: int, name: str, deadline: float) -> int:
        """Record where the log starts for the last read."""
        loop, place = asyncio.get_running_loop(), self._place(partition)
        while loop.time() < deadline:
            try:
                start = await reader.log_start(place)
            except OperationError as error:
                self._history.record("info", name, "log-start-failed", error=str(error))
                await asyncio.sleep(POLL_S)
            else:
                self._history.record("ok", name, "final-start", key=str(place), offset=start)
                return start
        return 0

    # --- deletions -----------------------------------------------------------------------------------------

    async def _delete(self, every_s: float, rng: random.Random) -> None:
        """Delete records of one partition after the other: below some offset, or all that are committed."""
        admin = self._clients.admin(DELETER)
        while await self._deleting.pause(rng.uniform(0.2, 1.8) * every_s):
            place = self._place(rng.randrange(self._config.partitions))
            end = self.end_offsets[place]
            # One in ten is above every acknowledged offset; that may be refused.
            offset = -1 if rng.random() < ALL_SHARE else rng.randrange(end + end // 10 + 1)
            key, value = str(place), str(offset)
            self._history.record("invoke", DELETER, "delete-records", key=key, value=value)
            try:
                low_watermark = await admin.delete_records(place, offset)
            except OperationError as error:
                self._history.record(
                    error.outcome, DELETER, "delete-records", key=key, value=value, error=str(error)
                )
            else:
                self._history.record(
                    "ok", DELETER, "delete-records", key=key, value=value, offset=low_watermark
                )
        await admin.close()

    # --- times ---------------------------------------------------------------------------------------------

    async def _seek(self, rng: random.Random) -> None:
        """Look up times at intervals, and once more for every partition when all writes have ended."""
        admin, config = self._clients.admin("seeker"), self._config
        while await self._reading.pause(config.look_every_s):
            await self._look_up(admin, rng.randrange(config.partitions), rng)
        for partition in range(config.partitions):
            for _ in range(FINAL_LOOKUPS):
                await self._look_up(admin, partition, rng)
        await admin.close()

    async def _look_up(self, admin: OwnAdmin, partition: int, rng: random.Random) -> None:
        timestamp_ms = rng.randint(self._begin_ms - TIMESTAMP_JITTER_MS, self._clients.wall_ms())
        key, asked_us = str(self._place(partition)), self._history.now_us()
        detail = {"timestamp_ms": timestamp_ms, "asked_us": asked_us}
        try:
            offset = await admin.offset_for_time(self._place(partition), timestamp_ms)
        except OperationError as error:
            self._history.record("info", "seeker", "offset-for-time", key=key, error=str(error))
            return
        self._history.record("ok", "seeker", "offset-for-time", key=key, offset=offset, detail=detail)
