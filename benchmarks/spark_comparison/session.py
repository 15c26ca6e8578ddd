"""A session with all three sides: as a user would start it on this machine, with Spark's connector if it is
to be had for this version of Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_comparison.confluent_source import ConfluentSource

from pykraft.spark.session import prepare_environment
from pykraft.testing.processes.maven import MavenError, cache_directory, download

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCALA: Final = "2.13"
_DOWNLOAD_TIMEOUT_S: Final = 900
_NEEDED: Final = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""The rest of what Maven brings is in Spark already."""


def find_connector(spark_version: str) -> list[Path]:
    """The jars of Spark's connector; none, said aloud, if it cannot be had."""
    directory = cache_directory() / f"spark-sql-kafka-{spark_version}"
    if not directory.exists():
        artifact = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{spark_version}"
        try:
            download([artifact], directory, _DOWNLOAD_TIMEOUT_S)
        except MavenError as error:
            print(f"NOT MEASURED: Spark's own connector for Spark {spark_version}: {error}", flush=True)
            return []
    return [jar for jar in sorted(directory.glob("*.jar")) if jar.name.startswith(_NEEDED)]


def start_session(jars: list[Path]) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # the sources of this benchmark
    prepare_environment()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(ConfluentSource)
    return session
