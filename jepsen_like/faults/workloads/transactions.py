"""The transactions workload: several partitions at once, all or nothing, and each input processed once.

*Appenders* write transactions and commit or abort them; some pause for longer than their transaction may
last, let a write arrive late, or go on as zombies. *Workers* read one partition of the input topic each,
write an output for each record and commit the offset in the same transaction.

A value names its transaction: ``TRANSACTION:INDEX/COUNT``, and if it is an output its input, ``<KEY@OFFSET``.
Outcomes of writes are recorded with that of their transaction: ``ok`` if it was committed, ``fail`` if its
commit was never asked for.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from pykraft.jepsen_like.faults.clients.interface import (
    OperationError,
    PositionLostError,
    Reader,
    TransactionalConfig,
)
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.transaction_config import (
    APPENDED,
    CLOSE_S,
    GROUP,
    INPUT,
    OUTPUT,
    POLL_S,
    RETRY_S,
    SCAN_S,
    TIMEOUTS_MS,
    TOPICS,
    TransactionsConfig,
)
from pykraft.jepsen_like.faults.workloads.transaction_instance import Instance
from pykraft.jepsen_like.faults.workloads.transaction_seat import Seat
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


class TransactionsWorkload(Played[TransactionsConfig]):
    """A :class:`~pykraft.jepsen_like.faults.workloads.workload.Workload`."""

    def __init__(self, clients: OwnClients, config: TransactionsConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._appending = Tasks()
        self._working = Tasks()
        self._reading = Tasks()
        self._closed = asyncio.Event()
        self._last_input: dict[TopicPartition, int] = {}
        self._closing: dict[TopicPartition, str] = {}
        """How the last value of each partition begins."""

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        configs = {"min.insync.replicas": "2"}
        if self._config.flush_messages is not None:
            configs["flush.messages"] = str(self._config.flush_messages)
        return tuple(TopicSpec(self._own(topic), count, configs=configs) for topic, count in TOPICS.items())

    def start(self) -> None:
        for number in range(self._config.appenders):
            name = self._own(f"appender-{number}")
            places = self._places({**APPENDED, **INPUT})
            seat = Seat(self._clients, self._config, name, places, branch(self._rng), self._history)
            self._appending.start(seat.run(self._appending))
        for place in self._places(INPUT):
            self._working.start(self._work(place, branch(self._rng)))
        for number in range(2):
            places = [place for n, place in enumerate(self._places(TOPICS)) if n % 2 == number]
            self._reading.start(self._follow(f"reader-{number}", places))

    async def finish(self, limits: Limits) -> None:
        if not await self._appending.stop(limits.answers_s + CLOSE_S):
            record_no_progress(self._history, "appenders wait for answers")
        self._last_input = await self._close(self._own("closer"), self._places({**APPENDED, **INPUT}), limits)
        self._closed.set()
        if not await self._working.stop(limits.answers_s + CLOSE_S):
            record_no_progress(self._history, "workers do not reach the end of their input")
        await self._close(self._own("last-closer"), self._places(OUTPUT), limits)
        await asyncio.sleep(max(TIMEOUTS_MS) / 1000 + SCAN_S)
        for place in self._places(TOPICS):
            await self._read_to_end(place, limits)
            await self._look_for_hanging(place, limits)
        for place in self._places(INPUT):
            await self._record_committed(place)
        if not await self._reading.stop(limits.answers_s):
            record_no_progress(self._history, "readers did not end")

    async def _close(
        self, name: str, places: Sequence[TopicPartition], limits: Limits
    ) -> dict[TopicPartition, int]:
        """A last transaction with a record in each of the partitions; returns their offsets."""
        loop = asyncio.get_running_loop()
        deadline, life = loop.time() + limits.answers_s, 0
        while loop.time() < deadline:
            process = f"{name}.{life}"
            life += 1
            instance = Instance(self._clients, self._config, name, process, max(TIMEOUTS_MS), self._history)
            if await instance.init():
                transaction = instance.begin(len(places))
                for place in places:
                    await transaction.send(place, 1)
                if await transaction.commit():
                    self._closing.update(dict.fromkeys(places, f"{transaction.name}:"))
                    await instance.close()
                    return {place: offset for (place, _), offset in transaction.offsets.items()}
            await instance.close()
            await asyncio.sleep(RETRY_S)
        record_no_progress(self._history, f"{name} cannot commit")
        return {}

    # --- workers -----------------------------------------------------------------------------------------

    async def _work(self, place: TopicPartition, rng: random.Random) -> None:
        """One worker after the other; the last one reaches the end of the input."""
        life = 0
        while True:
            name = self._own(f"worker-{place.partition}")
            instance = Instance(
                self._clients,
                self._config,
                name,
                f"{name}.{life}",
                rng.choice(TIMEOUTS_MS),
                self._history,
                rng,
            )
            life += 1
            try:
                if await self._live(instance, place, rng):
                    return
            except OperationError as error:
                self._history.record("info", instance.process, "worker-ends", error=str(error))
            finally:
                await instance.close()
            await asyncio.sleep(RETRY_S)

    async def _live(self, instance: Instance, place: TopicPartition, rng: random.Random) -> bool:
        """Process the input from the committed offset on; True at its end. :class:`OperationError`."""
        if not await instance.init():
            return False
        committed = await instance.producer.committed(self._own(GROUP), place)
        position = committed or 0
        reader = self._open_reader(instance.process, {place: position})
        try:
            while not self._is_at_end(place, position):
                polled = await self._poll(reader, instance.process, "poll")
                if polled is None:
                    return False
                if place not in polled:
                    continue
                records = polled[place]
                for first in range(0, len(records), 5):
                    chunk = records[first : first + 5]
                    if not await self._process(instance, place, chunk, rng):
                        return False
                    position = chunk[-1][0] + 1
                if rng.random() < self._config.replace_share and not self._closed.is_set():
                    return False
            return True
        finally:
            await reader.close()

    def _is_at_end(self, place: TopicPartition, position: int) -> bool:
        """Without a last record there is no end to reach: that was recorded."""
        if not self._closed.is_set():
            return False
        return place not in self._last_input or position > self._last_input[place]

    async def _process(
        self,
        instance: Instance,
        place: TopicPartition,
        records: Sequence[tuple[int, str]],
        rng: random.Random,
    ) -> bool:
        transaction = instance.begin(len(records))
        for offset, _ in records:
            output = rng.choice(self._places(OUTPUT))
            await transaction.send(output, 1, f"<{place}@{offset}")
        if not self._closed.is_set() and rng.random() < self._config.pause_share:
            await asyncio.sleep(instance.timeout_s * rng.uniform(0.5, 2.0))
        await transaction.send_offsets(self._own(GROUP), place, records[-1][0] + 1)
        if not self._closed.is_set() and rng.random() < self._config.abort_share / 2:
            await transaction.abort()
            return False  # the input is read again
        return await transaction.commit()

    # --- readers -----------------------------------------------------------------------------------------

    def _open_reader(self, name: str, positions: Mapping[TopicPartition, int]) -> Reader:
        self._history.record("ok", name, "assign", detail={"partitions": [str(one) for one in positions]})
        return self._clients.reader(name, positions, committed=True)

    async def _follow(self, name: str, places: Sequence[TopicPartition]) -> None:
        reader = self._open_reader(name, dict.fromkeys(places, 0))
        while not self._reading.stopping.is_set():
            if await self._poll(reader, name, "poll") is None:
                await reader.close()
                await asyncio.sleep(POLL_S)
                reader = self._open_reader(name, dict.fromkeys(places, 0))
        await reader.close()

    async def _poll(
        self, reader: Reader, name: str, op: str
    ) -> Mapping[TopicPartition, Sequence[tuple[int, str]]] | None:
        """None: the reader's position was refused."""
        asked_us = self._history.now_us()
        try:
            polled = await reader.poll(POLL_S)
        except PositionLostError as lost:
            place, offset = str(lost.partition), lost.offset
            self._history.record("info", name, "poll", key=place, offset=offset, error=str(lost))
            return None
        record_polled(self._history, name, op, asked_us, polled)
        return {place: found.records for place, found in polled.items()}

    async def _read_to_end(self, place: TopicPartition, limits: Limits) -> None:
        """Read up to the record of the closer that knows that it committed: an earlier one may have, too."""
        loop, name, closing = asyncio.get_running_loop(), f"final-{place}", self._closing.get(place)
        deadline, seen = loop.time() + limits.read_s, False
        reader = self._open_reader(name, {place: 0})
        position = 0
        while loop.time() < deadline and not seen:
            polled = await self._poll(reader, name, "final")
            if polled is None:
                break
            if place in polled:
                position = polled[place][-1][0] + 1
                seen = closing is not None and any(value.startswith(closing) for _, value in polled[place])
        await reader.close()
        if seen:
            self._history.record("ok", name, "final-end", key=str(place), offset=position)
        else:
            record_no_progress(self._history, "the last transaction is not read", place)

    async def _look_for_hanging(self, place: TopicPartition, limits: Limits) -> None:
        """Nobody writes any more, and every timeout has passed: all is stable."""
        committed = self._clients.reader("hanging-committed", {place: 0}, committed=True)
        everything = self._clients.reader("hanging-everything", {place: 0})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.read_s
        while True:
            try:
                end, stable = await everything.end_offset(place), await committed.end_offset(place)
            except OperationError as error:
                if loop.time() < deadline:  # the leader may have moved since its address was learned
                    await asyncio.sleep(RETRY_S)
                    continue
                record_no_progress(self._history, f"the end is not known: {error}", place)
                break
            if stable != end:
                error_text = f"stable up to {stable} of {end}"
                self._history.record("info", "final", "hanging", key=str(place), error=error_text)
            break
        await everything.close()
        await committed.close()

    async def _record_committed(self, place: TopicPartition) -> None:
        producer = self._clients.plain_transactional(TransactionalConfig("final", self._own("final"), 1_000))
        try:
            offset = await producer.committed(self._own(GROUP), place)
        except OperationError as error:
            record_no_progress(self._history, f"the committed offset is not known: {error}", place)
        else:
            key = f"{self._own(GROUP)}/{place}"
            self._history.record("ok", "final", "txn-committed", key=key, offset=offset or 0)
        await producer.close()
