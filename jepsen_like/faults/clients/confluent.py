"""Workloads' clients on real processes: confluent-kafka, and pykraft's own client for administration.

librdkafka has threads of its own and calls back from the thread that polls it; here all callbacks arrive on
the event loop. A member is notified of a revocation while its thread waits for the loop, so that its belief
is recorded before the coordinator learns of the revocation. librdkafka cannot stop without leaving the group:
an abandoned member no longer polls, and leaves when ``max.poll.interval.ms`` has passed. A member whose
coordinator moves while it fetches committed offsets is closed, as an application has to close it: see
``OFFSETS_UNKNOWN``. So is one after a fatal error, such as that its instance id is in use.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from pykraft.jepsen_like.faults.clients.interface import (
    CLIENT_THREADS,
    Commit,
    MemberConfig,
    OperationError,
    Polled,
    PositionLostError,
    ProducerConfig,
    Reader,
    RefusedError,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.clients.own_clients import RealClients
from pykraft.jepsen_like.faults.clients.rereading import consume
from pykraft.jepsen_like.faults.record_text import record_text
from pykraft.kafka_client.group.config import OwnershipListener
from pykraft.kafka_client.metadata import TopicPartition

T = TypeVar("T")

MAX_POLLED = 1_000
MAX_THREADS = 48
CALLBACK_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 60.0
COMMIT_TIMEOUT_S = 30.0
"""A commit whose member loses its coordinator in an unlucky moment never returns from librdkafka."""

# The broker refused the record itself: it cannot be in the log.
REFUSED = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
POSITION_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})
OFFSETS_UNKNOWN = "Failed to fetch committed offsets"
"""After a refused OffsetFetch librdkafka does not read the assigned partitions (its issue 5586)."""

CLIENT_SETTINGS: Mapping[str, Any] = {
    "log_level": 0,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
}
SKIPPED: Final = "due to skipped sequence numbers"
PRODUCER_SETTINGS: Mapping[str, Any] = {
    "linger.ms": 5,
    "message.timeout.ms": 120_000,
    "request.timeout.ms": 5_000,
    "queue.buffering.max.messages": 20_000,
}
FETCH_SETTINGS: Mapping[str, Any] = {
    "check.crcs": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 10,
}


class ConfluentClients(RealClients):
    """Administration, single requests, transactions and what reads committed records are pykraft's own."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._bootstrap_servers = bootstrap_servers
        self._threads = ThreadPoolExecutor(MAX_THREADS, CLIENT_THREADS)
        self._abandoned: list[ck.Consumer] = []

    def producer(self, config: ProducerConfig) -> ConfluentProducer:
        return ConfluentProducer(self._settings(config.name), config, self._threads)

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> Reader:
        if committed:
            return super().reader(name, positions, committed=True)
        return ConfluentReader(self._settings(name), positions, self._threads)

    def member(self, config: MemberConfig, listener: OwnershipListener) -> ConfluentMember:
        settings = self._settings(config.name)
        return ConfluentMember(settings, config, listener, self._threads, self._abandoned)

    def close(self) -> None:
        """Everything opened must have been closed or abandoned. Blocks, but not forever: a commit of
        librdkafka's does not return as long as no coordinator answers it."""
        while self._abandoned:
            self._threads.submit(self._abandoned.pop().close)
        closing = threading.Thread(target=self._threads.shutdown, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)

    def _settings(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap_servers,
            "client.id": name,
            "error_cb": _ignore_error,
            **CLIENT_SETTINGS,
        }


class _SkipLog(logging.Logger):
    """librdkafka's log, which tells when it has sent a batch whose predecessor was not answered."""

    has_skipped = False

    def handle(self, record: logging.LogRecord) -> None:
        self.has_skipped = self.has_skipped or SKIPPED in record.getMessage()


class ConfluentProducer:
    """A thread serves librdkafka's callbacks; the loop receives their results, many at a time."""

    def __init__(
        self, settings: Mapping[str, Any], config: ProducerConfig, threads: ThreadPoolExecutor
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._answers: deque[tuple[asyncio.Future[int | None], KafkaError | None, int | None]] = deque()
        self._unanswered: set[asyncio.Future[int | None]] = set()
        self._fatal: str | None = None
        self._skips = _SkipLog(config.name)
        self._closing = threading.Event()
        self._producer = ck.Producer(
            {
                **settings,
                **PRODUCER_SETTINGS,
                "error_cb": self._note_fatal,
                "acks": config.acks,
                "enable.idempotence": config.idempotent,
                "max.in.flight.requests.per.connection": config.max_in_flight,
                "debug": "eos",
            },
            logger=self._skips,
        )
        self._thread = threading.Thread(target=self._serve, name=config.name, daemon=True)
        self._thread.start()

    @property
    def fatal(self) -> str | None:
        return self._fatal

    @property
    def has_skipped(self) -> bool:
        return self._skips.has_skipped

    def send(
        self, partition: TopicPartition, value: str | None, timestamp_ms: int, key: str | None = None
    ) -> asyncio.Future[int | None] | None:
        future: asyncio.Future[int | None] = self._loop.create_future()
        try:
            self._producer.produce(
                partition.topic,
                value,
                key,
                partition=partition.partition,
                timestamp=timestamp_ms,
                on_delivery=partial(self._answered, future),
            )
        except BufferError:
            return None
        except KafkaException as error:
            future.set_exception(RefusedError(str(error.args[0].name())))
            return future
        self._unanswered.add(future)
        return future

    async def flush(self, timeout_s: float) -> None:
        if self._unanswered:
            await asyncio.wait(list(self._unanswered), timeout=timeout_s)

    async def close(self) -> None:
        self._producer.purge(in_queue=True, in_flight=True)
        await self.flush(5.0)
        self._closing.set()
        await self._loop.run_in_executor(self._threads, self._thread.join)
        for future in self._unanswered:
            future.set_exception(UnknownOutcomeError("closed"))
        self._unanswered.clear()

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                has_served = bool(self._producer.poll(0.1))
            except KafkaException as error:  # a fatal error: it is raised here, not given to the callback
                has_served = True
                self._note_fatal(error.args[0])
            if has_served:
                try:
                    self._loop.call_soon_threadsafe(self._resolve)
                except RuntimeError:  # the loop is closed: the run was broken off
                    return

    def _answered(
        self, future: asyncio.Future[int | None], error: KafkaError | None, message: ck.Message
    ) -> None:
        self._answers.append((future, error, message.offset()))

    def _resolve(self) -> None:
        while self._answers:
            future, error, offset = self._answers.popleft()
            self._unanswered.discard(future)
            if error is None:
                future.set_result(offset if offset is not None and offset >= 0 else None)
            elif error.code() in REFUSED:
                future.set_exception(RefusedError(str(error.name())))
            else:
                future.set_exception(UnknownOutcomeError(str(error.name())))

    def _note_fatal(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = self._fatal or error.str()


class _Threaded:
    """A consumer whose blocking calls run in a thread, one at a time."""

    def __init__(self, settings: Mapping[str, Any], threads: ThreadPoolExecutor) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._consumer = ck.Consumer({**settings, **FETCH_SETTINGS})
        self._failures: deque[OperationError] = deque()

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._threads, partial(function, *arguments))

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        """The records of one call; an error that arrived with some is raised by the next call."""
        if self._failures:
            raise self._failures.popleft()
        messages = await self._call(consume, self._consumer, MAX_POLLED, timeout_s)
        polled: dict[TopicPartition, list[tuple[int, str]]] = {}
        for message in messages:
            partition = TopicPartition(str(message.topic()), message.partition() or 0)
            error, offset = message.error(), message.offset()
            if error is not None:
                if error.code() in POSITION_LOST:
                    self._failures.append(PositionLostError(partition, offset or 0, str(error)))
                elif error.code() == KafkaError._FATAL or OFFSETS_UNKNOWN in str(error):
                    self._failures.append(UnknownOutcomeError(str(error)))
                continue
            assert offset is not None
            key, value = (None if part is None else bytes(part) for part in (message.key(), message.value()))
            polled.setdefault(partition, []).append((offset, record_text(key, value)))
        if self._failures and not polled:
            raise self._failures.popleft()
        return {partition: Polled(tuple(records)) for partition, records in polled.items()}


class ConfluentReader(_Threaded):
    """A consumer that is assigned, so that it must read all records, in order."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        positions: Mapping[TopicPartition, int],
        threads: ThreadPoolExecutor,
    ) -> None:
        super().__init__({**settings, "group.id": "unused", "auto.offset.reset": "error"}, threads)
        self._consumer.assign([ck.TopicPartition(*place, offset) for place, offset in positions.items()])

    async def log_start(self, partition: TopicPartition) -> int:
        return (await self._look_up(partition))[0]

    async def end_offset(self, partition: TopicPartition) -> int:
        return (await self._look_up(partition))[1]

    async def _look_up(self, partition: TopicPartition) -> tuple[int, int]:
        """The log start and the high watermark."""
        ask = partial(self._consumer.get_watermark_offsets, timeout=2.0, cached=False)
        try:
            low, high = await self._call(ask, ck.TopicPartition(*partition))
        except KafkaException as error:
            raise UnknownOutcomeError(str(error)) from error
        return int(low), int(high)

    async def close(self) -> None:
        await self._call(self._consumer.close)


class ConfluentMember(_Threaded):
    """A consumer that has subscribed."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        config: MemberConfig,
        listener: OwnershipListener,
        threads: ThreadPoolExecutor,
        abandoned: list[ck.Consumer],
    ) -> None:
        super().__init__({**settings, **_member_settings(config)}, threads)
        self._abandoned = abandoned
        self._listener = listener
        self._gone = False
        self._leaves_after_s = config.session_timeout_ms / 1000
        self._subscribe(config.topics)

    async def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        offsets = [
            ck.TopicPartition(*partition, commit.offset, commit.tag) for partition, commit in commits.items()
        ]
        try:
            answered: list[ck.TopicPartition] = await asyncio.wait_for(
                self._call(self._commit, offsets), COMMIT_TIMEOUT_S
            )
        except TimeoutError:
            raise UnknownOutcomeError("librdkafka does not return from the commit") from None
        except KafkaException as error:
            raise _commit_error(error.args[0]) from error
        for one in answered:
            if one.error is not None:
                raise _commit_error(one.error)

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._call(self._subscribe, tuple(topics))

    async def close(self) -> None:
        self._gone = True
        with suppress(TimeoutError):  # its session then ends by itself
            await asyncio.wait_for(self._call(self._consumer.close), CLOSE_TIMEOUT_S)

    async def abandon(self) -> None:
        """Kept: librdkafka would leave the group when the last reference is deleted.

        It is closed when it should have left: if it has no coordinator at that moment it continues to send
        heartbeats forever, and keeps the partitions that it is assigned.
        """
        self._gone = True
        self._abandoned.append(self._consumer)
        self._loop.call_later(self._leaves_after_s, self._leave)

    def _leave(self) -> None:
        if self._consumer in self._abandoned:
            self._abandoned.remove(self._consumer)
            self._threads.submit(self._consumer.close)

    def _commit(self, offsets: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        commit: Callable[..., list[ck.TopicPartition] | None] = self._consumer.commit
        return commit(offsets=offsets, asynchronous=False) or []

    def _subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(
            list(topics),
            on_assign=partial(self._notify, "assigned"),
            on_revoke=partial(self._notify, "revoked"),
            on_lost=partial(self._notify, "lost"),
        )

    def _notify(self, what: str, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        """Called on the polling thread, which waits until the loop has processed the call."""
        if self._gone:
            return
        changed = [TopicPartition(one.topic, one.partition) for one in partitions]

        async def notify() -> None:
            if what == "revoked":
                await self._listener.revoked(changed)
            else:
                getattr(self._listener, what)(changed)

        asyncio.run_coroutine_threadsafe(notify(), self._loop).result(CALLBACK_TIMEOUT_S)


def _member_settings(config: MemberConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "group.id": config.group,
        "group.protocol": config.protocol,
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": config.session_timeout_ms,
    }
    if config.instance_id is not None:
        settings["group.instance.id"] = config.instance_id
    if config.protocol == "classic":
        settings["session.timeout.ms"] = config.session_timeout_ms
        settings["heartbeat.interval.ms"] = config.heartbeat_interval_ms
        settings["partition.assignment.strategy"] = config.assignor or "range"
    elif config.assignor is not None:
        settings["group.remote.assignor"] = config.assignor
    return settings


def _commit_error(error: KafkaError) -> OperationError:
    """librdkafka repeats commits by itself, so a refusal may be of a repetition."""
    if error.code() in (KafkaError._NO_OFFSET, KafkaError._STATE):
        return RefusedError(str(error.name()))
    return UnknownOutcomeError(str(error.name()))


def _ignore_error(error: KafkaError) -> None:
    """Broker connections break all the time here; errors that matter arrive with the messages."""
