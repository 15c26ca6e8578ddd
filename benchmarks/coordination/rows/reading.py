"""Cost of reading a topic with transactions, by isolation level.

One partition holds transactions of 100 records of 1 KiB, every tenth of them aborted; a consumer of
librdkafka reads it from its start to its end. With read_committed it shows a tenth less. Per GB of values in
the log; the time is from the first record to the end. Before it is measured each load runs for 10 s.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from comparison.cluster import Cluster, Cost
from comparison.frames import connect
from comparison.turn import Figures, Turn

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.transactional import TransactionalProducer, TransactionConfig
from pykraft.runtime.address import Address
from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until

_TOPIC = "reading"
_TRANSACTIONS = 3_000
_RECORDS = 100
_VALUE = bytes(range(256)) * 4
_ABORTED = 10
_WARM_UP_S = 10
_GIVE_UP_S = 120
_AT_A_TIME = 10_000
_LEVELS = ("read_uncommitted", "read_committed")


def run(turn: Turn) -> None:
    with turn.cluster(
        1, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1"
    ) as cluster:
        client = connect(cluster.port)
        request_topic(client, _TOPIC, 1, 1)
        wait_until(f"topic {_TOPIC}", lambda: is_in_sync(client, [_TOPIC], 1))
        transactions = turn.scaled(_TRANSACTIONS) // _ABORTED * _ABORTED
        asyncio.run(_write(cluster.port, transactions))
        for level in _LEVELS:
            turn.row(level, partial(_measure, turn, cluster, transactions, level))


async def _write(port: int, transactions: int) -> None:
    producer = TransactionalProducer(
        AsyncioNetwork(),
        ClientConfig((Address("127.0.0.1", port),)),
        ProducerConfig(linger_ms=0),
        TransactionConfig(_TOPIC),
    )
    try:
        await producer.init_transactions()
        for number in range(transactions):
            await producer.begin_transaction()
            for future in [producer.append(_TOPIC, 0, None, _VALUE) for _ in range(_RECORDS)]:
                await future
            if number % _ABORTED:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    finally:
        await producer.close()


def _measure(turn: Turn, cluster: Cluster, transactions: int, level: str, figures: Figures) -> None:
    written = transactions * _RECORDS
    visible = written - (written // _ABORTED if level == "read_committed" else 0)

    def load() -> float:
        return _read(cluster.port, level, visible)

    enough = time.monotonic() + (0 if turn.quick else _WARM_UP_S)
    load()
    while time.monotonic() < enough:
        load()
    cpu_s = cluster.cpu_s()
    wall_s = load()
    figures.per_gb(Cost(cluster.cpu_s() - cpu_s, wall_s), written * len(_VALUE))


def _read(port: int, level: str, visible: int) -> float:
    """Read all that is visible; the seconds from the first record to the end."""
    import confluent_kafka  # without it only these rows fail

    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "group.id": "reading",
        "isolation.level": level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "queued.min.messages": 2_000_000,
        "fetch.queue.backoff.ms": 2,
        "check.crcs": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition(_TOPIC, 0, 0)])
        count, began_s, give_up_s = 0, 0.0, time.monotonic() + _GIVE_UP_S
        while time.monotonic() < give_up_s:
            messages = consumer.consume(_AT_A_TIME, timeout=1)
            began_s = began_s or (time.monotonic() if messages else 0.0)
            errors = [error for message in messages if (error := message.error()) is not None]
            count += len(messages) - len(errors)
            if _has_end(errors):
                if count != visible:
                    raise RuntimeError(f"{count} records were read, not {visible}")
                return time.monotonic() - began_s
        raise RuntimeError(f"only {count} records were read in {_GIVE_UP_S} s")
    finally:
        consumer.close()


def _has_end(errors: Sequence[Any]) -> bool:
    """Whether the end of the partition is among them; RuntimeError for any other."""
    import confluent_kafka

    for error in errors:
        if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
            raise RuntimeError(str(error))
    return bool(errors)
