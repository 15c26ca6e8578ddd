"""One Spark session for the whole test run, and a mock cluster with records to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pykraft.spark.session import java_problem, local_session
from tests.mock_cluster import MockCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    """Starts a Java virtual machine (4-10 s). Skips, naming what to install, if there is none."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pykraft[spark]")
    problem = java_problem()
    if problem is not None:
        pytest.skip(problem)
    session = local_session("pykraft tests", spark__log__level="ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def mock_cluster() -> MockCluster:
    return MockCluster(brokers=2)
