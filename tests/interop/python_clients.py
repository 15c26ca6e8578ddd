"""The clients for Python, which take the orders of ``go_clients/main.go`` in the process of the test."""

import asyncio
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import aiokafka
import confluent_kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.cimpl import NewTopic as ConfluentTopic

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.interop.fleet import MemberProcess, program_command

with warnings.catch_warnings():
    # It reads its message definitions by a function that Python 3.11 deprecated and 3.13 restored.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin
    from kafka.structs import OffsetAndMetadata

Record = dict[str, Any]
Order = SimpleNamespace
_DEFAULTS: Final = {"codec": None, "idempotent": False, "committed": False, "id": None}


class PythonClient(ABC):
    """One library: what all have in common, in terms of its producers, consumers and administration.

    A producer has ``write`` (the records have arrived, it returns their offsets), ``begin``, ``end`` and
    ``take`` (the end of what a member of a group has read of partition 0); a consumer has ``read``.
    """

    name: str
    program: str
    """Of its members of groups."""

    def run(self, do: str, cluster: Cluster, **order: object) -> Any:
        return getattr(self, do)(Order(servers=cluster.bootstrap_servers, **_DEFAULTS | order))

    def refusal(self, do: str, cluster: Cluster, **order: object) -> str:
        return _refusal(lambda: self.run(do, cluster, **order))

    def host(self, directory: Path) -> MemberProcess:
        return MemberProcess(program_command(self.program), directory)

    def produce(self, order: Order) -> Any:
        with self.producer(order) as producer:
            return producer.write(order.topic, order.records)

    def read(self, order: Order) -> Any:
        with self.consumer(order, None) as consumer:
            return consumer.read(order.count)

    def transact(self, order: Order) -> None:
        with self.producer(order) as producer:
            for number, commits in enumerate(order.ends):
                producer.begin()
                producer.write(order.topic, _everywhere(order, str(number)))
                producer.end(commits)

    def fence(self, order: Order) -> str:
        with self.producer(order) as old:
            old.begin()
            old.write(order.topic, _everywhere(order, "old"))
            self.transact(order)
            return _refusal(lambda: old.end(True))

    def process(self, order: Order) -> None:
        order.committed = True
        with self.consumer(order, order.group) as consumer, self.producer(order) as producer:
            producer.begin()
            records = consumer.read(order.count)
            producer.write(order.sink, records)
            producer.take(order, records[-1]["offset"] + 1, consumer)
            producer.end(order.ends[0])

    @abstractmethod
    def producer(self, order: Order) -> Any: ...

    @abstractmethod
    def consumer(self, order: Order, group: str | None) -> Any:
        """Of all partitions from their beginning, or of what the group gives it."""


def _refusal(ask: Callable[[], object]) -> str:
    try:
        done = ask()
    except Exception as error:
        return repr(error)
    raise AssertionError(done)


def _everywhere(order: Order, value: str) -> list[Record]:
    return [{"partition": n, "key": None, "value": value, "headers": []} for n in range(order.partitions)]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _headers(record: Record) -> list[tuple[str, str | bytes | None]]:
    return [(name, value.encode()) for name, value in record["headers"]]


def _record(partition: Any, offset: Any, key: Any, value: Any, headers: Any) -> Record:
    return {
        "partition": partition,
        "offset": offset,
        "key": None if key is None else bytes(key).decode(),
        "value": None if value is None else bytes(value).decode(),
        "headers": [[name, bytes(content).decode()] for name, content in headers or []],
    }


def _isolation(order: Order) -> str:
    return "read_committed" if order.committed else "read_uncommitted"


def _until(count: int, poll: Callable[[], list[Record]]) -> list[Record]:
    found: list[Record] = []
    deadline = Deadline(PATIENCE_S)
    while len(found) < count:
        assert not deadline.passed, f"{len(found)} records of {count}"
        found += poll()
    return found


class Confluent(PythonClient):
    name, program = "confluent-kafka", "confluent"

    @contextmanager
    def producer(self, order: Order) -> Iterator["ConfluentProducer"]:
        settings = {
            "bootstrap.servers": order.servers,
            "compression.type": order.codec or "none",
            "enable.idempotence": order.idempotent or order.id is not None,
            "max.in.flight": 1,
        }
        producer = ConfluentProducer(settings | ({"transactional.id": order.id} if order.id else {}))
        if order.id is not None:
            producer.init_transactions(PATIENCE_S)
        yield producer

    def consumer(self, order: Order, group: str | None) -> Any:
        return closing(ConfluentConsumer(order, group))

    def create(self, order: Order) -> None:
        admin, new = self._admin(order), ConfluentTopic(order.topic, order.partitions, order.replicas)
        admin.create_topics([new])[order.topic].result(PATIENCE_S)

    def describe(self, order: Order) -> dict[str, object]:
        admin, asked = self._admin(order), confluent_kafka.TopicCollection([order.topic])
        partitions = admin.describe_topics(asked)[order.topic].result(PATIENCE_S).partitions
        return {"partitions": len(partitions), "replicas": [len(it.replicas) for it in partitions]}

    def delete(self, order: Order) -> None:
        admin = self._admin(order)
        admin.delete_topics([order.topic])[order.topic].result(PATIENCE_S)

    def offsets(self, order: Order) -> dict[str, int]:
        partition = confluent_kafka.TopicPartition(order.topic, 0, order.time_ms)
        with self.consumer(order, None) as consumer:
            earliest, latest = consumer.get_watermark_offsets(partition, PATIENCE_S)
            (at_time,) = consumer.offsets_for_times([partition], PATIENCE_S)
        return {"earliest": earliest, "latest": latest, "at_time": at_time.offset}

    def _admin(self, order: Order) -> ConfluentAdmin:
        return ConfluentAdmin({"bootstrap.servers": order.servers})


class ConfluentProducer(confluent_kafka.Producer):
    def write(self, topic: str, records: Sequence[Record]) -> list[int]:
        offsets: dict[int, int] = {}
        for n, record in enumerate(records):

            def delivered(error: object, message: Any, n: int = n) -> None:
                assert error is None, error
                offsets[n] = message.offset()

            key, value, headers = record["key"], record["value"], _headers(record)
            self.produce(topic, value, key, record["partition"], on_delivery=delivered, headers=headers)
        assert self.flush(PATIENCE_S) == 0
        return [offsets[n] for n in range(len(records))]

    def begin(self) -> None:
        self.begin_transaction()

    def take(self, order: Order, end: int, consumer: confluent_kafka.Consumer) -> None:
        ends = [confluent_kafka.TopicPartition(order.topic, 0, end)]
        self.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), PATIENCE_S)

    def end(self, commits: bool) -> None:
        (self.commit_transaction if commits else self.abort_transaction)(PATIENCE_S)


class ConfluentConsumer(confluent_kafka.Consumer):
    def __init__(self, order: Order, group: str | None) -> None:
        super().__init__(
            {
                "bootstrap.servers": order.servers,
                "group.id": group or "none",
                "isolation.level": _isolation(order),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        if group is not None:
            self.subscribe([order.topic])
        elif hasattr(order, "partitions"):
            everything = range(order.partitions)
            self.assign([confluent_kafka.TopicPartition(order.topic, n, 0) for n in everything])

    def read(self, count: int) -> list[Record]:
        def polled() -> list[Record]:
            messages: Any = self.consume(count, 0.2)
            assert not any(it.error() for it in messages)
            return [
                _record(it.partition(), it.offset(), it.key(), it.value(), it.headers()) for it in messages
            ]

        return _until(count, polled)


class KafkaPython(PythonClient):
    name, program = "kafka-python", "kafka_python"

    @contextmanager
    def producer(self, order: Order) -> Iterator["KafkaPythonProducer"]:
        producer = KafkaPythonProducer(
            bootstrap_servers=order.servers,
            compression_type=None if order.codec == "none" else order.codec,
            transactional_id=order.id,
        )
        with closing(producer):
            if order.id is not None:
                producer.init_transactions()
            yield producer

    def consumer(self, order: Order, group: str | None) -> Any:
        return closing(KafkaPythonConsumer(order, group))

    def create(self, order: Order) -> None:
        new = kafka.admin.NewTopic(order.topic, order.partitions, order.replicas)
        with self._admin(order) as admin:
            admin.create_topics([new])

    def describe(self, order: Order) -> dict[str, object]:
        with self._admin(order) as admin:
            partitions = admin.describe_topics([order.topic])[0]["partitions"]
        return {"partitions": len(partitions), "replicas": [len(it["replica_nodes"]) for it in partitions]}

    def delete(self, order: Order) -> None:
        with self._admin(order) as admin:
            admin.delete_topics([order.topic])

    def offsets(self, order: Order) -> dict[str, int]:
        partition, spec = kafka.TopicPartition(order.topic, 0), kafka.admin.OffsetSpec
        asked = {"earliest": spec.EARLIEST, "latest": spec.LATEST, "at_time": order.time_ms}
        with self._admin(order) as admin:
            return {
                name: admin.list_partition_offsets({partition: one})[partition].offset
                for name, one in asked.items()
            }

    def _admin(self, order: Order) -> Any:
        return closing(kafka.KafkaAdminClient(bootstrap_servers=order.servers))


class KafkaPythonProducer(kafka.KafkaProducer):  # type: ignore[misc]
    def write(self, topic: str, records: Sequence[Record]) -> list[int]:
        sent = [
            self.send(topic, _bytes(it["value"]), _bytes(it["key"]), _headers(it), it["partition"])
            for it in records
        ]
        return [future.get(PATIENCE_S).offset for future in sent]

    def begin(self) -> None:
        self.begin_transaction()

    def take(self, order: Order, end: int, consumer: Any) -> None:
        ends = {kafka.TopicPartition(order.topic, 0): OffsetAndMetadata(end, "", -1)}
        self.send_offsets_to_transaction(ends, consumer.group_metadata())

    def end(self, commits: bool) -> None:
        (self.commit_transaction if commits else self.abort_transaction)()


class KafkaPythonConsumer(kafka.KafkaConsumer):  # type: ignore[misc]
    def __init__(self, order: Order, group: str | None) -> None:
        super().__init__(
            bootstrap_servers=order.servers,
            group_id=group,
            isolation_level=_isolation(order),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        if group is None:
            self.assign([kafka.TopicPartition(order.topic, n) for n in range(order.partitions)])
        else:
            self.subscribe([order.topic])

    def read(self, count: int) -> list[Record]:
        # A poll that ends while it joins its group makes it join again.
        return _until(count, lambda: _listed(self.poll(timeout_ms=1000)))


def _listed(polled: Any) -> list[Record]:
    """Of aiokafka and of kafka-python."""
    found = [record for records in polled.values() for record in records]
    return [_record(it.partition, it.offset, it.key, it.value, it.headers) for it in found]


class Aiokafka(PythonClient):
    """All is done on one event loop, which turns while something is waited for."""

    name = program = "aiokafka"

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    @contextmanager
    def producer(self, order: Order) -> Iterator["AiokafkaProducer"]:
        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=order.servers,
                compression_type=None if order.codec == "none" else order.codec,
                enable_idempotence=order.idempotent or order.id is not None,
                transactional_id=order.id,
            )
            await producer.start()
            return producer

        started = self._runner.run(start())
        try:
            yield AiokafkaProducer(started, self._runner)
        finally:
            self._runner.run(started.stop())

    @contextmanager
    def consumer(self, order: Order, group: str | None) -> Iterator["AiokafkaConsumer"]:
        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=order.servers,
                group_id=group,
                isolation_level=_isolation(order),
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            if group is None:
                partitions = range(getattr(order, "partitions", 1))
                consumer.assign([aiokafka.TopicPartition(order.topic, n) for n in partitions])
            else:
                consumer.subscribe([order.topic])
            return consumer

        started = self._runner.run(start())
        try:
            yield AiokafkaConsumer(started, self._runner)
        finally:
            self._runner.run(started.stop())

    def create(self, order: Order) -> None:
        new = aiokafka.admin.NewTopic(order.topic, order.partitions, order.replicas)
        ((_, code, _),) = self._ask(order, "create_topics", [new]).topic_errors
        if code:
            raise for_code(code)

    def describe(self, order: Order) -> dict[str, object]:
        partitions = self._ask(order, "describe_topics", [order.topic])[0]["partitions"]
        return {"partitions": len(partitions), "replicas": [len(it["replicas"]) for it in partitions]}

    def delete(self, order: Order) -> None:
        self._ask(order, "delete_topics", [order.topic])

    def offsets(self, order: Order) -> dict[str, int]:
        partition = aiokafka.TopicPartition(order.topic, 0)
        with self.consumer(order, None) as consumer:
            return {
                "earliest": consumer.ask("beginning_offsets", [partition])[partition],
                "latest": consumer.ask("end_offsets", [partition])[partition],
                "at_time": consumer.ask("offsets_for_times", {partition: order.time_ms})[partition].offset,
            }

    def _ask(self, order: Order, method: str, argument: object) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=order.servers)
            await admin.start()
            try:
                return await getattr(admin, method)(argument)
            finally:
                await admin.close()

        return self._runner.run(ask())


class Asked:
    """What is asked for in coroutines."""

    def __init__(self, asked: Any, runner: asyncio.Runner) -> None:
        self._asked, self._runner = asked, runner

    def ask(self, method: str, *arguments: object, **options: object) -> Any:
        return self._runner.run(getattr(self._asked, method)(*arguments, **options))


class AiokafkaProducer(Asked):
    def write(self, topic: str, records: Sequence[Record]) -> list[int]:
        sent = [
            self.ask(
                "send",
                topic,
                _bytes(it["value"]),
                _bytes(it["key"]),
                partition=it["partition"],
                headers=_headers(it),
            )
            for it in records
        ]
        return [self._runner.run(asyncio.wait_for(future, PATIENCE_S)).offset for future in sent]

    def begin(self) -> None:
        self.ask("begin_transaction")

    def take(self, order: Order, end: int, consumer: object) -> None:
        ends = {aiokafka.TopicPartition(order.topic, 0): end}
        self.ask("send_offsets_to_transaction", ends, order.group)

    def end(self, commits: bool) -> None:
        self.ask("commit_transaction" if commits else "abort_transaction")


class AiokafkaConsumer(Asked):
    def read(self, count: int) -> list[Record]:
        return _until(count, lambda: _listed(self.ask("getmany", timeout_ms=50)))


PYTHON_CLIENTS: Final = {client.name: client for client in (Confluent(), KafkaPython(), Aiokafka())}
