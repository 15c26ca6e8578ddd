"""What a console is to show: topics, records of every kind, and groups of both protocols."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
STRANGE: Final = "strange"
CLASSIC: Final = "billing"
MODERN: Final = "analytics"
HOSTILE: Final = "</title><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"
"""What would be run by a page that does not escape it."""
ORDERS_WRITTEN: Final = 400
FIRST_MS: Final = int(time.time()) * 1000 - 3_600_000
"""The time of the first order; there is another each second."""


def fill(bootstrap_servers: str, replication_factor: int = 1) -> None:
    """Topics and records; some in batches that are compressed, some in transactions."""
    with AdminClient(bootstrap_servers) as admin:
        for created in admin.create_topics(
            [
                NewTopic(ORDERS, 3, replication_factor, {"retention.ms": "604800000"}),
                NewTopic(PAYMENTS, 1, replication_factor),
                NewTopic(STRANGE, 1, replication_factor, {"cleanup.policy": "compact"}),
            ]
        ):
            created.check()
    _write_orders(bootstrap_servers)
    _write_payments(bootstrap_servers)
    _write_strange(bootstrap_servers)


def _write_orders(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd", "linger.ms": 50})
    for number in range(ORDERS_WRITTEN):
        order = {
            "order": number,
            "customer": f"customer-{number * 7 % 31}",
            "total": round(17.5 + number * 1.25, 2),
            "items": [{"sku": f"A-{number % 9}", "count": 1 + number % 4}],
        }
        producer.produce(
            ORDERS,
            json.dumps(order).encode(),
            f"customer-{number * 7 % 31}",
            number % 3,
            timestamp=FIRST_MS + number * 1000,
            headers=[("trace", f"{number:08x}"), ("source", "shop")],
        )
    assert producer.flush(30) == 0


def _write_payments(servers: str) -> None:
    """A transaction that is committed, one that is aborted, and another that is committed."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "payments"})
    producer.init_transactions(30)
    for text, end in (
        ("paid", producer.commit_transaction),
        ("withdrawn", producer.abort_transaction),
        ("paid again", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(PAYMENTS, text, "customer-1", timestamp=FIRST_MS)
        assert producer.flush(30) == 0
        end()


def _write_strange(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in (
        (b"hostile", HOSTILE.encode()),
        (b"tombstone", None),
        (b"empty", b""),
        (b"avro", b"\x00\x00\x00\x00\x2a\x06foo\x02"),
        (b"binary", bytes(range(256))),
        (b"count", (12345).to_bytes(8, "big")),
        (b"reversed", "txt.\u202egpj".encode()),
        (b"half a pair", b'{"emoji":"\\ud83d"}'),
        (b"long", b"x" * 100_000),
        (b"not utf-8", b"caf\xe9"),
    ):
        producer.produce(STRANGE, value, key, 0, headers=[(HOSTILE[:40], HOSTILE.encode()), ("none", None)])
        assert producer.flush(30) == 0


@contextmanager
def groups(bootstrap_servers: str) -> Iterator[None]:
    """A group of each protocol, with members that have read and committed some of the orders."""
    with ExitStack() as stack:
        for group_id, protocol in ((CLASSIC, "classic"), (MODERN, "consumer")):
            consumer = Consumer(_consumer_settings(bootstrap_servers, group_id, protocol))
            stack.callback(consumer.close)
            consumer.subscribe([ORDERS])
            _commit_some(consumer)
        yield


@contextmanager
def consumers_alike(bootstrap_servers: str, group_id: str, client_id: str) -> Iterator[list[Consumer]]:
    """Two members of one group with one client id. Poll them, so that they join."""
    with ExitStack() as stack:
        consumers = []
        for _ in range(2):
            settings = _consumer_settings(bootstrap_servers, group_id, "consumer") | {"client.id": client_id}
            consumer = Consumer(settings)
            stack.callback(consumer.close)
            consumer.subscribe([ORDERS])
            consumers.append(consumer)
        yield consumers


def _consumer_settings(servers: str, group_id: str, protocol: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "group.id": group_id,
        "group.protocol": protocol,
        "client.id": f"reader of {group_id}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def _commit_some(consumer: Consumer) -> None:
    read: set[int | None] = set()

    def has_read() -> bool:
        for message in consumer.consume(20, 0.2):
            assert message.error() is None, message.error()
            read.add(message.partition())
        return len(read) == 3

    wait_until("records of each partition", has_read, PATIENCE_S)
    consumer.commit(asynchronous=False)
