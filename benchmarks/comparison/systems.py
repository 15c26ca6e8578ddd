"""The two systems as they are compared: the commands of fault runs, with the settings of a server."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from pykraft.testing.processes import systems
from pykraft.testing.processes.kafka_jars import NoKafkaError, find_server, java

JVM_OPTIONS: Final = (
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true -Dcom.sun.management.jmxremote=true"
    " -Dcom.sun.management.jmxremote.authenticate=false -Dcom.sun.management.jmxremote.ssl=false"
)
"""As ``bin/kafka-server-start.sh`` and ``bin/kafka-run-class.sh`` set them; ``-Xlog`` is added below."""


class System(systems.System, Protocol):
    def environment(self, scratch: Path) -> Mapping[str, str]:
        """Beside that of the benchmark."""
        ...


class Pykraft(systems.Pykraft):
    """This clone as it ships: no property is set that Kafka is not given, too."""

    def environment(self, scratch: Path) -> dict[str, str]:
        """Compiled once, as an installed package is, whatever the environment sets for bytecode."""
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


class Kafka(systems.Kafka):
    """Apache Kafka out of a directory of jars, with the options of its scripts."""

    def start_command(self, properties: Path) -> list[str]:
        log = f"-Xlog:gc*:file={properties.parent}/gc.log:time,tags:filecount=10,filesize=100M"
        return java(self.jars, *JVM_OPTIONS.split(), log, "kafka.Kafka", str(properties))

    def environment(self, scratch: Path) -> dict[str, str]:
        return {}


def find_kafka(libs: Path | None) -> Kafka:
    """Apache Kafka from ``libs``, or from the cache, which Maven fills once; SystemExit without it."""
    try:
        return Kafka(find_server(libs))
    except NoKafkaError as error:
        raise SystemExit(str(error)) from None


def java_version() -> str:
    """The first line that ``java -version`` prints."""
    return subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()[0]
