"""Apache Kafka as directories of jars, which Maven fills once, and how programs in them are started."""

import shutil
from pathlib import Path
from typing import Final

from pykraft.testing.processes.maven import NO_LOGGING, MavenError, cache_directory, download

KAFKA_VERSION: Final = "4.3.0"

_SERVER: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
)
_CLIENTS: Final = (f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",)
_LOGGING: Final = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
DOWNLOAD_TIMEOUT_S: Final = 900


class NoKafkaError(RuntimeError):
    """Apache Kafka cannot be run here; the message says what is missing and what helps."""


def find_server(
    libs: Path | None = None, *, logs: bool = False, timeout_s: float = DOWNLOAD_TIMEOUT_S
) -> Path:
    """Jars of Kafka's server and tools: ``libs``, or those in the cache. :class:`NoKafkaError`.

    ``logs``: those in the cache can write a log. A download is announced, and may take ``timeout_s``.
    """
    _need_java()
    name, logging = ("kafka-logging", _LOGGING) if logs else ("kafka", NO_LOGGING)
    jars = libs or _cached(name, _SERVER, logging, timeout_s)
    if not list(jars.glob(f"kafka_2.13-{KAFKA_VERSION}.jar")):
        raise NoKafkaError(f"there is no kafka_2.13-{KAFKA_VERSION}.jar in {jars}")
    return jars


def find_clients(libs: Path | None = None, *, timeout_s: float = DOWNLOAD_TIMEOUT_S) -> Path:
    """Jars of Kafka's Java client: ``libs``, or those in the cache. :class:`NoKafkaError`."""
    _need_java()
    return libs or _cached("kafka-clients", _CLIENTS, NO_LOGGING, timeout_s)


def java(jars: Path, *arguments: str) -> list[str]:
    """The command of ``java`` with these options and this program, whose classes are in the jars."""
    return ["java", "-cp", f"{jars}/*", *arguments]


def _need_java() -> None:
    if shutil.which("java") is None:
        raise NoKafkaError("Apache Kafka cannot be run: java is not installed (17 or newer is needed)")


def _cached(name: str, artifacts: tuple[str, ...], logging: str, timeout_s: float) -> Path:
    directory = cache_directory() / f"{name}-{KAFKA_VERSION}"
    if not directory.exists():
        print(f"downloading {name} {KAFKA_VERSION} from Maven Central to {directory}", flush=True)
        try:
            download(artifacts, directory, timeout_s, logging)
        except MavenError as error:
            raise NoKafkaError(
                f"Apache Kafka cannot be downloaded: {error}. Give its jars with --kafka-libs DIR"
                " (the directory libs of the binary release of Kafka)"
            ) from None
    return directory
