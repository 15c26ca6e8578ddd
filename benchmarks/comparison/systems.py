"""The two systems: how a node of each is formatted and started. Both read the same properties file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from comparison.maven import MavenError, cache_directory, download

KAFKA_VERSION: Final = "4.3.0"
CLUSTER_ID: Final = "YmVuY2htYXJrLWNsdXN0ZX"
JVM_OPTIONS: Final = (
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true -Dcom.sun.management.jmxremote=true"
    " -Dcom.sun.management.jmxremote.authenticate=false -Dcom.sun.management.jmxremote.ssl=false"
)
"""As ``bin/kafka-server-start.sh`` and ``bin/kafka-run-class.sh`` set them; ``-Xlog`` is added below."""

_ARTIFACTS: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
)
_DOWNLOAD_TIMEOUT_S: Final = 900


class System(Protocol):
    @property
    def name(self) -> str:
        """The key of its figures."""

    def format_command(self, properties: Path) -> list[str]: ...

    def start_command(self, properties: Path) -> list[str]: ...

    def environment(self, scratch: Path) -> dict[str, str]: ...


class Pykraft:
    """This clone as it ships: no property is set that Kafka is not given, too."""

    name = "pykraft"

    def format_command(self, properties: Path) -> list[str]:
        return [*_PYKRAFT, "storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]

    def start_command(self, properties: Path) -> list[str]:
        return [*_PYKRAFT, "server", "start", str(properties)]

    def environment(self, scratch: Path) -> dict[str, str]:
        """Compiled once, as an installed package is, whatever the environment sets for bytecode."""
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return kept | {"PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


_PYKRAFT: Final = (sys.executable, "-m", "pykraft.node")


@dataclass(frozen=True)
class Kafka:
    """Apache Kafka out of a directory of jars."""

    jars: Path
    name: str = "kafka"

    def format_command(self, properties: Path) -> list[str]:
        return [*self._java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]

    def start_command(self, properties: Path) -> list[str]:
        log = f"-Xlog:gc*:file={properties.parent}/gc.log:time,tags:filecount=10,filesize=100M"
        return [*self._java(*JVM_OPTIONS.split(), log), "kafka.Kafka", str(properties)]

    def environment(self, scratch: Path) -> dict[str, str]:
        return dict(os.environ)

    def _java(self, *options: str) -> list[str]:
        return ["java", *options, "-cp", f"{self.jars}/*"]


def find_kafka(libs: Path | None) -> Kafka:
    """Apache Kafka from ``libs``, or from the cache, which Maven fills once; SystemExit without it."""
    if shutil.which("java") is None:
        raise SystemExit("Apache Kafka cannot be run: java is not installed (17 or newer is needed)")
    jars = libs or cache_directory() / f"kafka-{KAFKA_VERSION}"
    if libs is None and not jars.exists():
        print(f"downloading Apache Kafka {KAFKA_VERSION} from Maven Central to {jars}", flush=True)
        try:
            download(_ARTIFACTS, jars, _DOWNLOAD_TIMEOUT_S)
        except MavenError as error:
            raise SystemExit(
                f"Apache Kafka cannot be downloaded: {error}. Give its jars with --kafka-libs DIR"
                " (the directory libs of the binary release of Kafka)"
            ) from None
    if not list(jars.glob(f"kafka_2.13-{KAFKA_VERSION}.jar")):
        raise SystemExit(f"there is no kafka_2.13-{KAFKA_VERSION}.jar in {jars}")
    return Kafka(jars)


def java_version() -> str:
    """The first line that ``java -version`` prints."""
    return subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()[0]
