"""One process with a transactional id, and its transactions, with what the history says of them."""

from __future__ import annotations

import random
from typing import Final, Literal

from pykraft.jepsen_like.faults.clients.interface import (
    FencedError,
    OperationError,
    PlainTransactionalProducer,
    TransactionalConfig,
    TransactionalProducer,
)
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import EventType, Recorder
from pykraft.jepsen_like.faults.workloads.transaction_config import TransactionsConfig
from pykraft.kafka_client.metadata import TopicPartition

RECOVER_SHARE: Final = 0.5
"""The share of plain clients that ask for another epoch of their own when they wake up (KIP-360)."""


class Instance:
    """One process with a transactional id. ``fenced``: it must end; ``broken``: better begin again."""

    def __init__(
        self,
        clients: OwnClients,
        config: TransactionsConfig,
        transactional_id: str,
        process: str,
        timeout_ms: int,
        history: Recorder,
        rng: random.Random | None = None,
    ) -> None:
        self._history = history
        self._number = 0
        is_plain = rng is None or rng.random() < config.plain_share
        rules: Literal[0, 2] = 0 if rng is not None and rng.random() < config.old_share else 2
        self.recovers = is_plain and rng is not None and rng.random() < RECOVER_SHARE
        self.transactional_id = transactional_id
        self.process = process
        self.timeout_s = timeout_ms / 1000
        self.is_broken = False
        asked = TransactionalConfig(process, transactional_id, timeout_ms, rules)
        self._plain = clients.plain_transactional(asked) if is_plain else None
        self.producer: TransactionalProducer = self._plain or clients.transactional(asked)

    @property
    def is_plain(self) -> bool:
        """Whether it may :meth:`recover` and :meth:`Transaction.send_late`."""
        return self._plain is not None

    @property
    def plain(self) -> PlainTransactionalProducer:
        assert self._plain is not None
        return self._plain

    async def init(self) -> bool:
        self.record("invoke", "txn-init", self.transactional_id)
        try:
            await self.producer.init()
        except OperationError as error:
            self.record(error.outcome, "txn-init", self.transactional_id, str(error))
            return False
        self.record("ok", "txn-init", self.transactional_id)
        return True

    async def recover(self) -> None:
        """Go on at another epoch; the replaced producer must be refused."""
        try:
            await self.plain.recover()
        except OperationError as error:
            self.record("info", "txn-recover", self.transactional_id, str(error))
            self.is_broken = True
        else:
            self.is_broken = False

    def begin(self, count: int) -> Transaction:
        self._number += 1
        name = f"{self.process}#{self._number}"
        detail = {"id": self.transactional_id, "count": count}
        self._history.record("info", self.process, "txn-begin", value=name, detail=detail)
        return Transaction(self, name, count)

    def record(self, kind: EventType, op: str, value: str, error: str | None = None) -> None:
        self._history.record(kind, self.process, op, value=value, error=error)

    def record_send(
        self, kind: EventType, place: TopicPartition, value: str, offset: int | None = None
    ) -> None:
        self._history.record(kind, self.process, "send", key=str(place), value=value, offset=offset)

    def record_offset(self, name: str, group: str, place: TopicPartition, offset: int) -> None:
        key = f"{group}/{place}"
        self._history.record("info", self.process, "txn-offset", key=key, value=name, offset=offset)

    async def close(self) -> None:
        await self.producer.close()


class Transaction:
    """``offsets``: of its records, None where unknown. After a failed write it can only be aborted."""

    def __init__(self, instance: Instance, name: str, count: int) -> None:
        self._instance = instance
        self._count = count
        self.name = name
        self.error: OperationError | None = None
        self._sent: list[tuple[TopicPartition, str]] = []
        self.offsets: dict[tuple[TopicPartition, str], int] = {}

    async def send(self, place: TopicPartition, count: int, suffix: str = "") -> None:
        """Write the next records, next to each other; nothing after a failure."""
        if self.error is not None:
            return
        values = self._take(place, count, suffix)
        try:
            first = await self._instance.producer.send(place, values)
        except OperationError as error:
            self.error = error
            return
        if first is not None and first >= 0:
            self.offsets.update({(place, value): first + n for n, value in enumerate(values)})

    def send_late(self, place: TopicPartition, count: int, after_s: float) -> None:
        values = self._take(place, count, "")
        self._instance.plain.send_late(place, values, after_s)
        self.error = OperationError("no answer in time")

    def _take(self, place: TopicPartition, count: int, suffix: str) -> list[str]:
        first = len(self._sent) + 1
        values = [f"{self.name}:{first + n}/{self._count}{suffix}" for n in range(count)]
        for value in values:
            self._instance.record_send("invoke", place, value)
            self._sent.append((place, value))
        return values

    async def send_offsets(self, group: str, place: TopicPartition, offset: int) -> None:
        if self.error is not None:
            return
        self._instance.record_offset(self.name, group, place, offset)
        try:
            await self._instance.producer.send_offsets(group, {place: offset})
        except OperationError as error:
            self.error = error

    async def commit(self) -> bool:
        """Commit, or abort after a failure; whether it was committed."""
        if self.error is not None or len(self._sent) < self._count:
            await self.abort()
            return False
        instance = self._instance
        instance.record("invoke", "txn-commit", self.name)
        outcome, text = await self._outcome_of_commit()
        instance.record(outcome, "txn-commit", self.name, text)
        instance.is_broken = outcome != "ok"
        for place, value in self._sent:
            offset = self.offsets.get((place, value)) if outcome == "ok" else None
            instance.record_send(outcome, place, value, offset)
        return outcome == "ok"

    async def _outcome_of_commit(self) -> tuple[EventType, str | None]:
        try:
            await self._instance.producer.commit()
        except OperationError as error:
            return error.outcome, str(error)
        return "ok", None

    async def abort(self) -> None:
        """The commit was never asked for: nothing of it may ever be read."""
        instance = self._instance
        self._give_up()
        if isinstance(self.error, FencedError):
            instance.is_broken = True
            return
        instance.record("invoke", "txn-abort", self.name)
        try:
            await instance.producer.abort()
        except OperationError as error:
            instance.record(error.outcome, "txn-abort", self.name, str(error))
            instance.is_broken = True
        else:
            instance.record("ok", "txn-abort", self.name)

    def abandon(self) -> None:
        """The process ends in the middle of it."""
        self._give_up()
        self._instance.is_broken = True

    def _give_up(self) -> None:
        for place, value in self._sent:
            self._instance.record_send("fail", place, value)
