"""The last transaction is the end of the last read, also if one before it had committed without an answer."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from pykraft.jepsen_like.faults.checkers.history import check
from pykraft.jepsen_like.faults.clients.interface import Polled, TransactionalConfig, UnknownOutcomeError
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.transaction_config import TransactionsConfig
from pykraft.jepsen_like.faults.workloads.transactions import TransactionsWorkload
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualLoop


class Logs:
    """All clients in one: each commit takes effect, but the first of each transactional id is not answered.

    A reader gets one record at a time.
    """

    prefix = ""
    most_replicas = 3

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, list[str]] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._heard: set[str] = set()

    def plain_transactional(self, config: TransactionalConfig) -> "Writer":
        return Writer(self, config.transactional_id)

    transactional = plain_transactional

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> "Reader":
        return Reader(self._logs, dict(positions))

    def append(self, place: TopicPartition, values: Sequence[str]) -> int:
        log = self._logs.setdefault(place, [])
        log += values
        return len(log) - len(values)

    def commit(self, transactional_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed.update(offsets)
        if transactional_id not in self._heard:
            self._heard.add(transactional_id)
            raise UnknownOutcomeError("no answer")

    def committed(self, place: TopicPartition) -> int | None:
        return self._committed.get(place)


class Writer:
    """Transactions follow each other, so what is written may be in the logs at once."""

    def __init__(self, logs: Logs, transactional_id: str) -> None:
        self._logs = logs
        self._id = transactional_id
        self._offsets: dict[TopicPartition, int] = {}

    async def init(self) -> None: ...

    async def send(self, place: TopicPartition, values: Sequence[str]) -> int:
        return self._logs.append(place, values)

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._offsets.update(offsets)

    async def committed(self, group: str, place: TopicPartition) -> int | None:
        return self._logs.committed(place)

    async def commit(self) -> None:
        self._logs.commit(self._id, self._offsets)

    async def close(self) -> None: ...


class Reader:
    def __init__(
        self, logs: Mapping[TopicPartition, list[str]], positions: dict[TopicPartition, int]
    ) -> None:
        self._logs = logs
        self._positions = positions

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        polled = {}
        for place, offset in self._positions.items():
            if offset < len(self._logs.get(place, ())):
                polled[place] = Polled(((offset, self._logs[place][offset]),))
                self._positions[place] += 1
        if not polled:
            await asyncio.sleep(timeout_s)
        return polled

    async def end_offset(self, place: TopicPartition) -> int:
        return len(self._logs.get(place, ()))

    async def close(self) -> None: ...


def test_the_last_read_ends_with_the_transaction_that_is_known_to_be_the_last() -> None:
    async def body() -> list[Event]:
        loop = asyncio.get_running_loop()
        history = MemoryHistory(lambda: int(loop.time() * 1e6))
        config = TransactionsConfig(appenders=0, pause_share=0, abort_share=0, replace_share=0)
        workload = TransactionsWorkload(cast(OwnClients, Logs()), config, 1, history)
        workload.start()
        await workload.finish(Limits(answers_s=5, read_s=5, settle_s=1))
        return history.events

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        events = runner.run(body())
    assert [event for event in events if event.op == "no-progress"] == []
    assert {event.type for event in events if event.op == "txn-commit"} == {"invoke", "info", "ok"}
    assert check(events) == ()
