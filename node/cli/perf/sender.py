"""Sends the records of ``producer-perf-test``, in transactions if so asked, and counts each when it is acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import NotWrittenError
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata, record_size_bound
from pykraft.kafka_client.producer.producer import Producer
from pykraft.kafka_client.producer.transactional import TransactionalProducer, TransactionConfig
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.record_codec import RecordInput
from pykraft.node.cli.perf.load import Payloads, StickyPartitions, pause_ms
from pykraft.node.cli.perf.metrics import Metrics
from pykraft.node.cli.perf.network import MeasuredNetwork
from pykraft.node.cli.perf.stats import ProducerStats

GROUP: Final = "producer-metrics"
_SILENCE_MS: Final = 2_000
"""After so long a user wants to know what the wait is for."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load; ``transaction_duration_ms`` after its begin a transaction is committed."""

    topic: str
    payloads: Payloads
    num_records: int
    warmup_records: int
    records_per_s: float
    reporting_interval_ms: int
    transaction: TransactionConfig | None
    transaction_duration_ms: int


class Sender:
    """Create it on a running event loop, and :meth:`close` it there."""

    def __init__(
        self,
        network: MeasuredNetwork,
        client: ClientConfig,
        config: ProducerConfig,
        load: Load,
        partitions: Sequence[int],
    ) -> None:
        self._network = network
        self._load = load
        self._transactional: TransactionalProducer | None = None
        if load.transaction is not None:
            self._transactional = TransactionalProducer(network, client, config, load.transaction)
        self._producer = self._transactional or Producer(network, client, config)
        self._partitions = StickyPartitions(partitions, config.batch_size_bytes)
        self._all = ProducerStats(network.now_ms(), load.reporting_interval_ms)
        self._steady: ProducerStats | None = None
        self._open_since_ms: int | None = None
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._answered_ms = network.now_ms()
        self._is_paused = False
        self._failed = 0
        self._reasons: dict[ErrorCode, str] = {}
        self.metrics: Metrics = {}

    async def run(self) -> None:
        """Send everything, wait for the outcomes, and print the summary, also if that is cut short.

        :class:`KafkaError` if a transaction was not committed.
        """
        watching = asyncio.create_task(self._watch())
        try:
            await self._send_all()
        finally:
            watching.cancel()
            now_ms = self._network.now_ms()
            click.echo(self._all.total_line(now_ms))
            if self._steady is not None:
                click.echo(self._steady.total_line(now_ms))
        self.metrics[GROUP, "record-send-total"] = self._load.num_records - self._failed
        self.metrics[GROUP, "record-error-total"] = self._failed

    async def _watch(self) -> None:
        """Say why nothing is acknowledged, soon, and again while that is so."""
        said_ms = said = None
        while True:
            await asyncio.sleep(_SILENCE_MS / 4000)
            now_ms = self._network.now_ms()
            if self._is_paused or now_ms - self._answered_ms < _SILENCE_MS:
                continue
            error = self._producer.trouble
            reason = "the brokers do not answer" if error is None else str(error)
            if said_ms is None or said != reason or now_ms - said_ms >= self._load.reporting_interval_ms:
                said_ms, said = now_ms, reason
                silent_s = (now_ms - self._answered_ms) / 1000
                click.echo(f"WARNING: nothing was acknowledged for {silent_s:.0f} s: {reason}", err=True)

    def check_all_acknowledged(self) -> None:
        """:class:`click.ClickException` if records were not."""
        if self._failed:
            reasons = "; ".join(f"{code.name}: {message}" for code, message in self._reasons.items())
            raise click.ClickException(
                f"{self._failed} of {self._load.num_records} records were not acknowledged: {reasons}"
            )

    async def close(self) -> None:
        await self._producer.close()

    async def _send_all(self) -> None:
        load = self._load
        if self._transactional is not None:
            async with self._timed("txn-init"):
                await self._transactional.init_transactions()
        if load.warmup_records:
            click.echo(
                f"Warmup first {load.warmup_records} records. Steady state results will print after the "
                "complete test summary."
            )
        start_ms = self._network.now_ms()
        turn_ms = start_ms
        for number in range(load.num_records):
            now_ms = self._network.now_ms()
            early_ms = pause_ms(number, now_ms - start_ms, load.records_per_s)
            if early_ms or now_ms != turn_ms:
                # A turn for the producer at least once in a millisecond.
                await self._pause(early_ms / 1000)
                turn_ms = self._network.now_ms()
            if load.warmup_records and number == load.warmup_records:
                now_ms = self._network.now_ms()
                self._steady = ProducerStats(now_ms, load.reporting_interval_ms, steady_state=True)
                self._all.is_silent = True
            await self._maybe_begin()
            await self._send(load.payloads(number))
            await self._maybe_commit(load.transaction_duration_ms)
        await self._maybe_commit(0)
        async with self._timed("flush"):
            await self._producer.flush()
        while self._unanswered:
            await self._wait_for_an_answer()

    async def _maybe_begin(self) -> None:
        if self._transactional is not None and self._open_since_ms is None:
            async with self._timed("txn-begin"):
                await self._transactional.begin_transaction()
            self._open_since_ms = self._network.now_ms()

    async def _maybe_commit(self, duration_ms: int) -> None:
        """Commit if the transaction has been open for so long."""
        if self._transactional is None or self._open_since_ms is None:
            return
        if self._network.now_ms() - self._open_since_ms >= duration_ms:
            async with self._timed("txn-commit"):
                await self._transactional.commit_transaction()
            self._open_since_ms = None

    @asynccontextmanager
    async def _timed(self, what: str) -> AsyncIterator[None]:
        start_ns = time.perf_counter_ns()
        yield
        self._answered_ms = self._network.now_ms()
        key = GROUP, f"{what}-time-ns-total"
        self.metrics[key] = self.metrics.get(key, 0) + time.perf_counter_ns() - start_ns

    async def _send(self, payload: bytes) -> None:
        """Hand a record to the producer, once its buffer has room. The wait counts as latency."""
        start_ms = self._network.now_ms()
        partition = self._partitions.partition(record_size_bound(RecordInput(None, payload)))
        while True:
            try:
                future = self._producer.append(self._load.topic, partition, None, payload)
                break
            except NotWrittenError as error:
                if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED or not self._unanswered:
                    self._fail(error.code, error.message)
                    return
            await self._wait_for_an_answer()
        assert isinstance(future, asyncio.Future)
        self._unanswered += 1
        future.add_done_callback(partial(self._handle_done, start_ms, len(payload), self._steady))

    async def _pause(self, duration_s: float) -> None:
        """Until it is time to send: with nothing unanswered the brokers are not what is waited for."""
        self._is_paused = not self._unanswered
        await asyncio.sleep(duration_s)
        if self._is_paused:
            self._is_paused, self._answered_ms = False, self._network.now_ms()

    async def _wait_for_an_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    def _handle_done(
        self,
        start_ms: int,
        size_bytes: int,
        steady: ProducerStats | None,
        future: asyncio.Future[RecordMetadata],
    ) -> None:
        self._unanswered -= 1
        self._answered_ms = self._network.now_ms()
        self._answered.set()
        error: Any = future.exception()
        if error is not None:
            self._fail(error.code, error.message)
            return
        now_ms = self._network.now_ms()
        for stats in (self._all, steady):
            if stats is not None:
                for line in stats.record(now_ms - start_ms, size_bytes, now_ms):
                    click.echo(line)

    def _fail(self, code: ErrorCode, message: str) -> None:
        self._failed += 1
        self._reasons.setdefault(code, message)
