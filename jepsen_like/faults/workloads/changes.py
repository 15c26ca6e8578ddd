"""The changes workload: topics are created, grown, configured and deleted, and described at the end.

Each value that is set is in the history with its outcome: the number of a topic's partitions (``none`` once
it is deleted) and one of its configurations. A topic with a change of unknown outcome is not changed again,
so that the final state can be checked; a name whose deletion was acknowledged may be used again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pykraft.jepsen_like.faults.clients.interface import OperationError
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.clients.own_requests import OwnRequests
from pykraft.jepsen_like.faults.history import EventType, Recorder
from pykraft.jepsen_like.faults.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.faults.workloads.workload import (
    Limits,
    Played,
    Tasks,
    TopicSpec,
    branch,
    record_no_progress,
    recorded,
    repeated_since,
)

POLL_S = 0.5
CLOSE_S = 30.0
CONFIG = "retention.ms"
FIRST_RETENTION_MS = 3_600_000
MOST_CHANGES = 6
DELETE_SHARE = 0.6
AGAIN_SHARE = 0.5
DELETED = "none"
ADMIN = "admin-"
"""How the names of admins, and of the topics that they change, begin."""
BEGINNING: tuple[EventType, ...] = ("invoke", "ok")
CountOf = Callable[[str], Awaitable[int | None]]
ConfigOf = Callable[[str, str], Awaitable[str | None]]
APPEND = AppendConfig(topic="beside", sends_per_s=600, weak_sends_per_s=0)


@dataclass(frozen=True, slots=True)
class ChangesConfig:
    """``admins`` change topics of their own, each a change every ``change_every_s`` on average.
    ``every_broker``: the last look is at each of them, not only at any."""

    append: AppendConfig = APPEND
    admins: int = 3
    change_every_s: float = 0.5
    replication_factor: int = 3
    every_broker: bool = False


class ChangesWorkload(Played[ChangesConfig]):
    """A :class:`.workload.Workload`; records are written at the same time."""

    def __init__(self, clients: OwnClients, config: ChangesConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._append = AppendWorkload(clients, config.append, self._rng.randrange(1 << 30), history)
        self._changing = Tasks()
        self._retention_ms = FIRST_RETENTION_MS
        self._changed: dict[str, None] = {}

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        return self._append.topics

    def start(self) -> None:
        self._append.start()
        for number in range(self._config.admins):
            rng = branch(self._rng)
            self._changing.start(self._change(f"{ADMIN}{number}", rng))

    async def finish(self, limits: Limits) -> None:
        if not await self._changing.stop(CLOSE_S):
            record_no_progress(self._history, "a change was not answered")
        await self._append.finish(limits)
        await asyncio.sleep(limits.settle_s)
        await self._look(limits)

    async def _change(self, name: str, rng: random.Random) -> None:
        admin, life = self._clients.admin(name), 0
        topic = self._own(f"{name}-0")
        while not self._changing.stopping.is_set():
            deleted = await self._live(admin, name, topic, rng)
            if not (deleted and rng.random() < AGAIN_SHARE):
                life += 1
                topic = self._own(f"{name}-{life}")
        await admin.close()

    async def _live(self, admin: OwnAdmin, name: str, topic: str, rng: random.Random) -> bool:
        """Change one topic, from its creation on; returns whether it was certainly deleted."""
        partitions = rng.randint(1, 4)
        if not await self._pause(rng):
            return False
        self._begin(name, topic)
        if not await self._create(admin, name, topic, partitions):
            return False
        for _ in range(rng.randrange(MOST_CHANGES)):
            if not await self._pause(rng):
                return False
            if rng.random() < 0.5:
                partitions += rng.randint(1, 2)
                grow = admin.create_partitions(topic, partitions)
                known = await self._set(admin, name, f"{topic}/partitions", str(partitions), grow)
            else:
                value = self._next_retention()
                alter = admin.alter_config(topic, CONFIG, value)
                known = await self._set(admin, name, f"{topic}/{CONFIG}", value, alter)
            if not known:
                return False
        if rng.random() > DELETE_SHARE or not await self._pause(rng):
            return False
        return await self._set(admin, name, f"{topic}/partitions", DELETED, admin.delete_topic(topic))

    def _begin(self, name: str, topic: str) -> None:
        """Before its creation a topic does not exist, and it still does not if its creation is lost."""
        if topic not in self._changed:
            self._changed[topic] = None
            for outcome in BEGINNING:
                self._history.record(outcome, name, "set", key=f"{topic}/partitions", value=DELETED)

    async def _create(self, admin: OwnAdmin, name: str, topic: str, partitions: int) -> bool:
        value, before = self._next_retention(), admin.repeats
        replicas = min(self._config.replication_factor, self._clients.most_replicas)
        create = admin.create_topic(topic, partitions, replicas, {CONFIG: value})
        self._history.record("invoke", name, "set", key=f"{topic}/{CONFIG}", value=value)
        created = await self._set(admin, name, f"{topic}/partitions", str(partitions), create)
        outcome: EventType = "ok" if created else "info"
        repeated = repeated_since(admin, before)
        self._history.record(outcome, name, "set", key=f"{topic}/{CONFIG}", value=value, detail=repeated)
        return created

    async def _set(
        self, admin: OwnAdmin, name: str, key: str, value: str, operation: Awaitable[None]
    ) -> bool:
        return await recorded(self._history, name, "set", key, value, operation, admin)

    async def _pause(self, rng: random.Random) -> bool:
        return await self._changing.pause(rng.uniform(0.5, 1.5) * self._config.change_every_s)

    def _next_retention(self) -> str:
        self._retention_ms += 1
        return str(self._retention_ms)

    # --- the final check -----------------------------------------------------------------------------------

    async def _look(self, limits: Limits) -> None:
        admin = self._clients.admin("look")
        await self._look_through(admin.partition_count, admin.config, {}, limits)
        await admin.close()
        if self._config.every_broker:
            requests = self._clients.requests("look")
            for broker in await self._brokers(requests, limits):
                count, config = partial(requests.partition_count, broker), partial(requests.config, broker)
                await self._look_through(count, config, {"broker": broker}, limits)
            await requests.close()

    async def _brokers(self, requests: OwnRequests, limits: Limits) -> Sequence[int]:
        deadline = asyncio.get_running_loop().time() + limits.read_s
        while asyncio.get_running_loop().time() < deadline:
            with suppress(OperationError):
                return await requests.brokers()
            await asyncio.sleep(POLL_S)
        record_no_progress(self._history, "the brokers are not known")
        return ()

    async def _look_through(
        self, count: CountOf, config: ConfigOf, where: dict[str, object], limits: Limits
    ) -> None:
        deadline = asyncio.get_running_loop().time() + limits.read_s
        for topic in self._changed:
            while not await self._look_at(topic, count, config, where):
                if asyncio.get_running_loop().time() > deadline:
                    record_no_progress(self._history, f"{topic} could not be described")
                    break
                await asyncio.sleep(POLL_S)

    async def _look_at(
        self, topic: str, count_of: CountOf, config_of: ConfigOf, where: dict[str, object]
    ) -> bool:
        detail = {"asked_us": self._history.now_us(), **where}
        try:
            count = await count_of(topic)
            value = None if count is None else await config_of(topic, CONFIG)
        except OperationError as error:
            self._history.record("info", "look", "get-failed", key=topic, error=str(error))
            return False
        self._found(f"{topic}/partitions", DELETED if count is None else str(count), detail)
        if count is not None:
            self._found(f"{topic}/{CONFIG}", str(value), detail)
        return True

    def _found(self, key: str, value: str, detail: dict[str, object]) -> None:
        self._history.record("ok", "look", "get", key=key, value=value, detail=detail)
