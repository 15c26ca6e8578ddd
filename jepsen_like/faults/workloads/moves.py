"""The moves workload: the append workload while replicas are reassigned and leaders are elected.

With as many brokers as replicas a move changes their order, and so the preferred leader, or removes one for
some time; with more brokers replicas really move. At the end every partition is moved once more, to all its
replicas, and the move must complete.
"""

import asyncio
from dataclasses import dataclass

from pykraft.jepsen_like.faults.clients.interface import OperationError, UnknownOutcomeError
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.faults.workloads.workload import (
    Limits,
    Played,
    Tasks,
    TopicSpec,
    record_no_progress,
    recorded,
)
from pykraft.kafka_client.metadata import TopicPartition

POLL_S = 0.2
CLOSE_S = 30.0
FEWER_SHARE = 0.25
ELECT_SHARE = 0.4
PROCESS = "mover"
APPEND = AppendConfig(topic="moves", weak_sends_per_s=0)


@dataclass(frozen=True, slots=True)
class MovesConfig:
    append: AppendConfig = APPEND
    move_every_s: float = 2.0


class MovesWorkload(Played[MovesConfig]):
    """A :class:`~pykraft.jepsen_like.faults.workloads.workload.Workload`."""

    def __init__(self, clients: OwnClients, config: MovesConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._append = AppendWorkload(clients, config.append, self._rng.randrange(1 << 30), history)
        self._moving = Tasks()
        self._moved = self._places({config.append.topic: config.append.partitions})

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        return self._append.topics

    def start(self) -> None:
        self._append.start()
        self._moving.start(self._move_about())

    async def finish(self, limits: Limits) -> None:
        if not await self._moving.stop(CLOSE_S):
            record_no_progress(self._history, "a move was not answered")
        await self._move_home(limits)
        await self._append.finish(limits)

    async def _move_about(self) -> None:
        admin, rng, replicas = self._clients.admin(PROCESS), self._rng, self._config.append.replication_factor
        while await self._moving.pause(rng.uniform(0.5, 1.5) * self._config.move_every_s):
            place = rng.choice(self._moved)
            try:
                brokers = sorted(await admin.brokers())
            except OperationError as error:
                self._history.record("info", PROCESS, "brokers", error=str(error))
                continue
            count = replicas - 1 if rng.random() < FEWER_SHARE else replicas
            if len(brokers) >= count:
                await self._move(admin, place, rng.sample(brokers, count))
            if rng.random() < ELECT_SHARE:
                elect = admin.elect_preferred(place)
                await recorded(self._history, PROCESS, "elect", str(place), "preferred", elect)
        await admin.close()

    async def _move(self, admin: OwnAdmin, place: TopicPartition, replicas: list[int]) -> bool:
        key, value = f"{place}/replicas", _written(replicas)
        reassign = admin.reassign(place, replicas)
        return await recorded(self._history, PROCESS, "set", key, value, reassign, admin)

    async def _move_home(self, limits: Limits) -> None:
        """All brokers are up: move every partition to all its replicas, and wait until it is there."""
        admin, loop = self._clients.admin(PROCESS), asyncio.get_running_loop()
        deadline = loop.time() + limits.read_s
        for number, place in enumerate(self._moved):
            there = False
            while not there and loop.time() < deadline:
                try:
                    brokers = sorted(await admin.brokers())
                    if not brokers:
                        raise UnknownOutcomeError("no broker is known")
                    turned = brokers[number % len(brokers) :] + brokers[: number % len(brokers)]
                    wanted = turned[: self._config.append.replication_factor]
                    there = await self._move(admin, place, wanted)
                    there = there and await self._arrived(admin, place, wanted, deadline)
                except OperationError as error:
                    self._history.record("info", PROCESS, "get-failed", key=str(place), error=str(error))
                    await asyncio.sleep(POLL_S)
            if not there:
                record_no_progress(self._history, f"{place} did not complete its move")
        await admin.close()

    async def _arrived(
        self, admin: OwnAdmin, place: TopicPartition, wanted: list[int], deadline: float
    ) -> bool:
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            asked_us = self._history.now_us()
            found = list(await admin.replicas(place))
            if found == wanted:
                value, detail = _written(found), {"asked_us": asked_us}
                self._history.record(
                    "ok", PROCESS, "get", key=f"{place}/replicas", value=value, detail=detail
                )
                return True
            await asyncio.sleep(POLL_S)
        return False


def _written(replicas: list[int]) -> str:
    return ",".join(map(str, replicas))
