"""The registers workload: small values that many clients write and read, each operation a single request.

*Committed offsets* of groups without members are ``commit`` and ``committed`` in the history, and
linearizable. *Configurations* of a topic, each with one writer, are ``set``, ``look`` (at one broker, whose
image may lag) and ``get`` (the last look, at every broker). *Producer ids* (``allocate``) are given out once
each. See ``checkers/linear_registers`` and ``checkers/registers``.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pykraft.jepsen_like.faults.clients.interface import Commit, OperationError
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.clients.own_requests import OwnRequests
from pykraft.jepsen_like.faults.history import EventType, Recorder
from pykraft.jepsen_like.faults.workloads.workload import (
    Limits,
    Played,
    Tasks,
    TopicSpec,
    branch,
    record_no_progress,
    recorded,
)
from pykraft.kafka_client.metadata import TopicPartition

TOPIC = "registers"
PARTITIONS = 6
CONFIGS = ("retention.ms", "segment.ms", "flush.ms", "file.delete.delay.ms")
FIRST_MS = 3_600_000
PRODUCER_IDS = "producer-ids"
WRITE_SHARE = 0.5
RELIST_SHARE = 0.05
"""The share of operations at one broker before which the brokers are listed again."""
RETRY_S = 0.5
BOTH: tuple[EventType, ...] = ("invoke", "ok")

AtBroker = Callable[[OwnRequests, int], Awaitable[bool]]
"""One operation at a broker; whether it was answered."""


@dataclass(frozen=True, slots=True)
class RegistersConfig:
    """``committers`` use the offsets of ``groups``, ``registers_each`` in each; ``lookers`` look at
    configurations, and ``allocators`` ask for producer ids. ``rest_s``: the mean time between two operations
    of one of them."""

    committers: int = 6
    groups: int = 4
    registers_each: int = 2
    lookers: int = 3
    allocators: int = 2
    rest_s: float = 0.03
    replication_factor: int = 3


class RegistersWorkload(Played[RegistersConfig]):
    """A :class:`~pykraft.jepsen_like.faults.workloads.workload.Workload`."""

    def __init__(self, clients: OwnClients, config: RegistersConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._using = Tasks()
        self._offset = 0
        self._offsets = [
            (self._own(f"{TOPIC}-{group}"), place)
            for group in range(config.groups)
            for place in self._places({TOPIC: config.registers_each})
        ]

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        configs = {"min.insync.replicas": "2", **dict.fromkeys(CONFIGS, str(FIRST_MS))}
        return (TopicSpec(self._own(TOPIC), PARTITIONS, self._config.replication_factor, configs),)

    def start(self) -> None:
        for group, place in self._offsets:
            self._history.record("info", "runner", "register", key=f"{group}/{place}")
        for name in CONFIGS:
            for outcome in BOTH:
                self._history.record(outcome, "runner", "set", key=self._key(name), value=str(FIRST_MS))
            self._using.start(self._ask_brokers(f"setter-{name}", branch(self._rng), self._setting(name)))
        for number in range(self._config.committers):
            self._using.start(self._use_offsets(f"committer-{number}", branch(self._rng)))
        for number in range(self._config.lookers):
            rng = branch(self._rng)
            self._using.start(
                self._ask_brokers(f"looker-{number}", rng, self._looking(f"looker-{number}", rng))
            )
        for number in range(self._config.allocators):
            name = f"allocator-{number}"
            self._using.start(self._ask_brokers(name, branch(self._rng), self._allocating(name)))

    async def finish(self, limits: Limits) -> None:
        if not await self._using.stop(limits.answers_s):
            record_no_progress(self._history, "an operation was not answered")
        await asyncio.sleep(limits.settle_s)
        requests = self._clients.requests("last-look")
        try:
            async with asyncio.timeout(limits.read_s):
                await self._look_at_all(requests)
        except TimeoutError:
            record_no_progress(self._history, "not every register could be read")
        await requests.close()

    async def _pause(self, rng: random.Random) -> bool:
        return await self._using.pause(rng.expovariate(1 / self._config.rest_s))

    # --- committed offsets ---------------------------------------------------------------------------------

    async def _use_offsets(self, name: str, rng: random.Random) -> None:
        requests = self._clients.requests(name)
        while await self._pause(rng):
            group, place = rng.choice(self._offsets)
            if rng.random() < WRITE_SHARE:
                await self._commit(requests, name, group, place)
            else:
                await self._read(requests, name, group, place)
        await requests.close()

    async def _commit(self, requests: OwnRequests, name: str, group: str, place: TopicPartition) -> None:
        self._offset += 1
        commit = Commit(self._offset, f"{name}#{self._offset}")

        def record(kind: EventType, error: str | None = None) -> None:
            key = f"{group}/{place}"
            self._history.record(
                kind, name, "commit", key=key, value=commit.tag, offset=commit.offset, error=error
            )

        record("invoke")
        try:
            await requests.commit(group, place, commit)
        except OperationError as error:
            record(error.outcome, str(error))
        else:
            record("ok")

    async def _read(self, requests: OwnRequests, name: str, group: str, place: TopicPartition) -> bool:
        key, asked_us = f"{group}/{place}", self._history.now_us()
        try:
            found = await requests.committed(group, place)
        except OperationError as error:
            self._history.record("info", name, "committed", key=key, error=str(error))
            return False
        self._history.record(
            "ok",
            name,
            "committed",
            key=key,
            value=None if found is None else found.tag,
            offset=None if found is None else found.offset,
            detail={"asked_us": asked_us},
        )
        return True

    # --- at brokers ----------------------------------------------------------------------------------------

    async def _ask_brokers(self, name: str, rng: random.Random, operation: AtBroker) -> None:
        """One broker after another; after a failure they are listed again."""
        requests, brokers = self._clients.requests(name), list[int]()
        while await self._pause(rng):
            if not brokers or rng.random() < RELIST_SHARE:
                brokers = await self._list(requests)
            if brokers and not await operation(requests, rng.choice(brokers)):
                brokers = []
        await requests.close()

    async def _list(self, requests: OwnRequests) -> list[int]:
        try:
            return list(await requests.brokers())
        except OperationError:
            return []

    def _setting(self, config: str) -> AtBroker:
        number = FIRST_MS

        async def set_next(requests: OwnRequests, broker: int) -> bool:
            nonlocal number
            number += 1
            change = requests.set_config(broker, self._own(TOPIC), config, str(number))
            key = self._key(config)
            return await recorded(self._history, f"setter-{config}", "set", key, str(number), change)

        return set_next

    def _looking(self, name: str, rng: random.Random) -> AtBroker:
        async def look(requests: OwnRequests, broker: int) -> bool:
            return await self._look(requests, name, "look", broker, rng.choice(CONFIGS))

        return look

    async def _look(self, requests: OwnRequests, name: str, op: str, broker: int, config: str) -> bool:
        detail = {"asked_us": self._history.now_us(), "broker": broker}
        try:
            value = await requests.config(broker, self._own(TOPIC), config)
        except OperationError as error:
            self._history.record("info", name, op, key=self._key(config), error=str(error), detail=detail)
            return False
        self._history.record("ok", name, op, key=self._key(config), value=value, detail=detail)
        return True

    def _allocating(self, name: str) -> AtBroker:
        async def allocate(requests: OwnRequests, broker: int) -> bool:
            detail = {"asked_us": self._history.now_us(), "broker": broker}
            try:
                found = await requests.producer_id(broker)
            except OperationError as error:
                self._history.record(
                    "info", name, "allocate", key=PRODUCER_IDS, error=str(error), detail=detail
                )
                return False
            self._history.record("ok", name, "allocate", key=PRODUCER_IDS, value=str(found), detail=detail)
            return True

        return allocate

    # --- the last look -------------------------------------------------------------------------------------

    async def _look_at_all(self, requests: OwnRequests) -> None:
        """Every offset, and every configuration at every broker."""
        for group, place in self._offsets:
            while not await self._read(requests, "last-look", group, place):
                await asyncio.sleep(RETRY_S)
        while not (brokers := await self._list(requests)):
            await asyncio.sleep(RETRY_S)
        for broker in brokers:
            for config in CONFIGS:
                while not await self._look(requests, "last-look", "get", broker, config):
                    await asyncio.sleep(RETRY_S)

    def _key(self, config: str) -> str:
        return f"{self._own(TOPIC)}/{config}"
