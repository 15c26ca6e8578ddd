"""The reading part of the demo: three consumers of one group, with the KIP-848 protocol, read every record.

The first consumer joins alone and owns all partitions; two more join, and the time until the three own two
partitions each is the rebalance time. Partitions stay paused until then, so that all three have something to
read. Every record is looked up by its row number and compared by checksum.
"""

import json
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from pykraft.testing.processes.waits import wait_until

ROW_FIELD = "row"
CONSUMERS = 3
JOIN_TIMEOUT_S = 60.0
NOT_SEEN = -1

SETTINGS: Mapping[str, Any] = {
    "group.protocol": "consumer",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": True,
    "auto.commit.interval.ms": 1_000,
    "queued.min.messages": 100_000,
    "fetch.queue.backoff.ms": 5,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,
}


@dataclass(slots=True)
class Received:
    """The rows read. ``duplicates``: at two offsets; ``redelivered``: offsets that were read twice."""

    records: int = 0
    duplicates: int = 0
    redelivered: int = 0
    altered: int = 0
    unknown: int = 0
    by_consumer: list[int] = field(default_factory=list)
    rebalance_s: float = 0.0
    seconds: float = 0.0
    missing: int = 0


class Ledger:
    """The offset at which each row was first read. Thread-safe; consumers add whole polls."""

    def __init__(self, checksums: Sequence[int]) -> None:
        self._checksums = checksums
        self._seen_at = array("q", [NOT_SEEN]) * len(checksums)
        self._lock = threading.Lock()
        self.received = Received(by_consumer=[0] * CONSUMERS)

    def enter(self, consumer: int, messages: Sequence[Message]) -> None:
        with self._lock:
            self.received.records += len(messages)
            self.received.by_consumer[consumer] += len(messages)
            for message in messages:
                self._enter_one(message)

    def missing(self) -> int:
        return self._seen_at.count(NOT_SEEN)

    def _enter_one(self, message: Message) -> None:
        value, offset, partition = message.value(), message.offset(), message.partition()
        assert isinstance(value, bytes) and offset is not None and partition is not None
        row = json.loads(value).get(ROW_FIELD)
        if not isinstance(row, int) or not 0 <= row < len(self._checksums):
            self.received.unknown += 1
            return
        if crc32(value) != self._checksums[row]:
            self.received.altered += 1
        place = (partition << 48) | offset
        if self._seen_at[row] == NOT_SEEN:
            self._seen_at[row] = place
        elif self._seen_at[row] == place:
            self.received.redelivered += 1
        else:
            self.received.duplicates += 1


class GroupMember:
    """One consumer on a thread of its own."""

    def __init__(self, number: int, settings: Mapping[str, Any], topic: str, ledger: Ledger) -> None:
        self._number = number
        self._topic = topic
        self._ledger = ledger
        self._consumer = Consumer({**settings, "client.id": f"consumer-{number}"})
        self._reading = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"consumer-{number}", daemon=True)
        self.owned: frozenset[int] = frozenset()
        self.error: str | None = None

    def join(self) -> None:
        """Subscribe and start to poll; nothing is read before :meth:`read`."""
        self._thread.start()

    def read(self) -> None:
        self._reading.set()

    def leave(self) -> None:
        """Commit, leave the group, end the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30.0)

    def _run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        resumed = False
        try:
            while not self._stopping.is_set():
                if self._reading.is_set() and not resumed:
                    self._consumer.resume(self._consumer.assignment())
                    resumed = True
                messages = self._consumer.consume(5_000, timeout=0.1)
                good = [message for message in messages if message.error() is None]
                if good:
                    self._ledger.enter(self._number, good)
        except Exception as error:  # the demo reports it: a failure of a thread must not go unnoticed
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if not self._reading.is_set():
            consumer.pause(partitions)
        self.owned |= {partition.partition for partition in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self.owned -= {partition.partition for partition in partitions}


def consume_all(
    bootstrap_servers: str, topic: str, partitions: int, checksums: Sequence[int], timeout_s: float
) -> Received:
    """Read the topic with a group of three. :class:`TimeoutError` if the group does not become stable."""
    ledger = Ledger(checksums)
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "flights-demo", **SETTINGS}
    settings["error_cb"] = lambda _: None
    members = [GroupMember(number, settings, topic, ledger) for number in range(CONSUMERS)]
    everything = frozenset(range(partitions))
    try:
        members[0].join()
        wait_until(
            "the first consumer owns every partition", lambda: members[0].owned == everything, JOIN_TIMEOUT_S
        )
        start = time.monotonic()
        for member in members[1:]:
            member.join()
        wait_until("each consumer owns its share", lambda: _shared(members, everything), JOIN_TIMEOUT_S)
        ledger.received.rebalance_s = time.monotonic() - start
        start = time.monotonic()
        for member in members:
            member.read()
        end_offset = _end_offset(settings, topic, partitions)
        _read_to_the_end(ledger, members, end_offset, timeout_s)
        ledger.received.seconds = time.monotonic() - start
    finally:
        for member in members:
            member.leave()
    ledger.received.missing = ledger.missing()
    return ledger.received


def _shared(members: Sequence[GroupMember], everything: frozenset[int]) -> bool:
    shares = [member.owned for member in members]
    even = len(everything) // len(members)
    return sum(map(len, shares)) == len(everything) and all(len(share) >= even for share in shares)


def _read_to_the_end(
    ledger: Ledger, members: Sequence[GroupMember], end_offset: int, timeout_s: float
) -> None:
    """Wait until all records of the log were read; missing ones are not an error here, but counted."""
    end = time.monotonic() + timeout_s
    while ledger.received.records < end_offset and time.monotonic() < end:
        broken = [member.error for member in members if member.error is not None]
        if broken:
            raise RuntimeError(f"a consumer failed: {broken[0]}")
        time.sleep(0.05)
    time.sleep(0.5)  # an extra record would arrive now


def _end_offset(settings: Mapping[str, Any], topic: str, partitions: int) -> int:
    """The number of records in the log, by its high watermarks."""
    consumer = Consumer({**settings, "group.id": "flights-demo-ends", "group.protocol": "classic"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0, cached=False)
            for partition in range(partitions)
        ]
    except KafkaException as error:
        raise RuntimeError(f"the end offsets cannot be read: {error}") from error
    finally:
        consumer.close()
    return sum(int(high) for _, high in ends)
