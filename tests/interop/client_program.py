"""Clients that do what they are ordered to, and what confluent-kafka reads of it."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.interop.built_programs import built
from tests.interop.clients import PROGRAMS
from tests.interop.fleet import MemberProcess
from tests.interop.java_jars import run
from tests.interop.python_clients import PYTHON_CLIENTS, PythonClient
from tests.narrowing import present

ORDER_TIMEOUT_S: Final = PATIENCE_S

Record = dict[str, Any]
"""``partition``, ``offset``, ``key``, ``value``, and ``headers`` as pairs, all of them text."""


@dataclass(frozen=True)
class ClientProgram:
    """One client of a program that is built."""

    name: str
    executable: Path

    def run(self, do: str, cluster: Cluster, **order: object) -> Any:
        """Carry out an order (main.go and order.rs say which there are); the answer is a value of JSON."""
        done = self._ask(do, cluster, order)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, do: str, cluster: Cluster, **order: object) -> str:
        """What it says of an order that must fail."""
        done = self._ask(do, cluster, order)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    def host(self, directory: Path) -> MemberProcess:
        """A process for members of groups, which writes its errors beside ``directory``."""
        return MemberProcess([str(self.executable), self.name, "members"], directory)

    def _ask(
        self, do: str, cluster: Cluster, order: Mapping[str, object]
    ) -> subprocess.CompletedProcess[str]:
        ordered = json.dumps({"do": do, "servers": cluster.bootstrap_servers, **order})
        return run([str(self.executable), self.name, "do", ordered], ORDER_TIMEOUT_S)


def client_program(name: str) -> ClientProgram | PythonClient:
    """Skips loudly where it cannot be built."""
    return PYTHON_CLIENTS.get(name) or ClientProgram(name, built(PROGRAMS[name]))


def read_by_confluent(
    cluster: Cluster, topic: str, partitions: int, count: int, *, committed: bool = False
) -> list[Record]:
    """So many records from the beginning of all partitions, in the order of partitions and offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found: list[Record] = []
    deadline = Deadline(PATIENCE_S)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while len(found) < count:
            assert not deadline.passed, f"{len(found)} records of {count}"
            for message in consumer.consume(count - len(found), 0.2):
                assert message.error() is None, message.error()
                headers: Any = message.headers() or []
                found.append(
                    {
                        "partition": present(message.partition()),
                        "offset": present(message.offset()),
                        "key": _text(message.key()),
                        "value": _text(message.value()),
                        "headers": [[name, _text(value)] for name, value in headers],
                    }
                )
    finally:
        consumer.close()
    return in_order(found)


def in_order(records: list[Record]) -> list[Record]:
    """As they are in their partitions; without headers is the same as with none."""
    listed = [record | {"headers": record["headers"] or []} for record in records]
    return sorted(listed, key=lambda record: (record["partition"], record["offset"]))


def values_of(records: list[Record], partitions: int) -> list[list[str]]:
    """Of each partition, in order."""
    return [
        [record["value"] for record in records if record["partition"] == partition]
        for partition in range(partitions)
    ]


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode()
