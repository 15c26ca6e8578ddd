"""Transactions that follow each other without a pause.

Each writes records of 100 B to three partitions, or one record to one, and commits. The client is pykraft's
own on asyncio, in a process of its own that shares the cores with the broker; it goes by the rules of
KIP-890 (`transaction.version` 2), or, where a row says so, it is librdkafka, which knows the older ones only.
The latency is that of the commit alone, from the call until it returns; all records are acknowledged before.
A transaction can begin while the markers of the one before are written, but its first record waits for them.
Before it is measured the load runs for 10 s.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from comparison.cluster import Cluster
from comparison.frames import connect
from comparison.turn import Figures, Turn
from coordination.watched import watching

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.transactional import TransactionalProducer, TransactionConfig
from pykraft.runtime.address import Address
from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until

_TOPIC = "transactions"
_PARTITIONS = 3
_VALUE = bytes(100)
_WARM_UP_S = 10
_GIVE_UP_S = 60


class _Load(NamedTuple):
    """``transactions`` of ``records`` each, shared out among ``producers`` at once."""

    name: str
    producers: int
    records: int
    transactions: int


_OWN = (
    _Load("1 producer, 1 record", 1, 1, 2_000),
    _Load("1 producer, 10 records", 1, 10, 2_000),
    _Load("1 producer, 100 records", 1, 100, 1_000),
    _Load("20 producers, 1 record", 20, 1, 4_000),
    _Load("20 producers, 10 records", 20, 10, 4_000),
    _Load("20 producers, 100 records", 20, 100, 2_000),
)
_LIBRDKAFKA = _Load("librdkafka, 1 producer, 10 records", 1, 10, 1_000)


class _Done(NamedTuple):
    began_s: float
    ended_s: float
    cpu_s: float
    commits_s: list[float]


_Drive = Callable[[int, _Load], _Done]
"""``(port, load)``: one run of it in the process of the client."""


def run(turn: Turn) -> None:
    with turn.cluster(
        1, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1"
    ) as cluster:
        client = connect(cluster.port)
        request_topic(client, _TOPIC, _PARTITIONS, 1)
        wait_until(f"topic {_TOPIC}", lambda: is_in_sync(client, [_TOPIC], 1))
        for load in _OWN:
            turn.row(load.name, partial(_measure, turn, cluster, load, drive))
        turn.row(_LIBRDKAFKA.name, partial(_measure, turn, cluster, _LIBRDKAFKA, drive_librdkafka))


def _measure(turn: Turn, cluster: Cluster, load: _Load, drive: _Drive, figures: Figures) -> None:
    load = load._replace(transactions=max(load.producers, turn.scaled(load.transactions)))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:

        def once() -> _Done:
            return pool.submit(drive, cluster.port, load).result()

        enough = time.monotonic() + (0 if turn.quick else _WARM_UP_S)
        once()
        while time.monotonic() < enough:
            once()
        broker_s = cluster.cpu_s()
        done = once()
        broker_s = cluster.cpu_s() - broker_s
        count = len(done.commits_s)
        thousandths = statistics.quantiles(done.commits_s, n=1000, method="inclusive")
        figures.note("broker CPU of one", "µs", broker_s / count * 1e6)
        figures.note("time of one", "µs", (done.ended_s - done.began_s) / count * 1e6)
        figures.note("commit, p50", "ms", thousandths[499] * 1e3)
        figures.note("commit, p99", "ms", thousandths[989] * 1e3)
        figures.note("client CPU of one", "µs", done.cpu_s / count * 1e6)
        with watching(cluster, figures):
            once()


def drive(port: int, load: _Load) -> _Done:
    return asyncio.run(_drive(port, load))


async def _drive(port: int, load: _Load) -> _Done:
    network, client = AsyncioNetwork(), ClientConfig((Address("127.0.0.1", port),))
    producers = [
        TransactionalProducer(
            network, client, ProducerConfig(linger_ms=0), TransactionConfig(f"{load.name}-{number}")
        )
        for number in range(load.producers)
    ]
    commits_s: list[float] = []
    try:
        await asyncio.gather(*(producer.init_transactions() for producer in producers))
        began_s, cpu_s = time.monotonic(), time.process_time()
        each = load.transactions // load.producers
        await asyncio.gather(*(_transactions(one, each, load.records, commits_s) for one in producers))
        return _Done(began_s, time.monotonic(), time.process_time() - cpu_s, commits_s)
    finally:
        for producer in producers:
            await producer.close()


async def _transactions(
    producer: TransactionalProducer, count: int, records: int, commits_s: list[float]
) -> None:
    for _ in range(count):
        await producer.begin_transaction()
        written = [producer.append(_TOPIC, number % _PARTITIONS, None, _VALUE) for number in range(records)]
        for future in written:
            await future
        began_s = time.monotonic()
        await producer.commit_transaction()
        commits_s.append(time.monotonic() - began_s)


def drive_librdkafka(port: int, load: _Load) -> _Done:
    import confluent_kafka  # without it only this row fails

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": load.name, "linger.ms": 0}
    )
    producer.init_transactions(_GIVE_UP_S)
    commits_s: list[float] = []
    began_s, cpu_s = time.monotonic(), time.process_time()
    for _ in range(load.transactions):
        producer.begin_transaction()
        for number in range(load.records):
            producer.produce(_TOPIC, _VALUE, partition=number % _PARTITIONS)
        if producer.flush(_GIVE_UP_S):
            raise RuntimeError("records are not acknowledged")
        commit_began_s = time.monotonic()
        producer.commit_transaction(_GIVE_UP_S)
        commits_s.append(time.monotonic() - commit_began_s)
    return _Done(began_s, time.monotonic(), time.process_time() - cpu_s, commits_s)
