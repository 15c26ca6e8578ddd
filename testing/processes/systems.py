"""The servers of a cluster of processes: pykraft as installed here, or another with Kafka's files."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from pykraft.runtime.address import Address
from pykraft.testing.processes.kafka_jars import find_server, java
from pykraft.testing.processes.listeners import Listeners

_SIGTERM_STATUS_OF_JAVA: Final = 143


class System(Protocol):
    """Commands and properties of one implementation; both are formatted and configured as Kafka is."""

    @property
    def name(self) -> str: ...

    @property
    def stop_status(self) -> int:
        """With what a node ends that was asked to stop by SIGTERM and has stopped well."""
        ...

    @property
    def stop_timeout_s(self) -> float:
        """After what time a node that was asked to stop counts as one that does not."""
        ...

    @property
    def start_timeout_s(self) -> float:
        """Until all nodes must be ready, on a busy machine too."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the properties that this implementation requires beside a run's."""
        ...

    def format_command(self, properties: Path, cluster_id: str, *voters: str) -> list[str]:
        """``voters``: ``--initial-controllers`` or ``--no-initial-controllers``, where they are dynamic."""
        ...

    def start_command(self, properties: Path) -> list[str]: ...

    def listener_properties(self, listeners: Listeners, advertised: str) -> Mapping[str, str]:
        """``advertised``: where clients find the broker, ``host:port``."""
        ...

    def kafka_controller(self, listeners: Listeners) -> Address:
        """Where a controller answers Kafka's protocol."""
        ...


class Pykraft:
    """This package. Controllers talk gRPC, so they have a listener of their own for Kafka's admin clients."""

    name: Final = "pykraft"
    stop_status: Final = 0
    stop_timeout_s: Final = 20.0
    start_timeout_s: Final = 60.0
    properties: Final[Mapping[str, str]] = {}

    def format_command(self, properties: Path, cluster_id: str, *voters: str) -> list[str]:
        return cli("storage", "format", "-t", cluster_id, "-c", str(properties), *voters)

    def start_command(self, properties: Path) -> list[str]:
        return cli("server", "start", str(properties))

    def listener_properties(self, listeners: Listeners, advertised: str) -> Mapping[str, str]:
        names = {
            "PLAINTEXT": listeners.broker,
            "CONTROLLER": listeners.controller,
            "KAFKA_CONTROLLER": listeners.kafka_controller,
        }
        return {
            "listeners": ",".join(f"{name}://{address}" for name, address in names.items()),
            "advertised.listeners": f"PLAINTEXT://{advertised}",
            "controller.listener.names": "CONTROLLER,KAFKA_CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        }

    def kafka_controller(self, listeners: Listeners) -> Address:
        return listeners.kafka_controller


class Kafka:
    """Apache Kafka out of a directory of jars. Its controllers speak Kafka's protocol with everybody."""

    name: Final = "kafka"
    stop_status: Final = _SIGTERM_STATUS_OF_JAVA
    stop_timeout_s: Final = 90.0
    start_timeout_s: Final = 180.0
    properties: Final[Mapping[str, str]] = {
        "group.consumer.min.session.timeout.ms": "1",
        "group.consumer.min.heartbeat.interval.ms": "1",
    }

    def __init__(self, jars: Path) -> None:
        self.jars = jars

    def format_command(self, properties: Path, cluster_id: str, *voters: str) -> list[str]:
        tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
        return java(self.jars, *_JVM_OPTIONS, *tool, *voters)

    def start_command(self, properties: Path) -> list[str]:
        return java(self.jars, *_JVM_OPTIONS, "kafka.Kafka", str(properties))

    def listener_properties(self, listeners: Listeners, advertised: str) -> Mapping[str, str]:
        return {
            "listeners": f"PLAINTEXT://{listeners.broker},CONTROLLER://{listeners.controller}",
            "advertised.listeners": f"PLAINTEXT://{advertised}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def kafka_controller(self, listeners: Listeners) -> Address:
        return listeners.controller


_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.apache.logging.log4j.level=INFO",
)
"""For several nodes on a small machine: they start fast, need little memory, and print their log."""


def find_system(name: str, kafka_libs: Path | None = None) -> System:
    """A system by its name. :class:`.kafka_jars.NoKafkaError` if it is missing."""
    if name == Kafka.name:
        return Kafka(find_server(kafka_libs, logs=True))
    return Pykraft()


def cli(*arguments: str) -> list[str]:
    """The command line of one ``pykraft`` command, run with this interpreter."""
    return [sys.executable, "-m", "pykraft.node", *arguments]
