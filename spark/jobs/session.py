"""The session of a job: that of ``spark-submit`` if there is one, otherwise a local one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pykraft.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job_session(app_name: str, master: str) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end. ``spark-submit`` has chosen the master before."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # set by spark-submit for the Python program that it starts
        from pyspark.sql import SparkSession

        session = SparkSession.builder.appName(app_name).getOrCreate()
    else:
        session = local_session(app_name, master, spark__log__level="ERROR")
    try:
        yield session
    finally:
        session.stop()
