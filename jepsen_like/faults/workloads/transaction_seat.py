"""One transactional id of appenders: instances follow each other, and a replaced one goes on as a zombie."""

import asyncio
import random
from collections.abc import Sequence

from pykraft.jepsen_like.faults.clients.interface import PositionLostError
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.transaction_config import (
    CLOSE_S,
    POLL_S,
    RETRY_S,
    TIMEOUTS_MS,
    ZOMBIE_TRANSACTIONS,
    TransactionsConfig,
)
from pykraft.jepsen_like.faults.workloads.transaction_instance import Instance, Transaction
from pykraft.jepsen_like.faults.workloads.workload import Tasks, record_no_progress, record_polled
from pykraft.kafka_client.metadata import TopicPartition

PEEK_RECORDS = 10
"""How many offsets before a record of its own a transaction begins to read."""


class Seat:
    """One transactional id of appenders, whose instances follow each other, and sometimes overlap."""

    def __init__(
        self,
        clients: OwnClients,
        config: TransactionsConfig,
        transactional_id: str,
        places: Sequence[TopicPartition],
        rng: random.Random,
        history: Recorder,
    ) -> None:
        self._clients = clients
        self._config = config
        self._transactional_id = transactional_id
        self._places = places
        self._places = places
        self._rng = rng
        self._history = history
        self._tasks = Tasks()

    async def run(self, tasks: Tasks) -> None:
        life = 0
        while not tasks.stopping.is_set():
            replaced = asyncio.Event()
            living = asyncio.get_running_loop().create_task(self._live(tasks, life, replaced))
            life += 1
            waiting = asyncio.get_running_loop().create_task(replaced.wait())
            await asyncio.wait((living, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if living.done():
                living.result()
                await tasks.pause(self._rng.uniform(0, 2 * RETRY_S))
            else:
                self._tasks.start(_ended(living))
        if not await self._tasks.stop(CLOSE_S):
            record_no_progress(self._history, "zombies did not end")

    async def _live(self, tasks: Tasks, life: int, replaced: asyncio.Event) -> None:
        rng = random.Random(f"{self._transactional_id} {life} {self._rng.random()}")
        process = f"{self._transactional_id}.{life}"
        instance = Instance(
            self._clients,
            self._config,
            self._transactional_id,
            process,
            rng.choice(TIMEOUTS_MS),
            self._history,
            rng,
        )
        if await instance.init():
            left = ZOMBIE_TRANSACTIONS
            while not instance.is_broken and not tasks.stopping.is_set() and left:
                left -= replaced.is_set()
                await self._transact(instance, rng, replaced)
                if not replaced.is_set() and rng.random() < self._config.replace_share:
                    break
                await tasks.pause(rng.expovariate(1 / self._config.rest_s))
        await instance.close()

    async def _transact(self, instance: Instance, rng: random.Random, replaced: asyncio.Event) -> None:
        config = self._config
        places = rng.sample(self._places, rng.randrange(1, 5))
        counts = [rng.choice((1, 1, 2, 3)) for _ in places]
        transaction = instance.begin(sum(counts))
        special_at = rng.randrange(len(places))
        chance = rng.random()
        for number, (place, count) in enumerate(zip(places, counts, strict=True)):
            if number == special_at:
                late_share = config.zombie_late_share if replaced.is_set() else config.late_share
                if chance < late_share and instance.is_plain:
                    transaction.send_late(place, count, rng.choice((0.02, 0.1, 0.5, 2.0)))
                    break
                chance -= late_share
                if 0 <= chance < config.pause_share:
                    await asyncio.sleep(instance.timeout_s * rng.uniform(0.5, 2.0))
                chance -= config.pause_share
                if 0 <= chance < config.zombie_share:
                    replaced.set()
                    await asyncio.sleep(rng.uniform(0.05, 3.0))
                    if instance.recovers:
                        transaction.abandon()
                        await instance.recover()
                        return
                chance -= config.zombie_share
                if 0 <= chance < config.replace_share:
                    transaction.abandon()
                    return
            await transaction.send(place, count)
        if config.peek_share and rng.random() < config.peek_share:
            await self._peek(instance.process, transaction)
        if rng.random() < config.abort_share:
            await transaction.abort()
        else:
            await transaction.commit()

    async def _peek(self, process: str, transaction: Transaction) -> None:
        """Read what is committed around a record of the open transaction, as its own process."""
        for (place, _), offset in transaction.offsets.items():
            history = self._history
            history.record("ok", process, "assign", detail={"partitions": [str(place)]})
            reader = self._clients.reader(process, {place: max(0, offset - PEEK_RECORDS)}, committed=True)
            asked_us = history.now_us()
            try:
                polled = await reader.poll(POLL_S)
            except PositionLostError as lost:
                key = str(lost.partition)
                history.record("info", process, "poll", key=key, offset=lost.offset, error=str(lost))
            else:
                record_polled(history, process, "poll", asked_us, polled)
            await reader.close()
            return


async def _ended(task: asyncio.Task[None]) -> None:
    await task
